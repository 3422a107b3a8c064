"""Names under which this hub answers, and whether its connections are encrypted."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

Environ = dict[str, Any]

DEFAULT_PORTS = {"http": 80, "https": 443}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class PublicOrigins:
    """Accepted hosts and origins. `Host` must be one of the keys of `origins` exactly: a site that
    rebinds its own name to our address sends another. The value is the only Origin of pages that
    were loaded under that name."""

    origins: Mapping[str, str]
    url: str  # shown to people
    is_secure: bool  # people reach it by https

    @classmethod
    def at(cls, host: str, port: int, is_tls: bool = False, public_url: str | None = None
           ) -> "PublicOrigins":
        scheme = "https" if is_tls else "http"
        bound = f"[{host}]" if ":" in host else host
        names = {*LOOPBACK, bound} - {"0.0.0.0", "[::]"}
        ends = ("", f":{port}") if port == DEFAULT_PORTS[scheme] else (f":{port}",)
        origins = {name + end: f"{scheme}://{name}{ends[0]}" for name in names for end in ends}
        url = f"{scheme}://{bound}:{port}"
        if public_url is not None:
            origins[urlsplit(public_url).netloc] = url = public_url
        return cls(origins, url, url.startswith("https:"))

    def knows(self, environ: Environ) -> bool:
        return environ.get("HTTP_HOST", "") in self.origins

    def is_own_origin(self, environ: Environ) -> bool:
        own = self.origins.get(environ.get("HTTP_HOST", ""))
        return own is not None and environ.get("HTTP_ORIGIN") == own


def public_url(raw: str) -> str:
    """Return the URL as browsers write an origin: lower case, no default port, no path. Raises
    ValueError."""
    parts = urlsplit(raw)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.username is not None or (
            parts.path.strip("/") or parts.query or parts.fragment):
        raise ValueError("the URL that people type is needed, without a path, for example "
                         "https://gpudeck.example.org")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    is_usual = parts.port in (None, DEFAULT_PORTS[parts.scheme])
    return f"{parts.scheme}://{host}" + ("" if is_usual else f":{parts.port}")


def is_loopback(host: str) -> bool:
    """Tell whether a host is a loopback; raise ValueError if it is no address and not localhost."""
    return host == "localhost" or ip_address(host).is_loopback

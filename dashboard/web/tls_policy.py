"""Rules for what a hub may listen on: TLS, or a proxy that brings it, or this machine alone."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from gevent.ssl import PROTOCOL_TLS_SERVER, SSLContext, SSLError, TLSVersion

from gpudeck.errors import CommandError, ExitCode

from ..public_url import is_loopback
from ..settings import HubSettings


def check_bind(settings: HubSettings) -> None:
    """Refuse what would carry passwords over a network in the clear."""
    host = settings.bind[0]
    try:
        stays_here = is_loopback(host)
    except ValueError as error:
        raise CommandError(f"--bind {host}: give an address such as 127.0.0.1 or [::1]",
                           ExitCode.USAGE) from error
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise CommandError("--tls-cert and --tls-key go together; give both or none",
                           ExitCode.USAGE)
    public = settings.public_url
    if stays_here:
        return
    is_proxied = settings.trusted_proxies.networks and (public or "").startswith("https:")
    if settings.tls_cert is None and not is_proxied:
        raise _cannot(f"--bind {host}: without TLS a hub listens on this machine only; give "
                      "--tls-cert and --tls-key, or, behind a proxy that has them, "
                      "--trusted-proxies and --public-url https://…; or use 127.0.0.1 and ssh -L")
    if host in ("0.0.0.0", "::") and public is None:
        raise _cannot(f"--bind {host}: this hub answers under names it knows only; say which one "
                      "people use: --public-url https://gpudeck.example.org")
    if public is not None and not public.startswith("https:"):
        raise _cannot(f"--public-url {public}: https is needed where others can reach the hub")


def server_context(settings: HubSettings) -> SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    _check_key(settings.tls_key)
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.minimum_version = TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_no_password)
    except (OSError, ValueError) as error:
        why = "they do not belong together, or are not PEM" if isinstance(error, SSLError) else (
            getattr(error, "strerror", None) or str(error))
        raise _cannot(f"--tls-cert {settings.tls_cert}, --tls-key {settings.tls_key}: {why}"
                      ) from error
    return context


class CertificateReloader:
    """Certificates are renewed under a running hub: connections from then on get the new one. One
    that cannot be used, half a renewal too, changes nothing and is reported once."""

    def __init__(self, settings: HubSettings, context: SSLContext) -> None:
        assert settings.tls_cert is not None, "there is a context"
        self._settings, self._context, self._cert = settings, context, settings.tls_cert
        self._last_signs = self._signs()

    def look(self) -> str | None:
        """Reload changed certificates; return what is to be logged, None if nothing has changed."""
        signs = self._signs()
        if signs == self._last_signs:
            return None
        self._last_signs = signs
        try:
            server_context(self._settings)  # else a context would be left with one of the two
            self._context.load_cert_chain(self._cert, self._settings.tls_key,
                                          password=_no_password)
        except (CommandError, OSError, ValueError) as error:
            return f"certificate not taken over, the former one stays reason={str(error)!r}"
        return "certificate read again"

    def _signs(self) -> list[tuple[int, int, int]]:
        signs = []
        for path in (self._settings.tls_cert, self._settings.tls_key):
            try:
                assert path is not None, "there is a context"
                info = os.stat(path)  # follows links, as certbot's are
                signs.append((info.st_ino, info.st_mtime_ns, info.st_size))
            except OSError:
                signs.append((0, 0, 0))
        return signs


def takes(settings: HubSettings) -> Callable[[str], bool]:
    """Return a test for addresses from which connections are accepted. Beyond this machine and
    without TLS here, only proxies that have it pass."""
    if settings.tls_cert is not None or is_loopback(settings.bind[0]):
        return lambda address: True
    proxies = settings.trusted_proxies
    return lambda address: is_loopback(address) or proxies.hold(address)


def _check_key(path: Path) -> None:
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError as error:
        raise _cannot(f"--tls-key {path}: {error.strerror}") from error
    if mode & 0o007:
        raise _cannot(f"--tls-key {path} can be read by everyone (mode {mode:o}); run: chmod o= "
                      f"{path}")


def _no_password() -> str:
    """Raise instead of letting OpenSSL ask on the terminal: a hub has none."""
    raise ValueError("the key is enciphered; give one without a passphrase")


def _cannot(sentence: str) -> CommandError:
    return CommandError(sentence, ExitCode.CANNOT_START)

"""Notifications to a URL: the hub decides what is sent, and reads no more of an answer than its
status.

It connects to the very address that was checked, so that a name cannot resolve to another one a
moment later; it follows no redirects and ignores proxies of the environment. It runs in native
threads.
"""

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gpudeck import __version__

from ..runtime.deadline import Deadline, connected
from ..trusted_networks import NetworkSet
from .receivers import address_flaw

STEP_WITHIN_S = 8.0
WITHIN_S = 15.0
RETRY_MOST_S = 900.0
# Refusals that another attempt may overcome.
PASSING = frozenset((408, 425, 429))


class WebhookFailedError(OSError):
    """The request was not accepted. `is_final`: the same request would be refused again; `retry_s`:
    the receiver asks to wait that long."""

    def __init__(self, words: str, is_final: bool = False, retry_s: float | None = None) -> None:
        super().__init__(words)
        self.is_final = is_final
        self.retry_s = retry_s


@dataclass(frozen=True, slots=True)
class WebRequest:
    """A POST of JSON."""

    url: str
    body: Any
    authorization: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class WebhookAnswer(NamedTuple):
    is_taken: bool
    words: str
    is_final: bool = False
    retry_s: float | None = None


def send(request: WebRequest, headers: dict[str, str], inside: NetworkSet, within_s: float) -> str:
    """Send a request, and return what was answered. Raises OSError or HTTPException."""
    parts = urlsplit(request.url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kind = _TlsConnection if parts.scheme == "https" else _PlainConnection
    deadline = Deadline(within_s)
    connection = kind(parts.hostname or "", parts.port, inside, deadline)
    try:
        body = json.dumps(request.body, ensure_ascii=False).encode()
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        deadline.left_s()  # raises if the deadline cut the headers short
    except (OSError, http.client.HTTPException):
        deadline.left_s()
        raise
    finally:
        deadline.end()
        connection.close()
    words = f"{answer.status} {answer.reason}"[:100]
    if not 200 <= answer.status < 300:
        raise WebhookFailedError(
            f"it answered {words}" + (
                "; redirects are not followed" if 300 <= answer.status < 400 else ""),
            is_final=400 <= answer.status < 500 and answer.status not in PASSING,
            retry_s=_retry_s(answer.headers.get("Retry-After", "")))
    return f"it answered {words}"


def _retry_s(text: str) -> float | None:
    """Return the seconds to wait. Dates, which some servers send, are ignored: not worth a
    parser."""
    return min(float(text), RETRY_MOST_S) if text.isascii() and text.isdigit() else None


def trial(request: WebRequest, notification_id: str, inside: NetworkSet, within_s: float = WITHIN_S
          ) -> WebhookAnswer:
    """Try to send a request. Raises nothing: an exception that leaves a native thread would be
    printed."""
    try:
        return WebhookAnswer(True, send(request, _headers(request, notification_id), inside,
                                        within_s))
    except TimeoutError:
        return WebhookAnswer(False, "it did not answer in time")
    except WebhookFailedError as error:
        return WebhookAnswer(False, str(error), error.is_final, error.retry_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return WebhookAnswer(False, _plain(error))


def _plain(error: Exception) -> str:
    """Return the reason without the URL, part of which is a secret."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"[:200]
    if isinstance(error, http.client.HTTPException):
        return f"it does not speak HTTP ({type(error).__name__})"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]


def _headers(request: WebRequest, notification_id: str) -> dict[str, str]:
    headers = {"User-Agent": f"gpudeck/{__version__}", **request.headers,
               "Content-Type": "application/json", "Connection": "close"}
    if notification_id:
        headers["Idempotency-Key"] = notification_id
    if request.authorization:
        headers["Authorization"] = request.authorization
    return headers


class _PlainConnection(http.client.HTTPConnection):
    def __init__(self, host: str, port: int | None, inside: NetworkSet, deadline: Deadline
                 ) -> None:
        super().__init__(host, port, timeout=STEP_WITHIN_S)
        self._inside = inside
        self._deadline = deadline

    def connect(self) -> None:
        self.sock = _socket(self.host, self.port, self._inside, self._deadline)
        self._deadline.watch(self.sock)


class _TlsConnection(_PlainConnection):
    default_port = http.client.HTTPS_PORT

    def connect(self) -> None:
        context = ssl.create_default_context()
        super().connect()
        self.sock = context.wrap_socket(self.sock, server_hostname=self.host,
                                        do_handshake_on_connect=False)
        self._deadline.watch(self.sock)
        self.sock.do_handshake()


def _socket(host: str, port: int, inside: NetworkSet, deadline: Deadline) -> socket.socket:
    """Connect, except to addresses to which nothing may be sent."""
    def allow(address: str) -> None:
        if (flaw := address_flaw(address, inside)) is not None:
            raise WebhookFailedError(flaw)

    return connected(host, port, deadline, STEP_WITHIN_S, allow)

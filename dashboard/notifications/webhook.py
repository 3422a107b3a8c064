"""Notices to a URL: what is sent is ours, what is answered is not read beyond its status.

Straight to the address that was looked at, so that a name cannot stand for another one a moment
later; no redirect is followed, and no proxy of the environment is asked. It runs in native threads.
"""

import http.client
import json
import socket
import ssl
import threading
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from gpudeck import __version__

from ..trusted_networks import NetworkSet
from .receivers import address_flaw

STEP_WITHIN_S = 8.0
WITHIN_S = 15.0


class WebhookFailedError(OSError):
    """It answered, and not with yes."""


def send(url: str, fields: Any, headers: dict[str, str], inside: NetworkSet) -> str:
    """What it answered. Raises OSError or HTTPException."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kind = _TlsConnection if parts.scheme == "https" else _PlainConnection
    connection = kind(parts.hostname or "", parts.port, inside)
    # Each step has its time; all of them together have this: who answers a byte now and then would
    # hold the thread for good.
    clock = threading.Timer(WITHIN_S, _hang_up, (connection,))
    clock.daemon = True
    clock.start()
    try:
        body = json.dumps(fields, ensure_ascii=False).encode()
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        words = f"{answer.status} {answer.reason}"[:100]
        if not 200 <= answer.status < 300:
            raise WebhookFailedError(f"it answered {words}" + (
                "; redirects are not followed" if 300 <= answer.status < 400 else ""))
        return f"it answered {words}"
    finally:
        clock.cancel()
        connection.close()


def trial(url: str, fields: Any, token: str, notification_id: str, inside: NetworkSet
          ) -> tuple[bool, str]:
    """Whether it was taken, and what is to be said of it: an exception that leaves a native thread
    would be printed."""
    try:
        return True, send(url, fields, _headers(token, notification_id), inside)
    except TimeoutError:
        return False, "it did not answer in time"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return False, _plain(error)


def _plain(error: Exception) -> str:
    """Without the URL, of which a part is a secret."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"[:200]
    if isinstance(error, http.client.HTTPException):
        return f"it does not speak HTTP ({type(error).__name__})"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]


def _headers(token: str, notification_id: str) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "User-Agent": f"gpudeck/{__version__}",
               "Connection": "close"}
    if notification_id:
        headers["Idempotency-Key"] = notification_id
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _hang_up(connection: http.client.HTTPConnection) -> None:
    with suppress(OSError, AttributeError):  # it may be over at this moment
        connection.sock.shutdown(socket.SHUT_RDWR)


class _PlainConnection(http.client.HTTPConnection):
    def __init__(self, host: str, port: int | None, inside: NetworkSet) -> None:
        super().__init__(host, port, timeout=STEP_WITHIN_S)
        self._inside = inside

    def connect(self) -> None:
        self.sock = _socket(self.host, self.port, self._inside)


class _TlsConnection(_PlainConnection):
    default_port = http.client.HTTPS_PORT

    def connect(self) -> None:
        context = ssl.create_default_context()
        super().connect()
        self.sock = context.wrap_socket(self.sock, server_hostname=self.host,
                                        do_handshake_on_connect=False)
        self.sock.do_handshake()


def _socket(host: str, port: int, inside: NetworkSet) -> socket.socket:
    """To the first of its addresses that answers; none of those that are nobody's to be sent to."""
    why: OSError = WebhookFailedError("the name has no address")
    for family, kind, proto, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        flaw = address_flaw(str(address[0]), inside)
        if flaw is not None:
            raise WebhookFailedError(flaw)
        found = socket.socket(family, kind, proto)
        found.settimeout(STEP_WITHIN_S)
        try:
            found.connect(address)
        except OSError as error:
            found.close()
            why = error
        else:
            return found
    raise why

"""Connection to a viewed hub: a native thread that dials, reads, and keeps the newest picture.

It is a separate thread, because a slow socket in the hub's loop would delay everybody. It replaces
`picture` and `trouble` as a whole, and the loop reads them: neither waits for the other. The only
requests it ever makes are those of this file, and none of them changes anything.
"""

import json
import logging
import os
import random
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpudeck.client.hub import HubConnection
from gpudeck.errors import CommandError
from gpudeck.network import websocket
from gpudeck.network.dial import HandshakeError, HttpStatusError, opened
from gpudeck.network.tls import tls_context
from gpudeck.settings import read_secret

from .core import NAMESPACE, SiteMessageError, SitePicture, SiteStream, packet

log = logging.getLogger("gpudeck.sites")

CONNECT_S = 5.0
SILENCE_S = 15.0
RETRY_MOST_S = 60.0
STEADY_S = 60.0
MESSAGE_BYTES = 24_000_000
BYTES_PER_S, BYTES_BURST = 4_000_000.0, 64_000_000.0
ANSWER_BYTES = 4_000_000
RECV_BYTES = 262_144
CONNECT, EVENT, REFUSED = 0, 2, 4  # Socket.IO's
_pack = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class SiteAddress:
    name: str
    url: str
    token_file: Path
    ca_file: Path | None


class _SiteError(Exception):
    """The site is away. The text says why and is for people."""


class SiteLink:
    def __init__(self, address: SiteAddress) -> None:
        self.address = address
        self.picture = SitePicture()
        self.trouble = ""  # "": it is connected, or was not tried yet
        self._stopped = threading.Event()
        self._socket: socket.socket | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"site-{self.address.name}", daemon=True).start()

    def close(self) -> None:
        self._stopped.set()
        if (sock := self._socket) is not None:
            sock.close()

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self._view()
            except Exception as error:  # whatever it was, a later connection may work
                self.trouble = _why(error)
            failures = 0 if time.monotonic() - began > STEADY_S else failures + 1
            # Full jitter: when a site comes back, the hubs that view it must not all dial at once.
            self._stopped.wait(random.uniform(0.2, min(RETRY_MOST_S, 2.0 ** min(failures, 6))))

    def _view(self) -> None:
        """Connect and receive until the connection ends, which raises an exception."""
        address = self.address
        token = read_secret(address.token_file)
        tls = tls_context(address.url, address.ca_file)
        _check_viewer(HubConnection(address.url, token, CONNECT_S, tls))
        sock, data = opened(address.url, tls, CONNECT_S, {"Authorization": f"Bearer {token}"})
        self._socket = sock
        try:
            sock.settimeout(SILENCE_S)
            self._receive(sock, data)
        finally:
            self._socket = None
            sock.close()

    def _receive(self, sock: socket.socket, data: bytes) -> None:
        reader = websocket.WebSocketReader(MESSAGE_BYTES, is_masked=False)
        stream, numbers_mono = SiteStream(), time.monotonic()
        allowance, counted_mono = BYTES_BURST, numbers_mono
        while True:
            for message in reader.feed(data):
                before = stream.picture.numbers
                self._handle(sock, stream, message)
                if stream.picture.numbers is not before:
                    numbers_mono = time.monotonic()
                    self.picture, self.trouble = stream.picture, ""
            data = sock.recv(RECV_BYTES)
            mono = time.monotonic()
            allowance = min(BYTES_BURST, allowance + (mono - counted_mono) * BYTES_PER_S)
            allowance -= len(data)
            counted_mono = mono
            if not data:
                raise _SiteError("it hung up")
            if allowance < 0:
                raise _SiteError("it sends more than a hub of a site should")
            if mono - numbers_mono > SILENCE_S:
                raise _SiteError(f"it has sent no numbers for {SILENCE_S:.0f} s")

    def _handle(self, sock: socket.socket, stream: SiteStream,
                message: websocket.Message | websocket.Control) -> None:
        match message:
            case bytes():
                kind, event = packet(message)
                if kind == CONNECT:
                    _send(sock, _pack({"type": EVENT, "nsp": NAMESPACE, "data": ["numbers", True]}))
                elif kind == REFUSED:
                    raise _SiteError("it takes no more viewers, or none with this token")
                elif event is not None and event[0] == "bye":
                    raise _SiteError(f"it said goodbye: {_plain(event[1].get('reason', ''))}")
                elif event is not None:
                    stream.apply(event[1], time.monotonic())
            case str() if message[:1] == "0":
                _send(sock, _pack({"type": CONNECT, "nsp": NAMESPACE, "data": {}}))
            case str() if message[:1] == "2":
                _send(sock, ("3" + message[1:125]).encode(), websocket.Opcode.TEXT)
            case (websocket.Opcode.PING, payload):
                _send(sock, payload, websocket.Opcode.PONG)
            case (websocket.Opcode.CLOSE, payload):
                raise _SiteError(_close_reason(_plain(payload[2:].decode(errors="replace"))))


def _check_viewer(hub: HubConnection) -> None:
    """Raise _SiteError unless the token is a viewer's: one that may act must not be stored on a hub
    that only views. Fails closed."""
    with hub.opened("GET", "me") as answer:
        reply = json.loads(answer.read(ANSWER_BYTES))
    role = reply.get("role") if isinstance(reply, dict) else None
    if role != "viewer":
        raise _SiteError(f"its token is of the role {_plain(str(role))!r}, and only a viewer's is "
                         "used: `gpudeck token create api NAME --role viewer` there")


def _send(sock: socket.socket, payload: bytes,
          opcode: websocket.Opcode = websocket.Opcode.BINARY) -> None:
    sock.sendall(websocket.frame(payload, opcode, os.urandom(4)))


def _close_reason(reason: str) -> str:
    if "no event" in reason:
        return "its gpudeck is older than viewing; update it there"
    return f"it hung up: {reason}" if reason else "it hung up"


def _plain(text: str) -> str:
    return "".join(filter(str.isprintable, text))[:200]


def _why(error: Exception) -> str:
    match error:
        case _SiteError() | SiteMessageError() | HandshakeError() | CommandError():
            return _plain(str(error))
        case HttpStatusError() if error.status in (401, 403):
            return f"it refuses the token (HTTP {error.status})"
        case HttpStatusError():
            return f"it answers HTTP {error.status}"
        case websocket.WebSocketViolationError():
            return _plain(error.reason)
        case TimeoutError():
            return f"it has said nothing for {SILENCE_S:.0f} s"
        case OSError():
            return f"cannot be reached: {_plain(error.strerror or str(error)).lower()}"
    log.warning("site_failed", exc_info=error)
    return f"its answer is not understood ({type(error).__name__})"



"""The only module that speaks to a kubelet: one call, List of its PodResources API, on its socket.

gRPC is HTTP/2, and one call without credentials needs little of that: no library of 20 MB is
carried for it. Headers are sent as plain literals, and those that come back are not taken apart: a
refused call has an answer without a message.
"""

import contextlib
import socket
import struct
import time
from pathlib import Path

from .core import KubernetesError

WITHIN_S = 5.0
MOST_BYTES = 16_000_000
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _PADDED, _ACK = 1, 4, 8, 1
_INITIAL_WINDOW = 4  # the setting's number
_CALL = ((":method", "POST"), (":scheme", "http"), (":path", "/v1.PodResourcesLister/List"),
         (":authority", "localhost"), ("content-type", "application/grpc"), ("te", "trailers"))
_NO_ARGUMENTS = b"\0" * 5  # not compressed, of no length
_ENDED = "the kubelet ends the connection before it has answered"


class KubeletSocket:
    def __init__(self, path: Path) -> None:
        self._path = path

    def pod_resources(self) -> bytes:
        """Raises KubernetesError."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
                connected.settimeout(WITHIN_S)
                connected.connect(str(self._path))
                return _List(connected, time.monotonic() + WITHIN_S).answer()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise KubernetesError(_ENDED) from error  # with bytes of ours unread
        except OSError as error:
            raise KubernetesError(f"the kubelet cannot be asked at {self._path}: "
                                  f"{error.strerror or error}"[:512]) from error


class _List:
    def __init__(self, connected: socket.socket, ends_at: float) -> None:
        self._connected, self._ends_at = connected, ends_at
        self._message = bytearray()
        self._came = 0

    def answer(self) -> bytes:
        # The whole answer fits into the windows, so that none has to be opened again.
        self._connected.sendall(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, MOST_BYTES))
            + _frame(_WINDOW, 0, 0, struct.pack(">I", MOST_BYTES))
            + _frame(_HEADERS, _END_HEADERS, 1, b"".join(_literal(*each) for each in _CALL))
            + _frame(_DATA, _END_STREAM, 1, _NO_ARGUMENTS))
        while not self._is_over():
            pass
        if len(self._message) < 5:
            raise KubernetesError("the kubelet refuses to list its pods' devices: is its "
                                  "PodResources API v1 there (Kubernetes 1.20 or later)?")
        compressed, size = struct.unpack(">BI", self._message[:5])
        if compressed or size != len(self._message) - 5:
            raise KubernetesError("the kubelet's answer is not whole")
        return bytes(self._message[5:])

    def _is_over(self) -> bool:
        """Of the call's stream, after one more frame."""
        head = self._take(9)
        size, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
        stream = int.from_bytes(head[5:]) & 0x7FFF_FFFF
        body = self._take(size)
        if kind == _SETTINGS and not flags & _ACK:
            self._acknowledge(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._acknowledge(_frame(_PING, _ACK, 0, body))
        elif kind == _GO_AWAY or (kind == _RESET and stream == 1):
            raise KubernetesError(_ENDED)
        elif kind == _DATA and stream == 1:
            self._message += body[1:len(body) - body[0]] if flags & _PADDED and body else body
        return stream == 1 and kind in (_DATA, _HEADERS) and bool(flags & _END_STREAM)

    def _acknowledge(self, frame: bytes) -> None:
        with contextlib.suppress(OSError):  # who has answered may have closed already
            self._connected.sendall(frame)

    def _take(self, size: int) -> bytes:
        self._came += size
        if self._came > MOST_BYTES:
            raise KubernetesError(f"the kubelet answers more than {MOST_BYTES // 10**6} MB")
        found = bytearray()
        while len(found) < size:
            self._connected.settimeout(max(self._ends_at - time.monotonic(), 0.001))
            part = self._connected.recv(size - len(found))
            if not part:
                raise KubernetesError(_ENDED)
            found += part
        return bytes(found)


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + body


def _literal(name: str, value: str) -> bytes:
    """Neither indexed nor compressed; each shorter than 127 bytes."""
    return b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()

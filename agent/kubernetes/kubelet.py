"""The only module that speaks to a kubelet: one call, List of its PodResources API, on its socket.

gRPC is HTTP/2, and one call without credentials needs little of that: a library of 20 MB is not
worth it. Headers are sent as plain literals, and those that come back are not parsed: a refused
call has an answer without a message.
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
        """Return the kubelet's answer, undecoded. Raises KubernetesError."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(WITHIN_S)
                connection.connect(str(self._path))
                return _List(connection, time.monotonic() + WITHIN_S).answer()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise KubernetesError(_ENDED) from error  # with bytes of ours unread
        except OSError as error:
            raise KubernetesError(f"the kubelet cannot be asked at {self._path}: "
                                  f"{error.strerror or error}"[:512]) from error


class _List:
    def __init__(self, connection: socket.socket, ends_at: float) -> None:
        self._connection, self._ends_at = connection, ends_at
        self._message = bytearray()
        self._received_bytes = 0

    def answer(self) -> bytes:
        # The whole answer fits into the windows, so that none has to be opened again.
        self._connection.sendall(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, MOST_BYTES))
            + _frame(_WINDOW, 0, 0, struct.pack(">I", MOST_BYTES))
            + _frame(_HEADERS, _END_HEADERS, 1, b"".join(_literal(*header) for header in _CALL))
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
        """Read one more frame, and return whether the call's stream is over."""
        head = self._read_exactly(9)
        size, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
        stream = int.from_bytes(head[5:]) & 0x7FFF_FFFF
        body = self._read_exactly(size)
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
        with contextlib.suppress(OSError):  # once it has answered, it may close
            self._connection.sendall(frame)

    def _read_exactly(self, size: int) -> bytes:
        self._received_bytes += size
        if self._received_bytes > MOST_BYTES:
            raise KubernetesError(f"the kubelet answers more than {MOST_BYTES // 10**6} MB")
        body = bytearray()
        while len(body) < size:
            self._connection.settimeout(max(self._ends_at - time.monotonic(), 0.001))
            part = self._connection.recv(size - len(body))
            if not part:
                raise KubernetesError(_ENDED)
            body += part
        return bytes(body)


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + body


def _literal(name: str, value: str) -> bytes:
    """Encode a header as a literal, neither indexed nor compressed; name and value are shorter than
    127 bytes."""
    return b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()

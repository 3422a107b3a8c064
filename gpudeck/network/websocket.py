"""RFC 6455 without extensions, of both ends: bytes in, messages out, all bounded. Pure.

engine.io checks a message's size only once it has all of it, and its driver sets no limit: one
client with fragments that never finish took a hub to 414 MB. Here a frame is refused by its header,
a message by the sum of its frames so far, and nothing of it stays in memory.
"""

import base64
import hashlib
from enum import IntEnum

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MAX_CONTROL_BYTES = 125
WHOLE_BINARY = 0x82  # first byte of a frame that is a whole binary message


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    INVALID_DATA = 1007
    POLICY = 1008
    TOO_BIG = 1009
    TRY_AGAIN = 1013


class WebSocketViolationError(Exception):
    """The other side broke the protocol or a limit; the connection ends with this code."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


Message = str | bytes
Control = tuple[Opcode, bytes]


class WebSocketReader:
    """Parser of the bytes that arrive. `max_bytes` bounds each frame and each message; it may be
    changed between messages, as a connection earns trust. A client's frames are masked, a server's
    not."""

    __slots__ = ("_buffer", "_fragment_bytes", "_fragments", "_is_masked", "_text", "max_bytes")

    def __init__(self, max_bytes: int, is_masked: bool = True) -> None:
        self.max_bytes = max_bytes
        self._is_masked = is_masked
        self._buffer = bytearray()
        self._fragments: list[bytes] = []
        self._fragment_bytes = 0
        self._text = False

    @property
    def is_inside(self) -> bool:
        """Part of a message is here and the rest is awaited."""
        return bool(self._buffer or self._fragments)

    @property
    def held_bytes(self) -> int:
        return len(self._buffer) + self._fragment_bytes

    def feed(self, data: bytes) -> list[Message | Control]:
        messages: list[Message | Control] = []
        if not self._buffer and not self._fragments and not (data := self._whole_ones(
                data, messages)):
            return messages
        self._buffer += data
        while (frame := self._frame()) is not None:
            message = self._take(*frame)
            if message is not None:
                messages.append(message)
        return messages

    def _whole_ones(self, data: bytes, messages: list[Message | Control]) -> bytes:
        """Read the whole binary messages at the front: nearly all that comes is one or two of them,
        and none of it needs the buffer then. Return the rest, which is read step by step."""
        at, end = 0, len(data)
        while end - at >= 6 and data[at] == WHOLE_BINARY and (
                bool(data[at + 1] & 0x80) == self._is_masked):
            size, start = data[at + 1] & 0x7F, at + 2
            if size >= 126:
                start = at + (4 if size == 126 else 10)
                size = int.from_bytes(data[at + 2 : start])
            masked = start + 4 if self._is_masked else start
            if size > self.max_bytes or end - masked < size:
                break
            payload = data[masked : masked + size]
            messages.append(unmask(payload, data[start:masked]) if self._is_masked else payload)
            at = masked + size
        return data[at:] if at else data

    def _frame(self) -> tuple[bool, Opcode, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        final, opcode = _first_byte(buffer[0])
        size, header = self._size(opcode, final)
        start = header + 4 if self._is_masked else header
        if size is None or len(buffer) < start + size:
            return None
        payload = bytes(buffer[start : start + size])
        if self._is_masked:
            payload = unmask(payload, bytes(buffer[header:start]))
        del buffer[: start + size]
        return final, opcode, payload

    def _size(self, opcode: Opcode, final: bool) -> tuple[int | None, int]:
        buffer = self._buffer
        if bool(buffer[1] & 0x80) != self._is_masked:
            raise WebSocketViolationError(CloseCode.PROTOCOL_ERROR,
                                          "a client's frame must be masked, and a server's must "
                                          "not")
        size, header = buffer[1] & 0x7F, 2
        if opcode >= Opcode.CLOSE and (size > MAX_CONTROL_BYTES or not final):
            raise WebSocketViolationError(CloseCode.PROTOCOL_ERROR,
                                          "a control frame is short and whole")
        if size >= 126:
            header = 4 if size == 126 else 10
            if len(buffer) < header:
                return None, header
            size = int.from_bytes(buffer[2:header])
        if opcode < Opcode.CLOSE and self._fragment_bytes + size > self.max_bytes:
            raise WebSocketViolationError(CloseCode.TOO_BIG,
                                          f"more than {self.max_bytes} bytes in a message")
        return size, header

    def _take(self, final: bool, opcode: Opcode, payload: bytes) -> Message | Control | None:
        if opcode >= Opcode.CLOSE:
            return opcode, payload
        if (opcode == Opcode.CONTINUATION) != bool(self._fragments):
            raise WebSocketViolationError(CloseCode.PROTOCOL_ERROR, "a fragment out of place")
        if opcode != Opcode.CONTINUATION:
            self._text = opcode == Opcode.TEXT
        if final and not self._fragments:
            return self._whole(payload)
        # An empty fragment costs the sender six bytes and us an object: keep none but the first.
        if payload or not self._fragments:
            self._fragments.append(payload)
            self._fragment_bytes += max(len(payload), 64)
        if not final:
            return None
        whole = b"".join(self._fragments)
        self._fragments.clear()
        self._fragment_bytes = 0
        return self._whole(whole)

    def _whole(self, payload: bytes) -> Message:
        if not self._text:
            return payload
        try:
            return payload.decode()
        except UnicodeDecodeError as error:
            raise WebSocketViolationError(CloseCode.INVALID_DATA,
                                          "text that is not UTF-8") from error


def _first_byte(byte: int) -> tuple[bool, Opcode]:
    if byte & 0x70:
        raise WebSocketViolationError(CloseCode.PROTOCOL_ERROR, "no extension was agreed on")
    try:
        return bool(byte & 0x80), Opcode(byte & 0x0F)
    except ValueError as error:
        raise WebSocketViolationError(CloseCode.PROTOCOL_ERROR, "unknown opcode") from error


def unmask(payload: bytes, mask: bytes) -> bytes:
    """Mask or unmask: it is its own inverse. One XOR of two long integers is some 20 times faster
    than byte by byte."""
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(key, "little")).to_bytes(
        size, "little")


def frame(payload: bytes, opcode: Opcode = Opcode.BINARY, mask: bytes = b"") -> bytes:
    """Build one whole frame as a server sends it, or, with four random bytes as `mask`, a
    client."""
    size, bit = len(payload), 0x80 if mask else 0
    if size < 126:
        head = bytes((0x80 | opcode, bit | size))
    elif size < 65_536:
        head = bytes((0x80 | opcode, bit | 126)) + size.to_bytes(2)
    else:
        head = bytes((0x80 | opcode, bit | 127)) + size.to_bytes(8)
    return head + (mask + unmask(payload, mask) if mask else payload)


def close_frame(code: CloseCode, reason: str, mask: bytes = b"") -> bytes:
    return frame(code.to_bytes(2) + reason.encode()[:120].decode(errors="ignore").encode(),
                 Opcode.CLOSE, mask)


def accept_key(key: str) -> str:
    return base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()

"""Envelopes of Socket.IO around messages, as the MessagePack serializer writes them. Pure."""

from typing import Any

import msgspec

from gpudeck.network.websocket import CloseCode, WebSocketViolationError, frame

CONNECT, DISCONNECT, EVENT = 0, 1, 2
RESERVED_EVENTS = ("connect", "disconnect")


class SocketIoEnvelope(msgspec.Struct):
    """A Socket.IO packet. Types 5 and 6, which announce binary attachments, are refused by the
    bound."""

    type: int
    nsp: str
    data: Any = None
    id: int | None = None


class BytesEvent(msgspec.Struct):
    """A Socket.IO event whose one argument is bytes: nearly all that agents send."""

    type: int
    nsp: str
    data: tuple[str, bytes]
    id: int | None = None


_decode = msgspec.msgpack.Decoder(SocketIoEnvelope).decode
_decode_bytes = msgspec.msgpack.Decoder(BytesEvent).decode
_encode = msgspec.msgpack.Encoder().encode


def decode_envelope(encoded: bytes) -> SocketIoEnvelope:
    """Decode a packet that is well formed; all else raises WebSocketViolationError."""
    try:
        envelope = _decode(encoded)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as error:
        raise WebSocketViolationError(CloseCode.INVALID_DATA,
                                      f"not a Socket.IO packet: {error}") from error
    if envelope.type not in (CONNECT, DISCONNECT, EVENT):
        raise WebSocketViolationError(CloseCode.POLICY,
                                      "only connect, disconnect and event are accepted")
    data = envelope.data
    if envelope.type == EVENT and not (isinstance(data, list) and data
                                       and isinstance(data[0], str)):
        raise WebSocketViolationError(CloseCode.INVALID_DATA,
                                      "an event is a list that starts with its name")
    if envelope.type == EVENT and data[0] in RESERVED_EVENTS:
        # python-socketio would call our own connect handler with the client's arguments.
        raise WebSocketViolationError(CloseCode.POLICY, f"{data[0]!r} is not for a client to say")
    return envelope


def one_argument(encoded: bytes, event: str, namespace: str) -> bytes | None:
    """Return the bytes that are this event's one argument; None: the packet is another one, or
    none, which `decode_envelope` tells apart."""
    try:
        packet = _decode_bytes(encoded)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
        return None
    is_it = packet.type == EVENT and packet.nsp == namespace and packet.data[0] == event
    return packet.data[1] if is_it else None


def event_frame(event: str, argument: Any, namespace: str) -> bytes:
    """Encode a Socket.IO event for the wire, once however many read it."""
    return frame(_encode({"type": EVENT, "data": [event, argument], "nsp": namespace}))

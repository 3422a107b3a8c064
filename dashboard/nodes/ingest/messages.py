"""Messages between the hub and its ingest process, over the one socket that they share. Pure."""

from collections import deque
from collections.abc import Iterator

import msgspec

HEADER_BYTES = 4
MOST_BYTES = 8_000_000
ORDERS_AT_ONCE, ORDER_BYTES_AT_ONCE = 256, 1_000_000


class SocketGiven(msgspec.Struct, frozen=True, tag="socket", array_like=True):
    """A socket to serve from now on; its descriptor comes with the bytes of this message."""

    link: int
    most_bytes: int  # of a message
    messages_per_s: float
    messages_burst: float
    ping_every_s: float
    stall_s: float
    heard_mono: float
    pinged_mono: float
    since_mono: float
    backlog_to: int
    newest: int


class Delivery(msgspec.Struct, frozen=True, tag="send", array_like=True):
    """A frame for an agent."""

    link: int
    frame: bytes


class Farewell(msgspec.Struct, frozen=True, tag="end", array_like=True):
    """The last frame for an agent: what waits is sent before it, and the socket is closed."""

    link: int
    frame: bytes


Order = SocketGiven | Delivery | Farewell


class RateNews(msgspec.Struct, frozen=True, tag="rate", array_like=True):
    """An agent sent more of something than it may; the message is not passed on."""

    link: int
    what: str
    most: str


class LinkEnded(msgspec.Struct, frozen=True, tag="ended", array_like=True):
    """A socket is closed. `offence`: the counter that goes up by it; "": nobody's fault."""

    link: int
    reason: str
    offence: str = ""


class Received(msgspec.Struct, tag="received", array_like=True):
    """Messages that came since the last time, well formed and within their sender's rate, in their
    order; and then what happened."""

    messages: list[tuple[int, bytes]]
    news: list[RateNews | LinkEnded]


_encode = msgspec.msgpack.Encoder().encode
decode_orders = msgspec.msgpack.Decoder(list[Order]).decode
decode_received = msgspec.msgpack.Decoder(Received).decode


def framed(message: list[Order] | Received) -> bytes:
    body = _encode(message)
    return len(body).to_bytes(HEADER_BYTES) + body


def next_batch(orders: deque[tuple[Order, int | None]]) -> list[Order]:
    """Take as many of the first orders as may travel together: none that has a descriptor, and no
    more bytes, save for one that is larger by itself, than the other end takes."""
    batch: list[Order] = []
    size = 0
    while orders and orders[0][1] is None and len(batch) < ORDERS_AT_ONCE:
        order = orders[0][0]
        size += 0 if isinstance(order, SocketGiven) else len(order.frame)
        if batch and size > ORDER_BYTES_AT_ONCE:
            break
        batch.append(order)
        orders.popleft()
    return batch


class FrameBuffer:
    """Bytes that came, cut into the bodies that `framed` made."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each body that is whole; raise ValueError for what cannot be one."""
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= HEADER_BYTES:
            size = int.from_bytes(self._buffer[start : start + HEADER_BYTES])
            if size > MOST_BYTES:
                raise ValueError(f"{size} bytes are too many")
            end = start + HEADER_BYTES + size
            if len(self._buffer) < end:
                break
            yield bytes(self._buffer[start + HEADER_BYTES : end])
            start = end
        del self._buffer[:start]

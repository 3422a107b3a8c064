"""Messages from the reading process to the agent. Pure."""

import struct
from collections.abc import Iterator

import msgspec
from msgspec import Struct, structs

from gpudeck.contract.wire import GpuFacts, GpuLink, ReaderState

from ..readings import BackendEvent, OnDemandReading, Reading

MAX_ANSWER_BYTES = 16_000_000
_LENGTH = struct.Struct(">I")


class ReaderMessage(Struct, frozen=True, array_like=True):
    """Message in the pipe: a Reading, or why there is none. `detail` with a Reading is about single
    GPUs."""

    reading: Reading | None
    state: ReaderState = "ok"
    detail: str = ""
    fresh: OnDemandReading | None = None
    asked: int = 0  # the newest request that was there before `fresh` was read
    # Sent at once, between Readings: what comes just before the driver hangs matters most.
    happenings: tuple[BackendEvent, ...] = ()
    is_as_before: bool = False  # the facts and links: they are the larger part, and hardly change


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ReaderMessage)


class FactsDeltaCodec:
    """Codec for what lasts from Reading to Reading: it goes through the pipe only when it changes,
    and both sides remember it."""

    def __init__(self) -> None:
        self._facts: tuple[GpuFacts, ...] | None = None
        self._links: tuple[GpuLink, ...] = ()

    def strip(self, answer: ReaderMessage) -> ReaderMessage:
        reading = answer.reading
        if reading is None:
            return answer
        if reading.facts != self._facts or reading.links != self._links:
            self._facts, self._links = reading.facts, reading.links
            return answer
        return structs.replace(
            answer, reading=structs.replace(reading, facts=(), links=()), is_as_before=True)

    def restore(self, answer: ReaderMessage) -> ReaderMessage:
        reading = answer.reading
        if reading is None:
            return answer
        if not answer.is_as_before:
            self._facts, self._links = reading.facts, reading.links
            return answer
        if self._facts is None:
            raise msgspec.ValidationError("a Reading that leaves out what was never told")
        return structs.replace(
            answer, reading=structs.replace(reading, facts=self._facts, links=self._links))


def pack(answer: ReaderMessage) -> bytes:
    body = _encoder.encode(answer)
    return _LENGTH.pack(len(body)) + body


class ReaderMessageDecoder:
    """Decoder for one reading process, from the pieces in which a pipe gives its messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._facts_codec = FactsDeltaCodec()

    def read(self, data: bytes) -> Iterator[ReaderMessage]:
        """Yield the messages that are complete. Raises msgspec.MsgspecError for what is not a
        message."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if size > MAX_ANSWER_BYTES:
                raise msgspec.DecodeError(f"an answer of {size} bytes")
            if len(self._buffer) < _LENGTH.size + size:
                return
            body = bytes(self._buffer[_LENGTH.size : _LENGTH.size + size])
            del self._buffer[: _LENGTH.size + size]
            yield self._facts_codec.restore(_decoder.decode(body))

    def clear(self) -> None:
        self._buffer.clear()

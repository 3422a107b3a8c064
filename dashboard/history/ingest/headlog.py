"""The head log: every sequenced message as received, on disk before it is acked.

Segments `head-<number>.log`, each a magic and then records:

    u32 size of body | u32 crc32 of body | body

with body = MessagePack of some entries, each [node, stream, seq, received_at, payload, second,
is_backfill]; the last two came later and may be missing. What is appended at once is written in
records of some messages: one by one they would cost twice as much. Older logs have one entry in
place of some. A segment begins with what is needed to read it alone: Hello,
Inventories and Tasks of every Node, marked CARRIED.

All little-endian. A torn tail is cut and counted; a record whose checksum is wrong is skipped and
counted if the next one can be found by its size, else everything from there on is.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..storage.archive import sync, write_all

MAGIC = b"GPUDECK HEAD 1\n\x00"
HEAD = struct.Struct("<II")
MAX_BODY_BYTES = 1_100_000
GROUP_BYTES = 16_384  # of payload in a record, and what a flipped bit costs; or one message
CARRIED = -1


class HeadLogEntry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    node_id: str
    stream: str
    seq: int
    received_at: float
    payload: bytes
    second: int = 0  # by the hub's clock, of a Frame; CARRIED: said before this segment began
    is_backfill: bool = False


@dataclass(slots=True)
class HeadLogDamage:
    """Damage that was found on opening."""

    torn_bytes: int = 0
    bad_records: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(tuple[HeadLogEntry, ...])
_decoder_of_one = msgspec.msgpack.Decoder(HeadLogEntry)


def packed(entries: Iterable[HeadLogEntry]) -> bytes:
    parts: list[bytes] = []
    for group in _groups(entries):
        body = _encode(group)
        parts += HEAD.pack(len(body), zlib.crc32(body)), body
    return b"".join(parts)


def _groups(entries: Iterable[HeadLogEntry]) -> Iterator[list[HeadLogEntry]]:
    group: list[HeadLogEntry] = []
    room = GROUP_BYTES
    for entry in entries:
        room -= len(entry.payload)
        if room < 0 and group:
            yield group
            group, room = [], GROUP_BYTES - len(entry.payload)
        group.append(entry)
    if group:
        yield group


def scan(data: bytes, damage: HeadLogDamage) -> Iterator[HeadLogEntry]:
    """Yield the entries that are whole, and count what is not."""
    at = 0
    for end, entries in _records(data):
        at = end
        damage.bad_records += entries is None
        yield from entries or ()
    damage.torn_bytes += len(data) - at


def sound_length(data: bytes) -> int:
    """Return the length of a segment from which it can be appended to."""
    ends = [end for end, entries in _records(data) if entries is not None or end < len(data)]
    return ends[-1] if ends else 0


def _records(data: bytes) -> Iterator[tuple[int, tuple[HeadLogEntry, ...] | None]]:
    """Yield where each record ends, with its entries; None: it is bad, and the next one is whole or
    not there. Else it is not one bad record but a lost thread: nothing after it can be trusted."""
    at = len(MAGIC)
    if data[:at] != MAGIC:
        return
    yield at, ()
    while (end := _end_of(data, at)) is not None:
        entries = _entries(data, at, end)
        if entries is None and end < len(data) and not _is_whole(data, end):
            return
        yield end, entries
        at = end


def _end_of(data: bytes, at: int) -> int | None:
    if at + HEAD.size > len(data):
        return None
    size, _ = HEAD.unpack_from(data, at)
    end = at + HEAD.size + size
    return end if 0 < size <= MAX_BODY_BYTES and end <= len(data) else None


def _is_whole(data: bytes, at: int) -> bool:
    end = _end_of(data, at)
    return end is not None and _entries(data, at, end) is not None


def _entries(data: bytes, at: int, end: int) -> tuple[HeadLogEntry, ...] | None:
    _, crc = HEAD.unpack_from(data, at)
    body = data[at + HEAD.size : end]
    if zlib.crc32(body) != crc:
        return None
    for decode in (_decoder.decode, lambda raw: (_decoder_of_one.decode(raw),)):
        try:
            return decode(body)
        except msgspec.MsgspecError:
            continue
    return None


@dataclass(slots=True)
class HeadLog:
    """Appends from one native thread at a time; `rotate` begins a new segment and keeps the
    last two."""

    folder: Path
    damage: HeadLogDamage = field(default_factory=HeadLogDamage)
    number: int = 0  # of the newest segment
    length: int = 0
    _file: BinaryIO | None = None

    def read(self) -> Iterator[HeadLogEntry]:
        """Yield all that is there, oldest first."""
        for _, entries in self.segments():
            yield from entries

    def segments(self) -> Iterator[tuple[int, Iterator[HeadLogEntry]]]:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for path in self._segments():
            yield _number_of(path), scan(path.read_bytes(), self.damage)

    def open(self) -> None:
        """Cut the torn tail of the newest segment and append from there."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        segments = self._segments()
        if not segments:
            self._begin(1)
            return
        self.number = _number_of(segments[-1])
        length = sound_length(segments[-1].read_bytes())
        if length == 0:
            segments[-1].unlink()
            self._begin(self.number)
            return
        self._file = segments[-1].open("r+b", buffering=0)
        self._file.truncate(length)
        self._file.seek(length)
        self.length = length

    def append(self, entries: Iterable[HeadLogEntry]) -> None:
        """Append entries, on disk when this returns; on OSError the log is as it was before."""
        data = packed(entries)
        file = self._file
        if file is None:
            raise OSError("the head log is not open")
        try:
            write_all(file, data)
            os.fdatasync(file.fileno())
        except OSError:
            self._undo(file)
            raise
        self.length += len(data)

    def _undo(self, file: BinaryIO) -> None:
        try:
            file.truncate(self.length)
            file.seek(self.length)
        except OSError:
            pass  # the next append fails as this one did, and opening cuts what is torn

    def rotate(self, first: Iterable[HeadLogEntry] = ()) -> None:
        """Begin a new segment, which is there with `first` or not at all."""
        former = self._file
        self._begin(self.number + 1, packed(first))
        if former is not None:
            former.close()

    def drop_old(self, needed: int | None = None) -> None:
        """Drop old segments once what they held is in the state; from `needed` on they are kept."""
        for path in self._segments()[:-2]:
            if needed is None or _number_of(path) < needed:
                path.unlink()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, number: int, first: bytes = b"") -> None:
        path = self.folder / f"head-{number:08d}.log"
        draft = path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        file = os.fdopen(handle, "r+b", buffering=0)
        try:
            write_all(file, MAGIC + first)
            os.fdatasync(file.fileno())
            draft.rename(path)
            sync(self.folder)
        except OSError:
            file.close()
            for leftover in (draft, path):
                leftover.unlink(missing_ok=True)
            raise
        self._file, self.number, self.length = file, number, len(MAGIC) + len(first)

    def _segments(self) -> list[Path]:
        return sorted(self.folder.glob("head-*.log"), key=_number_of)


def _number_of(path: Path) -> int:
    return int(path.stem.partition("-")[2])

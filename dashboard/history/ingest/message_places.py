"""Places of messages: which of them wait in memory, which are in files, which are archived.

An agent gives up its copy of what is archived, so a message counts as that only when everything
that history made of it is in files of the archive. What is not noted here is never archived. Used
under the store's lock.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpudeck.contract.sequence_ranges import SequenceRanges

from ..columns.memory import BLOCK_S
from ..storage.archive_mark import PlacesRecord, SealedBlockSpans, StreamSpans

StreamKey = tuple[str, str]  # node id, stream
StreamRanges = dict[StreamKey, SequenceRanges]

# What a node that changes its stream or leaves gaps may make the hub remember: the newest.
MAX_RANGES, MAX_STREAMS = 1_024, 8


@dataclass(slots=True)
class BlockMessages:
    """Messages of five minutes; `first`: the first second of which there is one."""

    first: int
    streams: StreamRanges = field(default_factory=dict)

    def add(self, key: StreamKey, seq: int, second: int) -> None:
        ranges = self.streams.get(key)
        if ranges is None:
            ranges = self.streams[key] = SequenceRanges()
        ranges.add(seq)
        self.first = min(self.first, second)

    def join(self, other: "BlockMessages") -> None:
        join(self.streams, other.streams)
        self.first = min(self.first, other.first)

    def discard(self, streams: StreamRanges) -> bool:
        """Take these out; return whether any are left."""
        for key, ranges in self.streams.items():
            for first, last in streams.get(key, ()):
                ranges.discard_all(first, last)
        return any(self.streams.values())


Blocks = dict[int, BlockMessages]  # by the start of the block


def join(streams: StreamRanges, more: Mapping[StreamKey, SequenceRanges]) -> None:
    for key, ranges in more.items():
        there = streams.setdefault(key, SequenceRanges())
        for first, last in ranges:
            there.add_all(first, last)


@dataclass(frozen=True, slots=True)
class StreamsArchived:
    """Event: these messages are archived now, and no others."""

    streams: StreamRanges


@dataclass(frozen=True, slots=True)
class HistoryJoined:
    """Event: history has what the archive had of before this hub took over: these messages."""

    streams: StreamRanges


class MessagePlaces:
    def __init__(self, record: PlacesRecord) -> None:
        self.archived = ranges_of(record.archived)
        self.ticks = dict(record.ticks)  # taken_at and second of the last Frame, by node id
        self.is_restored = record.is_restored
        self.joins = record.joins
        # True until the loop knows what the archive has of before this hub took over.
        self.is_waiting = False
        self._open: Blocks = {}
        self._sealing: Blocks = {}  # blocks that are being written
        self._late: Blocks = {}  # what came late, and is being written
        self._sealed: Blocks = {block.start: BlockMessages(block.first, ranges_of(block.streams))
                                for block in record.sealed}

    def note(self, key: StreamKey, seq: int, second: int, is_new: bool) -> None:
        """Note a message; not `is_new`: others have brought what it says."""
        start = second - second % BLOCK_S
        if is_new or start in self._open:
            blocks = self._open
        elif (ranges := self.archived.get(key)) is not None and seq in ranges:
            return  # the head log brings it again
        else:
            blocks = next((stage for stage in (self._late, self._sealing) if start in stage),
                          self._sealed)
        block = blocks.get(start)
        if block is None:
            block = blocks[start] = BlockMessages(second)
        block.add(key, seq, second)

    # -- into files

    def close(self, start: int) -> None:
        """Close a block, which is about to be written."""
        _move(self._open, self._sealing, [start])

    def close_late(self, starts: Iterable[int]) -> None:
        _move(self._open, self._late, starts)

    def mark_sealed(self, start: int) -> None:
        _move(self._sealing, self._sealed, [start])

    def mark_late_written(self) -> None:
        _move(self._late, self._sealed, list(self._late))

    def drop(self, start: int) -> None:
        """Drop a block that did not get into files: its messages are never archived."""
        self._sealing.pop(start, None)

    def drop_late(self) -> None:
        self._late.clear()

    def lose(self, start: int, end: int) -> None:
        """Note that a file of this time was lost before it was archived."""
        for block in [block for block in self._sealed if block < end and start < block + BLOCK_S]:
            del self._sealed[block]

    # -- into the archive

    def in_files(self) -> StreamRanges:
        """Return what is in files now, archived or not."""
        streams: StreamRanges = {}
        for source in (self.archived, *(block.streams for block in self._sealed.values())):
            join(streams, source)
        return streams

    def mark_archived(self, streams: StreamRanges) -> None:
        self.archived = _bounded(streams)
        self._sealed = {start: block for start, block in self._sealed.items()
                        if block.discard(streams)}

    def join(self, streams: StreamRanges) -> None:
        """Begin with what another hub has archived. Checkpoints do not know of it yet."""
        self.archived, self.is_restored = _bounded(streams), True

    # -- what is not archived

    @property
    def oldest(self) -> int | None:
        """The oldest second of which something is not archived; None: all is."""
        return min((block.first for block in self._waiting()), default=None)

    def unarchived(self) -> Iterator[tuple[StreamKey, int, SequenceRanges]]:
        """Yield stream, first second of the block, and ranges of what is not archived."""
        for block in self._waiting():
            for key, ranges in block.streams.items():
                yield key, block.first, ranges

    def _waiting(self) -> Iterator[BlockMessages]:
        for blocks in (self._open, self._sealing, self._late, self._sealed):
            yield from blocks.values()

    def record(self) -> PlacesRecord:
        """Return what the head log does not bring again."""
        return PlacesRecord(spans_of(self.archived), [
            SealedBlockSpans(start, block.first, spans_of(block.streams))
            for start, block in self._sealed.items()], dict(self.ticks), self.is_restored,
            self.joins)


def _move(source: Blocks, target: Blocks, starts: Iterable[int]) -> None:
    for start in starts:
        block = source.pop(start, None)
        if block is not None and start in target:
            target[start].join(block)
        elif block is not None:
            target[start] = block


def _bounded(streams: StreamRanges) -> StreamRanges:
    """Leave out what has been archived for long and by what nobody is called any more."""
    count: dict[str, int] = {}
    bounded: StreamRanges = {}
    for key, ranges in reversed(streams.items()):
        count[key[0]] = count.get(key[0], 0) + 1
        if count[key[0]] <= MAX_STREAMS:
            bounded[key] = SequenceRanges([*ranges][-MAX_RANGES:])
    return dict(reversed(bounded.items()))


def ranges_of(spans: Iterable[StreamSpans]) -> StreamRanges:
    return {(entry.node_id, entry.stream): SequenceRanges(entry.ranges) for entry in spans}


def spans_of(streams: StreamRanges) -> list[StreamSpans]:
    return [StreamSpans(node_id, stream, [*ranges]) for (node_id, stream), ranges
            in streams.items()]

"""Index of the messages in an outbox, and the copies among them."""

from array import array
from collections.abc import Iterable

from gpudeck.contract.sequence_ranges import SequenceRanges

from .outbox_rows import OutboxRows

_TRIM = 4_096


class JournalIndex:
    """Size and age of each seq from the oldest one in the journal on: 12 bytes each."""

    def __init__(self) -> None:
        self._from = 0
        self._sizes = array("I")
        self._ats = array("d")

    def add(self, seq: int, at: float, size: int, oldest: int) -> None:
        if oldest == seq:
            self._from, self._sizes, self._ats = seq, array("I"), array("d")
        elif oldest - self._from > _TRIM:
            del self._sizes[: oldest - self._from], self._ats[: oldest - self._from]
            self._from = oldest
        skipped = seq - self._from - len(self._sizes)
        self._sizes.extend([0] * skipped + [size])
        self._ats.extend([at] * (skipped + 1))

    def size(self, first: int, last: int) -> int:
        return sum(self._sizes[first - self._from : last - self._from + 1])

    def at(self, seq: int) -> float:
        return self._ats[seq - self._from] if 0 <= seq - self._from < len(self._ats) else 0.0


class StoredCopies:
    """Messages that the hub has stored and not yet archived: should its disk be lost, another hub
    gets them from here. They are not sent, unless a hub comes that has not stored them."""

    def __init__(self, rows: OutboxRows, index: JournalIndex) -> None:
        self.ranges = SequenceRanges()
        self.bytes = 0
        self._rows = rows
        self._index = index

    @property
    def oldest(self) -> int | None:
        return self.ranges.first

    def add(self, first: int, last: int) -> None:
        self.ranges.add_all(first, last)
        self.bytes += self._index.size(first, last)

    def remove(self, first: int, last: int) -> None:
        for start, end in list(self.ranges.within(first, last)):
            self.bytes -= self._index.size(start, end)
            self._rows.delete(start, end)
        self.ranges.discard_all(first, last)

    def clear(self) -> None:
        self.remove(1, self.ranges.last or 0)

    def take_missing(self, stored: Iterable[tuple[int, int]]) -> SequenceRanges:
        """Give up those that a hub has not stored, which is another one, or lost its disk; return
        them. They are to be sent again."""
        missing = SequenceRanges(self.ranges)
        for first, last in stored:
            missing.discard_all(first, last)
        for first, last in missing:
            self.ranges.discard_all(first, last)
            self.bytes -= self._index.size(first, last)
        return missing

    def drop_unsaved(self) -> None:
        """Drop the oldest that are in memory alone, while the disk refuses and memory is full."""
        for seq in [seq for seq in sorted(self._rows.unsaved) if seq in self.ranges]:
            if not self._rows.is_memory_full():
                return
            self.remove(seq, seq)

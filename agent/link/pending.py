"""Messages that the hub has not acked: their numbers, sizes and ages, which were sent, and how
many were dropped."""

from array import array
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from gpudeck.sequence_ranges import SequenceRanges
from gpudeck.wire import Event

from .outbox_rows import OutboxRows, StoredOutbox

# An episode of dropping is over when nothing was dropped for this long.
QUIET_S = 10.0
_TRIM = 4_096

Entry = tuple[int, bytes]  # seq, encoded message


class DamagedFiles(Protocol):
    """How many files of the outbox were found damaged, and where the last one is."""

    @property
    def files(self) -> int: ...
    @property
    def set_aside(self) -> Path | None: ...


class SentMessages:
    """What was sent on this connection, and what an earlier one may have delivered."""

    def __init__(self, opened_at: int) -> None:
        self.opened_at = opened_at  # the highest number when we began
        self.ranges = SequenceRanges()  # they may be acked any moment
        self.doubtful = SequenceRanges()  # sent and then dropped: the hub may have them
        self._high = 0
        self._is_connected = False

    @property
    def at_most(self) -> int:
        """What was there when we began may have been sent by an earlier run."""
        return max(self.opened_at, self._high)

    def add(self, first: int, last: int) -> None:
        self.ranges.add_all(first, last)
        self._high = max(self._high, last)

    def broke(self) -> None:
        self.ranges, self._is_connected = SequenceRanges(), False

    def connected(self) -> None:
        self.doubtful, self._is_connected = SequenceRanges(), True

    def dropped(self, first: int, last: int) -> None:
        if first <= self._high and not self._is_connected:
            self.doubtful.add_all(first, min(last, self._high))

    def begin_again(self, last_seq: int) -> None:
        self.ranges, self.doubtful, self._high = SequenceRanges(), SequenceRanges(), 0
        self.opened_at = last_seq


class DropCounter:
    """Messages that were dropped here before the hub could take them."""

    def __init__(self, total: int, reported: int) -> None:
        self.total, self.reported = total, reported
        self._reported_files = 0
        self._ranges = SequenceRanges()  # of this episode
        self._dropped_at = 0.0

    def add(self, first: int, last: int, count: int, at: float) -> None:
        self.total += count
        self._dropped_at = at
        self._ranges.add_all(first, last)

    def event(self, at: float, taken_at: float, seq: int, files: DamagedFiles) -> Event | None:
        count = self.total - self.reported
        damaged = files.set_aside if files.files > self._reported_files else None
        if at - self._dropped_at < QUIET_S or (count <= 0 and damaged is None):
            return None
        numbers = {"dropped": float(count), "dropped_ever": float(self.total)}
        if self._ranges.first is not None:
            numbers |= {"first_seq": float(self._ranges.first),
                        "last_seq": float(self._ranges.last or 0)}
        self.reported, self._ranges = self.total, SequenceRanges()
        self._reported_files = files.files
        return Event(seq, taken_at, "outbox_dropped", text=_what_was_dropped(count, damaged),
                     numbers=numbers)


class PendingMessages:
    def __init__(self, rows: OutboxRows, stored: StoredOutbox) -> None:
        self.ranges = SequenceRanges()
        self.bytes = 0
        self.sent = SentMessages(stored.last_seq)
        self.drops = DropCounter(stored.dropped, stored.reported)
        self._rows = rows
        self._index = _PendingIndex()
        self._last_seq = 0
        self._aged_s: float | None = None  # to add to the clock that `age` is given
        for seq, at, size in stored.messages:
            self.add(seq, at, size)

    def age(self, now: float) -> float:
        if self._aged_s is None:
            self._aged_s = self._index.at(self._last_seq) - now
        return now + self._aged_s

    def add(self, seq: int, at: float, size: int) -> None:
        self._index.add(seq, at, size, self.ranges.first or seq)
        self.ranges.add(seq)
        self.bytes += size
        self._last_seq = seq

    def remove(self, first: int, last: int) -> None:
        for start, end in list(self.ranges.within(first, last)):
            self.bytes -= self._index.size(start, end)
            self._rows.delete(start, end)
        self.ranges.discard_all(first, last)

    def drop(self, first: int, last: int) -> None:
        self.drops.add(first, last, self.ranges.count_in(first, last),
                       self._index.at(self._last_seq))
        self.sent.dropped(first, last)
        self.remove(first, last)

    def drop_excess(self, cap_bytes: int, oldest_at: float) -> None:
        while (self.bytes > cap_bytes and (oldest := self._oldest()) is not None
               and oldest != self._last_seq):
            self.drop(oldest, oldest)
        while (oldest := self._oldest()) and self._index.at(oldest) < oldest_at:
            self.drop(oldest, oldest)

    def drop_all_but(self, saved: Collection[int]) -> None:
        rest = SequenceRanges((seq, seq) for seq in sorted(saved))
        for before, after in pairwise([(0, 0), *rest, (self._last_seq + 1, 0)]):
            for first, last in list(self.ranges.within(before[1] + 1, after[0] - 1)):
                self.drop(first, last)

    def bound_memory(self) -> None:
        """While the disk refuses. What is on its way goes last."""
        for seq in [seq for seq in sorted(self._rows.unsaved) if seq not in self.sent.ranges]:
            if not self._rows.is_memory_full():
                return
            self.drop(seq, seq)

    def chosen(self, after_seq: int, upto_seq: int, limit: int, max_bytes: int) -> SequenceRanges:
        """The next ones to send: at least one, if there is any."""
        chosen, count, size = SequenceRanges(), 0, 0
        for first, last in self.ranges.within(after_seq + 1, upto_seq):
            for seq in range(first, last + 1):
                size += self._index.size(seq, seq)
                if count == limit or (count and size > max_bytes):
                    return chosen
                chosen.add(seq)
                count += 1
        return chosen

    def _oldest(self) -> int | None:
        """That is not on its way: what is may be acked any moment, and is not lost then."""
        for first, last in self.ranges:
            at = first
            for start, end in self.sent.ranges.within(first, last):
                if start > at:
                    break
                at = end + 1
            if at <= last:
                return at
        return None


def _what_was_dropped(count: int, damaged: Path | None) -> str:
    if damaged is not None:
        many = f"{count} messages in it" if count else "what was in it and not acked yet"
        return (f"the outbox was damaged and is set aside as {damaged.name}; {many} did not reach "
                "the hub; check this node's disk")
    return (f"{count} messages were dropped here before the hub could take them: history has a "
            "hole; the hub was away for long, or this node's disk is full")


class _PendingIndex:
    """Size and age of each seq from the oldest pending one on: 12 bytes each."""

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

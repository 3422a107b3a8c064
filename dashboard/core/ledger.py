"""Which messages of one stream the hub has seen: exactly once in, whatever the network repeats."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

# An agent that numbers its messages with gaps must not grow the hub: beyond this many ranges the
# oldest gap is taken as seen.
MAX_RANGES = 1_024


class Ledger:
    """Seen seqs as disjoint ranges. All up to `settled` is final: nothing below it is awaited."""

    __slots__ = ("_ends", "_starts", "duplicates", "forgotten", "settled")

    def __init__(self, ranges: Iterable[tuple[int, int]] = (), settled: int = 0) -> None:
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]
        self.settled = settled
        self.duplicates = 0
        self.forgotten = 0

    def note(self, seq: int, in_order: bool = True) -> bool:
        """False: seen before. `in_order` says that the sender sends oldest first, so that what
        it skipped is gone for good and will not come."""
        if self.seen(seq):
            self.duplicates += 1
            return False
        self._add(seq)
        if in_order:
            self.settled = max(self.settled, seq)
        self.settled = self._contiguous()
        return True

    def seen(self, seq: int) -> bool:
        at = bisect_right(self._starts, seq) - 1
        return at >= 0 and seq <= self._ends[at]

    def _add(self, seq: int) -> None:
        at = bisect_right(self._starts, seq) - 1
        joins_left = at >= 0 and self._ends[at] == seq - 1
        joins_right = at + 1 < len(self._starts) and self._starts[at + 1] == seq + 1
        if joins_left and joins_right:
            self._ends[at] = self._ends.pop(at + 1)
            del self._starts[at + 1]
        elif joins_left:
            self._ends[at] = seq
        elif joins_right:
            self._starts[at + 1] = seq
        else:
            self._insert(at + 1, seq)

    def _insert(self, at: int, seq: int) -> None:
        self._starts.insert(at, seq)
        self._ends.insert(at, seq)
        if len(self._starts) > MAX_RANGES:
            self.forgotten += self._starts[1] - self._ends[0] - 1
            self._ends[0] = self._ends.pop(1)
            del self._starts[1]

    def forget(self, seq: int) -> None:
        """It was seen but could not be kept: let the sender bring it again."""
        at = bisect_right(self._starts, seq) - 1
        if at < 0 or seq > self._ends[at]:
            return
        start, end = self._starts[at], self._ends[at]
        self._starts[at : at + 1] = [s for s in (start, seq + 1) if start <= s <= end and s != seq]
        self._ends[at : at + 1] = [e for e in (seq - 1, end) if start <= e <= end and e != seq]
        self.settled = min(self.settled, seq - 1)

    def _contiguous(self) -> int:
        if not self._starts:
            return self.settled
        at = bisect_left(self._ends, self.settled + 1) if self.settled else 0
        if at < len(self._starts) and (not self.settled or self._starts[at] <= self.settled + 1):
            return self._ends[at]
        return self.settled

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return list(zip(self._starts, self._ends, strict=True))

    @property
    def first(self) -> int | None:
        return self._starts[0] if self._starts else None

    @property
    def last(self) -> int | None:
        return self._ends[-1] if self._ends else None

    @property
    def count(self) -> int:
        return sum(self._ends) - sum(self._starts) + len(self._starts) - self.forgotten

    @property
    def missing(self) -> int:
        if not self._starts:
            return 0
        return self._ends[-1] - self._starts[0] + 1 - self.count

"""Sets of sequence numbers as disjoint ranges: few, however many numbers they hold."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class SequenceRanges:
    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for first, last in ranges:
            self.add_all(first, last)

    def add(self, seq: int) -> bool:
        """Add `seq`; return False where it was there already."""
        ends = self._ends
        if ends and seq == ends[-1] + 1:  # the usual order
            ends[-1] = seq
            return True
        if seq in self:
            return False
        self.add_all(seq, seq)
        return True

    def add_all(self, first: int, last: int) -> None:
        """Add a range; ranges that touch or overlap become one."""
        if last < first:
            return
        low, high = bisect_left(self._ends, first - 1), bisect_right(self._starts, last + 1)
        if low < high:
            first, last = min(first, self._starts[low]), max(last, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [first], [last]

    def discard_all(self, first: int, last: int) -> int:
        """Remove a range; return how many of its numbers were there."""
        low, high = bisect_left(self._ends, first), bisect_right(self._starts, last)
        if low >= high or last < first:
            return 0
        removed = self.count_in(first, last)
        remainders = [(start, end) for start, end in ((self._starts[low], first - 1),
                                                      (last + 1, self._ends[high - 1]))
                      if start <= end]
        self._starts[low:high] = [start for start, _ in remainders]
        self._ends[low:high] = [end for _, end in remainders]
        return removed

    def within(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between the two, cut to them."""
        low, high = bisect_left(self._ends, first), bisect_right(self._starts, last)
        for at in range(low, high if first <= last else low):
            yield max(first, self._starts[at]), min(last, self._ends[at])

    def count_in(self, first: int, last: int) -> int:
        if not self._starts or last < self._starts[0] or first > self._ends[-1]:
            return 0
        return sum(end - start + 1 for start, end in self.within(first, last))

    def is_next_to(self, seq: int) -> bool:
        """Return whether adding `seq` would make no new range."""
        return bool(next(self.within(seq - 1, seq + 1), None))

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self._starts, seq) - 1
        return at >= 0 and seq <= self._ends[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._starts)

    @property
    def count(self) -> int:
        return sum(self._ends) - sum(self._starts) + len(self._starts)

    @property
    def first(self) -> int | None:
        return self._starts[0] if self._starts else None

    @property
    def last(self) -> int | None:
        return self._ends[-1] if self._ends else None

"""Ledger of the messages of one stream: exactly once in, whatever the network repeats and in
whatever order it comes. What is live comes before what is made up for."""

from collections.abc import Iterable

from gpudeck.contract.sequence_ranges import SequenceRanges

# An agent that numbers its messages with gaps must not grow the hub. What would be one gap more is
# not taken, so it is not acked, and recurs when the gaps before it are filled.
MAX_RANGES = 1_024


class SequenceLedger:
    """Messages up to `settled` are there, or gone for good because the agent said so; what is
    beyond it may still come, in any order."""

    __slots__ = ("_before", "_beyond", "duplicates", "lost", "settled")

    def __init__(self, ranges: Iterable[tuple[int, int]] = (), settled: int = 0, lost: int = 0
                 ) -> None:
        there = SequenceRanges(ranges)
        floor = next(there.within(0, settled), None)
        self._before = settled if floor is None else floor[0] - 1  # of no concern to this hub
        self.settled = settled
        self.duplicates = 0
        # Below the floor an older hub kept its gaps.
        self.lost = lost + settled - self._before - there.count_in(1, settled)
        self._beyond = SequenceRanges(there.within(settled + 1, there.last or 0))
        self._rise()

    def note(self, seq: int) -> bool:
        """Note a message; False: it was there already, or is one gap too many."""
        if seq == self.settled + 1 and not self._beyond:  # as most come
            self.settled = seq
            return True
        if self.seen(seq):
            self.duplicates += 1
            return False
        if len(self._beyond) >= MAX_RANGES and not self._is_next(seq):
            return False
        self._beyond.add(seq)
        self._rise()
        return True

    def settle(self, upto: int) -> None:
        """Settle what the agent holds no more: whatever is not there up to here never comes."""
        if upto <= self.settled:
            return
        if self.last is None:
            self._before = upto  # another hub had it, or none was there yet
        else:
            there = self._beyond.discard_all(self.settled + 1, upto)
            self.lost += upto - self.settled - there
        self.settled = upto
        self._rise()

    def begin_after(self, upto: int) -> None:
        """Leave open what came of messages up to here: another hub may know. What is there already
        stays."""
        if upto > self.settled and (self.first or upto + 1) > upto:
            self._before = self.settled = upto
            self._rise()

    def union(self, ranges: Iterable[tuple[int, int]]) -> "SequenceLedger":
        """Return a ledger that has these too."""
        there = SequenceRanges(self.ranges)
        for first, last in ranges:
            there.add_all(first, last)
        union = SequenceLedger(there)
        union.duplicates = self.duplicates
        return union

    def seen(self, seq: int) -> bool:
        return seq <= self.settled or seq in self._beyond

    def forget(self, seq: int) -> None:
        """Forget a message that was seen but could not be kept: let the sender bring it again."""
        if seq > self.settled:
            self._beyond.discard_all(seq, seq)
        elif seq > self._before:
            self._beyond.add_all(seq + 1, self.settled)
            self.settled = seq - 1

    def _is_next(self, seq: int) -> bool:
        return seq == self.settled + 1 or self._beyond.is_next_to(seq)

    def _rise(self) -> None:
        first = next(iter(self._beyond), None)
        if first is not None and first[0] == self.settled + 1:
            self.settled = first[1]
            self._beyond.discard_all(*first)

    def spans(self, most: int) -> list[tuple[int, int]]:
        """Return the newest spans that are there beyond `settled`."""
        return list(self._beyond)[-most:] if self._beyond else []

    @property
    def ranges(self) -> list[tuple[int, int]]:
        floor = [(self._before + 1, self.settled)] if self.settled > self._before else []
        return [*floor, *self._beyond]

    @property
    def first(self) -> int | None:
        return self._before + 1 if self.settled > self._before else self._beyond.first

    @property
    def last(self) -> int | None:
        if self._beyond:
            return self._beyond.last
        return self.settled if self.settled > self._before else None

    @property
    def count(self) -> int:
        return self.settled - self._before - self.lost + self._beyond.count

    @property
    def missing(self) -> int:
        """Messages that are gone for good, or still awaited."""
        return (self.last or self._before) - self._before - self.count

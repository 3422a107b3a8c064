"""Numbers of all rows over blocks of minutes, and the two functions of a rule that compare blocks:
`growth` and `anomaly`. Blocks are cut at whole multiples of their length, so that a rehearsal cuts
them alike. Pure."""

import numpy as np
import numpy.typing as npt

from ...insight.core import growth, unlike
from .row_state import RowState
from .rule_signal import Floats, SignalTerm

MINUTE_S = 60
ENOUGH = 0.8  # of the minutes of a block


class MinuteBlocks(RowState):
    """Lowest, highest and mean minute of each closed block, oldest first. NaN: too little of it is
    known."""

    def __init__(self, blocks: int, length_s: int) -> None:
        self.minutes = max(1, length_s // MINUTE_S)
        self._at: int | None = None
        self.mean = np.full((blocks, 1), np.nan, np.float32)
        self.low = np.full((blocks, 1), np.nan, np.float32)
        self.high = np.full((blocks, 1), np.nan, np.float32)
        self._n = np.zeros(1)
        self._total = np.zeros(1)
        self._low = np.full(1, np.nan)
        self._high = np.full(1, np.nan)
        self._begin()

    def take(self, minute: int, values: Floats) -> bool:
        """Whether a block was closed before this minute. `minute`: the number of one that is over;
        NaN: not known."""
        closed = self._turn(minute // self.minutes)
        known = ~np.isnan(values)
        self._n += known
        self._total += np.where(known, values, 0.0)
        self._low, self._high = np.fmin(self._low, values), np.fmax(self._high, values)
        return closed

    def _turn(self, block: int) -> bool:
        before, self._at = self._at, block
        if before is None or block == before:
            return False
        if block < before:  # the clock was set back: nothing that is known has a place
            self.forget(np.arange(self._room))
            return True
        for number in range(before, min(block, before + len(self.mean) + 1)):
            self._push(is_open=number == before)
        return True

    def _push(self, is_open: bool) -> None:
        enough = (self._n >= ENOUGH * self.minutes) & is_open
        for ring, value in ((self.mean, self._total / np.maximum(self._n, 1)),
                            (self.low, self._low), (self.high, self._high)):
            for at in range(len(ring) - 1):  # one after the other: at once it takes a copy of all
                ring[at] = ring[at + 1]
            ring[-1] = np.where(enough, value, np.nan)
        self._n[:], self._total[:] = 0, 0
        self._low[:], self._high[:] = np.nan, np.nan


class _BlockWindow(RowState):
    blocks: MinuteBlocks

    def grow(self, room: int) -> None:
        self.blocks.grow(room)
        super().grow(room)

    def forget(self, rows: npt.NDArray[np.intp]) -> None:
        self.blocks.forget(rows)
        super().forget(rows)


class GrowthWindow(_BlockWindow):
    """Bytes per second, where a row grew in each part of the span; else 0."""

    def __init__(self, term: SignalTerm, period_s: int, min_coverage: float) -> None:
        self.blocks = MinuteBlocks(growth.PARTS, term.span_s // growth.PARTS)
        self._found = np.full(1, np.nan)
        self._begin()

    def take(self, second: int, values: Floats) -> None:
        """`second`: the end of a minute."""
        if self.blocks.take(second // MINUTE_S - 1, values):
            blocks = self.blocks
            self._found = growth.growth(blocks.mean, blocks.low, blocks.high,
                                        blocks.minutes * MINUTE_S).per_s

    def values(self) -> Floats:
        return self._found


class AnomalyWindow(_BlockWindow):
    """Evidence that a row has left the range of its own past, in standard deviations summed up.
    The newest closed block is no past yet: what has just begun is in it."""

    def __init__(self, term: SignalTerm, period_s: int, min_coverage: float) -> None:
        self.blocks = MinuteBlocks(unlike.BLOCKS + 1, term.span_s // unlike.BLOCKS)
        self._above = np.zeros(1)
        self._below = np.zeros(1)
        self._low = np.full(1, np.nan)
        self._high = np.full(1, np.nan)
        self._sd = np.full(1, np.nan)
        self._is_steady = np.zeros(1, bool)
        self._begin()

    def take(self, second: int, values: Floats) -> None:
        """`second`: the end of a minute."""
        blocks = self.blocks
        if blocks.take(second // MINUTE_S - 1, values):
            past = unlike.own_past(blocks.mean[:-1], blocks.low[:-1], blocks.high[:-1],
                                   blocks.minutes)
            self._low, self._high = past.low, past.high
            self._sd, self._is_steady = past.sd, past.is_steady
        past = unlike.OwnPast(self._low, self._high, self._sd, self._is_steady)
        self._above = unlike.evidence(self._above, values, past)
        self._below = unlike.evidence(self._below, -values, unlike.mirrored(past))

    def values(self) -> Floats:
        """NaN: its past is too short to tell."""
        return np.where(np.isnan(self._low), np.nan, np.maximum(self._above, self._below))

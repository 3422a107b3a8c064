"""Numbers of all rows over blocks of minutes, for the two rule functions that compare blocks:
`growth` and `anomaly`. Blocks are cut at whole multiples of their length, so that a rehearsal cuts
them alike. Pure."""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from ...insight.core import growth, unlike
from .row_state import RowState, SavedWindow
from .rule_signal import Floats, SignalTerm

MINUTE_S = 60
ENOUGH = 0.8  # of the minutes of a block
OF_BLOCKS = ("mean", "low", "high", "_n", "_total", "_low", "_high")


class MinuteBlocks(RowState):
    """Lowest, highest and mean minute of each closed block, oldest first. NaN: too few of its
    minutes are known."""

    def __init__(self, blocks: int, length_s: int) -> None:
        self.minutes = max(1, length_s // MINUTE_S)
        self.at: int | None = None
        self.mean = np.full((blocks, 1), np.nan, np.float32)
        self.low = np.full((blocks, 1), np.nan, np.float32)
        self.high = np.full((blocks, 1), np.nan, np.float32)
        self._n = np.zeros(1)
        self._total = np.zeros(1)
        self._low = np.full(1, np.nan)
        self._high = np.full(1, np.nan)
        self._begin()

    def add(self, minute: int, values: Floats) -> bool:
        """Add a closed minute, by its number, and return whether a block was closed before it. NaN:
        not known."""
        closed = self.turn(minute // self.minutes)
        is_known = ~np.isnan(values)
        self._n += is_known
        self._total += np.where(is_known, values, 0.0)
        self._low, self._high = np.fmin(self._low, values), np.fmax(self._high, values)
        return closed

    def turn(self, block: int) -> bool:
        """Close blocks up to this one, and return whether one was closed."""
        before, self.at = self.at, block
        if before is None or block == before:
            return False
        if block < before:  # the clock was set back: known values have no place any more
            self.forget(np.arange(self._room))
            return True
        for number in range(before, min(block, before + len(self.mean) + 1)):
            self._push(is_open=number == before)
        return True

    def _push(self, is_open: bool) -> None:
        enough = (self._n >= ENOUGH * self.minutes) & is_open
        for ring, value in ((self.mean, self._total / np.maximum(self._n, 1)),
                            (self.low, self._low), (self.high, self._high)):
            for at in range(len(ring) - 1):  # one by one: at once would copy the whole ring
                ring[at] = ring[at + 1]
            ring[-1] = np.where(enough, value, np.nan)
        self._n[:], self._total[:] = 0, 0
        self._low[:], self._high[:] = np.nan, np.nan


class _BlockWindow(RowState, ABC):
    blocks: MinuteBlocks
    own: tuple[str, ...]  # arrays that are not computed from the blocks

    def __init__(self, term: SignalTerm, period_s: int, min_coverage: float) -> None:
        self._made_of = term, period_s, min_coverage

    @abstractmethod
    def judge(self) -> None:
        """Judge the closed blocks."""

    # -- over a restart of the hub

    def saved(self, row: int) -> SavedWindow | None:
        """Return what a row has seen; None: nothing."""
        return None if self.blocks.at is None else SavedWindow(self.blocks.at, [
            self.values_of(row, self.own), self.blocks.values_of(row, OF_BLOCKS)])

    def restore(self, row: int, saved: SavedWindow) -> None:
        """Continue what a row had seen. Nothing is known of the time in between."""
        one = type(self)(*self._made_of)
        one.grow(1)
        one.put_values(0, saved.parts[0], self.own)
        one.blocks.put_values(0, saved.parts[1], OF_BLOCKS)
        one.blocks.at = saved.at
        if self.blocks.at is None:
            self.blocks.at = saved.at
        one.blocks.turn(self.blocks.at)
        one.judge()
        to, of = slice(row, row + 1), slice(0, 1)
        self.copy_rows(one, to, of)
        self.blocks.copy_rows(one.blocks, to, of)

    def grow(self, room: int) -> None:
        self.blocks.grow(room)
        super().grow(room)

    def forget(self, rows: npt.NDArray[np.intp]) -> None:
        self.blocks.forget(rows)
        super().forget(rows)


class GrowthWindow(_BlockWindow):
    """Growth in bytes per second of rows that grew in each part of the span; else 0."""

    own = ()

    def __init__(self, term: SignalTerm, period_s: int, min_coverage: float) -> None:
        super().__init__(term, period_s, min_coverage)
        self.blocks = MinuteBlocks(growth.PARTS, term.span_s // growth.PARTS)
        self._growth = np.full(1, np.nan)
        self._begin()

    def add(self, second: int, values: Floats) -> None:
        """Add a minute; `second`: its end."""
        if self.blocks.add(second // MINUTE_S - 1, values):
            self.judge()

    def judge(self) -> None:
        blocks = self.blocks
        self._growth = growth.growth(blocks.mean, blocks.low, blocks.high,
                                     blocks.minutes * MINUTE_S).per_s

    def values(self) -> Floats:
        return self._growth


class AnomalyWindow(_BlockWindow):
    """Evidence that a row has left the range of its past, in accumulated standard deviations.
    The newest closed block does not count as past yet: what has just begun is in it."""

    own = ("_above", "_below")

    def __init__(self, term: SignalTerm, period_s: int, min_coverage: float) -> None:
        super().__init__(term, period_s, min_coverage)
        self.blocks = MinuteBlocks(unlike.BLOCKS + 1, term.span_s // unlike.BLOCKS)
        self._above = np.zeros(1)
        self._below = np.zeros(1)
        self._low = np.full(1, np.nan)
        self._high = np.full(1, np.nan)
        self._sd = np.full(1, np.nan)
        self._is_steady = np.zeros(1, bool)
        self._begin()

    def judge(self) -> None:
        blocks = self.blocks
        past = unlike.own_past(blocks.mean[:-1], blocks.low[:-1], blocks.high[:-1], blocks.minutes)
        self._low, self._high = past.low, past.high
        self._sd, self._is_steady = past.sd, past.is_steady

    def add(self, second: int, values: Floats) -> None:
        """Add a minute; `second`: its end."""
        if self.blocks.add(second // MINUTE_S - 1, values):
            self.judge()
        past = unlike.OwnPast(self._low, self._high, self._sd, self._is_steady)
        self._above = unlike.evidence(self._above, values, past)
        self._below = unlike.evidence(self._below, -values, unlike.mirrored(past))

    def values(self) -> Floats:
        """Return the evidence; NaN where the past is too short."""
        return np.where(np.isnan(self._low), np.nan, np.maximum(self._above, self._below))

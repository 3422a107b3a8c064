"""What changes seldom, as the Fleet keeps it: a row per slot, a column per metric of SLOW."""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from gpudeck.metrics import SLOW, SLOW_WIDTH, Absence
from gpudeck.wire import GpuFacts, Slow

STALE_AFTER_S = 180.0  # agents say it anew every 60 s; two may be lost on the way

Slots = slice | npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

LOW = np.array([metric.low for metric in SLOW])
HIGH = np.array([metric.high for metric in SLOW])
FACTS = sorted({metric.full_fact for metric in SLOW if metric.full_fact is not None})


class GrowingArrays(ABC):
    """Arrays of one row for each slot, which grow together."""

    sampled_at: Floats
    sampled_mono: Floats

    def __init__(self, room: int) -> None:
        self._allocate(room)

    @abstractmethod
    def _allocate(self, room: int) -> None: ...

    def grow(self, room: int) -> None:
        old = {name: array for name, array in vars(self).items() if isinstance(array, np.ndarray)}
        self._allocate(room)
        for name, array in old.items():
            getattr(self, name)[: len(array)] = array

    def stamp(self, slots: Slots, were_read: Mask, at: float, at_mono: float) -> None:
        """A Frame that calls a GPU stale or lost is news of its state, not a sample of it: what
        was read last keeps its age."""
        for times, time in ((self.sampled_at, at), (self.sampled_mono, at_mono)):
            times[slots] = np.where(were_read, time, times[slots])


def told(values: bytes, absent: bytes, low: Floats, high: Floats) -> tuple[Floats, Codes, int]:
    """What an agent says of its GPUs, a row for each. How many values were out of their range, and
    so became unknown."""
    numbers = np.frombuffer(values, "<f8").reshape(-1, len(low))
    codes = np.frombuffer(absent, np.uint8).reshape(-1, len(low))
    present = codes == Absence.PRESENT
    lies = present & ((numbers < low) | (numbers > high))
    count = int(lies.sum())
    return numbers, np.where(lies, np.uint8(Absence.UNKNOWN), codes) if count else codes, count


class SlowMetricTable(GrowingArrays):
    """`values` keeps the last that was there, however old (NaN: none ever); whether it holds now
    `absent_at` says."""

    def _allocate(self, room: int) -> None:
        self.values = np.full((room, SLOW_WIDTH), np.nan)
        self.absent = np.full((room, SLOW_WIDTH), Absence.UNKNOWN, np.uint8)
        self.sampled_at = np.full(room, np.nan)
        self.sampled_mono = np.full(room, -np.inf)
        self.full_of = np.full((room, len(FACTS)), np.nan)

    def describe(self, slot: int, facts: GpuFacts) -> None:
        self.full_of[slot] = [getattr(facts, fact) or np.nan for fact in FACTS]

    def take(self, slots: Slots, slow: Slow, were_read: Mask, at: float, at_mono: float) -> int:
        """How many values were out of their range, and so became unknown."""
        values, absent, lies = told(slow.values, slow.absent, LOW, HIGH)
        self.values[slots] = np.where(absent == Absence.PRESENT, values, self.values[slots])
        self.absent[slots] = absent
        self.stamp(slots, were_read, at, at_mono)
        return lies

    def is_old(self, size: int, mono: float) -> Mask:
        old: Mask = mono - self.sampled_mono[:size] > STALE_AFTER_S
        return old

    def absent_of(self, slot: int, mono: float) -> Codes:
        """Of one slot, all columns."""
        absent: Codes = self.absent[slot]
        if mono - self.sampled_mono[slot] > STALE_AFTER_S:
            absent = np.where(absent == Absence.PRESENT, np.uint8(Absence.STALE), absent)
        return absent

    def absent_at(self, size: int, column: int, mono: float) -> Codes:
        """What was not told again for long is stale: the agent lives, and reads no more of it."""
        absent = self.absent[:size, column]
        is_stale = self.is_old(size, mono) & (absent == Absence.PRESENT)
        return np.where(is_stale, np.uint8(Absence.STALE), absent)

    def full(self, size: int, column: int) -> Floats:
        metric = SLOW[column]
        if metric.full_fact is None:
            return np.full(size, metric.full or np.nan)
        found: Floats = self.full_of[:size, FACTS.index(metric.full_fact)]
        return found

    def snapshot(self, slots: Slots) -> Slow | None:
        """What was told last, to be told again; None where nothing ever was."""
        if not np.isfinite(self.sampled_mono[slots]).any():
            return None
        absent = self.absent[slots]
        values = np.where(absent == Absence.PRESENT, self.values[slots], 0.0)
        return Slow(values.astype("<f8").tobytes(), absent.tobytes())

    def forget_ages(self) -> None:
        """What came from disk is shown as the last that was known, until a Frame says it again."""
        self.sampled_mono[:] = -np.inf

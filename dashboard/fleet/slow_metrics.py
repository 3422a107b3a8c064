"""What changes seldom, as the Fleet keeps it: a row per slot, a column per metric of SLOW."""

import numpy as np
import numpy.typing as npt

from gpudeck.metrics import SLOW, SLOW_WIDTH, Absence
from gpudeck.wire import GpuFacts, Slow

STALE_AFTER_S = 180.0  # agents say it anew every 60 s; two may be lost on the way

Slots = slice | npt.NDArray[np.intp]

LOW = np.array([metric.low for metric in SLOW])
HIGH = np.array([metric.high for metric in SLOW])
FACTS = sorted({metric.full_fact for metric in SLOW if metric.full_fact is not None})


class SlowMetricTable:
    """`values` keeps the last that was there, however old (NaN: none ever); whether it holds now
    `absent_at` says."""

    ARRAYS = ("values", "absent", "sampled_at", "sampled_mono", "full_of")

    def __init__(self, room: int) -> None:
        self._allocate(room)

    def _allocate(self, room: int) -> None:
        self.values = np.full((room, SLOW_WIDTH), np.nan)
        self.absent = np.full((room, SLOW_WIDTH), Absence.UNKNOWN, np.uint8)
        self.sampled_at = np.full(room, np.nan)
        self.sampled_mono = np.full(room, -np.inf)
        self.full_of = np.full((room, len(FACTS)), np.nan)

    def grow(self, room: int) -> None:
        old = {name: getattr(self, name) for name in self.ARRAYS}
        self._allocate(room)
        for name, array in old.items():
            getattr(self, name)[: len(array)] = array

    @property
    def bytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in self.ARRAYS)

    def describe(self, slot: int, facts: GpuFacts) -> None:
        self.full_of[slot] = [getattr(facts, fact) or np.nan for fact in FACTS]

    def take(self, slots: Slots, slow: Slow, were_read: npt.NDArray[np.bool_], at: float,
             at_mono: float) -> int:
        """How many values were out of their range, and so became unknown."""
        values = np.frombuffer(slow.values, "<f8").reshape(-1, SLOW_WIDTH)
        absent = np.frombuffer(slow.absent, np.uint8).reshape(-1, SLOW_WIDTH)
        present = absent == Absence.PRESENT
        lies = present & ((values < LOW) | (values > HIGH))
        present &= ~lies
        self.values[slots] = np.where(present, values, self.values[slots])
        self.absent[slots] = np.where(lies, np.uint8(Absence.UNKNOWN), absent)
        for times, time in ((self.sampled_at, at), (self.sampled_mono, at_mono)):
            times[slots] = np.where(were_read, time, times[slots])
        return int(lies.sum())

    def is_old(self, size: int, mono: float) -> npt.NDArray[np.bool_]:
        old: npt.NDArray[np.bool_] = mono - self.sampled_mono[:size] > STALE_AFTER_S
        return old

    def absent_of(self, slot: int, mono: float) -> npt.NDArray[np.uint8]:
        """Of one slot, all columns."""
        absent: npt.NDArray[np.uint8] = self.absent[slot]
        if mono - self.sampled_mono[slot] > STALE_AFTER_S:
            absent = np.where(absent == Absence.PRESENT, np.uint8(Absence.STALE), absent)
        return absent

    def absent_at(self, size: int, column: int, mono: float) -> npt.NDArray[np.uint8]:
        """What was not told again for long is stale: the agent lives, and reads no more of it."""
        absent = self.absent[:size, column]
        is_stale = self.is_old(size, mono) & (absent == Absence.PRESENT)
        return np.where(is_stale, np.uint8(Absence.STALE), absent)

    def full(self, size: int, column: int) -> npt.NDArray[np.float64]:
        metric = SLOW[column]
        if metric.full_fact is None:
            return np.full(size, metric.full or np.nan)
        found: npt.NDArray[np.float64] = self.full_of[:size, FACTS.index(metric.full_fact)]
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

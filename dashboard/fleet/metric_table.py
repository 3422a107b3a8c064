"""Metrics as the Fleet keeps them: a row per slot, a column per metric."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpudeck.contract.wire import GpuFacts, Slow
from gpudeck.measures.metrics import SLOW_COLUMN, Absence, Metric
from gpudeck.measures.throttled_time import COVERS_S, MOST_S, VIOLATIONS

Slots = slice | npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


class MetricTable:
    """`values` keeps the last that was there, however old (NaN: none ever); `absent_at` says
    whether it holds now. `lasts_s`: what was not reported for longer is stale, though its node
    lives."""

    def __init__(self, metrics: Sequence[Metric], lasts_s: float, room: int) -> None:
        self.metrics = metrics
        self._lasts_s = lasts_s
        self._bounds = tuple(np.array([getattr(metric, end) for metric in metrics])
                             for end in ("low", "high"))
        self._facts = sorted({metric.full_fact for metric in metrics if metric.full_fact})
        self._allocate(room)
        self._nothing = {name: array[0].copy() for name, array in vars(self).items()
                         if isinstance(array, np.ndarray)}

    def _allocate(self, room: int) -> None:
        self.values = np.full((room, len(self.metrics)), np.nan)
        self.absent = np.full(self.values.shape, Absence.UNKNOWN, np.uint8)
        self.sampled_at = np.full(room, np.nan)
        self.sampled_mono = np.full(room, -np.inf)
        self.full_of = np.full((room, len(self._facts)), np.nan)

    def grow(self, room: int) -> None:
        old = {name: array for name, array in vars(self).items() if isinstance(array, np.ndarray)}
        self._allocate(room)
        for name, array in old.items():
            getattr(self, name)[: len(array)] = array

    def clear(self, slot: int) -> None:
        """Reset a slot, as if nothing had ever been reported."""
        for name, nothing in self._nothing.items():
            getattr(self, name)[slot] = nothing

    def describe(self, slot: int, facts: GpuFacts) -> None:
        self.full_of[slot] = [getattr(facts, fact) or np.nan for fact in self._facts]

    def take(self, slots: Slots, values: bytes, absent: bytes, were_read: Mask,
             at: float | Floats, at_mono: float | Floats) -> npt.NDArray[np.int_]:
        """Take what agents say of GPUs, none of which is twice in `slots`; return how many values
        of each were out of range, and so became unknown. A GPU that is called stale or lost is news
        of its state, not a sample of it: what was read last keeps its age."""
        low, high = self._bounds
        numbers = np.frombuffer(values, "<f8").reshape(-1, len(low))
        codes = np.frombuffer(absent, np.uint8).reshape(-1, len(low))
        present = codes == Absence.PRESENT
        lies = present & ((numbers < low) | (numbers > high))
        self.values[slots] = np.where(present & ~lies, numbers, self.values[slots])
        self.absent[slots] = np.where(lies, np.uint8(Absence.UNKNOWN), codes)
        for times, time in ((self.sampled_at, at), (self.sampled_mono, at_mono)):
            times[slots] = np.where(were_read, time, times[slots])
        return np.asarray(lies.sum(axis=1))

    def absent_at(self, slots: Slots | int, mono: float, column: int | slice = slice(None)
                  ) -> Codes:
        """Return why values of these columns are absent; those not reported for long are stale."""
        absent: Codes = self.absent[slots, column]
        is_old = mono - self.sampled_mono[slots] > self._lasts_s
        if not is_old.any():
            return absent
        is_stale = (is_old[:, None] if absent.ndim > 1 else is_old) & (absent == Absence.PRESENT)
        return np.where(is_stale, np.uint8(Absence.STALE), absent)

    def full(self, size: int, column: int) -> Floats:
        metric = self.metrics[column]
        if metric.full_fact is None:
            return np.broadcast_to(np.float64(metric.full or np.nan), size)
        full: Floats = self.full_of[:size, self._facts.index(metric.full_fact)]
        return full

    def told_last(self, slots: Slots) -> Slow | None:
        """Return the last reports, to be sent again; None where there was none."""
        if not np.isfinite(self.sampled_mono[slots]).any():
            return None
        return Slow(self.numbers(slots).astype("<f8").tobytes(), self.absent[slots].tobytes())

    def numbers(self, slots: Slots) -> Floats:
        """Return numbers as reported; 0 where there was none."""
        return np.where(self.absent[slots] == Absence.PRESENT, self.values[slots], 0.0)


class SlowTable(MetricTable):
    """Slow metrics, and for how long each GPU was throttled since the hub began (NaN: unknown)."""

    def _allocate(self, room: int) -> None:
        super()._allocate(room)
        self.throttled_ns = np.full((room, len(VIOLATIONS)), np.nan)

    def take(self, slots: Slots, values: bytes, absent: bytes, were_read: Mask,
             at: float | Floats, at_mono: float | Floats) -> npt.NDArray[np.int_]:
        before, passed_s = self._shares(slots), at_mono - self.sampled_mono[slots]
        lies = super().take(slots, values, absent, were_read, at, at_mono)
        counts = were_read & (passed_s > 0) & (passed_s <= MOST_S)
        passed_s = np.where(counts, passed_s, 0.0)[:, None]
        covered_s, now = np.minimum(passed_s, COVERS_S), self._shares(slots)
        added = np.nan_to_num(before) * (passed_s - covered_s) + now * covered_s
        former = self.throttled_ns[slots]
        self.throttled_ns[slots] = np.where(
            np.isnan(now), former, np.nan_to_num(former) + added * 1e7)
        return lies

    def _shares(self, slots: Slots) -> Floats:
        """Return shares in percent, a column per violation; NaN: not there."""
        columns = []
        for violation in VIOLATIONS:
            at = [SLOW_COLUMN[key] for key in violation.shares]
            there = self.absent[slots][:, at] == Absence.PRESENT
            total = np.where(there, self.values[slots][:, at], 0.0).sum(axis=1)
            columns.append(np.where(there.any(axis=1), np.minimum(total, 100.0), np.nan))
        return np.stack(columns, axis=1)

"""Seconds of GPUs as series of samples, with markers where a series ends. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpudeck.metrics import COLUMNS

from ..history.arrays import Floats, Ints, Slots, lengths, runs, take_rows

UNITS = {metric.key: metric.unit for metric in COLUMNS}
COUNTERS = frozenset(metric.key for metric in COLUMNS if metric.aggregate == "counter")
# The NaN by which Prometheus knows that a series has ended. No other is ever sent.
STALE_BITS = 0x7FF0000000000002
# After its last sample: a sample of the next second that comes late is still newer.
STALE_AFTER_MS = 999


class SeriesPlace(NamedTuple):
    """Labels, in the order of their names."""

    cluster: str | None
    gpu: str
    host: str | None
    node: str

    def labels(self) -> list[tuple[str, str]]:
        return [(name, said) for name, said in zip(self._fields, self, strict=True) if said]


@dataclass(frozen=True, slots=True)
class GpuSeconds:
    """One row per second and GPU, by place and then by time; NaN: it is not there."""

    place: Slots
    t: Ints
    values: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.t)


@dataclass(frozen=True, slots=True)
class MirrorBatch:
    """What one request carries: samples from `start` until before `end`. `ends`: rows of the second
    before are in it, and a series that ends within it gets a marker; else they came late, and
    nothing is known of what is between them."""

    places: Sequence[SeriesPlace]
    rows: GpuSeconds
    start: int
    end: int
    ends: bool

    @property
    def sample_count(self) -> int:
        inside = self.rows.t >= self.start
        return sum(int(np.count_nonzero(~np.isnan(column[inside])))
                   for column in self.rows.values.values())

    def halves(self) -> "tuple[MirrorBatch, MirrorBatch] | None":
        """Half of its GPUs each, of one GPU half of its metrics; None: it is one series."""
        used = np.unique(self.rows.place)
        if len(used) > 1:
            first = self.rows.place < used[len(used) // 2]
            return (replace(self, rows=take_rows(self.rows, first)),
                    replace(self, rows=take_rows(self.rows, ~first)))
        keys = [*self.rows.values]
        if len(keys) < 2:
            return None
        parts = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        one, other = (replace(self, rows=replace(
            self.rows, values={key: self.rows.values[key] for key in part})) for part in parts)
        return one, other


@dataclass(frozen=True, slots=True)
class MetricPoints:
    """Of one metric, by place and then by time."""

    place: Slots
    ms: Ints
    bits: npt.NDArray[np.uint64]  # of a float64

    def series(self) -> list[tuple[int, int, int]]:
        """The place of each, and where it begins and ends."""
        starts = runs(self.place)
        ends = starts + lengths(starts, len(self.place))
        return list(zip(self.place[starts].tolist(), starts.tolist(), ends.tolist(), strict=True))

    @property
    def is_stale(self) -> npt.NDArray[np.bool_]:
        return np.equal(self.bits, np.uint64(STALE_BITS))


def points(batch: MirrorBatch, key: str) -> MetricPoints:
    values = batch.rows.values[key]
    there = np.flatnonzero(~np.isnan(values))
    place, t = batch.rows.place[there], batch.rows.t[there]
    bits = np.ascontiguousarray(values[there], np.float64).view(np.uint64)
    sent = t >= batch.start
    found = MetricPoints(place[sent], t[sent] * 1_000, bits[sent])
    if not batch.ends or not len(t):
        return found
    ended = np.append((place[1:] != place[:-1]) | (t[1:] > t[:-1] + 1), True)
    ended &= t < batch.end - 1  # whether the last second is the end, the next batch will know
    if not ended.any():
        return found
    many = int(np.count_nonzero(ended))
    place = np.concatenate([found.place, place[ended]])
    ms = np.concatenate([found.ms, t[ended] * 1_000 + STALE_AFTER_MS])
    bits = np.concatenate([found.bits, np.full(many, STALE_BITS, np.uint64)])
    return take_rows(MetricPoints(place, ms, bits), np.lexsort((ms, place)))

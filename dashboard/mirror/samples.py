"""Seconds of GPUs as series of samples, with markers where a series ends. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpudeck.measures.metrics import COLUMNS

from ..history.columns.arrays import Floats, Ints, Slots, lengths, runs, take_rows

UNITS = {metric.key: metric.unit for metric in COLUMNS}
COUNTERS = frozenset(metric.key for metric in COLUMNS if metric.aggregate == "counter")
# The NaN by which Prometheus marks the end of a series. No other NaN is ever sent.
STALE_BITS = 0x7FF0000000000002
# Time of the marker after the last sample: a late sample of the next second is still newer.
STALE_AFTER_MS = 999


class SeriesPlace(NamedTuple):
    """Labels of a series, in alphabetical order of their names."""

    cluster: str | None
    gpu: str
    host: str | None
    node: str

    def labels(self) -> list[tuple[str, str]]:
        return [(name, value) for name, value in zip(self._fields, self, strict=True) if value]


@dataclass(frozen=True, slots=True)
class GpuSeconds:
    """Values, one row per second and GPU, sorted by place and then by time; NaN: absent."""

    place: Slots
    t: Ints
    values: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.t)


@dataclass(frozen=True, slots=True)
class MirrorBatch:
    """Content of one request: samples from `start` until before `end`. `ends`: it includes rows of
    the second before, and a series that ends within it gets a marker; otherwise the samples came
    late, and nothing is known about the time between them."""

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
        """Split by GPUs or, with only one GPU, by metrics; None: it is a single series."""
        used_places = np.unique(self.rows.place)
        if len(used_places) > 1:
            first = self.rows.place < used_places[len(used_places) // 2]
            return (replace(self, rows=take_rows(self.rows, first)),
                    replace(self, rows=take_rows(self.rows, ~first)))
        keys = [*self.rows.values]
        if len(keys) < 2:
            return None
        parts = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        first_half, second_half = (replace(self, rows=replace(
            self.rows, values={key: self.rows.values[key] for key in part})) for part in parts)
        return first_half, second_half


@dataclass(frozen=True, slots=True)
class MetricPoints:
    """Points of one metric, sorted by place and then by time."""

    place: Slots
    ms: Ints
    bits: npt.NDArray[np.uint64]  # of a float64

    def series(self) -> list[tuple[int, int, int]]:
        """Return the place of each series, and its first index and the one after its last."""
        starts = runs(self.place)
        ends = starts + lengths(starts, len(self.place))
        return list(zip(self.place[starts].tolist(), starts.tolist(), ends.tolist(), strict=True))

    @property
    def is_stale(self) -> npt.NDArray[np.bool_]:
        return np.equal(self.bits, np.uint64(STALE_BITS))


def points(batch: MirrorBatch, key: str) -> MetricPoints:
    values = batch.rows.values[key]
    present = np.flatnonzero(~np.isnan(values))
    place, t = batch.rows.place[present], batch.rows.t[present]
    bits = np.ascontiguousarray(values[present], np.float64).view(np.uint64)
    is_new = t >= batch.start
    new_points = MetricPoints(place[is_new], t[is_new] * 1_000, bits[is_new])
    if not batch.ends or not len(t):
        return new_points
    is_end = np.append((place[1:] != place[:-1]) | (t[1:] > t[:-1] + 1), True)
    is_end &= t < batch.end - 1  # only the next batch shows whether the last second is an end
    if not is_end.any():
        return new_points
    count = int(np.count_nonzero(is_end))
    place = np.concatenate([new_points.place, place[is_end]])
    ms = np.concatenate([new_points.ms, t[is_end] * 1_000 + STALE_AFTER_MS])
    bits = np.concatenate([new_points.bits, np.full(count, STALE_BITS, np.uint64)])
    return take_rows(MetricPoints(place, ms, bits), np.lexsort((ms, place)))

"""Reads straight out of files: seconds, minutes or hours of few GPUs, and the whole fleet at one
moment or within five minutes."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..columns.arrays import Floats, Ints, Slots
from ..columns.instants import MomentSamples, code_of, why_of
from ..columns.rollup import Rollup, coarser, rollup_of
from ..files.file_cache import FileCache
from ..files.parquet import HOUR_S, MINUTE_S
from ..files.row_index import Counts, OpenParquetFile, SampleRuns
from .protocol import Nodes

STEP_S = {"raw": 1, "minutes": MINUTE_S, "hours": HOUR_S}
PORTION = 2_000_000  # numbers that are laid out side by side

Part = tuple[Slots, Ints, dict[str, npt.NDArray[Any]]]  # slot, time and columns of some rows


class HistoryPointReader:
    def __init__(self, cache: FileCache) -> None:
        self._cache = cache

    def samples_at(self, kind: str, path: Path, metric: str, span: tuple[int, int],
                   moments: Sequence[int], back_s: int, nodes: Nodes) -> MomentSamples:
        """Read what moments show of seconds, or of minutes, from the beginning of the span until
        before its end; the column is read once."""
        file, step_s = self._cache.open(path), STEP_S[kind]
        groups = file.groups_at(span[0], span[1] - 1)
        places = self._cache.places(file, groups, step_s)
        mine = places.on(nodes)
        latest = [_last_of_each(mine.within(t - back_s + 1, t, step_s)) for t in moments]
        pair, word, t, row = (np.concatenate(parts) for parts in zip(*(
            (part.pair, part.word, part.t + (part.length - 1) * step_s, part.row + part.length - 1)
            for part in latest), strict=True))
        rows, at = np.unique(row, return_inverse=True) if len(moments) > 1 else (
            row, np.arange(len(row)))
        keys = [metric] if kind == "raw" else [f"{metric}_mean", f"{metric}_n"]
        value, *counts = (values[at] for values in self._values(file, groups, keys, rows))
        seconds = np.nan_to_num(counts[0]) if counts else np.ones(len(value))
        codes = np.array([*(code_of(words, metric) for words in places.words), 0], np.uint8)
        moment = np.repeat(np.arange(len(moments)), [len(part) for part in latest])
        return MomentSamples((places.gpus, places.nodes), moment, pair.astype(np.intp), t, value,
                             why_of(value, codes[word]), seconds.astype(np.int64),
                             places.is_sorted)

    def _values(self, file: OpenParquetFile, groups: Sequence[int], keys: Sequence[str],
                rows: Counts) -> list[Floats]:
        """Return values of some rows, in order, of row groups laid end to end. A file from before a
        metric was there has none of it."""
        present = [key for key in keys if key in file.names] if len(rows) else []
        begins = np.cumsum([0, *(file.rows[group] for group in groups)])
        cuts = np.searchsorted(rows, begins)
        columns = self._cache.columns(file, groups, present,
                                      self._cache.has_room(len(present) * int(begins[-1])))
        return [np.concatenate([
            columns[group, key][rows[cuts[at] : cuts[at + 1]] - begins[at]]
            for at, group in enumerate(groups)]).astype(np.float64) if key in present
            else np.full(len(rows), np.nan) for key in keys]

    def some(self, kind: str, paths: Sequence[Path], gpus: Mapping[str, int],
             metrics: Sequence[str], span: tuple[int, int], step: int, nodes: Nodes
             ) -> Iterator[Rollup]:
        """Read from the beginning of the span until before its end; a GPU's number is its slot. Of
        much, portions are rolled up to `step` at once: there may be several parts of a bucket."""
        step_s, keys = STEP_S[kind], columns_of(kind, metrics)
        names = sorted(gpus)
        choice = [(file, group) for file in map(self._cache.open, paths)
                  for group in file.groups_of(names, span[0], span[1] - 1)]
        is_kept = self._cache.has_room(len(keys) * sum(file.rows[at] for file, at in choice))
        parts: list[Part] = []
        rows_read = 0
        for file, group in choice:
            places = self._cache.places(file, [group], step_s)
            number = places.numbers(gpus)
            places = places.take(np.flatnonzero(number[places.pair] >= 0)).on(nodes).within(
                span[0], span[1] - 1, step_s)
            rows = places.rows()
            if len(rows):
                parts.append((np.repeat(number[places.pair], places.length), places.times(step_s),
                              self._picked(file, group, keys, rows, is_kept)))
                rows_read += len(rows)
            if rows_read * len(keys) > PORTION:
                yield coarser(_joined(kind, parts, metrics), step)
                parts, rows_read = [], 0
        if parts:
            yield _joined(kind, parts, metrics)

    def _picked(self, file: OpenParquetFile, group: int, keys: Sequence[str], rows: Counts,
                is_kept: bool) -> dict[str, npt.NDArray[Any]]:
        """Read some rows of those columns that the file has; of a large row group not all columns
        at once."""
        present = [name for name in keys if name in file.names]
        many = max(1, PORTION // file.rows[group])
        return {name: column[rows] for at in range(0, len(present), many)
                for (_, name), column in self._cache.columns(
                    file, [group], present[at : at + many], is_kept).items()}

    def rows(self, kind: str, paths: Sequence[Path], names: Sequence[str], span: tuple[int, int]
             ) -> Iterator[tuple[SampleRuns, dict[str, npt.NDArray[Any]]]]:
        """Yield of each row group, of all GPUs, what lies from the beginning of the span until
        before its end: its runs, and the numbers of those columns that the file has."""
        step_s, files = STEP_S[kind], [self._cache.open(path) for path in paths]
        choice = [(file, group) for file in files
                  for group in file.groups_at(span[0], span[1] - 1)]
        is_kept = self._cache.has_room(len(names) * sum(file.rows[at] for file, at in choice))
        for file, group in choice:
            runs = self._cache.places(file, [group], step_s).within(span[0], span[1] - 1, step_s)
            if not len(runs):
                continue
            present = [name for name in names if name in file.names]
            columns = self._cache.columns(file, [group], present, is_kept)
            rows = runs.rows()
            is_whole = len(rows) == file.rows[group]  # no row lies in two runs
            yield runs, {name: column if is_whole else column[rows]
                         for (_, name), column in columns.items()}


def _joined(kind: str, parts: Sequence[Part], metrics: Sequence[str]) -> Rollup:
    values = {name: np.concatenate([
        columns[name] if name in columns else np.full(len(t), np.nan)
        for _, t, columns in parts]).astype(np.float64) for name in columns_of(kind, metrics)}
    slot, t = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
    return rollup_of(kind, Rollup(slot, t, np.ones(len(t), np.int64)), values, metrics)


def columns_of(kind: str, metrics: Sequence[str]) -> list[str]:
    """Return the columns of a file of this kind that have all of these metrics."""
    if kind == "raw":
        return list(metrics)
    return [f"{metric}_{part}" for metric in metrics for part in ("min", "mean", "max", "n")]


def _last_of_each(samples: SampleRuns) -> SampleRuns:
    """Return of each pair the run that ends last."""
    if not len(samples):
        return samples
    return samples.take(np.append(np.flatnonzero(np.diff(samples.pair)), len(samples) - 1))

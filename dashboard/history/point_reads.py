"""Reads straight out of files: seconds, minutes or hours of few GPUs, and the whole fleet at one
moment or within five minutes. Larger queries go to DuckDB."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from .arrays import Floats
from .instants import MomentSamples, code_of, why_of
from .memory import BLOCK_S
from .parquet import HOUR_S, MINUTE_S
from .protocol import Nodes
from .rollup import Rollup, rollup_of
from .row_index import Counts, OpenParquetFile, RowIndexCache, SampleRuns, end_to_end, values_at

LARGE_ROWS = 200_000
STEP_S = {"raw": 1, "minutes": MINUTE_S, "hours": HOUR_S}


class HistoryPointReader:
    def __init__(self) -> None:
        self._cache = RowIndexCache()

    def samples_at(self, path: Path, metric: str, start: int, moments: Sequence[int], back_s: int,
                   nodes: Nodes) -> MomentSamples:
        """Read what moments show of the five minutes from `start` on; the column is read once."""
        file = self._cache.open(path)
        groups = file.groups_at(start, start + BLOCK_S - 1)
        places = self._cache.places(file, groups, 1)
        mine = places.on(nodes)
        latest = [_last_of_each(mine.within(t - back_s + 1, t, 1)) for t in moments]
        pair, word, t, row = (np.concatenate(parts) for parts in zip(*(
            (part.pair, part.word, part.t + part.length - 1, part.row + part.length - 1)
            for part in latest), strict=True))
        rows, at = np.unique(row, return_inverse=True) if len(moments) > 1 else (
            row, np.arange(len(row)))
        value = _column(file, groups, metric, rows)[at]
        codes = np.array([*(code_of(words, metric) for words in places.words), 0], np.uint8)
        moment = np.repeat(np.arange(len(moments)), [len(part) for part in latest])
        return MomentSamples((places.gpus, places.nodes), moment, pair.astype(np.intp), t, value,
                             why_of(value, codes[word]), places.is_sorted)

    def unpacked(self, paths: Sequence[Path], gpus: Mapping[str, int], columns: int,
                 span: tuple[int, int]) -> float:
        """Count the numbers to unpack for `some`. Within a large row group DuckDB reads less."""
        rows = [file.rows(group) for file in map(self._cache.open, paths)
                for group in file.groups_of(gpus, span[0], span[1] - 1)]
        return math.inf if max(rows, default=0) > LARGE_ROWS else columns * sum(rows)

    def some(self, kind: str, paths: Sequence[Path], gpus: Mapping[str, int],
             metrics: Sequence[str], span: tuple[int, int], nodes: Nodes) -> Iterator[Rollup]:
        """Read from the beginning of the span until before its end; a GPU's number is its slot."""
        for path in paths:
            file = self._cache.open(path)
            groups = file.groups_of(gpus, span[0], span[1] - 1)
            places = end_to_end(self._cache.places(file, [group], STEP_S[kind]) for group in groups)
            places = places.of(gpus).on(nodes).within(span[0], span[1] - 1, STEP_S[kind])
            rows = places.rows()
            if len(rows):
                present = [name for name in columns_of(kind, metrics) if name in file.names]
                table = file.reader()(groups, present)
                slot = np.array([gpus.get(gpu, -1) for gpu in places.gpus], np.intp)
                yield rollup_of(kind, Rollup(
                    np.repeat(slot[places.pair], places.length), places.times(STEP_S[kind]),
                    np.ones(len(rows), np.int64)),
                    {name: values_at(table.column(name), rows) for name in present}, metrics)


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


def _column(file: OpenParquetFile, groups: Sequence[int], key: str, rows: Counts) -> Floats:
    """Read a column. A file from before a metric was there has none of it."""
    if key not in file.names:
        return np.full(len(rows), np.nan)
    return values_at(file.reader()(groups, [key]).column(0), rows)

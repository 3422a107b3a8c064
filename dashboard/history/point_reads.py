"""Straight out of files: seconds, minutes or hours of few Gpus, and the whole fleet at one moment
or within five minutes. Whoever asks for more than that asks DuckDB."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .columns import Ints
from .instants import MomentSamples, code_of, why_of
from .memory import BLOCK_S
from .parquet import HOUR_S, MINUTE_S
from .row_index import Counts, OpenParquetFile, RowIndexCache, SampleRuns, end_to_end, values_at

LARGE_ROWS = 200_000
STEP_S = {"raw": 1, "minutes": MINUTE_S, "hours": HOUR_S}

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.object_]
Nodes = frozenset[str] | None


@dataclass(slots=True)
class NewestSamples:
    """The newest sample of each of some Gpus on a Node. Words and names are objects of Python."""

    gpu: Words
    node: Words
    t: Ints
    value: Floats
    missing: Words
    is_sorted: bool  # by Gpu and Node, each of them once


@dataclass(slots=True)
class SelectedRows:
    """Rows of some Gpus, and for each the number of its Gpu. By Gpu, then by time, in each file."""

    gpu: npt.NDArray[np.intp]
    t: Ints
    values: dict[str, Floats]  # by column; NaN: not there


class HistoryPointReader:
    def __init__(self) -> None:
        self._shelf = RowIndexCache()

    def newest(self, paths: Sequence[Path], metric: str, first: int, last: int, nodes: Nodes
               ) -> list[NewestSamples]:
        """In each file, from first to last, both included."""
        return [one for path in paths for start in range(first - first % BLOCK_S, last + 1, BLOCK_S)
                if (one := self._newest(self._shelf.open(path), metric, start, (
                    max(first, start), min(last, start + BLOCK_S - 1)), nodes)) is not None]

    def _block(self, file: OpenParquetFile, start: int) -> tuple[list[int], SampleRuns]:
        groups = file.groups_at(start, start + BLOCK_S - 1)
        return groups, self._shelf.places(file, groups, 1)

    def _newest(self, file: OpenParquetFile, metric: str, start: int, span: tuple[int, int],
                nodes: Nodes
                ) -> NewestSamples | None:
        groups, places = self._block(file, start)
        found = _last_of_each(places.within(*span, 1).on(nodes))
        if not len(found):
            return None
        beyond = found.length - 1
        rows = found.row + beyond
        value = _column(file, groups, metric, rows)
        gpu, node = (np.array(names, object)[found.pair] for names in (places.gpus, places.nodes))
        return NewestSamples(gpu, node, found.t + beyond, value,
                             np.array([*places.words, ""], object)[found.word], places.is_sorted)

    def seen(self, path: Path, metric: str, moments: Sequence[int], back_s: int, nodes: Nodes
             ) -> MomentSamples:
        """At moments of one block, whose looks back stay in it; the column is read once."""
        file = self._shelf.open(path)
        groups, places = self._block(file, moments[0] - moments[0] % BLOCK_S)
        mine = places.on(nodes)
        found = [_last_of_each(mine.within(t - back_s + 1, t, 1)) for t in moments]
        pair, word, t, row = (np.concatenate(each) for each in zip(*(
            (one.pair, one.word, one.t + one.length - 1, one.row + one.length - 1)
            for one in found), strict=True))
        rows, at = np.unique(row, return_inverse=True)
        value = _column(file, groups, metric, rows)[at]
        codes = np.array([*(code_of(words, metric) for words in places.words), 0], np.uint8)
        moment = np.repeat(np.arange(len(moments)), [len(one) for one in found])
        return MomentSamples(list(zip(places.gpus, places.nodes, strict=True)), moment,
                             pair.astype(np.intp), t, value, why_of(value, codes[word]))

    def matrix(self, path: Path, metric: str, start: int, nodes: Nodes
               ) -> tuple[list[str], Floats]:
        """Gpus, and seconds x Gpus; a hole is NaN."""
        file = self._shelf.open(path)
        groups, places = self._block(file, start)
        wide = np.full((len(places.gpus), BLOCK_S), np.nan)
        found = places.within(start, start + BLOCK_S - 1, 1)
        if len(found):
            rows = np.arange(places.all_rows) if found.length.sum() == places.all_rows else (
                found.rows())
            flat = replace(found, t=found.pair * np.int64(BLOCK_S) + found.t - start).times(1)
            wide.reshape(-1)[flat] = _column(file, groups, metric, rows)
        if nodes is None:
            return places.gpus, wide.T
        meant = [pair for pair, node in enumerate(places.nodes) if node in nodes]
        return [places.gpus[pair] for pair in meant], wide[meant].T

    def unpacked(self, paths: Sequence[Path], gpus: Sequence[str], columns: int,
                 span: tuple[int, int]) -> float:
        """How many numbers, to answer `some`. Within a large row group DuckDB reads less."""
        rows = [file.rows(group) for file in map(self._shelf.open, paths)
                for group in file.groups_of(gpus, span[0], span[1] - 1)]
        return math.inf if max(rows, default=0) > LARGE_ROWS else columns * sum(rows)

    def some(self, kind: str, paths: Sequence[Path], gpus: Sequence[str],
             columns: Sequence[str], span: tuple[int, int], nodes: Nodes) -> SelectedRows:
        """From the beginning of the span until before its end."""
        number = {gpu: at for at, gpu in enumerate(gpus)}
        parts = [self._some(self._shelf.open(path), STEP_S[kind], number, columns, span, nodes)
                 for path in paths]
        return SelectedRows(_end_to_end([part.gpu for part in parts], np.intp),
                            _end_to_end([part.t for part in parts], np.int64),
                            {name: _end_to_end([part.values[name] for part in parts], np.float64)
                             for name in columns})

    def _some(self, file: OpenParquetFile, step_s: int, number: dict[str, int],
              columns: Sequence[str],
              span: tuple[int, int], nodes: Nodes) -> SelectedRows:
        groups = file.groups_of(number, span[0], span[1] - 1)
        known = [name for name in columns if name in file.names]
        found = end_to_end(self._shelf.place(file, group, step_s) for group in groups)
        found = found.of(number).on(nodes).within(span[0], span[1] - 1, step_s)
        gpu = [number[found.gpus[pair]] for pair in found.pair.tolist()]
        rows = found.rows()
        values = {name: np.full(len(rows), np.nan) for name in columns}
        if len(rows):
            table = file.reader()(groups, known)
            values |= {name: values_at(table.column(name), rows) for name in known}
        return SelectedRows(np.repeat(np.array(gpu, np.intp), found.length), found.times(step_s),
                            values)


def _last_of_each(found: SampleRuns) -> SampleRuns:
    """Of each pair, the run that ends last."""
    if not len(found):
        return found
    return found.take(np.append(np.flatnonzero(np.diff(found.pair)), len(found) - 1))


def _end_to_end(parts: list[npt.NDArray[Any]], kind: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, kind)


def _column(file: OpenParquetFile, groups: Sequence[int], key: str, rows: Counts) -> Floats:
    """A file of before a metric was there has none of it."""
    if key not in file.names:
        return np.full(len(rows), np.nan)
    return values_at(file.reader()(groups, [key]).column(0), rows)

"""Index of a file's seconds by GPU and time, so that a query about few GPUs, or about one moment
of all, reads one column of few row groups and nothing else.

A file is sorted by GPU, Node and time, and time mostly goes on without a hole: what has to be kept
of it is where each run without one begins, some bytes per GPU and five minutes.
"""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..columns.arrays import Ints, Slots, Words, concat_rows, lengths, runs
from ..columns.arrow_columns import Table, arrow, numbers

Reader = Callable[[Sequence[int], Sequence[str]], Table]
Counts = npt.NDArray[np.integer[Any]]


@dataclass(slots=True)
class SampleRuns:
    """Runs in the rows of some row groups, laid end to end: each of one GPU on one Node, from one
    sample to the next without a hole, with the same missing. By pair, then by time."""

    gpus: Words  # of each pair
    nodes: Words
    words: list[str]  # what is said to be missing
    pair: npt.NDArray[np.int32]
    word: npt.NDArray[np.int32]  # -1: nothing is missing
    t: Ints  # of the first row
    row: Counts
    length: Counts
    all_rows: int  # of the row groups
    is_sorted: bool = False  # known to be: the pairs, by GPU and Node, each of them once

    def __len__(self) -> int:
        return len(self.pair)

    def take(self, at: npt.NDArray[np.intp]) -> "SampleRuns":
        return replace(self, pair=self.pair[at], word=self.word[at], t=self.t[at],
                       row=self.row[at], length=self.length[at])

    def within(self, first: int, last: int, step_s: int) -> "SampleRuns":
        """Return what of it lies from first to last, both included."""
        begins = np.maximum(0, -(-(first - self.t) // step_s))
        ends = np.minimum(self.length, (last - self.t) // step_s + 1)
        at = np.flatnonzero(begins < ends)
        clipped, begin = self.take(at), begins[at]
        return replace(clipped, t=clipped.t + begin * step_s, row=clipped.row + begin,
                       length=ends[at] - begin)

    def numbers(self, gpus: Mapping[str, int]) -> Slots:
        """Return the number that each pair's GPU has among these; -1: none."""
        return np.array([gpus.get(gpu, -1) for gpu in self.gpus.tolist()], np.intp)

    def on(self, nodes: frozenset[str] | None) -> "SampleRuns":
        if nodes is None:
            return self
        is_meant = np.array([node in nodes for node in self.nodes], bool)
        return self.take(np.flatnonzero(is_meant[self.pair]))

    def rows(self) -> Counts:
        """Return the number of each row."""
        return _expand(self.row, self.length, 1)

    def times(self, step_s: int) -> Ints:
        return _expand(self.t, self.length, step_s)


def _expand(begin: Counts, length: Counts, step: int) -> Ints:
    ends = np.cumsum(length)
    whole = int(ends[-1]) if len(ends) else 0
    return np.repeat(begin - (ends - length) * step, length) + np.arange(whole) * step


class OpenParquetFile:
    """A Parquet file. What is at its end is parsed once: that is a good part of what a query
    costs."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        arrow()
        self.path = path
        file = pq.ParquetFile(path)
        self.metadata = file.metadata
        self.order = file.schema_arrow.names
        self.names = frozenset(self.order)
        self.groups = self.metadata.num_row_groups
        self.rows = [int(self.metadata.row_group(at).num_rows) for at in range(self.groups)]
        self.chunks = self.groups * self.metadata.num_columns
        self._gpus, self._times = self._bounds("gpu"), self._bounds("t")

    def _bounds(self, name: str) -> list[tuple[Any, Any]]:
        if name not in self.names:  # a row of a host is of no GPU
            return [(None, None)] * self.groups
        column = self.order.index(name)
        statistics = (self.metadata.row_group(group).column(column).statistics
                      for group in range(self.groups))
        return [(None, None) if stats is None or not stats.has_min_max else (stats.min, stats.max)
                for stats in statistics]

    def groups_at(self, first: float, last: float) -> list[int]:
        """Return the row groups that may hold something from first to last, both included."""
        return [group for group, (least, most) in enumerate(self._times)
                if least is None or (least <= last and first <= most)]

    def groups_of(self, gpus: Sequence[str], first: int, last: int) -> list[int]:
        """Return the row groups that may hold something of these GPUs, which are sorted."""
        return [group for group in self.groups_at(first, last)
                if (low := self._gpus[group][0]) is None
                or bisect_left(gpus, low) < bisect_right(gpus, self._gpus[group][1])]

    def groups_between(self, low: str, high: str, first: int, last: int) -> list[int]:
        """Return the row groups of GPUs from low to high, both included."""
        return [group for group in self.groups_at(first, last)
                if (least := self._gpus[group][0]) is None
                or (least <= high and low <= self._gpus[group][1])]

    def reader(self, words: Sequence[str] = ()) -> Reader:
        """Return a reader of row groups and columns; `words`: read as numbers into a dictionary."""
        import pyarrow.parquet as pq

        file = pq.ParquetFile(self.path, metadata=self.metadata, read_dictionary=list(words))
        return lambda groups, columns: file.read_row_groups(
            list(groups), columns=list(columns), use_threads=False)


NO_WORD = -1


def runs_in(table: Table, step_s: int) -> SampleRuns:
    """Return the runs of a row group."""
    gpus, nodes = (encoded(table.column(name)) for name in ("gpu", "node"))
    t = numbers(table.column("t"))
    missing, words = encoded(table.column("missing")) if "missing" in table.column_names else (
        np.full(len(t), NO_WORD, np.int32), [])
    heads = runs(gpus[0], nodes[0])
    # What each row would be in a run that goes on: another one begins where that is not so.
    row = runs(gpus[0], nodes[0], missing, t - step_s * np.arange(len(t)))
    # The same names in file after file: kept once.
    gpu_of, node_of = (np.array([sys.intern(words[at]) for at in codes[heads].tolist()], object)
                       for codes, words in (gpus, nodes))
    pair = np.searchsorted(heads, row, "right") - 1
    pairs = pairwise(zip(gpu_of, node_of, strict=True))
    return SampleRuns(gpu_of, node_of, words, pair.astype(np.int32), missing[row], t[row],
                      row.astype(np.int32), lengths(row, len(t)).astype(np.int32), len(t),
                      all(one < other for one, other in pairs))


def end_to_end(parts: Iterable[SampleRuns]) -> SampleRuns:
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    words: dict[str, int] = {}
    ends = [(part.gpus[at], part.nodes[at]) for part in parts if len(part.gpus) for at in (0, -1)]
    is_sorted = all(part.is_sorted for part in parts) and all(
        one < other for one, other in zip(ends[1::2], ends[2::2], strict=False))
    none = np.zeros(0, np.int32)
    renumbered = [SampleRuns(np.zeros(0, object), np.zeros(0, object), [], none, none,
                             none.astype(np.int64), none, none, 0)]
    pairs = begin = 0
    for part in parts:
        renamed = np.array([*(words.setdefault(word, len(words)) for word in part.words), NO_WORD],
                           np.int32)  # the last one is that of NO_WORD
        renumbered.append(replace(part, pair=part.pair + np.int32(pairs), word=renamed[part.word],
                                  row=part.row + np.int32(begin)))
        pairs, begin = pairs + len(part.gpus), begin + part.all_rows
    return replace(concat_rows(renumbered), words=list(words), all_rows=begin, is_sorted=is_sorted)


def encoded(column: Any) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Return numbers, and the words they stand for. Where a word is missing, its number is -1."""
    unified = column.unify_dictionaries().combine_chunks()
    return numbers(unified.indices, NO_WORD), unified.dictionary.to_pylist()

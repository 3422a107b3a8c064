"""Index of a file's seconds by GPU and time, so that a query about few GPUs, or about one moment
of all, reads one column of few row groups and nothing else.

A file is sorted by GPU, Node and time, and time mostly goes on without a hole: what has to be kept
of it is where each run without one begins, some bytes per GPU and five minutes.
"""

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from .arrays import Floats, Ints, Words, concat_rows, lengths, runs
from .arrow_columns import Table, arrow, numbers

KEPT_CHUNKS = 60_000  # of a column in a row group: some hundred bytes each
KEPT_RUNS = 600_000  # 24 bytes each, beside the names
RUNS_OF_NONE = 60  # what takes as much as the arrays and lists themselves

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

    def of(self, gpus: Collection[str]) -> "SampleRuns":
        pairs = [at for at, gpu in enumerate(self.gpus) if gpu in gpus]
        return self.take(np.flatnonzero(np.isin(self.pair, pairs)))

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

    def rows(self, group: int) -> int:
        return int(self.metadata.row_group(group).num_rows)

    def groups_at(self, first: float, last: float) -> list[int]:
        """Return the row groups that may hold something from first to last, both included."""
        return [group for group, (least, most) in enumerate(self._times)
                if least is None or (least <= last and first <= most)]

    def groups_of(self, gpus: Collection[str], first: int, last: int) -> list[int]:
        return [group for group in self.groups_at(first, last)
                if (low := self._gpus[group][0]) is None
                or any(low <= gpu <= self._gpus[group][1] for gpu in gpus)]

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


Key = TypeVar("Key")
Value = TypeVar("Value")


class SizedLruCache(Generic[Key, Value]):
    """Cache of what was used last, up to a total size; the newest stays in any case."""

    def __init__(self, size: Callable[[Value], int], most: int) -> None:
        self._size = size
        self._most = most
        self._entries: OrderedDict[Key, Value] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """Two that ask for the same at once both make it: neither waits for the other's disk."""
        with self._lock:
            cached = self._entries.get(key)
            if cached is not None:
                self._entries.move_to_end(key)
                return cached
        value = make()
        with self._lock:
            if key not in self._entries:
                self._entries[key] = value
                self._total += self._size(value)
            while len(self._entries) > 1 and self._total > self._most:
                self._total -= self._size(self._entries.popitem(last=False)[1])
        return value


class RowIndexCache:
    """Cache of what is known of files. They never change under their names."""

    def __init__(self) -> None:
        self._opened: SizedLruCache[str, OpenParquetFile] = SizedLruCache(lambda file: file.chunks,
                                                                          KEPT_CHUNKS)
        self._places: SizedLruCache[tuple[str, tuple[int, ...]], SampleRuns] = SizedLruCache(
            lambda runs: RUNS_OF_NONE + len(runs), KEPT_RUNS)

    def open(self, path: Path) -> OpenParquetFile:
        arrow()
        return self._opened.get(path.name, lambda: OpenParquetFile(path))

    def places(self, file: OpenParquetFile, groups: Sequence[int], step_s: int) -> SampleRuns:
        def make() -> SampleRuns:
            sample_runs = end_to_end(self._read(file, groups, step_s))
            pairs = pairwise(zip(sample_runs.gpus, sample_runs.nodes, strict=True))
            return replace(sample_runs, is_sorted=all(one < other for one, other in pairs))

        return self._places.get((file.path.name, tuple(groups)), make)

    @staticmethod
    def _read(file: OpenParquetFile, groups: Sequence[int], step_s: int) -> Iterator[SampleRuns]:
        columns = [name for name in WHERE if name in file.names]
        read = file.reader([name for name in columns if name != "t"])
        return (_runs_of(read, columns, group, step_s) for group in groups)


WHERE = ("gpu", "node", "t", "missing")
NO_WORD = -1


def _runs_of(read: Reader, columns: Sequence[str], group: int, step_s: int) -> SampleRuns:
    table = read([group], columns)
    gpus, nodes = (encoded(table.column(name)) for name in ("gpu", "node"))
    t = table.column("t").to_numpy()
    missing, words = encoded(table.column("missing")) if "missing" in columns else (
        np.full(len(t), NO_WORD, np.int32), [])
    heads = runs(gpus[0], nodes[0])
    # What each row would be in a run that goes on: another one begins where that is not so.
    row = runs(gpus[0], nodes[0], missing, t - step_s * np.arange(len(t)))
    # The same names in file after file: kept once.
    gpu_of, node_of = (np.array([sys.intern(words[at]) for at in codes[heads].tolist()], object)
                       for codes, words in (gpus, nodes))
    pair = np.searchsorted(heads, row, "right") - 1
    return SampleRuns(gpu_of, node_of, words, pair.astype(np.int32), missing[row], t[row],
                      row.astype(np.int32), lengths(row, len(t)).astype(np.int32), len(t))


def end_to_end(parts: Iterable[SampleRuns]) -> SampleRuns:
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    words: dict[str, int] = {}
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
    return replace(concat_rows(renumbered), words=list(words), all_rows=begin)


def encoded(column: Any) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Return numbers, and the words they stand for. Where a word is missing, its number is -1."""
    unified = column.unify_dictionaries().combine_chunks()
    return numbers(unified.indices, NO_WORD), unified.dictionary.to_pylist()


def values_at(column: Any, rows: Counts) -> Floats:
    """Return the values of some rows, in order; NaN where there is none."""
    if not len(rows):
        return np.zeros(0)
    first, many = int(rows[0]), int(rows[-1] - rows[0]) + 1
    if many > SPREAD * len(rows):
        return np.asarray(_take(column, rows).to_numpy(), np.float64)
    values = column.slice(first, many).to_numpy()
    return np.asarray(values if many == len(rows) else values[rows - first], np.float64)


SPREAD = 8  # so far apart that to lay all side by side would cost more


def _take(column: Any, rows: Counts) -> Any:
    pa = arrow()
    begin, parts = 0, []
    for piece in column.chunks:
        first, last = np.searchsorted(rows, (begin, begin + len(piece)))
        if first < last:
            parts.append(piece.take(pa.array(rows[first:last] - begin)))
        begin += len(piece)
    return pa.chunked_array(parts, column.type)

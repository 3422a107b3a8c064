"""Cache of what was read of files: what stands at their ends, where each GPU's rows lie, and
columns, unpacked. Files never change under their names, so that nothing in it becomes wrong; its
size is bounded, and what was used last stays."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ..columns.arrow_columns import arrow, numbers
from .row_index import OpenParquetFile, SampleRuns, end_to_end, runs_in

KEPT_CHUNKS = 60_000  # of a column in a row group: some hundred bytes each
KEPT_RUNS = 600_000  # 24 bytes each, beside the names
RUNS_OF_NONE = 60  # what takes as much as the arrays and lists themselves
KEPT_BYTES = 64_000_000  # of columns
BYTES_OF_NONE = 300  # of an array without numbers, and of its place here
WHERE = ("gpu", "node", "t", "missing")
NARROW = (np.uint8, np.uint16, np.int32)

Key = TypeVar("Key")
Value = TypeVar("Value")
Column = npt.NDArray[Any]  # of a row group; NaN: not there
Chunk = tuple[int, str]  # a row group, and the name of a column


class SizedLruCache(Generic[Key, Value]):
    """Cache of what was used last, up to a total size; the newest stays in any case."""

    def __init__(self, size: Callable[[Value], int], most: int) -> None:
        self._size = size
        self._most = most
        self._entries: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()
        self.total = self.hits = self.misses = 0

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """Two that ask for the same at once both make it: neither waits for the other's disk."""
        [cached] = self.find([key])
        if cached is not None:
            return cached
        value = make()
        self.put(key, value)
        return value

    def find(self, keys: Sequence[Key]) -> list[Value | None]:
        with self._lock:
            values = [self._entries.get(key) for key in keys]
            found = [key for key, value in zip(keys, values, strict=True) if value is not None]
            for key in found:
                self._entries.move_to_end(key)
            self.hits += len(found)
            self.misses += len(keys) - len(found)
            return values

    def put(self, key: Key, value: Value) -> None:
        with self._lock:
            if key in self._entries:
                self.total -= self._size(self._entries.pop(key))
            self._entries[key] = value
            self.total += self._size(value)
            while len(self._entries) > 1 and self.total > self._most:
                self.total -= self._size(self._entries.popitem(last=False)[1])

    def drop(self, is_meant: Callable[[Key], bool]) -> None:
        with self._lock:
            for key in [key for key in self._entries if is_meant(key)]:
                self.total -= self._size(self._entries.pop(key))


class FileCache:
    def __init__(self) -> None:
        self._opened: SizedLruCache[str, OpenParquetFile] = SizedLruCache(lambda file: file.chunks,
                                                                          KEPT_CHUNKS)
        self._places: SizedLruCache[tuple[str, tuple[int, ...]], SampleRuns] = SizedLruCache(
            lambda runs: RUNS_OF_NONE + len(runs), KEPT_RUNS)
        self._columns: SizedLruCache[tuple[str, int, str], Column] = SizedLruCache(
            lambda column: BYTES_OF_NONE + column.nbytes, KEPT_BYTES)

    def open(self, path: Path) -> OpenParquetFile:
        arrow()
        return self._opened.get(path.name, lambda: OpenParquetFile(path))

    def places(self, file: OpenParquetFile, groups: Sequence[int], step_s: int) -> SampleRuns:
        """Return where the rows of these row groups lie, laid end to end."""
        def make() -> SampleRuns:
            if len(groups) == 1:
                columns = [name for name in WHERE if name in file.names]
                read = file.reader([name for name in columns if name != "t"])
                return runs_in(read(groups, columns), step_s)
            return end_to_end(self.places(file, [group], step_s) for group in groups)

        return self._places.get((file.path.name, tuple(groups)), make)

    def put_places(self, name: str, groups: Sequence[SampleRuns]) -> None:
        """Put in where the rows of a file lie, of which its writer has just seen all."""
        for at, runs in enumerate(groups):
            self._places.put((Path(name).name, (at,)), runs)

    def forget(self, names: Collection[str]) -> None:
        """Forget files that are gone: nobody asks for them, and others have use for their room."""
        files = {Path(name).name for name in names}
        self._opened.drop(files.__contains__)
        self._places.drop(lambda key: key[0] in files)
        self._columns.drop(lambda key: key[0] in files)

    def columns(self, file: OpenParquetFile, groups: Sequence[int], names: Sequence[str],
                is_kept: bool = True) -> dict[Chunk, Column]:
        """Return columns that the file has. `is_kept` False: so much is read once that it would
        drive out all the rest."""
        chunks = [(group, name) for group in groups for name in names]
        keys = [(file.path.name, *chunk) for chunk in chunks]
        columns = dict(zip(chunks, self._columns.find(keys), strict=True))
        missing = [chunk for chunk, column in columns.items() if column is None]
        for chunk, column in _read(file, missing):
            columns[chunk] = column
            if is_kept:
                self._columns.put((file.path.name, *chunk), column)
        return columns  # type: ignore[return-value]  # none is missing any more

    @staticmethod
    def has_room(numbers: int) -> bool:
        """Return whether so many numbers, read once, would leave most of the rest in."""
        return 4 * numbers <= KEPT_BYTES // 2

    def counts(self) -> dict[str, int]:
        return {"cache_bytes": self._columns.total, "cache_hits": self._columns.hits,
                "cache_misses": self._columns.misses}


def _read(file: OpenParquetFile, chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, Column]]:
    """Read chunks, all in one go."""
    groups = sorted({group for group, _ in chunks})
    names = list(dict.fromkeys(name for _, name in chunks))
    if not chunks:
        return
    table = file.reader()(groups, names)
    for name in names:
        begin, column = 0, table.column(name)
        for group in groups:
            part = column.slice(begin, file.rows[group])
            begin += file.rows[group]
            values = _narrowed(numbers(part, np.nan))
            # A view would keep all that was read with it, which nobody counts.
            own = values if values.base is None else values.copy()
            own.flags.writeable = False  # all who ask get this very array
            yield (group, name), own


def _narrowed(values: Column) -> Column:
    """Return whole numbers in as few bytes as they need: most are percents, degrees or watts."""
    if values.dtype.kind == "i" and len(values):
        low, high = values.min(), values.max()
        for kind in NARROW:
            if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
                return values.astype(kind, copy=False)
    return values

"""Parquet files of history as arrays and, several at a time, as one: what merging, late seconds and
moments of the fleet need. What is asked of long stretches goes through DuckDB instead."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpudeck.wire import GPU_STATES

from .columns import KEYS, in_runs
from .grid import SEEN, End, GpuMetricRows, TaskRows, Wanted, XidRow, seldom_part
from .manifest import SCHEMA_VERSION
from .memory import BLOCK_S
from .parquet import (
    GROUP_GPUS,
    GROUP_ROWS,
    HOUR_S,
    LAYOUTS,
    MINUTE_S,
    RAW_GROUP_GPUS,
    TASK_WORDS,
    SlotNames,
    Table,
    arrow,
    column_of,
    is_sorted_by_gpu,
    keys_of,
    numbers,
    picked,
    rollup_table,
    schema,
    sorted_table,
)
from .rollup import Rollup, coarser
from .row_index import encoded
from .task_minutes import TASK_SUMS, TASK_TOPS, runs
from .usage import USAGE_SUMS


class MergeSource:
    """A file that is being merged, row group by row group."""

    def __init__(self, path: Path, kind: str) -> None:
        import pyarrow.parquet as pq

        self.file = pq.ParquetFile(path)
        self.shape = schema(kind)
        self._read: dict[int, Table] = {}
        self._bounds = {name: [self._bounds_of(at, name)
                               for at in range(self.file.num_row_groups)]
                        for name in ("gpu", "t") if name in self.file.schema_arrow.names}

    def _bounds_of(self, at: int, name: str) -> tuple[Any, Any]:
        column = self.file.schema_arrow.names.index(name)
        found = self.file.metadata.row_group(at).column(column).statistics
        return (None, None) if found is None or not found.has_min_max else (found.min, found.max)

    def _groups(self, name: str, low: Any, high: Any) -> set[int]:
        return {at for at, (least, most) in enumerate(self._bounds[name])
                if least is None or (least <= high and low <= most)}

    def _is_within(self, at: int, name: str, low: Any, high: Any) -> bool:
        least, most = self._bounds[name][at]
        return least is not None and bool(low <= least and most <= high)

    def gpus(self) -> set[str]:
        return {gpu for at in range(self.file.num_row_groups)
                for chunk in self.file.read_row_group(at, columns=["gpu"]).column(0).chunks
                for gpu in chunk.dictionary.to_pylist()}

    def table(self, low: str, high: str, t0: int, t1: int) -> Table | None:
        """The rows of these Gpus, both included, from t0 until before t1."""
        groups = sorted(self._groups("gpu", low, high) & self._groups("t", t0, t1 - 1))
        if not groups:
            return None
        # The last one may reach into what is asked for next.
        self._read = {at: self._read.get(at) or migrated(self.file.read_row_group(at), self.shape)
                      for at in groups}
        found = arrow().concat_tables(self._read.values())
        self._read = {groups[-1]: self._read[groups[-1]]}
        if all(self._is_within(at, "gpu", low, high) and self._is_within(at, "t", t0, t1 - 1)
               for at in groups):
            return found
        t, gpu = numbers(found.column("t")), np.concatenate([
            np.array([low <= word <= high for word in chunk.dictionary.to_pylist()], bool)[
                numbers(chunk.indices)] for chunk in found.column("gpu").chunks])
        return picked(found, gpu & (t >= t0) & (t < t1))

    def whole(self) -> Table:
        return migrated(self.file.read(), self.shape)


# Step n makes a table of version n into one of version n + 1. What was written once is read for
# ever: a new metric is a column of nulls in what is older, which needs no step.
MIGRATIONS: dict[int, Callable[[Table], Table]] = {}


def migrated(table: Table, shape: Any) -> Table:
    pa = arrow()
    said = json.loads((table.schema.metadata or {}).get(b"gpudeck", b'{"version": 1}'))
    for version in range(said["version"], SCHEMA_VERSION):
        table = MIGRATIONS[version](table)
    if table.schema.equals(shape):
        return table
    columns = [table.column(field.name).cast(field.type) if field.name in table.column_names
               else pa.nulls(table.num_rows, field.type) for field in shape]
    return pa.Table.from_arrays(columns, schema=shape)


def merged(kind: str, paths: Sequence[Path], start: int, end: int) -> Iterator[Table]:
    """The rows of several files in the order of one, some Gpus at a time. Seconds stay in blocks
    of five minutes, so that one moment of the fleet lies together."""
    sources = [MergeSource(path, kind) for path in paths]
    pa = arrow()
    if not is_sorted_by_gpu(kind):
        yield sorted_table(kind, pa.concat_tables([one.whole() for one in sources]))
        return
    gpus = sorted(set().union(*(one.gpus() for one in sources)))
    many, window_s = _pieces(kind, end - start)
    for t0 in range(start, end, window_s):
        for at in range(0, len(gpus), many):
            part = gpus[at : at + many]
            found = [table for one in sources
                     if (table := one.table(part[0], part[-1], t0, t0 + window_s)) is not None]
            if len(found) == 1:
                yield combined(kind, found[0])  # it is sorted
            elif found:
                yield combined(kind, sorted_table(kind, pa.concat_tables(found)))


def _pieces(kind: str, span_s: int) -> tuple[int, int]:
    """How many Gpus of how long a time make a row group."""
    if kind == "raw":
        return RAW_GROUP_GPUS, BLOCK_S
    grain_s = {"hours": HOUR_S, "usage": HOUR_S}.get(kind, MINUTE_S)
    return max(GROUP_GPUS, GROUP_ROWS * grain_s // span_s), span_s


def combined(kind: str, table: Table) -> Table:
    """Of a sorted table, rows with the same keys made one."""
    how = LAYOUTS[kind].merge
    if how == "none" or len(runs(*keys_of(kind, table))) == table.num_rows:
        return table
    if how == "rollup":
        made, names = rollup_of(table)
        bucket_s = MINUTE_S if kind == "minutes" else HOUR_S
        return rollup_table(kind, coarser(made, bucket_s), names)
    if how == "usage":
        return _summed(table, keys_of(kind, table))
    keys = [*LAYOUTS[kind].keys]
    pairs = ([(name, "sum") for name in TASK_SUMS] + [(name, "max") for name in TASK_TOPS]
             + [(name, "first") for name in TASK_WORDS if name not in keys])
    pa = arrow()
    plain = pa.Table.from_arrays(
        [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
         for column in table.columns], names=table.column_names)
    found = plain.group_by(keys, use_threads=False).aggregate(pairs)
    arrays = [found.column(field.name if field.name in keys else next(
        f"{name}_{verb}" for name, verb in pairs if name == field.name)).cast(field.type)
        for field in schema(kind)]
    return pa.Table.from_arrays(arrays, schema=schema(kind))


def _summed(table: Table, keys: list[npt.NDArray[Any]]) -> Table:
    starts = runs(*keys)
    found = picked(table, np.isin(np.arange(table.num_rows), starts))
    for name in USAGE_SUMS:
        sums = np.add.reduceat(numbers(table.column(name)), starts)
        found = found.set_column(found.column_names.index(name), table.schema.field(name),
                                 column_of(sums))
    return found


def rollup_of(table: Table) -> tuple[Rollup, SlotNames]:
    """A table of roll-ups as arrays; its slots are numbers of its own."""
    gpus, nodes = (encoded(table.column(name)) for name in ("gpu", "node"))
    pairs = gpus[0].astype(np.int64) * len(nodes[1]) + nodes[0]
    used, slot = np.unique(pairs, return_inverse=True)
    names = SlotNames([gpus[1][pair // len(nodes[1])] for pair in used.tolist()],
                      [nodes[1][pair % len(nodes[1])] for pair in used.tolist()])
    made = Rollup(slot, _ints(table, "t"), _ints(table, "seconds"), [], [], [], [])
    for key in KEYS:
        n = _ints(table, f"{key}_n")
        made.low.append(_floats(table, f"{key}_min"))
        made.high.append(_floats(table, f"{key}_max"))
        made.total.append(_floats(table, f"{key}_mean") * n)
        made.n.append(n)
    return made, names


def _floats(table: Table, name: str) -> npt.NDArray[np.float64]:
    return np.nan_to_num(numbers(table.column(name)).astype(np.float64))


def _ints(table: Table, name: str) -> npt.NDArray[np.int64]:
    """Null counts as 0: of a metric that was not there yet, no second had a value."""
    return numbers(table.column(name)).astype(np.int64)


def seen_seconds(path: Path, t0: int, t1: int) -> tuple[list[str], list[str],
                                                      npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    """Gpus, nodes, and per row a number of each pair and the second."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["gpu", "node", "t"], read_dictionary=["gpu", "node"])
    table = table.filter(pc.and_(pc.greater_equal(table["t"], t0), pc.less(table["t"], t1)))
    if table.num_rows == 0:
        return [], [], np.zeros(0, np.intp), np.zeros(0, np.int64)
    gpus, nodes = (encoded(table.column(name)) for name in ("gpu", "node"))
    pairs = gpus[0].astype(np.int64) * len(nodes[1]) + nodes[0]
    used, at = np.unique(pairs, return_inverse=True)
    return ([gpus[1][pair // len(nodes[1])] for pair in used.tolist()],
            [nodes[1][pair % len(nodes[1])] for pair in used.tolist()], at, _ints(table, "t"))


def event_keys(path: Path) -> set[tuple[str, str, int]]:
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["node", "stream", "seq"])
    return set(zip(*(column.to_pylist() for column in table.columns), strict=True))


def has_column(file: Any, key: str) -> bool:
    """A file of before a metric was there has none of it."""
    return key in file.schema_arrow.names


def _row_groups(file: Any, name: str, low: Any, high: Any) -> list[int]:
    """Those that may hold something from low to high, both included."""
    at = file.schema_arrow.names.index(name)
    found = []
    for group in range(file.num_row_groups):
        stats = file.metadata.row_group(group).column(at).statistics
        if stats is None or not stats.has_min_max or (stats.min <= high and low <= stats.max):
            found.append(group)
    return found


def wide_parts(path: Path, kind: str, wanted: Wanted,
               span: tuple[int, int]) -> Iterator[GpuMetricRows]:
    """Row group by row group; `kind`: minutes or raw."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    places: list[tuple[str, End]] = [(key, end) for key, ends in wanted.items() for end in ends]
    column_of = {place: place[0] if kind == "raw" else f"{place[0]}_{place[1]}"
                 for place in places}
    counts = {} if kind == "raw" else {key: f"{key}_n" for key in wanted}
    there = set(file.schema_arrow.names)
    names = ["gpu", "node", "t", *({*column_of.values(), *counts.values()} & there)]
    for group in _row_groups(file, "t", span[0], span[1] - 1):
        table = file.read_row_group(group, columns=names, use_threads=False)
        yield _within(_part(table, column_of, counts), span)


def _part(table: Table, column_of: dict[tuple[str, End], str],
          counts: dict[str, str]) -> GpuMetricRows:
    gpus, nodes = (encoded(table.column(name)) for name in ("gpu", "node"))
    used, name_at = in_runs(gpus[0].astype(np.int64) * len(nodes[1]) + nodes[0])
    t = _ints(table, "t")
    values = {place: table.column(name).to_numpy() for place, name in column_of.items()
              if name in table.column_names}
    values = {place: found if found.dtype == np.float32 else found.astype(np.float64)
              for place, found in values.items()}
    n = {key: _ints(table, name).astype(np.uint16) for key, name in counts.items()
         if name in table.column_names}
    if not counts:
        n = {key: (~np.isnan(found)).astype(np.uint16) for (key, _), found in values.items()}
    return GpuMetricRows([(gpus[1][at // len(nodes[1])], nodes[1][at % len(nodes[1])])
                          for at in used.tolist()], name_at, t, n, values)


def _within(part: GpuMetricRows, span: tuple[int, int]) -> GpuMetricRows:
    inside = (part.t >= span[0]) & (part.t < span[1])
    if inside.all():
        return part
    return GpuMetricRows(part.names, part.name_at[inside], part.t[inside],
                         {key: found[inside] for key, found in part.n.items()},
                         {place: found[inside] for place, found in part.values.items()})


def seldom_parts(path: Path, keys: Sequence[str], span: tuple[int, int], step_s: int
                 ) -> Iterator[GpuMetricRows]:
    """Of the metrics that are told when they change."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    known = [key for key in keys if has_column(file, key)]
    for group in _row_groups(file, "t", span[0], span[1] - 1):
        table = file.read_row_group(group, columns=["gpu", "node", "t", *known],
                                    use_threads=False)
        gpus, nodes = (encoded(table.column(name)) for name in ("gpu", "node"))
        used, name_at = in_runs(gpus[0].astype(np.int64) * len(nodes[1]) + nodes[0])
        t = _ints(table, "t")
        inside = (t >= span[0]) & (t < span[1])
        if inside.any():
            yield seldom_part(
                [(gpus[1][at // len(nodes[1])], nodes[1][at % len(nodes[1])])
                 for at in used.tolist()], name_at[inside], t[inside],
                {key: table.column(key).to_numpy()[inside] for key in known}, step_s)


HELD_WORDS = ("task", "user", "job", "launch")
HELD = (*HELD_WORDS, *TASK_SUMS, *TASK_TOPS)


def held_parts(path: Path, span: tuple[int, int], wanted: Sequence[str] = HELD
               ) -> Iterator[TaskRows]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    for group in _row_groups(file, "t", span[0], span[1] - 1):
        table = file.read_row_group(group, use_threads=False, columns=[
            "gpu", "node", "t", *wanted])
        yield held_part(table, span, wanted)


def held_part(table: Table, span: tuple[int, int], wanted: Sequence[str] = HELD
              ) -> TaskRows:
    t = _ints(table, "t")
    inside = np.flatnonzero((t >= span[0]) & (t < span[1]))
    if len(inside) < len(t):
        table, t = table.take(inside), t[inside]
    gpus, nodes = (encoded(table.column(name)) for name in ("gpu", "node"))
    used, name_at = in_runs(gpus[0].astype(np.int64) * len(nodes[1]) + nodes[0])
    return TaskRows(
        [(gpus[1][at // len(nodes[1])], nodes[1][at % len(nodes[1])]) for at in used.tolist()],
        name_at, t, {name: encoded(table.column(name)) for name in wanted if name in HELD_WORDS},
        {name: table.column(name).to_numpy().astype(np.float64) for name in wanted
         if name not in HELD_WORDS})


def seen_parts(path: Path, kind: str, span: tuple[int, int]) -> Iterator[GpuMetricRows]:
    """That a Gpu was heard of: for how many seconds of a minute, or in which state in a second."""
    import pyarrow.parquet as pq

    file, what = pq.ParquetFile(path), "state" if kind == "raw" else "seconds"
    for group in _row_groups(file, "t", span[0], span[1] - 1):
        table = file.read_row_group(group, columns=["gpu", "node", "t", what], use_threads=False)
        if kind == "raw":
            at, words = encoded(table.column(what))
            codes = np.array([GPU_STATES.index(word) for word in words], np.float32)
            found = _part(table, {}, {})
            found.values[SEEN, "mean"] = codes[at]
            found.n[SEEN] = np.ones(len(found.t), np.uint16)
        else:
            found = _part(table, {}, {SEEN: what})
        yield _within(found, span)


def xid_rows(path: Path, span: tuple[float, float]) -> list[XidRow]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["t", "node", "kind", "gpu", "numbers"])
    table = table.filter(pc.and_(pc.equal(table["kind"].cast(arrow().string()), "xid"), pc.and_(
        pc.greater_equal(table["t"], span[0]), pc.less(table["t"], span[1]))))
    rows = zip(*(table.column(name).to_pylist() for name in ("t", "node", "gpu", "numbers")),
               strict=True)
    return [(t, node, gpu, json.loads(numbers)) for t, node, gpu, numbers in rows
            if gpu is not None]

"""Parquet files of history as arrays and, several at a time, as one: what merging, late seconds and
rules need."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpudeck.contract.wire import GPU_STATES

from ..columns.arrays import Slots, in_runs, runs
from ..columns.arrow_columns import Table, arrow, column_of, numbers, picked
from ..columns.grid import SEEN, GpuMetricRows, Name, TaskRows, Wanted, XidRow
from ..columns.layout import KEYS
from ..columns.memory import BLOCK_S
from ..columns.rollup import Rollup, coarser, rollup_of
from ..columns.task_minutes import TASK_SUMS, TASK_TOPS
from ..columns.usage import OF_OLDER, USAGE_SUMS, USAGE_TOPS
from ..storage.manifest import SCHEMA_VERSION
from .parquet import (
    GROUP_GPUS,
    GROUP_ROWS,
    HOUR_S,
    LAYOUTS,
    MINUTE_S,
    MOST_ROWS,
    NAMES,
    RAW_GROUP_GPUS,
    TASK_WORDS,
    is_sorted_by_gpu,
    keys_of,
    rollup_table,
    schema,
    sorted_table,
)
from .row_index import OpenParquetFile, encoded

ROLLUPS = ("minutes", "hours")
GRAINS = {"hours": HOUR_S, "usage": HOUR_S}  # else minutes
PLACE = ("gpu", "node", "t")


class MergeSource:
    """A file that is being merged, row group by row group."""

    def __init__(self, path: Path, kind: str) -> None:
        self._file = OpenParquetFile(path)
        self._reader = self._file.reader()
        self._shape = schema(kind)
        self._read: dict[int, Table] = {}

    def gpus(self) -> set[str]:
        return {gpu for at in range(self._file.groups)
                for chunk in self._reader([at], ["gpu"]).column(0).chunks
                for gpu in chunk.dictionary.to_pylist()}

    def table(self, low: str, high: str, t0: int, t1: int) -> Table | None:
        """Return the rows of these GPUs, both included, from t0 until before t1."""
        groups = self._file.groups_between(low, high, t0, t1 - 1)
        if not groups:
            return None
        # The last one may reach into what is asked for next.
        self._read = {at: self._read.get(at) or self._group(at) for at in groups}
        rows = arrow().concat_tables(self._read.values())
        self._read = {groups[-1]: self._read[groups[-1]]}
        t, gpu = numbers(rows.column("t")), np.concatenate([
            np.array([low <= word <= high for word in chunk.dictionary.to_pylist()], bool)[
                numbers(chunk.indices)] for chunk in rows.column("gpu").chunks])
        inside = gpu & (t >= t0) & (t < t1)
        return rows if inside.all() else picked(rows, inside)

    def _group(self, at: int) -> Table:
        return migrated(self._reader([at], self._file.order), self._shape)

    def whole(self) -> Table:
        return arrow().concat_tables(map(self._group, range(self._file.groups)))


# Step n makes a table of version n into one of version n + 1. What was written once is read for
# ever: a new metric, cluster and host are columns of nulls in what is older, which needs no step.
MIGRATIONS: dict[int, Callable[[Table], Table]] = {}


def migrated(table: Table, shape: Any) -> Table:
    pa = arrow()
    head = json.loads((table.schema.metadata or {}).get(b"gpudeck", b'{"version": 1}'))
    for version in range(head["version"], SCHEMA_VERSION):
        table = MIGRATIONS.get(version, lambda same: same)(table)
    if table.schema.equals(shape):
        return table
    sources = {name: name for name in table.column_names}
    sources = {name: old for name, old in OF_OLDER.items() if old in sources} | sources
    columns = [table.column(sources[field.name]).cast(field.type) if field.name in sources
               else pa.nulls(table.num_rows, field.type) for field in shape]
    return pa.Table.from_arrays(columns, schema=shape)


def merged(kind: str, paths: Sequence[Path], start: int, end: int) -> Iterator[Table]:
    """Yield rows of several files in the order of one, some GPUs at a time. Seconds stay in blocks
    of five minutes, so that one moment of the fleet lies together."""
    sources = [MergeSource(path, kind) for path in paths]
    pa = arrow()
    if not is_sorted_by_gpu(kind):
        yield sorted_table(kind, pa.concat_tables([source.whole() for source in sources]))
        return
    gpus = sorted(set().union(*(source.gpus() for source in sources)))
    many, window_s = _pieces(kind, end - start)
    for t0 in range(start, end, window_s):
        for at in range(0, len(gpus), many):
            part = gpus[at : at + many]
            tables = [table for source in sources
                     if (table := source.table(part[0], part[-1], t0, t0 + window_s)) is not None]
            if len(tables) == 1:
                yield combined(kind, tables[0])  # it is sorted
            elif tables:
                yield combined(kind, sorted_table(kind, pa.concat_tables(tables)))


def _pieces(kind: str, span_s: int) -> tuple[int, int]:
    """Return how many GPUs, and how many seconds, make a row group."""
    if kind == "raw":
        return RAW_GROUP_GPUS, BLOCK_S
    rows = max(1, span_s // GRAINS.get(kind, MINUTE_S))  # of each GPU
    return max(GROUP_ROWS // rows, min(GROUP_GPUS, MOST_ROWS // rows)), span_s


def combined(kind: str, table: Table) -> Table:
    """Combine rows with the same keys, of a sorted table."""
    how = LAYOUTS[kind].merge
    starts = runs(*keys_of(kind, table))
    if how == "none" or len(starts) == table.num_rows:
        return table
    if how == "rollup":
        return rollup_table(kind, coarser(_rollup_in(kind, table), GRAINS.get(kind, MINUTE_S)),
                            {name: _first_said(table.column(name), starts) for name in NAMES})
    first_rows = picked(table, np.isin(np.arange(table.num_rows), starts))
    for at, field in enumerate(table.schema):
        column = table.column(field.name)
        if field.name in (*TASK_SUMS, *USAGE_SUMS):
            sums = column_of(np.add.reduceat(numbers(column), starts))
            first_rows = first_rows.set_column(at, field, sums)
        elif field.name in (*TASK_TOPS, *USAGE_TOPS):
            tops = np.fmax.reduceat(numbers(column, np.nan), starts)
            first_rows = first_rows.set_column(at, field, column_of(tops, np.isnan(tops)))
        elif field.name in (*NAMES, *TASK_WORDS):
            first_rows = first_rows.set_column(at, field, _first_said(column, starts))
    return first_rows


def _first_said(column: Any, starts: Slots) -> Any:
    """Return the first word that there is in the rows from each start on."""
    if column.null_count:
        many = len(column)
        there = np.where(encoded(column)[0] >= 0, np.arange(many), many)
        first = np.minimum.reduceat(there, starts)
        starts = np.where(first < many, first, starts)
    return column.take(column_of(starts))


def pairs_in(table: Table) -> tuple[list[Name], Slots]:
    """Return the pairs of GPU and Node, and of each row the number of its pair."""
    (gpu, gpus), (node, nodes) = (encoded(table.column(name)) for name in ("gpu", "node"))
    pairs, at = in_runs(gpu.astype(np.int64) * len(nodes) + node)
    return [(gpus[pair // len(nodes)], nodes[pair % len(nodes)]) for pair in pairs.tolist()], at


def _rollup_in(kind: str, table: Table) -> Rollup:
    """Return a table of roll-ups as arrays; its slots are numbered within it."""
    _, slot = pairs_in(table)
    values = {f"{key}_{part}": numbers(table.column(f"{key}_{part}"), np.nan)
              for key in KEYS for part in ("min", "mean", "max", "n")}
    rows = Rollup(slot, numbers(table.column("t")),
                  numbers(table.column("seconds")).astype(np.int64))
    return rollup_of(kind, rows, values, KEYS)


def event_keys(path: Path) -> set[tuple[str, str, int]]:
    file = OpenParquetFile(path)
    table = file.reader()(range(file.groups), ("node", "stream", "seq"))
    return set(zip(*(column.to_pylist() for column in table.columns), strict=True))


def tables_in(path: Path, columns: Sequence[str], span: tuple[float, float]) -> Iterator[Table]:
    """Yield the row groups that may hold something of this time."""
    file = OpenParquetFile(path)
    # A file of before a metric was there has none of it.
    present = [name for name in columns if name in file.names]
    read = file.reader()
    for group in file.groups_at(*span):
        yield read([group], present)


def within(table: Table, span: tuple[float, float]) -> Table:
    """Return the rows from the beginning of the span until before its end."""
    t = numbers(table.column("t"))
    inside = (t >= span[0]) & (t < span[1])
    return table if inside.all() else picked(table, inside)


def wide_columns(kind: str, metrics: Wanted) -> list[str]:
    """`kind`: minutes or raw."""
    if kind not in ROLLUPS:
        return [*metrics]
    return [f"{key}_{part}" for key, ends in metrics.items() for part in (*ends, "n")]


def wide_part(kind: str, metrics: Wanted, table: Table) -> GpuMetricRows:
    names, at = pairs_in(table)
    part = GpuMetricRows(names, at, numbers(table.column("t")), {}, {})
    return fill_wide(kind, metrics, part, {
        name: numbers(table.column(name), np.nan)
        for name in wide_columns(kind, metrics) if name in table.column_names})


def fill_wide(kind: str, metrics: Wanted, part: GpuMetricRows,
              columns: Mapping[str, npt.NDArray[Any]]) -> GpuMetricRows:
    """Fill rows with what columns of such a file have of these metrics."""
    for key, ends in metrics.items():
        for end in ends:
            name = f"{key}_{end}" if kind in ROLLUPS else key
            if name in columns:
                values = columns[name]
                part.values[key, end] = (
                    values if values.dtype == np.float32 else values.astype(float))
                part.n[key] = part.n[key] if key in part.n else (
                    np.nan_to_num(columns[f"{key}_n"]) if kind in ROLLUPS
                    else ~np.isnan(part.values[key, end])).astype(np.uint16)
    return part


def seen_part(table: Table) -> GpuMetricRows:
    """Return in what state a GPU was in each second in which it was heard of."""
    names, at = pairs_in(table)
    state, words = encoded(table.column("state"))
    codes = np.array([GPU_STATES.index(word) for word in words], np.float32)
    return GpuMetricRows(names, at, numbers(table.column("t")),
                         {SEEN: np.ones(len(at), np.uint16)}, {(SEEN, "mean"): codes[state]})


def held_part(table: Table, columns: Sequence[str]) -> TaskRows:
    return TaskRows(
        *pairs_in(table), numbers(table.column("t")),
        {name: encoded(table.column(name)) for name in columns if name in TASK_WORDS},
        # A file of before a number was there has none of it.
        {name: numbers(table.column(name), np.nan) if name in table.column_names
         else np.full(table.num_rows, np.nan) for name in columns if name not in TASK_WORDS})


def xid_rows(table: Table) -> list[XidRow]:
    rows = zip(*(table.column(name).to_pylist()
                 for name in ("kind", "t", "node", "gpu", "numbers")), strict=True)
    return [(t, node, gpu, json.loads(text)) for kind, t, node, gpu, text in rows
            if kind == "xid" and gpu is not None]

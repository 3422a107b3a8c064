"""History as Parquet files: what is in them, how they are written, read and merged.

Every file is sorted by gpu, node and time (events by time), in row groups of few GPUs, so that one
GPU's hour or one moment of the fleet touches little of it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpudeck.contract.wire import GPU_STATES

from ..columns.arrays import in_runs, take_rows
from ..columns.arrow_columns import Table, arrow, column_of, numbers, strings, words_at, words_of
from ..columns.host_minutes import HOST_COLUMNS
from ..columns.layout import (
    AT,
    COUNTERS,
    MIB,
    NO_MEAN,
    SLOW_KEYS,
    STORED,
    HistoryColumn,
    missing_at,
    missing_words,
    slow_words,
)
from ..columns.memory import SampleRows
from ..columns.rollup import Rollup
from ..columns.rows import SlowMetricRows
from ..columns.slot_names import SlotNames
from ..columns.task_minutes import TASK_SUMS, TASK_TOPS, TaskMinuteRows
from ..columns.usage import PARTS, USAGE_SUMS, USAGE_TOPS, UsageRows
from ..storage.archive import Archive, sync
from ..storage.manifest import SCHEMA_VERSION, HistoryFile, digest

if TYPE_CHECKING:
    import pandas as pd

RAW_GROUP_GPUS = 128
GROUP_GPUS = 512
GROUP_ROWS = 16_384  # of fewer, most of a row group is what is said about it
MOST_ROWS = 98_304  # of more, a query about one node unpacks much of what it does not need
LEVEL = 3
# What is kept for a day is to cost little time, what is kept for months few bytes.
LEVELS = {"raw": 1, "minutes": 4, "hours": 4}
MINUTE_S, HOUR_S = 60, 3_600

NAMES = ("gpu", "node", "cluster", "host")  # of where a row is of
TASK_WORDS = ("task", "user", "job", "launch", "manager", "container", "pod", "namespace",
              "slurm_job", "unit", "kind")


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Layout of one kind of file."""

    spans: tuple[int, ...]  # of how long a stretch one file is the whole, before and after merging
    keys: tuple[str, ...]  # what rows are sorted by
    merge: str = "none"  # what becomes of rows with the same keys


LAYOUTS: dict[str, FileLayout] = {
    "raw": FileLayout((300, 3_600), ("gpu", "node", "t")),
    "minutes": FileLayout((300, 3_600, 86_400), ("gpu", "node", "t"), "rollup"),
    "hours": FileLayout((300, 3_600, 86_400, 30 * 86_400), ("gpu", "node", "t"), "rollup"),
    "slow": FileLayout((300, 3_600, 86_400), ("gpu", "node", "t")),
    "tasks": FileLayout((300, 3_600, 86_400), ("gpu", "node", "t", "task"), "tasks"),
    "usage": FileLayout((300, 3_600, 86_400, 30 * 86_400), ("gpu", "node", "t", "user", *PARTS),
                        "usage"),
    "events": FileLayout((300, 3_600, 86_400), ("t",)),
    # A day of a large fleet, sorted in memory as a whole, would be too much.
    "hosts": FileLayout((300, 3_600), ("node", "t")),
}


def schema(kind: str) -> Any:
    return _schema(kind, SCHEMA_VERSION)


@lru_cache(64)
def _schema(kind: str, version: int) -> Any:
    pa = arrow()
    word, real = pa.dictionary(pa.int32(), pa.string()), pa.float64()
    names = [(name, word) for name in NAMES]
    where = [*names, ("t", pa.int64())]
    fields = {
        "raw": [*where, ("state", word), *((column.key, _type(column)) for column in STORED),
                ("missing", word)],
        "slow": [*where, *((key, real) for key in SLOW_KEYS), ("missing", word)],
        "tasks": [*where, *((name, word) for name in TASK_WORDS),
                  *((name, real) for name in (*TASK_SUMS, *TASK_TOPS))],
        "usage": [*where, *((name, word) for name in ("user", *PARTS)),
                  *((name, real) for name in (*USAGE_SUMS, *USAGE_TOPS))],
        "events": [("t", real), *names[1:], ("kind", word), ("gpu", word), ("task", word),
                   ("text", pa.string()), ("numbers", pa.string()), ("stream", word),
                   ("seq", pa.int64())],
        "hosts": [*names[1:], ("t", pa.int64()), ("samples", pa.int32()),
                  *((name, real) for name in HOST_COLUMNS)],
    }
    fields["minutes"] = fields["hours"] = [*where, ("seconds", pa.int32()), *(
        (f"{one.key}_{part}", kind) for one in STORED for part, kind in (
            ("min", _type(one)), ("mean", pa.float32()), ("max", _type(one)), ("n", pa.int32())))]
    says = json.dumps({"version": version, "kind": kind})
    return pa.schema(fields[kind], metadata={"gpudeck": says})


def _type(column: HistoryColumn) -> Any:
    pa = arrow()
    if column.kind != "int":
        return pa.float32()
    return pa.int64() if column.dtype is np.int64 else pa.int32()


def _table(kind: str, columns: Mapping[str, Any]) -> Table:
    """Return a table of those columns of such a file that there are."""
    shape = schema(kind)
    shape = arrow().schema([field for field in shape if field.name in columns], shape.metadata)
    return arrow().Table.from_arrays([columns[name] for name in shape.names], schema=shape)


def raw_table(rows: SampleRows, names: SlotNames) -> Table:
    codes, at = in_runs(rows.missing)
    columns = {**names.columns(rows.slot, rows.t), "t": column_of(rows.t),
               "state": words_at(rows.state - 1, GPU_STATES)}
    for key, units in rows.units.items():
        column, of_code = STORED[AT[key]], missing_at(codes, AT[key]) != 0
        values = column.values(units).astype(_type(column).to_pandas_dtype(), copy=False)
        columns[key] = column_of(values, of_code[at] if of_code.any() else None)
    columns["missing"] = words_at(at, [missing_words(code) or None for code in codes.tolist()])
    return _table("raw", columns)


def rollup_table(kind: str, rollup: Rollup, where: Mapping[str, Any]) -> Table:
    """`where`: its columns of NAMES."""
    columns = {**where, "t": column_of(rollup.t),
               "seconds": column_of(rollup.seconds.astype(np.int32))}
    for key, n in rollup.n.items():
        column, none = STORED[AT[key]], n == 0
        # To an eighth of a step; of bytes, to a mebibyte: more would be noise that does not pack.
        step = MIB if key == "mem_used_bytes" else column.step / 8
        mean = np.rint(rollup.mean(key) / step) * step
        columns[f"{key}_mean"] = column_of(mean.astype(np.float32), none | (key in NO_MEAN))
        for part, values in (("min", rollup.low[key]), ("max", rollup.high[key])):
            ends = np.where(none, 0.0, values).astype(_type(column).to_pandas_dtype())
            columns[f"{key}_{part}"] = column_of(ends, none)
        columns[f"{key}_n"] = column_of(n.astype(np.int32))
    return _table(kind, columns)


def tasks_table(rows: TaskMinuteRows, names: SlotNames) -> Table:
    columns = {**names.columns(rows.slot, rows.t), "t": column_of(rows.t),
               "task": words_of(rows.ids, rows.lane)}
    for name in TASK_WORDS[1:]:
        getter = attrgetter("job_id" if name == "job" else name)
        # One that used a GPU before it was described: nothing is known of it.
        columns[name] = words_of([None if task is None else getter(task) for task in rows.tasks],
                                 rows.lane)
    return _table("tasks", columns | {name: column_of(values, np.isnan(values))
                                      for name, values in rows.numbers.items()})


def usage_table(usage: UsageRows, names: SlotNames) -> Table:
    words = {name: words_of([part[at] for part in usage.parts], usage.part)
             for at, name in enumerate(("user", *PARTS))}
    return _table("usage", {**names.columns(usage.slot, usage.t), "t": column_of(usage.t)}
                  | words | {name: column_of(values, np.isnan(values))
                             for name, values in usage.numbers.items()})


def events_table(columns: Mapping[str, Sequence[Any]]) -> Table:
    return _rows_table("events", columns)


def hosts_table(columns: Mapping[str, Sequence[Any]]) -> Table:
    return _rows_table("hosts", columns)


def _rows_table(kind: str, columns: Mapping[str, Sequence[Any]]) -> Table:
    pa = arrow()
    return _table(kind, {
        field.name: words_of(columns[field.name]) if pa.types.is_dictionary(field.type)
        else strings(columns[field.name]) if pa.types.is_string(field.type)
        else _number_column(np.array(columns[field.name], field.type.to_pandas_dtype()))
        for field in schema(kind)})


def _number_column(values: npt.NDArray[Any]) -> Any:
    """NaN is not a number: a hole is empty."""
    is_real = values.dtype.kind == "f"
    return column_of(values, np.isnan(values)) if is_real and np.isnan(values).any() else \
        column_of(values)


def slow_table(rows: SlowMetricRows, names: SlotNames) -> Table:
    rows = take_rows(rows, np.lexsort((rows.t, np.argsort(names.order())[rows.slot])))
    codes, at = np.unique(rows.absent, axis=0, return_inverse=True)
    return _table("slow", {**names.columns(rows.slot, rows.t), "t": column_of(rows.t)}
                  | {key: column_of(rows.numbers[:, number], rows.absent[:, number] != 0)
                     for number, key in enumerate(SLOW_KEYS)}
                  | {"missing": words_at(at.reshape(-1), [slow_words(code) or None
                                                        for code in codes])})


def with_words(table: Table) -> Table:
    """Return the table with words as words, not as numbers into a dictionary."""
    pa = arrow()
    return table.cast(pa.schema([
        pa.field(field.name, pa.string()) if pa.types.is_dictionary(field.type) else field
        for field in table.schema]))


def plain_frame(table: Table) -> "pd.DataFrame":
    frame: pd.DataFrame = with_words(table).to_pandas()
    return frame


def is_sorted_by_gpu(kind: str) -> bool:
    return LAYOUTS[kind].keys[0] == "gpu"


def sorted_table(kind: str, table: Table) -> Table:
    """Return the table sorted, with one dictionary for each column of words."""
    table = table.unify_dictionaries()
    return table.take(column_of(np.lexsort([*reversed(keys_of(kind, table))])))


def keys_of(kind: str, table: Table) -> list[npt.NDArray[Any]]:
    """Return what rows are sorted by, as numbers in the same order; null comes first."""
    return [_ranks(table.column(key)) for key in LAYOUTS[kind].keys]


def _ranks(column: Any) -> npt.NDArray[Any]:
    pa = arrow()
    if not pa.types.is_dictionary(column.type):
        return numbers(column)
    unified = column.unify_dictionaries().combine_chunks()
    words = unified.dictionary.to_pylist()
    rank = np.zeros(len(words) + 1, np.int32)
    rank[np.array(sorted(range(len(words)), key=words.__getitem__), np.intp)] = np.arange(
        1, len(words) + 1)  # 0 is left for null, whose number is -1
    ranked: npt.NDArray[Any] = rank[numbers(unified.indices, -1)]
    return ranked


# -- files


def _options(kind: str) -> dict[str, Any]:
    dictionary, encodings = [], {}
    for field in schema(kind):
        encoding = _encoding(kind, field)
        if encoding is None:
            dictionary.append(field.name)
        elif encoding != "PLAIN":
            encodings[field.name] = encoding
    return {"compression": "zstd", "compression_level": LEVELS.get(kind, LEVEL),
            "use_dictionary": dictionary, "column_encoding": encodings,
            "write_statistics": ["gpu", "t"]}


def _encoding(kind: str, field: Any) -> str | None:
    """Return the encoding of a column; None: a dictionary. Measured, bytes and time: what returns
    among many GPUs within some minutes (watts, degrees, clocks) packs best as that, a quarter
    smaller than as differences; what only grows, as those; shares of seconds byte by byte, in half
    of the time."""
    pa = arrow()
    if not pa.types.is_dictionary(field.type) and field.name != "t":
        if kind == "slow":
            return None
        if kind == "raw" and field.name not in COUNTERS:
            return "BYTE_STREAM_SPLIT" if STORED[AT[field.name]].kind == "share" else None
        if kind in ("minutes", "hours"):
            return _rollup_encoding(field.name)
    if pa.types.is_integer(field.type):
        return "DELTA_BINARY_PACKED"
    return "BYTE_STREAM_SPLIT" if pa.types.is_floating(field.type) else None


def _rollup_encoding(name: str) -> str | None:
    key, _, part = name.rpartition("_")
    if part not in ("min", "mean", "max"):
        return None  # seconds that were there
    column = STORED[AT[key]]
    if column.key in COUNTERS:
        return "BYTE_STREAM_SPLIT" if part == "mean" else "DELTA_BINARY_PACKED"
    return "PLAIN" if column.kind == "int" and column.narrow is np.int64 else None


def write(archive: Archive, kind: str, stretch: tuple[int, int, int],
          stamp: tuple[int, float], tables: Iterator[Table]) -> HistoryFile | None:
    """Write a file that is whole, named and on disk when this returns; None: nothing to write.
    `stretch`: start, end and span; `stamp`: by which line of the manifest, and when."""
    import pyarrow.parquet as pq

    (start, end, span_s), (number, made_at) = stretch, stamp
    name = f"{kind}/{kind}-{start}-{span_s or 'late'}-{number}.parquet"
    draft = archive.draft(name)
    rows = 0
    try:
        with pq.ParquetWriter(draft, schema(kind), **_options(kind)) as writer:
            for table in tables:
                if table.num_rows:
                    writer.write_table(table, row_group_size=table.num_rows)
                    rows += table.num_rows
        if rows == 0:
            draft.unlink()
            return None
        sync(draft)
        file = HistoryFile(name, kind, start, end, span_s, rows, draft.stat().st_size,
                           digest(draft),
                           made_at, SCHEMA_VERSION)
        archive.put(draft, name)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return file


def write_table(path: Path, table: Table) -> None:
    """Write a table beside history: whole under its name, or not at all."""
    import pyarrow.parquet as pq

    draft = path.with_name(f".{path.name}.new")
    pq.write_table(table, draft, compression="zstd")
    draft.chmod(0o600)
    draft.replace(path)


def read_table(path: Path) -> Table:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path).read(use_threads=False)


@dataclass(frozen=True, slots=True)
class FileHead:
    """Head of a file: what it says of itself."""

    kind: str
    version: int
    rows: int


def head_of(path: Path) -> FileHead:
    """Read the head. Raises OSError, ValueError, KeyError or TypeError if it is no file of ours."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    head = json.loads(metadata.metadata[b"gpudeck"])
    return FileHead(str(head["kind"]), int(head["version"]), int(metadata.num_rows))


def save_rows(folder: Path, start: int, chunks: Iterator[SampleRows], names: SlotNames) -> None:
    """Save what the writer will not take as plain arrays: `numpy.load` reads them."""
    for at, rows in enumerate(chunks):
        if len(rows):
            slots, slot = np.unique(rows.slot, return_inverse=True)
            columns = {key: units.astype(np.float64) * STORED[AT[key]].step
                       for key, units in rows.units.items()}
            np.savez_compressed(
                folder / f"raw-{start}-{at}.npz", slot=slot, t=rows.t, state=rows.state,
                missing=rows.missing, allow_pickle=False,
                gpus=np.array([names.gpus[number] for number in slots.tolist()]),
                nodes=np.array([names.nodes[number] for number in slots.tolist()]), **columns)


# -- what is given out


def _output_table(columns: Mapping[str, Sequence[Any]]) -> Table:
    """NaN is not a number: a hole is empty."""
    pa = arrow()
    return pa.table({name: pa.array(values, from_pandas=True)
                     for name, values in columns.items()})


def csv_of(columns: Mapping[str, Sequence[Any]]) -> bytes:
    import pyarrow.csv

    sink = arrow().BufferOutputStream()
    pyarrow.csv.write_csv(_output_table(columns), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def parquet_of(columns: Mapping[str, Sequence[Any]]) -> bytes:
    import pyarrow.parquet as pq

    sink = arrow().BufferOutputStream()
    pq.write_table(_output_table(columns), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content

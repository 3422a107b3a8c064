"""History as Parquet files: what stands in them, how they are written, read and merged.

Every file is sorted by gpu, node and time (events by time), in row groups of few Gpus, so that one
Gpu's hour or one moment of the fleet touches little of it.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpudeck.wire import GPU_STATES, Task

from .columns import (
    MASKS,
    NO_MEAN,
    SLOW_KEYS,
    STORED,
    in_runs,
    missing_at,
    missing_words,
    slow_words,
)
from .grid import rounded
from .head import Rows
from .manifest import SCHEMA_VERSION, Segment, digest, sync_folder
from .rollup import Rollup
from .tally import TASK_SUMS, TASK_TOPS, Held
from .usage import USAGE_SUMS, Usage

if TYPE_CHECKING:
    import pandas as pd

    from .feed import SlowRows

Table = Any  # of pyarrow, which has no types

RAW_GROUP_GPUS = 128
GROUP_GPUS = 512
LEVEL = 3
MINUTE_S, HOUR_S = 60, 3_600

TASK_WORDS = ("task", "user", "job", "launch", "manager", "container", "pod", "namespace",
              "slurm_job", "unit")
UNKNOWN = Task("", 1, 0, None, None, None)  # used a Gpu before it was described


@dataclass(frozen=True, slots=True)
class Layout:
    """One kind of file."""

    spans: tuple[int, ...]  # of how long a stretch one file is the whole, before and after merging
    keys: tuple[str, ...]  # what rows are sorted by
    merge: str = "none"  # what becomes of rows with the same keys


LAYOUTS: dict[str, Layout] = {
    "raw": Layout((300, 3_600), ("gpu", "node", "t")),
    "minutes": Layout((300, 3_600, 86_400), ("gpu", "node", "t"), "rollup"),
    "hours": Layout((300, 3_600, 86_400, 30 * 86_400), ("gpu", "node", "t"), "rollup"),
    "slow": Layout((300, 3_600, 86_400), ("gpu", "node", "t")),
    "tasks": Layout((300, 3_600, 86_400), ("gpu", "node", "t", "task"), "tasks"),
    "usage": Layout((300, 3_600, 86_400, 30 * 86_400), ("gpu", "node", "t", "user"), "usage"),
    "events": Layout((300, 3_600, 86_400), ("t",)),
}


@dataclass(slots=True)
class Names:
    """Of each slot."""

    gpus: list[str]
    nodes: list[str]

    def order(self) -> npt.NDArray[np.intp]:
        """Slots as files are sorted."""
        pairs = list(zip(self.gpus, self.nodes, strict=True))
        return np.array(sorted(range(len(pairs)), key=pairs.__getitem__), np.intp)


def arrow() -> Any:
    """Imported with the first file, not with the hub: it takes a fifth of a second."""
    import pyarrow

    found: Any = pyarrow
    found.set_cpu_count(1)
    found.set_io_thread_count(1)
    return found


def schema(kind: str) -> Any:
    pa = arrow()
    word = pa.dictionary(pa.int32(), pa.string())
    kinds: dict[str, Callable[[], list[tuple[str, Any]]]] = {
        "raw": lambda: [("gpu", word), ("node", word), ("t", pa.int64()), ("state", word),
                        *((column.key, _type(column.kind, column.dtype)) for column in STORED),
                        ("missing", word)],
        "minutes": lambda: _rollup_fields(word),
        "hours": lambda: _rollup_fields(word),
        "slow": lambda: [("gpu", word), ("node", word), ("t", pa.int64()),
                         *((key, pa.float64()) for key in SLOW_KEYS), ("missing", word)],
        "tasks": lambda: [("gpu", word), ("node", word), ("t", pa.int64()),
                          *((name, word) for name in TASK_WORDS),
                          *((name, pa.float64()) for name in (*TASK_SUMS, *TASK_TOPS))],
        "usage": lambda: [("gpu", word), ("node", word), ("t", pa.int64()), ("user", word),
                          *((name, pa.float64()) for name in USAGE_SUMS)],
        "events": lambda: [("t", pa.float64()), ("node", word), ("kind", word), ("gpu", word),
                           ("task", word), ("text", pa.string()), ("numbers", pa.string()),
                           ("stream", word), ("seq", pa.int64())],
    }
    says = json.dumps({"version": SCHEMA_VERSION, "kind": kind})
    return pa.schema(kinds[kind](), metadata={"gpudeck": says})


def _type(kind: str, dtype: Any) -> Any:
    pa = arrow()
    if kind != "int":
        return pa.float32()
    return pa.int64() if dtype is np.int64 else pa.int32()


def _rollup_fields(word: Any) -> list[tuple[str, Any]]:
    pa = arrow()
    fields = [("gpu", word), ("node", word), ("t", pa.int64()), ("seconds", pa.int32())]
    for column in STORED:
        ends = _type(column.kind, column.dtype)
        fields += [(f"{column.key}_min", ends), (f"{column.key}_mean", pa.float32()),
                   (f"{column.key}_max", ends), (f"{column.key}_n", pa.int32())]
    return fields


def _words(indices: npt.NDArray[Any], words: Sequence[str | None]) -> Any:
    pa = arrow()
    there = [word for word in words if word is not None]
    if len(there) == len(words):
        return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)),
                                              pa.array(there, pa.string()))
    places = np.cumsum([word is not None for word in words]) - 1
    absent = np.array([word is None for word in words])[indices]
    return pa.DictionaryArray.from_arrays(
        pa.array(places[indices].astype(np.int32), mask=absent), pa.array(there, pa.string()))


def words_of(values: Sequence[str | None]) -> Any:
    pa = arrow()
    return pa.array(values, pa.string()).dictionary_encode()


def _slot_words(slot: npt.NDArray[np.intp], names: Sequence[str]) -> Any:
    """A word that several slots share is there once: else the writer spells all of them out."""
    used, indices = in_runs(slot)
    found: dict[str, int] = {}
    at = np.array([found.setdefault(names[one], len(found)) for one in used.tolist()], np.intp)
    return _words(at[indices] if len(at) else indices, list(found))


def raw_table(rows: Rows, names: Names) -> Table:
    pa = arrow()
    codes, at = in_runs(rows.missing)
    columns = [_slot_words(rows.slot, names.gpus), _slot_words(rows.slot, names.nodes),
               pa.array(rows.t), _words(rows.state - 1, GPU_STATES)]
    for number, column in enumerate(STORED):
        of_code = missing_at(codes, number) != 0
        mask = of_code[at] if of_code.any() else None
        kind = _type(column.kind, column.dtype)
        values = column.values(rows.units[number]).astype(kind.to_pandas_dtype(), copy=False)
        columns.append(pa.array(values, kind, mask=mask))
    columns.append(_words(at, [missing_words(code) or None for code in codes.tolist()]))
    return pa.Table.from_arrays(columns, schema=schema("raw"))


def rollup_table(kind: str, made: Rollup, names: Names) -> Table:
    pa = arrow()
    columns = [_slot_words(made.slot, names.gpus), _slot_words(made.slot, names.nodes),
               pa.array(made.t), pa.array(made.seconds, pa.int32())]
    for at, column in enumerate(STORED):
        none = made.n[at] == 0
        ends = _type(column.kind, column.dtype)
        mean = rounded(made.total[at] / np.maximum(made.n[at], 1), column.key, column.step)
        no_mean = none | (column.key in NO_MEAN)
        for values in (made.low[at], None, made.high[at]):
            if values is None:
                columns.append(pa.array(mean.astype(np.float32), mask=no_mean))
                continue
            values = np.where(none, 0.0, values)
            columns.append(pa.array(values.astype(np.int64) if column.kind == "int" else values,
                                    mask=none).cast(ends))
        columns.append(pa.array(made.n[at], pa.int32()))
    return pa.Table.from_arrays(columns, schema=schema(kind))


def tasks_table(held: Held, names: Names) -> Table:
    pa = arrow()
    tasks = [UNKNOWN if task is None else task for task in held.tasks]
    lane = pa.array(held.lane)

    def words(of: Sequence[str | None]) -> Any:
        return words_of(of).take(lane)

    columns = {"gpu": _slot_words(held.slot, names.gpus),
               "node": _slot_words(held.slot, names.nodes),
               "t": pa.array(held.t), "task": words(held.ids)}
    for name in TASK_WORDS[1:]:
        columns[name] = words(list(map(attrgetter("job_id" if name == "job" else name), tasks)))
    for name, values in held.numbers.items():
        columns[name] = pa.array(values, mask=np.isnan(values))
    shape = schema("tasks")
    return pa.Table.from_arrays([columns[field.name] for field in shape], schema=shape)


def usage_table(usage: Usage, names: Names) -> Table:
    pa = arrow()
    columns = [_slot_words(usage.slot, names.gpus), _slot_words(usage.slot, names.nodes),
               pa.array(usage.t), words_of(usage.users).take(pa.array(usage.user)),
               *(pa.array(usage.numbers[name]) for name in USAGE_SUMS)]
    return pa.Table.from_arrays(columns, schema=schema("usage"))


def table_of(kind: str, columns: Mapping[str, Sequence[Any]]) -> Table:
    pa = arrow()
    shape = schema(kind)
    arrays = [words_of(columns[field.name]) if pa.types.is_dictionary(field.type)
              else pa.array(columns[field.name], field.type) for field in shape]
    return pa.Table.from_arrays(arrays, schema=shape)


def slow_table(parts: Sequence["SlowRows"], names: Names) -> Table:
    pa = arrow()
    slot = np.concatenate([part.slot for part in parts])
    t = np.concatenate([np.full(len(part.slot), part.t, np.int64) for part in parts])
    values = np.concatenate([part.values for part in parts])
    absent = np.concatenate([part.absent for part in parts])
    rank = np.argsort(names.order())
    by = np.lexsort((t, rank[slot]))
    codes, at = np.unique(absent[by], axis=0, return_inverse=True)
    columns = [_slot_words(slot[by], names.gpus), _slot_words(slot[by], names.nodes),
               pa.array(t[by])]
    columns += [pa.array(values[by, number], mask=absent[by, number] != 0)
                for number in range(len(SLOW_KEYS))]
    columns.append(_words(at.reshape(-1), [slow_words(code) or None for code in codes]))
    return pa.Table.from_arrays(columns, schema=schema("slow"))


def with_words(table: Table) -> Table:
    """Words as words, not as numbers into a dictionary."""
    pa = arrow()
    return table.cast(pa.schema([
        pa.field(field.name, pa.string()) if pa.types.is_dictionary(field.type) else field
        for field in table.schema]))


def plain_frame(table: Table) -> "pd.DataFrame":
    found: pd.DataFrame = with_words(table).to_pandas()
    return found


def is_sorted_by_gpu(kind: str) -> bool:
    return LAYOUTS[kind].keys[0] == "gpu"


def sorted_table(kind: str, table: Table) -> Table:
    """Dictionaries are not sorted by their words, so that words stand in for them."""
    pa = arrow()
    keys = pa.Table.from_arrays(
        [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
         for column in (table.column(key) for key in LAYOUTS[kind].keys)],
        names=list(LAYOUTS[kind].keys))
    import pyarrow.compute as pc

    order = pc.sort_indices(keys, [(key, "ascending") for key in LAYOUTS[kind].keys])
    return table.unify_dictionaries().take(order)


# -- files


def _options(kind: str) -> dict[str, Any]:
    """Measured: what returns among a hundred Gpus within five minutes (watts, degrees, clocks)
    packs best as a dictionary, a quarter smaller than as differences; what only grows, as those."""
    pa = arrow()
    dictionary, encodings = [], {}
    for field in schema(kind):
        returns = kind == "raw" and field.name not in ("t", "energy_j")
        if (pa.types.is_dictionary(field.type) or field.name in MASKS or kind == "slow" or returns):
            dictionary.append(field.name)
        elif pa.types.is_integer(field.type):
            encodings[field.name] = "DELTA_BINARY_PACKED"
        elif pa.types.is_floating(field.type):
            encodings[field.name] = "BYTE_STREAM_SPLIT"
    if kind == "slow":
        encodings = {"t": "DELTA_BINARY_PACKED"}
        dictionary.remove("t")
    return {"compression": "zstd", "compression_level": LEVEL, "use_dictionary": dictionary,
            "column_encoding": encodings, "write_statistics": ["gpu", "t"]}


def write(folder: Path, kind: str, stretch: tuple[int, int, int],
          made: tuple[int, float], tables: Iterator[Table]) -> Segment | None:
    """Whole, named and on disk when it returns; None: there was nothing to write. `stretch`:
    start, end and span; `made`: by which line of the manifest, and when."""
    import pyarrow.parquet as pq

    (start, end, span_s), (number, made_at) = stretch, made
    name = f"{kind}/{kind}-{start}-{span_s or 'late'}-{number}.parquet"
    path = folder / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    draft = path.with_suffix(".new")
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
        _sync(draft)
        found = Segment(name, kind, start, end, span_s, rows, draft.stat().st_size, digest(draft),
                        made_at, SCHEMA_VERSION)
        draft.replace(path)
        sync_folder(path.parent)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return found


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- what is given out


def _given(columns: Mapping[str, Sequence[Any]]) -> Table:
    """NaN is not a number: a hole is empty."""
    pa = arrow()
    return pa.table({name: pa.array(values, from_pandas=True)
                     for name, values in columns.items()})


def csv_of(columns: Mapping[str, Sequence[Any]]) -> bytes:
    import pyarrow.csv

    sink = arrow().BufferOutputStream()
    pyarrow.csv.write_csv(_given(columns), sink)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def parquet_of(columns: Mapping[str, Sequence[Any]]) -> bytes:
    import pyarrow.parquet as pq

    sink = arrow().BufferOutputStream()
    pq.write_table(_given(columns), sink, compression="zstd")
    found: bytes = sink.getvalue().to_pybytes()
    return found

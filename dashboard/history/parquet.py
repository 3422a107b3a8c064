"""History as Parquet files: what stands in them, how they are written, read and merged.

Every file is sorted by gpu, node and time (events by time), in row groups of few Gpus, so that one
Gpu's hour or one moment of the fleet touches little of it.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpudeck.wire import GPU_STATES

from .columns import KEYS, MASKS, NO_MEAN, SLOW_KEYS, STORED, missing_at, missing_words, slow_words
from .head import BLOCK_S, Rows
from .manifest import SCHEMA_VERSION, Segment, digest, sync_folder
from .rollup import Rollup, coarser

if TYPE_CHECKING:
    from .feed import SlowRows

Table = Any  # of pyarrow, which has no types

RAW_GROUP_GPUS = 256
GROUP_GPUS = 512
LEVEL = 3
MINUTE_S, HOUR_S = 60, 3_600

TASK_WORDS = ("task", "user", "job", "launch", "manager", "container", "pod", "namespace",
              "slurm_job", "unit")
TASK_SUMS = ("seconds", "mem_byte_s", "mem_s", "sm_pct_s", "sm_s")
TASK_TOPS = ("mem_max_bytes", "sm_max_pct")
USAGE_SUMS = ("gpu_s", "util_pct_s", "util_s", "idle_s", "mem_byte_s", "mem_s", "energy_j",
              "energy_s")


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


def _arrow() -> Any:
    """Imported with the first file, not with the hub: it takes a fifth of a second."""
    import pyarrow

    found: Any = pyarrow
    found.set_cpu_count(1)
    found.set_io_thread_count(1)
    return found


def schema(kind: str) -> Any:
    pa = _arrow()
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
    pa = _arrow()
    if kind != "int":
        return pa.float32()
    return pa.int64() if dtype is np.int64 else pa.int32()


def _rollup_fields(word: Any) -> list[tuple[str, Any]]:
    pa = _arrow()
    fields = [("gpu", word), ("node", word), ("t", pa.int64()), ("seconds", pa.int32())]
    for column in STORED:
        ends = _type(column.kind, column.dtype)
        fields += [(f"{column.key}_min", ends), (f"{column.key}_mean", pa.float32()),
                   (f"{column.key}_max", ends), (f"{column.key}_n", pa.int32())]
    return fields


def _words(indices: npt.NDArray[Any], words: Sequence[str | None]) -> Any:
    pa = _arrow()
    there = [word for word in words if word is not None]
    if len(there) == len(words):
        return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)),
                                              pa.array(there, pa.string()))
    places = np.cumsum([word is not None for word in words]) - 1
    absent = np.array([word is None for word in words])[indices]
    return pa.DictionaryArray.from_arrays(
        pa.array(places[indices].astype(np.int32), mask=absent), pa.array(there, pa.string()))


def words_of(values: Sequence[str | None]) -> Any:
    pa = _arrow()
    return pa.array(values, pa.string()).dictionary_encode()


def _slot_words(slot: npt.NDArray[np.intp], names: Sequence[str]) -> Any:
    used, indices = np.unique(slot, return_inverse=True)
    return _words(indices, [names[at] for at in used.tolist()])


def raw_table(rows: Rows, names: Names) -> Table:
    pa = _arrow()
    codes, at = np.unique(rows.missing, return_inverse=True)
    columns = [_slot_words(rows.slot, names.gpus), _slot_words(rows.slot, names.nodes),
               pa.array(rows.t), _words(rows.state - 1, GPU_STATES)]
    is_whole = len(codes) == 1 and codes[0] == 0
    for number, column in enumerate(STORED):
        mask = None if is_whole else missing_at(rows.missing, number) != 0
        values = column.values(rows.units[number])
        columns.append(pa.array(values, _type(column.kind, column.dtype), mask=mask))
    columns.append(_words(at, [missing_words(code) or None for code in codes.tolist()]))
    return pa.Table.from_arrays(columns, schema=schema("raw"))


def rollup_table(kind: str, made: Rollup, names: Names) -> Table:
    pa = _arrow()
    columns = [_slot_words(made.slot, names.gpus), _slot_words(made.slot, names.nodes),
               pa.array(made.t), pa.array(made.seconds, pa.int32())]
    for at, column in enumerate(STORED):
        none = made.n[at] == 0
        ends = _type(column.kind, column.dtype)
        mean = _rounded(made.total[at] / np.maximum(made.n[at], 1), column.key, column.step)
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


def _rounded(mean: npt.NDArray[np.float64], key: str, step: float) -> npt.NDArray[np.float64]:
    """To an eighth of a step; of bytes, to a mebibyte: more would be noise that does not pack."""
    part = 2.0**20 if key == "mem_used_bytes" else step / 8
    return np.rint(mean / part) * part


def table_of(kind: str, columns: Mapping[str, Sequence[Any]]) -> Table:
    pa = _arrow()
    shape = schema(kind)
    arrays = [words_of(columns[field.name]) if pa.types.is_dictionary(field.type)
              else pa.array(columns[field.name], field.type) for field in shape]
    return pa.Table.from_arrays(arrays, schema=shape)


def slow_table(parts: Sequence["SlowRows"], names: Names) -> Table:
    pa = _arrow()
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


def is_sorted_by_gpu(kind: str) -> bool:
    return LAYOUTS[kind].keys[0] == "gpu"


def sorted_table(kind: str, table: Table) -> Table:
    """Dictionaries are not sorted by their words, so that words stand in for them."""
    pa = _arrow()
    keys = pa.Table.from_arrays(
        [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
         for column in (table.column(key) for key in LAYOUTS[kind].keys)],
        names=list(LAYOUTS[kind].keys))
    import pyarrow.compute as pc

    order = pc.sort_indices(keys, [(key, "ascending") for key in LAYOUTS[kind].keys])
    return table.unify_dictionaries().take(order)


# -- files


def _options(kind: str) -> dict[str, Any]:
    """Measured: delta encodings save 40 % over the defaults, and cost no CPU."""
    pa = _arrow()
    dictionary, encodings = [], {}
    for field in schema(kind):
        if pa.types.is_dictionary(field.type) or field.name in MASKS or kind == "slow":
            dictionary.append(field.name)
        elif pa.types.is_integer(field.type):
            encodings[field.name] = "DELTA_BINARY_PACKED"
        elif kind == "raw" and field.name.endswith("_pct"):
            dictionary.append(field.name)
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
                        made_at)
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


class Source:
    """A file that is being merged, row group by row group."""

    def __init__(self, path: Path, kind: str) -> None:
        import pyarrow.parquet as pq

        self.file = pq.ParquetFile(path)
        self.shape = schema(kind)
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
        found: set[str] = set()
        for at in range(self.file.num_row_groups):
            column = self.file.read_row_group(at, columns=["gpu"]).column(0)
            found.update(column.unique().to_pylist())
        return found

    def table(self, low: str, high: str, t0: int, t1: int) -> Table | None:
        """The rows of these Gpus, both included, from t0 until before t1."""
        pa = _arrow()
        import pyarrow.compute as pc

        groups = sorted(self._groups("gpu", low, high) & self._groups("t", t0, t1 - 1))
        if not groups:
            return None
        table = migrated(self.file.read_row_groups(groups), self.shape)
        if all(self._is_within(at, "gpu", low, high) and self._is_within(at, "t", t0, t1 - 1)
               for at in groups):
            return table
        gpu, t = table.column("gpu").cast(pa.string()), table.column("t")
        return table.filter(pc.and_(
            pc.and_(pc.greater_equal(gpu, low), pc.less_equal(gpu, high)),
            pc.and_(pc.greater_equal(t, t0), pc.less(t, t1))))

    def whole(self) -> Table:
        return migrated(self.file.read(), self.shape)


# Step n makes a table of version n into one of version n + 1. What was written once is read for
# ever: a new metric is a column of nulls in what is older, which needs no step.
MIGRATIONS: dict[int, Callable[[Table], Table]] = {}


def migrated(table: Table, shape: Any) -> Table:
    pa = _arrow()
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
    sources = [Source(path, kind) for path in paths]
    pa = _arrow()
    if not is_sorted_by_gpu(kind):
        yield sorted_table(kind, pa.concat_tables([one.whole() for one in sources]))
        return
    gpus = sorted(set().union(*(one.gpus() for one in sources)))
    many, window_s = (RAW_GROUP_GPUS, BLOCK_S) if kind == "raw" else (GROUP_GPUS, end - start)
    for t0 in range(start, end, window_s):
        for at in range(0, len(gpus), many):
            part = gpus[at : at + many]
            found = [table for one in sources
                     if (table := one.table(part[0], part[-1], t0, t0 + window_s)) is not None]
            if len(found) == 1:
                yield combined(kind, found[0])  # it is sorted
            elif found:
                yield combined(kind, sorted_table(kind, pa.concat_tables(found)))


def combined(kind: str, table: Table) -> Table:
    """Of a sorted table, rows with the same keys made one."""
    how = LAYOUTS[kind].merge
    if how == "none" or table.num_rows == 0:
        return table
    if how == "rollup":
        made, names = rollup_of(table)
        bucket_s = MINUTE_S if kind == "minutes" else HOUR_S
        return rollup_table(kind, coarser(made, bucket_s), names)
    sums = TASK_SUMS if how == "tasks" else USAGE_SUMS
    tops = TASK_TOPS if how == "tasks" else ()
    keys = [*LAYOUTS[kind].keys]
    firsts = [name for name in TASK_WORDS if name not in keys] if how == "tasks" else []
    pairs = ([(name, "sum") for name in sums] + [(name, "max") for name in tops]
             + [(name, "first") for name in firsts])
    pa = _arrow()
    plain = pa.Table.from_arrays(
        [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
         for column in table.columns], names=table.column_names)
    found = plain.group_by(keys, use_threads=False).aggregate(pairs)
    arrays = [found.column(field.name if field.name in keys else next(
        f"{name}_{verb}" for name, verb in pairs if name == field.name)).cast(field.type)
        for field in schema(kind)]
    return pa.Table.from_arrays(arrays, schema=schema(kind))


def rollup_of(table: Table) -> tuple[Rollup, Names]:
    """A table of roll-ups as arrays; its slots are numbers of its own."""
    gpus, nodes = (_encoded(table.column(name)) for name in ("gpu", "node"))
    pairs = gpus[0].astype(np.int64) * len(nodes[1]) + nodes[0]
    used, slot = np.unique(pairs, return_inverse=True)
    names = Names([gpus[1][pair // len(nodes[1])] for pair in used.tolist()],
                  [nodes[1][pair % len(nodes[1])] for pair in used.tolist()])
    made = Rollup(slot, _ints(table, "t"), _ints(table, "seconds"), [], [], [], [])
    for key in KEYS:
        n = _ints(table, f"{key}_n")
        made.low.append(_floats(table, f"{key}_min"))
        made.high.append(_floats(table, f"{key}_max"))
        made.total.append(_floats(table, f"{key}_mean") * n)
        made.n.append(n)
    return made, names


def _encoded(column: Any) -> tuple[npt.NDArray[np.int32], list[str]]:
    one = column.unify_dictionaries().combine_chunks()
    return one.indices.to_numpy(), one.dictionary.to_pylist()


def _floats(table: Table, name: str) -> npt.NDArray[np.float64]:
    found: npt.NDArray[np.float64] = table.column(name).to_numpy().astype(np.float64)
    return np.nan_to_num(found)


def _ints(table: Table, name: str) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = table.column(name).to_numpy().astype(np.int64)
    return found


# -- what a file knows of


def seen_seconds(path: Path, t0: int, t1: int) -> tuple[list[str], list[str],
                                                      npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    """Gpus, nodes, and per row a number of each pair and the second."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["gpu", "node", "t"], read_dictionary=["gpu", "node"])
    table = table.filter(pc.and_(pc.greater_equal(table["t"], t0), pc.less(table["t"], t1)))
    if table.num_rows == 0:
        return [], [], np.zeros(0, np.intp), np.zeros(0, np.int64)
    gpus, nodes = (_encoded(table.column(name)) for name in ("gpu", "node"))
    pairs = gpus[0].astype(np.int64) * len(nodes[1]) + nodes[0]
    used, at = np.unique(pairs, return_inverse=True)
    return ([gpus[1][pair // len(nodes[1])] for pair in used.tolist()],
            [nodes[1][pair % len(nodes[1])] for pair in used.tolist()], at, _ints(table, "t"))


def event_keys(path: Path) -> set[tuple[str, str, int]]:
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["node", "stream", "seq"])
    return set(zip(*(column.to_pylist() for column in table.columns), strict=True))

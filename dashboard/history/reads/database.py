"""DuckDB over the files of history, and parts of its SQL."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpudeck.measures.metrics import IDLE_AT_MOST_PCT
from gpudeck.measures.waste import LOADS

from ..files.file_set import HistoryFilesSnapshot
from ..files.parquet import LAYOUTS, schema, with_words
from .protocol import Nodes

if TYPE_CHECKING:
    import pandas as pd

MEMORY = "400MB"


class HistoryDatabase:
    def __init__(self) -> None:
        self._db: Any = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close it: otherwise DuckDB's binding tells stderr what it was left with."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def ask(self, files: HistoryFilesSnapshot, kind: str, first: int, last: int, sql: str
            ) -> "pd.DataFrame | None":
        """Query files. `{files}` in it are those of this kind and time; None: there are none."""
        paths = files.find(kind, first, last)
        if not paths:
            return None
        with self._connected() as db:
            frame: pd.DataFrame = db.execute(sql.replace("{files}", source(kind, paths))).df()
        # Whole numbers with holes come as a type of their own, with which numpy cannot count.
        odd = [name for name, dtype in frame.dtypes.items()
               if not isinstance(dtype, np.dtype) and dtype.kind in "iuf"]
        return frame.astype(dict.fromkeys(odd, "float64")) if odd else frame

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with self._lock:
            if self._db is None:
                self._db = _database()
            cursor = self._db.cursor()
        try:
            yield cursor
        finally:
            cursor.close()


def _database() -> Any:
    """Import DuckDB with the first query, not with the hub."""
    import duckdb

    db = duckdb.connect(":memory:", config={
        "threads": 2, "memory_limit": MEMORY, "autoinstall_known_extensions": False,
        "autoload_known_extensions": False, "preserve_insertion_order": False})
    db.execute("set parquet_metadata_cache = true")  # a file never changes under its name
    for kind in LAYOUTS:
        db.register("shape", with_words(schema(kind).empty_table()))
        db.execute(f"create table {kind}_now as select * from shape")
        db.unregister("shape")
    return db


def text(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


def texts(words: Sequence[str]) -> str:
    return ", ".join(map(text, words)) or "null"


def source(kind: str, paths: Sequence[Path]) -> str:
    """Select from files. Older ones lack a newer metric: the empty table has all there are now."""
    return (f"(select * from read_parquet([{texts([str(path) for path in paths])}], "
            f"union_by_name = true) union all by name select * from {kind}_now)")


def on(nodes: Nodes) -> str:
    return "" if nodes is None else f" and node in ({texts(sorted(nodes))})"


def sums_of(metric: str) -> str:
    """`metric`: a slow one."""
    return (f"min({metric}) as {metric}_min, max({metric}) as {metric}_max, "
            f"sum({metric}) as {metric}_sum, count({metric}) as {metric}_n")


def held_sql(minutes: str, where: str, user: str) -> str:
    """Return the SQL of what one owner held, by the minute; hours of it are in `usage` already.
    `{files}`: those of tasks; `minutes`: those of minutes. Only the owner's GPUs are read, with all
    who were on them, because energy is shared among those."""
    return f"""
    with theirs as (
      select distinct gpu from {{files}} where {where} and "user" = {user}),
    each_task as (
      select gpu, node, t, "user", task, sum(seconds) as s, sum(mem_byte_s) as m, sum(mem_s) as ms,
        max(mem_max_bytes) as top_m
      from {{files}} where {where} and gpu in (select gpu from theirs) group by all),
    owners as (
      select gpu, node, t, "user", max(s) as s, sum(m) as m, max(ms) as ms,
        sum(top_m) as top_m
      from each_task group by all),
    shared as (
      select *, count(*) over (partition by gpu, node, t) as sharing from owners),
    did as (
      select gpu, node, t,
        sum(util_pct_mean * util_pct_n) / nullif(sum(util_pct_n), 0) as util,
        sum(sm_active_pct_mean * sm_active_pct_n) / nullif(sum(sm_active_pct_n), 0) as sm,
        coalesce({", ".join(f"max({load}_max)" for load in LOADS)}) as top,
        sum(power_w_mean * power_w_n) / nullif(sum(power_w_n), 0) as power
      from {minutes} where {where} and gpu in (select gpu from theirs) group by all),
    held as (
      select o.t, o."user", s, m, ms, top_m, sharing, util, sm, top, power
      from shared o left join did using (gpu, node, t) where o."user" = {user})
    select t, "user", sum(s) as gpu_s,
      coalesce(sum(util * s), 0) as util_pct_s,
      coalesce(sum(s) filter (util is not null), 0) as util_s,
      coalesce(sum(sm * s), 0) as sm_pct_s, coalesce(sum(s) filter (sm is not null), 0) as sm_s,
      coalesce(sum(s) filter (top is not null), 0) as load_s,
      coalesce(sum(s) filter (top <= {IDLE_AT_MOST_PCT}), 0) as idle_s,
      sum(m) as mem_byte_s, sum(ms) as mem_s, sum(ms) as mem_own_s, max(top_m) as mem_max_bytes,
      coalesce(sum(power * s / sharing), 0) as energy_j,
      coalesce(sum(s) filter (power is not null), 0) as energy_s
    from held group by all"""


def hours_sql(where: str) -> str:
    """Return the SQL of each GPU's first and last hour, and its seconds in all and in these two."""
    return f"""
    with hours as (select gpu, t, sum(seconds) as s from {{files}} where {where} group by all)
    select gpu, min(t) as first, max(t) as last, sum(s)::double as seconds,
      arg_min(s, t)::double as first_s, arg_max(s, t)::double as last_s
    from hours group by gpu"""

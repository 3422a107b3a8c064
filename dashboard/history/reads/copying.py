"""Reading every second of history once, to copy it elsewhere. In native threads."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ..columns.arrow_columns import Table, arrow
from ..columns.layout import KEYS
from ..columns.memory import together
from ..files.parquet import NAMES, raw_table, read_table, schema, sorted_table, write_table
from ..files.reading import migrated, tables_in, within
from ..files.store import HistoryStore
from .memory_reads import MemoryReader

COLUMNS = (*NAMES, "t", *KEYS)


class HistoryCopyReader:
    def __init__(self, store: HistoryStore) -> None:
        self._store = store
        self._memory = MemoryReader(store.feed)

    def begin(self, until: int) -> None:
        """Begin a copy: what comes from now on for seconds before `until` is late."""
        with self._store.lock:
            self._store.feed.late.mark_copied(until)

    def begins(self) -> int:
        """Return the first second that has not been given up."""
        return self._store.manifest.forgotten.get("raw", 0)

    def seconds(self, t0: int, t1: int) -> Table:
        """Return seconds by GPU, Node and time. What comes for them from now on is late."""
        with self._store.reading(lambda: self._copy(t0, t1)) as (files, in_memory):
            return _sorted([in_memory(), *(
                within(part, (t0, t1)) for path in files.find("raw", t0, t1)
                for part in tables_in(path, COLUMNS, (t0, t1)))])

    def _copy(self, t0: int, t1: int) -> Callable[[], Table]:
        self._store.feed.late.mark_copied(t1)
        return self._memory.table("raw", (t0, t1), KEYS)

    def keep_late(self, path: Path) -> bool:
        """Write what came late since the last time; return whether there was any."""
        with self._store.lock:
            parts = self._store.feed.late.drain()
        if parts:
            write_table(path, raw_table(together(parts), self._store.feed.names))
        return bool(parts)

    @property
    def late_dropped(self) -> int:
        return self._store.feed.late.dropped


def late_rows(path: Path) -> Table:
    return _sorted([read_table(path)])


def _sorted(tables: Sequence[Table]) -> Table:
    pa = arrow()
    shape = schema("raw")
    shape = pa.schema([shape.field(name) for name in COLUMNS], shape.metadata)
    return sorted_table("raw", pa.concat_tables([migrated(table, shape) for table in tables]))

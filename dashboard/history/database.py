"""DuckDB over the files of history."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .files import HistoryFilesSnapshot
from .parquet import HOUR_S, LAYOUTS, schema, with_words
from .sql import source

if TYPE_CHECKING:
    import pandas as pd

MEMORY = "400MB"


class HistoryDatabase:
    def __init__(self) -> None:
        self._db: Any = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Else DuckDB's binding tells stderr what it was left with."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def ask(self, files: HistoryFilesSnapshot, kind: str, first: int, last: int, sql: str
            ) -> "pd.DataFrame | None":
        """`{files}` in it are those of this kind and time; None: there are none."""
        paths = found_in(files, kind, first, last)
        if not paths:
            return None
        with self._connected() as db:
            found: pd.DataFrame = db.execute(sql.replace("{files}", source(kind, paths))).df()
        # Whole numbers with holes come as a type of their own, with which numpy cannot count.
        odd = [name for name, dtype in found.dtypes.items()
               if not isinstance(dtype, np.dtype) and dtype.kind in "iuf"]
        return found.astype(dict.fromkeys(odd, "float64")) if odd else found

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
    """Imported with the first question, not with the hub."""
    import duckdb

    made = duckdb.connect(":memory:", config={
        "threads": 2, "memory_limit": MEMORY, "autoinstall_known_extensions": False,
        "autoload_known_extensions": False, "preserve_insertion_order": False})
    made.execute("set parquet_metadata_cache = true")  # a file never changes under its name
    for kind in LAYOUTS:
        made.register("shape", with_words(schema(kind).empty_table()))
        made.execute(f"create table {kind}_now as select * from shape")
        made.unregister("shape")
    return made


def found_in(files: HistoryFilesSnapshot, kind: str, first: int, last: int) -> list[Path]:
    if kind in ("hours", "usage"):  # rows of an hour lie in files of its parts
        first, last = first - first % HOUR_S, -(-last // HOUR_S) * HOUR_S
    return files.find(kind, first, last)

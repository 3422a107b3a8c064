"""Room of rows, compared with what SQLite takes for them."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dashboard.runtime.row_room import room_of

ROWS = 400


@pytest.mark.parametrize("size", [100, 300, 700, 850, 900, 1_500, 5_000, 16_000])
def test_a_row_takes_about_as_much(tmp_path: Path, size: int) -> None:
    with closing(sqlite3.connect(tmp_path / "rows.db", isolation_level=None)) as db:
        db.execute("create table rows (id text, node text, at real, body blob, "
                   "primary key (id, node)) without rowid")
        db.execute("create index by_time on rows (at)")
        for _ in range(ROWS):
            db.execute("insert into rows values (?, ?, ?, ?)", (
                random.randbytes(8).hex(), "n" * 32, random.random(), bytes(size)))
        [pages] = db.execute("pragma page_count").fetchone()
    assert 0.7 < 4_096 * pages / (ROWS * room_of(bytes(size), "n" * 48)) < 1.2

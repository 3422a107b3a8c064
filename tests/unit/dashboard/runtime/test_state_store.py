"""What every StateStore does, whatever engine lies under it."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard.runtime.sql_transaction import together
from dashboard.runtime.sqlite_state import SqliteStateStore
from dashboard.runtime.state_store import StateStore
from gpudeck.errors import CommandError

Open = Callable[[], StateStore]
STEPS = ("create table one (x integer);", "create table two (x integer);")


def sqlite(folder: Path) -> Open:
    return lambda: SqliteStateStore(folder / "state.db")


@pytest.fixture(name="open_store", params=[sqlite])
def _open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    opened: Open = request.param(tmp_path)
    return opened


def refuse(store: StateStore) -> None:
    store.connection.execute("insert into one values (1)")
    raise CommandError("no")


def rows(store: StateStore, table: str) -> list[int]:
    return [row[0] for row in store.connection.execute(f"select x from {table} order by x")]


def test_each_step_is_taken_once_and_what_was_there_stays(open_store: Open) -> None:
    store = open_store()
    store.migrate(STEPS[:1])
    store.connection.execute("insert into one values (?)", (1,))
    store.close()
    store = open_store()
    store.migrate(STEPS)
    store.migrate(STEPS)
    assert (rows(store, "one"), rows(store, "two")) == ([1], [])
    store.close()


def test_one_of_a_newer_version_is_refused_and_left_alone(open_store: Open) -> None:
    store = open_store()
    store.migrate(STEPS)
    with pytest.raises(CommandError, match="newer gpudeck"):
        store.migrate(STEPS[:1])
    assert rows(store, "two") == []
    store.close()


def test_a_step_that_fails_leaves_all_as_it_was(open_store: Open) -> None:
    store = open_store()
    store.migrate(STEPS[:1])
    with pytest.raises(CommandError, match="cannot use"):
        store.migrate((STEPS[0], "create table two (x integer); create table one (x integer);"))
    store.close()
    store = open_store()
    store.migrate(STEPS)
    assert rows(store, "two") == []
    store.close()


def test_a_transaction_is_whole_or_not_there(open_store: Open) -> None:
    store = open_store()
    store.migrate(STEPS)
    with pytest.raises(CommandError), together(store.connection):
        refuse(store)
    assert rows(store, "one") == []
    with together(store.connection), together(store.connection):
        store.connection.executemany("insert into one values (?)", [(1,), (2,)])
    assert rows(store, "one") == [1, 2]
    store.close()


def test_another_thread_writes_over_a_connection_of_its_own(open_store: Open) -> None:
    store = open_store()
    store.migrate(STEPS)
    before = store.writes_elsewhere()

    def write() -> None:
        with store.another() as db, together(db):
            db.execute("insert into one values (7)")

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert rows(store, "one") == [7]
    assert store.writes_elsewhere() != before
    store.close()

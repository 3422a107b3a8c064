"""Behaviour that every StateStore shares, whatever engine lies under it."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from dashboard.runtime import postgres_hold, postgres_state
from dashboard.runtime.postgres_state import PostgresStateStore
from dashboard.runtime.sql_transaction import together
from dashboard.runtime.sqlite_state import SqliteStateStore
from dashboard.runtime.state_store import StateStore, StateUnavailableError
from gpudeck.errors import CommandError
from tests.postgres import PostgresServer, a_server

Open = Callable[[], StateStore]
STEPS = ("create table one (x integer);", "create table two (x integer);")


@pytest.fixture(name="postgres", scope="module")
def _postgres() -> Iterator[PostgresServer]:
    with a_server() as server:
        yield server


@pytest.fixture(name="open_store", params=["sqlite", "postgres"])
def _open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "sqlite":
        return lambda: SqliteStateStore(tmp_path / "state.db")
    url = request.getfixturevalue("postgres").database()
    return lambda: PostgresStateStore(url, None, is_hub=True)


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


def test_what_is_read_in_a_change_still_holds_at_its_end(open_store: Open) -> None:
    store, rounds = open_store(), 25
    store.migrate(STEPS)
    store.connection.execute("insert into one values (0)")

    def count() -> None:
        with store.another() as db:
            for _ in range(rounds):
                with together(db):
                    [before] = db.execute("select x from one").fetchone()
                    time.sleep(0.002)  # for another thread to read the same
                    db.execute("update one set x = ?", (before + 1,))

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows(store, "one") == [3 * rounds]
    store.close()


def test_within_a_lost_connection_nothing_of_a_change_is_left(postgres: PostgresServer) -> None:
    """The next connection, which knows nothing of its beginning, gets none of the change either."""
    url = postgres.database()
    store = PostgresStateStore(url, None, is_hub=True)
    store.migrate(STEPS)
    db = store.connection
    with pytest.raises(StateUnavailableError):
        change_over_a_lost_connection(store)
    assert not db.in_transaction
    assert rows(store, "one") == []
    store.close()


def change_over_a_lost_connection(store: PostgresStateStore) -> None:
    db = store.connection
    with together(db):
        db.execute("insert into one values (1)")
        with store.another() as other:
            other.execute("select pg_terminate_backend(pid) from pg_stat_activity where "
                          "datname = current_database() and pid <> pg_backend_pid()")
        with pytest.raises(StateUnavailableError):
            db.execute("insert into one values (2)")
        until(lambda: store._steady._session is not None)
        db.execute("insert into one values (3)")


def until(what: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if what():
            return
        time.sleep(0.02)
    raise AssertionError("never")


def test_one_that_hangs_holds_nobody_for_long(postgres: PostgresServer) -> None:
    store = PostgresStateStore(postgres.database(), None, is_hub=True, patience_s=0.5)
    store.migrate(STEPS)
    postgres.signal(signal.SIGSTOP)
    try:
        with pytest.raises(StateUnavailableError, match="did not answer within"):
            store.connection.execute("select 1")
        began = time.monotonic()
        for _ in range(1_000):
            with pytest.raises(StateUnavailableError):
                store.connection.execute("select 1")
        assert time.monotonic() - began < 4.0, "once is enough"
    finally:
        postgres.signal(signal.SIGCONT)
    until(lambda: store._steady._session is not None)
    assert rows(store, "one") == []
    store.close()


def test_a_second_hub_is_turned_away_until_the_first_has_gone(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_state, "TAKE_OVER_S", 0.2)
    url = postgres.database()
    first = PostgresStateStore(url, None, is_hub=True)
    with pytest.raises(CommandError, match="another hub is using this database"):
        PostgresStateStore(url, None, is_hub=True)
    first.close()
    PostgresStateStore(url, None, is_hub=True).close()


class EndedError(Exception):
    """Stand-in for the end of the process."""


def raise_ended(why: str) -> NoReturn:
    raise EndedError(why)


def test_a_hub_whose_place_was_taken_writes_nothing_and_ends(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_state, "end_process", raise_ended)
    monkeypatch.setattr(postgres_hold, "AGAIN_EVERY_S", 60.0)
    url = postgres.database()
    first = PostgresStateStore(url, None, is_hub=True)
    first.migrate(STEPS)
    first.started()
    first.confirm()
    second = taken_over(first, url)
    with pytest.raises(StateUnavailableError, match="has taken over"), first.another() as db, (
            together(db, reads=False)):
        db.execute("insert into one values (1)")
    with first.another() as db:
        db.execute("begin")  # it may still look
        db.execute("rollback")
    first._steady._confirmed_at -= postgres_hold.CONFIRM_AFTER_S  # as after a pause
    with pytest.raises(EndedError, match="has taken over this database"):
        first.confirm()
    assert rows(second, "one") == []
    first.close()
    second.close()


def taken_over(first: PostgresStateStore, url: str) -> PostgresStateStore:
    pid = first.connection.execute("select pg_backend_pid()").fetchone()[0]
    with first.another() as other:
        other.execute("select pg_terminate_backend(?)", (pid,))
    return PostgresStateStore(url, None, is_hub=True)


def test_after_a_pause_without_another_hub_it_goes_on_at_once(postgres: PostgresServer) -> None:
    store = PostgresStateStore(postgres.database(), None, is_hub=True)
    store.migrate(STEPS)
    store.started()
    pid = store.connection.execute("select pg_backend_pid()").fetchone()[0]
    with store.another() as other:
        other.execute("select pg_terminate_backend(?)", (pid,))
    store._steady._confirmed_at -= postgres_hold.CONFIRM_AFTER_S
    until(lambda: confirmed(store))
    store.connection.execute("insert into one values (3)")
    assert rows(store, "one") == [3]
    store.close()


def confirmed(store: PostgresStateStore) -> bool:
    """The server may still be ending the former session."""
    store._steady._confirmed_at -= postgres_hold.CONFIRM_AFTER_S
    store.confirm()
    return store._steady._session is not None

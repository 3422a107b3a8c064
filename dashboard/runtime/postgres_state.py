"""The hub's state in PostgreSQL.

The hub's own thread waits for its statements, as it does for SQLite's: what a service reads,
decides and writes then stays in one piece, and no other request comes between. It waits PATIENCE_S
at most. After that, and whenever the server is away, each statement fails at once, and a native
thread looks for the server until it is there again.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psycopg

from gpudeck.errors import CommandError, ExitCode

from .postgres_hold import (
    FENCE,
    HOLD_TABLE,
    TAKE_OVER_S,
    TERM,
    HubHold,
    SteadySession,
    bound,
    clock,
    end_process,
)
from .postgres_session import PostgresAddress, PostgresSession, words
from .postgres_sql import plain, query, schema, upsert
from .state_store import SqlConnection, SqlRows, StateUnavailableError

PATIENCE_S = 2.0
WRITERS, STEPS = 0x67_70_75_01, 0x67_70_75_03  # advisory locks

T = TypeVar("T")


class _OneSession:
    """The only session of a native thread or a command; it is not opened again."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session

    def current(self) -> PostgresSession:
        if self._session.closed:
            raise StateUnavailableError("the connection to it has ended")
        return self._session

    def drop(self, session: PostgresSession, why: str) -> None:
        session.close()

    def note_answer(self, queried_at: float) -> None:
        pass


class PostgresConnection:
    """A connection like SQLite's: the same SQL, and transactions begun and ended by statements."""

    def __init__(self, sessions: _OneSession | SteadySession, term: int | None) -> None:
        """`term`: of the hub that writes over a session without the lock."""
        self._sessions = sessions
        self._term = term
        self._transaction: PostgresSession | None = None  # a transaction is of one session
        self._shapes: dict[str, tuple[list[str], list[str]]] = {}

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def execute(self, sql: str, values: Any = (), /) -> SqlRows:
        match sql:
            case "begin immediate":
                # As SQLite: a writer is alone, so that what it reads still holds at its end.
                return self._begin(f"begin; select pg_advisory_xact_lock({WRITERS})")
            case "begin deferred":
                return self._begin("begin")
            case "begin":
                return self._begin("begin isolation level repeatable read read only", reads=True)
            case "commit":
                return self._end("commit")
            case "rollback":
                return self._roll_back()
        return self._run(lambda session: session.execute(query(sql), plain(values)))

    def executemany(self, sql: str, values: Iterable[Any], /) -> SqlRows:
        rows = [plain(row) for row in values]

        def run(session: PostgresSession) -> SqlRows:
            cursor = session.cursor()
            cursor.executemany(query(sql), rows)
            return cursor

        return self._run(run)

    def put_rows(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        columns, keys = self._shape(table)
        sql = upsert(table, columns, keys)
        plain_rows = [plain(row) for row in rows]
        self._run(lambda session: session.cursor().executemany(sql, plain_rows))

    def _shape(self, table: str) -> tuple[list[str], list[str]]:
        if table not in self._shapes:
            rows = self._run(lambda session: session.execute(
                "select attname, attnum = any(coalesce((select indkey::int2[] from pg_index where "
                "indrelid = attrelid and indisprimary), '{}')) from pg_attribute where "
                "attrelid = %s::regclass and attnum > 0 and not attisdropped and "
                "attgenerated = '' and attidentity = '' order by attnum", (table,))).fetchall()
            self._shapes[table] = [name for name, _ in rows], [name for name, key in rows if key]
        return self._shapes[table]

    def _begin(self, sql: str, reads: bool = False) -> SqlRows:
        session = self._sessions.current()
        rows = self._run(lambda session: session.execute(sql))
        self._transaction = session
        if self._term is not None and not reads:
            self._check_term(self._term)
        return rows

    def _check_term(self, term: int) -> None:
        row = self._run(lambda session: session.execute(FENCE, (term,))).fetchone()
        if row is None:
            self._roll_back()
            raise StateUnavailableError("another hub has taken over this database")

    def _end(self, sql: str) -> SqlRows:
        try:
            return self._run(lambda session: session.execute(sql))
        finally:
            self._transaction = None

    def _roll_back(self) -> SqlRows:
        """Roll back; a transaction whose session has ended was rolled back by that."""
        session, self._transaction = self._transaction, None
        if session is None or session.closed:
            return _NoRows()
        return self._run(lambda session: session.execute("rollback"))

    def _run(self, work: Callable[[PostgresSession], T]) -> T:
        session, queried_at = self._sessions.current(), clock()
        if self._transaction not in (None, session):
            raise StateUnavailableError("the connection ended within a change")
        try:
            answer = work(session)
        except (psycopg.OperationalError, psycopg.InterfaceError,
                psycopg.errors.ReadOnlySqlTransaction) as error:
            why = words(error)
            if session.closed or isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                self._sessions.drop(session, why)
            raise StateUnavailableError(why) from error
        self._sessions.note_answer(queried_at)
        return answer


class _NoRows:
    rowcount = 0

    def fetchone(self) -> Any:
        return None

    def fetchall(self) -> list[Any]:
        return []

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class PostgresStateStore:
    """`is_hub`: the one hub that uses this database; another one is refused. `hold`: of a hub that
    has waited for it already."""

    def __init__(self, url: str, password: str | None, is_hub: bool,
                 patience_s: float = PATIENCE_S, hold: HubHold | None = None) -> None:
        self.shown = shown(url)
        self._hold: HubHold | None = hold
        self._is_started = threading.Event()
        with self._explained():
            self._address = PostgresAddress(url, password)
            if is_hub and hold is None:
                self._hold = HubHold(self._address, patience_s)
                self._hold.take_or_close(TAKE_OVER_S)
            self._steady = self._steady_session()
        self.connection: SqlConnection = PostgresConnection(self._steady, None)

    def _steady_session(self) -> SteadySession:
        if self._hold is None:
            return SteadySession(self._session(), self._session, end_process)
        steady = SteadySession(self._hold.held_session(), self._hold.take_again, end_process)
        threading.Thread(target=steady.keep_alive, args=(self._is_started,), daemon=True).start()
        return steady

    def _session(self) -> PostgresSession:
        return self._address.session()

    def confirm(self) -> None:
        if self._hold is not None:
            self._steady.confirm()

    @property
    def term(self) -> int | None:
        return None if self._hold is None else self._hold.term

    def check_term(self) -> None:
        if self._hold is None:
            return
        with self.another() as connection:
            row = connection.execute(TERM).fetchone()
        if row is None or row[0] != self._hold.term:
            raise StateUnavailableError("another hub has taken over this database")

    def started(self) -> None:
        self._is_started.set()

    @contextmanager
    def another(self) -> Iterator[PostgresConnection]:
        try:
            session = self._session()
            if self._hold is not None:
                bound(session)
        except psycopg.Error as error:
            raise StateUnavailableError(words(error)) from error
        with session:
            yield PostgresConnection(_OneSession(session),
                                     None if self._hold is None else self._hold.term)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, StateUnavailableError) as error:
            raise CommandError(f"cannot use the state in {self.shown}: {words(error)}",
                               ExitCode.CANNOT_START) from error

    def migrate(self, steps: Sequence[str]) -> None:
        """Apply all missing steps or none: DDL is part of a transaction here. The database is not
        copied first; `pg_dump` makes a copy."""
        with self._explained(), self._session() as session, session.transaction():
            session.execute("select pg_advisory_xact_lock(%s)", (STEPS,))
            version = self._version(session)
            if version > len(steps):
                raise CommandError(f"{self.shown} was written by a newer gpudeck (schema {version},"
                                   f" this one knows {len(steps)}); update this one",
                                   ExitCode.CANNOT_START)
            if version == len(steps):
                return
            for step in steps[version:]:
                session.execute(schema(step))
            session.execute("update gpudeck_schema set version = %s", (len(steps),))

    def _version(self, session: PostgresSession) -> int:
        session.execute("create table if not exists gpudeck_schema (version bigint not null, "
                        "moved_to text)")
        row = session.execute("select version, moved_to from gpudeck_schema").fetchone()
        if row is None:
            session.execute("insert into gpudeck_schema values (0, null)")
            return 0
        if row[1] is not None:
            raise CommandError(f"the state in {self.shown} was moved to {row[1]}; name another "
                               "database, or drop its tables", ExitCode.CANNOT_START)
        return int(row[0])

    @property
    def is_new(self) -> bool:
        with self._explained(), self._session() as session, session.transaction():
            return self._version(session) == 0

    def tables(self) -> dict[str, list[str]]:
        pairs = self.connection.execute(
            "select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid "
            "where c.relnamespace = current_schema()::regnamespace and c.relkind = 'r' and "
            f"c.relname not in ('gpudeck_schema', '{HOLD_TABLE}') and a.attnum > 0 and "
            "not a.attisdropped and a.attgenerated = '' and a.attidentity = '' "
            "order by c.relname, a.attnum").fetchall()
        return {table: [column for name, column in pairs if name == table]
                for table, _ in pairs}

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Any]:
        with self._steady.current().cursor(name="rows") as cursor:
            yield from cursor.execute(f"select {', '.join(columns)} from {table}")

    def mark_moved(self, where: str) -> None:
        self.connection.execute("update gpudeck_schema set moved_to = ?", (where,))

    def writes_elsewhere(self) -> int:
        """Return a digest of the transaction snapshot, which any committed write changes, in
        whatever order transactions end."""
        text = self.connection.execute("select pg_current_snapshot()::text").fetchone()[0]
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())

    def close(self) -> None:
        self._is_started.set()
        self._steady.close()


def shown(url: str) -> str:
    """Return the URL without what may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def waiting_hold(url: str, password: str | None) -> HubHold:
    return HubHold(PostgresAddress(url, password), PATIENCE_S)

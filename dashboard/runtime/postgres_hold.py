"""The hold of one hub on a database: a lock of the session through which it writes.

The server ends a session that is silent for SESSION_S, and its lock with it. A running hub
speaks four times a second. Each hub that takes the lock raises the term, so that one that was
suspended notices that another has taken its place, and ends.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import psycopg

from gpudeck.errors import ExitCode

from .postgres_session import PostgresAddress, PostgresSession, words
from .state_store import ActiveHub, StateUnavailableError

log = logging.getLogger("gpudeck.runtime")

SESSION_S = 5
# A hub that has been silent for so long asks before it does anything else. Less than SESSION_S,
# from before the last statement: until then nobody else can have the lock.
CONFIRM_AFTER_S = 3.0
TAKE_OVER_S = SESSION_S + 3.0
POLL_S = 0.5
WAITING_PATIENCE_S = 15.0
AGAIN_EVERY_S = 1.0
# When the server was away, the hub that had the lock comes first: it tries once a second.
GIVE_WAY_S = 6.0
START_MOST_S = 600.0
HUB = 0x67_70_75_02  # advisory lock
# Goes on while the machine sleeps, where the system has such a clock.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
HOLD_TABLE = "gpudeck_hold"
TABLE = f"""create table if not exists {HOLD_TABLE} (one bigint primary key check (one = 1),
term bigint not null, host text not null, since double precision not null)"""
TAKE = f"""insert into {HOLD_TABLE} values (1, 1, %s, %s) on conflict (one) do update
set term = {HOLD_TABLE}.term + 1, host = excluded.host, since = excluded.since returning term"""
IDENTITY = "select key, value from meta where key in ('url', 'hub_key', 'cluster')"
TERM = f"select term, host from {HOLD_TABLE}"
# The next hub's raise of the term waits for a change that has begun with this.
FENCE = f"select 1 from {HOLD_TABLE} where term = %s for share"


class HoldLostError(Exception):
    """Another hub has taken this database since."""


def clock() -> float:
    return time.clock_gettime(CLOCK)


def end_process(why: str) -> NoReturn:
    """End the process as a crash would: nothing more is written or sent on the way out."""
    log.critical("hold_lost why=%r; this hub ends, and may be started again as a standby", why)
    logging.shutdown()
    os._exit(ExitCode.FAILED)


class HubHold:
    """A hub's hold on the database, awaited or taken. Used by one thread at a time."""

    def __init__(self, address: PostgresAddress, patience_s: float) -> None:
        self._address = address
        self._patience_s = patience_s
        self._session: PostgresSession | None = None
        self._wait_until = 0.0
        self.term = 0  # ours; 0: not taken yet

    def _open(self, patience_s: float) -> PostgresSession:
        session = self._address.session()
        session.patience_s = patience_s
        try:
            bound(session)
        except psycopg.Error:
            session.close()
            raise
        return session

    def _waiting_session(self) -> PostgresSession:
        if self._session is None or self._session.closed:
            is_again = self._session is not None
            self._session = self._open(WAITING_PATIENCE_S)
            self._wait_until = clock() + GIVE_WAY_S if is_again else 0.0
        return self._session

    def try_take(self) -> bool:
        """Take the hold if its lock is free. Raises StateUnavailableError."""
        with _explained():
            session = self._waiting_session()
            if clock() < self._wait_until or not _has_lock(session):
                return False
            session.execute(TABLE)
            # It may have to wait until the server ends a change of the one before.
            [self.term] = session.execute(
                TAKE, (socket.gethostname(), time.time())).fetchone() or (0,)
            session.patience_s = self._patience_s
            return True

    def take_or_close(self, within_s: float) -> None:
        try:
            self._take(clock() + within_s)
        except BaseException:
            self.close()
            raise

    def _take(self, until: float) -> None:
        while not self.try_take():
            if clock() > until:
                raise StateUnavailableError(
                    f"another hub is using this database ({self.active().named}); to wait until "
                    "it is gone and take its place, start this one with --standby")
            time.sleep(POLL_S)

    def active(self) -> ActiveHub:
        """Return the hub that held it last, which may be running. Raises StateUnavailableError."""
        with _explained():
            session = self._waiting_session()
            there = session.execute(
                f"select to_regclass('{HOLD_TABLE}') is not null, to_regclass('meta') is not null"
            ).fetchone() or (False, False)
            row = session.execute(TERM).fetchone() if there[0] else None
            meta = dict(session.execute(IDENTITY).fetchall()) if there[1] else {}
        return ActiveHub(None if row is None else row[1], meta.get("url"), meta.get("hub_key"),
                         meta.get("cluster"))

    def held_session(self) -> PostgresSession:
        assert self._session is not None
        assert self.term > 0, "try_take() comes first"
        return self._session

    def take_again(self) -> PostgresSession:
        """Reopen a session that has ended. Raises HoldLostError if another hub held it since."""
        session = self._open(self._patience_s)
        try:
            has_lock = _has_lock(session)  # first: nobody raises the term after this
            term, host = session.execute(TERM).fetchone() or (None, "")
            if term != self.term:
                raise HoldLostError(f"the hub on {host} has taken over this database")
            if not has_lock:
                raise StateUnavailableError("its former session has not ended yet")
        except BaseException:
            session.close()
            raise
        return session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise StateUnavailableError(words(error)) from error


def bound(session: PostgresSession) -> None:
    """Let the server end the session in time however its hub stalls, also within a change."""
    session.execute(f"set idle_session_timeout = '{SESSION_S}s'; "
                    f"set idle_in_transaction_session_timeout = '{SESSION_S}s'; "
                    f"set tcp_user_timeout = '{SESSION_S}s'")


def _has_lock(session: PostgresSession) -> bool:
    return session.execute("select pg_try_advisory_lock(%s)", (HUB,)).fetchone() == (True,)


class SteadySession:
    """A session that is opened again when it has ended. A hub's `reopen` raises HoldLostError, on
    which the hub ends."""

    def __init__(self, session: PostgresSession, reopen: Callable[[], PostgresSession],
                 on_lost: Callable[[str], NoReturn]) -> None:
        self._session: PostgresSession | None = session
        self._reopen = reopen
        self._on_lost = on_lost
        self._why = ""
        self._is_closed = False
        self._trying = threading.Lock()
        self._last_query_at = self._confirmed_at = clock()

    def current(self) -> PostgresSession:
        if self._session is None:
            raise StateUnavailableError(self._why)
        return self._session

    def note_answer(self, queried_at: float) -> None:
        self._last_query_at = queried_at

    def confirm(self) -> None:
        """Confirm the hold before the hub writes or sends anything. After a pause, in which another
        hub may have taken over, this waits until that is known or the server cannot be asked."""
        now = clock()
        gap_s, self._confirmed_at = now - self._confirmed_at, now
        is_recent = self._session is None or now - self._last_query_at < CONFIRM_AFTER_S
        if gap_s < CONFIRM_AFTER_S and is_recent:
            return
        session = self._session
        if session is not None and self._answers(session):
            return
        with self._trying:
            if self._session is None:
                self._try()
        self._confirmed_at = clock()

    def _answers(self, session: PostgresSession) -> bool:
        queried_at = clock()
        try:
            session.execute("select 1")
        except psycopg.Error as error:
            self.drop(session, words(error))
            return False
        self.note_answer(queried_at)
        return True

    def drop(self, session: PostgresSession, why: str) -> None:
        session.close()
        if session is self._session:
            self._session, self._why = None, why
            log.error("state_away why=%r", why)
            threading.Thread(target=self._reopen_until_back, daemon=True).start()

    def _reopen_until_back(self) -> None:
        """Run in a native thread: connecting may take as long as it likes."""
        began = time.monotonic()
        while not self._is_closed:
            time.sleep(AGAIN_EVERY_S)
            with self._trying:
                if self._session is not None or self._try():
                    log.info("state_is_back after_s=%.0f", time.monotonic() - began)
                    return

    def _try(self) -> bool:
        queried_at = clock()
        try:
            session = self._reopen()
        except HoldLostError as error:
            self._on_lost(str(error))
        except (psycopg.Error, StateUnavailableError) as error:
            self._why = words(error)
            return False
        self.note_answer(queried_at)
        self._session = session
        if self._is_closed:  # meanwhile
            session.close()
        return True

    def keep_alive(self, until: threading.Event) -> None:
        """Keep the session alive from a native thread while the hub starts: until its loops run,
        nothing else speaks for as long as it takes to read its log."""
        deadline = time.monotonic() + START_MOST_S
        while not until.wait(AGAIN_EVERY_S) and time.monotonic() < deadline:
            session = self._session
            if session is not None:
                self._answers(session)

    def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            self._session.close()

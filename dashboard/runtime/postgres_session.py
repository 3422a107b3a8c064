"""A session with a PostgreSQL server."""

import select
import time
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.waiting import Ready, Wait

THREAD_PATIENCE_S = 60.0  # in a native thread nobody else waits
CONNECT_OPTIONS: dict[str, str | int] = {
    "connect_timeout": 3, "application_name": "gpudeck", "tcp_user_timeout": 3_000,
    "keepalives_idle": 2, "keepalives_interval": 1, "keepalives_count": 3,
    "target_session_attrs": "read-write"}  # of several hosts, the one that may write


class PostgresSession(psycopg.Connection[Any]):
    """A connection that waits no longer than it may. The server may still carry out a late
    statement, so the session is over."""

    patience_s = THREAD_PATIENCE_S

    def wait(self, gen: Any, *_: Any, **__: Any) -> Any:
        deadline = time.monotonic() + self.patience_s
        poller, registered = select.poll(), 0
        try:
            state = next(gen)
            while True:
                events = (select.POLLIN if state & Wait.R else 0) | (
                    select.POLLOUT if state & Wait.W else 0)
                if events != registered:
                    poller.register(self.pgconn.socket, events)
                    registered = events
                ready = poller.poll(max(0.0, deadline - time.monotonic()) * 1_000)
                if not ready:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(
                        f"it did not answer within {self.patience_s:g} s")
                state = gen.send(_ready(ready[0][1], state))
        except StopIteration as end:
            return end.value


def _ready(event: int, state: Wait) -> Ready:
    """Report a socket that has failed as ready for what was waited for: libpq then says why."""
    got = (Ready.R if event & select.POLLIN else 0) | (Ready.W if event & select.POLLOUT else 0)
    return Ready(got or int(state))


class PostgresAddress:
    """Address of the database, and how sessions with it are opened."""

    def __init__(self, url: str, password: str | None) -> None:
        password_option: dict[str, Any] = {} if password is None else {"password": password}
        from_url = conninfo_to_dict(url)
        self._info = make_conninfo(url, **password_option, **{
            name: value for name, value in CONNECT_OPTIONS.items() if name not in from_url})

    def session(self) -> PostgresSession:
        return PostgresSession.connect(self._info, autocommit=True)


def words(error: Exception) -> str:
    """Return the first line of the error, without a full stop."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(". ")

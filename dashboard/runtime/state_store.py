"""The database below the stores of all capabilities."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar


class StateUnavailableError(Exception):
    """The engine cannot be asked now; says why. What was to be changed has not been changed, or is
    not known to have been."""


@dataclass(frozen=True, slots=True)
class ActiveHub:
    """Identity of the hub that holds the database, by its own word; None: not known yet."""

    host: str | None = None
    url: str | None = None
    hub_key: str | None = None
    cluster: str | None = None

    @property
    def named(self) -> str:
        return self.host or "another hub"


class SqlRows(Protocol):
    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """Changes are whole transactions: see `together` in sql_transaction.py."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, values: Any = ..., /) -> SqlRows: ...

    def executemany(self, sql: str, values: Iterable[Any], /) -> SqlRows: ...

    def put_rows(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows, each in place of the one with its key; all columns, in the table's order."""


S = TypeVar("S", bound="SqlStore")


class SqlStore:
    """The rows of one capability."""

    def __init__(self, db: SqlConnection) -> None:
        self._db = db

    def beside(self, kind: type[S]) -> S:
        """Return another store over the same connection: changes in both are one transaction."""
        return kind(self._db)


class StateStore(Protocol):
    @property
    def shown(self) -> str:
        """Location of the state, for people."""

    @property
    def connection(self) -> SqlConnection:
        """Connection for the hub's own thread alone."""

    def another(self) -> AbstractContextManager[SqlConnection]:
        """Open another connection, for a native thread."""

    def migrate(self, steps: Sequence[str]) -> None:
        """Step n leads from version n to n + 1, whole or not at all. Where the state is a file,
        what an earlier version wrote is copied first; what a newer one wrote is refused."""

    @property
    def is_new(self) -> bool:
        """True until the first step has been taken."""

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each table, without generated ones."""

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Any]:
        """Yield all rows one by one, within a transaction."""

    def mark_moved(self, where: str) -> None:
        """Mark the state as moved, so that nobody continues here with what is outdated by then."""

    def writes_elsewhere(self) -> int:
        """Return a number that changes once another connection has written."""

    def confirm(self) -> None:
        """Check that this hub still owns this state; ends the process if not."""

    @property
    def term(self) -> int | None:
        """Number of this hub's turn, higher than that of each hub before; None: no other hub can
        use this state."""

    def check_term(self) -> None:
        """Check from a native thread that no other hub has had its turn since. Raises
        StateUnavailableError, also where that cannot be known."""

    def started(self) -> None:
        """Note that from now on the hub reads or writes something several times a second."""

    def close(self) -> None: ...

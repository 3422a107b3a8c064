"""The database under the stores of all capabilities."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


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


class StateStore(Protocol):
    @property
    def connection(self) -> SqlConnection:
        """For the hub's own thread alone."""

    def another(self) -> AbstractContextManager[SqlConnection]:
        """A connection of its own, for a native thread."""

    def migrate(self, steps: Sequence[str]) -> None:
        """Step n leads from version n to n + 1, whole or not at all. What an earlier version wrote
        is copied first; what a newer one wrote is refused."""

    def writes_elsewhere(self) -> int:
        """Another number once another connection has written."""

    def close(self) -> None: ...

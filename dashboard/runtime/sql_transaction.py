"""Transactions: a change of the state is written as a whole or not at all."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .state_store import SqlConnection


@contextmanager
def together(db: SqlConnection, reads: bool = True) -> Iterator[None]:
    """Run a transaction. The write lock is taken at once, so that what is read inside still holds
    at the end. Within another transaction this is a part of it: a change and its record are one.
    Without `reads` nobody else need wait."""
    if db.in_transaction:
        yield
        return
    db.execute("begin immediate" if reads else "begin deferred")
    try:
        yield
    except BaseException:
        if db.in_transaction:  # a full disk has rolled it back already
            db.execute("rollback")
        raise
    db.execute("commit")


def put(db: SqlConnection, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows, each in place of the one with its key; all columns, in the table's order."""
    batch = list(rows)
    if batch:
        db.put_rows(table, batch)

"""One change of the state: all of it or nothing."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .state_store import SqlConnection


@contextmanager
def together(db: SqlConnection, reads: bool = True) -> Iterator[None]:
    """The write lock is taken at once, so that what is read inside still holds at the end. Within
    another one it is a part of that: a change and its record are one. Without `reads` nobody else
    need wait."""
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
    """Each in place of the one with its key; all columns, in the order of the table."""
    given = list(rows)
    if given:
        db.put_rows(table, given)

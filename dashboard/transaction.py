"""One change of the state: all of it or nothing."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def together(db: sqlite3.Connection) -> Iterator[None]:
    """The write lock is taken at once, so that what is read inside still holds at the end."""
    db.execute("begin immediate")
    try:
        yield
    except BaseException:
        db.execute("rollback")
        raise
    db.execute("commit")

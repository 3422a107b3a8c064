"""The hub's state in one SQLite file."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from gpudeck.errors import CommandError, ExitCode
from gpudeck.system.database_errors import database_errors


def explained(path: Path) -> AbstractContextManager[None]:
    return database_errors(path, (
        f"restore a copy of it, or save what can be read: sqlite3 {path.name} .recover (hub "
        "stopped). Only a new, empty data folder begins without its users, nodes and audit"))


class SqliteConnection(sqlite3.Connection):
    def put_rows(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        marks = ", ".join("?" * len(rows[0]))
        self.executemany(f"insert or replace into {table} values ({marks})", rows)


class SqliteStateStore:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.shown = str(path)
        with explained(path):
            # Here, before any connection, and never again: closing a file of one's own lets go of
            # the locks that SQLite holds on it (sqlite.org/howtocorrupt.html, 2.2), and the next
            # one to leave would then delete the log under us.
            os.close(_created(path))
            self.connection = self._open()

    def _open(self) -> SqliteConnection:
        db = sqlite3.connect(self._path, timeout=5.0, isolation_level=None,
                             factory=SqliteConnection)
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = full")
        return db

    def another(self) -> "contextlib.closing[SqliteConnection]":
        return contextlib.closing(self._open())

    def migrate(self, steps: Sequence[str]) -> None:
        with explained(self._path):
            version = self._version()
            if version > len(steps):
                raise CommandError(f"{self._path} was written by a newer gpudeck (schema {version}"
                                   f", this one knows {len(steps)}); update this one",
                                   ExitCode.CANNOT_START)
            if 0 < version < len(steps):
                self._copy(f"{self._path.name}.before-{len(steps)}")
            for step in range(version, len(steps)):
                self.connection.executescript(
                    f"begin immediate; {steps[step]} pragma user_version = {step + 1}; commit;")

    @property
    def is_new(self) -> bool:
        with explained(self._path):
            return self._version() == 0

    def _version(self) -> int:
        return int(self.connection.execute("pragma user_version").fetchone()[0])

    def tables(self) -> dict[str, list[str]]:
        names = [row[0] for row in self.connection.execute(
            "select name from sqlite_master where type = 'table' order by name")]
        # 0: a column as any other; generated ones are 2 and 3.
        return {name: [row[1] for row in self.connection.execute(f"pragma table_xinfo({name})")
                       if row[6] == 0] for name in names}

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Any]:
        kinds = {row[1]: row[2].lower() for row in self.connection.execute(
            f"pragma table_xinfo({table})")}
        # Text may have been written as bytes: SQLite keeps whatever it is given.
        terms = (f"cast({name} as text)" if kinds[name] == "text" else name for name in columns)
        yield from self.connection.execute(f"select {', '.join(terms)} from {table}")

    def mark_moved(self, where: str) -> None:
        """Keep the file, under a name that no hub opens."""
        self.connection.execute("pragma journal_mode = delete")
        self.connection.close()
        self._path.rename(self._path.with_name(f"{self._path.name}.moved"))

    def _copy(self, name: str) -> None:
        """Copy whole or not at all: half a copy would pass for a copy."""
        draft = self._path.with_name(f"{name}.new")
        draft.unlink(missing_ok=True)
        os.close(_created(draft))
        with contextlib.closing(sqlite3.connect(draft)) as copy:
            self.connection.backup(copy)
            # As one file, which is all that somebody has to restore.
            copy.execute("pragma journal_mode = delete")
        draft.replace(self._path.with_name(name))

    def writes_elsewhere(self) -> int:
        return int(self.connection.execute("pragma data_version").fetchone()[0])

    term: int | None = None

    def check_term(self) -> None:
        """Do nothing: see `confirm`."""

    def confirm(self) -> None:
        """Do nothing: the lock of the data folder is held until the process ends."""

    def started(self) -> None:
        pass

    def close(self) -> None:
        self.connection.close()


def copy_database(source: Path, target: Path) -> None:
    """Copy with SQLite itself, as others may write meanwhile; whole or not at all."""
    draft = target.with_name(f"{target.name}.new")
    draft.unlink(missing_ok=True)
    os.close(_created(draft))
    with (explained(source), contextlib.closing(sqlite3.connect(
            f"file:{source}?mode=ro", uri=True)) as old,
            contextlib.closing(sqlite3.connect(draft)) as new):
        old.backup(new)
        new.execute("pragma journal_mode = delete")
        [verdict] = new.execute("pragma integrity_check").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
    draft.replace(target)


def _created(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_NOFOLLOW, 0o600)

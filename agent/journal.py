"""What must not be lost, on disk until the hub has it. The agent's only SQL for messages.

A `Journal` is one file; an `Outbox` is one node's view of it. Messages are numbered and committed
before they are sent. WAL with synchronous=NORMAL keeps what was committed across kill -9 at no
fsync per second.

A simulator keeps 1,250 nodes in one file. So `commit` is a group commit: whoever comes first waits
`group_s` for the others and writes for all.

A disk that refuses stops nobody: what could not be written stays with the outboxes, which try
again. A file that is damaged is set aside, and a new one begins.
"""

import contextlib
import logging
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

from gpudeck.errors import CommandError, ExitCode

from .outbox import CAP_BYTES, Outbox, Statement

log = logging.getLogger("gpudeck.agent.journal")

# Low bytes of sqlite's extended codes: SQLITE_CORRUPT, SQLITE_NOTADB.
DAMAGE = (11, 26)
DAMAGED_KEPT = 3

_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    stream TEXT NOT NULL, dropped INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS told (node INTEGER PRIMARY KEY, dropped INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS message (
    node INTEGER NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, generation INTEGER,
    body BLOB NOT NULL, PRIMARY KEY (node, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inventory (
    node INTEGER NOT NULL, generation INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (node, generation)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (node INTEGER PRIMARY KEY, body BLOB NOT NULL);
"""


class _Damaged(sqlite3.DatabaseError):
    """What sqlite itself only says when it comes across it."""


class Journal:
    def __init__(self, path: Path, group_s: float = 0.0) -> None:
        """Raises CommandError when the folder cannot be written."""
        self.trouble = ""
        self.files = 0  # that were set aside; an Outbox begins anew with each
        self.set_aside: Path | None = None  # the last one
        self._path = path
        self._group_s = group_s
        self._lock = threading.RLock()
        self._group = _Group()
        self._queue: list[Statement] = []
        self._db: sqlite3.Connection | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                self._db = _opened(path)
            except sqlite3.Error as error:
                if not _is_damage(error):
                    raise
                self._put_away(error)
                self._db = _opened(path)
        except (OSError, sqlite3.Error) as error:
            raise CommandError(
                f"cannot write {path}: {error}; choose another folder with --data",
                ExitCode.CANNOT_START,
            ) from error

    def outbox(self, name: str = "", cap_bytes: int = CAP_BYTES) -> Outbox:
        """The node of this name, made if it is new; "" is the machine itself."""
        return Outbox(self, name, cap_bytes)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Raises sqlite3.Error."""
        with self._lock:
            if self._db is None:
                raise sqlite3.OperationalError("there is no file")
            return self._db.execute(sql, values).fetchall()

    def read(self, sql: str, *values: Any) -> list[tuple[Any, ...]] | None:
        """None: it cannot be read, and `trouble` says why."""
        try:
            return self.rows(sql, *values)
        except sqlite3.Error as error:
            with self._lock:
                self._failed(error)
            return None

    def write_later(self, *statements: Statement) -> None:
        """Part of the next commit."""
        with self._lock:
            self._queue += statements

    def commit(self) -> bool:
        """Everything queued before is on disk, or `trouble` says why not."""
        with self._lock:
            group, leads = self._group, self._group.join()
        if not leads:
            group.done.wait()
            return group.saved
        if self._group_s:
            time.sleep(self._group_s)
        with self._lock:
            self._group = _Group()
            group.saved = self._save()
        group.done.set()
        return group.saved

    def _save(self) -> bool:
        """What cannot be saved is forgotten here: every Outbox says it again until it could."""
        queue, self._queue = self._queue, []
        try:
            db = self._db or self._reopened()
            db.execute("BEGIN IMMEDIATE")
            for sql, values in queue:
                db.execute(sql, values)
            db.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            self._failed(error)
            return False
        self.trouble = ""
        return True

    def _failed(self, error: Exception) -> None:
        if self._db is not None and self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
        self.trouble = (f"the outbox cannot be used ({error}); live goes on, and what the hub does "
                        "not take is kept in memory for some minutes: free space on its disk, or "
                        "repair it")
        if _is_damage(error) and self._db is not None:
            self._put_away(error)

    def _put_away(self, why: Exception) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
        self._db = None
        self.files += 1
        to = self._path.with_name(f"{self._path.name}.damaged-{time.time_ns()}")
        try:
            for end in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    self._path.with_name(self._path.name + end).rename(f"{to}{end}")
        except OSError as error:
            log.warning("outbox_damaged why=%r and cannot be set aside: %s", str(why), error)
            return
        self.set_aside = to
        log.warning("outbox_damaged why=%r set_aside=%s", str(why), to)
        for old in sorted(self._path.parent.glob(f"{self._path.name}.damaged-*"))[:-DAMAGED_KEPT]:
            old.unlink(missing_ok=True)

    def _reopened(self) -> sqlite3.Connection:
        self._db = _opened(self._path)
        return self._db

    def close(self) -> None:
        with self._lock:
            self._save()
            if self._db is not None:
                self._db.close()


def _opened(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.executescript(_SCHEMA)
        db.execute("BEGIN IMMEDIATE")
        db.execute("COMMIT")
        [(verdict,)] = db.execute("PRAGMA quick_check(1)").fetchall()
        if verdict != "ok":
            raise _Damaged(verdict)
    except BaseException:
        db.close()
        raise
    return db


def _is_damage(error: Exception) -> bool:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, _Damaged) or code & 0xFF in DAMAGE


class _Group:
    """One commit and those who wait for it."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.saved = False
        self._led = False

    def join(self) -> bool:
        """True for the first: it does the work."""
        first, self._led = not self._led, True
        return first

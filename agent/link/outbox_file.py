"""Messages that must not be lost, on disk until the hub has them. The agent's only SQL for
messages.

An `OutboxFile` is one file; an `Outbox` is one node's view of it. Messages are numbered and
committed before they are sent. WAL with synchronous=NORMAL keeps what was committed across kill -9
at no fsync per second.

A simulator keeps 1,250 nodes in one file. So `commit` is a group commit: the first caller waits
`group_s` for the others and writes for all.

A disk that refuses stops nobody: what could not be written stays with the outboxes, which try
again. A disk that is full from the start is no different: what is in the file is read all the same,
and a file that is not there yet is made when there is room. A file that is damaged is set aside,
and a new one begins. Space that an outage has filled goes back to the disk in small steps.
"""

import contextlib
import errno
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpudeck.errors import CommandError, ExitCode

log = logging.getLogger("gpudeck.agent.link")

Statement = tuple[str, tuple[Any, ...]]

# Low bytes of sqlite's extended codes: SQLITE_CORRUPT, SQLITE_NOTADB.
DAMAGE = (11, 26)
DAMAGED_KEPT = 3
FULL = 13  # SQLITE_FULL
# What sqlite says of a disk without room where it sets up its files: SQLITE_IOERR, SQLITE_CANTOPEN.
# Both mean much else: the disk itself is asked.
MAYBE_FULL = (10, 14)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

# Free pages that the file keeps; with more, a step gives so many back to the disk. A step is 1 MiB,
# written twice (WAL and file): some ms, so none more often than once a second.
FREE_KEPT_PAGES = 1_024
STEP_PAGES = 256
STEP_EVERY_S = 1.0
WAL_KEPT_BYTES = 4 * 2**20
# An earlier file, without what shrinking needs, is rebuilt when this little is in it.
REBUILT_MAX_PAGES = 256

# A message with a rowid: in an index of its own a row may fill a quarter of a page, and each Frame
# of 2 kB would need a page beside it, which is listed as free again a second later.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    stream TEXT NOT NULL, dropped INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS told (node INTEGER PRIMARY KEY, dropped INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS message (
    node INTEGER NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, generation INTEGER,
    body BLOB NOT NULL, PRIMARY KEY (node, seq)
);
CREATE TABLE IF NOT EXISTS inventory (
    node INTEGER NOT NULL, generation INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (node, generation)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (node INTEGER PRIMARY KEY, body BLOB NOT NULL);
"""


class _DamagedDatabaseError(sqlite3.DatabaseError):
    """Damage that sqlite itself only reports when it comes across it."""


class OutboxFile:
    def __init__(self, path: Path, group_s: float = 0.0,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """Raises CommandError when the folder cannot be written, unless for want of room."""
        self.trouble = ""
        self.files = 0  # that were set aside; an Outbox begins again with each
        self.set_aside: Path | None = None  # the last one
        self._path = path
        self._group_s = group_s
        self._clock = clock
        self._lock = threading.RLock()
        self._group = _GroupCommit()
        self._queue: list[Statement] = []
        self._shrinks_at = 0.0
        self._db: sqlite3.Connection | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                self._db = _open_file(path)
            except sqlite3.Error as error:
                if _is_no_room(error, path):
                    self._begin_without_room(error)
                elif _is_damage(error):
                    self._put_away(error)
                    self._db = _open_file(path)
                else:
                    raise
        except (OSError, sqlite3.Error) as error:
            raise CommandError(f"cannot write {path}: {error}; choose another folder with --data",
                               ExitCode.CANNOT_START) from error

    def _begin_without_room(self, why: sqlite3.Error) -> None:
        """Open a file on a full disk. What is pending must be known, or its numbers would be given
        out again. Raises sqlite3.Error where it cannot be."""
        self._note_failure(why)
        try:
            self._db = _open_file(self._path, shares=False)
        except sqlite3.Error as error:
            if _low_byte(error) != FULL or _has_tables(self._path):
                raise
        log.warning("outbox_disk_full why=%r", str(why))

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows. Raises sqlite3.Error."""
        with self._lock:
            if self._db is None:
                raise sqlite3.OperationalError("there is no file")
            return self._db.execute(sql, values).fetchall()

    def read(self, sql: str, *values: Any) -> list[tuple[Any, ...]] | None:
        """Return the rows; None: they cannot be read, and `trouble` says why."""
        try:
            return self.rows(sql, *values)
        except sqlite3.Error as error:
            with self._lock:
                if self._db is not None:  # else it was said why
                    self._note_failure(error)
            return None

    def write_later(self, *statements: Statement) -> None:
        """Make them part of the next commit."""
        with self._lock:
            self._queue += statements

    def commit(self) -> bool:
        """Return whether everything queued before is on disk; if not, `trouble` says why."""
        with self._lock:
            group, leads = self._group, self._group.join()
        if not leads:
            group.finished.wait()
            return group.saved
        if self._group_s:
            time.sleep(self._group_s)
        with self._lock:
            self._group = _GroupCommit()
            group.saved = self._save()
        group.finished.set()
        return group.saved

    def _save(self) -> bool:
        """Write the queue. What cannot be saved is forgotten here: every Outbox queues it again
        until it could."""
        queue, self._queue = self._queue, []
        try:
            db = self._db or self._reopen()
            db.execute("BEGIN IMMEDIATE")
            for sql, values in queue:
                db.execute(sql, values)
            db.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            self._note_failure(error)
            return False
        self.trouble = ""
        self._shrink(db)
        return True

    def _shrink(self, db: sqlite3.Connection) -> None:
        """Take one step at most; a live message waits for no more than that."""
        now = self._clock()
        if now < self._shrinks_at:
            return
        self._shrinks_at = now + STEP_EVERY_S
        with contextlib.suppress(sqlite3.Error):  # the next commit says what is wrong
            if _one(db, "freelist_count") > FREE_KEPT_PAGES:
                # Not `execute`, which takes its first page only: it is a statement without rows
                # that wants to be stepped.
                db.executescript(f"PRAGMA incremental_vacuum({STEP_PAGES})")

    def _note_failure(self, error: Exception) -> None:
        if self._db is not None and self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
        self.trouble = (f"the outbox cannot be used ({error}); live data continues, and "
                        "undelivered data stays in memory for some minutes: free some space on its "
                        "disk, or repair it")
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

    def _reopen(self) -> sqlite3.Connection:
        self._db = _open_file(self._path)
        return self._db

    def close(self) -> None:
        with self._lock:
            self._save()
            if self._db is not None:
                self._db.close()


def _open_file(path: Path, shares: bool = True) -> sqlite3.Connection:
    """`shares` False: without the file that processes share a WAL by, for which there is no room;
    the agent is the only one who opens this."""
    _make_private(path)
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        if not shares:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
        if not _one(db, "page_count"):  # only before there is a table; then it can shrink
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
        db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        [(verdict,)] = db.execute("PRAGMA quick_check(1)").fetchall()
        if verdict != "ok":
            raise _DamagedDatabaseError(verdict)
        if shares:
            _rebuild_if_old(db)
    except BaseException:
        db.close()
        raise
    return db


def _make_private(path: Path) -> None:
    """Make the files private: commands of tasks are in them. Whatever is wrong here, sqlite reports
    it, too."""
    with contextlib.suppress(OSError):
        # Only a new file is opened: to close one would let go of the locks that sqlite has on it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    for end in ("", "-wal", "-shm"):
        with contextlib.suppress(OSError):
            path.with_name(path.name + end).chmod(0o600)


def _rebuild_if_old(db: sqlite3.Connection) -> None:
    pages = _one(db, "page_count")
    is_old = not _one(db, "auto_vacuum")
    if is_old and pages - _one(db, "freelist_count") <= REBUILT_MAX_PAGES < pages:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("VACUUM")


def _one(db: sqlite3.Connection, pragma: str) -> int:
    [(number,)] = db.execute(f"PRAGMA {pragma}").fetchall()
    return int(number)


def _has_tables(path: Path) -> bool:
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        return bool(db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall())
    finally:
        db.close()


def _low_byte(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_no_room(error: Exception, path: Path) -> bool:
    if _low_byte(error) == FULL:
        return True
    return _low_byte(error) in MAYBE_FULL and _has_no_room(path.parent)


def _has_no_room(folder: Path) -> bool:
    """Test it by writing: a quota counts too, and so does a disk with no room for one more file."""
    probe = folder / f".room-{os.getpid()}"
    try:
        with open(probe, "wb", buffering=0) as file:
            return file.write(bytes(2**16)) < 2**16
    except OSError as error:
        return error.errno in NO_ROOM
    finally:
        probe.unlink(missing_ok=True)


def _is_damage(error: Exception) -> bool:
    return isinstance(error, _DamagedDatabaseError) or _low_byte(error) in DAMAGE


class _GroupCommit:
    """A commit, and those who wait for it."""

    def __init__(self) -> None:
        self.finished = threading.Event()
        self.saved = False
        self._has_leader = False

    def join(self) -> bool:
        """True for the first: it does the work."""
        first, self._has_leader = not self._has_leader, True
        return first

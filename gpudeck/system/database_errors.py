"""Sentences about a SQLite database that cannot be used."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gpudeck.errors import CommandError, ExitCode

LEAST_FREE_BYTES = 65_536
FULL = "the disk is full: free some space, then try again"
DAMAGED = "it is damaged"
# By the beginning of SQLite's name for the error.
_TROUBLE = {
    "SQLITE_FULL": FULL,
    "SQLITE_BUSY": "another program is using it: try again when that has ended",
    "SQLITE_CORRUPT": DAMAGED,
    "SQLITE_NOTADB": DAMAGED,
}


@contextlib.contextmanager
def database_errors(path: Path, way_out: str) -> Iterator[None]:
    """Raise a sentence instead of a traceback where a database, or a file beside it, cannot be
    used. `way_out`: of a damaged one."""
    try:
        yield
    except sqlite3.Error as error:
        why = _trouble(path, error)
        end = f": {way_out}" if why == DAMAGED else ""
        raise CommandError(f"cannot use {path}: {why}{end}", ExitCode.CANNOT_START) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise CommandError(f"cannot use {path.parent}: {FULL}", ExitCode.CANNOT_START) from error


def _trouble(path: Path, error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", "")
    disk = os.statvfs(path.parent)
    # Without room for its -shm file SQLite reports an I/O error.
    if name.startswith("SQLITE_IOERR") and disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES:
        return FULL
    return next((why for start, why in _TROUBLE.items() if name.startswith(start)), str(error))

"""The only SQL for the hub's state, and the guardian of its folder."""

import fcntl
import hashlib
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gpudeck.errors import CommandError, ExitCode

SCHEMA_VERSION = 1
SCHEMA = """
create table meta (key text primary key, value text not null) without rowid;
create table sessions (
  hash blob primary key, csrf text not null, created_at real not null, ends_at real not null
) without rowid;
create table codes (hash blob primary key, ends_at real not null) without rowid;
create table nodes (node_id text primary key, checkpoint blob not null) without rowid;
"""
OURS = ("state.db", "agent.token", "api.token", "hub.json", "headlog")
CODE_LASTS_S = 600.0
SESSION_LASTS_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Session:
    key: bytes  # the hash; the secret itself is with the browser alone
    csrf: str
    ends_at: float


def open_folder(path: Path) -> None:
    """Make it ours alone, or say why not."""
    os.umask(0o077)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot make the data folder {path}: {error.strerror}; name another "
                           "with --data", ExitCode.CANNOT_START) from error
    if path.is_symlink() or path.stat().st_uid != os.geteuid():
        raise CommandError(f"the data folder {path} is a link or belongs to someone else; name "
                           "another with --data", ExitCode.CANNOT_START)
    if not os.access(path, os.W_OK | os.X_OK):
        raise CommandError(f"cannot write in the data folder {path}; name another with --data",
                           ExitCode.CANNOT_START)
    if not any(path.iterdir()):
        path.chmod(0o700)
    for entry in (path, *(path / name for name in OURS)):
        _check_mode(entry)


def _check_mode(entry: Path) -> None:
    mode = stat.S_IMODE(entry.lstat().st_mode) if entry.exists() else 0
    if mode & 0o077:
        wanted = "700" if entry.is_dir() else "600"
        raise CommandError(f"{entry} can be read by others (mode {mode:o}) and may hold secrets; "
                           f"run: chmod {wanted} {entry}", ExitCode.CANNOT_START)


def lock_folder(path: Path) -> IO[str]:
    """Held while the returned file is open; two hubs in one folder would eat each other's log."""
    file = os.fdopen(_private(str(path / "lock"), os.O_RDWR | os.O_CREAT), "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise CommandError(f"another hub is running in {path}; stop it or name another folder "
                           "with --data", ExitCode.CANNOT_START) from error
    return file


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, readable by us alone."""
    draft = path.with_name(path.name + ".new")
    with open(draft, "w", opener=_private) as file:
        file.write(text)
    draft.replace(path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def secret(path: Path) -> str:
    """The token in this file; made at the first start."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32) + "\n")
    return path.read_text().strip()


def digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()


class State:
    """`state.db` in the hub's folder. One connection, used from the hub's thread alone, save for
    `save_nodes`, which opens its own."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "state.db"
        try:
            self._db = self._open()
            self._migrate()
        except sqlite3.Error as error:
            raise CommandError(f"cannot use {self._path}: {error}; move it away to start anew",
                               ExitCode.CANNOT_START) from error

    def _open(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_CREAT | os.O_NOFOLLOW, 0o600))
        db = sqlite3.connect(self._path, timeout=5.0, isolation_level=None)
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = full")
        return db

    def _migrate(self) -> None:
        version = self._db.execute("pragma user_version").fetchone()[0]
        if version == 0:
            self._db.executescript(
                f"begin; {SCHEMA} pragma user_version = {SCHEMA_VERSION}; commit;")
        elif version != SCHEMA_VERSION:
            raise CommandError(f"{self._path} was written by another version of gpudeck (schema "
                               f"{version}, this one knows {SCHEMA_VERSION})",
                               ExitCode.CANNOT_START)

    def close(self) -> None:
        self._db.close()

    def get(self, key: str) -> str | None:
        row = self._db.execute("select value from meta where key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, value: str) -> None:
        self._db.execute("insert or replace into meta values (?, ?)", (key, value))

    def hub_id(self) -> str:
        known = self.get("hub_id")
        if known is None:
            known = secrets.token_hex(8)
            self.put("hub_id", known)
        return known

    def next_epoch(self) -> int:
        epoch = int(self.get("epoch") or 0) + 1
        self.put("epoch", str(epoch))
        return epoch

    # -- sign-in

    def add_code(self, now: float) -> str:
        """A new one-time code; only its hash is kept."""
        code = secrets.token_urlsafe(24)
        self._db.execute("delete from codes where ends_at < ?", (now,))
        self._db.execute("insert into codes values (?, ?)", (digest(code), now + CODE_LASTS_S))
        return code

    def use_code(self, code: str, now: float) -> bool:
        """True once, and only while the code is young."""
        gone = self._db.execute(
            "delete from codes where hash = ? returning ends_at", (digest(code),)).fetchone()
        return gone is not None and now < gone[0]

    def add_session(self, now: float) -> tuple[str, Session]:
        """The secret for the cookie, and the session."""
        word = secrets.token_urlsafe(32)
        session = Session(digest(word), secrets.token_urlsafe(24), now + SESSION_LASTS_S)
        self._db.execute("delete from sessions where ends_at < ?", (now,))
        self._db.execute("insert into sessions values (?, ?, ?, ?)",
                         (session.key, session.csrf, now, session.ends_at))
        return word, session

    def sessions(self, now: float) -> list[Session]:
        rows = self._db.execute("select hash, csrf, ends_at from sessions where ends_at > ?",
                                (now,))
        return [Session(*row) for row in rows]

    def end_session(self, key: bytes) -> None:
        self._db.execute("delete from sessions where hash = ?", (key,))

    # -- nodes

    def nodes(self) -> list[bytes]:
        return [row[0] for row in self._db.execute("select checkpoint from nodes")]

    def save_nodes(self, checkpoints: Iterable[tuple[str, bytes]]) -> None:
        """On a connection of its own, because it runs in a native thread."""
        db = self._open()
        try:
            db.execute("begin immediate")
            db.executemany("insert or replace into nodes values (?, ?)", checkpoints)
            db.execute("commit")
        finally:
            db.close()

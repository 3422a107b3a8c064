"""The hub's state in one SQLite file, with a store of each capability over it."""

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gpudeck.errors import CommandError, ExitCode

from .access.store import SCHEMA as ACCESS
from .access.store import AccountsStore, SessionStore, SignInRecord
from .actions.standing_store import SCHEMA as STANDING
from .actions.standing_store import StandingStore
from .actions.store import SCHEMA as ACTIONS
from .actions.store import CommandsStore
from .alerts.store import BACKTEST_SCHEMA, MARKS_SCHEMA, MEMORY_SCHEMA, AlertsStore
from .alerts.store import SCHEMA as ALERTS
from .audit.store import SCHEMA as AUDIT
from .audit.store import AuditStore
from .automation.store import SCHEMA as AUTOMATION
from .automation.store import AutomationStore
from .nodes.store import SCHEMA as NODES
from .nodes.store import NodeStore
from .notifications.store import SCHEMA as NOTIFICATIONS
from .notifications.store import NotificationsStore
from .quotas.store import GROUPS_SCHEMA, QuotasStore
from .quotas.store import SCHEMA as QUOTAS
from .runtime.sql_transaction import together

SCHEMA = """
create table meta (key text primary key, value text not null) without rowid;
create table sessions (
  hash blob primary key, csrf text not null, created_at real not null, ends_at real not null
) without rowid;
create table codes (hash blob primary key, ends_at real not null) without rowid;
create table nodes (node_id text primary key, checkpoint blob not null) without rowid;
"""
# Step n leads from version n to n + 1. What was written once is never edited.
STEPS = (SCHEMA, ACCESS, NODES, AUDIT, ACTIONS, STANDING, ALERTS, MEMORY_SCHEMA, BACKTEST_SCHEMA,
         AUTOMATION, NOTIFICATIONS, QUOTAS, GROUPS_SCHEMA, MARKS_SCHEMA)
SCHEMA_VERSION = len(STEPS)


class StateStore:
    """`state.db` in the hub's folder. One connection, used from the hub's thread alone, save for
    `save_nodes` and `note`, which open their own."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "state.db"
        try:
            # Here, before any connection, and never again: closing a file of one's own lets go of
            # the locks that SQLite holds on it (sqlite.org/howtocorrupt.html, 2.2), and the next
            # one to leave would then delete the log under us.
            os.close(os.open(self._path, os.O_CREAT | os.O_NOFOLLOW, 0o600))
            self._db = self._open()
            self._migrate()
            self.accounts = AccountsStore(self._db)
            self.sessions = SessionStore(self._db)
            self.registry = NodeStore(self._db)
            self.audit = AuditStore(self._db)
            self.standing = StandingStore(self._db)
            self.alerts = AlertsStore(self._db)
            self.notifications = NotificationsStore(self._db)
            self.brakes = AutomationStore(self._db)
            self.commands = CommandsStore(self._db)
            self.quotas = QuotasStore(self._db)
        except sqlite3.Error as error:
            raise CommandError(f"cannot use {self._path}: {error}; move it away to start anew",
                               ExitCode.CANNOT_START) from error

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=5.0, isolation_level=None)
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = full")
        return db

    def _migrate(self) -> None:
        version = self._db.execute("pragma user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise CommandError(f"{self._path} was written by a newer gpudeck (schema {version}, "
                               f"this one knows {SCHEMA_VERSION}); update this one",
                               ExitCode.CANNOT_START)
        for step in range(version, SCHEMA_VERSION):
            self._db.executescript(
                f"begin immediate; {STEPS[step]} pragma user_version = {step + 1}; commit;")

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

    def secret(self, what: str) -> bytes:
        """A key of the hub's own; made at the first start."""
        known = self.get(f"secret {what}")
        if known is None:
            known = secrets.token_hex(32)
            self.put(f"secret {what}", known)
        return bytes.fromhex(known)

    def next_epoch(self) -> int:
        epoch = int(self.get("epoch") or 0) + 1
        self.put("epoch", str(epoch))
        return epoch

    # -- people and programs

    def writes_elsewhere(self) -> int:
        """Another number once somebody else has written: `gpudeck user`, a thread of ours."""
        return int(self._db.execute("pragma data_version").fetchone()[0])

    @contextlib.contextmanager
    def another_audit(self) -> Iterator[AuditStore]:
        """Over a connection of its own, for a native thread."""
        with contextlib.closing(self._open()) as db:
            yield AuditStore(db)

    def note(self, attempts: list[SignInRecord], sessions: dict[str, float],
             tokens: dict[str, float],
             records: Iterable[dict[str, Any]] = ()) -> None:
        """In a native thread, as `save_nodes`."""
        with contextlib.closing(self._open()) as db:
            audit = AuditStore(db)
            with audit.together():
                SessionStore(db).note(attempts, sessions, tokens)
                for record in records:
                    audit.append(record)

    # -- nodes

    def nodes(self) -> list[bytes]:
        return [row[0] for row in self._db.execute("select checkpoint from nodes")]

    def save_nodes(self, checkpoints: Iterable[tuple[str, bytes]]) -> None:
        """On a connection of its own, because it runs in a native thread."""
        with contextlib.closing(self._open()) as db, together(db):
            db.executemany("insert or replace into nodes values (?, ?)", checkpoints)

"""The hub's state: a store for each capability over one database."""

import contextlib
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudeck.errors import CommandError, ExitCode

from .access.store import (
    OIDC_SCHEMA,
    AccountsStore,
    OidcStore,
    SessionStore,
    SignInRecord,
)
from .access.store import SCHEMA as ACCESS
from .actions.signer_process import SPENT_FILE, SigningLedger
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
from .jobs.store import SCHEMA as JOBS
from .jobs.store import JobsStore
from .nodes.store import SCHEMA as NODES
from .nodes.store import USES_SCHEMA, NodeStore
from .notifications.store import SCHEMA as NOTIFICATIONS
from .notifications.store import NotificationsStore
from .pool.store import SCHEMA as POOL
from .pool.store import TIMES_SCHEMA, PoolStore
from .quotas.store import GROUPS_SCHEMA, QuotasStore
from .quotas.store import SCHEMA as QUOTAS
from .runtime.sql_transaction import put, together
from .runtime.state_location import open_store
from .runtime.state_store import StateStore

if TYPE_CHECKING:
    from .runtime.postgres_hold import HubHold

SCHEMA = """
create table meta (key text primary key, value text not null) without rowid;
create table sessions (
  hash blob primary key, csrf text not null, created_at real not null, ends_at real not null
) without rowid;
create table codes (hash blob primary key, ends_at real not null) without rowid;
create table nodes (node_id text primary key, checkpoint blob not null) without rowid;
"""
# `user` is a reserved word of PostgreSQL.
USER_NAMES_SCHEMA = """
alter table sessions rename column user to user_name;
alter table codes rename column user to user_name;
alter table quota_groups rename column user to user_name;
"""
# Step n leads from version n to n + 1. A step is never edited later.
STEPS = (SCHEMA, ACCESS, NODES, AUDIT, ACTIONS, STANDING, ALERTS, MEMORY_SCHEMA, BACKTEST_SCHEMA,
         AUTOMATION, NOTIFICATIONS, QUOTAS, GROUPS_SCHEMA, MARKS_SCHEMA,
         USER_NAMES_SCHEMA, POOL, USES_SCHEMA, JOBS, OIDC_SCHEMA,
         TIMES_SCHEMA)
SCHEMA_VERSION = len(STEPS)


class HubState:
    """Stores of all capabilities. Used only from the hub's thread, except `save_nodes` and `note`,
    which open another connection."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        store.migrate(STEPS)
        self._db = db = store.connection
        self.accounts = AccountsStore(db)
        self.sessions = SessionStore(db)
        self.oidc = OidcStore(db)
        self.registry = NodeStore(db)
        self.audit = AuditStore(db)
        self.standing = StandingStore(db)
        self.alerts = AlertsStore(db)
        self.notifications = NotificationsStore(db)
        self.brakes = AutomationStore(db)
        self.commands = CommandsStore(db)
        self.quotas = QuotasStore(db)
        self.pool = PoolStore(db)
        self.jobs = JobsStore(db)

    @classmethod
    def open(cls, folder: Path, is_hub: bool = False, hold: "HubHold | None" = None
             ) -> "HubState":
        """Open the state of the hub in this folder. `is_hub`: the hub itself opens it; `hold`: the
        hold of a standby that has waited for it."""
        store = open_store(folder, is_hub, hold)
        epoch, _ = SigningLedger(folder).read()
        try:
            if epoch > 0 and store.is_new:
                raise CommandError(
                    f"{store.shown} is empty, but a hub has run here ({SPENT_FILE}: epoch "
                    f"{epoch}): its users, nodes and audit were in it. Put back a copy of it; to "
                    "begin without them, name a new folder with --data", ExitCode.CANNOT_START)
            return cls(store)
        except BaseException:
            store.close()
            raise

    def confirm(self) -> None:
        """Check, before anything is written or sent, that this hub still has its state. The process
        ends if another hub has taken over."""
        self._store.confirm()

    def started(self) -> None:
        self._store.started()

    def close(self) -> None:
        self._store.close()

    def get(self, key: str) -> str | None:
        row = self._db.execute("select value from meta where key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, value: str) -> None:
        put(self._db, "meta", [(key, value)])

    def hub_id(self) -> str:
        hub_id = self.get("hub_id")
        if hub_id is None:
            hub_id = secrets.token_hex(8)
            self.put("hub_id", hub_id)
        return hub_id

    def secret(self, name: str) -> bytes:
        """Return a secret key of the hub by name; it is created at the first start."""
        value = self.get(f"secret {name}")
        if value is None:
            value = secrets.token_hex(32)
            self.put(f"secret {name}", value)
        return bytes.fromhex(value)

    def next_epoch(self) -> int:
        epoch = int(self.get("epoch") or 0) + 1
        self.put("epoch", str(epoch))
        return epoch

    # -- people and programs

    def writes_elsewhere(self) -> int:
        """Return a number that changes when another connection has written: `gpudeck user`, or a
        thread of ours."""
        return self._store.writes_elsewhere()

    @contextlib.contextmanager
    def another_audit(self) -> Iterator[AuditStore]:
        """Open the audit store over another connection, for a native thread."""
        with self._store.another() as db:
            yield AuditStore(db)

    @contextlib.contextmanager
    def another_jobs(self) -> Iterator[JobsStore]:
        """Open the jobs store over another connection, for a native thread."""
        with self._store.another() as db:
            yield JobsStore(db)

    def note(self, attempts: list[SignInRecord], sessions: dict[str, float],
             tokens: dict[str, float],
             records: Iterable[dict[str, Any]] = ()) -> None:
        """Store sign-in attempts, last uses and audit records; runs in a native thread."""
        with self._store.another() as db:
            audit = AuditStore(db)
            with audit.together():
                SessionStore(db).note(attempts, sessions, tokens)
                for record in records:
                    audit.append(record)

    # -- nodes

    def nodes(self) -> list[bytes]:
        return [row[0] for row in self._db.execute("select checkpoint from nodes")]

    def save_nodes(self, checkpoints: Iterable[tuple[str, bytes]]) -> None:
        """Store nodes' checkpoints over another connection, because it runs in a native thread."""
        with self._store.another() as db, together(db, reads=False):
            put(db, "nodes", checkpoints)

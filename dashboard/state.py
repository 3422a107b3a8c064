"""The hub's state: the stores of all capabilities over one database."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gpudeck.errors import CommandError, ExitCode

from .capabilities import migrations
from .runtime.data_folder import SIGNING_FILE, signing_log
from .runtime.sql_transaction import put
from .runtime.state_location import open_store
from .runtime.state_store import SqlStore, StateStore

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
MIGRATIONS = {1: SCHEMA, 15: USER_NAMES_SCHEMA} | migrations()
SCHEMA_VERSION = max(MIGRATIONS)
# Step n leads from version n to n + 1; one of a capability that is not there does nothing.
STEPS = tuple(MIGRATIONS.get(version, "") for version in range(1, SCHEMA_VERSION + 1))

S = TypeVar("S", bound=SqlStore)


class HubState:
    """Stores of all capabilities. Used only from the hub's thread, except `another`."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        store.migrate(STEPS)
        self._db = store.connection
        self._stores: dict[type[SqlStore], Any] = {}

    @classmethod
    def open(cls, folder: Path, is_hub: bool = False, hold: "HubHold | None" = None
             ) -> "HubState":
        """Open the state of the hub in this folder. `is_hub`: the hub itself opens it; `hold`: the
        hold of a standby that has waited for it."""
        store = open_store(folder, is_hub, hold)
        epoch, _ = signing_log(folder)
        try:
            if epoch > 0 and store.is_new:
                raise CommandError(
                    f"{store.shown} is empty, but a hub has run here ({SIGNING_FILE}: epoch "
                    f"{epoch}): its users, nodes and audit were in it. Put back a copy of it; to "
                    "begin without them, name a new folder with --data", ExitCode.CANNOT_START)
            return cls(store)
        except BaseException:
            store.close()
            raise

    def store(self, kind: type[S]) -> S:
        """Return the store of this kind; there is one of each."""
        if kind not in self._stores:
            self._stores[kind] = kind(self._db)
        store: S = self._stores[kind]
        return store

    @contextlib.contextmanager
    def another(self, kind: type[S]) -> Iterator[S]:
        """Open a store over another connection, for a native thread."""
        with self._store.another() as db:
            yield kind(db)

    def confirm(self) -> None:
        """Check, before anything is written or sent, that this hub still has its state. The process
        ends if another hub has taken over."""
        self._store.confirm()

    @property
    def term(self) -> int | None:
        """Number of this hub's turn; None: no other hub can use this state."""
        return self._store.term

    def check_term(self) -> None:
        """Check from a native thread that no other hub has had its turn since. Raises
        StateUnavailableError, also where that cannot be known."""
        self._store.check_term()

    def started(self) -> None:
        self._store.started()

    def close(self) -> None:
        self._store.close()

    def writes_elsewhere(self) -> int:
        """Return a number that changes when another connection has written: `gpudeck user`, or a
        thread of ours."""
        return self._store.writes_elsewhere()

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

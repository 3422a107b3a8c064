"""The SQL of what limits automatic actions: the state of the brakes and of each ladder, and nodes
in maintenance."""

import sqlite3

import msgspec
from msgspec import Struct

from ..runtime.sql_transaction import put
from ..runtime.state_store import SqlStore, StateUnavailableError
from .brake_limits import BrakeState
from .ladder_state import SavedLadderState

SCHEMA = """
create table brakes (name text primary key, body blob not null) without rowid;
create table maintenance (node_id text primary key, body blob not null) without rowid;
"""
# By the version of the state that each leads to. A step is never edited later.
MIGRATIONS = {10: SCHEMA}
NAME, CLIMBS = "fleet", "climbs"
CANNOT_STORE = (sqlite3.Error, StateUnavailableError)


class MaintenanceWindow(Struct, frozen=True):
    """A node in maintenance: no automatic actions there, and manual ones only after a second
    confirmation. It ends by itself; `until` and `since` are UTC."""

    node_id: str
    by: str
    because: str
    since: float
    until: float

    @property
    def sentence(self) -> str:
        return f"this node is in maintenance by {self.by}: {self.because}"


_encode = msgspec.json.Encoder().encode
_brake_state = msgspec.json.Decoder(BrakeState)
_climbs = msgspec.json.Decoder(SavedLadderState)
_maintenance = msgspec.json.Decoder(MaintenanceWindow)


class AutomationStore(SqlStore):
    def brake_state(self) -> BrakeState | None:
        """Return the stored state; None: there never was one. Raises ValueError if it cannot be
        read."""
        row = self._db.execute("select body from brakes where name = ?", (NAME,)).fetchone()
        return None if row is None else _brake_state.decode(row[0])

    def put_brake_state(self, state: BrakeState) -> None:
        """Raises CANNOT_STORE."""
        put(self._db, "brakes", [(NAME, _encode(state))])

    def climbs(self) -> SavedLadderState | None:
        """Return the stored ladders; None: there are none, or none that can be read."""
        row = self._db.execute("select body from brakes where name = ?", (CLIMBS,)).fetchone()
        try:
            return None if row is None else _climbs.decode(row[0])
        except ValueError:
            return None

    def put_climbs(self, climbs: SavedLadderState) -> None:
        """Raises CANNOT_STORE."""
        put(self._db, "brakes", [(CLIMBS, _encode(climbs))])

    def maintenance(self) -> dict[str, MaintenanceWindow]:
        return {node_id: _maintenance.decode(body) for node_id, body in self._db.execute(
            "select node_id, body from maintenance")}

    def put_maintenance(self, window: MaintenanceWindow) -> None:
        put(self._db, "maintenance", [(window.node_id, _encode(window))])

    def drop_maintenance(self, node_id: str) -> None:
        self._db.execute("delete from maintenance where node_id = ?", (node_id,))

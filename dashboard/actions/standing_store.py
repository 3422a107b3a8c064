"""The SQL of what people have set and what stands until it is taken back: holds, keeps, addresses.

Used by the hub and, over its own connection, by `gpudeck address`.
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from ..runtime.sql_transaction import put
from ..runtime.state_store import SqlStore

# A hold of node '' is one of the whole fleet.
SCHEMA = """
create table holds (
  node_id text primary key, by text not null, reason text not null, since real not null
) without rowid;
create table keeps (
  node_id text not null, task_id text not null, until real not null, because text not null,
  by text not null, set_at real not null, primary key (node_id, task_id)
) without rowid;
create table addresses (unix_name text primary key, address text not null) without rowid;
"""
FLEET = ""


@dataclass(frozen=True, slots=True)
class HoldRecord:
    node_id: str
    by: str
    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class OwnerKeep:
    """A request of a task's owner to leave the task alone until then."""

    node_id: str
    task_id: str
    until: float
    because: str
    by: str
    set_at: float


class StandingStore(SqlStore):
    # -- holds

    def holds(self) -> dict[str, HoldRecord]:
        return {row[0]: HoldRecord(*row) for row in self._db.execute("select * from holds")}

    def put_hold(self, hold: HoldRecord) -> None:
        put(self._db, "holds", [astuple(hold)])

    def drop_hold(self, node_id: str) -> None:
        self._db.execute("delete from holds where node_id = ?", (node_id,))

    # -- keeps

    def keeps(self) -> list[OwnerKeep]:
        return [OwnerKeep(*row) for row in self._db.execute("select * from keeps")]

    def put_keep(self, keep: OwnerKeep) -> None:
        put(self._db, "keeps", [astuple(keep)])

    def drop_keep(self, node_id: str, task_id: str) -> None:
        self._db.execute("delete from keeps where node_id = ? and task_id = ?", (node_id, task_id))

    def drop_keeps_before(self, now: float) -> None:
        self._db.execute("delete from keeps where until <= ?", (now,))

    # -- addresses

    def addresses(self) -> dict[str, str]:
        return dict(self._db.execute("select * from addresses order by unix_name"))

    def address(self, unix_name: str) -> str | None:
        row = self._db.execute("select address from addresses where unix_name = ?",
                               (unix_name,)).fetchone()
        return None if row is None else str(row[0])

    def put_address(self, unix_name: str, address: str) -> None:
        put(self._db, "addresses", [(unix_name, address)])

    def drop_address(self, unix_name: str) -> bool:
        return self._db.execute("delete from addresses where unix_name = ?",
                                (unix_name,)).rowcount > 0

    def replace_addresses(self, rows: Iterable[tuple[str, str]]) -> None:
        self._db.execute("delete from addresses")
        self._db.executemany("insert into addresses values (?, ?)", rows)

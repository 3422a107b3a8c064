"""The SQL of enrolments and of the nodes that came by them.

The hub uses it, and `gpudeck token create agent` over another connection: so each change
is one transaction that holds its own conditions.
"""

from collections.abc import Iterable
from dataclasses import astuple

from ..fleet.members import EnrolledNode, Enrolment
from ..runtime.sql_transaction import put, together
from ..runtime.state_store import SqlStore

SCHEMA = """
create table enrolments (
  id text primary key, key blob not null, host text, approve integer not null,
  node_group text not null, created_at real not null, created_by text not null,
  expires_at real not null, used_by text
) without rowid;
create table members (
  node_id text primary key, key blob not null, host text not null, node_group text not null,
  access text not null, enrolled_at real not null, enrolment text not null, decided_by text
) without rowid;
"""
USES_SCHEMA = """
alter table enrolments add column uses integer not null default 1;
alter table enrolments add column used integer not null default 0;
alter table enrolments add column networks text not null default '';
update enrolments set used = 1 where used_by is not null;
"""
# By the version of the state that each leads to. A step is never edited later.
MIGRATIONS = {3: SCHEMA, 17: USES_SCHEMA}
MAX_ENROLMENTS = 10_000
# Expired ones are kept for a day, so that a late use gets a clear answer.
KEPT_S = 86_400.0


class NodeStore(SqlStore):
    def enrolments(self) -> list[Enrolment]:
        return [_enrolment(row) for row in self._db.execute(
            "select * from enrolments order by created_at, id")]

    def enrolment(self, enrolment_id: str) -> Enrolment | None:
        row = self._db.execute("select * from enrolments where id = ?", (enrolment_id,)).fetchone()
        return None if row is None else _enrolment(row)

    def add(self, enrolments: Iterable[Enrolment], now: float) -> bool:
        """Add enrolments; False: there are too many already, and none was added."""
        rows = [astuple(enrolment) for enrolment in enrolments]
        with together(self._db):
            self._db.execute("delete from enrolments where expires_at < ?", (now - KEPT_S,))
            [count] = self._db.execute("select count(*) from enrolments").fetchone()
            if count + len(rows) > MAX_ENROLMENTS:
                return False
            self._db.executemany("insert into enrolments values (" + ",".join("?" * 12) + ")", rows)
        return True

    def withdraw(self, enrolment_id: str) -> bool:
        return self._db.execute("delete from enrolments where id = ? and used < uses",
                                (enrolment_id,)).rowcount > 0

    def use(self, enrolment_id: str, member: EnrolledNode) -> bool:
        """Take one use and store the node as a member, both or neither."""
        with together(self._db):
            changed_rows = self._db.execute(
                "update enrolments set used = used + 1,"
                " used_by = case when used + 1 >= uses then ? else used_by end"
                " where id = ? and used < uses and expires_at > ?",
                (member.node_id, enrolment_id, member.enrolled_at)).rowcount
            if changed_rows:
                self.put(member)
        return changed_rows > 0

    def members(self) -> list[EnrolledNode]:
        return [EnrolledNode(*row) for row in self._db.execute("select * from members")]

    def put(self, member: EnrolledNode) -> None:
        put(self._db, "members", [astuple(member)])


def _enrolment(row: tuple[object, ...]) -> Enrolment:
    id_, key, host, approve, *rest = row
    return Enrolment(id_, key, host, bool(approve), *rest)  # type: ignore[arg-type]


class CheckpointStore(SqlStore):
    """Checkpoints of the nodes, in bytes, by node id."""

    def all(self) -> list[bytes]:
        return [row[0] for row in self._db.execute("select checkpoint from nodes")]

    def put(self, checkpoints: Iterable[tuple[str, bytes]]) -> None:
        with together(self._db, reads=False):
            put(self._db, "nodes", checkpoints)

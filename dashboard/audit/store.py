"""The SQL of the audit log: the hub's hash chain, and the heads that hub and nodes keep of each
other.

Used by the hub and, over their own connections, by its threads and by commands such as `gpudeck
user`: so each record gets its place in the chain within one transaction.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Any

from gpudeck.audit.chain import START, AuditChainLink, link

from ..errors import AuditWriteError
from ..runtime.sql_transaction import put, together
from ..runtime.state_store import SqlStore, StateUnavailableError

# Columns are generated from the record itself: separate ones could contradict it.
SCHEMA = """
create table audit (
  seq integer primary key, body text not null, hash text not null,
  at real generated always as (json_extract(body, '$.at')) virtual,
  kind text generated always as (json_extract(body, '$.kind')) virtual,
  actor text generated always as (json_extract(body, '$.actor')) virtual,
  node text generated always as (json_extract(body, '$.node')) virtual,
  task_id text generated always as (json_extract(body, '$.task_id')) virtual
);
create index audit_at on audit (at);
create index audit_kind on audit (kind);
create index audit_actor on audit (actor);
create index audit_node on audit (node) where node is not null;
create index audit_task on audit (task_id) where task_id is not null;
create table vouched (
  node_id text primary key, seq integer not null, head text not null, at real not null
) without rowid;
create table node_heads (
  node_id text primary key, seq integer not null, head text not null, at real not null,
  broken text
) without rowid;
"""
# By the version of the state that each leads to. A step is never edited later.
MIGRATIONS = {4: SCHEMA}
AT_ONCE = 500
# Kinds of records that the hub writes about the chain and about itself, at nobody's request.
SYSTEM_KINDS = ("heads", "hub")


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """A selection of records; None: any."""

    kind: str | None = None
    actor: str | None = None
    node: str | None = None
    task_id: str | None = None
    since: float | None = None
    until: float | None = None
    has_system: bool = True  # records of SYSTEM_KINDS as well

    def clause(self) -> tuple[str, list[Any]]:
        conditions = (("kind =", self.kind), ("actor =", self.actor), ("node =", self.node),
                      ("task_id =", self.task_id), ("at >=", self.since), ("at <", self.until))
        active = [(words, value) for words, value in conditions if value is not None]
        where = "".join(f" and {words} ?" for words, _ in active)
        values = [value for _, value in active]
        if self.has_system:
            return where, values
        places = ", ".join("?" for _ in SYSTEM_KINDS)
        return f"{where} and (kind is null or kind not in ({places}))", [*values, *SYSTEM_KINDS]


@dataclass(frozen=True, slots=True)
class AuditHead:
    """Head of a chain, as the other side stores it."""

    seq: int
    head: str
    at: float
    broken: str | None = None


def _is_disk_error(error: sqlite3.DatabaseError) -> bool:
    """Tell whether the file is at fault (disk full, read-only, busy, damaged), and not the SQL."""
    return type(error) in (sqlite3.OperationalError, sqlite3.DatabaseError)


class AuditStore(SqlStore):
    @contextmanager
    def together(self) -> Iterator[None]:
        """Return a context in which all writes succeed or none. Raises AuditWriteError."""
        try:
            with together(self._db):
                yield
        except StateUnavailableError as error:
            raise AuditWriteError(f"the audit cannot be written ({error}), and actions that cannot "
                                  "be recorded are refused; the hub continues when its database is "
                                  "there again") from error
        except sqlite3.DatabaseError as error:
            if not _is_disk_error(error):
                raise
            if self._db.in_transaction:
                self._db.execute("rollback")
            raise AuditWriteError(f"the audit cannot be written ({error}), and actions that cannot "
                                  "be recorded are refused; free some space on the hub's "
                                  "disk") from error

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Return a context in which all reads see the same moment."""
        self._db.execute("begin")
        try:
            yield
        finally:
            self._db.execute("rollback")

    def append(self, record: Mapping[str, Any]) -> AuditChainLink:
        """Append a record to the chain; call it within `together`."""
        seq, head = self.head()
        new_link = link(seq + 1, head, dict(record))
        self._db.execute("insert into audit (seq, body, hash) values (?, ?, ?)",
                         (new_link.seq, new_link.body, new_link.hash))
        return new_link

    def head(self) -> tuple[int, str]:
        row = self._db.execute("select seq, hash from audit order by seq desc limit 1").fetchone()
        return (0, START) if row is None else (int(row[0]), str(row[1]))

    def hash_at(self, seq: int) -> str | None:
        if seq == 0:
            return START
        row = self._db.execute("select hash from audit where seq = ?", (seq,)).fetchone()
        return None if row is None else str(row[0])

    def links(self, after: int = 0, at_most: int = -1) -> Iterator[AuditChainLink]:
        """Yield the stored records, oldest first, unchecked and in bounded memory."""
        while at_most != 0:
            most = AT_ONCE if at_most < 0 else min(at_most, AT_ONCE)
            batch = [AuditChainLink(*row) for row in self._db.execute(
                "select seq, body, hash from audit where seq > ? order by seq limit ?",
                (after, most))]
            yield from batch
            if len(batch) < most:
                return
            after, at_most = batch[-1].seq, at_most - len(batch)

    def newest(self, filters: AuditFilter, before: int | None, at_most: int
               ) -> list[AuditChainLink]:
        where, values = filters.clause()
        if before is not None:
            where, values = where + " and seq < ?", [*values, before]
        return [AuditChainLink(*row) for row in self._db.execute(
            f"select seq, body, hash from audit where true{where} order by seq desc limit ?",
            (*values, at_most))]

    # -- heads

    def vouched(self) -> dict[str, AuditHead]:
        """Return the heads of our chain by the node that keeps them."""
        return {row[0]: AuditHead(*row[1:]) for row in self._db.execute(
            "select node_id, seq, head, at from vouched")}

    def put_vouched(self, heads: Mapping[str, AuditHead]) -> None:
        put(self._db, "vouched", [
            (node_id, head.seq, head.head, head.at) for node_id, head in heads.items()])

    def node_heads(self) -> dict[str, AuditHead]:
        """Return the heads of the nodes' chains by node."""
        return {row[0]: AuditHead(*row[1:]) for row in self._db.execute("select * from node_heads")}

    def put_node_heads(self, heads: Mapping[str, AuditHead]) -> None:
        put(self._db, "node_heads", [(node_id, *astuple(head)) for node_id, head in heads.items()])

"""The SQL of the pool: claims that were made at the hub, and leases that have ended."""

import msgspec

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.link import ReportedEnd

from ..runtime.sql_transaction import put
from ..runtime.state_store import SqlConnection

SCHEMA = """
create table pool_claims (id text primary key, body blob not null) without rowid;
create table pool_ended (
  id text primary key, node_id text not null, ended_at real not null, body blob not null
) without rowid;
create index pool_ended_at on pool_ended (ended_at);
"""

_encode = msgspec.json.Encoder().encode
_claim = msgspec.json.Decoder(Claim).decode
_end = msgspec.json.Decoder(ReportedEnd).decode


class PoolStore:
    def __init__(self, db: SqlConnection) -> None:
        self._db = db

    def claims(self) -> list[Claim]:
        return [_claim(body) for (body,) in self._db.execute("select body from pool_claims")]

    def put_claim(self, claim: Claim) -> None:
        put(self._db, "pool_claims", [(claim.id, _encode(claim))])

    def remove_claim(self, claim_id: str) -> None:
        self._db.execute("delete from pool_claims where id = ?", (claim_id,))

    def ended(self, since: float) -> list[tuple[str, ReportedEnd]]:
        """(node, lease), oldest first."""
        return [(node_id, _end(body)) for node_id, body in self._db.execute(
            "select node_id, body from pool_ended where ended_at >= ? order by ended_at, id",
            (since,))]

    def put_ended(self, node_id: str, end: ReportedEnd) -> None:
        put(self._db, "pool_ended", [(end.claim.id, node_id, end.ended_at, _encode(end))])

    def forget_ended(self, before: float) -> None:
        self._db.execute("delete from pool_ended where ended_at < ?", (before,))

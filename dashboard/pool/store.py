"""The SQL of the pool: its policy, claims that were made at the hub, what is kept for claims to
come, leases that have ended, and since when nodes tell of theirs."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from gpudeck.contract.pool_link import ReportedEnd
from gpudeck.pool.core.claims import Booking, Claim
from gpudeck.pool.core.schedule import PoolPolicy

from ..runtime.sql_transaction import put, together
from ..runtime.state_store import SqlStore

SCHEMA = """
create table pool_claims (id text primary key, body blob not null) without rowid;
create table pool_bookings (id text primary key, body blob not null) without rowid;
create table pool_policy (id text primary key, body blob not null) without rowid;
create table pool_ended (
  id text, node_id text, ended_at real not null, body blob not null, primary key (id, node_id)
) without rowid;
create index pool_ended_at on pool_ended (ended_at);
"""
# `pool_offered`: claims that were made at the hub, and nodes that they were offered to.
TIMES_SCHEMA = """
create table pool_times (
  node_id text, id text, asked_at real not null, since real,
  primary key (node_id, id)
) without rowid;
create table pool_offered (id text, node_id text, primary key (id, node_id)) without rowid;
"""
# By the version of the state that each leads to. A step is never edited later.
MIGRATIONS = {16: SCHEMA, 20: TIMES_SCHEMA}

_encode = msgspec.json.Encoder().encode
_claim = msgspec.json.Decoder(Claim).decode
_booking = msgspec.json.Decoder(Booking).decode
_policy = msgspec.json.Decoder(PoolPolicy).decode
_end = msgspec.json.Decoder(ReportedEnd).decode


class ClaimTimes(NamedTuple):
    """Times of a claim, by the hub's clock. `since`: of its lease; None: it waits."""

    asked_at: float
    since: float | None = None


class PoolStore(SqlStore):
    def claims(self) -> list[Claim]:
        return [_claim(body) for (body,) in self._db.execute("select body from pool_claims")]

    def put_claim(self, claim: Claim) -> None:
        put(self._db, "pool_claims", [(claim.id, _encode(claim))])

    def remove_claim(self, claim_id: str) -> None:
        with together(self._db, reads=False):
            self._db.execute("delete from pool_claims where id = ?", (claim_id,))
            self._db.execute("delete from pool_offered where id = ?", (claim_id,))

    def offered(self) -> Iterator[tuple[str, str]]:
        """Yield (claim, node)."""
        yield from self._db.execute("select id, node_id from pool_offered")

    def put_offered(self, offered: Iterable[tuple[str, str]]) -> None:
        with together(self._db, reads=False):
            put(self._db, "pool_offered", offered)

    def times(self) -> Iterator[tuple[str, str, ClaimTimes]]:
        """Yield (node, claim, times)."""
        for node_id, claim_id, asked_at, since in self._db.execute(
                "select node_id, id, asked_at, since from pool_times"):
            yield node_id, claim_id, ClaimTimes(asked_at, since)

    def put_times(self, node_id: str, new: Mapping[str, ClaimTimes], removed: Collection[str]
                  ) -> None:
        with together(self._db, reads=False):
            self._db.executemany("delete from pool_times where node_id = ? and id = ?",
                                 [(node_id, claim_id) for claim_id in removed])
            put(self._db, "pool_times", [(node_id, claim_id, *times)
                                         for claim_id, times in new.items()])

    def forget_times(self, node_id: str) -> None:
        self._db.execute("delete from pool_times where node_id = ?", (node_id,))

    def bookings(self) -> list[Booking]:
        return [_booking(body) for (body,) in self._db.execute("select body from pool_bookings")]

    def put_booking(self, booking: Booking) -> None:
        put(self._db, "pool_bookings", [(booking.claim.id, _encode(booking))])

    def remove_booking(self, claim_id: str) -> None:
        self._db.execute("delete from pool_bookings where id = ?", (claim_id,))

    def policy(self) -> PoolPolicy:
        policies = [_policy(body) for (body,) in self._db.execute("select body from pool_policy")]
        return policies[0] if policies else PoolPolicy()

    def put_policy(self, policy: PoolPolicy) -> None:
        put(self._db, "pool_policy", [("pool", _encode(policy))])

    def ended_since(self, since: float) -> Iterator[tuple[str, ReportedEnd]]:
        """Yield (node, lease), one by one: of a large fleet there are many."""
        for node_id, body in self._db.execute(
                "select node_id, body from pool_ended where ended_at >= ?", (since,)):
            yield node_id, _end(body)

    def last_ended(self, most: int) -> list[tuple[str, ReportedEnd]]:
        """Return the leases that ended last, oldest first."""
        rows = self._db.execute("select node_id, body from pool_ended "
                                "order by ended_at desc, id desc limit ?", (most,))
        return [(node_id, _end(body)) for node_id, body in rows][::-1]

    def body_of(self, end: ReportedEnd) -> bytes:
        return _encode(end)

    def add_ended(self, node_id: str, ends: Iterable[tuple[ReportedEnd, bytes]]
                  ) -> list[ReportedEnd]:
        """Store leases that have ended; return those that were not known."""
        with together(self._db, reads=False):
            return [end for end, body in ends if self._db.execute(
                "insert into pool_ended values (?, ?, ?, ?) on conflict do nothing",
                (end.claim.id, node_id, end.ended_at, body)).rowcount == 1]

    def forget_ended_of(self, node_id: str) -> None:
        self._db.execute("delete from pool_ended where node_id = ?", (node_id,))

    def forget_ended(self, before: float) -> None:
        self._db.execute("delete from pool_ended where ended_at < ?", (before,))

"""The SQL of quotas: every version that was ever in force, and the generation of all of them."""

import sqlite3
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from gpudeck.contract.quota import Quota, meaning

from ..runtime.sql_transaction import put, together
from ..runtime.state_store import SqlStore, StateUnavailableError

SCHEMA = """
create table quotas (
  id text not null, generation integer not null, body blob not null, by text not null,
  set_at real not null, is_there integer not null, primary key (id, generation)
) without rowid;
create table quota_generation (one integer primary key check (one = 1), number integer not null);
insert into quota_generation values (1, 0);
"""
# In which Unix groups a user was when a task of theirs was seen last: history knows users alone.
GROUPS_SCHEMA = """
create table quota_groups (user text primary key, groups text not null) without rowid;
"""
# By the version of the state that each leads to. A step is never edited later.
MIGRATIONS = {12: SCHEMA, 13: GROUPS_SCHEMA}
VERSIONS_MOST = 100
CANNOT_STORE = (sqlite3.Error, StateUnavailableError)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Quota).decode
_groups = msgspec.json.Decoder(list[str]).decode


class QuotaVersion(Struct, frozen=True):
    """A quota as it was written, and the generation since which it is in force."""

    quota: Quota
    meaning: str
    generation: int
    by: str
    set_at: float
    is_there: bool


class QuotasStore(SqlStore):
    def generation(self) -> int:
        return int(self._db.execute("select number from quota_generation").fetchone()[0])

    def next_generation(self) -> int:
        self._db.execute("update quota_generation set number = number + 1")
        return self.generation()

    def quotas(self) -> dict[str, QuotaVersion]:
        """Return the quotas in force, by id."""
        rows = self._db.execute(
            "select body, generation, by, set_at, is_there from quotas q where is_there = 1 and "
            "generation = (select max(generation) from quotas where id = q.id) order by id")
        return {version.quota.id: version for version in map(_version, rows)}

    def put(self, quota: Quota, by: str, now: float, is_there: bool = True) -> None:
        self._db.execute("insert into quotas values (?, ?, ?, ?, ?, ?)",
                         (quota.id, self.next_generation(), _encode(quota), by, now, is_there))

    def groups(self) -> dict[str, frozenset[str]]:
        return {user: frozenset(_groups(body))
                for user, body in self._db.execute("select user_name, groups from quota_groups")}

    def put_groups(self, of: Mapping[str, Iterable[str]]) -> None:
        with together(self._db):
            put(self._db, "quota_groups",
                [(user, _encode(sorted(groups)).decode()) for user, groups in of.items()])

    def versions(self, quota_id: str) -> list[QuotaVersion]:
        """Return the versions of a quota, newest first."""
        return [_version(row) for row in self._db.execute(
            "select body, generation, by, set_at, is_there from quotas where id = ? "
            "order by generation desc limit ?", (quota_id, VERSIONS_MOST))]


def _version(row: tuple[bytes, int, str, float, int]) -> QuotaVersion:
    body, generation, by, set_at, is_there = row
    quota = _decode(body)
    return QuotaVersion(quota, meaning(quota), generation, by, set_at, bool(is_there))

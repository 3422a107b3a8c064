"""The SQL of jobs: what is known of each in words, and the table of teams."""

import sqlite3
from collections.abc import Collection, Iterable

import msgspec

from ..runtime.sql_transaction import put, together
from ..runtime.state_store import SqlStore, StateUnavailableError
from .core.records import JobRecord
from .core.teams import Team

SCHEMA = """
create table jobs (
  id text, node text, launch text, last_seen real not null, ended_at real, body blob not null,
  primary key (id, node)
) without rowid;
create index jobs_last_seen on jobs (last_seen);
create index jobs_launch on jobs (launch) where launch is not null;
create table teams (place integer primary key, body blob not null);
"""
AT_ONCE = 500
ALL = 2**62
CANNOT_STORE = (sqlite3.Error, StateUnavailableError)

_encode = msgspec.json.Encoder().encode
_record = msgspec.json.Decoder(JobRecord).decode
_team = msgspec.json.Decoder(Team).decode


class JobsStore(SqlStore):
    def put(self, records: Collection[JobRecord]) -> None:
        with together(self._db):
            put(self._db, "jobs", [(one.id, one.node, one.launch, one.last_seen, one.ended_at,
                                    _encode(one)) for one in records])

    def open(self) -> list[JobRecord]:
        """Those that were not seen to end."""
        return [_record(body) for (body,) in self._db.execute(
            "select body from jobs where ended_at is null")]

    def of_ids(self, ids: Iterable[str]) -> list[JobRecord]:
        return self._of("id", ids)

    def of_launches(self, launches: Iterable[str]) -> list[JobRecord]:
        return self._of("launch", launches)

    def _of(self, column: str, values: Iterable[str]) -> list[JobRecord]:
        wanted = sorted(set(values))
        found: list[JobRecord] = []
        for at in range(0, len(wanted), AT_ONCE):
            part = wanted[at : at + AT_ONCE]
            marks = ", ".join("?" * len(part))
            found += [_record(body) for (body,) in self._db.execute(
                f"select body from jobs where {column} in ({marks})", part)]
        return found

    def ended(self, since: float, most: int) -> list[JobRecord]:
        """Newest first."""
        return [_record(body) for (body,) in self._db.execute(
            "select body from jobs where last_seen >= ? and ended_at is not null "
            "order by last_seen desc limit ?", (since, most))]

    def forget(self, before: float, most: int) -> None:
        """Those that have ended before, and of all the oldest beyond `most`."""
        self._db.execute("delete from jobs where last_seen < ? and ended_at is not null", (before,))
        self._db.execute(
            "delete from jobs where (id, node) in (select id, node from jobs "
            "order by last_seen desc limit ? offset ?)", (ALL, most))

    def teams(self) -> tuple[Team, ...]:
        return tuple(_team(body) for (body,) in self._db.execute(
            "select body from teams order by place"))

    def put_teams(self, teams: Iterable[Team]) -> None:
        self._db.execute("delete from teams")
        put(self._db, "teams", [(place, _encode(team)) for place, team in enumerate(teams)])

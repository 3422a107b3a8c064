"""The SQL of jobs: the words of each, and the table of teams."""

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
# By the version of the state that each leads to. A step is never edited later.
MIGRATIONS = {18: SCHEMA}
AT_ONCE = 500
ALL = 2**62
CANNOT_STORE = (sqlite3.Error, StateUnavailableError)

_encode = msgspec.json.Encoder().encode
_record = msgspec.json.Decoder(JobRecord).decode
_team = msgspec.json.Decoder(Team).decode


class JobsStore(SqlStore):
    def put(self, records: Collection[JobRecord]) -> None:
        with together(self._db):
            put(self._db, "jobs", [(job.id, job.node, job.launch, job.last_seen, job.ended_at,
                                    _encode(job)) for job in records])

    def open(self) -> list[JobRecord]:
        """Return the jobs that were not seen to end."""
        return [_record(body) for (body,) in self._db.execute(
            "select body from jobs where ended_at is null")]

    def of_ids(self, ids: Iterable[str]) -> list[JobRecord]:
        return self._of("id", ids)

    def of_launches(self, launches: Iterable[str]) -> list[JobRecord]:
        return self._of("launch", launches)

    def _of(self, column: str, values: Iterable[str]) -> list[JobRecord]:
        keys = sorted(set(values))
        records: list[JobRecord] = []
        for at in range(0, len(keys), AT_ONCE):
            part = keys[at : at + AT_ONCE]
            marks = ", ".join("?" * len(part))
            records += [_record(body) for (body,) in self._db.execute(
                f"select body from jobs where {column} in ({marks})", part)]
        return records

    def ended(self, since: float, most: int) -> list[JobRecord]:
        """Return jobs that have ended, newest first."""
        return [_record(body) for (body,) in self._db.execute(
            "select body from jobs where last_seen >= ? and ended_at is not null "
            "order by last_seen desc limit ?", (since, most))]

    def forget(self, before: float, most: int) -> None:
        """Delete jobs that ended before, and of all the oldest beyond `most`."""
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

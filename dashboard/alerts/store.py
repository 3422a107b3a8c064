"""The SQL of rules, alerts and silences."""

import sqlite3
from collections.abc import Sequence

import msgspec

from ..runtime.sql_transaction import put, together
from ..runtime.state_store import SqlStore, StateUnavailableError
from .core.firing_alerts import Alert
from .core.query import AlertQuery
from .core.restart_state import SavedRuleStates
from .core.rule import Rule
from .core.silence import Silence
from .rehearsal.record import RehearsalRecord

# A Rule has a row per version that was ever in force: what fired is looked up by what it meant.
SCHEMA = """
create table rules (
  id text not null, number integer not null, body blob not null, by text not null,
  set_at real not null, is_there integer not null, primary key (id, number)
) without rowid;
create table alerts (
  id text primary key, rule_id text not null, node_id text not null, target text not null,
  fired_at real not null, ended_at real, body blob not null
) without rowid;
create index alerts_by_time on alerts (fired_at);
create index alerts_open on alerts (ended_at) where ended_at is null;
create table silences (id text primary key, until real not null, body blob not null) without rowid;
"""
# One row: what rules that only tell remember over a restart.
MEMORY_SCHEMA = """
create table alert_memory (id integer primary key check (id = 1), body blob not null);
"""
# Where each is, or ever was, marked: its target and the GPUs that it was on.
MARKS_SCHEMA = """
create table alert_marks (at text not null, alert_id text not null, primary key (at, alert_id))
  without rowid;
create index alert_marks_by_alert on alert_marks (alert_id);
insert into alert_marks select target, id from alerts;
create index alerts_by_end on alerts (ended_at) where ended_at is not null;
"""
BACKTEST_SCHEMA = """
create table backtests (
  id text primary key, rule_id text not null, asked_at real not null, body blob not null
) without rowid;
create index backtests_by_time on backtests (asked_at);
"""
MOST_BACKTESTS = 200
KEPT_S = 90 * 86_400
MOST_LISTED = 1_000
AlertPlace = tuple[float, str]  # in a list, newest first: when it fired, and its id
NEAR_S = 8 * 86_400

CANNOT_STORE = (sqlite3.Error, StateUnavailableError)

_encode = msgspec.json.Encoder().encode
_rules = msgspec.json.Decoder(Rule)
_alerts = msgspec.json.Decoder(Alert)
_backtests = msgspec.json.Decoder(RehearsalRecord)
_memory = msgspec.json.Decoder(SavedRuleStates)
_silences = msgspec.json.Decoder(Silence)


class AlertsStore(SqlStore):
    # -- rules

    def rules(self) -> dict[str, tuple[int, Rule]]:
        """Those in force, each with the number of its newest version."""
        rows = self._db.execute(
            "select id, number, body from rules r where is_there = 1 and number = "
            "(select max(number) from rules where id = r.id) order by id")
        return {rule_id: (number, _rules.decode(body)) for rule_id, number, body in rows}

    def has_any_rule(self) -> bool:
        """Also of those that were removed."""
        return self._db.execute("select 1 from rules limit 1").fetchone() is not None

    def put_rule(self, rule: Rule, by: str, now: float, is_there: bool = True) -> int:
        number = int(self._db.execute(
            "select coalesce(max(number), 0) + 1 from rules where id = ?", (rule.id,)
        ).fetchone()[0])
        self._db.execute("insert into rules values (?, ?, ?, ?, ?, ?)",
                         (rule.id, number, _encode(rule), by, now, is_there))
        return number

    def versions(self, rule_id: str) -> list[tuple[int, str, float, bool, Rule]]:
        return [(number, by, at, bool(is_there), _rules.decode(body))
                for number, by, at, is_there, body in self._db.execute(
                    "select number, by, set_at, is_there, body from rules where id = ? "
                    "order by number desc limit 100", (rule_id,))]

    # -- alerts

    def put_alerts(self, alerts: Sequence[Alert]) -> None:
        """Raises CANNOT_STORE."""
        with together(self._db):
            self._db.executemany(
                "insert into alert_marks values (?, ?) on conflict do nothing",
                [(at, each.id) for each in alerts for at in (each.target.key, *each.target.gpus)])
            put(self._db, "alerts", [
                (each.id, each.rule_id, each.target.node_id, each.target.key, each.fired_at,
                 each.ended_at, _encode(each)) for each in alerts])

    def open_alerts(self) -> list[Alert]:
        return [_alerts.decode(body) for body, in self._db.execute(
            "select body from alerts where ended_at is null")]

    def fired_since(self, start: float) -> list[tuple[str, float, int]]:
        """How many, by node and minute, oldest first."""
        return [(node_id, 60.0 * minute, count) for node_id, minute, count in self._db.execute(
            "select node_id, cast(fired_at / 60 as integer), count(*) from alerts "
            "where fired_at >= ? and node_id <> '' group by 1, 2 order by 2", (start,))]

    def ended_alerts(self, start: float, end: float, about: AlertQuery, rule: str | None = None,
                     after: AlertPlace | None = None, limit: int = MOST_LISTED) -> list[Alert]:
        """Those that fired in this time, if only at its begin. Newest first; `after`: behind this
        place."""
        only, given = _only(about)
        if rule is not None:
            only, given = f"{only} and rule_id = ?", [*given, rule]
        if after is not None:
            only = f"{only} and (fired_at < ? or (fired_at = ? and id > ?))"
            given = [*given, after[0], after[0], after[1]]
        # Of the last days there are few, of all some are soon found: either way by its index.
        fired_at = "+fired_at" if only or end - start <= NEAR_S else "fired_at"
        return [_alerts.decode(body) for body, in self._db.execute(
            f"select body from alerts where ended_at >= ? and {fired_at} < ?{only} "
            f"order by {fired_at} desc, id limit ?", (start, end, *given, limit))]

    def forget(self, now: float) -> None:
        self._db.execute("delete from alert_marks where alert_id in "
                         "(select id from alerts where ended_at < ?)", (now - KEPT_S,))
        self._db.execute("delete from alerts where ended_at < ?", (now - KEPT_S,))

    def memory(self) -> SavedRuleStates | None:
        found = self._db.execute("select body from alert_memory").fetchone()
        return None if found is None else _memory.decode(found[0])

    def put_memory(self, memory: SavedRuleStates) -> None:
        put(self._db, "alert_memory", [(1, _encode(memory))])

    # -- silences

    def silences(self) -> dict[str, Silence]:
        return {found.id: found for found in (
            _silences.decode(body) for body, in self._db.execute(
                "select body from silences order by until"))}

    def put_silence(self, silence: Silence) -> None:
        put(self._db, "silences", [(silence.id, silence.until, _encode(silence))])

    # -- rehearsals

    def backtests(self, rule_id: str | None = None) -> list[RehearsalRecord]:
        """Newest first."""
        only, given = ("", ()) if rule_id is None else (" where rule_id = ?", (rule_id,))
        return [_backtests.decode(body) for body, in self._db.execute(
            f"select body from backtests{only} order by asked_at desc", given)]

    def backtest(self, backtest_id: str) -> RehearsalRecord | None:
        found = self._db.execute("select body from backtests where id = ?",
                                 (backtest_id,)).fetchone()
        return None if found is None else _backtests.decode(found[0])

    def put_backtest(self, made: RehearsalRecord) -> None:
        """What somebody has approved stays, however many there are."""
        put(self._db, "backtests", [(made.id, made.rule_id, made.asked_at, _encode(made))])
        newest = self._db.execute("select id from backtests order by asked_at desc").fetchall()
        for old_id, in newest[MOST_BACKTESTS:]:
            old = self.backtest(old_id)
            if old is not None and old.approved_by is None:
                self._db.execute("delete from backtests where id = ?", (old_id,))


def _only(about: AlertQuery) -> tuple[str, list[str | float]]:
    """As `About.matches`, and what was marked there before it moved on."""
    parts: list[str] = []
    given: list[str | float] = []
    if about.targets is not None:
        parts.append(f"target in ({_marks(about.targets)})")
        given += about.targets
    if about.gpus is not None:
        parts.append("id in (select alert_id from alert_marks where at in "
                     f"({_marks(about.marking)}))")
        given += about.marking
    return "".join(f" and {part}" for part in parts), given


def _marks(those: frozenset[str]) -> str:
    return ", ".join("?" * len(those)) or "null"  # an empty list is no SQL everywhere

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

# A Rule has a row for each version that was ever in force, to look up what an alert meant.
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
# One row: what rules without a ladder keep over a restart.
MEMORY_SCHEMA = """
create table alert_memory (id integer primary key check (id = 1), body blob not null);
"""
# Where each alert is or ever was marked: its target and the GPUs that it was on.
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
# By the version of the state that each leads to. A step is never edited later.
MIGRATIONS = {7: SCHEMA, 8: MEMORY_SCHEMA, 9: BACKTEST_SCHEMA, 14: MARKS_SCHEMA}
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
        """Return the rules in force, each with the number of its newest version."""
        rows = self._db.execute(
            "select id, number, body from rules r where is_there = 1 and number = "
            "(select max(number) from rules where id = r.id) order by id")
        return {rule_id: (number, _rules.decode(body)) for rule_id, number, body in rows}

    def has_any_rule(self) -> bool:
        """Return whether there ever was a rule, removed ones included."""
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
                [(at, alert.id) for alert in alerts
                 for at in (alert.target.key, *alert.target.gpus)])
            put(self._db, "alerts", [
                (alert.id, alert.rule_id, alert.target.node_id, alert.target.key, alert.fired_at,
                 alert.ended_at, _encode(alert)) for alert in alerts])

    def open_alerts(self) -> list[Alert]:
        return [_alerts.decode(body) for body, in self._db.execute(
            "select body from alerts where ended_at is null")]

    def fired_since(self, start: float) -> list[tuple[str, float, int]]:
        """Return how many alerts fired since `start`, by node and minute, oldest minute first."""
        return [(node_id, 60.0 * minute, count) for node_id, minute, count in self._db.execute(
            "select node_id, cast(fired_at / 60 as integer), count(*) from alerts "
            "where fired_at >= ? and node_id <> '' group by 1, 2 order by 2", (start,))]

    def ended_since(self, start: float, limit: int) -> list[Alert]:
        """Return the newest alerts that ended since `start`, the last to end last."""
        newest = [_alerts.decode(body) for body, in self._db.execute(
            "select body from alerts where ended_at >= ? order by ended_at desc limit ?",
            (start, limit))]
        return newest[::-1]

    def ended_alerts(self, start: float, end: float, query: AlertQuery, rule: str | None = None,
                     after: AlertPlace | None = None, limit: int = MOST_LISTED) -> list[Alert]:
        """Return alerts that were firing between `start` and `end`, also those that ended right at
        `start`; newest first. `after`: continue behind this place."""
        conditions, parameters = _only(query)
        if rule is not None:
            conditions, parameters = f"{conditions} and rule_id = ?", [*parameters, rule]
        if after is not None:
            conditions = f"{conditions} and (fired_at < ? or (fired_at = ? and id > ?))"
            parameters = [*parameters, after[0], after[0], after[1]]
        # Few alerts ended in the last days; without a filter a page soon fills: one index each.
        fired_at = "+fired_at" if conditions or end - start <= NEAR_S else "fired_at"
        return [_alerts.decode(body) for body, in self._db.execute(
            f"select body from alerts where ended_at >= ? and {fired_at} < ?{conditions} "
            f"order by {fired_at} desc, id limit ?", (start, end, *parameters, limit))]

    def forget(self, now: float) -> None:
        self._db.execute("delete from alert_marks where alert_id in "
                         "(select id from alerts where ended_at < ?)", (now - KEPT_S,))
        self._db.execute("delete from alerts where ended_at < ?", (now - KEPT_S,))

    def memory(self) -> SavedRuleStates | None:
        row = self._db.execute("select body from alert_memory").fetchone()
        return None if row is None else _memory.decode(row[0])

    def put_memory(self, memory: SavedRuleStates) -> None:
        put(self._db, "alert_memory", [(1, _encode(memory))])

    # -- silences

    def silences(self) -> dict[str, Silence]:
        return {silence.id: silence for silence in (
            _silences.decode(body) for body, in self._db.execute(
                "select body from silences order by until"))}

    def put_silence(self, silence: Silence) -> None:
        put(self._db, "silences", [(silence.id, silence.until, _encode(silence))])

    # -- rehearsals

    def backtests(self, rule_id: str | None = None) -> list[RehearsalRecord]:
        """Return rehearsals, newest first."""
        condition, parameters = ("", ()) if rule_id is None else (" where rule_id = ?", (rule_id,))
        return [_backtests.decode(body) for body, in self._db.execute(
            f"select body from backtests{condition} order by asked_at desc", parameters)]

    def backtest(self, backtest_id: str) -> RehearsalRecord | None:
        row = self._db.execute("select body from backtests where id = ?",
                               (backtest_id,)).fetchone()
        return None if row is None else _backtests.decode(row[0])

    def put_backtest(self, record: RehearsalRecord) -> None:
        """Store a rehearsal. The oldest beyond MOST_BACKTESTS are deleted, but never an approved
        one."""
        put(self._db, "backtests", [(record.id, record.rule_id, record.asked_at, _encode(record))])
        newest = self._db.execute("select id from backtests order by asked_at desc").fetchall()
        for old_id, in newest[MOST_BACKTESTS:]:
            old = self.backtest(old_id)
            if old is not None and old.approved_by is None:
                self._db.execute("delete from backtests where id = ?", (old_id,))


def _only(query: AlertQuery) -> tuple[str, list[str | float]]:
    """Return SQL conditions for `AlertQuery.matches`, which also find alerts by GPUs they were on
    before."""
    parts: list[str] = []
    parameters: list[str | float] = []
    if query.targets is not None:
        parts.append(f"target in ({_marks(query.targets)})")
        parameters += query.targets
    if query.gpus is not None:
        parts.append("id in (select alert_id from alert_marks where at in "
                     f"({_marks(query.marking)}))")
        parameters += query.marking
    return "".join(f" and {part}" for part in parts), parameters


def _marks(names: frozenset[str]) -> str:
    return ", ".join("?" * len(names)) or "null"  # not every engine accepts an empty list

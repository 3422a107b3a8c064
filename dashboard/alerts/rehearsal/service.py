"""Rehearsals of rules: one at a time, in a separate thread, and their records."""

import logging
import secrets
import time
from collections.abc import Callable, Iterable

import gevent
from gevent.lock import BoundedSemaphore
from msgspec.structs import replace

from ...access.policy import Actor, actor_fields
from ...access.rights import require
from ...audit.recorder import AuditRecorder
from ...errors import InvalidChangeError, NotFoundError, ResultTooLargeError
from ...fleet.fleet import Fleet
from ...fleet.members import EnrolledNode
from ...history.reads.protocol import RuleHistory
from ..core.rule import Of, Rule, check
from ..store import AlertsStore
from .engine import ACTS, RehearsalEngine, RehearsedAlert
from .fleet import FleetRehearsalSource
from .gpus import GpuRehearsalSource
from .nodes import NodeRehearsalSource
from .record import MOST_LISTED, RehearsalRecord, RehearsalVictim, alert_record
from .source import MOST_S, CannotRehearseError, RehearsalSource, members_of
from .tasks import TaskRehearsalSource

log = logging.getLogger("gpudeck.alerts")

SOURCES: dict[Of, type[RehearsalSource]] = {
    "gpu": GpuRehearsalSource, "task": TaskRehearsalSource, "job": TaskRehearsalSource,
    "node": NodeRehearsalSource, "owner": TaskRehearsalSource, "fleet": FleetRehearsalSource}
MOST_WAITING = 4
DUTY = 0.6  # the share of time for which it works


class RehearsalService:
    """Rehearses rules on stored history. `person_of`: an approval by token counts as one by the
    person behind it, so that nobody approves their own rule."""

    def __init__(self, store: AlertsStore, auditor: AuditRecorder, fleet: Fleet,
                 history: RuleHistory, members: Callable[[], Iterable[EnrolledNode]],
                 person_of: Callable[[Actor], str]) -> None:
        self._store = store
        self._auditor = auditor
        self._fleet = fleet
        self._history = history
        self._members = members
        self._person_of = person_of
        self._turn = BoundedSemaphore(1)
        self._running: dict[str, RehearsalRecord] = {}
        for record in store.backtests():
            if record.state == "running":
                store.put_backtest(replace(record, state="failed",
                                           why="the hub was restarted; start it again"))

    def begin(self, actor: Actor, rule: Rule, start: float, end: float) -> RehearsalRecord:
        require(actor, "POST /api/v1/rules/backtests")
        ready, now = check(rule), time.time()
        try:
            source = SOURCES[rule.of](self._history, self._fleet, ready,
                                      members_of(self._members()))
        except CannotRehearseError as error:
            raise InvalidChangeError(str(error)) from error
        first, last = self._span(source, start, min(end, now))
        if len(self._running) >= MOST_WAITING:
            raise InvalidChangeError("too many rehearsals are running; try again when one has "
                                     "finished")
        record = RehearsalRecord("b" + secrets.token_hex(8), rule, rule.id, ready.version, first,
                                 last, actor.name, now, source.step_s, off_by_s=source.off_by_s)
        with self._auditor.change("backtest", actor_fields(actor) | {"action": "begin", "detail": {
                "backtest": record.id, "rule": rule.id, "version": ready.version,
                "start": first, "end": last}}):
            self._store.put_backtest(record)
        self._running[record.id] = record
        gevent.spawn(self._run, record, source)
        return record

    def _span(self, source: RehearsalSource, start: float, end: float) -> tuple[int, int]:
        """Return the span cut to what history holds."""
        begin = self._history.begins(source.reads_s)
        if begin is None:
            raise InvalidChangeError("history has nothing to rehearse on yet")
        first, last = whole_steps(start, end, begin, source.step_s)
        if first >= last:
            raise InvalidChangeError(
                f"there is no history for that time; it begins at {_clock(begin)}" + (
                    "" if source.reads_s > 1 else ", for a rule that reads every second"))
        if last - first > MOST_S:
            raise InvalidChangeError(f"at most {MOST_S // 86_400} days at once")
        return first, last

    def _run(self, record: RehearsalRecord, source: RehearsalSource) -> None:
        with self._turn:
            finished = gevent.get_hub().threadpool.apply(self._rehearse, (record, source))
        del self._running[record.id]
        self._store.put_backtest(finished)

    def _rehearse(self, record: RehearsalRecord, source: RehearsalSource) -> RehearsalRecord:
        """Rehearse in a native thread; no exception may leave it."""
        try:
            return self._compute(record, source)
        except (CannotRehearseError, ResultTooLargeError) as error:
            return replace(record, state="failed", why=str(error))
        except Exception as error:
            log.exception("rehearsal_failed")
            return replace(record, state="failed", why=f"{type(error).__name__}: {error}"[:400])

    def _compute(self, record: RehearsalRecord, source: RehearsalSource) -> RehearsalRecord:
        rehearsal = RehearsalEngine(source.ready, _breather(), source.refusal)
        for chunk in source.stretches(int(record.start), int(record.end)):
            rehearsal.take(chunk)
            source.settle(rehearsal.alerts())
            done_s = chunk.t0 + chunk.width * chunk.step_s - record.start
            self._running[record.id] = replace(
                record, progress=done_s / (record.end - record.start))
        alerts = rehearsal.alerts()
        victims = self._victims(alerts, source)
        refusals = [RehearsalVictim(source.name(alert.row), do, at, None, why)
                    for alert in alerts for do, at, why in alert.refusals]
        hours = [victim.gpu_hours for victim in victims if victim.gpu_hours is not None]
        return replace(
            record, state="done", progress=1.0, targets=rehearsal.targets, alerts_count=len(alerts),
            alerts=tuple(alert_record(alert, source.name(alert.row))
                         for alert in alerts[:MOST_LISTED]),
            victims_count=len(victims), victims=tuple(victims[:MOST_LISTED]),
            gpu_hours=sum(hours) if len(hours) == len(victims) else None,
            refused_count=len(refusals), refused=tuple(refusals[:MOST_LISTED]))

    @staticmethod
    def _victims(alerts: list[RehearsedAlert], source: RehearsalSource) -> list[RehearsalVictim]:
        return [RehearsalVictim(source.name(alert.row), do, at, source.hours.get((alert.row, at)))
                for alert in alerts for do, at in alert.acts[-1:] if do in ACTS]

    # -- records

    def get(self, backtest_id: str) -> RehearsalRecord:
        record = self._running.get(backtest_id) or self._store.backtest(backtest_id)
        if record is None:
            raise NotFoundError("there is no such rehearsal")
        return record

    def of_rule(self, rule_id: str | None = None) -> list[RehearsalRecord]:
        """Return rehearsals of one rule, or of all, newest first."""
        return [self._running.get(record.id, record) for record in self._store.backtests(rule_id)]

    def approve(self, actor: Actor, backtest_id: str) -> RehearsalRecord:
        """Approve a report, for someone who has read it. RuleAdmin checks that this is not the
        rule's author."""
        require(actor, "POST /api/v1/rules/backtests/<backtest_id>/approve")
        record = self.get(backtest_id)
        if record.state != "done":
            raise InvalidChangeError("it has no report that could be approved")
        approved = replace(record, approved_by=self._person_of(actor), approved_at=time.time())
        with self._auditor.change("backtest", actor_fields(actor) | {
                "action": "approve", "detail": {
                    "backtest": record.id, "rule": record.rule_id, "version": record.rule_version,
                    "victims": record.victims_count}}):
            self._store.put_backtest(approved)
        return approved


def _breather() -> Callable[[], None]:
    """Return a function that sleeps for a share of the time used since its last call, so that the
    main loop can run."""
    last = time.monotonic()

    def rest() -> None:
        nonlocal last
        used_s = time.monotonic() - last
        time.sleep(min(0.2, used_s * (1 - DUTY) / DUTY))
        last = time.monotonic()

    return rest


def whole_steps(start: float, end: float, kept_from: float, step_s: int) -> tuple[int, int]:
    """Return a span in whole minutes, or seconds. A full week stays one: what a rehearsal proves
    depends on its span."""
    first = max(int(start // step_s), -int(-kept_from // step_s)) * step_s
    return first, int(end) // step_s * step_s


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))

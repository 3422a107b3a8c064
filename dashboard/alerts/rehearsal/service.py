"""Rehearsals of rules: one at a time, beside the loop, and their records."""

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
from ...history.protocol import RuleHistory
from ..core.rule import Of, Rule, check
from ..store import AlertsStore
from .engine import ACTS, RehearsalEngine, RehearsedAlert
from .fleet import FleetRehearsalSource
from .gpus import GpuRehearsalSource
from .nodes import NodeRehearsalSource
from .owners import OwnerRehearsalSource
from .record import MOST_LISTED, RehearsalRecord, RehearsalVictim, told
from .source import MOST_S, CannotRehearseError, RehearsalSource, members_of
from .tasks import TaskRehearsalSource

log = logging.getLogger("gpudeck.rehearsals")

SOURCES: dict[Of, type[RehearsalSource]] = {
    "gpu": GpuRehearsalSource, "task": TaskRehearsalSource, "job": TaskRehearsalSource,
    "node": NodeRehearsalSource, "owner": OwnerRehearsalSource, "fleet": FleetRehearsalSource}
MOST_WAITING = 4
DUTY = 0.6  # the share of the time that it takes for itself


class RehearsalService:
    """Rehearses rules on stored history. `person_of`: the person behind a token approves what it
    approves, so that nobody approves their own rule."""

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
        for left in store.backtests():
            if left.state == "running":
                store.put_backtest(replace(left, state="failed",
                                           why="the hub was restarted; start it again"))

    def begin(self, actor: Actor, rule: Rule, start: float, end: float) -> RehearsalRecord:
        require(actor, "POST /api/v1/rules/backtests")
        ready, now = check(rule), time.time()
        try:
            past = SOURCES[rule.of](self._history, self._fleet, ready, members_of(self._members()))
        except CannotRehearseError as error:
            raise InvalidChangeError(str(error)) from error
        first, last = self._span(past, start, min(end, now))
        if len(self._running) >= MOST_WAITING:
            raise InvalidChangeError("too many rehearsals are running; try again when one has "
                                     "finished")
        asked = RehearsalRecord("b" + secrets.token_hex(8), rule, rule.id, ready.version, first,
                                last, actor.name, now, past.step_s, off_by_s=past.off_by_s)
        with self._auditor.change("backtest", actor_fields(actor) | {"action": "begin", "detail": {
                "backtest": asked.id, "rule": rule.id, "version": ready.version,
                "start": first, "end": last}}):
            self._store.put_backtest(asked)
        self._running[asked.id] = asked
        gevent.spawn(self._run, asked, past)
        return asked

    def _span(self, past: RehearsalSource, start: float, end: float) -> tuple[int, int]:
        """Within what is kept."""
        begin = self._history.begins(past.reads_s)
        if begin is None:
            raise InvalidChangeError("history has nothing to rehearse on yet")
        first, last = whole_steps(start, end, begin, past.step_s)
        if first >= last:
            raise InvalidChangeError(
                f"there is no history for that time; it begins at {_clock(begin)}" + (
                    "" if past.reads_s > 1 else ", for a rule that reads every second"))
        if last - first > MOST_S:
            raise InvalidChangeError(f"at most {MOST_S // 86_400} days at once")
        return first, last

    def _run(self, asked: RehearsalRecord, past: RehearsalSource) -> None:
        with self._turn:
            found = gevent.get_hub().threadpool.apply(self._rehearsed, (asked, past))
        del self._running[asked.id]
        self._store.put_backtest(found)

    def _rehearsed(self, asked: RehearsalRecord, past: RehearsalSource) -> RehearsalRecord:
        """In a native thread; nothing may leave it."""
        try:
            return self._computed(asked, past)
        except (CannotRehearseError, ResultTooLargeError) as error:
            return replace(asked, state="failed", why=str(error))
        except Exception as error:
            log.exception("rehearsal_failed")
            return replace(asked, state="failed", why=f"{type(error).__name__}: {error}"[:400])

    def _computed(self, asked: RehearsalRecord, past: RehearsalSource) -> RehearsalRecord:
        rehearsal = RehearsalEngine(past.ready, _breather(), past.refusal)
        for stretch in past.stretches(int(asked.start), int(asked.end)):
            rehearsal.take(stretch)
            past.settle(rehearsal.alerts())
            done_s = stretch.t0 + stretch.width * stretch.step_s - asked.start
            self._running[asked.id] = replace(asked, progress=done_s / (asked.end - asked.start))
        found = rehearsal.alerts()
        victims = self._victims(found, past)
        refused = [RehearsalVictim(past.name(each.row), do, at, None, why)
                   for each in found for do, at, why in each.refused]
        known = [each.gpu_hours for each in victims if each.gpu_hours is not None]
        return replace(
            asked, state="done", progress=1.0, targets=rehearsal.targets, alerts_count=len(found),
            alerts=tuple(told(each, past.name(each.row)) for each in found[:MOST_LISTED]),
            victims_count=len(victims), victims=tuple(victims[:MOST_LISTED]),
            gpu_hours=sum(known) if len(known) == len(victims) else None,
            refused_count=len(refused), refused=tuple(refused[:MOST_LISTED]))

    @staticmethod
    def _victims(found: list[RehearsedAlert], past: RehearsalSource) -> list[RehearsalVictim]:
        return [RehearsalVictim(past.name(each.row), do, at, past.hours.get((each.row, at)))
                for each in found for do, at in each.acts[-1:] if do in ACTS]

    # -- records

    def get(self, backtest_id: str) -> RehearsalRecord:
        found = self._running.get(backtest_id) or self._store.backtest(backtest_id)
        if found is None:
            raise NotFoundError("there is no such rehearsal")
        return found

    def of_rule(self, rule_id: str | None = None) -> list[RehearsalRecord]:
        """Newest first."""
        return [self._running.get(each.id, each) for each in self._store.backtests(rule_id)]

    def approve(self, actor: Actor, backtest_id: str) -> RehearsalRecord:
        """For someone who has read its report. RuleAdmin checks that this is not the rule's
        author."""
        require(actor, "POST /api/v1/rules/backtests/<backtest_id>/approve")
        found = self.get(backtest_id)
        if found.state != "done":
            raise InvalidChangeError("it has no report that could be approved")
        approved = replace(found, approved_by=self._person_of(actor), approved_at=time.time())
        with self._auditor.change("backtest", actor_fields(actor) | {
                "action": "approve", "detail": {
                    "backtest": found.id, "rule": found.rule_id, "version": found.rule_version,
                    "victims": found.victims_count}}):
            self._store.put_backtest(approved)
        return approved


def _breather() -> Callable[[], None]:
    """Sleeps for a part of what was used since, so that the loop has its turn."""
    last = time.monotonic()

    def rest() -> None:
        nonlocal last
        used_s = time.monotonic() - last
        time.sleep(min(0.2, used_s * (1 - DUTY) / DUTY))
        last = time.monotonic()

    return rest


def whole_steps(start: float, end: float, kept_from: float, step_s: int) -> tuple[int, int]:
    """In whole minutes, or seconds. A week that was asked for is one: what a rehearsal proves goes
    by its span."""
    first = max(int(start // step_s), -int(-kept_from // step_s)) * step_s
    return first, int(end) // step_s * step_s


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))

"""Advice from what was measured in the last days, computed on request now and then, and its
dismissals."""

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from ..access.policy import Actor, actor_fields
from ..audit.recorder import AuditRecorder
from ..errors import NotFoundError
from ..fleet.available_gpus import available
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibleFleet
from ..history.reads.protocol import History
from ..pool.plan import PoolNode
from ..web.query_pool import QueryPool
from .core.advice import Advice, UnusedLease, advise
from .core.week import MeasuredWeek, WeekGpu
from .fleet_boards import WORKING
from .measured_week import measured_week

KEPT_S, YOUNG_S = 600.0, 20.0  # the last hours change slowly, unless there are few
DISMISSED_MOST = 1_000
KEY = "advice.dismissed"


class AdviceDismissal(msgspec.Struct, frozen=True):
    reason: str
    by: str
    at: float


class KeyValueStore(Protocol):
    def get(self, key: str) -> str | None: ...
    def put(self, key: str, value: str) -> None: ...


@dataclass(frozen=True, slots=True)
class AdviceReport:
    hours: int
    items: list[Advice]
    uuids: list[list[str]]  # of each item


@dataclass(slots=True)
class AdviceService:
    """Service that makes and keeps advice. `pool_nodes`: nodes that lease GPUs; `strategy`: how
    they are placed; `least_h`: hours that must be measured before anything is advised."""

    fleet: Fleet
    history: History
    questions: QueryPool
    pool_nodes: Callable[[], Collection[PoolNode]]
    strategy: Callable[[], str]
    store: KeyValueStore
    audit: AuditRecorder
    least_h: int
    _last_report: AdviceReport | None = None
    _made_mono: float = 0.0
    dismissed: dict[str, AdviceDismissal] = field(init=False)

    def __post_init__(self) -> None:
        self.dismissed = msgspec.json.decode(self.store.get(KEY) or "{}",
                                             type=dict[str, AdviceDismissal])

    def seen_by(self, visible: VisibleFleet) -> AdviceReport:
        """Return the advice for a user: that on owners and on the whole fleet is only for users who
        may see the whole fleet."""
        report = self._report()
        keep = [at for at, advice in enumerate(report.items)
                if visible.is_whole or (report.uuids[at] and advice.kind not in (
                    "fragmentation", "imbalance") and all(
                        self.fleet.find(uuid, visible.place_of) is not None
                        for uuid in report.uuids[at]))]
        return AdviceReport(report.hours, [report.items[at] for at in keep],
                            [report.uuids[at] for at in keep])

    def _report(self) -> AdviceReport:
        mono = time.monotonic()
        kept_s = YOUNG_S if self._last_report and self._last_report.hours < self.least_h else KEPT_S
        if self._last_report is None or mono - self._made_mono >= kept_s:
            gpus, now, least_h = self._gpus(mono), time.time(), self.least_h
            leases, strategy = self._leases(now), self.strategy()
            free = self._free(mono)

            def make() -> tuple[MeasuredWeek, list[Advice]]:
                week = measured_week(self.history, gpus, now)
                return week, advise(week, leases, free, strategy, least_h)

            week, items = self.questions.ask(make)
            self._last_report = AdviceReport(week.hours, items, [
                [week.gpus[at].uuid for at in item.gpus] for item in items])
            self._made_mono = mono
        return self._last_report

    def _gpus(self, mono: float) -> list[WeekGpu]:
        fleet, status, is_split = self.fleet, self.fleet.statuses(mono), self.fleet.is_split()
        return [WeekGpu(facts.uuid, node_id, fleet.host_of(node_id) or node_id, facts.place,
                        facts.name, facts.mem_total_bytes, None, facts.parent_uuid is not None,
                        facts.power_limit_default_w, facts.power_limit_min_w)
                for slot, facts in enumerate(fleet.facts[:len(fleet)])
                if status[slot] in WORKING and not is_split[slot] and not fleet.viewed[slot]
                for node_id in (fleet.node_ids[fleet.node_at[slot]],)]

    def _free(self, mono: float) -> Counter[str]:
        free = available(self.fleet, self.fleet.statuses(mono), mono)
        return Counter(facts.name for slot, facts in enumerate(self.fleet.facts[:len(self.fleet)])
                       if free[slot] and not self.fleet.viewed[slot])

    def _leases(self, now: float) -> list[UnusedLease]:
        return [UnusedLease(lease.claim.id, lease.claim.owner, node.host, node.id, lease.uuids,
                            now - lease.used_at)
                for node in self.pool_nodes() for lease in node.report.leases]

    def dismiss(self, advice_id: str, reason: str, actor: Actor, now: float) -> None:
        if all(advice.id != advice_id for advice in self._report().items):
            raise NotFoundError(f"there is no advice {advice_id[:40]!r} now")
        self.audit.note("advice", actor_fields(actor) | {
            "action": "dismiss advice", "outcome": "done", "reason": reason,
            "detail": {"advice": advice_id}})
        self.dismissed[advice_id] = AdviceDismissal(reason, actor.name, now)
        while len(self.dismissed) > DISMISSED_MOST:
            del self.dismissed[next(iter(self.dismissed))]
        self._save()

    def recall(self, advice_id: str, actor: Actor) -> None:
        if self.dismissed.pop(advice_id, None) is None:
            raise NotFoundError(f"advice {advice_id[:40]!r} was not dismissed")
        self.audit.note("advice", actor_fields(actor) | {
            "action": "recall advice", "outcome": "done", "detail": {"advice": advice_id}})
        self._save()

    def _save(self) -> None:
        self.store.put(KEY, msgspec.json.encode(self.dismissed).decode())

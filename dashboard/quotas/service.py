"""Sums of who holds how much of each quota on the whole fleet; the ladder acts on them."""

import logging
import time

from gpudeck.contract.actions import Preview, RefusalCode
from gpudeck.contract.quota import PER_S
from gpudeck.contract.quota_usage import QuotaBalance, QuotaIndex, balances

from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibleFleet
from ..history.reads.protocol import History
from ..runtime.dispatcher import Dispatcher
from ..runtime.native_threads import in_thread
from .active_quotas import ActiveQuotas, QuotasChanged
from .evaluate import OverKey, holdings, is_current, over_since
from .gpu_hours import QuotaGpuHours, cells_of, grain, hours_of
from .store import CANNOT_STORE, QuotasStore

log = logging.getLogger("gpudeck.quotas")

REST_SHARE = 20.0  # of the time that a sum takes
REST_MOST_S = 8.0
HOURS_EVERY_S = 60.0
HOLD_S = 30.0  # a job that is just being replaced by its next one is not warned
INLINE_MOST = 500  # tasks summed up here; more of them in a thread, so that live goes on
MOST_USERS = 50_000
SPARED: frozenset[RefusalCode] = frozenset(("protected", "managed", "made_up"))


class QuotaService:
    """Sums of all quotas. `hold_s`: how long a job must be over one before the ladder hears of
    it."""

    def __init__(self, active: ActiveQuotas, store: QuotasStore, fleet: Fleet, history: History,
                 hold_s: float, events: Dispatcher) -> None:
        self.active = active
        self._store = store
        self._fleet = fleet
        self._history = history
        self.hold_s = hold_s
        self._base = time.time() - time.monotonic()
        self.hours = QuotaGpuHours()
        self.are_hours_known = False
        self._hours_mono = -HOURS_EVERY_S
        self._next_mono = 0.0
        self.groups = store.groups()
        self.spared: dict[str, str] = {}  # tasks that no quota can end, as their nodes reported
        self.over_since: dict[OverKey, float] = {}
        self.balances: list[QuotaBalance] = []
        self.summed_at: float | None = None
        events.listen(QuotasChanged, lambda _: self._apply_change())

    def _apply_change(self) -> None:
        self._hours_mono = -HOURS_EVERY_S
        self._next_mono = 0.0
        self.balances = [balance for balance in self.balances
                         if self.active.index.of.get(balance.quota.id) == balance.quota]

    def steady(self) -> float:
        """Return a time that reads like UTC and never steps, since which a job is over."""
        return self._base + time.monotonic()

    def step(self, now: float, mono: float) -> None:
        if mono < self._next_mono:
            return
        if mono - self._hours_mono >= HOURS_EVERY_S:
            self._hours_mono = mono
            self._note_groups()
            self._update_hours(now)
        if self.spared:
            there = {task_id for node in self._fleet.nodes.values() for task_id in node.tasks}
            self.spared = {task_id: why for task_id, why in self.spared.items()
                           if task_id in there}
        self.balances = self.sum(now, self.active.index, self.hours, None)
        self.over_since = over_since(self.over_since, self.balances, self.steady())
        self.summed_at = now
        self._next_mono = mono + min(REST_SHARE * (time.monotonic() - mono), REST_MOST_S)

    def sum(self, now: float, quotas: QuotaIndex, hours: QuotaGpuHours,
            visible: VisibleFleet | None) -> list[QuotaBalance]:
        """Sum up on the nodes that `visible` shows; None: on all."""
        if not quotas.all:
            return []  # whatever is held, nothing limits it
        node_holdings = []
        for node_id, node in list(self._fleet.nodes.items()):
            if is_current(node, now) and (visible is None or visible.sees_node(node_id)):
                node_holdings += holdings(self._fleet, node)
        inputs = (quotas, node_holdings, now, hours.of, frozenset(self.spared), hours.unsure,
                  hours.by_node)
        if len(node_holdings) <= INLINE_MOST:
            return balances(*inputs)
        return in_thread(lambda: balances(*inputs))

    def previewed(self, preview: Preview) -> None:
        """Spare a task that its node protects: it is not chosen again."""
        why = next((refusal for refusal in preview.refusals if refusal.code in SPARED), None)
        if why is not None:
            self.spared[preview.task_id] = why.sentence

    # -- hours

    def _note_groups(self) -> None:
        current_groups = {task.user: frozenset(task.groups) for node in self._fleet.nodes.values()
                          for task in node.tasks.values() if task.user is not None and task.groups}
        news = {user: groups for user, groups in current_groups.items()
                if self.groups.get(user) != groups}
        if not news or len(self.groups | news) > MOST_USERS:  # their names are up to the nodes
            return
        try:
            self._store.put_groups(news)
        except CANNOT_STORE as error:
            log.warning("groups_not_kept why=%r", str(error))
            return
        self.groups |= news

    def _update_hours(self, now: float) -> None:
        """Count the hours again. Old ones say nothing of the day until now: without new ones, none
        count."""
        try:
            self.hours, self.are_hours_known = self.count_hours(now, self.active.index, None), True
        except Exception:
            self.hours, self.are_hours_known = QuotaGpuHours(), False
            raise

    def count_hours(self, now: float, quotas: QuotaIndex,
                    visible: VisibleFleet | None) -> QuotaGpuHours:
        """Count hours of the day or week until now, on nodes that `visible` shows; None: on all."""
        groups = dict(self.groups)
        group_of = {node_id: (node.hello.host, self._fleet.group_of(node_id))
                    for node_id, node in self._fleet.nodes.items()}
        is_whole = visible is None or visible.is_whole
        node_ids = frozenset() if visible is None else frozenset(visible.node_ids)

        def ask() -> QuotaGpuHours:
            hours = QuotaGpuHours()
            for per, span_s in PER_S.items():
                if by := grain(quotas, per):
                    start = int((now - span_s) // 3_600) * 3_600
                    frame = self._history.held(by, start, now)
                    cells = [cell for cell in cells_of(frame.to_dict("records"))
                             if is_whole or cell.node_id in node_ids]
                    part = hours_of(quotas, per, cells, group_of, groups)
                    hours = QuotaGpuHours(hours.of | part.of, hours.unsure | part.unsure,
                                          hours.by_node | part.by_node)
            return hours

        return in_thread(ask)

"""The Quotas as a source of Wants: who is over one, and all that holds its ladder back."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..actions.holds import HoldService
from ..actions.owner_keeps import OwnerKeepService
from ..alerts.core.rule_tracker import SKEW_S, WARM_AT_LEAST_S
from ..fleet.fleet import Fleet
from ..quotas.service import QuotaService
from .intents import ActionIntent
from .ladder_state import RETURN_WITHIN_S
from .maintenance import MaintenanceService
from .quota_intents import (
    SOURCE,
    QuotaIntentContext,
    QuotaOwnerKeep,
    cause_of,
    progress,
    target_of,
    wants,
)
from .service import LadderService


@dataclass(frozen=True, slots=True)
class QuotaIntentSource:
    desk: QuotaService
    fleet: Fleet
    keeps: OwnerKeepService
    holds: HoldService
    maintenance: MaintenanceService
    # Monotonic: since when this hub looks without a break.
    looks_since: Callable[[], float] = lambda: -math.inf
    began_at: float = field(default_factory=time.time)

    def __call__(self) -> Iterable[ActionIntent]:
        desk, active = self.desk, self.desk.active
        beside = QuotaIntentContext(lambda quota_id: active.versions[quota_id].generation,
                                    self._held, self._kept, self._sample_age_s,
                                    len(self.fleet.nodes), self.began_at + RETURN_WITHIN_S)
        return wants(desk.balances, desk.over, beside, desk.hold_s, desk.steady())

    def told(self, ladders: LadderService) -> dict[tuple[str, str, str], str]:
        """By Quota, node and job: how far its ladder is."""
        now, climbs, versions = ladders.now(), ladders.of(SOURCE), self.desk.active.versions
        over = [(each.quota.id, offender) for each in self.desk.balances
                if each.quota.id in versions for offender in each.offenders]
        found = {(quota_id, offender.node_id, offender.job_id): climbs.get(
            (cause_of(quota_id, versions[quota_id].generation), target_of(offender)))
            for quota_id, offender in over}
        return {key: progress(kept.climb, now) for key, kept in found.items() if kept is not None}

    def _held(self, node_id: str) -> str | None:
        one = self.maintenance.of(node_id)
        if one is not None:
            return one.sentence
        refusal = self.holds.refusal(node_id)
        return self._unsteady(node_id) if refusal is None else refusal.sentence

    def _unsteady(self, node_id: str) -> str | None:
        """As for rules: what has just come back, or is of another time, is not acted on."""
        node = self.fleet.nodes.get(node_id)
        if node is None:
            return None
        steady_s = time.monotonic() - max(node.steady_mono, self.looks_since())
        warm_s = min(WARM_AT_LEAST_S, 2 * self.desk.hold_s)
        if steady_s < warm_s:
            return (f"warming up: hub, agent and driver are there together for {steady_s:.0f} s, "
                    f"and {warm_s:.0f} s are waited for")
        if abs(node.clock_offset_s or 0.0) > SKEW_S:
            return "its node's clock is off; set it right (NTP)"
        return None

    def _kept(self, task_ids: tuple[str, ...]) -> QuotaOwnerKeep | None:
        keep = self.keeps.of_any(task_ids)
        if keep is None:
            return None
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(keep.until))
        why = f": {keep.because}" if keep.because else ""
        return QuotaOwnerKeep(keep.until, f"{keep.by} asked that it be kept until {until}{why}")

    def _sample_age_s(self, node_id: str) -> float | None:
        """Also of the sum: it may be older than what it was made of."""
        node, summed_at = self.fleet.nodes.get(node_id), self.desk.summed_at
        if node is None or summed_at is None:
            return None
        now = time.time()
        return max(now - node.frame_at, now - summed_at)

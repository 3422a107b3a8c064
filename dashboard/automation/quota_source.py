"""Quotas as a source of intents: who is over one, and all that holds its ladder back."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..alerts.core.rule_tracker import SKEW_S, WARM_AT_LEAST_S
from ..fleet.fleet import Fleet
from ..quotas.service import QuotaService
from .holds import HubHolds
from .intents import ActionIntent
from .ladder_state import RETURN_WITHIN_S
from .quota_intents import SOURCE, QuotaIntentContext, cause_of, intents, progress, target_of
from .service import LadderService


@dataclass(frozen=True, slots=True)
class QuotaIntentSource:
    quotas: QuotaService
    fleet: Fleet
    hub_holds: HubHolds
    # Monotonic: since when this hub looks without a break.
    looks_since: Callable[[], float]
    began_at: float = field(default_factory=time.time)

    def __call__(self) -> Iterable[ActionIntent]:
        quotas, active = self.quotas, self.quotas.active
        context = QuotaIntentContext(lambda quota_id: active.versions[quota_id].generation,
                                     self._held, self.hub_holds.keep_of, self._sample_age_s,
                                     len(self.fleet.nodes), self.began_at + RETURN_WITHIN_S)
        return intents(quotas.balances, quotas.over, context, quotas.hold_s, quotas.steady())

    def progress(self, ladders: LadderService) -> dict[tuple[str, str, str], str]:
        """By Quota, node and job: how far its ladder is."""
        now, runs = ladders.clock.now(), ladders.runs.of(SOURCE)
        versions = self.quotas.active.versions
        over = [(each.quota.id, offender) for each in self.quotas.balances
                if each.quota.id in versions for offender in each.offenders]
        found = {(quota_id, offender.node_id, offender.job_id): runs.get(
            (cause_of(quota_id, versions[quota_id].generation), target_of(offender)))
            for quota_id, offender in over}
        return {key: progress(run.climb, now) for key, run in found.items() if run is not None}

    def _held(self, node_id: str) -> str | None:
        held = self.hub_holds.on_node(node_id)
        return self._unsteady(node_id) if held is None else held

    def _unsteady(self, node_id: str) -> str | None:
        """As for rules: what has just come back, or is of another time, is not acted on."""
        node = self.fleet.nodes.get(node_id)
        if node is None:
            return None
        steady_s = time.monotonic() - max(node.steady_mono, self.looks_since())
        warm_s = min(WARM_AT_LEAST_S, 2 * self.quotas.hold_s)
        if steady_s < warm_s:
            return (f"warming up: hub, agent and driver are there together for {steady_s:.0f} s, "
                    f"and {warm_s:.0f} s are waited for")
        if abs(node.clock_offset_s or 0.0) > SKEW_S:
            return "its node's clock is off; set it right (NTP)"
        return None

    def _sample_age_s(self, node_id: str) -> float | None:
        """Also of the sum: it may be older than what it was made of."""
        node, summed_at = self.fleet.nodes.get(node_id), self.quotas.summed_at
        if node is None or summed_at is None:
            return None
        now = time.time()
        return max(now - node.frame_at, now - summed_at)

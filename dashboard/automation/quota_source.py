"""Quotas as a source of intents: jobs over a quota, and everything that holds their ladders
back."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gpudeck.contract.actions import MetricBound, RuleCondition
from gpudeck.contract.ladder import LadderClimb
from gpudeck.contract.quota_usage import QuotaBalance, QuotaOffender
from gpudeck.language.times import span_words

from ..alerts.core.rule_tracker import SKEW_S, WARM_AT_LEAST_S
from ..fleet.fleet import Fleet
from ..quotas.evaluate import OverKey, over_key
from ..quotas.service import QuotaService
from .brake_limits import FLEET_S, fleet_most
from .holds import HubHolds
from .intents import ActionIntent
from .ladder_state import QUOTAS, RETURN_WITHIN_S
from .service import LadderService


@dataclass(frozen=True, slots=True)
class QuotaIntentSource:
    quotas: QuotaService
    fleet: Fleet
    hub_holds: HubHolds
    # Monotonic: since when this hub has watched without a break.
    looks_since: Callable[[], float]
    began_at: float = field(default_factory=time.time)

    def __call__(self) -> Iterator[ActionIntent]:
        """Yield one intent per quota and job: a job over two limits of one is notified once."""
        seen_keys, now = set[OverKey](), self.quotas.steady()
        for balance in self.quotas.balances:
            if not balance.is_over or balance.quota.mode == "observe":
                continue
            for offender in balance.offenders:
                key = over_key(balance.quota, offender)
                since = self.quotas.over_since.get(key, now)
                if key not in seen_keys and now - since >= self.quotas.hold_s:
                    seen_keys.add(key)
                    yield self._intent(balance, offender, since)

    def _intent(self, balance: QuotaBalance, offender: QuotaOffender, since: float) -> ActionIntent:
        quota, hold = balance.quota, self._hold(offender.node)
        why = f" ({quota.because})" if quota.because else ""
        return ActionIntent(
            cause=self._cause(quota.id), source=QUOTAS, title=f"over the quota {quota.id}",
            target=target_of(offender), node_id=offender.node, host=offender.host,
            task_ids=offender.task_ids, owner=offender.user, rungs=quota.rungs, mode="auto",
            condition_met="yes", sample_age_s=self._sample_age_s(offender.node), since=since,
            sentence=f"{balance.sentence}{why}"[:900], holds=() if hold is None else (hold,),
            mutes=(),  # silences concern alerts
            keep=self.hub_holds.keep_of(offender.node, offender.task_ids),
            condition=_condition(balance),
            acts=fleet_most(len(self.fleet.nodes)), within_s=FLEET_S,
            # A job that was over before a restart is known to be over again by then.
            goes_on=since <= self.began_at + RETURN_WITHIN_S)

    def _cause(self, quota_id: str) -> str:
        return f"quota {quota_id} v{self.quotas.active.versions[quota_id].generation}"

    def progress(self, ladders: LadderService) -> dict[OverKey, str]:
        """Return how far the ladder of each job over a quota is."""
        now, runs = ladders.clock.now(), ladders.runs.of(QUOTAS)
        return {over_key(balance.quota, offender): progress(run.climb, now)
                for balance in self.quotas.balances
                if balance.quota.id in self.quotas.active.versions
                for offender in balance.offenders
                if (run := runs.get((self._cause(balance.quota.id), target_of(offender))))}

    def _hold(self, node_id: str) -> str | None:
        """Return why nothing is done on a node, or None. As for rules: not right after it came
        back, nor while its clock is off."""
        node, reason = self.fleet.nodes.get(node_id), self.hub_holds.on_node(node_id)
        if reason is not None or node is None:
            return reason
        steady_s = time.monotonic() - max(node.steady_mono, self.looks_since())
        warm_s = min(WARM_AT_LEAST_S, 2 * self.quotas.hold_s)
        if steady_s < warm_s:
            return (f"warming up: hub, agent and driver have been connected for {steady_s:.0f} s, "
                    f"and {warm_s:.0f} s are waited for")
        if abs(node.clock_offset_s or 0.0) > SKEW_S:
            return "its node's clock is off; set it right (NTP)"
        return None

    def _sample_age_s(self, node_id: str) -> float | None:
        """Return the age of the oldest number that counts; the sum may be older than its parts."""
        node, summed_at = self.fleet.nodes.get(node_id), self.quotas.summed_at
        if node is None or summed_at is None:
            return None
        now = time.time()
        return max(now - node.frame_at, now - summed_at)


def target_of(offender: QuotaOffender) -> str:
    return f"{offender.node}/{offender.job_id}"


def progress(climb: LadderClimb, now: float) -> str:
    """Return how far a ladder is, for people. `now`: by the clock of the ladder."""
    notified = sum(step.do == "tell" and step.outcome == "done" for step in climb.done)
    parts = [("not notified yet", "notified once", "notified twice")[notified] if notified < 3 else
             f"notified {notified} times"]
    rung = climb.next_rung
    if climb.state == "acting" and climb.done:
        parts.append(f"'{climb.done[-1].do}' is being done")
    elif rung is not None and climb.state in ("waiting", "settling"):
        left_s = max(0.0, climb.due_at - now)
        when = f"in {span_words(math.ceil(left_s))}" if left_s > 0 else "next"
        parts.append(f"'{rung.do}' comes {when}")
    is_news = climb.due_at <= now and not climb.why.startswith("'")  # its time is stated above
    if climb.why and climb.state != "acting" and (is_news or climb.state == "stopped"):
        parts.append(climb.why)
    return "; ".join(parts)


def _condition(balance: QuotaBalance) -> RuleCondition:
    """Return as much of the condition as the job's node can check by itself."""
    bounds = () if balance.limit != "max_age_s" else (MetricBound("age_s", ">", balance.most),)
    return RuleCondition(bounds, balance.sentence[:1_024])

"""What Quotas want done, from who is over them: for the ladder that Rules climb as well."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gpudeck.actions import MetricBound, RuleCondition
from gpudeck.ladder import LadderClimb
from gpudeck.quota import span_words
from gpudeck.quota_usage import QuotaBalance, QuotaOffender

from ..quotas.over import Key, OverQuotaTracker, _key
from .brake_limits import FLEET_S, fleet_most
from .intents import ActionIntent, RequestedKeep

# Of all Quotas together: many owners may be over at once and nothing be wrong, so they share what
# the fleet bears and wait for it. To hit the fleet's own bound would open the breaker.
SOURCE = "quotas"


@dataclass(frozen=True, slots=True)
class QuotaIntentContext:
    """What holds back, as the hub knows it. `sample_age_s`: of a node's newest sample."""

    generation: Callable[[str], int]  # of a Quota
    held: Callable[[str], str | None]
    kept: Callable[[tuple[str, ...]], RequestedKeep | None]
    sample_age_s: Callable[[str], float | None]
    nodes: int
    returned_by: float  # until then whoever was over before a restart is seen to be so again


def cause_of(quota_id: str, generation: int) -> str:
    return f"quota {quota_id} v{generation}"


def target_of(offender: QuotaOffender) -> str:
    return f"{offender.node_id}/{offender.job_id}"


def progress(climb: LadderClimb, now: float) -> str:
    """How far its ladder is, for people. `now`: by the clock of the ladder."""
    told = sum(each.do == "tell" and each.outcome == "done" for each in climb.done)
    parts = [("not told yet", "told once", "told twice")[told] if told < 3 else
             f"told {told} times"]
    rung = climb.next_rung
    if climb.state == "acting" and climb.done:
        parts.append(f"'{climb.done[-1].do}' is being done")
    elif rung is not None and climb.state in ("waiting", "settling"):
        left_s = max(0.0, climb.due_at - now)
        when = f"in {span_words(math.ceil(left_s))}" if left_s > 0 else "next"
        parts.append(f"'{rung.do}' comes {when}")
    is_news = climb.due_at <= now and not climb.why.startswith("'")  # when it comes, was just said
    if climb.why and climb.state != "acting" and (is_news or climb.state == "stopped"):
        parts.append(climb.why)
    return "; ".join(parts)


def intents(found: Iterable[QuotaBalance], over: OverQuotaTracker, context: QuotaIntentContext,
            hold_s: float, now: float) -> Iterator[ActionIntent]:
    """One per Quota and job: a job that is over two limits of one is told once."""
    done: set[Key] = set()
    for each in found:
        if not each.is_over or each.quota.mode == "observe":
            continue
        for offender in each.offenders:
            key = _key(each.quota, offender)
            since = over.since.get(key, now)
            if key not in done and now - since >= hold_s:
                done.add(key)
                yield _intent(each, offender, since, context)


def _intent(balance: QuotaBalance, offender: QuotaOffender, since: float,
            context: QuotaIntentContext) -> ActionIntent:
    quota = balance.quota
    held, kept = context.held(offender.node_id), context.kept(offender.task_ids)
    rungs = quota.ladder if quota.mode == "act" else tuple(
        rung for rung in quota.ladder if rung.do == "tell")
    return ActionIntent(
        cause=cause_of(quota.id, context.generation(quota.id)), source=SOURCE,
        title=f"over the quota {quota.id}", target=target_of(offender),
        node_id=offender.node_id, host=offender.host, task_ids=offender.task_ids,
        owner=offender.user, rungs=rungs, mode="auto", so="yes",
        sample_age_s=context.sample_age_s(offender.node_id), since=since,
        sentence=_sentence(balance), holds=() if held is None else (held,),
        kept_until=None if kept is None else kept.until,
        kept="" if kept is None else kept.sentence, condition=_condition(balance),
        acts=fleet_most(context.nodes), within_s=FLEET_S, goes_on=since <= context.returned_by)


def _sentence(balance: QuotaBalance) -> str:
    why = f" ({balance.quota.because})" if balance.quota.because else ""
    return f"{balance.sentence}{why}"[:900]


def _condition(balance: QuotaBalance) -> RuleCondition:
    """As far as the node of the job can see it by itself."""
    bounds = () if balance.limit != "max_age_s" else (MetricBound("age_s", ">", balance.most),)
    return RuleCondition(bounds, balance.sentence[:1_024])

"""Quotas on this node: what of them is in force, and what is done while there is no hub. Pure.

With a hub, it sums up the fleet and its ladder acts, by Commands. Without one, this node goes on by
itself with what it can tell alone: Quotas on it, or on a GPU of it. It tells owners as before; what
stops work waits for the hub, unless the signed Quota says `offline: allow` and is young.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpudeck import ladder
from gpudeck.actions import SKEW_MAX_S
from gpudeck.desired_state import OFFLINE_FOR_S, DesiredState, QuotaEnforcement
from gpudeck.ladder import LadderClimb, LadderStep
from gpudeck.quota import Quota
from gpudeck.quota_usage import QuotaBalance, QuotaIndex, QuotaOffender, TaskHolding, balances

from ..tasks.seen import GpuTask

CUT_OFF_AFTER_S = 60.0
FRESH_S = 10.0
OVER_SHOWN = 16
HERE = ("node", "gpu")  # what one node can tell alone

Key = tuple[str, str]  # Quota and job
# `quiet`: there is no connection, and not for long enough to go on without; also after a restart.
Hub = Literal["there", "quiet", "gone"]


@dataclass(frozen=True, slots=True)
class QuotaRefusals:
    """Reasons why this node would not notify or end, for people; "": it would. Neither has a
    default: what was not asked must not permit."""

    tell: str
    end: str


@dataclass(frozen=True, slots=True)
class QuotaSnapshot:
    """State of this node at one moment. `sample_age_s` None: there is no list of its tasks."""

    holdings: tuple[TaskHolding, ...]
    sample_age_s: float | None
    wall: float
    rights: QuotaRefusals
    spared: frozenset[str]

    @property
    def is_fresh(self) -> bool:
        return self.sample_age_s is not None and self.sample_age_s <= FRESH_S


@dataclass(frozen=True, slots=True)
class DueQuotaStep:
    """Step of a ladder, to be done here."""

    key: Key
    step: LadderStep
    quota: Quota
    offender: QuotaOffender
    sentence: str


@dataclass(frozen=True, slots=True)
class OfflineQuotaState:
    """Climbs of the time without a hub."""

    climbs: Mapping[Key, LadderClimb] = field(default_factory=dict)
    due: tuple[DueQuotaStep, ...] = ()


def holdings_of(gpu_tasks: Iterable[GpuTask], node_id: str, host: str, group: str
                ) -> tuple[TaskHolding, ...]:
    uses: dict[str, list[tuple[str, float | None]]] = {}
    tasks = {}
    for gpu_task in gpu_tasks:
        tasks[gpu_task.task.id] = gpu_task.task
        uses.setdefault(gpu_task.task.id, []).append((gpu_task.gpu_uuid, gpu_task.mem_used_bytes))
    return tuple(TaskHolding(task, node_id, host, group, tuple(uses[task_id]))
                 for task_id, task in tasks.items())


def is_newer(desired: DesiredState, current: DesiredState | None) -> bool:
    """Return whether quotas are newer. An older hub, or an older message of it, changes nothing."""
    return current is None or _age(desired) > _age(current)


def _age(desired: DesiredState) -> tuple[int, int, float]:
    return desired.epoch, desired.generation, desired.issued_at


# -- in force


def marks(desired: DesiredState, snapshot: QuotaSnapshot) -> tuple[QuotaEnforcement, ...]:
    by_quota: dict[str, list[QuotaBalance]] = {}
    for balance in _balances(desired, snapshot):
        by_quota.setdefault(balance.quota.id, []).append(balance)
    return tuple(_mark(quota, snapshot, by_quota.get(quota.id, [])) for quota in desired.quotas)


def _balances(desired: DesiredState, snapshot: QuotaSnapshot) -> list[QuotaBalance]:
    return balances(
        QuotaIndex(desired.quotas), snapshot.holdings, snapshot.wall, {}, snapshot.spared)


def _mark(quota: Quota, snapshot: QuotaSnapshot, quota_balances: Sequence[QuotaBalance]
          ) -> QuotaEnforcement:
    over = tuple(balance.sentence for balance in quota_balances
                 if balance.is_over and quota.scope_kind in HERE)
    why = _why_not(quota, snapshot)
    if why:
        return QuotaEnforcement(quota.id, False, "none", why[:1_024], over[:OVER_SHOWN])
    return QuotaEnforcement(quota.id, True, "ladder", _proof(quota, quota_balances)[:1_024],
                            over[:OVER_SHOWN])


def _why_not(quota: Quota, snapshot: QuotaSnapshot) -> str:
    if snapshot.sample_age_s is None:
        return "this node has no list of its tasks: quota usage is unknown"
    if not snapshot.is_fresh:
        return "the newest list of tasks is old: the driver or the reader does not answer"
    if quota.mode == "warn" and snapshot.rights.tell:
        return f"owners cannot be notified here: {snapshot.rights.tell}"
    if quota.mode == "act" and snapshot.rights.end:
        return f"it only notifies: {snapshot.rights.end}"
    return ""


def _proof(quota: Quota, quota_balances: Sequence[QuotaBalance]) -> str:
    if quota.limits == ("gpu_hours",):
        return "hours are counted at the hub, from what this node reports"
    tasks = max((balance.tasks for balance in quota_balances), default=0)
    counted_here = f"{tasks} task{'s' * (tasks != 1)} of it seen here"
    if quota.scope_kind not in HERE:
        return f"{counted_here}; summed up at the hub"
    if quota.gpu_hours is not None:
        return f"{counted_here}; hours are counted at the hub"
    over = sum(balance.is_over for balance in quota_balances)
    return f"{counted_here}; {over or 'nobody'} over"


# -- without a hub


def advance(before: OfflineQuotaState, desired: DesiredState | None, snapshot: QuotaSnapshot,
            hub: Hub, hub_now: float | None, now: float) -> OfflineQuotaState:
    """Advance the climbs by one look. `hub_now`: the hub's clock, as far as it is known here;
    `now`: one that never steps. Climbs with a step in progress stay until its outcome is known."""
    if hub == "quiet":
        return OfflineQuotaState(before.climbs)
    if desired is None or hub == "there":
        return OfflineQuotaState({key: climb for key, climb in before.climbs.items()
                                  if climb.state == "acting"})
    offences = _offences(desired, snapshot)
    climbs: dict[Key, LadderClimb] = {}
    due: list[DueQuotaStep] = []
    for key in sorted({*before.climbs, *offences}):
        climb = before.climbs.get(key)
        quota, offender, sentence = offences.get(key, (None, None, ""))
        if quota is not None and climb is None:
            climb = ladder.begin(_cause(desired, quota), key[1], quota.rungs, now)
        assert climb is not None
        condition = _condition(quota is not None, key[1], snapshot)
        climb, step = ladder.look(climb, ladder.LadderObservation(
            condition, snapshot.sample_age_s, _holds(quota, desired, snapshot, hub_now),
            _mutes(snapshot), None, ""), now)  # an owner's wish is the hub's to know
        if climb.state != "over":
            climbs[key] = climb
        if step is not None and quota is not None and offender is not None:
            due.append(DueQuotaStep(key, step, quota, offender, sentence))
    return OfflineQuotaState(climbs, tuple(due))


def settled(before: OfflineQuotaState, key: Key, kind: ladder.OutcomeKind, sentence: str,
            now: float) -> OfflineQuotaState:
    climb = before.climbs.get(key)
    if climb is None or climb.state != "acting":
        return before
    return OfflineQuotaState({**before.climbs, key: ladder.settle(climb, kind, sentence, now)})


def recovered(climbs: Mapping[Key, LadderClimb], now: float) -> OfflineQuotaState:
    """Recover climbs after a restart: the outcome of a step in progress is unknown, so it is not
    repeated. A notification is harmless."""
    return OfflineQuotaState({key: climb if climb.state != "acting" else ladder.settle(
        climb, "done" if climb.done[-1].do == "tell" else "failed",
        "the agent stopped while this was in progress; it is not repeated", now)
                    for key, climb in climbs.items()})


def _offences(desired: DesiredState, snapshot: QuotaSnapshot
              ) -> dict[Key, tuple[Quota, QuotaOffender, str]]:
    if not snapshot.is_fresh:
        return {}
    return {(balance.quota.id, offender.job_id): (balance.quota, offender, balance.sentence)
            for balance in _balances(desired, snapshot)
            if balance.is_over and balance.quota.mode != "observe"
            and balance.quota.scope_kind in HERE
            for offender in balance.offenders}


def _cause(desired: DesiredState, quota: Quota) -> str:
    return f"quota {quota.id} generation {desired.generation}"


def _condition(is_wanted: bool, job_id: str, snapshot: QuotaSnapshot) -> ladder.So:
    if not snapshot.is_fresh:
        return "unknown"
    if is_wanted:
        return "yes"
    return "no" if any(holding.job[1] == job_id for holding in snapshot.holdings) else "gone"


def _holds(quota: Quota | None, desired: DesiredState, snapshot: QuotaSnapshot,
           hub_now: float | None) -> tuple[str, ...]:
    why = [snapshot.rights.end] if snapshot.rights.end else []
    if quota is None or quota.offline != "allow":
        why.append("the hub is unreachable, and the quota waits for it (offline: wait)")
    elif hub_now is None or not -SKEW_MAX_S <= hub_now - desired.issued_at < OFFLINE_FOR_S:
        why.append("the hub is unreachable, and its last answer is not from the last "
                   f"{OFFLINE_FOR_S / 3_600:.0f} h")
    return tuple(why)


def _mutes(snapshot: QuotaSnapshot) -> tuple[str, ...]:
    return (snapshot.rights.tell,) if snapshot.rights.tell else ()

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
    """Why this node would not do it, for people; "": it would. Neither has a default: what was not
    asked must not permit."""

    tell: str
    end: str


@dataclass(frozen=True, slots=True)
class QuotaSnapshot:
    """This node at one moment. `sample_age_s` None: there is no list of its tasks."""

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
    """A step of a ladder, to be done here."""

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


def holdings_of(seen: Iterable[GpuTask], node_id: str, host: str, group: str) -> tuple[TaskHolding,
                                                                                       ...]:
    uses: dict[str, list[tuple[str, float | None]]] = {}
    tasks = {}
    for each in seen:
        tasks[each.task.id] = each.task
        uses.setdefault(each.task.id, []).append((each.gpu_uuid, each.mem_used_bytes))
    return tuple(TaskHolding(task, node_id, host, group, tuple(uses[task_id]))
                 for task_id, task in tasks.items())


def is_newer(desired: DesiredState, held: DesiredState | None) -> bool:
    """An older hub, or an older word of the same one, takes nothing back."""
    return held is None or _age(desired) > _age(held)


def _age(desired: DesiredState) -> tuple[int, int, float]:
    return desired.epoch, desired.generation, desired.issued_at


# -- in force


def marks(desired: DesiredState, scene: QuotaSnapshot) -> tuple[QuotaEnforcement, ...]:
    found: dict[str, list[QuotaBalance]] = {}
    for each in _balances(desired, scene):
        found.setdefault(each.quota.id, []).append(each)
    return tuple(_mark(quota, scene, found.get(quota.id, [])) for quota in desired.quotas)


def _balances(desired: DesiredState, scene: QuotaSnapshot) -> list[QuotaBalance]:
    return balances(QuotaIndex(desired.quotas), scene.holdings, scene.wall, {}, scene.spared)


def _mark(quota: Quota, scene: QuotaSnapshot, found: Sequence[QuotaBalance]) -> QuotaEnforcement:
    over = tuple(each.sentence for each in found if each.is_over and quota.scope_kind in HERE)
    why = _why_not(quota, scene)
    if why:
        return QuotaEnforcement(quota.id, False, "none", why[:1_024], over[:OVER_SHOWN])
    return QuotaEnforcement(quota.id, True, "ladder", _proof(quota, found)[:1_024],
                            over[:OVER_SHOWN])


def _why_not(quota: Quota, scene: QuotaSnapshot) -> str:
    if scene.sample_age_s is None:
        return "this node has no list of its tasks: quota usage is unknown"
    if not scene.is_fresh:
        return "the newest list of tasks is old: the driver or the reader does not answer"
    if quota.mode == "warn" and scene.rights.tell:
        return f"owners cannot be notified here: {scene.rights.tell}"
    if quota.mode == "act" and scene.rights.end:
        return f"it only notifies: {scene.rights.end}"
    return ""


def _proof(quota: Quota, found: Sequence[QuotaBalance]) -> str:
    if quota.limits == ("gpu_hours",):
        return "hours are counted at the hub, from what this node reports"
    tasks = max((each.tasks for each in found), default=0)
    seen = f"{tasks} task{'s' * (tasks != 1)} of it seen here"
    if quota.scope_kind not in HERE:
        return f"{seen}; summed up at the hub"
    if quota.gpu_hours is not None:
        return f"{seen}; hours are counted at the hub"
    over = sum(each.is_over for each in found)
    return f"{seen}; {over or 'nobody'} over"


# -- without a hub


def stand(before: OfflineQuotaState, desired: DesiredState | None, scene: QuotaSnapshot, hub: Hub,
          hub_now: float | None, now: float) -> OfflineQuotaState:
    """`hub_now`: the hub's clock, as far as it is known here; `now`: one that never steps. Climbs
    with a step that is being done stay until its outcome is known."""
    if hub == "quiet":
        return OfflineQuotaState(before.climbs)
    if desired is None or hub == "there":
        return OfflineQuotaState({key: climb for key, climb in before.climbs.items()
                                  if climb.state == "acting"})
    wanted = _wanted(desired, scene)
    climbs: dict[Key, LadderClimb] = {}
    due: list[DueQuotaStep] = []
    for key in sorted({*before.climbs, *wanted}):
        climb = before.climbs.get(key)
        quota, offender, sentence = wanted.get(key, (None, None, ""))
        if quota is not None and climb is None:
            climb = ladder.begin(_cause(desired, quota), key[1], quota.rungs, now)
        assert climb is not None
        so = _so(quota is not None, key[1], scene)
        climb, step = ladder.look(climb, ladder.LadderObservation(
            so, scene.sample_age_s, _holds(quota, desired, scene, hub_now),
            _mutes(scene), None, ""), now)  # an owner's wish is the hub's to know
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
    """After a restart: the outcome of a step in progress is unknown, so it is not repeated. A
    notification is harmless."""
    return OfflineQuotaState({key: climb if climb.state != "acting" else ladder.settle(
        climb, "done" if climb.done[-1].do == "tell" else "failed",
        "the agent stopped while this was in progress; it is not repeated", now)
                    for key, climb in climbs.items()})


def _wanted(desired: DesiredState, scene: QuotaSnapshot) -> dict[Key,
                                                                 tuple[Quota, QuotaOffender, str]]:
    if not scene.is_fresh:
        return {}
    return {(each.quota.id, offender.job_id): (each.quota, offender, each.sentence)
            for each in _balances(desired, scene)
            if each.is_over and each.quota.mode != "observe" and each.quota.scope_kind in HERE
            for offender in each.offenders}


def _cause(desired: DesiredState, quota: Quota) -> str:
    return f"quota {quota.id} generation {desired.generation}"


def _so(is_wanted: bool, job_id: str, scene: QuotaSnapshot) -> ladder.So:
    if not scene.is_fresh:
        return "unknown"
    if is_wanted:
        return "yes"
    return "no" if any(each.job[1] == job_id for each in scene.holdings) else "gone"


def _holds(quota: Quota | None, desired: DesiredState, scene: QuotaSnapshot, hub_now: float | None
           ) -> tuple[str, ...]:
    why = [scene.rights.end] if scene.rights.end else []
    if quota is None or quota.offline != "allow":
        why.append("the hub is unreachable, and the quota waits for it (offline: wait)")
    elif hub_now is None or not -SKEW_MAX_S <= hub_now - desired.issued_at < OFFLINE_FOR_S:
        why.append("the hub is unreachable, and its last answer is not from the last "
                   f"{OFFLINE_FOR_S / 3_600:.0f} h")
    return tuple(why)


def _mutes(scene: QuotaSnapshot) -> tuple[str, ...]:
    return (scene.rights.tell,) if scene.rights.tell else ()

"""Quotas on this node: what of them is in force, and whom it notifies while there is no hub. Pure.

With a hub, it sums up the fleet and its ladder acts, by Commands. Without one, this node goes on
notifying owners over what it can tell alone: Quotas on it, or on a GPU of it. What stops work waits
for the hub, which has the one ladder and its clock.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from gpudeck.contract.desired_state import DesiredState, QuotaEnforcement
from gpudeck.contract.ladder import AGAIN_AFTER_S, PUT_OFF_MOST
from gpudeck.contract.quota import Quota
from gpudeck.contract.quota_usage import (
    QuotaBalance,
    QuotaIndex,
    QuotaOffender,
    TaskHolding,
    balances,
)

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


class QuotaWarning(Struct, frozen=True):
    """Warnings to the owner of a job over a Quota, in the time without a hub. `due_at`: when the
    next one comes, if there is one. `put_off`: how often one could not be given; after
    PUT_OFF_MOST times none comes any more."""

    count: int
    due_at: float
    put_off: int = 0


QuotaWarnings = Mapping[Key, QuotaWarning]


@dataclass(frozen=True, slots=True)
class DueWarning:
    key: Key
    task_ids: tuple[str, ...]
    sentence: str


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


def due_warnings(before: QuotaWarnings, desired: DesiredState, snapshot: QuotaSnapshot, hub: Hub,
                 now: float) -> tuple[QuotaWarnings, tuple[DueWarning, ...]]:
    """Return which owners are to be notified now: at the times of those steps of a ladder that
    notify. `now` is of a clock that never steps. Each is counted before it is sent, so that a
    restart repeats none. Nothing here ends or pauses: that waits for the hub."""
    if hub == "there":
        return {}, ()
    if hub == "quiet" or not snapshot.is_fresh:
        return before, ()
    warnings: dict[Key, QuotaWarning] = {}
    due: list[DueWarning] = []
    for key, (balance, offender) in _offences(desired, snapshot).items():
        waits = [rung.after_s for rung in balance.quota.ladder if rung.do == "tell"]
        if not waits:
            continue
        warning = before.get(key) or QuotaWarning(0, now + waits[0])
        if warning.count < len(waits) and warning.put_off < PUT_OFF_MOST and (
                now >= warning.due_at and not snapshot.rights.tell):
            count = warning.count + 1
            warning = QuotaWarning(count, now + (waits[count] if count < len(waits) else 0.0),
                                   warning.put_off)
            due.append(DueWarning(key, offender.task_ids, balance.sentence))
        warnings[key] = warning
    return warnings, tuple(due)


def put_off(warnings: QuotaWarnings, key: Key, now: float) -> QuotaWarnings:
    """Let a warning that could not be given come again a little later."""
    warning = warnings.get(key)
    if warning is None:
        return warnings
    return {**warnings, key: QuotaWarning(
        max(warning.count - 1, 0), now + AGAIN_AFTER_S, warning.put_off + 1)}


def _offences(desired: DesiredState, snapshot: QuotaSnapshot
              ) -> dict[Key, tuple[QuotaBalance, QuotaOffender]]:
    return {(balance.quota.id, offender.job_id): (balance, offender)
            for balance in _balances(desired, snapshot)
            if balance.is_over and balance.quota.mode != "observe"
            and balance.quota.scope_kind in HERE
            for offender in balance.offenders}

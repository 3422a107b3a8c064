"""Quotas of GPU memory that the driver enforces: for which control groups, on which GPUs. Pure.

A limit of the driver is for one control group and one GPU. It is set where all tasks in a group on
that GPU count for one quota and one holder; the sum over groups and GPUs stays with the ladder.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from gpudeck.contract.desired_state import DesiredState, QuotaEnforcement
from gpudeck.contract.limits import GroupMemoryLimit
from gpudeck.contract.quota import Quota
from gpudeck.contract.quota_usage import QuotaIndex, TaskHolding, holder_of
from gpudeck.contract.wire import Task

from ..limits.memory_limits import MemoryKey, MemoryTarget, is_inside
from ..tasks.managers import CONTAINER, POD, SLURM

TARGETS_MOST = 512
OF_USERS = ("user", "group", "*")
_PATTERNS = {"container": CONTAINER, "slurm": SLURM, "k8s": POD}


class TaskPlace(NamedTuple):
    """Task on a GPU, in its control group. `group` None: it has ended, or is not seen."""

    holding: TaskHolding
    gpu_uuid: str
    group: str | None


@dataclass(frozen=True, slots=True)
class MemoryBoards:
    """Boards whose memory the driver can limit, with the amount; None: not known."""

    total_bytes: Mapping[str, float | None]

    def is_limited_by(self, uuid: str, most: float) -> bool:
        total = self.total_bytes.get(uuid)
        return uuid in self.total_bytes and (total is None or most < total)


def limited_quotas(desired: DesiredState) -> dict[str, Quota]:
    """Return the quotas that the driver may hold owners to, one by one."""
    return {quota.id: quota for quota in desired.quotas
            if quota.mem_bytes is not None and quota.mode == "act" and quota.count == "each"}


def memory_targets(desired: DesiredState, places: Sequence[TaskPlace], boards: MemoryBoards,
                   before: Iterable[MemoryTarget]) -> list[MemoryTarget]:
    """Return the limits that quotas want. `before`: those since the same quotas were set: they go
    on between two tasks of an owner."""
    index, limited = QuotaIndex(desired.quotas), limited_quotas(desired)
    targets = {target.key: target for target in before}
    choices = [(place, _counts(index, place)) for place in places]
    for place, quota in choices:
        group = None if quota is None else owner_group(quota, place.holding.task, place.group)
        holder = _holder(quota, place.holding.task)
        if group is None or quota is None or quota.id not in limited or not holder:
            continue
        most = float(quota.mem_bytes or 0)
        if boards.is_limited_by(place.gpu_uuid, most):
            target = MemoryTarget(place.gpu_uuid, group, most, holder)
            targets[target.key] = target
    return [target for key, target in targets.items()
            if all(_holder(quota, place.holding.task) == target.holder
                   for place, quota in choices if _is_in(place, key))][:TARGETS_MOST]


def _counts(index: QuotaIndex, place: TaskPlace) -> Quota | None:
    choice = index.choice(place.holding, place.gpu_uuid, "mem_bytes", "each")
    return None if choice is None else choice.quota


def _is_in(place: TaskPlace, key: MemoryKey) -> bool:
    uuid, group = key
    return place.gpu_uuid == uuid and place.group is not None and is_inside(place.group, group)


def _holder(quota: Quota | None, task: Task) -> str:
    holder = None if quota is None else holder_of(quota, task)
    return "" if quota is None or holder is None else f"{_prefix(quota.id)}{holder}"


def _prefix(quota_id: str) -> str:
    return f"quota {quota_id} of "


def owner_group(quota: Quota, task: Task, group: str | None) -> str | None:
    """Return the control group that is a holder's and nobody else's. None: there is none, as of a
    whole namespace, or of a user whose tasks a scheduler or a container runtime starts."""
    if group is None:
        return None
    if quota.subject_kind in OF_USERS:
        slice_of_user = f"/user.slice/user-{task.uid}.slice"
        return slice_of_user if is_inside(group, slice_of_user) else None
    if quota.subject_kind == "k8s" and "/" not in quota.subject_name:
        return None
    return _whole(_PATTERNS[quota.subject_kind], group)


def _whole(pattern: re.Pattern[str], group: str) -> str | None:
    """Return the path down to the part in which the last match is."""
    matches = list(pattern.finditer(group))
    if not matches:
        return None
    end = group.find("/", matches[-1].end())
    return group if end < 0 else group[:end]


def with_limits(enforcement: QuotaEnforcement, limits: Iterable[GroupMemoryLimit]
                ) -> QuotaEnforcement:
    """Add what the driver enforces of a quota to its proof."""
    own = [limit for limit in limits if limit.holder.startswith(_prefix(enforcement.quota_id))]
    count = len({limit.group for limit in own if limit.state == "in_force"})
    parts = [enforcement.proof]
    if count:
        parts.append(f"the driver limits the memory of {count} control group{'s' * (count != 1)} "
                     "on each GPU")
    parts += sorted({f"the driver does not limit {limit.group}: {limit.words}" for limit in own
                     if limit.state != "in_force"})[:1]
    return replace(enforcement, proof="; ".join(filter(None, parts))[:1_024])

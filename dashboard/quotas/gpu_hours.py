"""GPU-hours of quotas: what history has of users, nodes and GPUs, counted for the most specific
Quota, as what is held now is. Pure."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpudeck.contract.quota import Limit, Per
from gpudeck.contract.quota_usage import COUNTS, QuotaIndex, TaskHolding, holder_of
from gpudeck.contract.wire import Task

HOURS: Limit = "gpu_hours"
Grain = Literal["user", "node", "gpu"]
NodeGroup = tuple[str, str | None]  # host and group of a node


@dataclass(frozen=True, slots=True)
class UserGpuSeconds:
    """GPU time of one user on one GPU, summed up; None: of all of them, or not known."""

    user: str | None
    node_id: str | None
    gpu: str | None
    gpu_s: float


def cells_of(rows: Iterable[Mapping[Hashable, Any]]) -> Iterator[UserGpuSeconds]:
    for row in rows:
        user, node, gpu = (None if value is None or value != value else str(value)
                           for value in (row.get("user"), row.get("node"), row.get("gpu")))
        yield UserGpuSeconds(user, node, gpu, float(row["gpu_s"]))


@dataclass(slots=True)
class QuotaGpuHours:
    """GPU-hours by Quota and holder. `unsure`: Quotas of a whole group, where somebody has hours of
    whom it is not known which groups they are in: at least that many. `by_node`: of each, by
    node."""

    of: dict[tuple[str, str], float] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    by_node: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)


def grain(quotas: QuotaIndex, per: Per) -> tuple[Grain, ...]:
    """Return the columns that history has to split by, no finer than needed; empty: it is not
    asked."""
    limited = [quota for quota in quotas.all if quota.gpu_hours is not None]
    if not any(quota.per == per for quota in limited):
        return ()
    kinds = {quota.scope_kind for quota in limited}
    return ("user", "node", "gpu") if "gpu" in kinds else ("user", "node")


def hours_of(quotas: QuotaIndex, per: Per, cells: Iterable[UserGpuSeconds],
             group_of: Mapping[str, NodeGroup],
             groups: Mapping[str, Iterable[str]]) -> QuotaGpuHours:
    totals, tasks, unknown = QuotaGpuHours(), dict[str | None, Task](), False
    quota_ids = {quota.id for quota in quotas.all
                 if quota.gpu_hours is not None and quota.per == per}
    for cell in cells:
        unknown = unknown or (cell.user is not None and cell.user not in groups)
        task = tasks.get(cell.user)
        if task is None:
            task = tasks[cell.user] = stand_in(cell.user, groups)
        host, group = group_of.get(cell.node_id or "", ("", None))
        holding = TaskHolding(task, cell.node_id or "", host, group,
                              () if cell.gpu is None else ((cell.gpu, None),))
        for count in COUNTS:
            choice = quotas.choice(holding, cell.gpu, HOURS, count)
            holder = None if choice is None else holder_of(choice.quota, task)
            if choice is not None and holder is not None and choice.quota.id in quota_ids:
                key = choice.quota.id, holder
                hours = cell.gpu_s / 3_600
                totals.of[key] = totals.of.get(key, 0.0) + hours
                if cell.node_id is not None:
                    of_nodes = totals.by_node.setdefault(key, {})
                    of_nodes[cell.node_id] = of_nodes.get(cell.node_id, 0.0) + hours
    if unknown:
        totals.unsure = {quota.id for quota in quotas.all
                         if quota.id in quota_ids and quota.subject_kind == "group"
                         and quota.count == "together"}
    return totals


def stand_in(user: str | None, groups: Mapping[str, Iterable[str]]) -> Task:
    """Return a task for the hours of a user: whose they are is all that history knows of a task."""
    user_groups = () if user is None else tuple(sorted(groups.get(user, ())))
    return Task("history", 1, 1, None, user, None, groups=user_groups)

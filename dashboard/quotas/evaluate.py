"""Quotas at the hub: who holds what on the fleet, what each node is to hold, and how far it is."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from msgspec import Struct

from gpudeck.contract.desired_state import InForce
from gpudeck.contract.quota import Quota
from gpudeck.contract.quota_usage import QuotaBalance, QuotaOffender, TaskHolding

from ..fleet.fleet import Fleet, Node

FRESH_S = 10.0  # of a node's newest Frame; what is older says nothing of now
OverKey = tuple[str, str, str]  # Quota, node and job


class QuotaDeployment(Struct, frozen=True):
    """Quota on one node. `is_applied`: it lies on the node's disk as it is wanted."""

    node: str
    host: str
    is_applied: bool
    is_in_force: bool
    mechanism: str
    proof: str


def holdings(fleet: Fleet, node: Node) -> list[TaskHolding]:
    """Return the holdings of one node, as it reported last."""
    if node.listing is None:
        return []
    uses: dict[str, list[tuple[str, float | None]]] = {}
    since: dict[str, dict[str, float]] = {}
    for use in node.uses:
        uuid = fleet.uuids[node.listing.order[use.gpu]]
        uses.setdefault(use.task_id, []).append((uuid, use.mem_used_bytes))
        since.setdefault(use.task_id, {})[uuid] = node.used_since[use.task_id, use.gpu]
    group = fleet.group_of(node.hello.node_id)
    return [TaskHolding(task, node.hello.node_id, node.hello.host, group, tuple(uses[task_id]),
                        since[task_id])
            for task_id, task in node.tasks.items() if task_id in uses]


def on_gpu(node_holdings: Iterable[TaskHolding], uuid: str | None) -> list[TaskHolding]:
    """Return the holdings as if there were no other GPU; None: all of them."""
    if uuid is None:
        return list(node_holdings)
    return [replace(holding, uses=uses) for holding in node_holdings
            if (uses := tuple(use for use in holding.uses if use[0] == uuid))]


def is_current(node: Node, now: float) -> bool:
    """Return whether what a node holds is known now."""
    return (node.connected and node.state == "live" and node.are_tasks_known
            and now - node.frame_at <= FRESH_S)


def concerns(quota: Quota, fleet: Fleet, node: Node) -> bool:
    match quota.scope_kind:
        case "fleet":
            return True
        case "group":
            return quota.scope_name == fleet.group_of(node.hello.node_id)
        case "node":
            return quota.scope_name in (node.hello.host, node.hello.node_id)
        case _:
            return fleet.slot_on(node.hello.node_id, quota.scope_name) is not None


def for_node(quotas: Iterable[Quota], fleet: Fleet, node: Node) -> tuple[Quota, ...]:
    return tuple(quota for quota in quotas if concerns(quota, fleet, node))


def deployments(quota: Quota, generation: int, fleet: Fleet, reports: Mapping[str, InForce]
                ) -> Iterator[QuotaDeployment]:
    """Yield the state of a quota on its nodes. `generation`: of the newest change."""
    for node_id, node in fleet.nodes.items():
        if concerns(quota, fleet, node):
            yield deployment(quota, generation, node, reports.get(node_id))


def deployment(quota: Quota, generation: int, node: Node, report: InForce | None
               ) -> QuotaDeployment:
    node_id, host = node.hello.node_id, node.hello.host
    if report is None:
        why = ("the node has not said what it holds" if node.connected else
               "the node is not connected; it takes it when it is back")
        return QuotaDeployment(node_id, host, False, False, "none", why)
    if report.generation != generation:
        why = report.trouble or f"the node holds generation {report.generation}, not {generation}"
        return QuotaDeployment(node_id, host, False, False, "none", why)
    mark = next((mark for mark in report.quotas if mark.quota_id == quota.id), None)
    if mark is None:
        return QuotaDeployment(node_id, host, True, False, "none", "the node has not looked yet")
    if not node.connected:
        return QuotaDeployment(node_id, host, True, False, mark.mechanism,
                               "the node is not connected: it applies this on its own, and what is "
                               "in force there is not known here")
    return QuotaDeployment(node_id, host, True, mark.is_in_force, mark.mechanism, mark.proof)


def counts(deployed: Collection[QuotaDeployment]) -> tuple[int, int, int]:
    """Return the numbers of nodes on which it is wanted, applied and in force."""
    return (len(deployed), sum(state.is_applied for state in deployed),
            sum(state.is_in_force for state in deployed))


def over_key(quota: Quota, offender: QuotaOffender) -> OverKey:
    return quota.id, offender.node, offender.job_id


def over_since(before: Mapping[OverKey, float], balances: Iterable[QuotaBalance], now: float
               ) -> dict[OverKey, float]:
    """Return since when each job has been one that would go. Only a new sum counts."""
    keys = {over_key(balance.quota, offender) for balance in balances if balance.is_over
            for offender in balance.offenders}
    return {key: before.get(key, now) for key in keys}


def worst_first(balances: Iterable[QuotaBalance]) -> list[QuotaBalance]:
    """Sort by share of the limit; nothing at all of nothing is no share."""
    return sorted(balances, key=lambda balance: (
        not balance.is_over, -(balance.used / balance.most if balance.most else balance.used),
        balance.holder))

"""Queries of quotas for the API and Prometheus, by what an actor may see."""

import time
from collections import defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

import gevent

from gpudeck.contract.desired_state import InForce
from gpudeck.contract.quota import PER_S, Limit, Quota
from gpudeck.contract.quota_usage import QuotaBalance, QuotaIndex, balances, explained, holder_of

from ..errors import NotFoundError
from ..fleet.fleet import Fleet
from ..fleet.task_targets import task_on_node
from ..fleet.visibility import VisibleFleet
from ..history.reads.protocol import History
from ..runtime.native_threads import in_thread
from . import evaluate
from .deployment import QuotaDeployer
from .evaluate import QuotaDeployment, concerns, for_node, holdings, is_current, worst_first
from .gpu_hours import QuotaGpuHours
from .prometheus import QuotaSeen
from .service import QuotaService
from .store import QuotasStore
from .usage_history import HOUR_S, QuotaUsageSeries, line, narrower, step_of
from .views import NodeQuotaView, TaskQuotaView, holder_here, node_quota, task_quota

SHARED_FOR_S = 2.0
WITNESSES = 16
BalanceKey = tuple[str, Limit, str]


def key_of(balance: QuotaBalance) -> BalanceKey:
    return balance.quota.id, balance.limit, balance.holder


@dataclass(slots=True)
class QuotaQueries:
    """Reads the state of quotas, and changes nothing."""

    service: QuotaService
    deployer: QuotaDeployer
    store: QuotasStore
    fleet: Fleet
    history: History
    _deployments: dict[tuple[str, int], tuple[float, list[QuotaDeployment]]] = field(
        init=False, default_factory=dict)

    @property
    def index(self) -> QuotaIndex:
        return self.service.active.index

    def reports(self) -> Iterator[tuple[str, str, InForce]]:
        """Yield node, its host, and what it reported last."""
        for node_id, in_force in self.deployer.in_force.items():
            host = self.fleet.host_of(node_id)
            if host is not None:
                yield node_id, host, in_force

    def deployments(self, quota: Quota) -> list[QuotaDeployment]:
        """Return the state of a quota on its nodes; the same list within a moment."""
        generation, now = self.service.active.generation, time.monotonic()
        key = quota.id, generation
        cached = self._deployments.get(key)
        if cached is None or now - cached[0] >= SHARED_FOR_S:
            gevent.sleep(0)  # of many quotas on many nodes, live is not to wait for all
            cached = now, [*evaluate.deployments(quota, generation, self.fleet,
                                                 self.deployer.in_force)]
            self._deployments = {other: entry for other, entry in self._deployments.items()
                                 if now - entry[0] < SHARED_FOR_S} | {key: cached}
        return cached[1]

    def seen_by(self, visible: VisibleFleet, quota: Quota
                ) -> tuple[list[QuotaDeployment], list[QuotaBalance]]:
        sees_all = self.sees_all(visible, quota)
        return [state for state in self.deployments(quota) if visible.sees_node(state.node)], [
            balance for balance in self.of(quota.id)
            if sees_all or balance.holder in visible.reads.own]

    def _seen_here(self, visible: VisibleFleet, keys: Container[BalanceKey]
                   ) -> dict[str, list[QuotaBalance]]:
        """Return the visible balances with these keys, by quota: pages of a node ask all the
        time, and there are as many balances as owners in the fleet."""
        by_quota: dict[str, list[QuotaBalance]] = defaultdict(list)
        for balance in self.service.balances:
            if key_of(balance) in keys:
                by_quota[balance.quota.id].append(balance)
        own = visible.reads.own
        return {quota_id: worst_first(
            same if self.sees_all(visible, same[0].quota)
            else (balance for balance in same if balance.holder in own))
            for quota_id, same in by_quota.items()}

    def sees_all(self, visible: VisibleFleet, quota: Quota) -> bool:
        """Return whether all nodes of a quota are visible: else no sums are, but one's own."""
        return visible.is_whole or all(
            visible.sees_node(node_id) for node_id, node in self.fleet.nodes.items()
            if concerns(quota, self.fleet, node))

    def of(self, quota_id: str) -> list[QuotaBalance]:
        return worst_first(
            balance for balance in self.service.balances if balance.quota.id == quota_id)

    def of_task(self, name: str, visible: VisibleFleet) -> Iterator[TaskQuotaView]:
        """Yield, per limit, the quota that counts for a task, why, and its holder's usage if
        visible. `name`: an id, or NODE/ID."""
        node, task = task_on_node(visible.nodes(self.fleet), name)
        task_id = task.id
        may_read = visible.is_whole or node.tasks[task_id].user in visible.reads.own
        for holding in holdings(self.fleet, node):
            if holding.task.id == task_id:
                for limit, choice in explained(self.index, holding):
                    holder_key = limit, holder_of(choice.quota, holding.task)
                    yield task_quota(limit, choice, next(
                        (balance for balance in self.of(choice.quota.id)
                         if may_read and (balance.limit, balance.holder) == holder_key),
                        None), task_id)

    def of_node(self, node_id: str, uuid: str | None, visible: VisibleFleet
                ) -> list[NodeQuotaView]:
        """Return the quotas on this node, or on this GPU of it, with their holders there."""
        if not visible.sees_node(node_id):
            raise NotFoundError(f"there is no node {node_id[:128]!r} here")
        if uuid is not None and self.fleet.slot_on(node_id, uuid) is None:
            raise NotFoundError(f"there is no GPU {uuid[:128]!r} on it")
        node, now = self.fleet.nodes[node_id], time.time()
        node_holdings = [] if not is_current(node, now) else (
            evaluate.on_gpu(holdings(self.fleet, node), uuid))
        task_ids = frozenset(holding.task.id for holding in node_holdings)
        parts = {key_of(balance): balance for balance in balances(
            self.index, node_holdings, now, self.service.hours.of,
            frozenset(self.service.spared))}
        seen, views = self._seen_here(visible, parts), []
        for quota in for_node(self.index.all, self.fleet, node):
            if quota.scope_kind == "gpu" and uuid not in (None, quota.scope_name):
                continue
            deployed = evaluate.deployment(quota, self.service.active.generation, node,
                                           self.deployer.in_force.get(node.hello.node_id))
            views.append(node_quota(quota, deployed, [
                holder_here(balance, parts[key_of(balance)], task_ids)
                for balance in seen.get(quota.id, ())]))
        return views

    def of_owner(self, name: str, visible: VisibleFleet) -> list[QuotaBalance]:
        """Return all balances that count for an owner, also those of nothing held now."""
        owner_balances = [
            balance for quota in self.index.all for balance in self.seen_by(visible, quota)[1]
            if name in (balance.holder, *balance.users)]
        if visible.is_whole or name in visible.reads.own:
            listed = {(balance.quota.id, balance.limit) for balance in owner_balances}
            owner_balances += [self._nothing(quota, limit, name) for quota, limit in
                               self.index.open_to(name, self.service.groups.get(name, ()))
                               if (quota.id, limit) not in listed and limit != "max_age_s"]
        return worst_first(owner_balances)

    def _nothing(self, quota: Quota, limit: Limit, name: str) -> QuotaBalance:
        hours = self.service.hours.of.get((quota.id, name)) if limit == "gpu_hours" else None
        is_known = limit != "gpu_hours" or self.service.are_hours_known
        return QuotaBalance(quota, limit, name, hours or 0.0, quota.limit(limit) or 0.0, is_known,
                            0, ())

    def all_seen_by(self, visible: VisibleFleet) -> list[QuotaSeen]:
        return [(quota, *self.seen_by(visible, quota)) for quota in self.index.all]

    def past(self, quota: Quota, limit: Limit, holder: str,
             span_s: float) -> tuple[int, QuotaUsageSeries]:
        """Return the length of a step, and what this holder had of it over time."""
        step_s, now = step_of(limit, span_s), time.time()
        is_hours = limit == "gpu_hours"  # the mean of a step that is not over is not known
        end = (int(now // step_s) + is_hours) * step_s
        span = end - int(span_s), end
        usage_span = span[0] - int(PER_S[quota.per] + HOUR_S if is_hours else 0), end
        column = "mem_byte_s" if limit == "mem_bytes" else "gpu_s"
        nodes = self._counted_on(quota, limit, holder)
        # A step in which not one of several nodes was seen is unknown: the hub was away.
        witnesses = [self.fleet.uuids[node.listing.order[0]] for node in list(
            self.fleet.nodes.values()) if node.listing and node.listing.order][:WITNESSES]
        gave = self.store.versions(quota.id)

        def ask() -> QuotaUsageSeries:
            if not witnesses or nodes == frozenset():
                return line(quota, limit, span, step_s, {}, frozenset(), gave)
            sampled = self.history.series(witnesses, ["mem_used_bytes"], *span, step_s, ("n",))
            own = self.history.usage("user", step_s, *usage_span, nodes, holder)
            return line(quota, limit, span, step_s,
                        dict(zip(own["t"].tolist(), own[column].tolist(), strict=True)),
                        frozenset(sampled["t"].tolist()), gave)

        return step_s, in_thread(ask)

    def _counted_on(self, quota: Quota, limit: Limit, holder: str) -> frozenset[str] | None:
        """Return the nodes where nothing narrower counts for them; None: all, even nodes that are
        gone."""
        narrower_quotas = [other for other in narrower(
            quota, limit, holder, self.service.groups.get(holder, ()), self.index.all)
            if other.scope_kind != "gpu"]
        if quota.scope == "fleet" and not narrower_quotas:
            return None
        return frozenset(
            node_id for node_id, node in self.fleet.nodes.items()
            if concerns(quota, self.fleet, node) and not any(
                concerns(other, self.fleet, node) for other in narrower_quotas))

    def try_out(self, quota: Quota, visible: VisibleFleet) -> list[QuotaBalance]:
        """Return who would be over what, if a quota were in force now along with the others."""
        now = time.time()
        rest = (other for other in self.index.all if other.id != quota.id)
        quotas = QuotaIndex([*rest, quota])
        scope = None if visible.is_whole else visible
        hours = QuotaGpuHours() if quota.gpu_hours is None else self.service.count_hours(
            now, quotas, scope)
        return worst_first(balance for balance in self.service.sum(now, quotas, hours, scope)
                           if balance.quota.id == quota.id)

    def reach(self, quota: Quota, visible: VisibleFleet) -> int:
        """Return the number of nodes it applies to."""
        return sum(concerns(quota, self.fleet, node) for node_id, node in list(
            self.fleet.nodes.items()) if visible.sees_node(node_id))

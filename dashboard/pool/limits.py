"""Limits of what quotas leave an owner to lease. GPUs that are leased and used count once.

Only quotas that act hold a claim back. One for a single GPU does not: where a claim goes is not
known yet. Work is ended for what it uses, as ever, never for what is only leased."""

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from gpudeck.contract.quota import Limit, Quota, amount_words, scope_words
from gpudeck.contract.quota_usage import COUNTS, QuotaIndex, TaskHolding, holder_of, is_in_scope
from gpudeck.contract.wire import Task
from gpudeck.pool.core.claims import Claim, Lease
from gpudeck.pool.core.placement import Placement
from gpudeck.pool.core.schedule import NoOwnerLimits, OwnerLimits

from ..fleet.fleet import Fleet
from ..quotas.gpu_hours import stand_in
from ..quotas.service import QuotaService
from .node_words import told_groups
from .plan import PoolNode

LIMITS: tuple[Limit, ...] = ("gpus", "gpu_hours")
Spot = tuple[str, str | None]  # host and group of a node
HeldGpus = dict[str, set[tuple[str, str]]]  # owner to node and GPU
NOWHERE: Spot = ("", None)
_NOBODY = stand_in(None, {})
AT_ONCE = 256  # of leases or nodes: some hundred microseconds


@dataclass(frozen=True, slots=True)
class LeasedQuotas:
    """Quotas as they count for leases. `groups`: of users; `hours`: by quota and holder."""

    index: QuotaIndex
    groups: Mapping[str, Iterable[str]]
    hours: Mapping[tuple[str, str], float | None]

    @property
    def is_any(self) -> bool:
        return any(quota.mode == "act" and set(LIMITS) & set(quota.limits)
                   for quota in self.index.all)


class QuotaLimits:
    """Limits by quotas, made by `build`. `spots`: of every node that gives out GPUs. Nodes that the
    same quotas are about are looked at once."""

    def __init__(self, quotas: LeasedQuotas, spots: Mapping[str, Spot], holdings: HeldGpus,
                 alike: Iterable[Sequence[str]]) -> None:
        self._quotas = quotas
        self._spots = spots
        self._holdings = holdings
        self._ids_by_name: dict[str, list[str]] = {}
        for node_id, (host, _) in spots.items():
            for name in {node_id, host}:
                self._ids_by_name.setdefault(name, []).append(node_id)
        self._alike = [(members[0], frozenset(members)) for members in alike]
        self._first = {node_id: first for first, members in self._alike for node_id in members}
        self._choices: dict[tuple[str, str], tuple[tuple[Quota, Limit, str], ...]] = {}
        self._unions: dict[tuple[frozenset[str], ...], frozenset[str]] = {}
        self._verdicts: dict[str, dict[int, tuple[frozenset[str], str]]] = {}  # by owner and GPUs
        self._holders: dict[str, frozenset[tuple[str, str]]] = {}
        self._usage: Counter[tuple[str, str]] = Counter()

    @classmethod
    def build(cls, quotas: LeasedQuotas, spots: Mapping[str, Spot], holdings: HeldGpus
              ) -> Generator[None, None, Self]:
        """Build the limits step by step: for thousands of nodes and leases it takes longer than the
        hub's one thread may be held."""
        narrow = [quota for quota in quotas.index.all if quota.scope_kind != "fleet"]
        kinds: dict[frozenset[str], list[str]] = {}
        for at, (node_id, spot) in enumerate(spots.items()):
            about = _holding(_NOBODY, node_id, spot)
            kinds.setdefault(frozenset(quota.id for quota in narrow
                                       if is_in_scope(quota, about, None)), []).append(node_id)
            if at % AT_ONCE == 0:
                yield
        yield
        limits = cls(quotas, spots, holdings, kinds.values())
        first_of = limits._first.get
        for owner, gpus in holdings.items():
            yield
            for node_id, number in Counter(
                    [first_of(node_id, node_id) for node_id, _ in gpus]).items():
                limits._count(owner, node_id, number)
        return limits

    def why_not(self, claim: Claim) -> str:
        closed, why = self._look(claim)
        if not closed:
            return ""
        if not claim.hosts:
            return why if len(closed) == len(self._spots) else ""
        return why if all(node_id in closed for name in claim.hosts
                          for node_id in self._ids_by_name.get(name, ())) else ""

    def closed(self, claim: Claim) -> frozenset[str]:
        return self._look(claim)[0]

    def take(self, placement: Placement) -> None:
        owner = placement.claim.owner
        mine = self._holdings.setdefault(owner, set())
        for grant in placement.grants:
            new = {(grant.node, uuid) for uuid in grant.uuids} - mine
            mine |= new
            self._count(owner, self._first.get(grant.node, grant.node), len(new))
        affected = self._holders_of(owner)
        for other in [*self._verdicts]:
            if not affected.isdisjoint(self._holders_of(other)):
                del self._verdicts[other]

    def _count(self, owner: str, node_id: str, number: int) -> None:
        for quota, limit, holder in self._choice(owner, node_id):
            if limit == "gpus":
                self._usage[quota.id, holder] += number

    def _holders_of(self, owner: str) -> frozenset[tuple[str, str]]:
        """Return the quotas for which it counts what this owner has, and under whose name."""
        if owner not in self._holders:
            self._holders[owner] = frozenset(
                (quota.id, holder) for first, _ in self._alike
                for quota, limit, holder in self._choice(owner, first) if limit == "gpus")
        return self._holders[owner]

    def _look(self, claim: Claim) -> tuple[frozenset[str], str]:
        """Return the nodes where a claim may have no more, and why on one of them."""
        of_owner = self._verdicts.setdefault(claim.owner, {})
        mine = self._holdings.get(claim.owner, ())
        # A suspended task counts on its GPUs already.
        count = claim.gpus * claim.nodes - sum(
            (node_id, uuid) in mine for node_id in claim.hosts for uuid in claim.home_gpus)
        if count not in of_owner:
            whys = [(members, why) for first, members in self._alike
                    if (why := self._why(claim.owner, count, first))]
            of_owner[count] = self._all_of(tuple(members for members, _ in whys)), (
                whys[0][1] if whys else "")
        return of_owner[count]

    def _all_of(self, kinds: tuple[frozenset[str], ...]) -> frozenset[str]:
        """Return all nodes of these kinds; cached, for the same few come back for every owner."""
        if kinds not in self._unions:
            self._unions[kinds] = frozenset[str]().union(*kinds)
        return self._unions[kinds]

    def _why(self, owner: str, count: int, node_id: str) -> str:
        for quota, limit, holder in self._choice(owner, node_id):
            most = quota.limit(limit)
            usage: float | None = self._usage[quota.id, holder] if limit == "gpus" else (
                self._quotas.hours.get((quota.id, holder)))
            if most is None or usage is None:
                continue
            if usage >= most if limit == "gpu_hours" else usage + count > most:
                state = "leased or in use" if limit == "gpus" else "used"
                most_words, used_words = (
                    amount_words(limit, amount, quota.per) for amount in (most, usage))
                return (f"the quota {quota.id} gives {holder} {most_words} {scope_words(quota)}; "
                        f"{used_words} {'is' if usage == 1 else 'are'} {state}")
        return ""

    def _choice(self, owner: str, node_id: str) -> tuple[tuple[Quota, Limit, str], ...]:
        """Return what limits this owner there: quota, limit and for whom it is counted."""
        if (owner, node_id) not in self._choices:
            task = stand_in(owner, self._quotas.groups)
            about = _holding(task, node_id, self._spots.get(node_id, NOWHERE))
            choices = [(choice.quota, limit) for limit in LIMITS for count in COUNTS
                       if (choice := self._quotas.index.choice(about, None, limit, count))]
            self._choices[owner, node_id] = tuple(
                (quota, limit, holder) for quota, limit in choices
                if quota.mode == "act" and (holder := holder_of(quota, task)) is not None)
        return self._choices[owner, node_id]


def _holding(task: Task, node_id: str, spot: Spot) -> TaskHolding:
    host, group = spot
    return TaskHolding(task, node_id, host, group, ())


def held_gpus(leases: Iterable[Lease], fleet: Fleet) -> Generator[None, None, HeldGpus]:
    """Return GPUs by owner: leased, or used as the nodes said last; step by step."""
    by_owner: HeldGpus = {}
    for at, lease in enumerate(leases):
        by_owner.setdefault(lease.claim.owner, set()).update(
            (grant.node, uuid) for grant in lease.grants for uuid in grant.uuids)
        if at % AT_ONCE == 0:
            yield
    for at, node_id in enumerate(list(fleet.nodes)):
        if at % AT_ONCE == 0:
            yield
        node = fleet.nodes.get(node_id)
        if node is None or node.listing is None:  # it may be revoked meanwhile
            continue
        for use in node.uses:
            task = node.tasks.get(use.task_id)
            if task is not None and task.user is not None:
                by_owner.setdefault(task.user, set()).add(
                    (node_id, fleet.uuids[node.listing.order[use.gpu]]))
    return by_owner


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Source of the limits of owners for each pass, step by step."""

    quotas: QuotaService
    fleet: Fleet

    def __call__(self, nodes: Collection[PoolNode], leases: Iterable[Lease]
                 ) -> Generator[None, None, OwnerLimits]:
        # A user of whom no task was seen yet, or not since their groups changed.
        quotas = LeasedQuotas(self.quotas.active.index,
                              {**self.quotas.groups, **told_groups(nodes)}, self.quotas.hours.of)
        if not quotas.is_any:
            return NoOwnerLimits()
        holdings = yield from held_gpus(leases, self.fleet)
        return (yield from QuotaLimits.build(
            quotas, {node.id: (node.host, self.fleet.group_of(node.id)) for node in nodes},
            holdings))

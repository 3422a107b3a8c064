"""What quotas leave an owner to lease. GPUs that are leased and used count once.

Only quotas that act hold a claim back. One for a single GPU does not: where a claim goes is not
known yet. Work is ended for what it uses, as ever, never for what is only leased.
"""

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from gpudeck.pool.core.claims import Claim, Lease
from gpudeck.pool.core.placement import Placement
from gpudeck.pool.core.schedule import NoOwnerLimits, OwnerLimits
from gpudeck.quota import Limit, Quota, amount_words, scope_words
from gpudeck.quota_usage import COUNTS, QuotaIndex, TaskHolding, holder_of, is_in_scope
from gpudeck.wire import Task

from ..fleet.fleet import Fleet
from ..quotas.gpu_hours import stand_in
from ..quotas.service import QuotaService
from .node_words import told_groups
from .plan import PoolNode

LIMITS: tuple[Limit, ...] = ("gpus", "gpu_hours")
Spot = tuple[str, str | None]  # host and group of a node
Held = dict[str, set[tuple[str, str]]]  # owner to node and GPU
NOWHERE: Spot = ("", None)
_NOBODY = stand_in(None, {})
AT_ONCE = 256  # of leases or nodes: some hundred microseconds


@dataclass(frozen=True, slots=True)
class LeasedQuotas:
    """`groups`: of users; `hours`: by quota and holder."""

    index: QuotaIndex
    groups: Mapping[str, Iterable[str]]
    hours: Mapping[tuple[str, str], float | None]

    @property
    def is_any(self) -> bool:
        return any(each.mode == "act" and set(LIMITS) & set(each.limits) for each in self.index.all)


class QuotaLimits:
    """`build` makes it. `spots`: of every node that gives out GPUs. Nodes that the same quotas are
    about are looked at once."""

    def __init__(self, quotas: LeasedQuotas, spots: Mapping[str, Spot], held: Held,
                 alike: Iterable[Sequence[str]]) -> None:
        self._quotas = quotas
        self._spots = spots
        self._held = held
        self._named: dict[str, list[str]] = {}
        for node_id, (host, _) in spots.items():
            for name in {node_id, host}:
                self._named.setdefault(name, []).append(node_id)
        self._alike = [(members[0], frozenset(members)) for members in alike]
        self._first = {node_id: first for first, members in self._alike for node_id in members}
        self._choices: dict[tuple[str, str], tuple[tuple[Quota, Limit, str], ...]] = {}
        self._joined: dict[tuple[frozenset[str], ...], frozenset[str]] = {}
        self._found: dict[str, dict[int, tuple[frozenset[str], str]]] = {}  # by owner and GPUs
        self._holders: dict[str, frozenset[tuple[str, str]]] = {}
        self._used: Counter[tuple[str, str]] = Counter()

    @classmethod
    def build(cls, quotas: LeasedQuotas, spots: Mapping[str, Spot], held: Held
              ) -> Generator[None, None, Self]:
        """Step by step: of thousands of nodes and leases it takes longer than the hub's one thread
        may be held."""
        narrow = [each for each in quotas.index.all if each.scope_kind != "fleet"]
        kinds: dict[frozenset[str], list[str]] = {}
        for at, (node_id, spot) in enumerate(spots.items()):
            about = _holding(_NOBODY, node_id, spot)
            kinds.setdefault(frozenset(each.id for each in narrow
                                       if is_in_scope(each, about, None)), []).append(node_id)
            if at % AT_ONCE == 0:
                yield
        yield
        made = cls(quotas, spots, held, kinds.values())
        first_of = made._first.get
        for owner, gpus in held.items():
            yield
            for node_id, number in Counter(
                    [first_of(each, each) for each, _ in gpus]).items():
                made._count(owner, node_id, number)
        return made

    def why_not(self, claim: Claim) -> str:
        closed, why = self._look(claim)
        if not closed:
            return ""
        if not claim.hosts:
            return why if len(closed) == len(self._spots) else ""
        return why if all(node_id in closed for name in claim.hosts
                          for node_id in self._named.get(name, ())) else ""

    def closed(self, claim: Claim) -> frozenset[str]:
        return self._look(claim)[0]

    def take(self, placement: Placement) -> None:
        owner = placement.claim.owner
        mine = self._held.setdefault(owner, set())
        for grant in placement.grants:
            new = {(grant.node, uuid) for uuid in grant.uuids} - mine
            mine |= new
            self._count(owner, self._first.get(grant.node, grant.node), len(new))
        counted = self._holders_of(owner)
        for other in [*self._found]:
            if not counted.isdisjoint(self._holders_of(other)):
                del self._found[other]

    def _count(self, owner: str, node_id: str, number: int) -> None:
        for quota, limit, holder in self._choice(owner, node_id):
            if limit == "gpus":
                self._used[quota.id, holder] += number

    def _holders_of(self, owner: str) -> frozenset[tuple[str, str]]:
        """Quotas for which it counts what this owner has, and under whose name."""
        if owner not in self._holders:
            self._holders[owner] = frozenset(
                (quota.id, holder) for first, _ in self._alike
                for quota, limit, holder in self._choice(owner, first) if limit == "gpus")
        return self._holders[owner]

    def _look(self, claim: Claim) -> tuple[frozenset[str], str]:
        """Nodes where it may have no more, and why on one of them."""
        of_owner = self._found.setdefault(claim.owner, {})
        asked = claim.gpus * claim.nodes
        if asked not in of_owner:
            whys = [(members, why) for first, members in self._alike
                    if (why := self._why(claim.owner, asked, first))]
            of_owner[asked] = self._all_of(tuple(members for members, _ in whys)), (
                whys[0][1] if whys else "")
        return of_owner[asked]

    def _all_of(self, kinds: tuple[frozenset[str], ...]) -> frozenset[str]:
        """The same few for every owner, of thousands of nodes."""
        if kinds not in self._joined:
            self._joined[kinds] = frozenset[str]().union(*kinds)
        return self._joined[kinds]

    def _why(self, owner: str, asked: int, node_id: str) -> str:
        for quota, limit, holder in self._choice(owner, node_id):
            most = quota.limit(limit)
            used: float | None = self._used[quota.id, holder] if limit == "gpus" else (
                self._quotas.hours.get((quota.id, holder)))
            if most is None or used is None:
                continue
            if used >= most if limit == "gpu_hours" else used + asked > most:
                said = "leased or in use" if limit == "gpus" else "used"
                given, gone = (amount_words(limit, each, quota.per) for each in (most, used))
                return (f"the quota {quota.id} gives {holder} {given} {scope_words(quota)}; "
                        f"{gone} {'is' if used == 1 else 'are'} {said}")
        return ""

    def _choice(self, owner: str, node_id: str) -> tuple[tuple[Quota, Limit, str], ...]:
        """What limits this owner there: quota, limit and for whom it is counted."""
        if (owner, node_id) not in self._choices:
            task = stand_in(owner, self._quotas.groups)
            about = _holding(task, node_id, self._spots.get(node_id, NOWHERE))
            chosen = [(choice.quota, limit) for limit in LIMITS for count in COUNTS
                      if (choice := self._quotas.index.choice(about, None, limit, count))]
            self._choices[owner, node_id] = tuple(
                (quota, limit, holder) for quota, limit in chosen
                if quota.mode == "act" and (holder := holder_of(quota, task)) is not None)
        return self._choices[owner, node_id]


def _holding(task: Task, node_id: str, spot: Spot) -> TaskHolding:
    host, group = spot
    return TaskHolding(task, node_id, host, group, ())


def held_gpus(leases: Iterable[Lease], fleet: Fleet) -> Generator[None, None, Held]:
    """Leased, or used as the nodes said last; step by step."""
    found: Held = {}
    for at, lease in enumerate(leases):
        found.setdefault(lease.claim.owner, set()).update(
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
                found.setdefault(task.user, set()).add(
                    (node_id, fleet.uuids[node.listing.order[use.gpu]]))
    return found


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """What each pass asks for the limits of owners, step by step."""

    quotas: QuotaService
    fleet: Fleet

    def __call__(self, nodes: Collection[PoolNode], leases: Iterable[Lease]
                 ) -> Generator[None, None, OwnerLimits]:
        # A user of whom no task was seen yet, or not since their groups changed.
        given = LeasedQuotas(self.quotas.active.index,
                             {**self.quotas.groups, **told_groups(nodes)}, self.quotas.hours.of)
        if not given.is_any:
            return NoOwnerLimits()
        held = yield from held_gpus(leases, self.fleet)
        return (yield from QuotaLimits.build(
            given, {node.id: (node.host, self.fleet.group_of(node.id)) for node in nodes}, held))

"""Plans for nodes, from what they report. Pure."""

from collections.abc import (
    Collection,
    Container,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from math import inf
from typing import Protocol

from gpudeck.contract.pool_link import (
    CLAIMS_MOST,
    ClaimStanding,
    LeaseOffer,
    NodeMaintenance,
    OfferedGpu,
    PoolPlan,
    PoolReport,
    ReportedEnd,
    ReportedLease,
    ReservedGpus,
)
from gpudeck.contract.pool_messages import ELSEWHERE_MOST
from gpudeck.measures.availability import UNREAD, Reason
from gpudeck.pool.core.ahead import ClaimsAhead, with_ahead
from gpudeck.pool.core.claims import CPU_MILLI, WHOLE_MILLI, Booking, Claim, Grant, Lease, gpus_of
from gpudeck.pool.core.fair_share import EndedUsage
from gpudeck.pool.core.feasibility import could, why_never, why_waits
from gpudeck.pool.core.fragmentation import LEAST_CLAIMS, ClaimMix, accepts
from gpudeck.pool.core.host_resources import asks_for_host
from gpudeck.pool.core.inventory import FreeGpu, MeasuredLoad, Node, node_of
from gpudeck.pool.core.placement import Placement, candidates
from gpudeck.pool.core.schedule import OwnerLimits, Pass, PoolPolicy, Queue, pass_steps
from gpudeck.pool.core.strategies import PlacementContext
from gpudeck.pool.core.wait_estimate import WaitEstimate, known_bound

from .excluded_nodes import NONE_EXCLUDED, ExcludedNodes, hosts_words
from .node_words import as_made_on, in_own_ids

NONE_AVOIDED: Mapping[str, frozenset[str]] = {}
FULL = "its memory is nearly full with what shares it now"


class BookedClaims(Protocol):
    """Bookings as a plan needs them. `never`: claim to why it cannot be kept."""

    @property
    def never(self) -> Mapping[str, str]: ...

    @property
    def reserved(self) -> Mapping[tuple[str, str], float]: ...  # GPUs and from when on

    @property
    def reservations(self) -> Collection[Booking]: ...

    def kept_gpus(self, claim_id: str) -> Collection[str]: ...  # GPUs


@dataclass(frozen=True)
class PoolNode:
    """A connected node that gives out GPUs; what follows from its report is worked out once."""

    id: str
    host: str
    report: PoolReport
    full: frozenset[str] = frozenset()  # shared, and without room for more (pressure.py)
    own_ids: Mapping[str, str] = field(default_factory=dict)  # by the hub's, where it is another
    # By UUID, why its hub calls a GPU not available that the node itself would lease, in words.
    doubts: Mapping[str, tuple[Reason, str]] = field(default_factory=dict)
    maintenance: NodeMaintenance | None = None

    @cached_property
    def empty(self) -> Node:
        """Node as if nothing were given out, and all were well."""
        return self.with_gpus({gpu.uuid for gpu in self.report.gpus})

    @cached_property
    def well(self) -> Node:
        """Node as if nothing were given out of what is well now."""
        return self.with_gpus({gpu.uuid for gpu in self.report.gpus if not self.trouble(gpu)})

    @cached_property
    def unread(self) -> frozenset[str]:
        """GPUs that are not well, and may be: no reading of them has come yet."""
        return frozenset(gpu.uuid for gpu in self.report.gpus if (
            gpu.reason if gpu.trouble else self._doubt(gpu)[0]) in UNREAD)

    @cached_property
    def shared(self) -> frozenset[str]:
        """GPUs that leases share. One leased whole is not given out anyway, and comes back with all
        its memory."""
        return frozenset(uuid for lease in self.report.leases
                         if lease.claim.share_milli < WHOLE_MILLI for uuid in lease.uuids)

    def trouble(self, gpu: OfferedGpu) -> str:
        """Return why no more of a GPU is given out; "": it is."""
        return gpu.trouble or self._doubt(gpu)[1] or (FULL if gpu.uuid in self.full else "")

    def _doubt(self, gpu: OfferedGpu) -> tuple[str, str]:
        return self.doubts.get(gpu.uuid, ("", ""))

    @cached_property
    def leased(self) -> frozenset[str]:
        return frozenset(uuid for lease in self.report.leases for uuid in lease.uuids)

    @cached_property
    def available(self) -> frozenset[str]:
        """GPUs that nobody has leased, and nothing speaks against."""
        return frozenset(gpu.uuid for gpu in self.report.gpus
                         if gpu.uuid not in self.leased and gpu.uuid not in self.troubles)

    @cached_property
    def troubles(self) -> Mapping[str, str]:
        """Reasons why GPUs are out of service, by UUID."""
        return {gpu.uuid: why for gpu in self.report.gpus if (why := self.trouble(gpu))}

    @cached_property
    def unleased(self) -> Node:
        """Node without what is leased, CPUs and memory apart: as long as nobody asks for any, full
        nodes are not looked at for them."""
        return replace(self.well, free_cpu_milli=None, free_ram_bytes=None).after_grants(
            (lease.claim, lease.uuids) for lease in self.report.leases)

    @cached_property
    def unleased_with_host(self) -> Node:
        free = self.well.free_host.after_grants(
            [*(lease.claim for lease in self.report.leases),
             *(entry.claim for entry in self.report.claims if entry.claim.home_gpus)])
        return replace(self.unleased, free_cpu_milli=free.cpu_milli, free_ram_bytes=free.ram_bytes)

    def prepare(self) -> None:
        """Compute all when its report comes, so that a hub's first pass need not do it for every
        node."""
        _ = self.unleased, self.claims, self.leases, self.leased_claims, self.shared, self.unread

    @cached_property
    def leases(self) -> Sequence[Lease]:
        return [Lease(id=lease.claim.id, claim=lease.claim, grants=(Grant(self.id, lease.uuids),),
                      since=lease.since, until=lease.until) for lease in self.report.leases]

    @cached_property
    def leased_claims(self) -> Collection[str]:
        """Claims that have their GPUs."""
        return {lease.claim.id for lease in self.report.leases}

    @cached_property
    def claims(self) -> Sequence[Claim]:
        """Claims made on this node: for it alone, or over several nodes of which it is one."""
        return [as_made_on(self.id, entry.claim) for entry in self.report.claims]

    @cached_property
    def paused(self) -> Mapping[str, str]:
        """Claims that would take nothing now, and why."""
        return {entry.claim.id: entry.paused for entry in self.report.claims if entry.paused}

    def with_gpus(self, there: Collection[str]) -> Node:
        """Return the node with these GPUs. GPU 0 comes last: programs that name no device use
        it."""
        return node_of(self.id, self.host, [
            (gpu.uuid, FreeGpu(gpu.model, gpu.is_mig, gpu.clique, gpu.numa,
                               None if gpu.mem_bytes is None else int(gpu.mem_bytes)))
            for gpu in sorted(self.report.gpus, key=lambda gpu: -gpu.index)
            if gpu.uuid in there],
            None if self.report.cpus is None else self.report.cpus * CPU_MILLI,
            free_ram_bytes=None if self.report.ram_bytes is None else int(self.report.ram_bytes))


@dataclass(frozen=True, slots=True)
class PendingOffer:
    """Offer that not all of its nodes have answered."""

    claim: Claim
    grants: tuple[Grant, ...]
    at_mono: float
    accepted_by: frozenset[str] = frozenset()  # nodes that have

    @property
    def lacks(self) -> frozenset[str]:
        """Nodes that have not answered yet."""
        return frozenset(grant.node for grant in self.grants) - self.accepted_by

    def is_for(self, node_id: str) -> bool:
        """Return whether that node is asked now. That of its run is asked last, when all others
        have it: its command begins at once."""
        return node_id in self.lacks and (node_id != self.claim.home or self.waits_for_home)

    @property
    def waits_for_home(self) -> bool:
        return self.lacks == {self.claim.home}


def never(claim: Claim, nodes: Collection[PoolNode]) -> str:
    """Return why no GPUs of the pool could ever meet a claim; "": some could."""
    there = [node.empty for node in nodes if not node.report.managed_by]
    if could(claim, there):
        return ""
    if not could(claim, [node.empty for node in nodes]):
        return why_never(claim, there if there else [node.empty for node in nodes])
    managed = [node for node in nodes if node.report.managed_by
               and could(replace(claim, nodes=1), [node.empty])]
    by = " or ".join(sorted({node.report.managed_by for node in managed}))
    return (f"it could be met only with GPUs of {hosts_words(managed)}, and {by} assigns those: "
            "ask it for them")


def newly_never(before: PoolReport, node: PoolNode, nodes: Collection[PoolNode]
                ) -> Iterator[tuple[str, str]]:
    """Yield claims over several nodes that were made on this one since `before` and could never be
    met, and why. The node knows nothing of others."""
    earlier = {entry.claim.id for entry in before.claims}
    for claim in node.claims:
        if claim.nodes > 1 and claim.id not in earlier and (why := never(claim, nodes)):
            yield claim.id, why


def waits(claim: Claim, nodes: Collection[PoolNode], free: Mapping[str, Node],
          reserved: Mapping[tuple[str, str], float], now: float) -> tuple[str, bool]:
    """Return why a claim waits, and whether it ever could be met."""
    unmanaged = [node for node in nodes if not node.report.managed_by]
    if len(unmanaged) < len(nodes) and (why := never(claim, nodes)):
        return why, False  # else it was refused when it was made; to ask each turn costs too much
    return why_waits(
        claim, [node.empty for node in unmanaged], [free[node.id] for node in unmanaged],
        {(node.id, uuid): why for node in unmanaged for uuid, why in node.troubles.items()},
        reserved, now), True


def free_nodes(nodes: Iterable[PoolNode], pending: Iterable[PendingOffer],
               is_host_asked: bool = False) -> dict[str, Node]:
    offered: dict[str, list[tuple[Claim, Collection[str]]]] = {}
    for offer in pending:
        for grant in offer.grants:
            if grant.node not in offer.accepted_by:
                offered.setdefault(grant.node, []).append((offer.claim, grant.uuids))
    return {node.id: (node.unleased_with_host if is_host_asked else node.unleased).after_grants(
        offered.get(node.id, ())) for node in nodes}


def waiting_claims(nodes: Collection[PoolNode], own: Collection[Claim],
                   pending: Mapping[str, PendingOffer]) -> list[Claim]:
    """Return the claims that wait. A claim has its GPUs where it was made, or where the hub offered
    them: on another node it goes by another id (claim_ids.py)."""
    leased_ids = set[str]().union(*(node.leased_claims for node in nodes))
    # A reservation taken over by the hub is reported until its node has learned of that.
    by_id = {claim.id: claim for node in nodes for claim in node.claims}
    by_id |= {claim.id: claim for claim in own}
    return [claim for claim in by_id.values()
            if claim.id not in leased_ids and claim.id not in pending]


def leases_of(nodes: Collection[PoolNode], pending: Collection[PendingOffer], now: float
              ) -> list[Lease]:
    proposed = [(offer.claim, tuple(grant for grant in offer.grants
                                    if grant.node not in offer.accepted_by))
                for offer in pending]
    return [lease for node in nodes for lease in node.leases] + [
        Lease(id=claim.id, claim=claim, grants=grants, since=now, until=now + claim.term_s)
        for claim, grants in proposed]


def leases_called(nodes: Iterable[PoolNode], lease_id: str
                  ) -> list[tuple[PoolNode, ReportedLease]]:
    """Return the leases with this id, here or at their nodes: of a run over several nodes each has
    one, and a node may say that it has one of any id."""
    return [(node, lease) for node in nodes for lease in node.report.leases
            if lease_id in (lease.claim.id, node.own_ids.get(lease.claim.id))]


def unused_ranks(nodes: Iterable[PoolNode], home: str, ends: Iterable[ReportedEnd]
                 ) -> Iterator[tuple[str, str]]:
    """Yield nodes and leases of runs over several nodes that have ended at home. The nodes give
    back only what nothing runs on: its other ranks end by themselves."""
    over = {end.claim.id for end in ends if end.claim.nodes > 1 and end.claim.home == home}
    for node in nodes if over else ():
        if node.id != home:
            yield from ((node.id, lease.id) for lease in node.leases if lease.claim.home == home
                        and node.own_ids.get(lease.id, lease.id) in over)


def due_now(outcome: Pass, bookings: Iterable[Booking], now: float
            ) -> Iterator[tuple[Claim, tuple[Grant, ...]]]:
    """Yield claims for which their GPUs are kept by now, and those GPUs."""
    waiting, shadow = set(outcome.order), outcome.shadow
    for booking in bookings:
        if booking.claim.id in waiting and booking.starts_at <= now:
            yield booking.claim, booking.grants
    if shadow is not None and all(outcome.kept_from.get(gpu, inf) <= now
                                  for gpu in gpus_of(shadow.grants)):
        yield shadow.claim, shadow.grants


def scheduling(nodes: Sequence[PoolNode], waiting: Sequence[Claim],
              pending: Mapping[str, PendingOffer], ended_leases: Sequence[Lease],
              past_usage: EndedUsage | None, bookings: Collection[Booking], limits: OwnerLimits,
              team_of: Mapping[str, str], predicted_s: Mapping[str, float], policy: PoolPolicy,
              loads: Mapping[str, MeasuredLoad], now: float,
              avoided: Mapping[str, frozenset[str]] = NONE_AVOIDED, away: Sequence[Lease] = ()
               ) -> Generator[None, None, Pass]:
    """Run a pass step by step. `ended_leases`: of late; `past_usage`: of all that ended. `loads`:
    of nodes, where the strategy goes by them. `away`: leases of nodes that are."""
    asking = {claim.id for claim in waiting}
    recent = [lease.claim for lease in ended_leases[-LEAST_CLAIMS * 40:]]
    models = {gpu.model for node in nodes for gpu in node.report.gpus} if policy.weights else ()
    weights = {model: weight for model in models for words, weight in policy.weights.items()
               if accepts((words,), model)}
    leases = leases_of(nodes, pending.values(), now)
    free = [node.measured(loads[node.id]) if node.id in loads else node
            for node in free_nodes(nodes, pending.values(), asks_for_host(waiting)).values()]
    kept_bookings = [booking for booking in bookings if booking.claim.id in asking]
    yield
    mix = ClaimMix([*recent, *waiting])
    yield
    return (yield from pass_steps(
        Queue(waiting=waiting, leases=leases, away=away, past_usage=past_usage, limits=limits,
              bookings=kept_bookings, team_of=team_of, predicted_s=predicted_s, avoided=avoided,
              paused={claim_id: why for node in nodes for claim_id, why in node.paused.items()}),
        free, policy, PlacementContext(mix=mix, weights=weights), now))


def still_free(offers: Iterable[Placement], wait: Container[str], there: Mapping[str, PoolNode],
               pending: Mapping[str, PendingOffer]) -> Iterator[Placement]:
    """Yield the offers that still hold after what came while they were decided: they may be added
    to `pending` one by one. `wait`: claims that still do."""
    for offer in offers:
        claim = offer.claim
        free = free_nodes((there[grant.node] for grant in offer.grants if grant.node in there),
                          pending.values())
        gpus = {(node.id, uuid): gpu for node in free.values()
                for uuid, gpu in zip(node.uuids, node.gpus, strict=True)}
        if claim.id in wait and all(
                key in gpus and gpus[key].free_milli >= claim.share_milli
                and gpus[key].has(claim.mem_bytes) for key in gpus_of(offer.grants)):
            yield offer


def entry_parts(nodes: Iterable[PoolNode]) -> Iterator[tuple[str, float]]:
    """Return how much of what a pass looks at is each node's."""
    parts = {node.id: len(node.report.claims) + len(node.report.leases) for node in nodes}
    whole = sum(parts.values())
    return ((node_id, part / whole) for node_id, part in parts.items() if part)


def _offered(offer: PendingOffer, hosts: Mapping[str, str]) -> ClaimStanding:
    awaited = ", ".join(sorted(hosts.get(node_id, node_id) for node_id in offer.lacks))
    return ClaimStanding(offer.claim.id, 1, f"offered to {awaited}, no answer yet"[:1_024])


class PlannedPass:
    """Results of a pass for each node and claim. Built once, asked thousands of times."""

    def __init__(self, outcome: Pass, nodes: Sequence[PoolNode], claims: Mapping[str, Claim],
                 pending: Mapping[str, PendingOffer], notes: Mapping[str, str],
                 excluded: Mapping[str, ExcludedNodes], estimate: WaitEstimate | None,
                 bookings: BookedClaims, now: float) -> None:
        """Index a pass. `notes`: claim to further sentences for its owner. `excluded`: claim to the
        nodes that are not asked to take it. `estimate`: for the head of the queue."""
        self.outcome = outcome
        self._estimate = estimate
        self._bookings = bookings
        self._reserved = bookings.reserved
        self._reserved_on: dict[str, list[ReservedGpus]] = {}
        for booking in bookings.reservations:
            for grant in booking.grants:
                self._reserved_on.setdefault(grant.node, []).append(ReservedGpus(
                    booking.claim.id, booking.claim.owner, grant.uuids, booking.starts_at,
                    booking.ends_at))
        self._notes = notes
        self._excluded = excluded
        self.nodes = nodes
        self.claims = claims
        self._now = now
        self._by_name: dict[str, list[PoolNode]] = {}
        for node in nodes:
            for name in {node.id, node.host}:
                self._by_name.setdefault(name, []).append(node)
        self.free = free_nodes(nodes, pending.values(), asks_for_host(claims.values()))
        self._places = {claim_id: place for place, claim_id in enumerate(outcome.order, 1)}
        self._offers: dict[str, list[tuple[Claim, Grant, tuple[str, ...]]]] = {}
        hosts = {node.id: node.host for node in nodes}
        for offer in pending.values():
            ranks = tuple(hosts.get(grant.node, grant.node) for grant in offer.grants)
            for grant in offer.grants:
                if offer.is_for(grant.node):
                    self._offers.setdefault(grant.node, []).append(
                        (offer.claim, grant, ranks if len(ranks) > 1 else ()))
        self._offered = {offer.claim.id: (offer.claim, _offered(offer, hosts))
                         for offer in pending.values()}
        self._whys: dict[tuple[object, ...], tuple[tuple[str, bool], str]] = {}
        self._fitting: dict[tuple[object, ...], tuple[Node, ...]] = {}

    def steps(self) -> Iterator[None]:
        """Compute what is asked of it first, step by step."""
        yield
        _ = self._ahead
        yield
        _ = self._roomy
        yield

    @cached_property
    def _ahead(self) -> ClaimsAhead:
        claims = self.claims
        return ClaimsAhead(
            (claims[claim_id] for claim_id in self.outcome.competing if claim_id in claims),
            self.outcome.pinned,
            {gpu.model for node in self.nodes for gpu in node.report.gpus}, self._nodes_of)

    @cached_property
    def _roomy(self) -> list[Node]:
        return [node for node in self.outcome.nodes.values()
                if any(gpu.free_milli for gpu in node.gpus)]

    def plan(self, node: PoolNode, give_back: Mapping[str, str], preempt: Mapping[str, str],
             extend: Mapping[str, float], withdrawn: Mapping[str, str], grace_s: float) -> PoolPlan:
        """Return the plan for a node: its GPUs that are offered, how its claims stand, and which
        leases are not renewed past what others wait for."""
        claim_ids = {entry.claim.id for entry in node.report.claims}
        offers = tuple(LeaseOffer(claim.id, grant.uuids, None if claim.id in claim_ids else claim,
                                  ranks)
                       for claim, grant, ranks in self._offers.get(node.id, ()))
        standings = tuple(self.standing(self.claims[claim_id])
                          for claim_id in sorted(claim_ids & self._places.keys(),
                                                 key=self._places.__getitem__))
        standings += tuple(ClaimStanding(claim_id, 0, why, never=why) for claim_id in claim_ids
                           if (why := self._bookings.never.get(claim_id)))
        keep_until = {lease.claim.id: until for lease in node.report.leases
                      if (until := self.outcome.kept_until(node.id, lease.uuids)) is not None}
        pool_plan = PoolPlan(offers[:CLAIMS_MOST], standings[:CLAIMS_MOST], dict(give_back),
                             dict(preempt), keep_until, dict(extend), dict(withdrawn), grace_s,
                             node.maintenance,
                             tuple(self._reserved_on.get(node.id, ()))[:CLAIMS_MOST])
        return pool_plan if not node.own_ids else in_own_ids(pool_plan, node.own_ids)

    def standing(self, claim: Claim) -> ClaimStanding:
        shadow = self.outcome.shadow
        is_head = shadow is not None and shadow.claim.id == claim.id
        # Terms do not say when leases that are being taken back are free.
        wait_s = (known_bound(shadow.at - self._now) if is_head and shadow is not None
                  and not shadow.is_predicted and claim.id not in self._notes else None)
        why = self._notes.get(claim.id) or self.outcome.blocked.get(claim.id) or self._why(claim)
        return ClaimStanding(claim.id, self._places[claim.id], why[:1_024], wait_s,
                             self._estimate if is_head else None, self._elsewhere(claim),
                             tuple(self._bookings.kept_gpus(claim.id)) if claim.starts_at else ())

    def _elsewhere(self, claim: Claim) -> tuple[str, ...]:
        """Return other nodes that have free now what was asked on one."""
        if claim.nodes > 1 or len(claim.hosts) != 1 or claim.hosts[0] not in self.free:
            return ()
        closed = self._excluded.get(claim.id, NONE_EXCLUDED).nodes
        key = *claim.wants, claim.term_s, closed
        if key not in self._fitting:
            anywhere = replace(claim, hosts=())
            fitting = (node for node in self._roomy if node.id not in closed
                       and next(candidates(node, anywhere, self._now + claim.term_s), None))
            self._fitting[key] = tuple(islice(fitting, ELSEWHERE_MOST + 1))
        return tuple(node.host for node in self._fitting[key]
                     if node.id != claim.hosts[0])[:ELSEWHERE_MOST]

    def _why(self, claim: Claim) -> str:
        """Return why a claim waits. Equal claims wait for the same, but not behind as many."""
        closed = self._excluded.get(claim.id, NONE_EXCLUDED)
        key = (*claim.wants, claim.nodes, claim.hosts, claim.term_s if self._reserved else None,
               (closed, claim.owner) if closed else None)
        if key not in self._whys:
            there = self.nodes if not claim.hosts else [
                node for name in claim.hosts for node in self._by_name.get(name, ())]
            open_nodes = [node for node in there if node.id not in closed.nodes]
            self._whys[key] = (waits(claim, open_nodes, self.free, self._reserved, self._now)
                               if open_nodes or not there else ("", False),
                               closed.words(claim, there))
        (why, could_be_met), closed_words = self._whys[key]
        return "; ".join(filter(None, [
            with_ahead(why, self._ahead.of(claim)) if could_be_met else why, closed_words]))

    def is_wanted(self, node: PoolNode, lease: ReportedLease) -> bool:
        """Return whether a claim of somebody else waits that may take one of its GPUs."""
        models = {gpu.model for gpu in node.report.gpus if gpu.uuid in lease.uuids}
        return any(
            claim.owner != lease.claim.owner
            and (not claim.hosts or node.id in claim.hosts or node.host in claim.hosts)
            and any(accepts(claim.models, model) for model in models)
            for claim in (self.claims.get(claim_id) for claim_id in self.outcome.competing)
            if claim is not None)

    def _nodes_of(self, claim: Claim) -> frozenset[str]:
        node_ids = {node.id for name in claim.hosts for node in self._by_name.get(name, ())}
        return frozenset(node_ids or claim.hosts)

    def waiting(self, claim_ids: Collection[str]) -> list[tuple[Claim, ClaimStanding]]:
        """Return these claims in their order, those first that nodes are being asked to take."""
        offered = [entry for claim_id, entry in self._offered.items() if claim_id in claim_ids]
        return offered + [(self.claims[claim_id], self.standing(self.claims[claim_id]))
                          for claim_id in self.outcome.order if claim_id in claim_ids]

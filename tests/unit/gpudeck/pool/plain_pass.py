"""A pass of the pool without anything that makes it quick: what the real one has to find."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpudeck.pool.core.claims import Claim, Grant, Lease, expected_end
from gpudeck.pool.core.fair_share import Usage, decayed_s, held_gpus
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import candidates
from gpudeck.pool.core.schedule import OFFERS_MOST, PoolPolicy
from gpudeck.pool.core.strategies import STRATEGIES, Candidate, PlacementContext, Score

Shadowed = tuple[str, float, tuple[Grant, ...]]


class PlainPass:
    """Pass without bookings and without limits of owners."""

    def __init__(self, waiting: Sequence[Claim], leases: Sequence[Lease], nodes: Sequence[Node],
                 policy: PoolPolicy, context: PlacementContext, now: float,
                 team_of: Mapping[str, str]) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.leases = list(leases)
        self.offers: list[tuple[str, tuple[Grant, ...]]] = []
        self.order: list[str] = []
        self.shadow: Shadowed | None = None
        self._strategy = STRATEGIES[policy.strategy]
        by_name = sorted(nodes, key=lambda node: (node.host, node.id))
        places = {node.id: at for at, node in enumerate(by_name)}
        latest = sorted(leases, key=lambda lease: (lease.since, lease.id))[-1:]
        self._context = replace(context, places=places, last=next(
            (places[lease.grants[-1].node] for lease in latest), -1))
        self._policy, self._now = policy, now
        self._usage = Usage(policy.fair_share, team_of=team_of)
        for lease in leases:
            self._usage.charge(lease.claim, held_gpus(lease.claim) * decayed_s(
                lease.since, now, now, policy.fair_share.half_life_s))
        for claim in self._turns(list(waiting)):
            self._offer(claim)

    def _turns(self, remaining: list[Claim]) -> Iterator[Claim]:
        """Yield the claims in turn, looking at all of them each time."""
        while remaining:
            claim = min(remaining, key=self._turn)
            remaining.remove(claim)
            yield claim

    def _turn(self, claim: Claim) -> tuple[object, ...]:
        is_pinned = self._now - claim.submitted_at >= self._policy.pin_after_s
        rank = claim.priority + 1.5 * is_pinned
        share = (0.0, 0.0) if is_pinned or claim.is_again else self._share(claim)
        return -rank, not (is_pinned or claim.is_again), share, claim.submitted_at, claim.id

    def _share(self, claim: Claim) -> tuple[float, float]:
        return {"fair": self._usage.key(claim), "fifo": (0.0, 0.0),
                "smallest_first": (claim.gpu_milli, 0.0), "largest_first": (-claim.gpu_milli, 0.0),
                "shortest_first": (claim.term_s, 0.0)}[self._policy.queue_order]

    def _offer(self, claim: Claim) -> None:
        ways = self._find(claim) if len(self.offers) < OFFERS_MOST else None
        if ways is not None:
            grants = tuple(Grant(way.node.id, way.uuids) for way in ways)
            self.offers.append((claim.id, grants))
            self.leases.append(Lease(id=claim.id, claim=claim, grants=grants, since=self._now,
                                     until=self._now + claim.term_s))
            self._usage.charge(claim, held_gpus(claim) * claim.term_s)
            self.nodes |= {way.node.id: way.after for way in ways}
            self._context = replace(self._context, last=self._context.places[ways[-1].node.id])
            return
        self.order.append(claim.id)
        if self.shadow is None and len(self.offers) < OFFERS_MOST:
            self.shadow = self._shadow(claim)
            for grant in () if self.shadow is None else self.shadow[2]:
                assert self.shadow is not None
                self.nodes[grant.node] = self.nodes[grant.node].held_from(
                    grant.uuids, self.shadow[1])

    def _find(self, claim: Claim) -> list[Candidate] | None:
        order = self._order(claim)
        ways = [(*min(((*order(node), *self._strategy.score(way, self._context)), way.places)
                      for way in there),
                 node) for node in self.nodes.values()
                if (there := list(candidates(node, claim, self._now + claim.term_s)))
                and (not claim.hosts or node.id in claim.hosts)]
        ways.sort(key=lambda way: (way[0], way[2].host, way[2].id))
        if len(ways) < claim.nodes:
            return None
        return [Candidate(node, places, claim) for _, places, node in ways[:claim.nodes]]

    def _order(self, claim: Claim) -> Callable[[Node], Score]:
        """Return what comes before the score."""
        if self._strategy.turn is None:
            return self._strategy.level or (lambda node: ())
        ranks = {place: float(at) for at, place in enumerate(
            self._strategy.turn(claim, self._context))}
        assert len(ranks) == len(self._context.places), "each node once"
        return lambda node: (ranks[self._context.places[node.id]],)

    def _shadow(self, claim: Claim) -> Shadowed | None:
        there = {node_id: node for node_id, node in self.nodes.items()
                 if not claim.hosts or node_id in claim.hosts}
        fits: dict[str, tuple[str, ...]] = {}
        ends = sorted((expected_end(lease, self._now), lease.id, lease) for lease in self.leases
                      if any(grant.node in there for grant in lease.grants))
        for end, _, lease in [(self._now, "", None), *ends]:
            for grant in () if lease is None else lease.grants:
                if lease is not None and grant.node in there:
                    there[grant.node] = there[grant.node].after_return(grant.uuids, lease.claim)
            for node_id in there.keys() - fits.keys():
                way = next(candidates(there[node_id], claim, end + claim.term_s), None)
                if way is not None:
                    fits[node_id] = way.uuids
            if lease is not None and len(fits) >= claim.nodes:
                return claim.id, end, tuple(Grant(node_id, fits[node_id])
                                            for node_id in sorted(fits)[:claim.nodes])
        return None

"""Fair share: usage of the last weeks, and the order of the queue. Pure."""

import heapq
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import log
from operator import attrgetter
from types import MappingProxyType

from gpudeck.pool.core.claims import WHOLE_MILLI, Claim, Lease

NOTHING_GPU_S = 1e-3
NONE_BEFORE: Mapping[str, float] = MappingProxyType({})
TEAM = "team:"  # before its name, among the shares
PINNED = 1.5  # priorities: a pinned claim goes ahead of those one above it
_AGE, _ID = attrgetter("submitted_at"), attrgetter("id")


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """Order of claims with the same priority. `key`: less comes first, then age; None: fair
    share."""

    words: str
    key: Callable[[Claim], float] | None


QUEUE_ORDERS: Mapping[str, QueueOrder] = {
    "fair": QueueOrder("who held the fewest GPU-hours in the last weeks, the team before its "
                       "members", None),
    "fifo": QueueOrder("who asked first", lambda claim: 0.0),
    "smallest_first": QueueOrder("the claim for the fewest GPUs",
                                 lambda claim: float(claim.gpu_milli)),
    "largest_first": QueueOrder("the claim for the most GPUs",
                                lambda claim: -float(claim.gpu_milli)),
    "shortest_first": QueueOrder("the claim with the shortest term", attrgetter("term_s")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FairSharePolicy:
    """Fair-share settings. `shares`: of owners, and of teams as `team:NAME`, which no user can be
    called; all others have 1."""

    half_life_s: float = 7 * 86_400.0
    shares: Mapping[str, float] = field(default_factory=dict)
    model_weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A half-life of 0 switches fairness off without a word in two other programs.
        if not self.half_life_s > 0:
            raise ValueError("the half-life must be longer than 0 s")
        if not all(share > 0 for share in self.shares.values()):
            raise ValueError("each share must be greater than 0")


def decayed_s(since: float, until: float, now: float, half_life_s: float) -> float:
    """Return a span of seconds as it counts now, in closed form: no counter that has to tick."""
    scale = half_life_s / log(2)
    return scale * float(2 ** (-(now - until) / half_life_s) - 2 ** (-(now - since) / half_life_s))


def held_gpus(claim: Claim, board_bytes: int | None = None) -> float:
    """Return how many GPUs a claim counts: what is held, used or not; a share by its compute or its
    memory, whichever is the larger part of the board."""
    if claim.share_milli == WHOLE_MILLI:
        return float(claim.gpus * claim.nodes)
    part = claim.share_milli / WHOLE_MILLI
    if claim.mem_bytes is not None and board_bytes:
        part = max(part, claim.mem_bytes / board_bytes)
    return claim.gpus * claim.nodes * part


def lease_gpus(lease: Lease) -> float:
    """Return `held_gpus` on the lease's own nodes: of a run over several each has a lease."""
    return held_gpus(lease.claim) * max(len(lease.grants), 1) / lease.claim.nodes


@dataclass(slots=True)
class Usage:
    """GPU-seconds of the last weeks, decayed. `team_of`: owners who are in one now. What a team had
    is what its present members had. `charged`: how often."""

    policy: FairSharePolicy
    owners: dict[str, float] = field(default_factory=dict)
    team_of: Mapping[str, str] = field(default_factory=dict)
    teams: dict[str, float] = field(init=False, default_factory=dict)
    charged: int = 0

    def __post_init__(self) -> None:
        for owner, team in self.team_of.items():
            self.teams[team] = self.teams.get(team, 0.0) + self.owners.get(owner, 0.0)

    def charge(self, claim: Claim, gpu_s: float) -> None:
        self.charged += 1
        owner = claim.owner
        self.owners[owner] = self.owners.get(owner, 0.0) + gpu_s
        if owner in self.team_of:
            self.teams[self.team_of[owner]] += gpu_s

    def key(self, claim: Claim) -> tuple[float, float]:
        """Return the sort key of a claim: the team before its members. An owner in no team counts
        as a team."""
        shares, team = self.policy.shares, self.team_of.get(claim.owner)
        own = self.owners.get(claim.owner, 0.0) / shares.get(claim.owner, 1.0)
        return own if team is None else self.teams[team] / shares.get(TEAM + team, 1.0), own


class EndedUsage:
    """Usage of leases that have ended. All of it decays alike, so that the sums are enough, however
    many there were."""

    def __init__(self, leases: Iterable[Lease], policy: FairSharePolicy, now: float,
                 sums: Mapping[str, float] = NONE_BEFORE) -> None:
        """Add up what these leases were. `sums`: GPU-seconds by owner of others, as of now."""
        self._sums = Usage(policy, {**sums})
        self._at = now
        for lease in leases:
            self.add(lease)

    def add(self, lease: Lease) -> None:
        assert lease.ended_at is not None
        self._sums.charge(lease.claim, lease_gpus(lease) * decayed_s(
            lease.since, lease.ended_at, self._at, self._sums.policy.half_life_s))

    @property
    def owners(self) -> Collection[str]:
        return self._sums.owners.keys()

    def usage(self, now: float, team_of: Mapping[str, str]) -> Usage:
        return Usage(self._sums.policy, self.sums(now), team_of)

    def sums(self, now: float) -> dict[str, float]:
        """Return the GPU-seconds by owner as they count now."""
        self._decay(now)
        return {**self._sums.owners}

    def _decay(self, now: float) -> None:
        """Decay all usage until now, and forget owners who have next to nothing left."""
        part = 2 ** (-(now - self._at) / self._sums.policy.half_life_s)
        self._at = now
        sums = self._sums.owners
        for name, gpu_s in list(sums.items()):
            sums[name] = gpu_s * part
            if sums[name] < NOTHING_GPU_S:
                del sums[name]


def usage_of(leases: Iterable[Lease], past_usage: EndedUsage | None, now: float,
             policy: FairSharePolicy, team_of: Mapping[str, str], away: Iterable[Lease] = ()
             ) -> Usage:
    """Return the usage of all owners. For the thousands of leases in each pass: `decayed_s` until
    now, with its constant taken out. `away`: of nodes that say nothing now; they count as far as
    their terms go."""
    usage = Usage(policy, {}, team_of) if past_usage is None else past_usage.usage(now, team_of)
    half_life_s = policy.half_life_s
    scale = half_life_s / log(2)
    charge = usage.charge
    for lease in leases:
        charge(lease.claim, lease_gpus(lease) * scale * (
            1.0 - 2 ** ((lease.since - now) / half_life_s)))
    for lease in away:
        charge(lease.claim, lease_gpus(lease) * decayed_s(
            lease.since, max(lease.since, min(lease.until, now)), now, half_life_s))
    return usage


def rank(claim: Claim, is_pinned: bool) -> float:
    return claim.priority + PINNED if is_pinned else float(claim.priority)


def turns(claims: Iterable[Claim], pinned: Container[str], usage: Usage, order: str
          ) -> Iterator[Claim]:
    """Yield claims in their order, of QUEUE_ORDERS. `usage` may be charged while this goes on: the
    next turn heeds it, or one owner would get ten GPUs in one pass."""
    by_rank: dict[float, list[Claim]] = {}
    for claim in sorted(sorted(claims, key=_ID), key=_AGE):  # twice is quicker than by pairs
        by_rank.setdefault(rank(claim, claim.id in pinned), []).append(claim)
    for level in sorted(by_rank, reverse=True):
        if level % 1:
            yield from by_rank[level]
        else:
            yield from [claim for claim in by_rank[level] if claim.is_again]
            fresh = [claim for claim in by_rank[level] if not claim.is_again]
            key = QUEUE_ORDERS[order].key
            yield from _fair(fresh, usage) if key is None else sorted(fresh, key=key)


def _fair(claims: Iterable[Claim], usage: Usage) -> Iterator[Claim]:
    """Yield claims in the order of fair share. `claims`: by age."""
    queues: dict[str, deque[Claim]] = {}
    for claim in claims:
        queues.setdefault(claim.owner, deque()).append(claim)

    def entry(queue: deque[Claim], key: tuple[float, float]) -> tuple[
            tuple[float, float], float, str, deque[Claim]]:
        first = queue[0]
        return key, first.submitted_at, first.id, queue

    heap = [entry(queue, usage.key(queue[0])) for queue in queues.values()]
    heapq.heapify(heap)
    while heap:
        was, _, _, queue = heap[0]
        key = usage.key(queue[0])
        if key != was:
            heapq.heapreplace(heap, entry(queue, key))
            continue
        charged = usage.charged
        yield queue.popleft()
        if usage.charged == charged and all(key < rival[0] for rival in heap[1:3]):
            while queue and usage.charged == charged:  # as long as its owner gets nothing
                yield queue.popleft()
        if queue:
            heapq.heapreplace(heap, entry(queue, usage.key(queue[0])))
        else:
            heapq.heappop(heap)

"""Who has had how much lately, and whose turn it is. Pure."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import log

from gpudeck.pool.core.claims import WHOLE_MILLI, Claim, Lease

NOTHING_GPU_S = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class FairSharePolicy:
    """`shares`: of owners and teams; who is not named has 1."""

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
    """A span of seconds as it counts now, in closed form: no counter that has to tick."""
    scale = half_life_s / log(2)
    return scale * float(2 ** (-(now - until) / half_life_s) - 2 ** (-(now - since) / half_life_s))


def held_gpus(claim: Claim, board_bytes: int | None = None) -> float:
    """What counts is what is held, used or not: a share by its compute or its memory, whichever is
    the larger part of the board."""
    part = claim.share_milli / WHOLE_MILLI
    if claim.is_share and claim.mem_bytes is not None and board_bytes:
        part = max(part, claim.mem_bytes / board_bytes)
    return claim.gpus * claim.nodes * part


@dataclass(slots=True)
class Usage:
    """GPU-seconds of the last weeks, decayed."""

    policy: FairSharePolicy
    owners: dict[str, float] = field(default_factory=dict)
    teams: dict[str, float] = field(default_factory=dict)

    def charge(self, claim: Claim, gpu_s: float) -> None:
        self.owners[claim.owner] = self.owners.get(claim.owner, 0.0) + gpu_s
        self.teams[claim.team] = self.teams.get(claim.team, 0.0) + gpu_s

    def key(self, claim: Claim) -> tuple[float, float]:
        """Less comes first: the team before its members."""
        shares = self.policy.shares
        team = self.teams.get(claim.team, 0.0) / shares.get(claim.team, 1.0) if claim.team else (
            self.owners.get(claim.owner, 0.0) / shares.get(claim.owner, 1.0))
        return team, self.owners.get(claim.owner, 0.0) / shares.get(claim.owner, 1.0)


class EndedUsage:
    """What leases that have ended count. All of it decays alike, so that the sums are enough,
    however many there were."""

    def __init__(self, ended: Iterable[Lease], policy: FairSharePolicy, now: float) -> None:
        self._sums = Usage(policy)
        self._at = now
        for lease in ended:
            self.add(lease)

    def add(self, lease: Lease) -> None:
        assert lease.ended_at is not None
        self._sums.charge(lease.claim, held_gpus(lease.claim) * decayed_s(
            lease.since, lease.ended_at, self._at, self._sums.policy.half_life_s))

    def usage(self, now: float) -> Usage:
        self._decay(now)
        return replace(self._sums, owners={**self._sums.owners}, teams={**self._sums.teams})

    def _decay(self, now: float) -> None:
        """What is next to nothing is forgotten, and so are owners who left."""
        part = 2 ** (-(now - self._at) / self._sums.policy.half_life_s)
        self._at = now
        for sums in (self._sums.owners, self._sums.teams):
            for name, gpu_s in list(sums.items()):
                sums[name] = gpu_s * part
                if sums[name] < NOTHING_GPU_S:
                    del sums[name]


def usage_of(leases: Iterable[Lease], had: EndedUsage | None, now: float, policy: FairSharePolicy
             ) -> Usage:
    usage = Usage(policy) if had is None else had.usage(now)
    for lease in leases:
        usage.charge(lease.claim, held_gpus(lease.claim) * decayed_s(
            lease.since, now, now, policy.half_life_s))
    return usage


def rank(claim: Claim, pinned_at: float | None) -> float:
    """A pinned claim goes ahead of those one priority above it."""
    return claim.priority + (0.0 if pinned_at is None else 1.5)


def turns(claims: Iterable[Claim], pinned_at: Mapping[str, float], usage: Usage
          ) -> Iterator[Claim]:
    """Claims in their order. `usage` may be charged while this goes on: the next turn heeds it, or
    one owner would get ten GPUs in one pass."""
    by_rank: dict[float, list[Claim]] = {}
    for claim in claims:
        by_rank.setdefault(rank(claim, pinned_at.get(claim.id)), []).append(claim)
    for each in sorted(by_rank, reverse=True):
        if each % 1:
            yield from sorted(by_rank[each], key=lambda claim: (pinned_at[claim.id], claim.id))
        else:
            yield from sorted((claim for claim in by_rank[each] if claim.is_again),
                              key=lambda claim: (claim.submitted_at, claim.id))
            yield from _fair((claim for claim in by_rank[each] if not claim.is_again), usage)


def _fair(claims: Iterable[Claim], usage: Usage) -> Iterator[Claim]:
    queues: dict[tuple[str, str], deque[Claim]] = {}
    for claim in sorted(claims, key=lambda each: (each.submitted_at, each.id)):
        queues.setdefault((claim.team, claim.owner), deque()).append(claim)

    def entry(whose: tuple[str, str]) -> tuple[tuple[float, float], float, str, tuple[str, str]]:
        first = queues[whose][0]
        return usage.key(first), first.submitted_at, first.id, whose

    heap = [entry(whose) for whose in queues]
    heapq.heapify(heap)
    while heap:
        was, *_, whose = heap[0]
        if usage.key(queues[whose][0]) != was:
            heapq.heapreplace(heap, entry(whose))
            continue
        claim = queues[whose].popleft()
        yield claim
        if queues[whose]:
            heapq.heapreplace(heap, entry(whose))
        else:
            heapq.heappop(heap)

"""Who has had how much lately, and whose turn it is. Pure."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import log

from gpudeck.pool.core.claims import WHOLE_MILLI, Claim, Lease


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


def usage_of(leases: Iterable[Lease], now: float, policy: FairSharePolicy) -> Usage:
    usage = Usage(policy)
    for lease in leases:
        until = now if lease.ended_at is None else min(lease.ended_at, now)
        usage.charge(lease.claim, held_gpus(lease.claim) * decayed_s(
            lease.since, until, now, policy.half_life_s))
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

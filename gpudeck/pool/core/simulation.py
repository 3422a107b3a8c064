"""Plays a list of claims over an inventory, strategy by strategy. Pure."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Protocol

from gpudeck.pool.core.claims import WHOLE_MILLI, Claim, Lease
from gpudeck.pool.core.fragmentation import free_of
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import Placer
from gpudeck.pool.core.schedule import NoOwnerLimits, PoolPolicy, Queue, run_pass
from gpudeck.pool.core.strategies import PlacementContext

MARKS_PCT = (100.0, 130.0)
PLOT_PCT = tuple(float(mark) for mark in range(10, 131, 5))


@dataclass(frozen=True, slots=True)
class TracedClaim:
    """Claim of a trace. `runs_s`: how long it ran; None: the trace does not say."""

    claim: Claim
    runs_s: float | None


@dataclass(frozen=True, slots=True)
class Allocation:
    """Allocation of all GPUs, in %: what is given out, and what of the rest the usual claims cannot
    use, when so much was asked for."""

    strategy: str
    seed: int
    given_pct: dict[float, float]
    unusable_pct: dict[float, float]


@dataclass(frozen=True, slots=True)
class Waiting:
    strategy: str
    wait_p50_s: float
    wait_p95_s: float
    makespan_s: float
    used_pct: float
    never: int  # claims that fit nowhere


class Draw(Protocol):
    """Part of `random.Random`."""

    def shuffle(self, x: list[Claim], /) -> None: ...
    def randrange(self, stop: int, /) -> int: ...


def arrivals(claims: Sequence[Claim], until_milli: float, draw: Draw) -> list[Claim]:
    """Return claims shuffled, then drawn with replacement until so much was asked for: the protocol
    of the authors of the openb trace."""
    shuffled = list(claims)
    draw.shuffle(shuffled)
    arriving: list[Claim] = []
    asked_milli = 0
    while asked_milli < until_milli:
        claim = shuffled[draw.randrange(len(shuffled))]
        arriving.append(replace(claim, id=f"{claim.id}-{len(arriving)}"))
        asked_milli += claim.gpu_milli
    return arriving


def allocation(nodes: Sequence[Node], claims: Sequence[Claim], strategy: str, seed: int,
               draw: Draw, context: PlacementContext, marks: Sequence[float] = MARKS_PCT
               ) -> Allocation:
    """Place claims that come one by one and stay; what finds no place is dropped."""
    capacity = _milli(nodes)
    placer = Placer(nodes, strategy, replace(context, seed=seed))
    given_milli, asked_milli = 0, 0
    given_pct: dict[float, float] = {}
    unusable_pct: dict[float, float] = {}
    remaining = sorted(marks)
    for claim in arrivals(claims, capacity * remaining[-1] / 100, draw):
        placement = placer.find(claim, 0.0)
        if placement is not None:
            placer.take(placement)
            given_milli += claim.gpu_milli
        asked_milli += claim.gpu_milli
        while remaining and asked_milli * 100 >= capacity * remaining[0]:
            mark = remaining.pop(0)
            given_pct[mark] = 100 * given_milli / capacity
            unusable_pct[mark] = 100 * _unusable(placer, context) / capacity
    return Allocation(strategy, seed, given_pct, unusable_pct)


def _milli(nodes: Sequence[Node]) -> int:
    return WHOLE_MILLI * sum(len(node.gpus) for node in nodes)


def _unusable(placer: Placer, context: PlacementContext) -> float:
    unusable = sum(context.mix.unusable(free_of(node), node.free_cpu_milli)
                   for node in placer.nodes.values())
    return unusable / max(context.mix.weight, 1)


def waiting(nodes: Sequence[Node], traced: Sequence[TracedClaim], strategy: str,
            context: PlacementContext, policy: PoolPolicy) -> Waiting:
    """Play a trace as the hub would have, with true run times of which only the terms are known
    before."""
    free = {node.id: node for node in nodes}
    coming = sorted(((entry.claim.submitted_at, entry.claim.id, entry) for entry in traced
                     if entry.runs_s is not None), key=lambda row: row[:2])
    took = {entry.claim.id: entry.runs_s or 0.0 for *_, entry in coming}
    policy = replace(policy, strategy=strategy)
    queue: list[Claim] = []
    running: list[tuple[float, str, Lease]] = []
    waits: list[float] = []
    place, now, busy_s, began_at = 0, 0.0, 0.0, coming[0][0] if coming else 0.0
    while place < len(coming) or running:
        now = min(([coming[place][0]] if place < len(coming) else [])
                  + ([running[0][0]] if running else []))
        while place < len(coming) and coming[place][0] <= now:
            queue.append(coming[place][2].claim)
            place += 1
        while running and running[0][0] <= now:
            lease = heapq.heappop(running)[2]
            for grant in lease.grants:
                free[grant.node] = free[grant.node].after_return(grant.uuids, lease.claim)
        while True:
            outcome = run_pass(
                Queue(waiting=queue, leases=[lease for *_, lease in running],
                      limits=NoOwnerLimits()), list(free.values()), policy, context, now)
            for offer in outcome.offers:
                claim = offer.claim
                lease = Lease(id=claim.id, claim=claim, grants=offer.grants, since=now,
                              until=now + claim.term_s)
                heapq.heappush(running, (now + took[claim.id], claim.id, lease))
                waits.append(now - claim.submitted_at)
                busy_s += took[claim.id] * claim.gpu_milli / WHOLE_MILLI
                for candidate in offer.candidates:
                    node_id = candidate.node.id
                    free[node_id] = free[node_id].after_grant(candidate.uuids, claim)
            begun_ids = {offer.claim.id for offer in outcome.offers}
            queue = [claim for claim in queue if claim.id not in begun_ids]
            if not begun_ids:
                break
    makespan_s = now - began_at
    return Waiting(strategy, _quantile(waits, 0.5), _quantile(waits, 0.95), makespan_s,
                   100 * busy_s * WHOLE_MILLI / max(makespan_s * _milli(nodes), 1.0), len(queue))


def _quantile(values: Sequence[float], at: float) -> float:
    rising = sorted(values)
    return rising[min(int(at * len(rising)), len(rising) - 1)] if rising else 0.0


def averaged(allocations: Sequence[Allocation], mark: float) -> tuple[float, float]:
    """Return what is given out and what is unusable, mean over seeds."""
    return mean(allocation.given_pct[mark] for allocation in allocations), mean(
        allocation.unusable_pct[mark] for allocation in allocations)

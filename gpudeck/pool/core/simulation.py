"""Plays a list of claims over an inventory, strategy by strategy. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import PlacementContext, Placer


@dataclass(frozen=True, slots=True)
class Allocation:
    """Share of all GPUs that is given out, in %, when so much of them was asked for."""

    strategy: str
    seed: int
    at_pct: tuple[tuple[float, float], ...]


def arrivals(claims: Sequence[Claim], until_milli: int, draw: random.Random) -> list[Claim]:
    """Shuffled, then drawn with replacement until so much was asked for: the protocol of the
    authors of the openb trace."""
    shuffled = list(claims)
    draw.shuffle(shuffled)
    found: list[Claim] = []
    asked = 0
    while asked < until_milli:
        claim = shuffled[draw.randrange(len(shuffled))]
        found.append(replace(claim, id=f"{claim.id}-{len(found)}"))
        asked += claim.gpu_milli
    return found


def allocation(nodes: Sequence[Node], claims: Sequence[Claim], strategy: str, seed: int,
               context: PlacementContext, at_pct: Sequence[float] = (100.0, 130.0)) -> Allocation:
    """Claims come one by one and stay; what finds no place is dropped."""
    capacity = sum(gpu.free_milli for node in nodes for gpu in node.gpus)
    placer = Placer(nodes, strategy, replace(context, seed=seed))
    given, asked = 0, 0
    found: list[tuple[float, float]] = []
    marks = sorted(at_pct)
    for claim in arrivals(claims, int(capacity * marks[-1] / 100), random.Random(seed)):
        placement = placer.find(claim, 0.0)
        if placement is not None:
            placer.take(placement)
            given += claim.gpu_milli
        asked += claim.gpu_milli
        while marks and asked * 100 >= capacity * marks[0]:
            found.append((marks.pop(0), 100 * given / capacity))
    return Allocation(strategy, seed, tuple(found))

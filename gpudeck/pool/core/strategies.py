"""Strategies: how well a node suits a claim, by each of them. Pure."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import gcd

from gpudeck.pool.core.claims import WHOLE_MILLI, Claim
from gpudeck.pool.core.fragmentation import LEAST_CLAIMS, ClaimMix, gradient
from gpudeck.pool.core.inventory import Node

BUSY_PCT = 70.0
INTERVAL = 2

Score = tuple[float, ...]  # less is better


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementContext:
    """Input of a strategy, besides claim and node."""

    mix: ClaimMix
    weights: Mapping[str, float] = field(default_factory=dict)  # of models
    seed: int = 0
    places: Mapping[str, int] = field(default_factory=dict)  # of nodes, by host name
    last: int = -1  # place of the node that was taken last


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, and places in it that can take a claim."""

    node: Node
    places: tuple[int, ...]
    claim: Claim

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(self.node.uuids[place] for place in self.places)

    @property
    def after(self) -> Node:
        return self.node.after_grant(self.uuids, self.claim)


def _leftover(free_milli: int, free_cpu_milli: int | None, claim: Claim) -> int:
    """Return what stays free of the node, weighed as by the authors of the trace: 128 CPUs and 8
    GPUs count the same."""
    cpu = 0 if free_cpu_milli is None else free_cpu_milli - (claim.cpu_milli or 0)
    return (cpu + 16 * (free_milli - claim.gpus * claim.share_milli)) // 2_560


def best_fit(candidate: Candidate, _: PlacementContext) -> Score:
    node = candidate.node
    return (_leftover(node.free_milli, node.free_cpu_milli, candidate.claim),
            sum(node.gpus[place].board_bytes or 0 for place in candidate.places),
            sum(node.gpus[place].free_milli for place in candidate.places))


def worst_fit(candidate: Candidate, context: PlacementContext) -> Score:
    return tuple(-number for number in best_fit(candidate, context))


def pack(candidate: Candidate, context: PlacementContext) -> Score:
    """Score by fragmentation, then best fit. Whole GPUs alone do not fragment in thousandths, and
    best fit waits less there."""
    if not _fragments(context.mix):
        return best_fit(candidate, context)
    return (gradient(context.mix, candidate.node, candidate.places, candidate.claim),
            *best_fit(candidate, context))


def _fragments(mix: ClaimMix) -> bool:
    return mix.has_shares and mix.count >= LEAST_CLAIMS


def spread(candidate: Candidate, context: PlacementContext) -> Score:
    """Score nodes with the fewest GPUs given out first."""
    allocated_milli = sum(WHOLE_MILLI - gpu.free_milli for gpu in candidate.node.gpus)
    return (allocated_milli / max(len(candidate.node.gpus), 1), *worst_fit(candidate, context))


def weighted(candidate: Candidate, context: PlacementContext) -> Score:
    """Score models of less weight first: what is worth most stays free longest."""
    worth = sum(context.weights.get(candidate.node.gpus[place].model, 1.0)
                for place in candidate.places)
    return (worth, *best_fit(candidate, context))


def load_level(node: Node) -> Score:
    if node.load_pct is None:  # not known, so neither idle nor busy
        return (1, 0.0)
    return (0 if node.load_pct < BUSY_PCT else 2, node.load_pct)


def task_level(node: Node) -> Score:
    return (node.tasks,)


def round_robin(claim: Claim, context: PlacementContext) -> Iterator[int]:
    count = len(context.places)
    return ((context.last + 1 + step) % count for step in range(count))


def interval(claim: Claim, context: PlacementContext) -> Iterator[int]:
    """Yield every second node, then those between."""
    count = len(context.places)
    order = [*range(0, count, INTERVAL), *range(1, count, INTERVAL)]
    begin = order.index(context.last) + 1 if context.last >= 0 else 0
    yield from order[begin:]
    yield from order[:begin]


def at_random(claim: Claim, context: PlacementContext) -> Iterator[int]:
    """Yield nodes at random, but the same for the same seed and claim: from some node on in steps
    that reach all."""
    count = len(context.places)
    digest = hashlib.blake2b(f"{context.seed} {claim.id}".encode(), digest_size=12).digest()
    begin, step = int.from_bytes(digest[:6]) % count, int.from_bytes(digest[6:]) % count
    while gcd(step, count) != 1:
        step += 1
    return ((begin + turn * step) % count for turn in range(count))


def in_turn(candidate: Candidate, context: PlacementContext) -> Score:
    """Score nothing: the order of nodes alone decides."""
    return ()


Bound = Callable[[int, int | None, Claim, PlacementContext], Score]


def no_bound(free_milli: int, free_cpu_milli: int | None, claim: Claim, context: PlacementContext
             ) -> Score:
    return ()


def best_fit_bound(free_milli: int, free_cpu_milli: int | None, claim: Claim,
                   context: PlacementContext) -> Score:
    return (_leftover(free_milli, free_cpu_milli, claim),)


def worst_fit_bound(free_milli: int, free_cpu_milli: int | None, claim: Claim,
                    context: PlacementContext) -> Score:
    return (-_leftover(free_milli, free_cpu_milli, claim),)


def pack_bound(free_milli: int, free_cpu_milli: int | None, claim: Claim,
               context: PlacementContext) -> Score:
    return () if _fragments(context.mix) else (_leftover(free_milli, free_cpu_milli, claim),)


@dataclass(frozen=True, slots=True)
class Strategy:
    """Strategy of placement. `bound`: no score on a node with so much free is less, so that few
    nodes are looked at closely; a score begins with as many numbers. `by_shape`: where it gives
    none, so many numbers of a score follow from the GPUs, shares and CPUs that a claim asks for,
    whatever models and memory it wants. `turn`: places of nodes in the order in which they are
    tried; the first that fits is taken. `level`: of a node; those of the least level come first,
    and the score chooses among them."""

    words: str
    score: Callable[[Candidate, PlacementContext], Score]
    bound: Bound = no_bound
    by_shape: int = 0
    turn: Callable[[Claim, PlacementContext], Iterator[int]] | None = None
    level: Callable[[Node], Score] | None = None
    has_cursor: bool = False  # it goes on after the node that was taken last, also in a later pass
    is_measured: bool = False  # how busy nodes are has to be looked up


STRATEGIES: Mapping[str, Strategy] = {
    "pack": Strategy("keep the remaining free GPUs usable for typical claims; then best fit", pack,
                     bound=pack_bound, by_shape=2),
    "best_fit": Strategy("the node with the least left over, the smallest board", best_fit,
                         bound=best_fit_bound),
    "worst_fit": Strategy("the node with the most left over, the largest board", worst_fit,
                          bound=worst_fit_bound),
    "spread": Strategy("the node with the smallest share allocated", spread),
    "round_robin": Strategy("nodes in turn, by name", in_turn, turn=round_robin, has_cursor=True),
    "interval": Strategy("every second node in turn, then the ones in between", in_turn,
                         turn=interval, has_cursor=True),
    "random": Strategy("any node, the same for the same seed", in_turn, turn=at_random),
    "weighted": Strategy("the model with the least weight", weighted),
    "least_loaded": Strategy("the least utilization of the last ten minutes, below 70 % first",
                             best_fit, level=load_level, is_measured=True),
    "least_tasks": Strategy("the node with the fewest tasks", best_fit, level=task_level,
                            is_measured=True),
}

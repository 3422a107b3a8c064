"""Where a claim goes: which GPUs of a node can take it, and which node is best. Pure."""

import hashlib
import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf

from gpudeck.pool.core.claims import WHOLE_MILLI, Claim, Grant
from gpudeck.pool.core.fragmentation import LEAST_CLAIMS, ClaimMix, accepts, gradient
from gpudeck.pool.core.inventory import FreeGpu, Node

BUSY_PCT = 70.0
INTERVAL = 2

Score = tuple[float, ...]  # less is better


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementContext:
    """What a strategy goes by, besides claim and node."""

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
        return self.node.given(self.uuids, self.claim)


def _left(candidate: Candidate) -> tuple[int, int]:
    """What stays free of the node, as the authors of the trace weigh it (128 CPUs and 8 GPUs count
    the same), and how large the boards are."""
    node, claim = candidate.node, candidate.claim
    milli = sum(gpu.free_milli for gpu in node.gpus) - len(candidate.places) * claim.share_milli
    cpu = 0 if node.free_cpu_milli is None else node.free_cpu_milli - (claim.cpu_milli or 0)
    return (cpu + 16 * milli) // 2_560, sum(
        node.gpus[place].board_bytes or 0 for place in candidate.places)


def _of_the_gpu(candidate: Candidate) -> int:
    return sum(candidate.node.gpus[place].free_milli for place in candidate.places)


def best_fit(candidate: Candidate, _: PlacementContext) -> Score:
    return (*_left(candidate), _of_the_gpu(candidate))


def worst_fit(candidate: Candidate, context: PlacementContext) -> Score:
    return tuple(-each for each in best_fit(candidate, context))


def pack(candidate: Candidate, context: PlacementContext) -> Score:
    """Whole GPUs alone do not fragment in thousandths, and best fit waits less there."""
    mix = context.mix
    if not mix.has_shares or mix.count < LEAST_CLAIMS:
        return best_fit(candidate, context)
    return (gradient(mix, candidate.node, candidate.after), *best_fit(candidate, context))


def spread(candidate: Candidate, context: PlacementContext) -> Score:
    """Nodes with the fewest GPUs given out first."""
    taken = sum(WHOLE_MILLI - gpu.free_milli for gpu in candidate.node.gpus)
    return (taken / max(len(candidate.node.gpus), 1), *worst_fit(candidate, context))


def weighted(candidate: Candidate, context: PlacementContext) -> Score:
    """Models of less weight first: what is worth most stays free longest."""
    worth = sum(context.weights.get(candidate.node.gpus[place].model, 1.0)
                for place in candidate.places)
    return (worth, *best_fit(candidate, context))


def least_loaded(candidate: Candidate, context: PlacementContext) -> Score:
    load = candidate.node.load_pct
    if load is None:  # not known, so neither idle nor busy
        return (1, 0.0, *best_fit(candidate, context))
    return (0 if load < BUSY_PCT else 2, load, *best_fit(candidate, context))


def least_tasks(candidate: Candidate, context: PlacementContext) -> Score:
    return (candidate.node.tasks, *best_fit(candidate, context))


def round_robin(candidate: Candidate, context: PlacementContext) -> Score:
    return ((context.places[candidate.node.id] - context.last - 1) % len(context.places),)


def interval(candidate: Candidate, context: PlacementContext) -> Score:
    """Every second node, then those between."""
    count = len(context.places)
    evens = (count + 1) // INTERVAL

    def turn(place: int) -> int:
        return place // INTERVAL + (evens if place % INTERVAL else 0)

    last = turn(context.last) if context.last >= 0 else -1
    return ((turn(context.places[candidate.node.id]) - last - 1) % count,)


def at_random(candidate: Candidate, context: PlacementContext) -> Score:
    """The same for the same seed and claim, however often it is asked."""
    said = f"{context.seed} {candidate.claim.id} {candidate.node.id} {candidate.places}"
    return (int.from_bytes(hashlib.blake2b(said.encode(), digest_size=6).digest()),)


@dataclass(frozen=True, slots=True)
class Strategy:
    words: str
    score: Callable[[Candidate, PlacementContext], Score]
    by_name: bool = False  # nodes with the same left over are not alike to it


STRATEGIES: Mapping[str, Strategy] = {
    "pack": Strategy("keep the remaining free GPUs usable for typical claims; then best fit", pack),
    "best_fit": Strategy("the node with the least left over, the smallest board", best_fit),
    "worst_fit": Strategy("the node with the most left over, the largest board", worst_fit),
    "spread": Strategy("the node with the smallest share given out", spread),
    "round_robin": Strategy("nodes in turn, by name", round_robin, by_name=True),
    "interval": Strategy("every second node in turn, then the ones in between", interval,
                         by_name=True),
    "random": Strategy("any node, the same for the same seed", at_random, by_name=True),
    "weighted": Strategy("the model with the least weight", weighted),
    "least_loaded": Strategy("the least utilization of the last ten minutes, below 70 % first",
                             least_loaded),
    "least_tasks": Strategy("the node with the fewest tasks", least_tasks),
}


@dataclass(frozen=True, slots=True)
class Placement:
    candidates: tuple[Candidate, ...]  # one for each node

    @property
    def claim(self) -> Claim:
        return self.candidates[0].claim

    @property
    def grants(self) -> tuple[Grant, ...]:
        return tuple(Grant(each.node.id, each.uuids) for each in self.candidates)


Scored = tuple[Score, str, str, tuple[int, ...], int]  # score, host, node, places, kind


@dataclass(slots=True)
class _Ranking:
    """Kinds of nodes by how well they suit one kind of claim. An entry counts while its node is
    the first of its kind."""

    heap: list[Scored] = field(default_factory=list)
    upto: int = 0  # of the changes


class Placer:
    """The free GPUs of one pass. Nodes with the same left over are one kind, and claims that ask
    for the same share what was found: both make a pass over thousands quick."""

    def __init__(self, nodes: Iterable[Node], strategy: str, context: PlacementContext) -> None:
        self._strategy = STRATEGIES[strategy]
        ordered = sorted(nodes, key=lambda each: (each.host, each.id))
        self._nodes = {each.id: each for each in ordered}
        self._context = replace(context, places={
            each.id: place for place, each in enumerate(ordered)})
        self._horizons = sorted({gpu.free_until for node in ordered for gpu in node.gpus
                                 if gpu.free_until < inf})
        self._kinds: dict[tuple[object, ...], int] = {}
        self._members: dict[int, list[tuple[str, str]]] = {}
        self._by_name: dict[str, list[str]] = {}
        self._changes: list[int] = []
        self._rankings: dict[tuple[object, ...], _Ranking] = {}
        for node in ordered:
            self._join(node)

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self._nodes

    def find(self, claim: Claim, now: float, closed: Container[str] = ()) -> Placement | None:
        """All nodes that it needs, none of those that are `closed` to it, or None. Nothing is
        taken."""
        best = heapq.nsmallest(claim.nodes, self._scored(claim, now + claim.term_s, closed))
        if len(best) < claim.nodes:
            return None
        return Placement(tuple(Candidate(self._nodes[node_id], places, claim)
                               for _, _, node_id, places, _ in best))

    def exactly(self, claim: Claim, grants: Iterable[Grant]) -> Placement | None:
        """These GPUs, whatever they are held for; None: not all of them are free."""
        found = []
        for grant in grants:
            node = self._nodes.get(grant.node)
            if node is None or not set(grant.uuids) <= set(node.uuids):
                return None
            places = tuple(map(node.uuids.index, grant.uuids))
            if not all(_takes(node.gpus[place], claim, -inf) for place in places):
                return None
            found.append(Candidate(node, places, claim))
        return Placement(tuple(found))

    def take(self, placement: Placement) -> None:
        for each in placement.candidates:
            self._put(each.after)
        last = placement.candidates[-1].node.id
        self._context = replace(self._context, last=self._context.places[last])

    def hold(self, grants: Iterable[Grant], at: float) -> None:
        """For a claim that begins then: nothing that lasts longer takes these GPUs."""
        for grant in grants:
            if grant.node in self._nodes:
                self._put(self._nodes[grant.node].held_from(grant.uuids, at))
        insort(self._horizons, at)

    def _put(self, node: Node) -> None:
        before = self._nodes[node.id]
        if not before.is_full:
            self._members[self._kind(before)].remove((node.host, node.id))
            self._changes.append(self._kind(before))
        self._nodes[node.id] = node
        self._join(node)

    def _kind(self, node: Node) -> int:
        return self._kinds.setdefault(node.signature, len(self._kinds))

    def _join(self, node: Node) -> None:
        if node.is_full:
            return
        kind = self._kind(node)
        insort(self._members.setdefault(kind, []), (node.host, node.id))
        self._changes.append(kind)

    def _scored(self, claim: Claim, ends_at: float, closed: Container[str]) -> list[Scored]:
        if self._strategy.by_name or claim.hosts or closed:
            return [found for node in self._named(claim.hosts) if node.id not in closed
                    if (found := self._score(self._kind(node), node, claim, ends_at)) is not None]
        ranking = self._ranked(claim, ends_at)
        if claim.nodes == 1:
            return ranking.heap[:1]
        kinds = {kind: (score, places) for score, *_, places, kind in ranking.heap}
        return [(score, *member, places, kind) for kind, (score, places) in kinds.items()
                for member in self._members[kind][:claim.nodes]]

    def _named(self, names: Sequence[str]) -> Iterable[Node]:
        """By host name or id; no names: all."""
        if not names:
            return self._nodes.values()
        if not self._by_name:
            for node in self._nodes.values():
                for name in {node.id, node.host}:
                    self._by_name.setdefault(name, []).append(node.id)
        found = dict.fromkeys(each for name in names for each in self._by_name.get(name, ()))
        return [self._nodes[each] for each in found]

    def _ranked(self, claim: Claim, ends_at: float) -> _Ranking:
        ranking = self._rankings.setdefault(
            (*claim.wants, bisect_left(self._horizons, ends_at)), _Ranking())
        for kind in set(self._changes[ranking.upto:]):
            if self._members[kind]:
                node = self._nodes[self._members[kind][0][1]]
                if (found := self._score(kind, node, claim, ends_at)) is not None:
                    heapq.heappush(ranking.heap, found)
        ranking.upto = len(self._changes)
        heap = ranking.heap
        while heap and self._members[heap[0][4]][:1] != [heap[0][1:3]]:
            heapq.heappop(heap)
        return ranking

    def _score(self, kind: int, node: Node, claim: Claim, ends_at: float) -> Scored | None:
        best = min(((self._strategy.score(each, self._context), each.places)
                    for each in candidates(node, claim, ends_at)), default=None)
        return None if best is None else (best[0], node.host, node.id, best[1], kind)


def candidates(node: Node, claim: Claim, ends_at: float) -> Iterator[Candidate]:
    """Ways to put one node's part of a claim on this node, few enough to score them all."""
    if node.free_cpu_milli is not None and node.free_cpu_milli < (claim.cpu_milli or 0):
        return
    if claim.gpus == 0:
        yield Candidate(node, (), claim)
        return
    fitting = [place for place, gpu in enumerate(node.gpus) if _takes(gpu, claim, ends_at)]
    if claim.gpus == 1:
        # Of GPUs alike the first; each different one is a way of its own.
        for _, alike in groupby(fitting, key=lambda place: node.gpus[place]):
            yield Candidate(node, (next(alike),), claim)
        return
    for places in _joined(node, fitting, claim.gpus):
        yield Candidate(node, places, claim)


def _takes(gpu: FreeGpu, claim: Claim, ends_at: float) -> bool:
    if gpu.free_milli < claim.share_milli or ends_at > gpu.free_until:
        return False
    # One process sees one MIG instance (CUDA guide 5.2.1), and no part of one can be limited.
    if gpu.is_mig and (claim.gpus > 1 or claim.is_share):
        return False
    return gpu.has(claim.mem_bytes) and accepts(claim.models, gpu.model)


def _joined(node: Node, fitting: list[int], count: int) -> Iterator[tuple[int, ...]]:
    """GPUs of one model: in one NVLink clique if that can be, else on one NUMA node, else any."""
    for _, of_model in groupby(fitting, key=lambda place: node.gpus[place].model):
        alike = list(of_model)
        if len(alike) < count:
            continue
        yield min((*_sets(alike, count, lambda place: node.gpus[place].clique),
                   *_sets(alike, count, lambda place: node.gpus[place].numa),
                   tuple(alike[:count])), key=lambda places: _distance(node, places))


def _sets(places: list[int], count: int, joint: Callable[[int], int | None]
          ) -> Iterator[tuple[int, ...]]:
    joined: dict[int, list[int]] = {}
    for place in places:
        if (number := joint(place)) is not None:
            joined.setdefault(number, []).append(place)
    # The smallest that is enough: larger ones stay whole for larger claims.
    for each in sorted(joined.values(), key=len):
        if len(each) >= count:
            yield tuple(each[:count])
            return


def _distance(node: Node, places: tuple[int, ...]) -> tuple[bool, bool]:
    cliques = {node.gpus[place].clique for place in places}
    numas = {node.gpus[place].numa for place in places}
    return (len(cliques) > 1 or None in cliques, len(numas) > 1 or None in numas)

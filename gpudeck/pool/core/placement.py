"""Where a claim goes: which GPUs of a node can take it, and which node is best. Pure."""

import hashlib
import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from operator import attrgetter

from gpudeck.pool.core.claims import WHOLE_MILLI, Claim, Grant
from gpudeck.pool.core.fragmentation import LEAST_CLAIMS, ClaimMix, accepts, gradient
from gpudeck.pool.core.inventory import FreeGpu, Node

BUSY_PCT = 70.0
INTERVAL = 2

_FREE = attrgetter("free_milli", "model", "is_mig")

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


def _left(free_milli: int, free_cpu_milli: int | None, claim: Claim) -> int:
    """What stays free of the node, as the authors of the trace weigh it: 128 CPUs and 8 GPUs count
    the same."""
    cpu = 0 if free_cpu_milli is None else free_cpu_milli - (claim.cpu_milli or 0)
    return (cpu + 16 * (free_milli - claim.gpus * claim.share_milli)) // 2_560


def best_fit(candidate: Candidate, _: PlacementContext) -> Score:
    node = candidate.node
    return (_left(node.free_milli, node.free_cpu_milli, candidate.claim),
            sum(node.gpus[place].board_bytes or 0 for place in candidate.places),
            sum(node.gpus[place].free_milli for place in candidate.places))


def worst_fit(candidate: Candidate, context: PlacementContext) -> Score:
    return tuple(-each for each in best_fit(candidate, context))


def pack(candidate: Candidate, context: PlacementContext) -> Score:
    """Whole GPUs alone do not fragment in thousandths, and best fit waits less there."""
    if not _fragments(context.mix):
        return best_fit(candidate, context)
    return (gradient(context.mix, candidate.node, candidate.places, candidate.claim),
            *best_fit(candidate, context))


def _fragments(mix: ClaimMix) -> bool:
    return mix.has_shares and mix.count >= LEAST_CLAIMS


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


Bound = Callable[[int, int | None, Claim, PlacementContext], Score]


def no_bound(free_milli: int, free_cpu_milli: int | None, claim: Claim, context: PlacementContext
             ) -> Score:
    return ()


def best_fit_bound(free_milli: int, free_cpu_milli: int | None, claim: Claim,
                   context: PlacementContext) -> Score:
    return (_left(free_milli, free_cpu_milli, claim),)


def worst_fit_bound(free_milli: int, free_cpu_milli: int | None, claim: Claim,
                    context: PlacementContext) -> Score:
    return (-_left(free_milli, free_cpu_milli, claim),)


def pack_bound(free_milli: int, free_cpu_milli: int | None, claim: Claim,
               context: PlacementContext) -> Score:
    return () if _fragments(context.mix) else (_left(free_milli, free_cpu_milli, claim),)


@dataclass(frozen=True, slots=True)
class Strategy:
    """`bound`: no score on a node with so much free is less, so that few nodes are looked at
    closely; a score begins with as many numbers. `by_shape`: where it gives none, so many numbers
    of a score follow from the GPUs, shares and CPUs that a claim asks for, whatever models and
    memory it wants."""

    words: str
    score: Callable[[Candidate, PlacementContext], Score]
    by_name: bool = False  # nodes with the same left over are not alike to it
    bound: Bound = no_bound
    is_measured: bool = False  # how busy nodes are has to be looked up
    by_shape: int = 0


STRATEGIES: Mapping[str, Strategy] = {
    "pack": Strategy("keep the remaining free GPUs usable for typical claims; then best fit", pack,
                     bound=pack_bound, by_shape=2),
    "best_fit": Strategy("the node with the least left over, the smallest board", best_fit,
                         bound=best_fit_bound),
    "worst_fit": Strategy("the node with the most left over, the largest board", worst_fit,
                          bound=worst_fit_bound),
    "spread": Strategy("the node with the smallest share allocated", spread),
    "round_robin": Strategy("nodes in turn, by name", round_robin, by_name=True),
    "interval": Strategy("every second node in turn, then the ones in between", interval,
                         by_name=True),
    "random": Strategy("any node, the same for the same seed", at_random, by_name=True),
    "weighted": Strategy("the model with the least weight", weighted),
    "least_loaded": Strategy("the least utilization of the last ten minutes, below 70 % first",
                             least_loaded, is_measured=True),
    "least_tasks": Strategy("the node with the fewest tasks", least_tasks,
                            is_measured=True),
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


# Score, host, node, whether it is the score or its bound, places, kind.
Scored = tuple[Score, str, str, bool, tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class _Kind:
    """Nodes with the same left over, by name."""

    number: int
    gpus: int  # of which anything is free
    free_milli: int
    models: tuple[str, ...]
    free: int  # number of what is free of it, wherever that is in the node
    members: list[tuple[str, str]] = field(default_factory=list)  # host, node

    def may_take(self, claim: Claim) -> bool:
        """A bound that costs little."""
        return claim.gpus == 0 or (claim.gpus <= self.gpus and (not claim.models or any(
            accepts(claim.models, model) for model in self.models)))


@dataclass(slots=True)
class _Ranking:
    """Kinds of nodes by how well they suit one kind of claim. An entry counts while its node is
    the first of its kind."""

    heap: list[Scored] = field(default_factory=list)
    upto: int = 0  # of the changes


class Placer:
    """The free GPUs of one pass. Nodes with the same left over are one kind, claims that ask for
    the same share what was found, and only kinds that may be the best are looked at closely: that
    makes a pass over thousands quick."""

    def __init__(self, nodes: Iterable[Node], strategy: str, context: PlacementContext,
                 after: str = "") -> None:
        """`after`: the node whose turn was last, in an earlier pass."""
        self._strategy = STRATEGIES[strategy]
        ordered = sorted(nodes, key=attrgetter("host", "id"))
        self._nodes = {each.id: each for each in ordered}
        places = {each.id: place for place, each in enumerate(ordered)}
        self._context = replace(context, places=places, last=places.get(after, context.last))
        self._horizons = sorted({gpu.free_until for node in ordered for gpu in node.gpus
                                 if gpu.free_until < inf})
        self._by_signature: dict[tuple[object, ...], _Kind] = {}
        self._kinds: list[_Kind] = []
        self._kind_of: dict[str, _Kind] = {}  # of nodes that are not full
        self._by_name: dict[str, list[str]] = {}
        self._changes: list[int] = []
        self._rankings: dict[tuple[object, ...], _Ranking] = {}
        self._bounds: dict[tuple[object, ...], Score | None] = {}
        self._shapes: dict[tuple[object, ...], Claim] = {}
        self._free: dict[object, int] = {}
        for node in ordered:
            self._join(node)

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self._nodes

    def find(self, claim: Claim, now: float, closed: Container[str] = ()) -> Placement | None:
        """All nodes that it needs, none of those that are `closed` to it, or None. Nothing is
        taken."""
        scored = self._scored(claim, now + claim.term_s, closed)
        if len(scored) + bool(claim.home) < claim.nodes:  # its home need not be one of its hosts
            return None
        best = heapq.nsmallest(claim.nodes, scored) if not claim.home else (
            self._with_home(claim, now + claim.term_s, closed, scored))
        if len(best) < claim.nodes:
            return None
        return Placement(tuple(Candidate(self._nodes[node_id], places, claim)
                               for _, _, node_id, _, places, _ in best))

    def _with_home(self, claim: Claim, ends_at: float, closed: Container[str],
                   scored: Iterable[Scored]) -> list[Scored]:
        """Its own node first, then the best of the others."""
        kind = self._kind_of.get(claim.home)
        if kind is None or claim.home in closed or not kind.may_take(claim):
            return []
        own = self._score(kind, self._nodes[claim.home], claim, ends_at)
        others = (each for each in scored if each[2] != claim.home)
        return [] if own is None else [own, *heapq.nsmallest(claim.nodes - 1, others)]

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
        before = self._kind_of.pop(node.id, None)
        if before is not None:
            before.members.remove((node.host, node.id))
            self._changes.append(before.number)
        self._nodes[node.id] = node
        self._join(node)

    def _join(self, node: Node) -> None:
        if node.is_full:
            return
        signature = self._signature(node)
        kind = self._by_signature.get(signature)
        if kind is None:
            kind = _Kind(len(self._kinds), sum(gpu.free_milli > 0 for gpu in node.gpus),
                         node.free_milli, tuple({gpu.model for gpu in node.gpus}),
                         self._number_of(node))
            self._by_signature[signature] = kind
            self._kinds.append(kind)
        self._kind_of[node.id] = kind
        insort(kind.members, (node.host, node.id))
        self._changes.append(kind.number)

    def _signature(self, node: Node) -> tuple[object, ...]:
        """How busy a node is makes it one of a kind only where the strategy goes by that."""
        left = node.gpus, node.free_cpu_milli
        return (*left, node.load_pct, node.tasks) if self._strategy.is_measured else left

    def _number_of(self, node: Node) -> int:
        free = frozenset(Counter(map(_FREE, node.gpus)).items())
        return self._free.setdefault((free, node.free_cpu_milli), len(self._free))

    def _scored(self, claim: Claim, ends_at: float, closed: Container[str]) -> list[Scored]:
        if self._strategy.by_name or claim.hosts or closed:
            return [found for node_id in self.named(claim.hosts)
                    if (kind := self._kind_of.get(node_id)) is not None and node_id not in closed
                    if kind.may_take(claim) and (found := self._score(
                        kind, self._nodes[node_id], claim, ends_at)) is not None]
        ranking = self._ranked(claim, ends_at)
        if claim.nodes == 1:
            best = self._best(ranking, claim, ends_at)
            return [] if best is None else [best]
        return self._all_of(ranking, claim, ends_at)

    def has_room(self, names: Sequence[str]) -> bool:
        """Whether anything is free on one of these nodes."""
        return not self._kind_of.keys().isdisjoint(self.named(names))

    def named(self, names: Sequence[str]) -> Iterable[str]:
        """Ids of those with this host name or id; no names: all."""
        if not names:
            return self._nodes
        if not self._by_name:
            for node in self._nodes.values():
                for name in {node.id, node.host}:
                    self._by_name.setdefault(name, []).append(node.id)
        if len(names) == 1:
            return self._by_name.get(names[0], ())
        return dict.fromkeys(each for name in names for each in self._by_name.get(name, ()))

    def _ranked(self, claim: Claim, ends_at: float) -> _Ranking:
        """By bounds, where no claim that asks for the same has looked yet. By when something begins
        next: what ends before that is alike, also after more has been held."""
        ahead = bisect_left(self._horizons, ends_at)
        horizon = self._horizons[ahead] if ahead < len(self._horizons) else inf
        ranking = self._rankings.setdefault((*claim.wants, horizon), _Ranking())
        for number in set(self._changes[ranking.upto:]):
            kind = self._kinds[number]
            if kind.members and kind.may_take(claim):
                host, node_id = kind.members[0]
                bound = self._bound(kind, self._nodes[node_id], claim)
                if bound is not None:
                    heapq.heappush(ranking.heap, (bound, host, node_id, False, (), number))
        ranking.upto = len(self._changes)
        return ranking

    def _bound(self, kind: _Kind, node: Node, claim: Claim) -> Score | None:
        """None: no claim of its shape fits there."""
        bound = self._strategy.bound(kind.free_milli, node.free_cpu_milli, claim, self._context)
        if bound or not self._strategy.by_shape:
            return bound
        shape = claim.gpus, claim.share_milli, claim.cpu_milli
        key = kind.free, shape
        if key not in self._bounds:
            if (anywhere := self._shapes.get(shape)) is None:
                anywhere = self._shapes[shape] = replace(claim, models=(), mem_bytes=None)
            self._bounds[key] = min(
                (self._strategy.score(each, self._context)[:self._strategy.by_shape]
                 for each in candidates(node, anywhere, -inf)), default=None)
        return self._bounds[key]

    def _best(self, ranking: _Ranking, claim: Claim, ends_at: float) -> Scored | None:
        heap = ranking.heap
        while heap:
            _, host, node_id, is_score, _, number = heap[0]
            kind = self._kinds[number]
            if kind.members[:1] != [(host, node_id)]:
                heapq.heappop(heap)
            elif is_score:
                return heap[0]
            elif (found := self._score(kind, self._nodes[node_id], claim, ends_at)) is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, found)
        return None

    def _all_of(self, ranking: _Ranking, claim: Claim, ends_at: float) -> list[Scored]:
        """As many nodes of each kind as it asks for."""
        found = []
        for number in {each[-1] for each in ranking.heap}:
            kind = self._kinds[number]
            if kind.members and (best := self._score(
                    kind, self._nodes[kind.members[0][1]], claim, ends_at)) is not None:
                found += [(best[0], *member, *best[3:]) for member in kind.members[:claim.nodes]]
        return found

    def _score(self, kind: _Kind, node: Node, claim: Claim, ends_at: float) -> Scored | None:
        best = min(((self._strategy.score(each, self._context), each.places)
                    for each in candidates(node, claim, ends_at)), default=None)
        return None if best is None else (best[0], node.host, node.id, True, best[1], kind.number)


def candidates(node: Node, claim: Claim, ends_at: float) -> Iterator[Candidate]:
    """Ways to put one node's part of a claim on this node, few enough to score them all."""
    if node.free_cpu_milli is not None and node.free_cpu_milli < (claim.cpu_milli or 0):
        return
    if claim.gpus == 0:
        yield Candidate(node, (), claim)
        return
    fitting = _fitting(node, claim, ends_at)
    if claim.gpus == 1:
        # Of GPUs alike the first; each different one is a way of its own.
        for _, alike in groupby(fitting, key=lambda place: node.gpus[place]):
            yield Candidate(node, (next(alike),), claim)
        return
    if len(fitting) < claim.gpus:
        return
    for places in _joined(node, fitting, claim.gpus):
        yield Candidate(node, places, claim)


def _fitting(node: Node, claim: Claim, ends_at: float) -> list[int]:
    """GPUs alike stand together: one of them is looked at."""
    fitting: list[int] = []
    before, takes = None, False
    for place, gpu in enumerate(node.gpus):
        if gpu != before:
            before, takes = gpu, _takes(gpu, claim, ends_at)
        if takes:
            fitting.append(place)
    return fitting


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

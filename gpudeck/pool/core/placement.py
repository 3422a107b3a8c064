"""Placement: which GPUs of a node can take a claim, and which node is best. Pure."""

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from operator import attrgetter

from gpudeck.pool.core.claims import Claim, Grant
from gpudeck.pool.core.fragmentation import accepts
from gpudeck.pool.core.inventory import FreeGpu, Node
from gpudeck.pool.core.strategies import STRATEGIES, Candidate, PlacementContext, Score

_FREE = attrgetter("free_milli", "model", "is_mig")


@dataclass(frozen=True, slots=True)
class Placement:
    candidates: tuple[Candidate, ...]  # one for each node

    @property
    def claim(self) -> Claim:
        return self.candidates[0].claim

    @property
    def grants(self) -> tuple[Grant, ...]:
        return tuple(Grant(candidate.node.id, candidate.uuids) for candidate in self.candidates)


# Score, host, node, whether it is the score or its bound, places, kind.
Scored = tuple[Score, str, str, bool, tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class _Kind:
    """Nodes with the same left over, by name."""

    number: int
    gpus: int  # of which anything is free
    free_milli: int
    models: tuple[str, ...]
    free: int  # number of its free part, wherever that is in the node
    members: list[tuple[str, str]] = field(default_factory=list)  # host, node

    def may_take(self, claim: Claim) -> bool:
        """Return whether a node of this kind may take a claim: a bound that costs little."""
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
        """Index the nodes. `after`: the node whose turn was last, in an earlier pass."""
        self._strategy = STRATEGIES[strategy]
        sorted_nodes = sorted(nodes, key=attrgetter("host", "id"))
        self._nodes = {node.id: node for node in sorted_nodes}
        places = {node.id: place for place, node in enumerate(sorted_nodes)}
        self._context = replace(context, places=places, last=places.get(after, context.last))
        self._horizons = sorted({gpu.free_until for node in sorted_nodes for gpu in node.gpus
                                 if gpu.free_until < inf})
        self._by_signature: dict[tuple[object, ...], _Kind] = {}
        self._kinds: list[_Kind] = []
        self._kind_of: dict[str, _Kind] = {}  # of nodes that are not full
        self._by_name: dict[str, list[str]] = {}
        self._changes: list[int] = []
        self._rankings: dict[tuple[object, ...], _Ranking] = {}
        self._bounds: dict[tuple[object, ...], Score | None] = {}
        self._shapes: dict[tuple[object, ...], Claim] = {}
        self._fits: dict[tuple[object, ...], dict[int, bool]] = {}  # by kind
        self._levels: list[tuple[Score, str, str]] = []  # with host and node, of those not full
        self._ids = tuple(node.id for node in sorted_nodes)
        self._free: dict[object, int] = {}
        for node in sorted_nodes:
            self._index(node)

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self._nodes

    def find(self, claim: Claim, now: float, closed: Container[str] = ()) -> Placement | None:
        """Return a placement on all nodes that a claim needs, none of those that are `closed` to
        it, or None. Nothing is taken."""
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
        """Return the claim's home first, then the best of the others; empty: its home cannot take
        it."""
        kind = self._kind_of.get(claim.home)
        if kind is None or claim.home in closed or not kind.may_take(claim):
            return []
        own = self._score(kind, self._nodes[claim.home], claim, ends_at)
        rest = (entry for entry in scored if entry[2] != claim.home)
        return [] if own is None else [own, *heapq.nsmallest(claim.nodes - 1, rest)]

    def exactly(self, claim: Claim, grants: Iterable[Grant]) -> Placement | None:
        """Place a claim on these GPUs, whatever they are held for; None: it does not fit there."""
        parts = []
        for grant in grants:
            node = self._nodes.get(grant.node)
            if node is None or not set(grant.uuids) <= set(node.uuids):
                return None
            places = tuple(map(node.uuids.index, grant.uuids))
            if not (node.free_host.has(claim)
                    and all(_takes(node.gpus[place], claim, -inf) for place in places)):
                return None
            parts.append(Candidate(node, places, claim))
        return Placement(tuple(parts))

    def take(self, placement: Placement) -> None:
        for candidate in placement.candidates:
            self._put(candidate.after)
        last = placement.candidates[-1].node.id
        self._context = replace(self._context, last=self._context.places[last])

    def hold(self, grants: Iterable[Grant], at: float) -> None:
        """Hold these GPUs for a claim that begins then: nothing that lasts longer takes them."""
        for grant in grants:
            if grant.node in self._nodes:
                self._put(self._nodes[grant.node].held_from(grant.uuids, at))
        insort(self._horizons, at)

    def _put(self, node: Node) -> None:
        before = self._kind_of.pop(node.id, None)
        if before is not None:
            before.members.remove((node.host, node.id))
            if self._strategy.level is not None:
                self._levels.remove((self._strategy.level(self._nodes[node.id]), node.host,
                                     node.id))
            self._changes.append(before.number)
        self._nodes[node.id] = node
        self._index(node)

    def _index(self, node: Node) -> None:
        if node.is_full:
            return
        signature = node.gpus, node.free_cpu_milli, node.free_ram_bytes
        kind = self._by_signature.get(signature)
        if kind is None:
            free = frozenset(Counter(map(_FREE, node.gpus)).items()), node.free_cpu_milli
            kind = _Kind(len(self._kinds), sum(gpu.free_milli > 0 for gpu in node.gpus),
                         node.free_milli, tuple({gpu.model for gpu in node.gpus}),
                         self._free.setdefault(free, len(self._free)))
            self._by_signature[signature] = kind
            self._kinds.append(kind)
        self._kind_of[node.id] = kind
        insort(kind.members, (node.host, node.id))
        self._changes.append(kind.number)
        if self._strategy.level is not None:
            insort(self._levels, (self._strategy.level(node), node.host, node.id))

    def _scored(self, claim: Claim, ends_at: float, closed: Container[str]) -> list[Scored]:
        if self._strategy.turn is not None or self._strategy.level is not None:
            return self._first(claim, ends_at, closed)
        if claim.hosts or closed:
            return [scored for node_id in self.ids_of(claim.hosts)
                    if (kind := self._kind_of.get(node_id)) is not None and node_id not in closed
                    if kind.may_take(claim) and (scored := self._score(
                        kind, self._nodes[node_id], claim, ends_at)) is not None]
        ranking = self._ranked(claim, ends_at)
        if claim.nodes == 1:
            best = self._best(ranking, claim, ends_at)
            return [] if best is None else [best]
        return self._all_of(ranking, claim, ends_at)

    def _first(self, claim: Claim, ends_at: float, closed: Container[str]) -> list[Scored]:
        """Return the first nodes with their scores: as many as a claim asks for, and all of their
        level."""
        fits = self._fits.setdefault((*claim.wants, self._horizon(ends_at)), {})
        if not any(kind.members and fits.get(kind.number, True) for kind in self._kinds):
            return []
        hosts = set(self.ids_of(claim.hosts)) if claim.hosts else self._kind_of.keys()
        results: list[Scored] = []
        groups = self._groups(claim) if not claim.hosts or len(hosts) > 1 else [hosts]
        for place, group in enumerate(groups):
            tries: Counter[int] = Counter()  # of a kind as many as it asks for
            for node_id in group:
                kind = self._kind_of.get(node_id)
                if (kind is None or node_id not in hosts or node_id in closed
                        or tries[kind.number] >= claim.nodes + bool(claim.home)
                        or not fits.setdefault(kind.number, kind.may_take(claim))):
                    continue
                tries[kind.number] += 1
                scored = self._score(kind, self._nodes[node_id], claim, ends_at)
                fits[kind.number] = scored is not None
                if scored is not None:
                    results.append(((place, *scored[0]), *scored[1:]))
            if len(results) >= claim.nodes + bool(claim.home):  # its home is not among the others
                break
        return results

    def _groups(self, claim: Claim) -> Iterator[Iterable[str]]:
        """Return groups of nodes in the order to try; to the strategy those of a group are
        alike."""
        if self._strategy.turn is not None:
            return ((self._ids[place],) for place in self._strategy.turn(claim, self._context))
        return ([node_id for *_, node_id in group]
                for _, group in groupby(self._levels, key=lambda entry: entry[0]))

    def has_room(self, names: Sequence[str]) -> bool:
        """Return whether anything is free on one of these nodes."""
        return not self._kind_of.keys().isdisjoint(self.ids_of(names))

    def ids_of(self, names: Sequence[str]) -> Iterable[str]:
        """Return the ids of nodes with these host names or ids; no names: all."""
        if not names:
            return self._nodes
        if not self._by_name:
            for node in self._nodes.values():
                for name in {node.id, node.host}:
                    self._by_name.setdefault(name, []).append(node.id)
        if len(names) == 1:
            return self._by_name.get(names[0], ())
        return dict.fromkeys(node_id for name in names for node_id in self._by_name.get(name, ()))

    def _ranked(self, claim: Claim, ends_at: float) -> _Ranking:
        """Return the ranking of nodes for a claim, by bounds where none that asks for the same has
        looked yet. It is kept by when something begins next: what ends before that is alike, also
        after more has been held."""
        ranking = self._rankings.setdefault((*claim.wants, self._horizon(ends_at)), _Ranking())
        for number in set(self._changes[ranking.upto:]):
            kind = self._kinds[number]
            if kind.members and kind.may_take(claim):
                host, node_id = kind.members[0]
                bound = self._bound(kind, self._nodes[node_id], claim)
                if bound is not None:
                    heapq.heappush(ranking.heap, (bound, host, node_id, False, (), number))
        ranking.upto = len(self._changes)
        return ranking

    def _horizon(self, ends_at: float) -> float:
        ahead = bisect_left(self._horizons, ends_at)
        return self._horizons[ahead] if ahead < len(self._horizons) else inf

    def _bound(self, kind: _Kind, node: Node, claim: Claim) -> Score | None:
        """Return a bound below which no score is; None: no claim of its shape fits there."""
        bound = self._strategy.bound(kind.free_milli, node.free_cpu_milli, claim, self._context)
        if bound or not self._strategy.by_shape:
            return bound
        shape = claim.gpus, claim.share_milli, claim.cpu_milli
        key = kind.free, shape
        if key not in self._bounds:
            if (anywhere := self._shapes.get(shape)) is None:
                anywhere = self._shapes[shape] = replace(
                    claim, models=(), mem_bytes=None, ram_bytes=None)
            self._bounds[key] = min(
                (self._strategy.score(candidate, self._context)[:self._strategy.by_shape]
                 for candidate in candidates(node, anywhere, -inf)), default=None)
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
            elif (scored := self._score(kind, self._nodes[node_id], claim, ends_at)) is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, scored)
        return None

    def _all_of(self, ranking: _Ranking, claim: Claim, ends_at: float) -> list[Scored]:
        """Return the best score with as many nodes of each kind as a claim asks for."""
        results = []
        for number in {entry[-1] for entry in ranking.heap}:
            kind = self._kinds[number]
            if kind.members and (best := self._score(
                    kind, self._nodes[kind.members[0][1]], claim, ends_at)) is not None:
                results += [(best[0], *member, *best[3:]) for member in kind.members[:claim.nodes]]
        return results

    def _score(self, kind: _Kind, node: Node, claim: Claim, ends_at: float) -> Scored | None:
        best = min(((self._strategy.score(candidate, self._context), candidate.places)
                    for candidate in candidates(node, claim, ends_at)), default=None)
        return None if best is None else (best[0], node.host, node.id, True, best[1], kind.number)


def candidates(node: Node, claim: Claim, ends_at: float) -> Iterator[Candidate]:
    """Yield ways to put one node's part of a claim on this node, few enough to score them all."""
    if not node.free_host.has(claim):
        return
    if claim.gpus == 0:
        yield Candidate(node, (), claim)
        return
    fitting = _fitting(node, claim, ends_at)
    if claim.gpus == 1:
        # The first of equal GPUs; each different one is another way.
        for _, alike in groupby(fitting, key=lambda place: node.gpus[place]):
            yield Candidate(node, (next(alike),), claim)
        return
    if len(fitting) < claim.gpus:
        return
    for places in _joint_places(node, fitting, claim.gpus):
        yield Candidate(node, places, claim)


def _fitting(node: Node, claim: Claim, ends_at: float) -> list[int]:
    """Return the places of GPUs that fit. GPUs alike stand together: one of them is looked at."""
    fitting: list[int] = []
    before, takes = None, False
    for place, gpu in enumerate(node.gpus):
        if gpu != before:
            before, takes = gpu, _takes(gpu, claim, ends_at)
        if takes and (not claim.home_gpus or node.uuids[place] in claim.home_gpus):
            fitting.append(place)
    return fitting


def _takes(gpu: FreeGpu, claim: Claim, ends_at: float) -> bool:
    if gpu.free_milli < claim.share_milli or ends_at > gpu.free_until:
        return False
    # One process sees one MIG instance (CUDA guide 5.2.1), and no part of one can be limited.
    if gpu.is_mig and (claim.gpus > 1 or claim.is_share):
        return False
    return gpu.has(claim.mem_bytes) and accepts(claim.models, gpu.model)


def _joint_places(node: Node, fitting: list[int], count: int) -> Iterator[tuple[int, ...]]:
    """Yield GPUs of one model: in one NVLink clique if that can be, else on one NUMA node, else
    any."""
    for _, of_model in groupby(fitting, key=lambda place: node.gpus[place].model):
        alike = list(of_model)
        if len(alike) < count:
            continue
        yield min((*_sets(alike, count, lambda place: node.gpus[place].clique),
                   *_sets(alike, count, lambda place: node.gpus[place].numa),
                   tuple(alike[:count])), key=lambda places: _distance(node, places))


def _sets(places: list[int], count: int, joint: Callable[[int], int | None]
          ) -> Iterator[tuple[int, ...]]:
    groups: dict[int, list[int]] = {}
    for place in places:
        if (number := joint(place)) is not None:
            groups.setdefault(number, []).append(place)
    # The smallest that is enough: larger ones stay whole for larger claims.
    for group in sorted(groups.values(), key=len):
        if len(group) >= count:
            yield tuple(group[:count])
            return


def _distance(node: Node, places: tuple[int, ...]) -> tuple[bool, bool]:
    cliques = {node.gpus[place].clique for place in places}
    numas = {node.gpus[place].numa for place in places}
    return (len(cliques) > 1 or None in cliques, len(numas) > 1 or None in numas)

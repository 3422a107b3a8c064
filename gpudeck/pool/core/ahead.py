"""Count of claims of higher priority that go before one that waits. Pure."""

from collections.abc import Callable, Collection, Container, Iterable, Mapping

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.fair_share import rank
from gpudeck.pool.core.fragmentation import accepts

Nodes = frozenset[str]
_Kind = tuple[float, int, tuple[str, ...]]  # rank, priority, models


class ClaimsAhead:
    """Waiting claims, for counting those ahead of another. Only those count that may want the same
    GPUs: of a model and a node that both accept. Built once, asked thousands of times."""

    def __init__(self, waiting: Iterable[Claim], pinned: Container[str], models: Collection[str],
                 nodes_of: Callable[[Claim], Nodes]) -> None:
        """Count the waiting claims. `models`: of all GPUs here. `nodes_of`: where a claim may go;
        none: anywhere."""
        self._pinned, self._models, self._nodes_of = pinned, models, nodes_of
        self._accepted: dict[tuple[str, ...], frozenset[str]] = {}
        self._there: dict[tuple[str, ...], Nodes] = {}  # by the hosts of claims
        self._anywhere: dict[_Kind, int] = {}  # those that may go anywhere
        self._all: dict[_Kind, int] = {}
        self._at: dict[str, dict[_Kind, int]] = {}  # those for one node
        self._several: list[tuple[Nodes, _Kind]] = []
        self._counts: dict[_Kind, tuple[int, int]] = {}
        for claim in waiting:
            kind, nodes = self._kind(claim), self._nodes(claim)
            self._all[kind] = self._all.get(kind, 0) + 1
            if len(nodes) > 1:
                self._several.append((nodes, kind))
                continue
            kinds = self._anywhere
            for node in nodes:
                kinds = self._at.get(node) or self._at.setdefault(node, {})
            kinds[kind] = kinds.get(kind, 0) + 1

    def of(self, claim: Claim) -> int:
        kind, nodes = self._kind(claim), self._nodes(claim)
        if kind not in self._counts:
            self._counts[kind] = (self._count(kind, self._all), self._count(kind, self._anywhere))
        of_all, count = self._counts[kind]
        if not nodes or not of_all:
            return of_all
        for node in nodes:
            if node in self._at:
                count += self._count(kind, self._at[node])
        return count + sum(self._goes_before(other, kind) for there, other in self._several
                           if not there.isdisjoint(nodes))

    def _nodes(self, claim: Claim) -> Nodes:
        if claim.hosts not in self._there:
            self._there[claim.hosts] = self._nodes_of(claim)
        return self._there[claim.hosts]

    def _kind(self, claim: Claim) -> _Kind:
        return rank(claim, claim.id in self._pinned), claim.priority, claim.models

    def _count(self, kind: _Kind, kinds: Mapping[_Kind, int]) -> int:
        return sum([number for other, number in kinds.items() if self._goes_before(other, kind)])

    def _goes_before(self, other: _Kind, kind: _Kind) -> bool:
        return other[0] > kind[0] and other[1] > kind[1] and (
            not self._accepts(other[2]).isdisjoint(self._accepts(kind[2])))

    def _accepts(self, words: tuple[str, ...]) -> frozenset[str]:
        if words not in self._accepted:
            self._accepted[words] = frozenset(
                model for model in self._models if accepts(words, model))
        return self._accepted[words]


def with_ahead(why: str, ahead: int) -> str:
    """Return `why` a claim waits, with how many go before it."""
    return why if not ahead else (
        f"{why}, {ahead} claim{'s' * (ahead != 1)} of higher priority before it")

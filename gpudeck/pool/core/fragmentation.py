"""Fragmentation: how much of a node's free GPUs the usual claims cannot use. After Weng et al.,
"Beware of Fragmentation" (ATC 2023), with integer weights. Pure."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from math import exp
from operator import attrgetter

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.inventory import Node

_FREE = attrgetter("free_milli", "model")
COVERED = 0.95  # of the claims; rarer ones are left out, as by the authors
LEAST_CLAIMS = 50  # fewer say too little about what is usual
KNOWN_MOST = 65_536


@lru_cache(4_096)  # anybody may ask for anything, and as often as they like
def accepts(models: tuple[str, ...], model: str) -> bool:
    """Return whether a claim accepts a model. Each of `models` is words that the name must have,
    such as `h100` or `A100 80GB`; none: any model."""
    name = model.lower()
    return not models or any(all(word in name for word in words.lower().split())
                             for words in models)


Free = Mapping[tuple[int, str], int]  # thousandths and model: how many such GPUs


def free_of(node: Node) -> dict[tuple[int, str], int]:
    free: dict[tuple[int, str], int] = {}
    for kind in map(_FREE, node.gpus):
        free[kind] = free.get(kind, 0) + 1
    return free


class ClaimMix:
    """Recent claims by what they ask for."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        kinds = Counter((claim.gpus, claim.share_milli, claim.models, claim.cpu_milli or 0)
                        for claim in claims)
        self.has_shares = any(gpus == 1 and milli < 1_000 for gpus, milli, *_ in kinds)
        self.count = kinds.total()
        self._by_gpus: dict[tuple[int, int, tuple[str, ...]], list[tuple[int, int]]] = {}
        self.weight = 0
        for (gpus, milli, models, cpu), count in kinds.most_common():
            if self.weight >= COVERED * self.count:
                break
            self._by_gpus.setdefault((gpus, milli, models), []).append((cpu, count))
            self.weight += count
        self._steps = {kind: _steps(demand) for kind, demand in self._by_gpus.items()}
        self._cache: dict[tuple[object, ...], int] = {}

    def unusable(self, free: Free, free_cpu_milli: int | None) -> int:
        """Return the thousandths of a GPU that a claim of this mix cannot use, times `weight`.
        Nodes are much alike: what was worked out once is looked up."""
        key = frozenset(free.items()), free_cpu_milli
        if (cached := self._cache.get(key)) is None:
            if len(self._cache) >= KNOWN_MOST:
                self._cache.clear()
            cached = self._cache[key] = self._unusable(free.items(), free_cpu_milli)
        return cached

    def _unusable(self, free: Collection[tuple[tuple[int, str], int]], free_cpu_milli: int | None
                  ) -> int:
        total = sum(milli * number for (milli, _), number in free)
        unusable = self.weight * total
        for (count, milli, models), (cpus, weights) in self._steps.items():
            usable = [(free_milli * number, number) for (free_milli, model), number in free
                      if free_milli >= milli and accepts(models, model)]
            if count == 0 or sum(number for _, number in usable) < count:
                continue
            fits = weights[-1] if free_cpu_milli is None else (
                weights[bisect_right(cpus, free_cpu_milli)])
            unusable -= fits * sum(amount for amount, _ in usable)
        return unusable


def _steps(demand: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the CPUs asked for, rising, and how many claims ask for at most so many."""
    cpus, weights = [], [0]
    for cpu, count in sorted(demand):
        cpus.append(cpu)
        weights.append(weights[-1] + count)
    return cpus, weights


def coarse(milli: float) -> int:
    """Return a difference as 0 to 100, less is better. Coarse on purpose: exact differences, with
    ties at random, lose more than the gradient gains (95.4 % against 90.5 % allocated on the
    authors' trace)."""
    return 100 - int(100 / (1 + exp(min(milli, 700_000.0) / 1_000)))


def gradient(mix: ClaimMix, node: Node, places: Sequence[int], claim: Claim) -> int:
    """Return the change, made coarse, of what is unusable on the node when the claim takes these
    GPUs."""
    free, cpu = free_of(node), node.free_cpu_milli
    before = mix.unusable(free, cpu)
    for place in places:
        milli, model = _FREE(node.gpus[place])
        free[milli, model] -= 1
        if not free[milli, model]:
            del free[milli, model]
        rest = milli - claim.share_milli, model
        free[rest] = free.get(rest, 0) + 1
    after = mix.unusable(free, None if cpu is None else cpu - (claim.cpu_milli or 0))
    return coarse((after - before) / mix.weight)

"""How much of a node's free GPUs the usual claims cannot use: the fragmentation of Weng et al.,
"Beware of Fragmentation" (ATC 2023), with integer weights. Pure."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import exp

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.inventory import FreeGpu, Node

COVERED = 0.95  # of the claims; rarer ones are left out, as by the authors
LEAST_CLAIMS = 50  # fewer say too little about what is usual


@lru_cache(4_096)  # anybody may ask for anything, and as often as they like
def accepts(models: tuple[str, ...], model: str) -> bool:
    """Each of `models` is words that the name must have: `h100`, `A100 80GB`."""
    name = model.lower()
    return not models or any(all(word in name for word in each.lower().split())
                             for each in models)


class ClaimMix:
    """Recent claims by what they ask for."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        kinds = Counter((each.gpus, each.share_milli, each.models, each.cpu_milli or 0)
                        for each in claims)
        self.has_shares = any(gpus == 1 and milli < 1_000 for gpus, milli, *_ in kinds)
        self.count = kinds.total()
        self._by_gpus: dict[tuple[int, int, tuple[str, ...]], list[tuple[int, int]]] = {}
        self.weight = 0
        for (gpus, milli, models, cpu), count in kinds.most_common():
            if self.weight >= COVERED * self.count:
                break
            self._by_gpus.setdefault((gpus, milli, models), []).append((cpu, count))
            self.weight += count
        self._steps = {kind: _steps(wanted) for kind, wanted in self._by_gpus.items()}

    def unusable(self, gpus: Sequence[FreeGpu], free_cpu_milli: int | None) -> int:
        """Thousandths of a GPU that a claim of this mix cannot use, times `weight`."""
        total = sum(gpu.free_milli for gpu in gpus)
        lost = 0
        for (count, milli, models), (cpus, weights) in self._steps.items():
            usable = [gpu.free_milli for gpu in gpus
                      if gpu.free_milli >= milli and accepts(models, gpu.model)]
            asked = weights[-1]
            fits = asked if free_cpu_milli is None else weights[bisect_right(cpus, free_cpu_milli)]
            if count == 0 or len(usable) < count:
                lost += asked * total
            else:
                lost += asked * total - fits * sum(usable)
        return lost


def _steps(wanted: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """CPUs asked for, rising, and how many claims ask for at most so many."""
    cpus, weights = [], [0]
    for cpu, count in sorted(wanted):
        cpus.append(cpu)
        weights.append(weights[-1] + count)
    return cpus, weights


def coarse(milli: float) -> int:
    """0 to 100, less is better. Coarse on purpose: exact differences, with ties at random, lose
    more than the gradient gains (95.4 % against 90.5 % allocated on the authors' trace)."""
    return 100 - int(100 / (1 + exp(min(milli, 700_000.0) / 1_000)))


def gradient(mix: ClaimMix, before: Node, after: Node) -> int:
    lost = (mix.unusable(after.gpus, after.free_cpu_milli)
            - mix.unusable(before.gpus, before.free_cpu_milli))
    return coarse(lost / mix.weight)

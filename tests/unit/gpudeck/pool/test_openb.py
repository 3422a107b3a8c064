"""The public trace: as much is given out as its authors publish, or more.

Weng et al. (ATC 2023) publish 95.39 % for the gradient and 93.08 % for best fit at 130 % asked,
means of ten seeds that lie within 0.3 of each other (table in docs/pool.md)."""

import random
from pathlib import Path
from statistics import mean

import pytest

from gpudeck.pool.core.fragmentation import ClaimMix
from gpudeck.pool.core.simulation import allocation
from gpudeck.pool.core.strategies import STRATEGIES, PlacementContext
from tests.unit.gpudeck.pool.openb import claims, nodes


def given_pct(strategy: str, seeds: range) -> tuple[list[float], list[float]]:
    """Return the % given out with each seed, at 100 and at 130 % asked."""
    pods, there = claims(), nodes()
    context = PlacementContext(mix=ClaimMix(pods))
    runs = [allocation(there, pods, strategy, seed, random.Random(seed), context)
            for seed in seeds]
    return [run.given_pct[100.0] for run in runs], [run.given_pct[130.0] for run in runs]


def test_the_inventory_is_all_there() -> None:
    there, pods = nodes(), claims()
    assert (len(there), sum(len(node.gpus) for node in there)) == (1_213, 6_212)
    assert (len(pods), sum(pod.gpus == 0 for pod in pods)) == (8_152, 1_088)


def test_one_seed_gives_out_as_published() -> None:
    seed = random.randrange(42, 52)
    best_fit, pack = (given_pct(name, range(seed, seed + 1))[1][0] for name in ("best_fit", "pack"))
    assert 92.6 <= best_fit <= 93.7
    assert 95.0 <= pack <= 95.8
    assert pack - best_fit >= 1.5


@pytest.mark.soak
def test_ten_seeds() -> None:
    by_strategy = {name: given_pct(name, range(42, 52)) for name in STRATEGIES}
    pack, best_fit = ([mean(level) for level in by_strategy[name]] for name in ("pack", "best_fit"))
    assert pack[0] >= 95.1
    assert pack[1] >= 95.3
    assert best_fit[1] == pytest.approx(93.08, abs=0.3)
    assert min(pack[0] - best_fit[0], pack[1] - best_fit[1]) >= 2.0
    assert by_strategy["best_fit"] == by_strategy.pop("weighted") == by_strategy.pop("least_loaded")
    docs = (Path(__file__).parents[4] / "docs/pool.md").read_text()
    for name, marks in by_strategy.items():
        row = " | ".join(f"{mean(level):.2f} % ({min(level):.2f} to {max(level):.2f})"
                         for level in marks)
        assert f"| `{name}` | {row} |" in docs, (name, row)

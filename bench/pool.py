"""One pass of the pool over a large fleet, the hub's turn around it, and what strategies give out
on the openb trace."""

import random
import statistics
import time
from collections.abc import Iterator

from bench.figure import Figure
from gpudeck.pool.core.claims import Claim, Grant, Lease
from gpudeck.pool.core.fragmentation import ClaimMix
from gpudeck.pool.core.inventory import FreeGpu, Node, node_of
from gpudeck.pool.core.placement import PlacementContext
from gpudeck.pool.core.schedule import NoOwnerLimits, PoolPolicy, Queue, run_pass
from gpudeck.pool.core.simulation import allocation
from tests.unit.dashboard.pool.large_pool import LargePool
from tests.unit.gpudeck.pool.openb import claims, nodes

NODES, GPUS_EACH, WAITING, OWNERS = 1_250, 8, 5_000, 200
GOAL_MS = 50.0
PASSES = 15
GIB = 2**30
MODELS = (("NVIDIA H100 80GB HBM3", 80), ("NVIDIA A100-SXM4-80GB", 80), ("NVIDIA L40S", 48),
          ("Tesla T4", 16))
NOW = 100_000.0


def figures() -> Iterator[Figure]:
    for name, held in (("all leased", 1.0), ("95 % leased", 0.95), ("half leased", 0.5)):
        yield Figure(f"pool: one pass, {NODES * GPUS_EACH:,} GPUs, {WAITING:,} claims, {name}",
                     _pass_ms(held), "ms", GOAL_MS)
    for name, held in (("all leased", 1.0), ("half leased", 0.5)):
        whole, longest = _hub_ms(held)
        yield Figure(f"pool: the hub's whole turn, every claim on a node, {name}", whole, "ms")
        yield Figure("  longest time that nothing else of the hub runs", longest, "ms", GOAL_MS)
    context = PlacementContext(mix=ClaimMix(claims()))
    for strategy in ("pack", "best_fit"):
        seed = 42
        found = allocation(nodes(), claims(), strategy, seed, random.Random(seed), context)
        yield Figure(f"  openb, seed {seed}, GPUs not given out at 130 % asked, {strategy}",
                     100 - found.given_pct[130.0], "%")


def _pass_ms(held: float) -> float:
    draw = random.Random(1)
    there, leases = _fleet(draw, held)
    waiting = [_claim(draw, number) for number in range(WAITING)]
    queue = Queue(waiting=waiting, leases=leases, limits=NoOwnerLimits())
    context = PlacementContext(mix=ClaimMix(waiting))
    took = []
    for _ in range(PASSES):
        began = time.process_time()
        run_pass(queue, there, PoolPolicy(), context, NOW)
        took.append((time.process_time() - began) * 1e3)
    return statistics.median(took)


def _hub_ms(held: float) -> tuple[float, float]:
    """CPU of a turn, and of the longest stretch of it; each turn after one report has changed."""
    draw = random.Random(1)
    there, leases = _fleet(draw, held)
    pool = LargePool(there, leases, [_claim(draw, number) for number in range(WAITING)], NOW, draw)
    turns = [pool.turn_ms() for _ in range(PASSES)]
    pool.close()
    return (statistics.median(sum(each) for each in turns),
            statistics.median(max(each) for each in turns))


def _fleet(draw: random.Random, held: float) -> tuple[list[Node], list[Lease]]:
    there, leases = [], []
    for number in range(NODES):
        model, gib = draw.choice(MODELS)
        uuids = [f"GPU-{number}-{index}" for index in range(GPUS_EACH)]
        node = node_of(f"id{number}", f"n{number:04}", [
            (uuid, FreeGpu(model, False, 0, index // 4, gib * GIB))
            for index, uuid in enumerate(uuids)])
        while uuids:
            count = min(draw.choice((1, 1, 1, 2, 4, 8)), len(uuids))
            taken, uuids = tuple(uuids[:count]), uuids[count:]
            if draw.random() < held:
                claim = Claim(id=taken[0], owner=f"u{draw.randrange(OWNERS)}", gpus=count,
                              submitted_at=0.0)
                leases.append(Lease(id=claim.id, claim=claim, grants=(Grant(node.id, taken),),
                                    since=1_000.0, until=NOW + draw.random() * 30_000))
                node = node.given(taken, claim)
        there.append(node)
    return there, leases


def _claim(draw: random.Random, number: int) -> Claim:
    return Claim(
        id=f"c{number}", owner=f"u{draw.randrange(OWNERS)}", gpus=draw.choice((1, 1, 1, 2, 4, 8)),
        submitted_at=NOW - draw.random() * 100_000,
        models=draw.choice(((), ("h100",), ("a100",), ("l40s",))),
        mem_bytes=draw.choice((None, 16 * GIB, 40 * GIB)), priority=draw.choice((1, 2, 2, 2, 3)),
        term_s=draw.choice((3_600.0, 28_800.0, 86_400.0)))

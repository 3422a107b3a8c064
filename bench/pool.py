"""Cost of one pass of the pool over a large fleet and of the hub's turn around it; GPUs that
strategies give out on the openb trace."""

import gc
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bench.figure import Figure
from gpudeck.contract.quota import Quota
from gpudeck.pool.core.claims import Claim, Grant, Lease
from gpudeck.pool.core.fragmentation import ClaimMix
from gpudeck.pool.core.inventory import FreeGpu, MeasuredLoad, Node, node_of
from gpudeck.pool.core.schedule import NoOwnerLimits, PoolPolicy, Queue, run_pass
from gpudeck.pool.core.simulation import allocation
from gpudeck.pool.core.strategies import STRATEGIES, PlacementContext
from tests.fakes.hub import wait_for
from tests.integration.hubs import HubProcess
from tests.integration.pools import PoolBed
from tests.unit.dashboard.pool.large_pool import LargePool
from tests.unit.gpudeck.pool.openb import claims, nodes

GPUS_EACH, OWNERS = 8, 200
GOAL_MS = 50.0
DOUBLED = 2.6  # a pass of twice the GPUs and claims, in those of once
HOLDS_MS = 20.0  # at most, of the hub's one thread
START_MS = 150.0  # the latter beyond what the same command takes without the pool
SAYS_WHEN = "echo $GPUDECK_LEASE $EPOCHREALTIME"  # of bash: no second program has to start
GIB = 2**30
MODELS = (("NVIDIA H100 80GB HBM3", 80), ("NVIDIA A100-SXM4-80GB", 80), ("NVIDIA L40S", 48),
          ("Tesla T4", 16))
NOW = 100_000.0


class PoolSizes(NamedTuple):
    nodes: int
    waiting: int
    passes: int
    starts: int
    traces: tuple[str, ...]  # strategies that place the openb trace


WHOLE = PoolSizes(1_250, 5_000, 15, 30, ("pack", "best_fit"))
QUICK = PoolSizes(16, 64, 3, 3, ())
HELD = (("all leased", 1.0), ("95 % leased", 0.95), ("half leased", 0.5))
# Of every fourth owner, of everybody, and on some nodes.
QUOTAS = (
    *(Quota(id=f"u{number}", subject=f"user:u{number}", gpus=40, mode="act")
      for number in range(0, OWNERS, 4)),
    Quota(id="most", subject="*", gpus=100, mode="act"),
    Quota(id="hours", subject="*", gpu_hours=20_000, mode="act"),
    *(Quota(id=f"n{number}", subject="*", scope=f"node:n{number:04}", gpus=6, mode="act")
      for number in range(0, 40, 10)))


def figures(sizes: PoolSizes = WHOLE) -> Iterator[Figure]:
    for name, leased in HELD:
        for shares, what in ((0.0, f"pool: CPU of one pass, {sizes.nodes * GPUS_EACH:,} GPUs, "
                              f"{sizes.waiting:,} claims, {name}"),
                             (1 / 3, "  a third of those for one GPU want a part of it")):
            cpu, elapsed = _pass_ms(sizes, leased, shares)
            yield Figure(what, cpu, "ms", GOAL_MS)
            yield Figure("  elapsed, beside whatever else this machine does", elapsed, "ms")
        yield Figure("  twice as many GPUs and claims, in passes of once",
                     _pass_ms(_doubled(sizes), leased)[0] / _pass_ms(sizes, leased)[0], "", DOUBLED)
    for strategy in STRATEGIES:
        yield Figure(f"  CPU of a pass, half leased, {strategy}, in those of pack",
                     _pass_ms(sizes, 0.5, strategy=strategy)[0] / _pass_ms(sizes, 0.5)[0], "", 2.0)
    for name, leased in HELD:
        for where, at_hub, quotas in (("every claim on a node", 0.0, ()),
                                      ("half of the claims on nodes", 0.5, ()),
                                      (f"{len(QUOTAS)} quotas", 0.5, QUOTAS)):
            whole, longest = _hub_ms(sizes, leased, at_hub, quotas)
            yield Figure(f"pool: the hub's whole turn, {where}, {name}", whole, "ms")
            yield Figure("  longest time that nothing else of the hub runs", longest, "ms",
                         HOLDS_MS)
    bare = statistics.median(_bare_ms() for _ in range(sizes.starts))
    yield Figure("pool: the same command without it, to its first instruction", bare, "ms")
    took = sorted(start_ms - bare for start_ms in _start_ms(sizes.starts))
    yield Figure("  beyond that, grant to it, hub, agent and run on loopback, p50",
                 took[len(took) // 2], "ms", START_MS)
    yield Figure("  p95", took[int(0.95 * len(took))], "ms", START_MS)
    context = PlacementContext(mix=ClaimMix(claims()))
    for strategy in sizes.traces:
        seed = 42
        outcome = allocation(nodes(), claims(), strategy, seed, random.Random(seed), context)
        yield Figure(f"  openb, seed {seed}, GPUs not given out at 130 % asked, {strategy}",
                     100 - outcome.given_pct[130.0], "%")


def _bare_ms() -> float:
    began = time.time()
    output = subprocess.run(["bash", "-c", SAYS_WHEN], capture_output=True, text=True, check=True)
    return 1e3 * (float(output.stdout) - began)


def _start_ms(starts: int) -> list[float]:
    """Return the time from the node's grant, by its audit, to the command's first instruction."""
    with (tempfile.TemporaryDirectory() as folder,
          HubProcess(Path(folder) / "hub", 0, "--pool", "on") as hub):
        bed = PoolBed(hub, Path(folder))
        with bed.agent():
            wait_for(lambda: hub.get("/api/v1/pool")["nodes"], 30)
            starts_at = [bed.run("run", "--", "bash", "-c", SAYS_WHEN).stdout.split()
                         for _ in range(starts)]
        granted_at = {grant["lease"]: grant["at"] for grant in bed.audit("granted")}
        bed.close()
    return [1e3 * (float(began) - granted_at[lease]) for lease, began in starts_at]


def _doubled(sizes: PoolSizes) -> PoolSizes:
    return sizes._replace(nodes=2 * sizes.nodes, waiting=2 * sizes.waiting)


def _pass_ms(sizes: PoolSizes, leased: float, shares: float = 0.0, strategy: str = "pack"
             ) -> tuple[float, float]:
    """Return CPU and elapsed time of one pass, medians."""
    draw = random.Random(1)
    there, leases = _fleet(draw, leased, sizes.nodes)
    waiting = [_claim(draw, number) for number in range(sizes.waiting)]
    waiting = [replace(claim, share_milli=draw.choice((100, 300, 600)))
               if claim.gpus == 1 and draw.random() < shares else claim for claim in waiting]
    queue = Queue(waiting=waiting, leases=leases, limits=NoOwnerLimits())
    context = PlacementContext(mix=ClaimMix(waiting))
    cpu, elapsed = [], []
    for _ in range(sizes.passes):
        began = time.process_time(), time.perf_counter()
        run_pass(queue, there, PoolPolicy(strategy=strategy), context, NOW)
        cpu.append((time.process_time() - began[0]) * 1e3)
        elapsed.append((time.perf_counter() - began[1]) * 1e3)
    return statistics.median(cpu), statistics.median(elapsed)


def _hub_ms(sizes: PoolSizes, leased: float, at_hub: float, quotas: Sequence[Quota]
            ) -> tuple[float, float]:
    """Return CPU of a turn, and of its longest stretch; one report changes before each turn.
    `at_hub`: the part of the claims that name no node."""
    draw = random.Random(1)
    there, leases = _fleet(draw, leased, sizes.nodes)
    waiting = [_claim(draw, number) for number in range(sizes.waiting)]
    pool = LargePool(there, leases, waiting, NOW, draw, at_hub, quotas)
    collected_at = gc.get_threshold()
    pool.settle_garbage()
    turns = [pool.turn_ms() for _ in range(sizes.passes)]
    gc.set_threshold(*collected_at)
    gc.unfreeze()
    pool.close()
    return (statistics.median(sum(turn) for turn in turns),
            statistics.median(max(turn) for turn in turns))


def _fleet(draw: random.Random, leased: float, nodes: int) -> tuple[list[Node], list[Lease]]:
    there, leases = [], []
    for number in range(nodes):
        model, gib = draw.choice(MODELS)
        uuids = [f"GPU-{number}-{index}" for index in range(GPUS_EACH)]
        node = node_of(f"id{number}", f"n{number:04}", [
            (uuid, FreeGpu(model, False, 0, index // 4, gib * GIB))
            for index, uuid in enumerate(uuids)])
        while uuids:
            count = min(draw.choice((1, 1, 1, 2, 4, 8)), len(uuids))
            granted_uuids, uuids = tuple(uuids[:count]), uuids[count:]
            if draw.random() < leased:
                claim = Claim(id=granted_uuids[0], owner=f"u{draw.randrange(OWNERS)}", gpus=count,
                              submitted_at=0.0)
                grants = (Grant(node.id, granted_uuids),)
                leases.append(Lease(id=claim.id, claim=claim, grants=grants,
                                    since=1_000.0, until=NOW + draw.random() * 30_000))
                node = node.after_grant(granted_uuids, claim)
        there.append(node.measured(MeasuredLoad(float(draw.randrange(100)), 0)))
    return there, leases


def _claim(draw: random.Random, number: int) -> Claim:
    return Claim(
        id=f"c{number}", owner=f"u{draw.randrange(OWNERS)}", gpus=draw.choice((1, 1, 1, 2, 4, 8)),
        submitted_at=NOW - draw.random() * 100_000,
        models=draw.choice(((), ("h100",), ("a100",), ("l40s",))),
        mem_bytes=draw.choice((None, 16 * GIB, 40 * GIB)), priority=draw.choice((1, 2, 2, 2, 3)),
        term_s=draw.choice((3_600.0, 28_800.0, 86_400.0)))

"""Findings of a demo's fleet: a slow rank, a job that hangs, a service with tokens, hosts; by
the product's own signs, over some minutes of the simulated boards."""

import numpy as np
from msgspec import UNSET

from agent.backends.simulation.control import SimulationControl
from agent.backends.simulation.host import host_of
from agent.backends.simulation.jobs import jobs_at
from agent.backends.simulation.scenes import SLOW_RANK
from agent.backends.simulation.world import (
    LiveJob,
    SimulatedNode,
    SimulationOptions,
    units_of,
)
from gpudeck.contract.hosts import HOST_KEYS
from gpudeck.measures.metrics import COLUMN

AT = 1_763_640_000.0
# As dashboard/jobs/core/signs.py has them: programs do not import each other.
LAG_PCT, STUCK_SHARE = 15.0, 0.35


def minutes(node: str, seconds: int = 60) -> tuple[SimulatedNode, tuple[LiveJob, ...], np.ndarray]:
    """GPUs x seconds x columns."""
    setup = SimulationOptions(node)
    lives = tuple(LiveJob(job) for job in jobs_at(1, node, units_of(setup)[0], AT))
    world = SimulatedNode(setup, lives, AT)
    rows = [[gpu.values for gpu in world.advance(AT + second, lives, {}, SimulationControl())]
            for second in range(1, seconds)]
    return world, lives, np.array(rows).transpose(1, 0, 2)


def test_one_rank_of_the_launch_over_two_nodes_is_slow() -> None:
    _, lives, values = minutes("n003")
    assert len(lives) == 1  # one job over the whole node
    power = values[:, :, COLUMN["power_w"]].mean(axis=1)
    behind = 100 * (1 - power / np.median(power))
    assert (behind >= LAG_PCT).tolist() == [at == SLOW_RANK for at in range(8)]
    _, _, healthy = minutes("n002")
    power = healthy[:, :, COLUMN["power_w"]].mean(axis=1)
    assert (100 * (1 - power / np.median(power)) < LAG_PCT).all()


def test_a_job_hangs_in_a_collective() -> None:
    world, lives, values = minutes("n004")
    mine = [at for at, facts in enumerate(world.facts)
            if any(facts.uuid in live.job.gpus for live in lives if live.job.kind == "train")]
    assert len(mine) >= 2
    assert (values[mine][:, :, COLUMN["util_pct"]] >= 95).all()
    assert (values[mine][:, :, COLUMN["mem_util_pct"]] <= 3).all()
    limit = np.array([world.facts[at].power_limit_max_w for at in mine], float)
    power = values[mine][:, :, COLUMN["power_w"]]
    assert (power < STUCK_SHARE * limit[:, None]).all()
    collectives = host_of("n004", 1, lives, AT).collectives
    assert collectives is not UNSET
    [report] = collectives
    assert (report.size, report.ahead, [rank.gpu for rank in report.behind]) == (
        len(mine), len(mine) - 1, [len(mine) - 1])
    assert host_of("n001", 1, minutes("n001", 2)[1], AT).collectives is UNSET


def test_a_service_has_tokens_and_every_host_its_numbers() -> None:
    _, lives, _ = minutes("n001", 3)
    sample = host_of("n001", 1, lives, AT)
    assert {*sample.numbers} == {*HOST_KEYS}
    assert all(sample.number(key) is not None for key in HOST_KEYS)
    assert len(sample.tasks) == len(lives)
    serving = [live for live in lives if live.job.kind == "serve"]
    assert [one.engine for one in sample.serving] == ["vllm"] * len(serving)
    assert serving
    assert all((one.generated_tokens_per_s or 0) > 0 for one in sample.serving)

import random
from collections.abc import Iterable

import pytest

from agent.backends.simulation.jobs import jobs_at
from agent.backends.simulation.made_up_schedulers import kubernetes_now, slurm_now
from agent.backends.simulation.reader import parse_options
from agent.backends.simulation.world import SimulationOptions
from agent.schedulers import MadeUpSchedulers, SchedulerReadings, Schedulers
from gpudeck.errors import CommandError
from tests.fakes.hub import wait_for

AT = 1_763_640_000.0


def cluster(seed: int = 1, spans: str = "1-4+7-16") -> SimulationOptions:
    return parse_options(f"node=n001,gpus=8,seed={seed},cluster={spans}")


def test_what_is_allocated_is_what_the_jobs_hold() -> None:
    of = cluster(random.randint(1, 10_000))
    at = AT + random.uniform(0, 10 * 86_400)
    found = slurm_now(of, at)
    assert [node.name for node in found.nodes] == list(of.cluster)
    assert not {"n005", "n006"} & set(of.cluster), "the pool's"
    held = {node.name: 0 for node in found.nodes}
    for job in found.jobs:
        assert job.gpus == sum(share.gpus or 0 for share in job.nodes) or not job.holds_gpus
        for share in job.nodes:
            held[share.node] += share.gpus or 0
    assert held == {node.name: node.allocated for node in found.nodes}
    assert all(count <= 8 for count in held.values())
    assert {job.state for job in found.jobs} == {"RUNNING", "PENDING"}


@pytest.mark.parametrize("spans", ["1-4+7-8", "1-4+7-16"])
def test_some_hold_gpus_on_which_nobody_runs(spans: str) -> None:
    of = cluster(spans=spans)
    idle = [job for job in slurm_now(of, AT).jobs if job.name == "interactive"]
    assert idle
    for job in idle:
        [share] = job.nodes
        busy = sum(len(each.gpus) for each in jobs_at(1, share.node, tuple("01234567"), AT))
        assert busy < 8
        assert share.node != "n001"
    again = [job for job in slurm_now(of, AT + 15).jobs if job.name == "interactive"]
    assert [job.id for job in again] == [job.id for job in idle], "it stays for hours"


def test_pods_are_those_that_the_nodes_show() -> None:
    found = kubernetes_now(cluster(), AT)
    held = {node.name: node.allocated for node in found.nodes}
    for pod in found.pods:
        if pod.node is not None:
            held[pod.node] = (held[pod.node] or 0) - (pod.gpus or 0)
    assert set(held.values()) == {0}
    assert "made up" in found.server


def test_only_who_is_told_of_a_cluster_speaks_for_it() -> None:
    assert parse_options("gpus=8").cluster == ()
    for wrong in ("1", "a-b", "1-2,x", "1-2+"):
        with pytest.raises(CommandError):
            print(parse_options(f"cluster={wrong}").cluster)


def grown(found: list[object], more: Iterable[object]) -> list[object]:
    found.extend(more)
    return found


def test_it_is_read_like_a_real_one_and_nothing_can_be_asked_of_it() -> None:
    of = cluster()
    schedulers = Schedulers(made_up=MadeUpSchedulers(
        lambda: slurm_now(of, AT), lambda: kubernetes_now(of, AT)))
    assert (schedulers.slurm, schedulers.kubernetes) == (None, None)
    readings, found = SchedulerReadings(schedulers, lambda: None), list[object]()
    try:
        wait_for(lambda: len(grown(found, readings.step(1.0, True))) == 2, 30)
    finally:
        readings.close()
    assert {type(each).__name__ for each in found} == {"SlurmNow", "KubernetesNow"}

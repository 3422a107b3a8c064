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
    options = cluster(random.randint(1, 10_000))
    at = AT + random.uniform(0, 10 * 86_400)
    slurm = slurm_now(options, at)
    assert [node.name for node in slurm.nodes] == list(options.cluster)
    assert not {"n005", "n006"} & set(options.cluster), "the pool's"
    gpus_by_node = {node.name: 0 for node in slurm.nodes}
    for job in slurm.jobs:
        assert job.gpus == sum(share.gpus or 0 for share in job.nodes) or not job.holds_gpus
        for share in job.nodes:
            gpus_by_node[share.node] += share.gpus or 0
    assert gpus_by_node == {node.name: node.allocated for node in slurm.nodes}
    assert all(count <= 8 for count in gpus_by_node.values())
    assert {job.state for job in slurm.jobs} == {"RUNNING", "PENDING"}


@pytest.mark.parametrize("spans", ["1-4+7-8", "1-4+7-16"])
def test_some_hold_gpus_on_which_nobody_runs(spans: str) -> None:
    options = cluster(spans=spans)
    idle = [job for job in slurm_now(options, AT).jobs if job.name == "interactive"]
    assert idle
    for job in idle:
        [share] = job.nodes
        busy = sum(len(running.gpus) for running in jobs_at(1, share.node, tuple("01234567"), AT))
        assert busy < 8
        assert share.node != "n001"
    later = [job for job in slurm_now(options, AT + 15).jobs if job.name == "interactive"]
    assert [job.id for job in later] == [job.id for job in idle], "it stays for hours"


def test_pods_are_those_that_the_nodes_show() -> None:
    kubernetes = kubernetes_now(cluster(), AT)
    gpus_by_node = {node.name: node.allocated for node in kubernetes.nodes}
    for pod in kubernetes.pods:
        if pod.node is not None:
            gpus_by_node[pod.node] = (gpus_by_node[pod.node] or 0) - (pod.gpus or 0)
    assert set(gpus_by_node.values()) == {0}
    assert "made up" in kubernetes.server


def test_only_who_is_told_of_a_cluster_speaks_for_it() -> None:
    assert parse_options("gpus=8").cluster == ()
    for wrong in ("1", "a-b", "1-2,x", "1-2+"):
        with pytest.raises(CommandError):
            print(parse_options(f"cluster={wrong}").cluster)


def extend(messages: list[object], more: Iterable[object]) -> list[object]:
    messages.extend(more)
    return messages


def test_it_is_read_like_a_real_one_and_nothing_can_be_asked_of_it() -> None:
    options = cluster()
    schedulers = Schedulers(made_up=MadeUpSchedulers(
        lambda: slurm_now(options, AT), lambda: kubernetes_now(options, AT)))
    assert (schedulers.slurm, schedulers.kubernetes) == (None, None)
    readings, messages = SchedulerReadings(schedulers, lambda: None), list[object]()
    try:
        wait_for(lambda: len(extend(messages, readings.step(1.0, True))) == 2, 30)
    finally:
        readings.close()
    assert {type(message).__name__ for message in messages} == {"SlurmNow", "KubernetesNow"}

"""Debian's own slurmctld and slurmd: what is read of them, and acts by Slurm's own verbs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from agent.slurm.programs import SlurmPrograms
from gpudeck.slurm import (
    SlurmCancel,
    SlurmContinue,
    SlurmDrain,
    SlurmHold,
    SlurmJob,
    SlurmRelease,
    SlurmRequeue,
    SlurmResume,
    SlurmSuspend,
)
from tests.fakes.children import Children
from tests.fakes.hub import wait_for
from tests.integration.limits_bench import Bench, codes, done, shown
from tests.slurm_cluster import NOBODY, NODE, SlurmCluster, a_cluster

ACTIONS = ["slurm_cancel", "slurm_hold", "slurm_release", "slurm_requeue", "slurm_suspend",
           "slurm_continue", "slurm_drain", "slurm_resume"]
EVIL = "x\nJobId=7 UserId=root(0) JobState=COMPLETED <b>\u202e"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with a_cluster() as made:
        yield made


@pytest.fixture
def slurm(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    monkeypatch.setenv("SLURM_CONF", cluster.conf)
    return cluster


@pytest.fixture
def bench(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Bench]:
    children = Children()
    yield Bench(tmp_path, children)
    children.close()


def job(number: int) -> SlurmJob:
    [found] = [each for each in SlurmPrograms().jobs() if each.number == number]
    return found


R = TypeVar("R", SlurmCancel, SlurmHold, SlurmRelease, SlurmRequeue, SlurmSuspend, SlurmContinue)


def of(kind: type[R], number: int) -> R:
    found = job(number)
    return kind(found.id, int(found.submitted_at))


def test_jobs_are_read_as_they_are(slurm: SlurmCluster) -> None:
    held = slurm.submit("--gres=gpu:2", "-J", EVIL, uid=NOBODY)
    waiting = slurm.submit("--gpus=1", "--hold", "-a", "1-3%1", "-t", "60")
    none = slurm.submit()
    wait_for(lambda: job(held).state == job(none).state == "RUNNING")
    found = job(held)
    assert (found.user, found.gpus, found.partition) == ("nobody", 2, "main")
    assert [(each.node, each.gpus) for each in found.nodes] == [(NODE, 2)]
    assert found.name.startswith("x JobId=7")
    assert found.name.isprintable()
    assert (job(waiting).id, job(waiting).gpus, job(waiting).limit_s) == (
        f"{waiting}_[1-3]", 1, 3_600)
    assert job(waiting).is_held
    assert not job(waiting).nodes
    assert job(none).gpus == 0
    [node] = SlurmPrograms().nodes()
    assert (node.name, node.gpus, node.allocated) == (NODE, 8, 2)
    for each in (held, waiting, none):
        slurm.run("scancel", str(each))


def test_a_job_is_cancelled_and_read_back(slurm: SlurmCluster, bench: Bench) -> None:
    victim, bystander = (slurm.submit("--gres=gpu:1") for _ in range(2))
    wait_for(lambda: {slurm.state(victim), slurm.state(bystander)} == {"RUNNING"})
    asked = of(SlurmCancel, victim)
    with bench.here(actions=ACTIONS) as here:
        look = shown(here, asked)
        assert (look.owner, look.refusals) == ("root", ())
        assert look.changes[0].before.startswith("RUNNING")
        assert slurm.state(victim) == "RUNNING", "looking changes nothing"
        reply = here.act(look, "a test", "ada")
        assert (reply.state, reply.verified and reply.verified.in_force) == ("done", True)
        wait_for(lambda: slurm.state(victim) == "CANCELLED")
        assert slurm.state(bystander) == "RUNNING"
        assert codes(here, asked) == ["gone"], "scancel itself would say nothing"
        again = SlurmCancel(str(bystander), int(job(bystander).submitted_at) - 1)
        assert codes(here, again) == ["gone"], "a number that is another job's by now"
    slurm.run("scancel", str(bystander))


def test_hold_release_and_requeue(slurm: SlurmCluster, bench: Bench) -> None:
    blocking = slurm.submit("--gres=gpu:8")
    wait_for(lambda: slurm.state(blocking) == "RUNNING")
    waiting = slurm.submit("--gres=gpu:8")
    with bench.here(actions=ACTIONS) as here:
        assert codes(here, of(SlurmRelease, waiting)) == ["setting"]
        assert codes(here, of(SlurmHold, blocking)) == ["setting"], "Slurm would say nothing"
        assert done(here, of(SlurmHold, waiting)).state == "done"
        assert job(waiting).is_held
        assert done(here, of(SlurmRelease, waiting)).state == "done"
        assert not job(waiting).is_held
        slurm.run("scancel", str(waiting))
        assert done(here, of(SlurmRequeue, blocking)).state == "done"
    wait_for(lambda: slurm.state(blocking) == "PENDING")
    slurm.run("scancel", str(blocking))


def test_a_job_is_suspended_and_continues(slurm: SlurmCluster, bench: Bench) -> None:
    running = slurm.submit("--gres=gpu:1")
    wait_for(lambda: slurm.state(running) == "RUNNING")
    with bench.here(actions=ACTIONS) as here:
        assert codes(here, of(SlurmContinue, running)) == ["setting"]
        assert done(here, of(SlurmSuspend, running)).state == "done"
        assert (job(running).state, job(running).gpus) == ("SUSPENDED", 1), "it keeps its GPU"
        assert done(here, of(SlurmContinue, running)).state == "done"
    assert slurm.state(running) == "RUNNING"
    slurm.run("scancel", str(running))


def test_a_node_drains_and_returns(slurm: SlurmCluster, bench: Bench) -> None:
    with bench.here(actions=ACTIONS) as here:
        assert codes(here, SlurmResume(NODE)) == ["setting"]
        assert codes(here, SlurmDrain("gpu99")) == ["gone"]
        assert done(here, SlurmDrain(NODE), 'fans ] "loud" \n').state == "done"
        assert "DRAIN" in slurm.node_state()
        [node] = SlurmPrograms().nodes()
        assert node.reason.startswith("gpudeck, ada: fans")
        assert codes(here, SlurmDrain(NODE)) == ["setting"]
        assert done(here, SlurmResume(NODE)).state == "done"
    assert "DRAIN" not in slurm.node_state()


def test_without_credentials_it_is_refused_in_words(
        slurm: SlurmCluster, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    running = slurm.submit("--gres=gpu:1")
    wait_for(lambda: slurm.state(running) == "RUNNING")
    asked = of(SlurmCancel, running)
    with bench.here() as here:
        assert codes(here, asked) == ["type"], "no ceiling permits it that does not name it"
    with bench.here(actions=ACTIONS) as here:
        # The agent as an account that Slurm gives nothing; its programs say so themselves.
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
        [refusal] = shown(here, asked).refusals
        monkeypatch.undo()
        assert refusal.code == "permission"
        assert "account nobody " in refusal.sentence
        assert "AdminLevel=Operator" in refusal.sentence
        monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
        assert codes(here, asked) == ["unreadable"]
    assert slurm.state(running) == "RUNNING"
    slurm.run("scancel", str(running))

"""Debian's own slurmctld and slurmd: what is read of them, and acts by Slurm's own verbs."""

import ast
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeVar

import pytest

from agent.actions.signals import ProcessHandles
from agent.slurm.programs import SlurmPrograms
from agent.tasks.boot_id import boot_id
from agent.tasks.managers import SOME_SLURM_JOB
from gpudeck.contract.slurm import (
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
from gpudeck.errors import ExitCode
from tests.fakes.children import Children, a_ceiling
from tests.fakes.hub import wait_for
from tests.fakes.nvml import FakeNvml, start_ticks
from tests.integration.limits_bench import Bench, codes, done, shown
from tests.slurm_cluster import NOBODY, NODE, SlurmCluster, a_cluster
from tests.terminals import run

ACTIONS = ["slurm_cancel", "slurm_hold", "slurm_release", "slurm_requeue", "slurm_suspend",
           "slurm_continue", "slurm_drain", "slurm_resume"]
EVIL = "x\nJobId=7 UserId=root(0) JobState=COMPLETED <b>\u202e"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with a_cluster() as cluster:
        yield cluster


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
    [match] = [row for row in SlurmPrograms().jobs() if row.number == number]
    return match


R = TypeVar("R", SlurmCancel, SlurmHold, SlurmRelease, SlurmRequeue, SlurmSuspend, SlurmContinue)


def of(kind: type[R], number: int) -> R:
    slurm_job = job(number)
    return kind(slurm_job.id, int(slurm_job.submitted_at))


def test_jobs_are_read_as_they_are(slurm: SlurmCluster) -> None:
    running = slurm.submit("--gres=gpu:2", "-J", EVIL, uid=NOBODY)
    waiting = slurm.submit("--gpus=1", "--hold", "-a", "1-3%1", "-t", "60")
    none = slurm.submit()
    wait_for(lambda: job(running).state == job(none).state == "RUNNING")
    running_job = job(running)
    assert (running_job.user, running_job.gpus, running_job.partition) == ("nobody", 2, "main")
    assert [(allocation.node, allocation.gpus) for allocation in running_job.nodes] == [(NODE, 2)]
    assert running_job.name.startswith("x JobId=7")
    assert running_job.name.isprintable()
    assert (job(waiting).id, job(waiting).gpus, job(waiting).limit_s) == (
        f"{waiting}_[1-3]", 1, 3_600)
    assert job(waiting).is_held
    assert not job(waiting).nodes
    assert job(none).gpus == 0
    [node] = SlurmPrograms().nodes()
    assert (node.name, node.gpus, node.allocated) == (NODE, 8, 2)
    for number in (running, waiting, none):
        slurm.run("scancel", str(number))


def test_a_job_is_cancelled_and_read_back(slurm: SlurmCluster, bench: Bench) -> None:
    victim, bystander = (slurm.submit("--gres=gpu:1") for _ in range(2))
    wait_for(lambda: {slurm.state(victim), slurm.state(bystander)} == {"RUNNING"})
    cancel = of(SlurmCancel, victim)
    with bench.here(actions=ACTIONS) as here:
        look = shown(here, cancel)
        assert (look.owner, look.refusals) == ("root", ())
        assert look.changes[0].before.startswith("RUNNING")
        assert slurm.state(victim) == "RUNNING", "looking changes nothing"
        reply = here.act(look, "a test", "ada")
        assert (reply.state, reply.verified and reply.verified.in_force) == ("done", True)
        wait_for(lambda: slurm.state(victim) == "CANCELLED")
        assert slurm.state(bystander) == "RUNNING"
        assert codes(here, cancel) == ["gone"], "scancel itself would say nothing"
        stale = SlurmCancel(str(bystander), int(job(bystander).submitted_at) - 1)
        assert codes(here, stale) == ["gone"], "a number that is another job's by now"
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
    cancel = of(SlurmCancel, running)
    with bench.here() as here:
        assert codes(here, cancel) == ["type"], "no ceiling permits it that does not name it"
    with bench.here(actions=ACTIONS) as here:
        # The agent as an account that Slurm gives nothing; its programs say so themselves.
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
        [refusal] = shown(here, cancel).refusals
        monkeypatch.undo()
        assert refusal.code == "permission"
        assert "account nobody " in refusal.sentence
        assert "AdminLevel=Operator" in refusal.sentence
        monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
        assert codes(here, cancel) == ["unreadable"]
    assert slurm.state(running) == "RUNNING"
    slurm.run("scancel", str(running))


def pids_of(slurm: SlurmCluster, number: int) -> list[int]:
    """Return the pids that Slurm lists: of the job's steps, without those that watch over them."""
    # At first the node does not know of a job that the controller says is running.
    lines = slurm.run("scontrol", "listpids", str(number), check=False).splitlines()[1:]
    return [int(line.split()[0]) for line in lines]


def manager_seen(pid: int, uid: int = 0) -> str | None:
    """Return what the judge of actions takes for its manager, as an agent of this account."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups(())
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        with ProcessHandles() as handles:
            facts = handles.facts(pid)
        os.write(into, b"gone" if facts is None else repr(facts.manager).encode())
        os._exit(0)
    os.close(into)
    os.waitpid(child, 0)
    with open(out, "rb") as file:
        manager: str | None = ast.literal_eval(file.read().decode())
    return manager


@pytest.mark.parametrize("tracks_by", ["linuxproc", "cgroup"])
def test_a_job_is_not_ended_behind_slurms_back(
        tracks_by: Literal["linuxproc", "cgroup"], slurm: SlurmCluster, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Try it with cgroups of Slurm and without."""
    if tracks_by == "linuxproc":
        refused_as_slurms(slurm, tmp_path)
        return
    with a_cluster(tracks_by) as tracked:
        monkeypatch.setenv("SLURM_CONF", tracked.conf)
        refused_as_slurms(tracked, tmp_path)


def refused_as_slurms(slurm: SlurmCluster, folder: Path) -> None:
    number = slurm.submit("--gres=gpu:1", uid=NOBODY, script="exec sleep 600")
    wait_for(lambda: slurm.state(number) == "RUNNING" and pids_of(slurm, number))
    pid = pids_of(slurm, number)[-1]
    nvml = FakeNvml(folder, gpus=1)
    nvml.gpus[0].process(pid, 2**30)
    nvml.save()
    here = ["--backend", "nvml", "--data", str(folder), "--ceiling", str(a_ceiling(folder))]
    task = f"{boot_id()[:8]}-{pid}-{start_ticks(pid)}"
    end = run("end", task, "--reason", "test", *here, answers=["y"], env=nvml.env())
    assert end.code == ExitCode.REFUSED, end
    assert f"it belongs to slurm job {number}" in end.out
    assert f"use `scancel {number}`" in end.out
    assert slurm.state(number) == "RUNNING"
    slurm.run("scancel", str(number))


def test_what_belongs_to_a_job_is_seen_by_every_account(slurm: SlurmCluster) -> None:
    """A process of the job's user may be the job's, without the right to read environments."""
    service, other = 54_322, 54_323
    number = slurm.submit("--gres=gpu:1", uid=NOBODY, script="env -i sleep 600")
    wait_for(lambda: slurm.state(number) == "RUNNING" and len(pids_of(slurm, number)) > 1)
    beside = [subprocess.Popen(["sleep", "600"], user=uid, env=env) for uid, env in (
        (NOBODY, {}), (other, {}), (other, {"SLURM_JOB_ID": "77"}))]
    try:
        for uid in (0, service):
            assert manager_seen(pids_of(slurm, number)[-1], uid) == f"slurm job {number}", (
                "it has hidden its variables, and is below Slurm's own process")
        nobodys, foreign, carries = (process.pid for process in beside)
        assert [manager_seen(pid) for pid in (nobodys, foreign, carries)] == [
            None, None, "slurm job 77"], "root reads their environments"
        assert [manager_seen(pid, service) for pid in (nobodys, foreign)] == [SOME_SLURM_JOB, None]
    finally:
        for process in beside:
            process.kill()
            process.wait()
        slurm.run("scancel", str(number))

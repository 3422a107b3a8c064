"""A lease ends when its work has: whoever gives it back, and whatever the work did to its
environment. Real commands, and a real socket."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.pool import views
from agent.pool.lock import LeasedProcess
from agent.pool.signs import ProcessSigns
from gpudeck.contract.pool_link import LeaseOffer, PoolPlan
from gpudeck.contract.pool_messages import Leased
from gpudeck.errors import ExitCode
from tests.fakes.hub import wait_for
from tests.integration.pools import ROOT, PoolUnderTest

SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
# A daemon in a session of its own, without any environment.
LEAVES = ("env -i setsid sleep 600 >/dev/null 2>&1 & echo $!; exec ")
# Moves what it is told to into a group of the name it is told, as the user's systemd does.
BUSCTL = """#!/bin/sh
echo "$@" >> "$BUSCTL_LOG"
for word; do case $word in gpudeck-*.scope) unit=$word;; esac; done
while [ "$1" != PIDs ]; do shift; done
mkdir -p "$GROUPS_OF_TEST/$unit" && echo "$4" > "$GROUPS_OF_TEST/$unit/cgroup.procs"
"""
GROUPS = Path("/sys/fs/cgroup/unified")


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolUnderTest]:
    pool = PoolUnderTest(tmp_path)
    yield pool
    pool.close()


def number(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def look_through_processes(pool: PoolUnderTest) -> None:
    """Look through all processes now, as the pool does each few seconds."""
    scan = pool.leases.marks.scan()
    with pool.service.lock:
        pool.leases.marks.take(scan)


def answer(pool: PoolUnderTest, *words: str) -> "subprocess.CompletedProcess[str]":
    process = pool.start(*words)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.mark.parametrize("cleared", [(), ("env", "-i")])
def test_it_is_not_given_back_under_its_command(pool: PoolUnderTest, cleared: tuple[str, ...]
                                                ) -> None:
    run = pool.start("run", "--gpus", "2", "--", *cleared, sys.executable, "-c", SLEEPS)
    child = number(run)
    [lease_id] = pool.leases.all
    back = answer(pool, "claim", "--give-back", lease_id)
    assert (back.returncode, back.stdout) == (ExitCode.NOT_EFFECTIVE, ""), back.stderr
    assert f"process {child} still runs on it; it ends with that" in back.stderr
    assert answer(pool, "run", "--no-wait", "--", "true").returncode == ExitCode.REFUSED
    os.kill(child, signal.SIGKILL)
    assert run.wait(60) == 128 + signal.SIGKILL
    wait_for(lambda: not pool.leases.all, 30)
    assert [lease.exit_status for lease in pool.leases.ended_leases] == [128 + signal.SIGKILL]


def test_what_the_command_leaves_keeps_it_without_any_environment(pool: PoolUnderTest) -> None:
    run = pool.start("run", "--", "sh", "-c", LEAVES + "sleep 0.1")
    left_pid = number(run)
    assert run.wait(60) == 0
    try:
        [lease] = pool.leases.all.values()
        assert left_pid in {pid for pid, _ in lease.left}, "an agent that restarts knows it, too"
        for _ in range(2):
            look_through_processes(pool)
            pool.service.step()
        assert pool.leases.all.keys() == {lease.id}
        back = answer(pool, "claim", "--give-back", lease.id)
        assert (back.returncode, "are still there" in back.stderr) == (11, True), back.stderr
    finally:
        os.kill(left_pid, signal.SIGKILL)
    wait_for(lambda: not pool.leases.all, 30)


def test_so_it_does_when_its_run_was_killed(pool: PoolUnderTest) -> None:
    run = pool.start("run", "--", "sh", "-c", LEAVES + "sleep 600")
    left_pid = number(run)
    try:
        look_through_processes(pool)  # as it does each few seconds
        [lease] = pool.leases.all.values()
        assert lease.process is not None
        run.kill()
        run.wait()
        os.kill(lease.process.pid, signal.SIGKILL)
        wait_for(lambda: pool.leases.all[lease.id].left, 30)
        look_through_processes(pool)
        pool.service.step()
        assert pool.leases.all.keys() == {lease.id}
    finally:
        os.kill(left_pid, signal.SIGKILL)
    wait_for(lambda: not pool.leases.all, 30)


def test_so_it_does_when_processes_were_looked_through_just_before_it_began(
        pool: PoolUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill its run and its command seconds after a look that found nothing of the lease."""
    def process_of(pidfd: int, uid: int) -> LeasedProcess | None:
        look_through_processes(pool)
        return ProcessSigns().process_of(pidfd, uid)

    monkeypatch.setattr(pool.leases.processes, "process_of", process_of)
    monkeypatch.setattr("agent.pool.marks.SCAN_EVERY_S", 1e9)  # however slow the machine is
    run = pool.start("run", "--", "sh", "-c", "setsid sleep 99 >/dev/null & echo $!; exec sleep 99")
    left_pid = number(run)
    try:
        [lease] = pool.leases.all.values()
        command = lease.process
        assert command is not None
        run.kill()
        run.wait()
        os.kill(command.pid, signal.SIGKILL)
        wait_for(lambda: not pool.leases.processes.is_alive(command))
        pool.service.step()
        assert pool.leases.all.keys() == {lease.id}
        look_through_processes(pool)
        pool.service.step()
        assert {pid for pid, _ in pool.leases.all[lease.id].left} == {left_pid}
    finally:
        os.kill(left_pid, signal.SIGKILL)

    def has_ended() -> bool:
        look_through_processes(pool)  # nobody else does here, and it may die after the first look
        return not pool.leases.all

    wait_for(has_ended, 30)


def test_what_its_shell_had_started_before_is_not_its(pool: PoolUnderTest) -> None:
    """A shell that becomes `gpudeck run` has children from before."""
    shell = subprocess.Popen(
        ["sh", "-c", f"sleep 600 >/dev/null & echo $!; sleep 0.2; "
         f"exec {sys.executable} -m gpudeck.cli.main run -- true"],
        cwd=ROOT, env=pool.env, text=True, stdout=subprocess.PIPE)
    other = number(shell)
    try:
        assert shell.wait(60) == 0
        assert not pool.leases.all
    finally:
        os.kill(other, signal.SIGKILL)
        shell.communicate()


@pytest.fixture
def scopes(pool: PoolUnderTest, tmp_path: Path) -> Path:
    """The folder where the user's systemd keeps its scopes."""
    if not os.access(GROUPS, os.W_OK):
        pytest.skip("no group of processes can be made here")
    groups = GROUPS / f"test{os.getpid()}"
    (tmp_path / "busctl").write_text(BUSCTL)
    (tmp_path / "busctl").chmod(0o755)
    (tmp_path / "bus").touch()
    pool.env |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(tmp_path),
                 "GROUPS_OF_TEST": str(groups), "BUSCTL_LOG": str(tmp_path / "busctl.log")}
    return groups


def test_in_a_scope_nothing_is_lost_even_if_its_run_is_killed_at_once(
        pool: PoolUnderTest, scopes: Path, tmp_path: Path) -> None:
    run = pool.start("run", "--", "sh", "-c", LEAVES + "sleep 600")
    left_pid = number(run)
    [lease] = pool.leases.all.values()
    scope = scopes / f"gpudeck-{lease.id}.scope"
    try:
        assert lease.process is not None
        assert {left_pid, lease.process.pid} <= {
            int(pid) for pid in (scope / "cgroup.procs").read_text().split()}
        log = (tmp_path / "busctl.log").read_text()
        assert log.startswith("--user --quiet --timeout=2 call org.freedesktop.systemd1 ")
        run.kill()
        run.wait()
        os.kill(lease.process.pid, signal.SIGKILL)
        time.sleep(0.1)
        look_through_processes(pool)
        pool.service.step()
        assert pool.leases.all.keys() == {lease.id}
    finally:
        os.kill(left_pid, signal.SIGKILL)
        wait_for(lambda: not (scope / "cgroup.procs").read_text(), 30)
        scope.rmdir()
        scopes.rmdir()
    wait_for(lambda: not pool.leases.all, 30)


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/no/such", 127),
                                               ("./data", 126)])
def test_a_program_that_is_not_there_is_said_before_anybody_waits(
        pool: PoolUnderTest, tmp_path: Path, program: str, code: int) -> None:
    (tmp_path / "data").write_text("no program")
    program = program.replace("./", f"{tmp_path}/")
    busy = pool.start("run", "--gpus", "2", "--", sys.executable, "-c", SLEEPS)
    number(busy)
    run = answer(pool, "run", "--", program)
    assert (run.returncode, f"cannot run '{program}'" in run.stderr) == (code, True)
    assert not pool.service.waiting.all


@pytest.mark.parametrize(("words", "text"), [
    (("run", "--for", "10s", "--", "true"), "--for: '10s': from 1 min to 365 d"),
    (("claim", "--for", "99999d"), "--for: '99999d': from 1 min to 365 d"),
    (("claim", "--extend", "x", "99d"), "--extend: '99d': from 1 s to 30 d"),
    (("run", "--wait", "9999d", "--", "true"), "--wait: '9999d': from 0 s to 365 d"),
])
def test_a_span_out_of_bounds_names_its_flag(pool: PoolUnderTest, words: tuple[str, ...], text: str
                                             ) -> None:
    run = answer(pool, *words)
    assert (run.returncode, text in run.stderr) == (ExitCode.USAGE, True), run.stderr


@pytest.mark.parametrize("flags", [("--gpus", "9"), ("--gpsu", "1"), ("--for", "1s")])
def test_a_script_whose_claim_is_refused_ends_or_sees_no_gpu(pool: PoolUnderTest,
                                                             flags: tuple[str, ...]) -> None:
    line = f'eval "$({sys.executable} -m gpudeck.cli.main claim {" ".join(flags)} --export)"'
    script = f'{line}; echo "on $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES"'
    env = pool.env | {"CUDA_VISIBLE_DEVICES": "0,1"}
    for shell, out, code in (("-ec", "", 1), ("-c", "on -1 -1\n", 0)):
        run = subprocess.run(["bash", shell, script], cwd=ROOT, env=env, text=True,
                             capture_output=True)
        assert (run.stdout, run.returncode) == (out, code), run.stderr
    guarded = subprocess.run(["bash", "-c", script.replace(')"; ', ')" || exit; ')], cwd=ROOT,
                             env=env, text=True, capture_output=True)
    assert (guarded.stdout, guarded.returncode) == ("", 1)


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_stopped_waiter_gets_nothing_and_keeps_its_place(pool: PoolUnderTest) -> None:
    busy = pool.start("run", "--gpus", "2", "--", sys.executable, "-c", SLEEPS)
    child = number(busy)
    first = pool.start("run", "--gpus", "2", "--", sys.executable, "-c", SLEEPS)
    [claim_id] = wait_for(lambda: list(pool.service.waiting.all), 30)
    first.send_signal(signal.SIGSTOP)
    wait_for(lambda: stopped(first.pid) and pool.service.waiting.paused, 30)
    second = pool.start("run", "--", sys.executable, "-c", SLEEPS)
    wait_for(lambda: len(pool.service.waiting.all) == 2, 30)
    assert "it is stopped; it keeps its place" in answer(pool, "pool").stdout
    os.kill(child, signal.SIGKILL)
    os.kill(number(second), signal.SIGKILL)  # it went before it
    second.wait(60)
    waits = pool.service.waiting.all[claim_id]
    time.sleep(2.0)
    assert not pool.leases.all
    first.send_signal(signal.SIGCONT)
    assert number(first)
    assert pool.leases.all[claim_id].claim == waits.claim


@pytest.mark.parametrize("is_hub", [False, True])
def test_one_who_was_stopped_as_its_gpus_came_waits_again(
        pool: PoolUnderTest, monkeypatch: pytest.MonkeyPatch, is_hub: bool) -> None:
    """Give GPUs that nobody has fetched to others, and the claim its place back."""
    monkeypatch.setattr("agent.pool.lock.BIND_WITHIN_S", 0.5)
    if is_hub:
        pool.service.receive(PoolPlan())
    lends, stops = views.leased, [not is_hub]

    def stop_first(*arguments: Any) -> Leased:
        """Stop the run, so that it cannot have bound anything by then."""
        if stops.pop():
            run.send_signal(signal.SIGSTOP)
        stops.append(False)
        return lends(*arguments)

    monkeypatch.setattr(views, "leased", stop_first)
    run = pool.start("run", "--gpus", "2", "--", sys.executable, "-c", SLEEPS)
    is_stopped, pool.leases.processes = pool.leases.processes, NeverStopped()
    if is_hub:
        [claim_id] = wait_for(lambda: list(pool.service.waiting.all), 30)
        run.send_signal(signal.SIGSTOP)
        wait_for(lambda: stopped(run.pid), 30)
        pool.service.receive(PoolPlan((LeaseOffer(claim_id, ("GPU-0", "GPU-1")),)))
        submitted_at = pool.leases.all[claim_id].claim.submitted_at
    else:
        [lease] = wait_for(lambda: list(pool.leases.all.values()), 30)
        wait_for(lambda: stopped(run.pid), 30)
        claim_id, submitted_at = lease.id, lease.claim.submitted_at
    pool.leases.processes = is_stopped
    wait_for(lambda: claim_id in pool.service.waiting.all, 30)
    assert claim_id not in pool.leases.all
    assert pool.service.waiting.all[claim_id].claim.submitted_at == submitted_at
    run.send_signal(signal.SIGCONT)
    if is_hub:
        wait_for(lambda: not pool.service.waiting.paused, 30)
        pool.service.receive(PoolPlan((LeaseOffer(claim_id, ("GPU-0", "GPU-1")),)))
    assert number(run)
    assert pool.leases.all[claim_id].state == "active"


class NeverStopped(ProcessSigns):
    def is_stopped(self, pid: int) -> bool:
        return False

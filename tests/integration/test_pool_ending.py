"""GPUs that are taken back from a run which has nothing on them: it ends its command, all of it and
nothing else. Real processes, and a real socket."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.pool.gpus import PoolSnapshot
from agent.tasks.seen import GpuTask
from gpudeck.contract.pool_link import PoolPlan
from gpudeck.contract.wire import Task
from tests.fakes.hub import wait_for
from tests.fakes.people import QuietPeople
from tests.integration.pools import ROOT, WAITS, PoolUnderTest

# Names itself and a daemon of its own, in a session of its own; neither heeds SIGTERM.
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
reads, writes = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(writes, str(os.getpid()).encode())
        time.sleep(600)
    os._exit(0)
print(os.getpid(), int(os.read(reads, 20)), flush=True)
while True:
    time.sleep(600)
"""
HEEDLESS = ("import os, signal\n"
            "signal.signal(signal.SIGTERM, lambda *_: print('told', flush=True))\n"
            "print(os.getpid(), flush=True)\nwhile True: signal.pause()")
# Saves what it has, and ends well.
SAVES = ("import os, signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
         "print(os.environ['GPUDECK_LEASE'], flush=True); signal.pause()")
TAKEN = "bob has asked for 2 GPUs with priority 4"


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolUnderTest]:
    pool = PoolUnderTest(tmp_path)
    yield pool
    pool.close()


def next_words(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def preempt(pool: PoolUnderTest, *lease_ids: str, grace_s: float) -> None:
    pool.service.receive(PoolPlan(preempt=dict.fromkeys(lease_ids, TAKEN), grace_s=grace_s))


def expire_grace(pool: PoolUnderTest, lease_id: str) -> None:
    with pool.service.lock:
        lease = pool.leases.all[lease_id]
        pool.leases.put(replace(lease, kill_at=pool.service.clock.now()), {})


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def audit(pool: PoolUnderTest) -> list[str]:
    return [record["signal"] for record in pool.records() if record.get("pool") == "ending"]


def test_it_ends_with_all_that_it_started_and_nothing_else(pool: PoolUnderTest) -> None:
    run = pool.start("run", "--", sys.executable, "-c", STUBBORN)
    child, daemon = map(int, next_words(run))
    [lease_id] = pool.leases.all
    bystander = pool.start("run", "--", sys.executable, "-c", WAITS)
    assert next_words(bystander) == ["on"]
    preempt(pool, lease_id, grace_s=3 * 3_600.0)
    assert next_words(run) == ["told"]
    assert is_there(child), "it has its grace"
    assert audit(pool) == ["term"]
    expire_grace(pool, lease_id)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGKILL
    assert f"these GPUs are taken back: {TAKEN}" in err
    assert "ended now (SIGTERM), and killed in 3 h" in err
    assert not is_there(child)
    assert not is_there(daemon), "what it left behind goes with it"
    assert bystander.poll() is None
    assert lease_id not in pool.leases.all
    assert [lease.state for lease in pool.leases.ended_leases] == ["preempted"]
    assert audit(pool) == ["term", "kill"]


def test_what_saved_its_work_waits_again(pool: PoolUnderTest) -> None:
    run = pool.start("run", "--requeue", "--", sys.executable, "-c", SAVES)
    [first] = next_words(run)
    preempt(pool, first, grace_s=3_600.0)
    wait_for(lambda: pool.service.waiting.all)
    [waiter] = pool.service.waiting.all.values()
    assert waiter.claim.is_again, "the first of its priority"
    pool.service.disconnected()
    [second] = next_words(run)
    assert second != first
    run.terminate()
    assert run.wait(30) == 0


def test_nothing_is_ended_on_a_node_that_is_on_hold(pool: PoolUnderTest) -> None:
    run = pool.start("run", "--", sys.executable, "-c", STUBBORN)
    child, _ = map(int, next_words(run))
    [lease_id] = pool.leases.all
    pool.why_no_end = "on hold"
    preempt(pool, lease_id, grace_s=3_600.0)
    pool.service.step()
    assert audit(pool) == []
    pool.why_no_end = ""
    assert next_words(run) == ["told"]
    pool.why_no_end = "on hold since it was told"
    expire_grace(pool, lease_id)
    pool.service.step()
    assert audit(pool) == ["term"]
    assert is_there(child)
    pool.why_no_end = ""
    assert run.wait(30) == 128 + signal.SIGKILL


def test_it_runs_on_if_its_gpus_are_left_to_it_after_all(pool: PoolUnderTest) -> None:
    run = pool.start("run", "--", sys.executable, "-c", HEEDLESS)
    [child] = map(int, next_words(run))
    [lease_id] = pool.leases.all
    preempt(pool, lease_id, grace_s=3_600.0)
    assert next_words(run) == ["told"]
    preempt(pool, grace_s=3_600.0)
    assert pool.leases.all[lease_id].kill_at is None
    pool.service.step()
    assert is_there(child)
    run.terminate()
    assert next_words(run) == ["told"], "it is forwarded as ever"
    os.kill(child, signal.SIGKILL)
    _, err = run.communicate(timeout=30)
    assert "not taken back after all" in err


def test_what_is_on_a_gpu_is_left_to_the_commands_of_the_hub(pool: PoolUnderTest) -> None:
    run = pool.start("run", "--", sys.executable, "-c", STUBBORN)
    child, _ = map(int, next_words(run))
    [lease] = pool.leases.all.values()
    assert lease.process is not None
    there = pool.service.snapshot
    assert there is not None
    task = Task("t", child, lease.process.start_ticks, None, lease.claim.owner, None,
                uid=lease.uid)
    pool.service.snapshot = PoolSnapshot(
        there.gpus, (GpuTask(task, lease.uuids[0], 2**30, 50.0, None),))
    preempt(pool, lease.id, grace_s=0.0)
    pool.service.step()
    assert audit(pool) == []
    pool.service.snapshot = there  # it has left the GPU
    assert run.wait(30) == 128 + signal.SIGKILL


def test_children_of_the_shell_that_became_the_run_live(pool: PoolUnderTest) -> None:
    shell = subprocess.Popen(
        ["sh", "-c", f"sleep 600 & echo $!; exec {sys.executable} -m gpudeck.cli.main run -- "
         f"{sys.executable} -c \"{WAITS}\""], env=pool.env, cwd=ROOT, text=True,
        stdout=subprocess.PIPE)
    [bystander] = map(int, next_words(shell))
    try:
        assert next_words(shell) == ["on"]
        [lease_id] = pool.leases.all
        preempt(pool, lease_id, grace_s=0.0)
        assert shell.wait(30) == 128 + signal.SIGTERM
        assert is_there(bystander)
    finally:
        os.kill(bystander, signal.SIGKILL)
        shell.stdout.close()  # type: ignore[union-attr]


def test_a_run_whose_terminal_is_gone_hears_that_its_gpus_are_taken_back(pool: PoolUnderTest
                                                                         ) -> None:
    reads, stderr = os.pipe()
    os.close(reads)
    run = subprocess.Popen(
        [sys.executable, "-m", "gpudeck.cli.main", "run", "--", sys.executable, "-c", SAVES],
        cwd=ROOT, env=pool.env, text=True, stdout=subprocess.PIPE, stderr=stderr)
    os.close(stderr)
    try:
        [lease_id] = next_words(run)
        preempt(pool, lease_id, grace_s=600.0)
        assert run.wait(30) == 0
        wait_for(lambda: not pool.leases.all)
    finally:
        run.kill()
        run.communicate()


PROGRAM = """
from gpudeck.pool.claim import claim
with claim(gpus=1) as lease:
    print(lease.id, flush=True)
    input()
"""


def test_who_holds_a_lease_in_a_program_is_notified_at_their_terminals(pool: PoolUnderTest
                                                                       ) -> None:
    """Take back GPUs of a program that works and reads nothing meanwhile: no signal is recorded."""
    people = pool.service.people
    assert isinstance(people, QuietPeople)
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, env=pool.env, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        [lease_id] = next_words(program)
        preempt(pool, lease_id, grace_s=0.0)
        assert people.at_terminals == [f"lease {lease_id}: its GPUs are taken back: {TAKEN}"]
        with pool.service.lock:
            unused = pool.service.clock.now() - 1e6
            pool.leases.put(replace(pool.leases.all[lease_id], used_at=unused), {})
        wait_for(lambda: len(people.at_terminals) > 1)
        assert "no process has used the GPUs" in people.at_terminals[1]
        assert audit(pool) == []
    finally:
        program.communicate("\n", timeout=60)
    wait_for(lambda: not pool.leases.all)

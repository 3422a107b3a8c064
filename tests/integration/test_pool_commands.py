"""`gpudeck run` by itself: what its command finds, GPUs that are taken from it, or free on another
node. Real commands, and a real socket."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.pool.lock import NodeLease
from gpudeck.contract.pool_link import ClaimStanding, PoolPlan
from gpudeck.contract.pool_messages import LeaseEnded
from gpudeck.errors import ExitCode
from gpudeck.pool.hami import CACHE, LIBRARY_ENV, LOCKS
from tests.fakes.hub import wait_for
from tests.fakes.mps_control import no_daemon_of_others
from tests.integration.pools import PoolUnderTest, connections

# Says who it is and with which lease; a first SIGUSR1 ends it with 3.
WORKS = ("import os, signal, sys; signal.signal(signal.SIGUSR1, lambda *_: os._exit(3)); "
         "print(os.getpid(), os.environ['GPUDECK_LEASE'], flush=True); signal.pause()")
RUN = ("run", "--requeue", "--", sys.executable, "-c", WORKS)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolUnderTest]:
    pool = PoolUnderTest(tmp_path)
    yield pool
    pool.close()


def line(run: "subprocess.Popen[str]") -> tuple[int, str]:
    assert run.stdout is not None
    pid, lease_id = run.stdout.readline().split()
    return int(pid), lease_id


def preempt(pool: PoolUnderTest, lease_id: str) -> NodeLease:
    """End the lease as pre-emption does once the node knows of it."""
    with pool.service.lock:
        lease, user = pool.leases.all[lease_id], pool.service.users[lease_id]
        pool.leases.put(replace(lease, preempted="taken for a claim of higher priority"), {})
        pool.leases.end(pool.leases.all[lease.id], "taken for a claim of higher priority")
        user.send(LeaseEnded("taken for a claim of higher priority", "preempted"))
    return lease


def outcome(run: "subprocess.Popen[str]") -> tuple[int, str]:
    _, err = run.communicate(timeout=60)
    return run.returncode, err


def test_what_was_taken_is_asked_for_again_with_its_age(pool: PoolUnderTest) -> None:
    run = pool.start(*RUN)
    child, first = line(run)
    former = preempt(pool, first)
    assert run.poll() is None, "it waits for its command to end"
    os.kill(child, signal.SIGUSR1)
    child, second = line(run)
    renewed = pool.leases.all[second]
    assert second != first
    assert (renewed.claim.submitted_at, renewed.claim.is_again) == (former.claim.submitted_at, True)
    os.kill(child, signal.SIGUSR1)
    assert outcome(run)[0] == 3, "nobody took it this time"
    assert not pool.leases.all


def test_without_requeue_its_status_comes_back(pool: PoolUnderTest) -> None:
    run = pool.start("run", *RUN[2:])
    child, lease_id = line(run)
    preempt(pool, lease_id)
    os.kill(child, signal.SIGUSR1)
    code, err = outcome(run)
    assert (code, "the lease has ended: taken for a claim of higher priority" in err) == (3, True)


def test_who_ends_it_meanwhile_has_ended_it(pool: PoolUnderTest) -> None:
    run = pool.start(*RUN)
    _, lease_id = line(run)
    preempt(pool, lease_id)
    run.send_signal(signal.SIGTERM)
    assert outcome(run)[0] == 128 + signal.SIGTERM
    assert not pool.service.waiting.all


def test_a_run_takes_over_a_lease_on_which_nothing_runs(pool: PoolUnderTest) -> None:
    claim = pool.start("claim", "--for", "3h")
    outcome(claim)
    [(lease_id, bare)] = pool.leases.all.items()
    flags = pool.start("run", "--lease", lease_id, "--gpus", "1", "--", "true")
    assert outcome(flags) == (2, "gpudeck: a lease already has its GPUs: leave --gpus out\n")
    run = pool.start("run", "--lease", lease_id, *RUN[2:], GPUDECK_LEASE=lease_id)
    child, marked_lease = line(run)
    assert marked_lease == lease_id
    lease = pool.leases.all[lease_id]
    assert (lease.is_run, lease.uuids, lease.until) == (True, bare.uuids, bare.until)
    code, err = outcome(pool.start("run", "--lease", lease_id, "--", "true"))
    assert (code, f"process {child} runs on lease {lease_id} already" in err) == (10, True), err
    os.kill(child, signal.SIGUSR1)
    assert outcome(run)[0] == 3
    wait_for(lambda: not pool.leases.all)  # `run` itself carried its mark


def test_a_bare_lease_that_is_used_is_not_taken_over(pool: PoolUnderTest) -> None:
    outcome(pool.start("claim"))
    [lease_id] = pool.leases.all
    user = subprocess.Popen(["sleep", "60"], env=pool.env | {"GPUDECK_LEASE": lease_id})
    try:
        code, err = outcome(pool.start("run", "--lease", lease_id, "--", "true"))
        assert (code, f"process {user.pid} runs on" in err) == (10, True), err
        assert not pool.leases.all[lease_id].is_run
        shell = pool.start("claim", "--lease", lease_id, "--export")
        assert f"GPUDECK_LEASE={lease_id}" in shell.communicate(timeout=60)[0]
    finally:
        user.kill()
        user.wait()


def test_a_claim_that_waits_is_withdrawn_from_another_terminal(pool: PoolUnderTest) -> None:
    run = pool.start("run", "--gpus", "2", *RUN[2:])
    child, lease_id = line(run)
    waits = pool.start("run", "--", "true")
    wait_for(lambda: pool.service.waiting.all)
    [claim_id] = pool.service.waiting.all
    assert f"({claim_id})" in pool.start("pool").communicate(timeout=60)[0]
    code, err = outcome(pool.start("pool", "cancel", lease_id))
    assert (code, "it holds its GPUs already" in err) == (10, True), err
    assert outcome(pool.start("pool", "cancel", claim_id))[0] == 0
    code, err = outcome(waits)
    assert (code, "it was cancelled by" in err) == (10, True), err
    assert outcome(pool.start("pool", "cancel", claim_id))[0] == 10
    os.kill(child, signal.SIGUSR1)
    assert outcome(run)[0] == 3


def test_a_reservation_without_a_hub_is_shown_and_withdrawn(pool: PoolUnderTest) -> None:
    reservation = pool.start("claim", "--gpus", "2", "--from", "+10min", "--for", "1h")
    out, err = reservation.communicate(timeout=180)
    assert (reservation.returncode, out.startswith("reservation ")) == (0, True), err
    claim_id = out.split()[1].rstrip(":")
    listing, _ = pool.start("pool").communicate(timeout=180)
    assert "reserved for a later time" in listing
    late = pool.start("claim", "--from", "+30min", "--for", "1h")
    _, err = late.communicate(timeout=180)
    assert (late.returncode, "they are from" in err) == (ExitCode.REFUSED, True), err
    # What would last into it waits; what ends before begins.
    long = pool.start("run", "--no-wait", "--", "true")
    assert long.wait(180) == ExitCode.REFUSED
    short = pool.start("run", "--for", "5min", "--no-wait", "--", "true")
    assert short.wait(180) == 0
    withdrawal = pool.start("pool", "cancel", claim_id)
    assert withdrawal.communicate(timeout=180) == ("withdrawn\n", "")
    assert pool.start("run", "--no-wait", "--", "true").wait(180) == 0


def test_who_reserves_before_tasks_are_listed_waits_for_that(
        pool: PoolUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by chance: "not enough matching GPUs are free for all of that time", for good."""
    assert pool.service.snapshot is not None
    snapshot, pool.service.snapshot = pool.service.snapshot, replace(
        pool.service.snapshot, tasks=None)
    soon = pool.start("claim", "--from", "+10min", "--for", "1h")
    wait_for(lambda: connections(pool.socket))
    with pytest.raises(subprocess.TimeoutExpired):
        soon.wait(0.5)
    pool.service.snapshot = snapshot
    _, err = soon.communicate(timeout=180)
    assert (soon.returncode, err) == (0, "")
    monkeypatch.setattr("agent.pool.requests.READ_WITHIN_S", 0.1)
    pool.service.snapshot = replace(snapshot, tasks=None)
    soon = pool.start("claim", "--from", "+10min", "--for", "1h")
    _, err = soon.communicate(timeout=180)
    assert (soon.returncode, "have not been read yet" in err, "try again" in err) == (
        ExitCode.REFUSED, True, True), err


def test_an_age_is_given_once_and_to_its_owner_alone(pool: PoolUnderTest) -> None:
    run = pool.start("run", *RUN[2:])
    child, lease_id = line(run)
    assert pool.leases.pop_preempted(lease_id, os.getuid()) is None, "it is not taken yet"
    lease = preempt(pool, lease_id)
    assert pool.leases.pop_preempted(lease_id, os.getuid() + 1) is None
    assert pool.leases.pop_preempted(lease_id, os.getuid()) == lease.claim.submitted_at
    assert pool.leases.pop_preempted(lease_id, os.getuid()) is None
    os.kill(child, signal.SIGUSR1)
    outcome(run)


def test_who_asks_before_the_gpus_were_read_waits_for_that(pool: PoolUnderTest) -> None:
    snapshot, pool.service.snapshot = pool.service.snapshot, None
    run = pool.start("run", "--", "true")
    wait_for(lambda: connections(pool.socket))
    with pytest.raises(subprocess.TimeoutExpired):
        run.wait(0.5)
    pool.service.snapshot = snapshot
    assert outcome(run) == (0, "")


@no_daemon_of_others()
def test_where_no_mps_runs_hami_holds_a_share_if_it_is_there(pool: PoolUnderTest, tmp_path: Path
                                                           ) -> None:
    request = ("run", "--share", "30", "--mem", "12G", "--ids", "index", "--", "env")
    assert "no MPS control daemon" in outcome(pool.start(*request))[1]
    library, cache = tmp_path / "libvgpu.so", tmp_path / "run"
    (tmp_path / "hami.c").write_text("int nothing;")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "hami.c"], check=True)
    cache.mkdir()
    new_folders = [LOCKS] * (not LOCKS.exists())
    for folder in new_folders:
        folder.mkdir()
    run = pool.start(*request, **{LIBRARY_ENV: str(library), "XDG_RUNTIME_DIR": str(cache)})
    out, err = run.communicate(timeout=60)
    env = dict(row.split("=", 1) for row in out.splitlines())
    assert (run.returncode, env["LD_PRELOAD"]) == (0, str(library)), err
    assert (env["CUDA_DEVICE_SM_LIMIT"], env["CUDA_DEVICE_MEMORY_LIMIT"]) == ("30", "12288m")
    assert Path(env[CACHE]).parent == cache
    assert "umask" in err
    by_uuid = pool.start(*request[:-4], "--", "env", **{LIBRARY_ENV: str(library)})
    code, err = outcome(by_uuid)
    assert (code, "HAMi-core reads only GPU indices" in err) == (10, True)
    wait_for(lambda: not pool.leases.all)
    for folder in new_folders:
        folder.rmdir()


def test_a_framework_is_told_what_the_commands_own_version_knows(pool: PoolUnderTest,
                                                                 tmp_path: Path) -> None:
    (tmp_path / "tensorflow-2.17.0.dist-info").mkdir()
    (tmp_path / "tensorflow-2.17.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tensorflow\nVersion: 2.17.0\n")
    prints = "import os; print(os.environ.get('TF_FORCE_GPU_ALLOW_GROWTH'))"
    request = ("run", "--framework", "tensorflow", "--")
    run = pool.start(*request, sys.executable, "-c", prints, PYTHONPATH=str(tmp_path))
    assert run.communicate(timeout=60) == ("true\n", "")
    for unknown in (pool.start(*request, sys.executable, "-c", prints),
                    pool.start(*request, "sh", "-c", "echo $TF_FORCE_GPU_ALLOW_GROWTH")):
        out, err = unknown.communicate(timeout=60)
        assert out in ("None\n", "\n")
        assert "which tensorflow the command uses is not known" in err


# -- free on another node

# Says how it was called, and runs the line here: without a pool, as on another machine.
SSH = """#!/bin/sh
echo "$@" >> $SSH_LOG
if [ -e $SSH_LOG.lost ]; then exit 255; fi
[ "$1" = -t ] && shift
shift
exec sh -c "$*"
"""
GPUDECK = "#!/bin/sh\necho \"there: $*\"\nexit 9\n"


@pytest.fixture
def cut_off(tmp_path: Path) -> Iterator[PoolUnderTest]:
    """A pool whose hub decides, with an `ssh` and a `gpudeck` of the test first on the path."""
    pool = PoolUnderTest(tmp_path, is_local=False)
    for name, text in (("ssh", SSH), ("gpudeck", GPUDECK)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    pool.env |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SSH_LOG": str(tmp_path / "ssh.log")}
    pool.service.receive(PoolPlan())
    yield pool
    pool.close()


def say_elsewhere(pool: PoolUnderTest, *hosts: str, after: str = "") -> str:
    """Tell the claim that waits, other than `after`, that GPUs are free on these hosts."""
    claim_id: str
    [claim_id] = wait_for(lambda: set(pool.service.waiting.all) - {after})
    pool.service.receive(PoolPlan(standings=(ClaimStanding(claim_id, 1, "busy", elsewhere=hosts),)))
    return claim_id


def test_it_says_where_it_is_free_and_what_to_run_there(cut_off: PoolUnderTest) -> None:
    run = cut_off.start("run", "--gpus", "2", "--", "python", "train it.py")
    assert run.stderr is not None
    say_elsewhere(cut_off, "n2", "n3")
    assert "number 1 in the queue: busy" in run.stderr.readline()
    hint = run.stderr.readline()
    assert hint.startswith("gpudeck: GPUs are free on n2: ssh n2 ")
    assert "n3" in run.stderr.readline()
    run.send_signal(signal.SIGINT)
    outcome(run)
    printed = subprocess.run(["sh", "-c", hint.partition(": ssh ")[2].join(("ssh ", ""))],
                             env=cut_off.env, text=True, capture_output=True)
    assert printed.stdout == "there: run --gpus 2 -- python train it.py\n", "as it is printed"


def test_with_ssh_it_runs_there_and_leaves_the_queue_here(cut_off: PoolUnderTest) -> None:
    run = cut_off.start("run", "--ssh", "--gpus", "2", "--", "python", "train it.py")
    say_elsewhere(cut_off, "n2")
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (9, "there: run --gpus 2 -- python train it.py\n"), err
    wait_for(lambda: not cut_off.service.waiting.all)
    ssh_log = Path(cut_off.env["SSH_LOG"]).read_text()
    assert ssh_log.startswith("n2 cd "), "nobody sits at a terminal"


def test_where_that_node_is_lost_it_asks_again_and_goes_elsewhere(cut_off: PoolUnderTest) -> None:
    connection_lost = Path(f"{cut_off.env['SSH_LOG']}.lost")
    connection_lost.touch()
    run = cut_off.start("run", "--ssh", "--requeue", "--", "train")
    first = say_elsewhere(cut_off, "n2")
    wait_for(lambda: set(cut_off.service.waiting.all) - {first})
    connection_lost.unlink()
    say_elsewhere(cut_off, "n2", "n3", after=first)
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (9, "there: run --requeue -- train\n"), err
    assert [call.split()[0] for call in Path(cut_off.env["SSH_LOG"]).read_text().splitlines()
            ] == ["n2", "n3"]

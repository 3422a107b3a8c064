"""`gpudeck run` and `claim` against a real agent on the C fake of NVML, with real children."""

import getpass
import json
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.contract.pool_messages import SOCKET_ENV
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.mps_control import FakeMps
from tests.integration.pools import (
    ROOT,
    SAYS_ITS_GPUS,
    SAYS_ITS_UUID,
    WAITS,
    PoolBed,
    connections,
)


@pytest.fixture
def bed(hub: FakeHub, tmp_path: Path) -> Iterator[PoolBed]:
    bed = PoolBed(hub, tmp_path, "--local-claims")
    yield bed
    bed.close()


def modes(bed: PoolBed) -> list[int]:
    """Return the compute modes that the driver has."""
    path = Path(f"{bed.nvml.path}.set")
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    set_modes = {gpu: int(mode) for _, gpu, key, mode in rows if key == "compute_mode"}
    return [set_modes.get(gpu.number, 0) for gpu in bed.nvml.gpus]


def test_a_command_gets_its_gpus_and_its_status_comes_through(bed: PoolBed) -> None:
    with bed.agent():
        run = bed.run("run", "--gpus", "2", "--", sys.executable, "-c",
                      f"{SAYS_ITS_GPUS}; raise SystemExit(7)")
        assert run.returncode == 7, run.stderr
        uuids = {str(gpu["uuid"]) for gpu in bed.status()["gpus"]}
        visible = run.stdout.strip().split(",")
        assert len(set(visible)) == 2
        assert set(visible) <= uuids
        assert bed.free() == 4
        assert json.loads(bed.run("pool", "--json").stdout) == bed.status()
        killed = bed.run("run", "--", sys.executable, "-c",
                         "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        assert killed.returncode == 128 + signal.SIGKILL


def test_who_comes_later_waits_and_is_told_why(bed: PoolBed) -> None:
    with bed.agent():
        first = bed.start("run", "--gpus", "3", "--", sys.executable, "-c", WAITS)
        assert first.stdout is not None
        assert first.stdout.readline() == "on\n"
        second = bed.start("run", "--gpus", "2", "--", sys.executable, "-c", SAYS_ITS_GPUS)
        wait_for(bed.in_queue(1))
        leaves = bed.start("run", "--gpus", "4", "--", "true")
        wait_for(bed.in_queue(2))
        leaves.send_signal(signal.SIGINT)
        assert leaves.wait(30) == 128 + signal.SIGINT
        wait_for(bed.in_queue(1))
        now = bed.run("run", "--gpus", "2", "--no-wait", "--", "true")
        assert (now.returncode, "came free" in now.stderr) == (10, True)
        first.send_signal(signal.SIGTERM)
        assert first.wait(30) == 128 + signal.SIGTERM
        out, err = second.communicate(timeout=60)
        assert (second.returncode, out.count("GPU-")) == (0, 2)
        assert "number 1 in the queue: it asks for 2 GPUs; 1 of 4 matching are free" in err


def test_a_lease_outlives_its_run_and_the_agent_and_not_its_command(hub: FakeHub, tmp_path: Path
                                                                    ) -> None:
    """GPUs are in exclusive-process mode while the lease lasts, but for one whose driver refuses
    that, and one whose driver ignores it; both are recorded."""
    bed = PoolBed(hub, tmp_path, "--local-claims", "--exclusive-leases")
    bed.nvml.gpus[1].error("nvmlDeviceSetComputeMode", 4)
    bed.nvml.gpus[2].ignore("nvmlDeviceSetComputeMode")
    bed.nvml.save()
    with bed.agent() as agent:
        holder = bed.start("run", "--gpus", "3", "--", sys.executable, "-c",
                           f"import os; print(os.getpid(), flush=True); {WAITS}")
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        holder.stdout.readline()
        wait_for(lambda: modes(bed) == [0, 0, 0, 3])
        unchanged = [bed.nvml.gpus[place].uuid for place in (1, 2)]
        wait_for(lambda: sorted(unchanged) == sorted(
            record["gpu"] for record in bed.audit("mode") if record["mode"] == "unchanged"))
        holder.kill()
        holder.wait()
        agent.kill()
        agent.wait()
    with bed.agent():
        # The wait is for a review that finds no sign of the command: there must be some.
        time.sleep(2.5)
        assert bed.free() == 1
        assert modes(bed) == [0, 0, 0, 3], "it lasts as long as the lease"
        os.kill(child, signal.SIGKILL)
        wait_for(lambda: bed.free() == 4)
        wait_for(lambda: modes(bed) == [0, 0, 0, 0])
    bed.close()


def test_a_run_finds_the_agent_again_and_gives_back_to_it(bed: PoolBed, tmp_path: Path) -> None:
    with bed.agent() as agent:
        holder = bed.start("run", "--", sys.executable, "-c",
                           f"import os; print(os.getpid(), flush=True); {WAITS}")
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        agent.kill()
        agent.wait()
    with bed.agent():
        assert bed.free() == 3
        wait_for(lambda: connections(bed.socket) == 1)
        os.kill(child, signal.SIGTERM)
        assert holder.wait(30) == 128 + signal.SIGTERM
        wait_for(lambda: bed.free() == 4)
    # Where the agent ends a lease by itself, it knows no status.
    assert [record["exit_status"] for record in bed.audit("released")] == [128 + signal.SIGTERM]


def test_who_waits_waits_on_when_the_agent_is_back(bed: PoolBed) -> None:
    with bed.agent() as agent:
        holder = bed.start("run", "--gpus", "3", "--", sys.executable, "-c", WAITS)
        assert holder.stdout is not None
        holder.stdout.readline()
        waits = bed.start("run", "--gpus", "2", "--", sys.executable, "-c", SAYS_ITS_GPUS)
        wait_for(bed.in_queue(1))
        agent.kill()
        agent.wait()
    with bed.agent():
        wait_for(bed.in_queue(1))
        holder.terminate()
        out, err = waits.communicate(timeout=60)
        assert (waits.returncode, out.count("GPU-")) == (0, 2), err
        assert "lost the agent" in err


def test_a_command_on_gpus_that_are_not_leased_is_caught(bed: PoolBed) -> None:
    with bed.agent():
        wrong, right = (bed.start("run", "--", sys.executable, "-c",
                                  "import os; print(os.getpid(), os.environ['GPUDECK_GPU_UUIDS'], "
                                  f"flush=True); {WAITS}") for _ in range(2))
        pids = {}
        for run in (wrong, right):
            assert run.stdout is not None
            pid, uuid = run.stdout.readline().split()
            pids[uuid] = int(pid)
        [one, other] = pids
        stray = next(gpu for gpu in bed.nvml.gpus if gpu.uuid not in pids)
        bed.gpu(one).process(pids[one], 2**30, sm_pct=50)
        stray.process(pids[one], 2**30, sm_pct=50)
        bed.gpu(other).process(pids[other], 2**30, sm_pct=50)
        bed.nvml.save()
        assert wrong.stderr is not None
        assert f"use GPUs that are not of it: {stray.uuid}" in wrong.stderr.readline()
        for run in (wrong, right):
            run.send_signal(signal.SIGTERM)
        assert "use GPUs" not in right.communicate(timeout=30)[1], "it is where it should be"
    [record] = bed.audit("misplaced")
    assert record["uuids"] == [stray.uuid]


def test_a_leased_gpu_that_another_one_uses_says_both(bed: PoolBed) -> None:
    """Another user's process, which does not heed leases."""
    bystander = subprocess.Popen(["sleep", "600"], user=1, group=1)
    try:
        with bed.agent():
            holder = bed.start("run", "--", sys.executable, "-c", f"{SAYS_ITS_UUID}; {WAITS}")
            assert holder.stdout is not None
            gpu = bed.gpu(holder.stdout.readline().strip())
            gpu.process(bystander.pid, 20 * 2**30, sm_pct=50)
            bed.nvml.save()
            words = f"used by {pwd.getpwuid(1).pw_name} without a lease (process {bystander.pid})"
            [line] = wait_for(lambda: [row for row in bed.run("pool").stdout.splitlines()
                                       if words in row])
            assert f"{getpass.getuser()} for 8 h" in line
            assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


TIER = ("import json, os; print(json.dumps({name: value for name, value in os.environ.items() "
        "if 'CUDA' in name or name == 'GPUDECK_GPU_UUIDS'}), flush=True); "
        "import time; time.sleep(600)")


def test_three_tiers_of_one_gpu_run_side_by_side(bed: PoolBed, tmp_path: Path) -> None:
    mps = FakeMps(tmp_path / "mps")
    bed.env |= mps.env()
    try:
        with bed.agent():
            refusal = bed.run("run", "--share", "60", "--", "true")
            assert (refusal.returncode, "no MPS control daemon" in refusal.stderr) == (10, True)
            assert mps.start() == 0
            runs = []
            for share, mem in (("60", "40G"), ("30", "20G"), ("10", "4G")):
                run = bed.start("run", "--share", share, "--mem", mem, "--", sys.executable, "-c",
                                TIER)
                assert run.stdout is not None
                runs.append(json.loads(run.stdout.readline()))
            assert len({tier["GPUDECK_GPU_UUIDS"] for tier in runs}) == 1
            assert [tier["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for tier in runs] == [
                "60", "30", "10"]
            assert [tier["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] for tier in runs] == [
                "0=40960M", "0=20480M", "0=4096M"]
            assert {tier["CUDA_MPS_PIPE_DIRECTORY"] for tier in runs} == {str(mps.pipes)}
            assert bed.free() == 3
    finally:
        mps.close()


def test_what_the_command_leaves_behind_keeps_the_lease(bed: PoolBed) -> None:
    with bed.agent():
        code = "import os, time; pid = os.fork()\nif pid: print(pid, flush=True)\nelse:\n" \
            " os.setsid(); os.close(1); os.close(2); time.sleep(600)"
        run = bed.run("run", "--", sys.executable, "-c", code)
        assert run.returncode == 0
        assert bed.free() == 3
        os.kill(int(run.stdout), signal.SIGKILL)
        wait_for(lambda: bed.free() == 4)


def test_what_is_used_without_a_lease_is_not_given_out(bed: PoolBed) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        bed.nvml.gpus[0].process(bystander.pid, 20 * 2**30, sm_pct=50)
        bed.nvml.save()
        with bed.agent():
            wait_for(lambda: bed.free() == 3)
            run = bed.run("run", "--gpus", "4", "--no-wait", "--", "true")
            assert run.returncode == 10
            assert any("without a lease" in str(gpu["why"])
                       for gpu in bed.status()["unavailable"])
            assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_what_nobody_lists_is_not_given_out(bed: PoolBed) -> None:
    """Memory that a crash left, and a task in another namespace."""
    bed.nvml.gpus[0].update(mem_used=40 * 2**30)
    bed.nvml.gpus[1].update(util=95)
    bed.nvml.save()
    with bed.agent():
        wait_for(lambda: bed.free() == 2, 30)
        run = bed.run("run", "--gpus", "3", "--no-wait", "--", "true")
        assert run.returncode == 10
        assert {gpu["why"] for gpu in bed.status()["unavailable"]} == {
            "40 GiB of its memory is in use, and no listed task holds it",
            "kernels run on it, and no listed task does"}


def test_where_a_scheduler_assigns_the_gpus_none_is_leased(hub: FakeHub, tmp_path: Path) -> None:
    bed = PoolBed(hub, tmp_path, "--local-claims", "--managed-by", "Slurm")
    with bed.agent():
        assert {gpu["why"] for gpu in bed.status()["unavailable"]} == {"managed by Slurm"}
        run = bed.run("run", "--", "true")
        assert (run.returncode, "Slurm assigns the GPUs of this node" in run.stderr) == (
            10, True), run.stderr
    bed.close()


@pytest.mark.parametrize(("words", "code", "message"), [
    (("--gpus", "9", "--", "true"), 10, "the largest has 4"),
    (("--model", "h200", "--", "true"), 10, "there are 4 x NVIDIA H100 80GB HBM3 (80 GiB)"),
    (("--mem", "90G", "--", "true"), 10, "no GPU here has this much memory"),
    (("--mem", "much", "--", "true"), 2, "is not a size"),
    (("--gpus", "2"), 2, "name the command after --"),
    (("--gpus", "2", "--share", "30", "--", "true"), 2, "leave --gpus out"),
    (("--", "no-such-program"), 127, "cannot run 'no-such-program'"),
])
def test_what_cannot_be_is_said_at_once_and_holds_nothing(
        bed: PoolBed, words: tuple[str, ...], code: int, message: str) -> None:
    with bed.agent():
        run = bed.run("run", *words)
        assert (run.returncode, message in run.stderr) == (code, True), run.stderr
        assert bed.free() == 4


def test_a_claim_is_held_until_it_is_given_back(bed: PoolBed) -> None:
    with bed.agent():
        claim = bed.run("claim", "--gpus", "2", "--export")
        lines = dict(line.removeprefix("export ").split("=", 1)
                     for line in claim.stdout.splitlines())
        assert lines["CUDA_VISIBLE_DEVICES"].count("GPU-") == 2
        assert bed.free() == 2
        lease = lines["GPUDECK_LEASE"]
        assert bed.run("claim", "--extend", lease, "1h").returncode == 0
        assert bed.run("claim", "--give-back", "nobody").returncode == 10
        assert bed.run("claim", "--give-back", lease).returncode == 0
        assert bed.free() == 4


def test_without_an_agent_it_says_what_to_do(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "gpudeck.cli.main", "run", "--", "true"], cwd=ROOT, text=True,
        env=os.environ | {SOCKET_ENV: str(tmp_path / "none.sock")}, capture_output=True)
    assert run.returncode == 4
    assert "no agent answers at" in run.stderr
    assert "--pool-socket" in run.stderr

"""`from gpudeck.pool.claim import claim` in a real program, on the C fake of NVML."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.hub import FakeHub, wait_for
from tests.integration.pools import PoolBed

HOLDS = """
import os
from gpudeck.pool.claim import claim, with_gpus
os.environ["CUDA_VISIBLE_DEVICES"] = "7"
with claim(gpus=2, model="h100", mem="40G", wait="10m") as lease:
    print(len(lease.gpus), os.environ["CUDA_VISIBLE_DEVICES"] == lease.env["CUDA_VISIBLE_DEVICES"])
    print(os.environ["CUDA_VISIBLE_DEVICES"].count("GPU-"), flush=True)
    input()
print(os.environ["CUDA_VISIBLE_DEVICES"], "GPUDECK_LEASE" in os.environ)
@with_gpus(3)
def train(number):
    return number + os.environ["CUDA_VISIBLE_DEVICES"].count("GPU-")
print(train(4))
"""
NOTEBOOK = """
import os
from gpudeck.notebook import claim
mine = claim(gpus=1)
print("held", flush=True)
input()
mine.give_back()
print(mine.picture["state"], "CUDA_VISIBLE_DEVICES" in os.environ, flush=True)
input()
"""
# A stand-in for libcuda that has been initialised: cuDeviceGetCount says success.
CUDA = "int cuDeviceGetCount(int *count) { *count = 1; return 0; }\n"
TOO_LATE = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
from gpudeck.pool.claim import claim
with claim():
    print("not reached")
"""


@pytest.fixture
def bed(hub: FakeHub, tmp_path: Path) -> Iterator[PoolBed]:
    bed = PoolBed(hub, tmp_path, "--local-claims")
    with bed.agent():
        yield bed
    bed.close()


def test_a_program_holds_gpus_for_a_block(bed: PoolBed) -> None:
    program = subprocess.Popen([sys.executable, "-c", HOLDS], env=bed.env, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(2)] == ["2 True\n", "2\n"]
        assert bed.free() == 2
        out, _ = program.communicate("\n", timeout=60)
        assert out.splitlines() == ["7 False", "7"]
        wait_for(lambda: bed.free() == 4)
    finally:
        program.kill()
        program.wait()


def test_a_shell_takes_what_a_claim_prints(bed: PoolBed) -> None:
    """The shell's children carry the mark, and the lease stays while one of them is there."""
    shell = subprocess.Popen(
        ["sh", "-c", f"eval \"$({sys.executable} -m gpudeck.cli.main claim --gpus 2 --export "
         "--distributed)\"; echo $CUDA_VISIBLE_DEVICES $GPUDECK_LEASE $PET_NPROC_PER_NODE; read _; "
         f"{sys.executable} -m gpudeck.cli.main claim --give-back $GPUDECK_LEASE"],
        env=bed.env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert shell.stdout is not None
        devices, _, ranks = shell.stdout.readline().split()
        assert (devices.count("GPU-"), ranks) == (2, "2")
        assert bed.free() == 2
        out, _ = shell.communicate("\n", timeout=60)
        assert (shell.returncode, out) == (0, "given back\n")
        assert bed.free() == 4
    finally:
        shell.kill()
        shell.wait()


def test_a_program_that_is_killed_gives_them_back(bed: PoolBed) -> None:
    program = subprocess.Popen([sys.executable, "-c", HOLDS], env=bed.env, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdout is not None
    program.stdout.readline()
    program.kill()
    program.communicate()
    wait_for(lambda: bed.free() == 4)


def test_where_cuda_is_initialised_already_it_says_so(bed: PoolBed, tmp_path: Path) -> None:
    (tmp_path / "cuda.c").write_text(CUDA)
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library),
                    str(tmp_path / "cuda.c")], check=True)
    run = subprocess.run([sys.executable, "-c", TOO_LATE, str(library)], env=bed.env, text=True,
                         capture_output=True)
    assert run.returncode == 1
    assert "CUDA is initialised in this process already" in run.stderr
    assert bed.free() == 4


LEAVES = """
import os, subprocess, sys
from gpudeck.pool.claim import claim
with claim(gpus=2) as lease:
    left = subprocess.Popen(["sleep", sys.argv[1]], stdout=subprocess.DEVNULL)
    print(left.pid, flush=True)
    input()
print("after the block", flush=True)
input()
"""


def program(bed: PoolBed, code: str, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", code, *words], env=bed.env, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def go_on(process: "subprocess.Popen[str]") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_what_it_left_behind_keeps_its_own_gpu_and_the_program_none(bed: PoolBed) -> None:
    holder = program(bed, LEAVES, "600")
    try:
        assert holder.stdout is not None
        left_pid = int(holder.stdout.readline())
        [lease] = bed.status()["held"]
        gpu = bed.gpu(lease["uuids"][0])
        gpu.process(left_pid, 2**30, sm_pct=50)
        bed.nvml.save()
        assert go_on(holder) == "after the block\n"
        wait_for(lambda: [lease["uuids"] for lease in bed.status()["held"]] == [[gpu.uuid]], 60)
        assert holder.poll() is None
        os.kill(left_pid, signal.SIGKILL)
        wait_for(lambda: not bed.status()["held"], 30)
        assert holder.poll() is None, "the program itself holds nothing"
    finally:
        holder.kill()
        holder.communicate()


def test_the_block_outlives_its_agent_and_gives_back_to_the_next_one(hub: FakeHub, tmp_path: Path
                                                                   ) -> None:
    bed = PoolBed(hub, tmp_path, "--local-claims")
    with bed.agent() as agent:
        back, away = (program(bed, LEAVES, "0") for _ in range(2))
        for process in (back, away):
            assert process.stdout is not None
            assert process.stdout.readline()
        waits = program(bed, LEAVES, "0")  # only now, or one of the others would wait
        wait_for(bed.in_queue(1), 30)
        agent.kill()
        agent.wait()
    assert go_on(away) == "after the block\n", "what follows does not wait for an agent"
    with bed.agent():
        assert waits.stdout is not None
        assert waits.stdout.readline(), "it asked again, and got what the other gave back"
        assert go_on(back) == "after the block\n"
        wait_for(lambda: bed.free() == 2, 30)
        for process in (away, back, waits):
            _, err = process.communicate("\n\n", timeout=60)
            assert (process.returncode, "Traceback" in err) == (0, False), err
        wait_for(lambda: bed.free() == 4, 30)
    bed.close()


def test_a_notebook_gives_back_to_the_next_agent(hub: FakeHub, tmp_path: Path) -> None:
    bed = PoolBed(hub, tmp_path, "--local-claims")
    with bed.agent() as agent:
        back, away = (program(bed, NOTEBOOK) for _ in range(2))
        for process in (back, away):
            assert process.stdout is not None
            assert "held\n" in iter(process.stdout.readline, "")
        agent.kill()
        agent.wait()
    assert go_on(away) == "ended False\n"
    with bed.agent():
        wait_for(lambda: bed.free() == 3)
        assert go_on(back) == "ended False\n"
        wait_for(lambda: bed.free() == 4)
    for process in (away, back):
        process.communicate("\n")
    bed.close()

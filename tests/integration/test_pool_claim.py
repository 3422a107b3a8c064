"""`from gpudeck.pool.claim import claim` in a real program, on the C fake of NVML."""

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
    """Its children carry the mark, and the lease stays while one of them is there."""
    shell = subprocess.Popen(
        ["sh", "-c", f"eval \"$({sys.executable} -m gpudeck.cli claim --gpus 2 --export "
         "--distributed)\"; echo $CUDA_VISIBLE_DEVICES $GPUDECK_LEASE $PET_NPROC_PER_NODE; read _; "
         f"{sys.executable} -m gpudeck.cli claim --give-back $GPUDECK_LEASE"],
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
    found = subprocess.run([sys.executable, "-c", TOO_LATE, str(library)], env=bed.env, text=True,
                           capture_output=True)
    assert found.returncode == 1
    assert "CUDA is initialised in this process already" in found.stderr
    assert bed.free() == 4

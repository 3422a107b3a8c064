"""Cores of a lease: near its GPUs, of no other lease, and never half a core while whole ones are
free."""

from pathlib import Path

import pytest

from agent.pool.cores import NodeCores, choose_cores
from agent.pool.lock import PoolGpu

# Two sockets of four cores with two threads each: 0-3 and 8-11, 4-7 and 12-15.
NEAR = {0: "0-3,8-11", 1: "4-7,12-15"}


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    cpus = tmp_path / "devices/system/cpu"
    cpus.mkdir(parents=True)
    (cpus / "online").write_text("0-15\n")
    for cpu in range(16):
        (cpus / f"cpu{cpu}/topology").mkdir(parents=True)
        (cpus / f"cpu{cpu}/topology/thread_siblings_list").write_text(f"{cpu % 8},{cpu % 8 + 8}\n")
    for node, cores in NEAR.items():
        (tmp_path / f"devices/system/node/node{node}").mkdir(parents=True)
        (tmp_path / f"devices/system/node/node{node}/cpulist").write_text(cores + "\n")
    (tmp_path / "bus/pci/devices/0000:b1:00.0").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:b1:00.0/local_cpulist").write_text(NEAR[1] + "\n")
    return tmp_path


def gpu(numa: int | None, bus_id: str | None = None) -> PoolGpu:
    return PoolGpu("G", "H100", 0, False, numa, None, None, "", bus_id)


@pytest.mark.parametrize(("board", "near"), [
    (gpu(None, "00000000:B1:00.0"), {4, 5, 6, 7, 12, 13, 14, 15}),
    (gpu(0, "00000000:C1:00.0"), {0, 1, 2, 3, 8, 9, 10, 11}),  # the kernel does not say
    (gpu(None, None), set()), (gpu(9), set())])
def test_the_kernel_says_which_cores_are_near_a_gpu(sys: Path, board: PoolGpu, near: set[int]
                                                    ) -> None:
    assert NodeCores(sys).near([board]) == near


def test_threads_of_one_core_stand_together(sys: Path) -> None:
    assert NodeCores(sys).online() == (0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15)
    assert NodeCores(sys / "nothing").online() == ()


@pytest.mark.parametrize(("count", "in_use", "lease_cores"), [
    (2, (), (4, 12)), (3, (), (4, 5, 12)), (2, (4, 12), (5, 13)),
    (10, (), (0, 4, 5, 6, 7, 8, 12, 13, 14, 15)),  # far ones where near ones are too few
    (6, (4, 12, 5, 13), (0, 6, 7, 8, 14, 15)),  # far and free before near and another's
    (16, (4,), tuple(range(16))), (17, (), ()), (0, (), ())])
def test_a_lease_gets_whole_free_cores_near_its_gpus(
        sys: Path, count: int, in_use: tuple[int, ...], lease_cores: tuple[int, ...]) -> None:
    cores = NodeCores(sys)
    assert choose_cores(count, cores.online(), cores.near([gpu(1)]), in_use) == lease_cores

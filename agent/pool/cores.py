"""Which cores a lease gets: near its GPUs, and of no other lease while enough others are there."""

from collections.abc import Collection, Iterable, Sequence
from math import ceil
from pathlib import Path

from gpudeck.pool.core.claims import CPU_MILLI
from gpudeck.pool.core.host_resources import cores_of

from .lock import PoolGpu

SYS = Path("/sys")


def choose_cores(count: int, cores: Sequence[int], near: Collection[int], taken: Collection[int]
                 ) -> tuple[int, ...]:
    """Pure. `cores`: of the machine, threads of one core in a row, so that no two leases share
    one where that can be. None where it has fewer."""
    ordered = sorted(cores, key=lambda core: (core in taken, core not in near))
    return tuple(sorted(ordered[:count])) if 0 < count <= len(cores) else ()


def cores_for(node: "NodeCores", cpu_milli: int, gpus: Iterable[PoolGpu],
              leased: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """`leased`: cores of each other lease."""
    return choose_cores(ceil(cpu_milli / CPU_MILLI), node.online(), node.near(gpus),
                        {core for each in leased for core in each})


class NodeCores:
    """As the kernel says them."""

    def __init__(self, sys: Path = SYS) -> None:
        self._cpus = sys / "devices/system/cpu"
        self._nodes = sys / "devices/system/node"
        self._devices = sys / "bus/pci/devices"

    def online(self) -> tuple[int, ...]:
        """Threads of one core in a row."""
        return tuple(sorted(_read(self._cpus / "online"), key=self._core))

    def near(self, gpus: Iterable[PoolGpu]) -> frozenset[int]:
        """Of the NUMA nodes of these; none: nobody can say."""
        return frozenset(core for gpu in gpus for core in self._near(gpu))

    def _near(self, gpu: PoolGpu) -> tuple[int, ...]:
        found = () if gpu.pci_bus_id is None else _read(
            self._devices / _address(gpu.pci_bus_id) / "local_cpulist")
        return found or (() if gpu.numa is None else _read(
            self._nodes / f"node{gpu.numa}/cpulist"))

    def _core(self, cpu: int) -> tuple[int, int]:
        threads = _read(self._cpus / f"cpu{cpu}/topology/thread_siblings_list")
        return min(threads, default=cpu), cpu


def _address(pci_bus_id: str) -> str:
    """NVML writes eight digits of the domain, the kernel four."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _read(file: Path) -> tuple[int, ...]:
    """None where it is not there, or says what nobody understands."""
    try:
        return cores_of(file.read_text())
    except (OSError, ValueError):
        return ()

"""Choice of cores for a lease: near its GPUs, and not shared while enough others are free."""

from collections.abc import Collection, Iterable, Sequence
from math import ceil
from pathlib import Path

from gpudeck.pool.core.claims import CPU_MILLI
from gpudeck.pool.core.host_resources import cores_of

from .lock import PoolGpu

SYS = Path("/sys")


def choose_cores(count: int, cores: Sequence[int], near: Collection[int], leased: Collection[int]
                 ) -> tuple[int, ...]:
    """Return `count` of the machine's `cores`; empty where it has fewer. Pure. `cores`: threads of
    one core in a row, so that no two leases share one where that can be."""
    by_preference = sorted(cores, key=lambda core: (core in leased, core not in near))
    return tuple(sorted(by_preference[:count])) if 0 < count <= len(cores) else ()


def cores_for(node: "NodeCores", cpu_milli: int, gpus: Iterable[PoolGpu],
              leased: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """Choose cores for a claim of `cpu_milli`. `leased`: cores of each other lease."""
    return choose_cores(ceil(cpu_milli / CPU_MILLI), node.online(), node.near(gpus),
                        {core for cores in leased for core in cores})


class NodeCores:
    """CPU topology of this node, as the kernel reports it."""

    def __init__(self, sys: Path = SYS) -> None:
        self._cpus = sys / "devices/system/cpu"
        self._nodes = sys / "devices/system/node"
        self._devices = sys / "bus/pci/devices"

    def online(self) -> tuple[int, ...]:
        """Return the CPUs that are online, threads of one core in a row."""
        return tuple(sorted(_read(self._cpus / "online"), key=self._core))

    def near(self, gpus: Iterable[PoolGpu]) -> frozenset[int]:
        """Return the CPUs near these GPUs; empty where the kernel does not say."""
        return frozenset(core for gpu in gpus for core in self._near(gpu))

    def _near(self, gpu: PoolGpu) -> tuple[int, ...]:
        local = () if gpu.pci_bus_id is None else _read(
            self._devices / _address(gpu.pci_bus_id) / "local_cpulist")
        return local or (() if gpu.numa is None else _read(
            self._nodes / f"node{gpu.numa}/cpulist"))

    def _core(self, cpu: int) -> tuple[int, int]:
        threads = _read(self._cpus / f"cpu{cpu}/topology/thread_siblings_list")
        return min(threads, default=cpu), cpu


def _address(pci_bus_id: str) -> str:
    """Return the address in the kernel's form: NVML's domain has eight digits, the kernel's
    four."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _read(file: Path) -> tuple[int, ...]:
    """Return the CPUs that a file lists; empty where it is missing or not understood."""
    try:
        return cores_of(file.read_text())
    except (OSError, ValueError):
        return ()

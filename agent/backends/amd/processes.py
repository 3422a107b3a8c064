"""Processes on AMD's boards: compute by the KFD's list, all others by what their open files say.

The KFD lists every process that has opened /dev/kfd, also one without any memory there; it says
nothing of how busy they are, and shows those of other users to everybody.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpudeck.measures.metrics import Absence

from ...readings import ProcessReading
from ...tasks.privileges import PROC
from ..drm_clients import DrmClients, numbers
from ..metric_row import MonotonicCounter
from ..sysfs import number, properties, text

KFD = Path("/sys/class/kfd/kfd")
KIB = 1_024
ENGINES = ("drm-engine-gfx", "drm-engine-compute")


@dataclass(slots=True)
class _Use:
    """Use of one board by one process."""

    mem_used_bytes: float = 0.0
    busy_ns: dict[str, int] = field(default_factory=dict)  # by engine and open file
    is_compute: bool = False


class AmdProcessList:
    def __init__(self, uuids: Mapping[str, str], proc: Path = PROC, kfd: Path = KFD) -> None:
        """`uuids`: of the boards, by PCI address."""
        self._uuids, self._kfd = uuids, kfd
        self._clients = DrmClients(uuids, proc)
        self._counters: dict[tuple[int, str, str], MonotonicCounter] = {}

    def read(self, now: float, is_whole: bool) -> tuple[ProcessReading, ...]:
        """`is_whole` False: a process that opens its first board may be listed some lists late."""
        uses: dict[tuple[int, str], _Use] = {}
        for pid, uuid, memory in self._compute():
            uses[pid, uuid] = _Use(memory, is_compute=True)
        for pid, uuid, client, values in self._clients.read({pid for pid, _ in uses}, is_whole):
            use = uses.setdefault((pid, uuid), _Use())
            # A compute process has its memory in both lists.
            if not use.is_compute:
                use.mem_used_bytes += _bytes(values, "drm-memory-vram")
            for engine in ENGINES:
                nanoseconds = values.get(engine, "").split(" ")[0]
                if nanoseconds.isdigit():
                    use.busy_ns[f"{engine} {client}"] = int(nanoseconds)
        processes = tuple(
            ProcessReading(pid, uuid, use.mem_used_bytes, self._share(pid, uuid, use, now),
                           "compute" if use.is_compute else "graphics")
            for (pid, uuid), use in sorted(uses.items())
            if use.mem_used_bytes > 0 or use.busy_ns)
        alive = {(pid, uuid, name) for (pid, uuid), use in uses.items() for name in use.busy_ns}
        self._counters = {key: self._counters[key] for key in alive}
        return processes

    def _compute(self) -> Iterator[tuple[int, str, float]]:
        """Return (pid, GPU, bytes) of all that compute. A chip in partitions counts as one."""
        uuids = self._boards_of_kfd()
        memory: dict[tuple[int, str], float] = {}
        for folder in self._kfd.glob("proc/*"):
            for path in folder.glob("vram_*") if folder.name.isdigit() else ():
                uuid = uuids.get(path.name.removeprefix("vram_"))
                value = number(path)
                if uuid is not None and not isinstance(value, Absence) and value > 0:
                    key = int(folder.name), uuid
                    memory[key] = memory.get(key, 0.0) + value
        yield from ((pid, uuid, value) for (pid, uuid), value in memory.items())

    def _boards_of_kfd(self) -> dict[str, str]:
        """Return UUIDs by the KFD's number of a GPU."""
        return {gpu_id: uuid for gpu_id, address in kfd_gpus(self._kfd)
                for place, uuid in self._uuids.items() if place.startswith(f"{address}.")}

    def _share(self, pid: int, uuid: str, use: _Use, now: float) -> float | None:
        """Return the share of time in which its busiest engine worked; None for compute, of which
        the kernel does not tell."""
        by_engine: dict[str, float] = {}
        for name, nanoseconds in use.busy_ns.items():
            counter = self._counters.setdefault((pid, uuid, name), MonotonicCounter())
            share = counter.share_pct(nanoseconds, 64, now)
            if not isinstance(share, Absence):
                engine = name.partition(" ")[0]
                by_engine[engine] = by_engine.get(engine, 0.0) + share
        if use.is_compute or not by_engine:
            return None
        return min(max(by_engine.values()), 100.0)


def kfd_gpus(kfd: Path = KFD) -> Iterator[tuple[str, str]]:
    """Return the KFD's number of each GPU and its PCI address without the function, in the order in
    which programs of ROCm count them. A chip in partitions comes once for each."""
    for node_number in numbers(kfd / "topology/nodes"):
        node = kfd / f"topology/nodes/{node_number}"
        gpu_id = text(node / "gpu_id").strip()
        values = properties(text(node / "properties"), " ")
        where, domain = values.get("location_id", ""), values.get("domain", "0")
        if gpu_id not in ("", "0") and where.isdigit() and domain.isdigit():
            bus = int(where)
            yield gpu_id, f"{int(domain):04x}:{bus >> 8 & 0xff:02x}:{bus >> 3 & 0x1f:02x}"


def _bytes(values: Mapping[str, str], name: str) -> float:
    amount, _, unit = values.get(name, "").partition(" ")
    return float(amount) * (KIB if unit == "KiB" else 1) if amount.isdigit() else 0.0

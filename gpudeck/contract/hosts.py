"""Metrics of a node's host: processor, memory, disks, network, and each task's share of them. One
table makes the wire, history, rules, Prometheus and docs."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from gpudeck.contract.collectives import MOST_JOBS, CollectiveSample
from gpudeck.contract.message_limits import Amount, Finite, Number, Seconds, Word
from gpudeck.contract.serving import MOST_SERVERS, ServingSample

MOST_TASKS = 1_024
MOST_NUMBERS = 64
EVERY_S = 5.0


class HostMetric(Struct, frozen=True):
    key: str
    unit: str
    label: str
    description: str
    high: float
    prometheus: str  # its name there; a percentage is a ratio there
    is_counter: bool = False  # since the host was booted


def _m(key: str, unit: str, label: str, description: str, high: float, prometheus: str,
       is_counter: bool = False) -> HostMetric:
    return HostMetric(key, unit, label, description, high, f"gpudeck_host_{prometheus}",
                      is_counter)


RATE, BYTES, MANY = 1e13, 2.0**52, 2.0**53
HOST: tuple[HostMetric, ...] = (
    _m("cpu_pct", "%", "CPU", "Share of all processors' time that was not idle, waiting for disks "
       "not counted.", 100, "cpu_ratio"),
    _m("cpu_user_pct", "%", "CPU in programs", "Share of all processors' time in programs.", 100,
       "cpu_user_ratio"),
    _m("cpu_system_pct", "%", "CPU in the kernel",
       "Share of all processors' time in the kernel, interrupts included.", 100,
       "cpu_system_ratio"),
    _m("cpu_iowait_pct", "%", "CPU waiting for disks",
       "Share of all processors' time that was idle while a process waited for a disk.", 100,
       "cpu_iowait_ratio"),
    _m("cpu_steal_pct", "%", "CPU taken by the hypervisor",
       "Share of all processors' time that the hypervisor gave to other machines.", 100,
       "cpu_steal_ratio"),
    _m("cpus", "", "Processors", "Processors that are online.", 1e6, "cpus"),
    _m("load_1m", "", "Load", "Load average over one minute.", 1e6, "load1"),
    _m("threads_blocked", "", "Blocked processes",
       "Processes that wait for a disk or a network file system and cannot be interrupted.", 1e7,
       "processes_blocked"),
    _m("mem_total_bytes", "B", "RAM", "Memory of the host.", BYTES, "memory_total_bytes"),
    _m("mem_used_bytes", "B", "RAM used", "Memory that no new program could be given.", BYTES,
       "memory_used_bytes"),
    _m("swap_used_bytes", "B", "Swap used", "Swap space in use.", BYTES, "swap_used_bytes"),
    _m("cpu_pressure_pct", "%", "CPU pressure",
       "Share of the time in which a task waited for a processor.", 100, "cpu_pressure_ratio"),
    _m("mem_pressure_pct", "%", "Memory pressure",
       "Share of the time in which a task waited for memory.", 100, "memory_pressure_ratio"),
    _m("io_pressure_pct", "%", "Disk pressure",
       "Share of the time in which a task waited for a disk or a network file system.", 100,
       "io_pressure_ratio"),
    _m("disk_read_bytes_per_s", "B/s", "Disk read", "Read from all disks.", RATE,
       "disk_read_bytes_per_second"),
    _m("disk_write_bytes_per_s", "B/s", "Disk written", "Written to all disks.", RATE,
       "disk_written_bytes_per_second"),
    _m("disk_busy_pct", "%", "Busiest disk",
       "Share of the time in which the busiest disk worked.", 100, "disk_busy_ratio"),
    _m("disk_full_pct", "%", "Fullest file system",
       "Share in use of the fullest file system on a disk of the host.", 100, "filesystem_ratio"),
    _m("net_rx_bytes_per_s", "B/s", "Network received", "Received by all network cards.", RATE,
       "network_received_bytes_per_second"),
    _m("net_tx_bytes_per_s", "B/s", "Network sent", "Sent by all network cards.", RATE,
       "network_sent_bytes_per_second"),
    _m("net_link_changes", "", "Network link changes",
       "How often a network card lost or found its link, since the host was booted.", MANY,
       "network_link_changes_total", True),
    _m("rdma_rx_bytes_per_s", "B/s", "InfiniBand received",
       "Received by all InfiniBand and RoCE ports.", RATE, "rdma_received_bytes_per_second"),
    _m("rdma_tx_bytes_per_s", "B/s", "InfiniBand sent",
       "Sent by all InfiniBand and RoCE ports.", RATE, "rdma_sent_bytes_per_second"),
    _m("rdma_link_downs", "", "InfiniBand link failures",
       "How often an InfiniBand port lost its link, since its counters began.", MANY,
       "rdma_link_downs_total", True),
)
HOST_KEYS: tuple[str, ...] = tuple(metric.key for metric in HOST)
HOST_AT: dict[str, int] = {key: at for at, key in enumerate(HOST_KEYS)}


class HostTask(Struct, frozen=True, array_like=True):
    """A task on GPUs with all its child processes. None: it may not be read, or is not known
    yet."""

    task_id: Word
    cpu_pct: Amount | None  # of one processor
    mem_bytes: Amount | None  # resident, of all its processes
    read_bytes_per_s: Amount | None  # from disks
    write_bytes_per_s: Amount | None
    blocked: Amount | None  # threads that wait for a disk and cannot be interrupted


class TaskCheckpoints(Struct, frozen=True, array_like=True):
    """Checkpoints of a task that writes them at regular intervals, as its node sees it."""

    task_id: Word
    last_at: Seconds  # the end of the last one
    every_s: Amount
    seen: Number  # how many of the last ones `every_s` is based on


class HostSample(Struct, frozen=True):
    """Numbers of a host. `numbers`: by key; a newer agent may send others. `missing`: why one is
    not there."""

    numbers: Annotated[dict[Word, Finite], Meta(max_length=MOST_NUMBERS)]
    missing: Annotated[dict[Word, Word], Meta(max_length=MOST_NUMBERS)] = {}
    tasks: Annotated[tuple[HostTask, ...], Meta(max_length=MOST_TASKS)] = ()
    serving: Annotated[tuple[ServingSample, ...], Meta(max_length=MOST_SERVERS)] = ()
    checkpoints: Annotated[tuple[TaskCheckpoints, ...], Meta(max_length=MOST_TASKS)] \
        | UnsetType = UNSET  # unset: none are known, or the agent is older
    collectives: Annotated[tuple[CollectiveSample, ...], Meta(max_length=MOST_JOBS)] \
        | UnsetType = UNSET  # unset: no job looks stuck, or NCCL is not asked here

    def number(self, key: str) -> float | None:
        """Return a number; None: not there, or out of its range."""
        value = self.numbers.get(key)
        at = HOST_AT.get(key)
        return value if value is not None and at is not None and 0 <= value <= HOST[at].high \
            else None

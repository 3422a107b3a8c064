"""The host of a simulated node, out of what its jobs do. Pure: from their seeds and the moment."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from gpudeck.contract.collectives import CollectiveRank, CollectiveSample
from gpudeck.contract.hosts import HostSample, HostTask
from gpudeck.contract.serving import ServingSample

from .chance import between, roll, seed_of
from .folder import task_id
from .jobs import SimulatedJob, twin_of
from .load import SimulatedLoad, load_of, waits_for_data
from .scenes import stuck_for_s

if TYPE_CHECKING:
    from .world import LiveJob

CPUS = 128
MEM_TOTAL_BYTES = 2.0 * 2**40
TOKENS_PER_S = 1_800.0  # that a GPU which has no pause generates
DISK_BYTES_PER_S = 6e9  # of the disks together
NCCL_SAYS_AFTER_S = 60.0
# Processors that a job keeps busy per GPU, and its memory on the host per GPU.
CORES = {"train": 5.5, "finetune": 3.0, "serve": 1.4, "notebook": 0.9, "hog": 0.01}
MEM_BYTES = {"train": 48e9, "finetune": 32e9, "serve": 14e9, "notebook": 9e9, "hog": 6e9}


def host_of(node: str, seed: int, lives: Sequence["LiveJob"], at: float) -> HostSample:
    tasks = tuple(_task(live, at) for live in lives)
    noise = roll(seed_of(seed, node, "host"), int(at))
    cores = 1.2 + noise + sum(task.cpu_pct or 0.0 for task in tasks) / 100
    busy = min(100.0, 100.0 * cores / CPUS)
    read, write = (sum(getattr(task, name) or 0.0 for task in tasks)
                   for name in ("read_bytes_per_s", "write_bytes_per_s"))
    waiting = sum(task.blocked or 0.0 for task in tasks)
    remote = 18e9 if twin_of(node) is not None and any(
        live.state == "running" and load_of(live.job, at).busy > 0.5 for live in lives) else 0.0
    return HostSample({
        "cpu_pct": busy, "cpu_user_pct": busy * 0.87, "cpu_system_pct": busy * 0.13,
        "cpu_iowait_pct": min(100.0 - busy, 2.5 * waiting), "cpu_steal_pct": 0.0,
        "cpus": float(CPUS), "load_1m": round(cores + waiting, 2), "threads_blocked": waiting,
        "mem_total_bytes": MEM_TOTAL_BYTES,
        "mem_used_bytes": 2.1e10 + sum(task.mem_bytes or 0.0 for task in tasks),
        "swap_used_bytes": 0.0, "cpu_pressure_pct": round(busy * 0.04, 2),
        "mem_pressure_pct": 0.0, "io_pressure_pct": min(100.0, 14.0 * waiting + 0.4 * noise),
        "disk_read_bytes_per_s": read, "disk_write_bytes_per_s": write + 2e5,
        "disk_busy_pct": min(100.0, 100.0 * (read + write) / DISK_BYTES_PER_S),
        "disk_full_pct": between(31, 88, roll(seed_of(seed, node, "disk"), 0)),
        "net_rx_bytes_per_s": read * 1.02 + 4e4, "net_tx_bytes_per_s": write * 0.7 + 3e4,
        "net_link_changes": 2.0, "rdma_rx_bytes_per_s": remote * between(0.9, 1.0, noise),
        "rdma_tx_bytes_per_s": remote * between(0.9, 1.0, noise), "rdma_link_downs": 0.0,
    }, {}, tasks, tuple(_server(live.job, at) for live in lives
                        if live.job.kind == "serve" and live.state == "running"),
        collectives=tuple(_standstill(live.job, stuck_for_s(node, live.job, at)) for live in lives
                          if len(live.job.gpus) > 1
                          and stuck_for_s(node, live.job, at) >= NCCL_SAYS_AFTER_S) or UNSET)


def _standstill(job: SimulatedJob, still_s: float) -> CollectiveSample:
    """Return what NCCL says of a job that hangs: its last rank has not joined a collective."""
    size, launched = len(job.gpus), 1_000 + job.seed % 90_000
    last = CollectiveRank(size - 1, "127.0.0.1", job.pid, size - 1)
    return CollectiveSample(
        task_id(job), communicator=f"0x{job.seed % 2**48:012x}", size=size, still_s=still_s,
        ahead=size - 1, least=launched - 1, most=launched, behind=(last,), behind_count=1)


def _server(job: SimulatedJob, at: float) -> ServingSample:
    """Return what it serves. Counters are left out: rates of the moment cannot be counted back to
    its start."""
    busy, gpus = load_of(job, at).busy, max(1, len(job.gpus))
    rate = round(TOKENS_PER_S * gpus * busy, 1)
    queue = max(0.0, float(int(40 * gpus * (busy - 0.8))))
    return ServingSample(
        task_id(job), "vllm", "", None, None, round(3.1 * rate, 1), rate,
        float(int(64 * busy * gpus)), queue, round(100 * min(1.0, 0.08 + 0.9 * busy), 1),
        round(0.08 + 0.9 * busy * busy + queue / 50, 3), round(0.011 + 0.03 * busy, 4),
        round(3 + 9 * busy, 2))


def _task(live: "LiveJob", at: float) -> HostTask:
    job = live.job
    load = load_of(job, at)
    gpus, works = max(1, len(job.gpus)), live.state == "running"
    starved = works and waits_for_data(job, at)
    jitter = between(0.9, 1.1, roll(job.seed, int(at) + 31))
    return HostTask(
        task_id(job), 100.0 * gpus * CORES[job.kind] * _effort(job, load, starved) * jitter
        if works else 0.0,
        gpus * MEM_BYTES[job.kind] * between(0.8, 1.2, roll(job.seed, 32)),
        _read(job, gpus, starved) * jitter if works else 0.0,
        gpus * 1.6e9 if works and load.sent > 0.4 else 0.0,  # a checkpoint leaves
        float(gpus * 2) if starved else 0.0)


def _effort(job: SimulatedJob, load: SimulatedLoad, starved: bool) -> float:
    if job.kind in ("train", "finetune"):
        return 1.0 if starved else 0.35 + 0.4 * load.busy
    return 1.0 if job.kind == "hog" else 0.03 + load.busy


def _read(job: SimulatedJob, gpus: int, starved: bool) -> float:
    rate = {"train": 2.2e8, "finetune": 1.4e8}.get(job.kind, 1e4)
    return gpus * rate * (1.6 if starved else 1.0)

"""Collector of host metrics: it reads /proc and /sys every five seconds, but never a network file
system, where a read would block while the server is down."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import structs

from gpudeck.contract.hosts import EVERY_S, HOST, MOST_TASKS, HostSample, HostTask

from ..readings import Reading
from ..tasks.seen import GpuTask
from . import core
from .collective_watch import CollectiveWatch
from .core import TaskCounters
from .ras_core import suspect_jobs
from .serving_watch import ServingWatch

READ_MOST = 262_144
LIST_EVERY_S = 60.0  # disks, cards and file systems seldom change
MOST_PROCESSES = 512  # of all tasks, in one sample
MOST_THREADS = 1_024
HIGHS = {metric.key: metric.high for metric in HOST}
LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "overlay"))
PRESSURES = {"cpu_pressure_pct": "cpu", "mem_pressure_pct": "memory", "io_pressure_pct": "io"}

TaskPid = tuple[str, int]  # the id of a task, its process


class HostCollector:
    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys"),
                 clock: Callable[[], float] = time.monotonic,
                 serving: ServingWatch | None = None,
                 collectives: CollectiveWatch | None = None) -> None:
        """`serving`: reads the metrics of model servers; `collectives`: asks the NCCL of jobs that
        look stuck. None: that is not done."""
        self._serving, self._collectives = serving, collectives
        self._proc, self._sys, self._clock = proc, sys, clock
        self._at: float | None = None
        self._listed_at = -LIST_EVERY_S
        self._disks: frozenset[str] = frozenset()
        self._cards: frozenset[str] = frozenset()
        self._mounts: tuple[str, ...] = ()
        self._ports: tuple[Path, ...] = ()
        self._before: dict[str, object] = {}
        self._tasks: dict[str, TaskCounters] = {}
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def is_due(self, now: float) -> bool:
        return self._at is None or now - self._at >= EVERY_S - 0.5

    def with_host(self, reading: Reading, gpu_tasks: Iterable[GpuTask], now: float) -> Reading:
        """Add the host's sample if it is due. A recording or a simulation brings its own."""
        if reading.host is not None or not self.is_due(now):
            return reading
        gpu_tasks = tuple(gpu_tasks)
        tasks = [(gpu_task.task.id, gpu_task.task.pid) for gpu_task in gpu_tasks]
        sample = self.collect(tasks)
        if self._serving is not None:
            self._serving.set_tasks(tasks)
            sample = structs.replace(sample, serving=self._serving.samples)
        if self._collectives is not None:
            self._collectives.set_suspects(suspect_jobs(reading.gpus, reading.facts, gpu_tasks))
            if self._collectives.samples:
                sample = structs.replace(sample, collectives=self._collectives.samples)
        return structs.replace(reading, host=sample)

    def close(self) -> None:
        for watch in (self._serving, self._collectives):
            if watch is not None:
                watch.close()

    def collect(self, tasks: Iterable[TaskPid]) -> HostSample:
        """Collect a sample. Rates cover the time since the previous sample; the first one has
        none."""
        now = self._clock()
        seconds = 0.0 if self._at is None else now - self._at
        self._at = now
        if now - self._listed_at >= LIST_EVERY_S:
            self._list()
            self._listed_at = now
        numbers: dict[str, float] = {}
        missing: dict[str, str] = {}
        for collect in (self._cpu, self._memory, self._pressure, self._disk, self._network,
                        self._rdma):
            values, absent = collect(seconds)
            numbers |= values
            missing |= absent
        numbers = core.within_range(numbers, HIGHS)
        rest = {metric.key: "unknown" for metric in HOST if metric.key not in numbers}
        return HostSample(numbers, rest | {key: why for key, why in missing.items()
                                           if key not in numbers}, self._of_tasks(tasks, seconds))

    def _list(self) -> None:
        """List whole disks, network cards that are hardware, mounted disks, InfiniBand ports."""
        self._disks = frozenset(_names(self._sys / "block"))
        cards = _names(self._sys / "class/net")
        physical = [name for name in cards if (self._sys / "class/net" / name / "device").exists()]
        self._cards = frozenset(physical or [name for name in cards if name != "lo"])
        self._ports = tuple(self._sys.glob("class/infiniband/*/ports/*/counters"))
        mounts: dict[str, str] = {}
        for line in (_read(self._proc / "self/mounts") or "").splitlines():
            words = line.split()
            if len(words) >= 3 and words[2] in LOCAL:
                mounts.setdefault(words[0], words[1].replace("\\040", " "))
        self._mounts = tuple(mounts.values())[:64]

    def _cpu(self, seconds: float) -> tuple[dict[str, float], dict[str, str]]:
        text = _read(self._proc / "stat")
        if text is None:
            return {}, {}
        now = core.cpu_counters(text)
        before, self._before["cpu"] = self._before.get("cpu"), now
        numbers: dict[str, float] = {
            key: now[key] for key in ("cpus", "threads_blocked") if key in now}
        if isinstance(before, dict):
            numbers |= core.cpu_numbers(before, now)
        load = _read(self._proc / "loadavg")
        return numbers | ({} if load is None else {"load_1m": float(load.split()[0])}), {}

    def _memory(self, seconds: float) -> tuple[dict[str, float], dict[str, str]]:
        return core.memory_numbers(_read(self._proc / "meminfo") or ""), {}

    def _pressure(self, seconds: float) -> tuple[dict[str, float], dict[str, str]]:
        numbers, missing = {}, {}
        for key, name in PRESSURES.items():
            text = _read(self._proc / "pressure" / name)
            us = None if text is None else core.pressure_us(text)
            before, self._before[key] = self._before.get(key), us
            if us is None:  # a kernel without PSI, or one that was started with it off
                missing[key] = "unsupported"
            elif isinstance(before, float) and seconds > 0:
                numbers[key] = min(100.0, max(0.0, us - before) / 1e4 / seconds)
        return numbers, missing

    def _disk(self, seconds: float) -> tuple[dict[str, float], dict[str, str]]:
        now = core.disk_counters(_read(self._proc / "diskstats") or "", self._disks)
        before, self._before["disk"] = self._before.get("disk"), now
        numbers = core.fullest(map(_full_pct, self._mounts))
        if isinstance(before, dict) and seconds > 0:
            numbers |= core.disk_numbers(before, now, seconds)
        return numbers, {}

    def _network(self, seconds: float) -> tuple[dict[str, float], dict[str, str]]:
        now = core.net_counters(_read(self._proc / "net/dev") or "", self._cards)
        before, self._before["net"] = self._before.get("net"), now
        changes = [_number(self._sys / "class/net" / name / "carrier_changes")
                   for name in self._cards]
        known_changes = [value for value in changes if value is not None]
        numbers = {"net_link_changes": sum(known_changes)} if known_changes else {}
        if isinstance(before, dict) and seconds > 0:
            numbers |= core.pair_numbers(("net_rx_bytes_per_s", "net_tx_bytes_per_s"), before, now,
                                         seconds)
        return numbers, {}

    def _rdma(self, seconds: float) -> tuple[dict[str, float], dict[str, str]]:
        if not self._ports:
            return {}, dict.fromkeys(
                ("rdma_rx_bytes_per_s", "rdma_tx_bytes_per_s", "rdma_link_downs"), "unsupported")
        now = {}
        for port in self._ports:
            rx_words, tx_words = _number(port / "port_rcv_data"), _number(port / "port_xmit_data")
            if rx_words is not None and tx_words is not None:
                now[str(port)] = (rx_words, tx_words)
        before, self._before["rdma"] = self._before.get("rdma"), now
        downs = [_number(port / "link_downed") for port in self._ports]
        known_downs = [value for value in downs if value is not None]
        numbers = {"rdma_link_downs": sum(known_downs)} if known_downs else {}
        if isinstance(before, dict) and seconds > 0:
            numbers |= core.pair_numbers(("rdma_rx_bytes_per_s", "rdma_tx_bytes_per_s"), before,
                                         now, seconds, core.LANES_BYTES)
        return numbers, {}

    # -- tasks

    def _of_tasks(self, tasks: Iterable[TaskPid], seconds: float) -> tuple[HostTask, ...]:
        host_tasks, counters = [], {}
        processes, threads = MOST_PROCESSES, MOST_THREADS
        for task_id, pid in [*dict.fromkeys(tasks)][:MOST_TASKS]:
            tree = _tree(self._proc, pid, processes)
            processes -= len(tree)
            now, threads = self._count_tree(tree, threads)
            if now is not None:
                counters[task_id] = now
                host_tasks.append(core.host_task(task_id, self._tasks.get(task_id), now, seconds))
        self._tasks = counters
        return tuple(host_tasks)

    def _count_tree(self, tree: list[int], threads: int) -> tuple[TaskCounters | None, int]:
        counters, memory, blocked, is_whole = TaskCounters(), 0.0, 0, True
        for pid in tree:
            stat = core.stat_of(_bytes(f"{self._proc}/{pid}/stat"))
            if stat is None:
                continue
            state, ticks, pages, of_threads = stat
            counters.cpu_s[pid] = ticks / self._ticks_per_s
            memory += pages * self._page_bytes
            if of_threads <= threads:
                threads -= int(of_threads)
                blocked += state == "D" if of_threads == 1 else self._blocked(pid)
            else:
                is_whole = False
            io = core.io_counters(_bytes(f"{self._proc}/{pid}/io").decode(errors="replace"))
            if io is not None:
                counters.read_bytes[pid], counters.write_bytes[pid] = io
        if not counters.cpu_s:
            return None, threads
        counters.mem_bytes, counters.blocked = memory, float(blocked) if is_whole else None
        return counters, threads

    def _blocked(self, pid: int) -> int:
        states = (core.stat_of(_bytes(f"{self._proc}/{pid}/task/{thread}/stat"))
                  for thread in _names(self._proc / str(pid) / "task"))
        return sum(state is not None and state[0] == "D" for state in states)


def _tree(proc: Path, root: int, most: int) -> list[int]:
    """Return the process and its descendants, at most `most`. Of a process's threads only the first
    is asked for children: it is the one that starts workers, and asking hundreds of others would
    cost more than everything else."""
    pids = [root]
    for pid in pids:
        pids += map(int, _bytes(f"{proc}/{pid}/task/{pid}/children").split())
        if len(pids) >= most:
            break
    return pids[:most]


def _read(path: Path) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read(READ_MOST).decode(errors="replace")
    except OSError:  # also on reading: a kernel started without pressure stalls fails only then
        return None


def _bytes(path: str) -> bytes:
    """Return up to 8 KiB of a file; b"": the process has ended, or is another user's."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, 8_192)
    except OSError:
        return b""
    finally:
        os.close(file)


def _number(path: Path) -> float | None:
    text = _read(path)
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _full_pct(path: str) -> float:
    """Return the share of a file system that is full, in percent. -1: not known."""
    try:
        stats = os.statvfs(path)
    except OSError:
        return -1.0
    whole = stats.f_blocks - stats.f_bfree + stats.f_bavail
    return -1.0 if whole <= 0 else 100.0 * (1 - stats.f_bavail / whole)

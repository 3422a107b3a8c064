"""Values in the files of /proc and /sys, and the rates between two samples. Pure."""

import re
from collections.abc import Iterable, Mapping

from gpudeck.contract.hosts import HOST_AT, HostTask

SECTOR_BYTES = 512  # in /proc/diskstats, whatever the disk's own sectors are
LANES_BYTES = 4  # per count of an InfiniBand port: it counts words of 32 bits
KIB = 1024.0
# Below these is a disk that counts the same bytes; a loop device is a file on one.
NOT_DISKS = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|nbd)\d")

Counters = Mapping[str, float]
CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def cpu_counters(stat: str) -> dict[str, float]:
    """Return the counters of /proc/stat, in ticks; guests are counted within user and nice."""
    counters: dict[str, float] = {}
    for line in stat.splitlines():
        name, *words = line.split()
        if name == "cpu":
            counters |= dict(zip(CPU, map(float, words), strict=False))
        elif name.startswith("cpu"):
            counters["cpus"] = counters.get("cpus", 0.0) + 1
        elif name == "procs_blocked":
            counters["threads_blocked"] = float(words[0])
    return counters


def cpu_numbers(before: Counters, now: Counters) -> dict[str, float]:
    """Return shares of the time in between. A counter may go back by a tick (iowait does): that
    counts as 0."""
    ticks = {name: max(0.0, now[name] - before[name]) for name in CPU
             if name in before and name in now}
    total = sum(ticks.values())
    if total <= 0:
        return {}
    share = {name: 100.0 * value / total for name, value in ticks.items()}
    idle = share["idle"] + share.get("iowait", 0.0)
    return {
        "cpu_pct": max(0.0, 100.0 - idle), "cpu_user_pct": share["user"] + share["nice"],
        "cpu_system_pct": share["system"] + share.get("irq", 0.0) + share.get("softirq", 0.0),
        "cpu_iowait_pct": share.get("iowait", 0.0), "cpu_steal_pct": share.get("steal", 0.0),
    }


def memory_numbers(meminfo: str) -> dict[str, float]:
    fields: dict[str, float] = {}
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words:
            fields[name] = float(words[0]) * (KIB if words[1:] == ["kB"] else 1.0)
    numbers = {}
    if "MemTotal" in fields:
        numbers["mem_total_bytes"] = fields["MemTotal"]
        if "MemAvailable" in fields:
            numbers["mem_used_bytes"] = fields["MemTotal"] - fields["MemAvailable"]
    if "SwapTotal" in fields and "SwapFree" in fields:
        numbers["swap_used_bytes"] = fields["SwapTotal"] - fields["SwapFree"]
    return numbers


def pressure_us(text: str) -> float | None:
    """Return the total time that some task has waited, from /proc/pressure/X, in microseconds."""
    for line in text.splitlines():
        if line.startswith("some "):
            return float(line.rpartition("total=")[2])
    return None


def disk_counters(diskstats: str, wholes: frozenset[str]) -> dict[str, tuple[float, float, float]]:
    """Return for each disk: bytes read, bytes written, milliseconds in which it was busy. `wholes`:
    names of whole disks, since the same file lists partitions."""
    counters = {}
    for line in diskstats.splitlines():
        words = line.split()
        if len(words) >= 13 and words[2] in wholes and not NOT_DISKS.match(words[2]):
            counters[words[2]] = (float(words[5]) * SECTOR_BYTES, float(words[9]) * SECTOR_BYTES,
                                  float(words[12]))
    return counters


def disk_numbers(before: Mapping[str, tuple[float, float, float]],
                 now: Mapping[str, tuple[float, float, float]], seconds: float
                 ) -> dict[str, float]:
    """Return the rates of all disks. One that came or went in between counts from the next sample
    on."""
    pairs = [(before[name], now[name]) for name in now if name in before]
    if not pairs:
        return {}
    return {
        "disk_read_bytes_per_s": sum(_growth(a[0], b[0]) for a, b in pairs) / seconds,
        "disk_write_bytes_per_s": sum(_growth(a[1], b[1]) for a, b in pairs) / seconds,
        "disk_busy_pct": min(100.0, max(_growth(a[2], b[2]) for a, b in pairs) / 10.0 / seconds),
    }


def net_counters(text: str, cards: frozenset[str]) -> dict[str, tuple[float, float]]:
    """Return bytes in and out of each card, from /proc/net/dev."""
    counters = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and name.strip() in cards and len(words) >= 9:
            counters[name.strip()] = (float(words[0]), float(words[8]))
    return counters


def pair_numbers(names: tuple[str, str], before: Mapping[str, tuple[float, float]],
                 now: Mapping[str, tuple[float, float]], seconds: float, unit: float = 1.0
                 ) -> dict[str, float]:
    pairs = [(before[name], now[name]) for name in now if name in before]
    if not pairs:
        return {}
    return {key: unit * sum(_growth(a[at], b[at]) for a, b in pairs) / seconds
            for at, key in enumerate(names)}


def _growth(before: float, now: float) -> float:
    """Return the growth of a counter; one that was reset counts as not grown until the next
    sample."""
    return max(0.0, now - before)


def within_range(numbers: Mapping[str, float], highs: Mapping[str, float]) -> dict[str, float]:
    return {key: value for key, value in numbers.items()
            if key in HOST_AT and 0 <= value <= highs[key]}


# -- tasks


class TaskCounters:
    """Counters of a task and all its child processes, at one moment."""

    __slots__ = ("blocked", "cpu_s", "mem_bytes", "read_bytes", "write_bytes")

    def __init__(self) -> None:
        # By process: one that has ended lowers no rate.
        self.cpu_s: dict[int, float] = {}
        self.read_bytes: dict[int, float] = {}
        self.write_bytes: dict[int, float] = {}
        self.mem_bytes: float | None = None
        self.blocked: float | None = None


def host_task(task_id: str, before: TaskCounters | None, now: TaskCounters, seconds: float
              ) -> HostTask:
    def rate(name: str, unit: float = 1.0) -> float | None:
        latest: dict[int, float] = getattr(now, name)
        if before is None or not latest or seconds <= 0:
            return None
        previous: dict[int, float] = getattr(before, name)
        # A child that is new counts in full, if anything was known before.
        return unit * sum(_growth(previous.get(pid, 0.0), value) for pid, value in latest.items()) \
            / seconds if previous else None

    return HostTask(task_id, rate("cpu_s", 100.0), now.mem_bytes, rate("read_bytes"),
                    rate("write_bytes"), now.blocked)


def io_counters(text: str) -> tuple[float, float] | None:
    """Return the bytes that a process has read from disks and written to them, from
    /proc/PID/io."""
    counters: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in ("read_bytes", "write_bytes"):
            counters[name] = float(value)
    return (counters["read_bytes"], counters["write_bytes"]) if len(counters) == 2 else None


def stat_of(stat: bytes) -> tuple[str, float, float, float] | None:
    """Return the state's letter, CPU ticks, resident pages and threads from /proc/PID/stat. The
    name in brackets may itself contain brackets and blanks. Ticks of children that have ended are
    left out: those were counted while they ran."""
    words = stat.rpartition(b")")[2].split()
    try:
        ticks = int(words[11]) + int(words[12])
        return words[0].decode(), float(ticks), float(words[21]), float(words[17])
    except (IndexError, ValueError):
        return None


def fullest(shares: Iterable[float]) -> dict[str, float]:
    known_shares = [share for share in shares if 0 <= share <= 100]
    return {"disk_full_pct": max(known_shares)} if known_shares else {}

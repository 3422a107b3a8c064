"""What the files of /proc and /sys say, and the rates between two looks. Pure."""

import re
from collections.abc import Iterable, Mapping

from gpudeck.hosts import HOST_AT, HostTask

SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own are
LANES_BYTES = 4  # of an InfiniBand port's data counters: they count words of 32 bits
KIB = 1024.0
# Of these a disk stands below, which counts the same bytes; a loop device is a file on one.
NOT_DISKS = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|nbd)\d")

Counters = Mapping[str, float]
CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def cpu_counters(stat: str) -> dict[str, float]:
    """Of /proc/stat, in ticks; guests are counted within user and nice."""
    found: dict[str, float] = {}
    for line in stat.splitlines():
        name, *words = line.split()
        if name == "cpu":
            found |= dict(zip(CPU, map(float, words), strict=False))
        elif name.startswith("cpu"):
            found["cpus"] = found.get("cpus", 0.0) + 1
        elif name == "procs_blocked":
            found["threads_blocked"] = float(words[0])
    return found


def cpu_numbers(before: Counters, now: Counters) -> dict[str, float]:
    """Shares of the time between; a counter may go back by a tick (iowait does): that is none."""
    spent = {name: max(0.0, now[name] - before[name]) for name in CPU
             if name in before and name in now}
    total = sum(spent.values())
    if total <= 0:
        return {}
    share = {name: 100.0 * value / total for name, value in spent.items()}
    idle = share["idle"] + share.get("iowait", 0.0)
    return {
        "cpu_pct": max(0.0, 100.0 - idle), "cpu_user_pct": share["user"] + share["nice"],
        "cpu_system_pct": share["system"] + share.get("irq", 0.0) + share.get("softirq", 0.0),
        "cpu_iowait_pct": share.get("iowait", 0.0), "cpu_steal_pct": share.get("steal", 0.0),
    }


def memory_numbers(meminfo: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words:
            found[name] = float(words[0]) * (KIB if words[1:] == ["kB"] else 1.0)
    numbers = {}
    if "MemTotal" in found:
        numbers["mem_total_bytes"] = found["MemTotal"]
        if "MemAvailable" in found:
            numbers["mem_used_bytes"] = found["MemTotal"] - found["MemAvailable"]
    if "SwapTotal" in found and "SwapFree" in found:
        numbers["swap_used_bytes"] = found["SwapTotal"] - found["SwapFree"]
    return numbers


def pressure_us(text: str) -> float | None:
    """Of /proc/pressure/X: for how long some task has waited, ever."""
    for line in text.splitlines():
        if line.startswith("some "):
            return float(line.rpartition("total=")[2])
    return None


def disk_counters(diskstats: str, wholes: frozenset[str]) -> dict[str, tuple[float, float, float]]:
    """Of each disk: bytes read, bytes written, milliseconds in which it worked. `wholes`: names of
    whole disks, since partitions stand in the same file."""
    found = {}
    for line in diskstats.splitlines():
        words = line.split()
        if len(words) >= 13 and words[2] in wholes and not NOT_DISKS.match(words[2]):
            found[words[2]] = (float(words[5]) * SECTOR_BYTES, float(words[9]) * SECTOR_BYTES,
                               float(words[12]))
    return found


def disk_numbers(before: Mapping[str, tuple[float, float, float]],
                 now: Mapping[str, tuple[float, float, float]], seconds: float
                 ) -> dict[str, float]:
    """A disk that came or went since counts from the next look on."""
    both = [(before[name], now[name]) for name in now if name in before]
    if not both:
        return {}
    return {
        "disk_read_bytes_per_s": sum(_grown(a[0], b[0]) for a, b in both) / seconds,
        "disk_write_bytes_per_s": sum(_grown(a[1], b[1]) for a, b in both) / seconds,
        "disk_busy_pct": min(100.0, max(_grown(a[2], b[2]) for a, b in both) / 10.0 / seconds),
    }


def net_counters(text: str, cards: frozenset[str]) -> dict[str, tuple[float, float]]:
    """Of /proc/net/dev, bytes in and out of each card."""
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and name.strip() in cards and len(words) >= 9:
            found[name.strip()] = (float(words[0]), float(words[8]))
    return found


def pair_numbers(names: tuple[str, str], before: Mapping[str, tuple[float, float]],
                 now: Mapping[str, tuple[float, float]], seconds: float, unit: float = 1.0
                 ) -> dict[str, float]:
    both = [(before[name], now[name]) for name in now if name in before]
    if not both:
        return {}
    return {key: unit * sum(_grown(a[at], b[at]) for a, b in both) / seconds
            for at, key in enumerate(names)}


def _grown(before: float, now: float) -> float:
    """A counter that was reset counts as not grown until the next look."""
    return max(0.0, now - before)


def within_range(numbers: Mapping[str, float], highs: Mapping[str, float]) -> dict[str, float]:
    return {key: value for key, value in numbers.items()
            if key in HOST_AT and 0 <= value <= highs[key]}


# -- tasks


class TaskCounters:
    """Of a task and all its child processes, as they were at one look."""

    __slots__ = ("blocked", "cpu_s", "mem_bytes", "read_bytes", "write_bytes")

    def __init__(self) -> None:
        # By process: who has ended takes nothing back.
        self.cpu_s: dict[int, float] = {}
        self.read_bytes: dict[int, float] = {}
        self.write_bytes: dict[int, float] = {}
        self.mem_bytes: float | None = None
        self.blocked: float | None = None


def host_task(task_id: str, before: TaskCounters | None, now: TaskCounters, seconds: float
              ) -> HostTask:
    def rate(name: str, unit: float = 1.0) -> float | None:
        counted: dict[int, float] = getattr(now, name)
        if before is None or not counted or seconds <= 0:
            return None
        had: dict[int, float] = getattr(before, name)
        # A child that came since counts whole, as long as anything was known before.
        return unit * sum(_grown(had.get(pid, 0.0), value) for pid, value in counted.items()) \
            / seconds if had else None

    return HostTask(task_id, rate("cpu_s", 100.0), now.mem_bytes, rate("read_bytes"),
                    rate("write_bytes"), now.blocked)


def io_counters(text: str) -> tuple[float, float] | None:
    """Of /proc/PID/io: what it had read from disks and written to them."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in ("read_bytes", "write_bytes"):
            found[name] = float(value)
    return (found["read_bytes"], found["write_bytes"]) if len(found) == 2 else None


def stat_of(stat: bytes) -> tuple[str, float, float, float] | None:
    """Of /proc/PID/stat: the state's letter, CPU ticks, resident pages, threads. The name in
    brackets may hold brackets and blanks itself. Without the ticks of children that have ended:
    those were counted while they ran."""
    words = stat.rpartition(b")")[2].split()
    try:
        ticks = int(words[11]) + int(words[12])
        return words[0].decode(), float(ticks), float(words[21]), float(words[17])
    except (IndexError, ValueError):
        return None


def fullest(shares: Iterable[float]) -> dict[str, float]:
    found = [share for share in shares if 0 <= share <= 100]
    return {"disk_full_pct": max(found)} if found else {}

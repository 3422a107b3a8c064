"""Cost of the agent itself on its machine: a monitor that is the load is of no use
(pitfalls.md 20)."""

import os
import shutil
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpudeck.contract.wire import Cost
from gpudeck.system.process_cost import PROC, pss_bytes, spent_s

from ..runtime.data_lock import agent_pid
from ..tasks.processes import table

# The kernel walks all pages for it: about a millisecond.
MEMORY_EVERY_S = 60.0
FULL_BELOW_BYTES = 256 * 2**10  # sqlite wants some pages at a time


class ProcessCostMeter:
    """CPU between two readings, memory now and then; of all the given processes together."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, proc: Path = PROC) -> None:
        self._clock = clock
        self._proc = proc
        self._looked_at: float | None = None
        self._cpu_s: dict[int, float] = {}
        self._memory_at: float | None = None
        self._memory_bytes: float | None = None
        self._pids: frozenset[int] = frozenset()

    def take(
        self, pids: frozenset[int], read_s: float | None, outbox_bytes: float | None
    ) -> Cost:
        now = self._clock()
        return Cost(self._cpu_pct(pids, now), self._memory(pids, now), read_s, outbox_bytes)

    def _cpu_pct(self, pids: frozenset[int], now: float) -> float | None:
        """Return the percentage of one core. A process that came since the last reading counts
        whole, one that went does not count."""
        before, self._cpu_s = self._cpu_s, spent_s(pids, self._proc)
        last, self._looked_at = self._looked_at, now
        if last is None or now <= last or not self._cpu_s:
            return None
        used_s = sum(max(0.0, cpu_s - before.get(pid, 0.0)) for pid, cpu_s in self._cpu_s.items())
        return 100.0 * used_s / (now - last)

    def _memory(self, pids: frozenset[int], now: float) -> float | None:
        due = self._memory_at is None or now - self._memory_at >= MEMORY_EVERY_S
        if due or pids != self._pids:
            amounts = [pss_bytes(pid, self._proc) for pid in pids]
            known_amounts = [amount for amount in amounts if amount is not None]
            is_whole = bool(amounts) and len(known_amounts) == len(amounts)
            self._memory_bytes = sum(known_amounts) if is_whole else None
            self._memory_at, self._pids = now, pids
        return self._memory_bytes


class AgentCostMeter:
    """Cost of the agent that runs on this folder, from the making of this to `take`."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._meter = ProcessCostMeter()
        self._agent = agent_pid(data)
        self._look()

    def take(self) -> dict[str, Any] | None:
        if self._agent is None or agent_pid(self._data) != self._agent:
            return None
        cost = self._look()
        return {"pid": self._agent, "cpu_pct": cost.cpu_pct, "memory_bytes": cost.memory_bytes,
                "outbox_bytes": cost.outbox_bytes}

    def _look(self) -> Cost:
        # Its children are its readers: it starts nothing else.
        pids = frozenset() if self._agent is None else frozenset(
            (self._agent, *(row.pid for row in table().values() if row.parent == self._agent)))
        return self._meter.take(pids, None, size_of(outbox_files(self._data)))


def size_of(files: Iterable[Path]) -> float | None:
    """Return the total size in bytes; None: none of them is there."""
    sizes = []
    for path in files:
        try:
            sizes.append(os.stat(path).st_size)
        except OSError:
            continue
    return float(sum(sizes)) if sizes else None


def disk_trouble(data: Path) -> str:
    """Return why nothing can be stored; "": there is room, or nothing is stored there yet."""
    try:
        free = shutil.disk_usage(data).free
    except OSError:
        return ""
    if free >= FULL_BELOW_BYTES:
        return ""
    return (f"the disk of {data} is full: free some space; until then live data "
            "continues, an outage of the hub is bridged only from memory, and actions are refused")


@lru_cache(maxsize=4)
def outbox_files(data: Path) -> tuple[Path, ...]:
    return tuple(data / f"journal.db{end}" for end in ("", "-wal"))

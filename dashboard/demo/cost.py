"""CPU and memory of a demo by group of processes: with a thousand simulated nodes, how much of the
load is the simulation and how much the hub."""

import time
from collections.abc import Callable, Mapping

from gpudeck.system.process_cost import children_of, pss_bytes, spent_s

OVER_S = 30.0

Groups = Mapping[str, list[int]]


class DemoCostMeter:
    """Measures groups of processes with their children. `line` returns the text once, when the time
    is over."""

    def __init__(self, groups: Callable[[], Groups], over_s: float = OVER_S) -> None:
        self._groups = groups
        self._over_s = over_s
        self._began: float | None = None
        self._before: dict[int, float] = {}
        self._is_reported = False

    def line(self) -> str | None:
        if self._is_reported:
            return None
        now = time.monotonic()
        if self._began is None:
            self._began, self._before = now, self._cpu_seconds()
        if now - self._began < self._over_s:
            return None
        self._is_reported = True
        return self._sentence(now - self._began)

    def _cpu_seconds(self) -> dict[int, float]:
        return spent_s(
            pid for members in self._groups().values() for pid in _with_children(members))

    def _sentence(self, passed_s: float) -> str:
        now = self._cpu_seconds()
        costs = [_cost(name, _with_children(members), now, self._before, passed_s)
                 for name, members in self._groups().items() if members]
        return (f"Over the last {passed_s:.0f} s, of one core and of memory: {'; '.join(costs)}. "
                "A page's own cost in the browser is in its help (?).")


def _with_children(members: list[int]) -> list[int]:
    return [process for pid in members for process in (pid, *children_of(pid))]


def _cost(name: str, pids: list[int], now: Mapping[int, float], before: Mapping[int, float],
          passed_s: float) -> str:
    cpu = sum(now[pid] - before.get(pid, 0.0) for pid in pids if pid in now)
    memory = sum(amount for pid in pids if (amount := pss_bytes(pid)) is not None)
    return f"{name} {100 * cpu / passed_s:.1f} %, {memory / 1e6:.0f} MB"

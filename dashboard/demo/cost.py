"""What a demo takes from this machine, by what its processes do: with a thousand simulated
nodes, how much of the load is the simulation and how much the hub."""

import time
from collections.abc import Callable, Mapping

from gpudeck.process_cost import children_of, pss_bytes, spent_s

OVER_S = 30.0

Groups = Mapping[str, list[int]]


class DemoCostMeter:
    """Of the processes named, each with its children. `line`: once, when the time is over."""

    def __init__(self, groups: Callable[[], Groups], over_s: float = OVER_S) -> None:
        self._groups = groups
        self._over_s = over_s
        self._began: float | None = None
        self._before: dict[int, float] = {}
        self._is_told = False

    def line(self) -> str | None:
        if self._is_told:
            return None
        now = time.monotonic()
        if self._began is None:
            self._began, self._before = now, self._spent()
        if now - self._began < self._over_s:
            return None
        self._is_told = True
        return self._words(now - self._began)

    def _spent(self) -> dict[int, float]:
        return spent_s(pid for members in self._groups().values() for pid in _whole(members))

    def _words(self, passed_s: float) -> str:
        now = self._spent()
        told = [_told(name, _whole(members), now, self._before, passed_s)
                for name, members in self._groups().items() if members]
        return (f"Over the last {passed_s:.0f} s, of one core and of memory: {'; '.join(told)}. "
                "A page's own cost in the browser is in its help (?).")


def _whole(members: list[int]) -> list[int]:
    return [each for pid in members for each in (pid, *children_of(pid))]


def _told(name: str, pids: list[int], now: Mapping[int, float], before: Mapping[int, float],
          passed_s: float) -> str:
    cpu = sum(now[pid] - before.get(pid, 0.0) for pid in pids if pid in now)
    memory = sum(amount for pid in pids if (amount := pss_bytes(pid)) is not None)
    return f"{name} {100 * cpu / passed_s:.1f} %, {memory / 1e6:.0f} MB"

"""A figure: what was measured, its goal, and whether it is met. Never rounded in our favour."""

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
from msgspec import Struct, to_builtins

RESULTS = Path(__file__).resolve().parent / "results.json"


class Figure(Struct, frozen=True):
    name: str
    value: float
    unit: str
    goal: float | None = None  # the most it may be; None: printed for comparison only

    @property
    def is_met(self) -> bool | None:
        return None if self.goal is None else self.value <= self.goal

    @property
    def line(self) -> str:
        goal = "" if self.goal is None else f"goal <= {self.goal:g} {self.unit}"
        verdict = {None: "", True: "met", False: "NOT MET"}[self.is_met]
        return f"{self.name:68} {self.value:10.4g} {self.unit:12} {goal:24} {verdict}".rstrip()


def rows(figures: Iterable[Figure], group: str, at: float, run: Mapping[str, Any]
         ) -> list[dict[str, Any]]:
    return [to_builtins(figure) | {"met": figure.is_met, "group": group, "at": at, **run}
            for figure in figures]


def write(figures: Iterable[Figure], path: Path = RESULTS, group: str = "",
          groups: Iterable[str] = (), run: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Replace this group's rows by `figures`; rows of other groups stay, with their run's time.
    `groups`: the order of all groups; rows of no group are dropped. `run`: commit, machine and
    load, added to each row."""
    old = json.loads(path.read_text()) if path.exists() else []
    order = [*groups] or [group]
    results = [row for row in old if row.get("group") in order and row.get("group") != group]
    results += rows(figures, group, time.time(), run)
    results.sort(key=lambda row: order.index(row["group"]))
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(results, indent=1) + "\n")
    beside.rename(path)


def cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def children(pid: int, word: str) -> list[int]:
    """Return the process's children that have this in their command line."""
    return [child.pid for child in psutil.Process(pid).children()
            if word in " ".join(child.cmdline())]

"""A figure: what was measured, its goal, and whether it is met. Never rounded in our favour."""

import json
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, to_builtins

RESULTS = Path(__file__).resolve().parent / "results.json"


class Figure(Struct, frozen=True):
    name: str
    value: float
    unit: str
    goal: float | None = None  # the most it may be; None: printed for comparison only

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.value <= self.goal

    @property
    def line(self) -> str:
        goal = "" if self.goal is None else f"goal <= {self.goal:g} {self.unit}"
        verdict = {None: "", True: "met", False: "NOT MET"}[self.met]
        return f"{self.name:68} {self.value:10.4g} {self.unit:12} {goal:24} {verdict}".rstrip()


def write(figures: Iterable[Figure], path: Path = RESULTS) -> None:
    rows = [to_builtins(figure) | {"met": figure.met} for figure in figures]
    path.write_text(json.dumps(rows, indent=1) + "\n")

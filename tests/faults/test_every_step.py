"""The target exits, execs, forks, or leaves its pid to an innocent, at each step of the order."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.reuse import INTO, ROOT, why_not
from tests.faults.steps import STEPS

ROUNDS = int(os.environ.get("GPUDECK_ROUNDS", "1"))
SOAK_ROUNDS = int(os.environ.get("GPUDECK_SOAK_ROUNDS", "500"))
DOCUMENTED = {"identity", "gone", "condition", "done", "not_effective"}
# Between the last look at it and its signal, a process may still begin another program: it is the
# same process, and there is no way to signal only a program.
WINDOW = {"after /proc is read", "before the comparison", "after the comparison",
          "before its signal"}


def run(folder: Path, rounds: int, events: str, *control: str) -> Any:
    into = [] if why_not() else INTO
    result = subprocess.run(
        [*into, sys.executable, "-m", "tests.faults.steps", str(folder), str(rounds), events,
         *control], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3_000:]
    return json.loads(result.stdout)


def by_event(counts: dict[str, dict[str, int]], event: str) -> Iterator[tuple[str, dict[str, int]]]:
    for key, count in counts.items():
        step, what = key.split(": ")
        if what == event:
            yield step, count


def check(document: Any, events: str) -> None:
    counts = document["told"]
    happened = {event: sum(count.get("died", 0) + count.get("lives", 0)
                           for _, count in by_event(counts, event))
                for event in (*events.split(","), "nothing")}
    print(f"at {len(STEPS)} steps: {happened}")
    assert document["bystander"] is True
    assert document["broken"] == "None"
    assert all(happened.values())
    for _, count in by_event(counts, "reuse"):
        assert count.get("died", 0) == 0, counts
    for step, count in by_event(counts, "exec"):
        assert step in WINDOW or count.get("died", 0) == 0, (step, count)
    for _, count in by_event(counts, "nothing"):  # else one that never acts would pass
        assert count == {"died": count["died"], "done": count["died"]}, counts
    for count in counts.values():
        assert set(count) - {"died", "lives"} <= DOCUMENTED, counts


def test_at_every_step_only_the_target_is_hit(tmp_path: Path) -> None:
    events = "exit,exec,fork" if why_not() else "reuse,exit,exec,fork"
    check(run(tmp_path, ROUNDS, events), events)


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
def test_signals_by_number_hit_innocents_at_these_steps(tmp_path: Path) -> None:
    """The control arm: what happens at these steps is dangerous to other ways of signalling, though
    only at three of the steps, and not each time."""
    document = run(tmp_path, 12, "reuse", "os_kill")
    assert sum(count.get("died", 0) for _, count in by_event(document["told"], "reuse")) > 0


@pytest.mark.soak
def test_at_every_step_hundreds_of_times(tmp_path: Path) -> None:
    events = "exit,exec,fork" if why_not() else "reuse,exit,exec,fork"
    check(run(tmp_path, SOAK_ROUNDS, events), events)

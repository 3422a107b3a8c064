"""The page of figures says what the bench said, and the one that is kept has its shape."""

import random
import re
from datetime import date
from pathlib import Path

import pytest

from bench.figure import Figure, write
from docs.make_performance import HEAD, PAGE, page, read


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == [*HEAD]
    return cells[2:]


def test_every_figure_is_on_the_page_with_its_verdict(tmp_path: Path) -> None:
    value = random.uniform(1.0, 100.0)
    figures = [
        Figure("first", value, "ms", value * 2), Figure("  beside it", value / 7, "ms"),
        Figure("second", value, "x", value / 2),
    ]
    write(figures, tmp_path / "results.json")
    text = page(read(tmp_path / "results.json"), "a machine", date(2026, 1, 2), "It was busy.")
    assert rows(text) == [
        ["first", f"{value:.4g} ms", f"{value * 2:.4g} ms", "met"],
        ["· beside it", f"{value / 7:.4g} ms", "", ""],
        ["second", f"{value:.4g} x", f"{value / 2:.4g} x", "**not met**"],
    ]
    assert "on 2026-01-02, on a machine. It was busy." in text
    assert "1 of 2 goals are met. Not met: second." in text


@pytest.mark.parametrize("goal", [None, 1.0])
def test_nothing_is_missed_that_is_met_or_has_no_goal(goal: float | None) -> None:
    assert "Not met" not in page([Figure("only", 0.5, "s", goal)], "a machine", date.today())


def test_the_page_that_is_kept() -> None:
    text = PAGE.read_text()
    assert re.search(r"^Measured on \d{4}-\d\d-\d\d, on \d+ cores of .+, Python 3\.\d+", text, re.M)
    found = rows(text)
    assert len(found) > 20
    missed = [name.removeprefix("· ") for name, _, _, verdict in found if "not" in verdict]
    for name, measured, goal, verdict in found:
        assert name
        if not goal:
            assert verdict == ""
            continue
        assert verdict in ("met", "**not met**")
        measured_number, goal_number = (float(each.split()[0]) for each in (measured, goal))
        assert measured.split()[1:] == goal.split()[1:]
        # What is on the page is rounded; the verdict is not.
        assert (measured_number <= goal_number * 1.001 if verdict == "met"
                else measured_number >= goal_number * 0.999)
    with_goal = sum(bool(goal) for _, _, goal, _ in found)
    assert f"{with_goal - len(missed)} of {with_goal} goals are met." in text
    assert "".join(f"{name}; " for name in missed)[:-2] in text

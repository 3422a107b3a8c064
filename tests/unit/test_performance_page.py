"""The page of figures says what the bench said, and the one that is kept has its shape."""

import json
import random
import re
from datetime import date
from pathlib import Path

import pytest

from bench.figure import Figure, write
from bench.growth import exponent
from docs.make_performance import HEAD, PAGE, page, read


def rows(text: str) -> list[list[str]]:
    figures = text.partition("\n## ")[0]
    lines = [line for line in figures.splitlines() if line.startswith("| ")]
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


def test_a_missed_figure_is_named_with_its_group() -> None:
    figures = [Figure("beside A: CPU", 1.0, "s"), Figure("  gpudeck / A", 2.0, "x", 1.0),
               Figure("beside B: CPU", 1.0, "s"), Figure("  gpudeck / B", 2.0, "x", 1.0)]
    assert ("Not met: beside A: CPU: gpudeck / A; beside B: CPU: gpudeck / B."
            in page(figures, "a machine", date(2026, 1, 2)))


def test_what_is_missed_has_its_reason() -> None:
    figures = [Figure("sample to pixel, 5 browsers", 2.0, "ms", 1.0),
               Figure("q1: an hour", 0.5, "ms", 1.0)]
    reasons = page(figures, "a machine", date(2026, 1, 2)).partition("## Why not")[2]
    assert "| sample to pixel |" in reasons
    assert "q1" not in reasons, "which is met"


def test_a_part_of_the_bench_replaces_its_own_figures_only(tmp_path: Path) -> None:
    path, groups = tmp_path / "results.json", ("one", "two")
    write([Figure("b", 2.0, "s"), Figure("c", 3.0, "s")], path, "two", groups)
    write([Figure("a", 1.0, "s")], path, "one", groups)
    first = {row["name"]: row["at"] for row in json.loads(path.read_text())}
    assert [*first] == ["a", "b", "c"]
    write([Figure("b", 4.0, "s")], path, "two", groups)
    assert [(figure.name, figure.value) for figure in read(path)] == [("a", 1.0), ("b", 4.0)]
    second = {row["name"]: row["at"] for row in json.loads(path.read_text())}
    assert second["a"] == first["a"]
    assert second["b"] > first["b"]
    write([Figure("a", 1.0, "s")], path, "one", ("one",))  # there is no such group any more
    assert [figure.name for figure in read(path)] == ["a"]


def test_growth_is_a_table_of_its_own() -> None:
    value = random.uniform(1.0, 9.0)
    text = page([Figure("growth, 8 GPUs: hub CPU", value, "%"),
                 Figure("growth, 10,000 GPUs: hub CPU", 2 * value, "%"),
                 Figure("growth of hub CPU: exponent (1 is linear)", 0.9, "", 1.0)],
                "a machine", date.today())
    assert [name for name, *_ in rows(text)] == ["growth of hub CPU: exponent (1 is linear)"]
    assert f"| 8 | {value:.3g} |" in text
    assert f"| 10,000 | {2 * value:.3g} |" in text


def test_an_exponent_tells_linear_from_worse() -> None:
    sizes = [8, 64, 512, 10_000]
    power, factor = random.uniform(0.2, 2.0), random.uniform(0.1, 10.0)
    assert exponent(sizes, [factor * size**power for size in sizes]) == pytest.approx(power)


@pytest.mark.parametrize("goal", [None, 1.0])
def test_nothing_is_missed_that_is_met_or_has_no_goal(goal: float | None) -> None:
    assert "Not met" not in page([Figure("only", 0.5, "s", goal)], "a machine", date.today())


def test_the_page_that_is_kept() -> None:
    text = PAGE.read_text()
    assert re.search(r"^Measured on \d{4}-\d\d-\d\d, on \d+ cores of .+, Python 3\.\d+", text, re.M)
    table = rows(text)
    assert len(table) > 20
    group, missed = "", []
    for name, _, _, verdict in table:
        group = group if name.startswith("· ") else name
        if "not" in verdict:
            missed.append(name if name == group else f"{group}: {name.removeprefix('· ')}")
    for name, measured, goal, verdict in table:
        assert name
        if not goal:
            assert verdict == ""
            continue
        assert verdict in ("met", "**not met**")
        measured_number, goal_number = (float(cell.split()[0]) for cell in (measured, goal))
        assert measured.split()[1:] == goal.split()[1:]
        # What is on the page is rounded; the verdict is not.
        assert (measured_number <= goal_number * 1.001 if verdict == "met"
                else measured_number >= goal_number * 0.999)
    with_goal = sum(bool(goal) for _, _, goal, _ in table)
    assert f"{with_goal - len(missed)} of {with_goal} goals are met." in text
    assert "".join(f"{name}; " for name in missed)[:-2] in text

"""`make bench` runs: each group at its smallest size, and what becomes of one that fails."""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from bench import __main__ as bench
from bench.figure import Figure, write


def test_each_group_runs() -> None:
    run = subprocess.run([sys.executable, "-m", "bench", "--quick"], capture_output=True, text=True,
                         check=False)
    assert run.returncode == 0, run.stderr
    figures: dict[str, int] = {}
    for line in run.stdout.splitlines():
        if line.startswith("-- "):
            name = line.removeprefix("-- ")
            figures[name] = 0
        else:
            figures[name] += 1
    assert [*figures] == [*bench.GROUPS]
    assert min(figures.values()) > 1, figures


def group(value: float | None) -> ModuleType:
    """Return a group of figures; with None it fails after the first."""
    module = ModuleType("made")

    def figures(size: float) -> Iterator[Figure]:
        yield Figure("first", size, "s")
        assert value is not None, "nothing answers"
        yield Figure("second", value, "s", 1.0)

    module.figures, module.WHOLE, module.QUICK = figures, 9.0, 2.0  # type: ignore[attr-defined]
    return module


def test_one_that_fails_says_so_and_the_others_go_on(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.json"
    monkeypatch.setattr(bench, "GROUPS", {"broken": group(None), "whole": group(0.5)})
    monkeypatch.setattr(bench, "write", partial(write, path=results))
    assert bench.main([]) == 1
    output = capsys.readouterr()
    assert "AssertionError: nothing answers" in output.err
    assert output.err.endswith("failed: broken\n")
    rows = json.loads(results.read_text())
    assert [(row["group"], row["name"], row["value"]) for row in rows] == [
        ("whole", "first", 9.0), ("whole", "second", 0.5)]
    assert all(row["commit"] and row["machine"] and len(row["load"]) == 2 for row in rows)


def test_a_quick_run_writes_nothing(monkeypatch: pytest.MonkeyPatch,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench, "GROUPS", {"one": group(0.5)})
    monkeypatch.setattr(bench, "write", None)
    assert bench.main(["--quick"]) == 0
    assert "first" in capsys.readouterr().out
    assert bench.main(["--quick", "two"]) == 2

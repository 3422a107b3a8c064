"""Rules of the tiers: every test is in one, and nothing stays in quarantine."""

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiers
from tests.quarantine import TWICE, UnsteadyTest, today, unsteady_tests

ROOT = Path(__file__).resolve().parents[1]
# For runs of pytest in a run of pytest: of the plugins that are installed, those that they need.
FEW_PLUGINS = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
               "PYTEST_PLUGINS": "xdist.plugin,_hypothesis_pytestplugin,tests.cpu_time"}


def stands(row: str) -> bool:
    file, _, test = row.partition("::")
    if not (ROOT / file).exists():
        return False
    return not test or f"def {test.partition('[')[0]}(" in (ROOT / file).read_text()


def test_the_tiers_add_up_to_what_was_collected(request: pytest.FixtureRequest) -> None:
    counts = request.config.stash[tiers.COLLECTED]
    assert set(counts) <= {"all", "test", "check", "soak"}
    assert counts["test"] + counts["check"] + counts["soak"] == counts["all"] > 0


def test_each_row_names_what_there_is() -> None:
    assert [row for row in tiers.ROWS if not stands(row)] == []
    assert not set(tiers.CHECK) & set(tiers.TEST)


def test_what_runs_with_engines_is_there() -> None:
    assert [row for row in tiers.ENGINES if not (ROOT / row).exists()] == []


def test_the_longest_row_counts() -> None:
    page = tiers.TEST[0]
    assert tiers.tier_of(page, is_soak=False) == "test"
    assert tiers.tier_of(page, is_soak=True) == "soak"
    assert tiers.tier_of(page.partition("::")[0] + "::test_else", is_soak=False) == "check"
    assert tiers.tier_of("tests/unit/test_new.py::test_new", is_soak=False) == "test"


def test_a_file_is_left_out_only_where_it_has_nothing_of_the_tier() -> None:
    tests = [*tiers.ROWS, "tests/unit/test_new.py::test_new", "tests/browser/test_new.py::test_new"]
    for test in tests:
        file = test.partition("::")[0]
        if file.endswith(".py"):
            assert tiers.may_hold(file, tiers.tier_of(test, is_soak=False)), test
    assert not tiers.may_hold("tests/browser/test_new.py", "test")
    assert not tiers.may_hold("tests/unit/test_new.py", "check")


def test_nothing_stays_in_quarantine() -> None:
    rows = unsteady_tests().values()
    assert [row.id for row in rows if not stands(row.id)] == []
    assert [row.id for row in rows if row.is_over(today())] == []


def test_a_week_is_a_week() -> None:
    row = UnsteadyTest("x", dt.date(2026, 11, 23), "")
    assert not row.is_over(dt.date(2026, 11, 30))
    assert row.is_over(dt.date(2026, 12, 1))


FAILS_ONCE = """
import pathlib
def test_fails_once(pytestconfig):
    mark = pathlib.Path(__file__).with_suffix(".mark")
    was_there = mark.exists()
    mark.touch()
    assert was_there
"""


@pytest.mark.parametrize(("listed", "age_days", "code"),
                         [(True, 0, 0), (True, 8, 1), (False, 0, 1)])
def test_only_who_is_in_quarantine_is_run_again(tmp_path: Path, listed: bool, age_days: int,
                                               code: int) -> None:
    (tmp_path / "test_one.py").write_text(FAILS_ONCE)
    table = tmp_path / "quarantine.toml"
    since = today() - dt.timedelta(days=age_days)
    table.write_text(f'[[test]]\nid = "test_one.py::test_fails_once"\nsince = {since}\nwhy = "x"\n'
                     if listed else "")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.quarantine", "-p", "no:cacheprovider",
         "--rootdir", str(tmp_path), "-c", os.devnull, str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, **FEW_PLUGINS, "GPUDECK_QUARANTINE": str(table)})
    assert run.returncode == code, run.stdout + run.stderr
    assert ("RUN TWICE" in run.stdout) == (code == 0)
    assert TWICE not in run.stdout


BUSY = """
def test_busy_child():
    import subprocess, sys
    subprocess.run([sys.executable, "-c", "import time; "
                    "all(iter(lambda: time.process_time() < 1.5, False))"])
"""


def run_check(folder: Path, body: str) -> "subprocess.CompletedProcess[str]":
    """Run both runs of `make check`, over tests that are marked `check`."""
    (folder / "test_one.py").write_text("import pytest\npytestmark = pytest.mark.check\n" + body)
    options = ["--rootdir", str(folder), "-c", os.devnull, "-p", "no:cacheprovider",
               "--hypothesis-seed=7"]
    program = ("import pathlib, sys\nfrom tests.check import main\n"
               f"sys.exit(main([], {options!r}, pathlib.Path('r.json')))")
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True,
                          text=True, check=False, env={**os.environ, **FEW_PLUGINS})


@pytest.mark.parametrize(("last_line", "code", "line"), [
    ("assert was_there", 0, "PASSED ALONE test_one.py::test_fails_once\n"),
    ("assert False", 1, "FAILED test_one.py::test_fails_once\n"),
    ("assert was_there and pytestconfig.getoption('hypothesis_seed') != '7'", 1,
     "FAILED test_one.py::test_fails_once\n")])
def test_what_fails_in_check_is_run_once_more_alone_and_named(
        tmp_path: Path, last_line: str, code: int, line: str) -> None:
    run = run_check(tmp_path, FAILS_ONCE.replace("assert was_there", last_line)
                    + "def test_passes():\n    pass\ndef test_skips():\n    pytest.skip()\n")
    assert run.returncode == code, run.stdout + run.stderr
    assert line in run.stdout
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["passed"], result["skipped"]) == (1, 1)
    assert len(result["failed"]) == code
    assert len(result["passed_alone"]) == 1 - code
    assert list(result["longest"]) == ["test_one.py"]


def test_the_work_of_child_processes_counts_for_their_file(tmp_path: Path) -> None:
    run = run_check(tmp_path, BUSY)
    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads((tmp_path / "r.json").read_text())["longest"]["test_one.py"]["cpu_s"] >= 1


def test_a_check_that_fails_without_a_failed_test_has_failed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "def pytest_sessionfinish(session):\n    session.exitstatus = 1\n")
    run = run_check(tmp_path, "def test_passes():\n    pass\n")
    assert run.returncode == 1, run.stdout + run.stderr

"""`make check`: its tests, and what fails in it once more, alone, when all others are done.

    python -m tests.check [argument of pytest ...]

A test that fails then too is FAILED. One that passes is listed as PASSED ALONE: it is unsteady, and
is mended, or has a row in tests/quarantine.toml with what is known. build/check.json keeps how the
run ended, of which commit, and how busy the machine was.
"""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "build" / "check.json"
# Six workers on two cores took longer than four: what waits for a process then waits for its turn.
TOGETHER = ("-m", "check", "-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")
MOST_ALONE = 25  # where more fail, something is broken that one by one would not show
ALONE_S = 900
LONGEST = 80
CPU_S = "cpu_s"  # property of a test, set by tests/cpu_time.py
RAN = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
SAME = ("--hypothesis-seed",)  # with other examples it would be another test


class Outcomes:
    """Plugin of the process that starts the workers: the outcome of each test, and the seconds that
    the tests of each file took of a worker, and of the cores."""

    def __init__(self) -> None:
        self._by_test: dict[str, str] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._cpu_s: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._seconds[file] += report.duration
        if report.when == "teardown":
            self._cpu_s[file] += sum(float(str(value)) for name, value in report.user_properties
                                     if name == CPU_S)
        earlier = self._by_test.get(report.nodeid, "passed")  # by an earlier phase
        self._by_test[report.nodeid] = report.outcome if earlier == "passed" else earlier

    def tests(self, outcome: str) -> list[str]:
        return [test for test, last in self._by_test.items() if last == outcome]

    def longest(self) -> dict[str, dict[str, int]]:
        """Return the slowest files, with the seconds of one worker and of CPU."""
        rows = sorted(self._seconds.items(), key=lambda row: -row[1])
        return {file: {"seconds": round(seconds), "cpu_s": round(self._cpu_s[file])}
                for file, seconds in rows[:LONGEST]}


def passes_alone(test: str, options: Sequence[str]) -> bool:
    words = [sys.executable, "-m", "pytest", "-m", "", "-n", "0", *options, test]
    try:
        return subprocess.run(words, timeout=ALONE_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def commit() -> str:
    result = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, check=False,
                            capture_output=True, text=True)
    return result.stdout.strip()


def main(arguments: Sequence[str], options: Sequence[str] = (), result: Path = RESULT) -> int:
    """Run the tests, then failures once more, alone. `options` apply to both runs."""
    began, load = time.time(), os.getloadavg()[2]
    outcomes = Outcomes()
    code = pytest.main([*TOGETHER, *options, *arguments], plugins=[outcomes])
    seconds, loads = round(time.time() - began), [round(load, 1), round(os.getloadavg()[2], 1)]
    failed, unsteady = outcomes.tests("failed"), []
    if code not in RAN or (code != pytest.ExitCode.OK and not failed):
        return int(code)  # it did not run, or it failed and no test says so
    if len(failed) <= MOST_ALONE:
        unsteady = [test for test in failed if passes_alone(test, options)]
        failed = [test for test in failed if test not in unsteady]
    passes, skips = len(outcomes.tests("passed")), len(outcomes.tests("skipped"))
    result.parent.mkdir(exist_ok=True)
    result.write_text(json.dumps({
        "commit": commit(), "passed": passes, "skipped": skips, "failed": failed,
        "passed_alone": unsteady, "seconds": seconds, "load_15_min": loads,
        "longest": outcomes.longest()}, indent=1) + "\n")
    for test in failed:
        print("FAILED", test)
    for test in unsteady:
        print("PASSED ALONE", test)
    print(f"make check: {seconds} s; load of 15 min {loads[0]} before, {loads[1]} after\n"
          f"{passes + len(unsteady)} passed, {len(failed)} failed, {skips} skipped")
    return int(bool(failed))


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main([word for word in words if not word.startswith(SAME)],
                  [word for word in words if word.startswith(SAME)]))

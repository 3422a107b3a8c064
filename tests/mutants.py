"""`make mutants`: each guard that a row of tests/mutants.toml removes is missed by the named test.

A row has a name, a file, a text that stands in it once, what it reads without the guard, and a
test, which has to pass as it is and to fail then. Child processes of a test find the installed
program, not the changed copy: name tests that call the code themselves.

    python -m tests.mutants [NAME ...]     all, or these
    python -m tests.mutants --changed      a dozen of those of files that differ from the main
                                           branch, or, on that itself, from the commit before
    python -m tests.mutants --some 5       as many by lot
"""

import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".toml")
TEST_S = 300
AT_ONCE = 2
MOST_OF_A_CHANGE = 12  # by lot: a change may touch every file, and CI has its time
FAILED = 1  # pytest's own code: tests ran, and some failed
TOO_LONG = 124


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    test: str
    file: str
    old: str
    new: str

    def flaw(self, root: Path = ROOT) -> str:
        """Return why the row does not fit the code as it is; "" if it does."""
        if self.old == self.new:
            return "it changes nothing"
        count = (root / self.file).read_text().count(self.old)
        return "" if count == 1 else f"its old text stands {count} times in {self.file}"


def mutants() -> list[Mutant]:
    return [Mutant(**row) for row in tomllib.loads(TABLE.read_text())["mutant"]]


def git(*words: str) -> list[str]:
    result = subprocess.run(["git", *words, "-z"], cwd=ROOT, capture_output=True, check=True)
    return [name for name in result.stdout.decode().split("\0") if name]


def base_of_the_change() -> str:
    def commit(name: str) -> str:
        result = subprocess.run(["git", "rev-parse", "-q", "--verify", f"{name}^{{commit}}"],
                                cwd=ROOT, capture_output=True, text=True, check=False)
        return result.stdout.strip()
    return "HEAD~1" if commit("origin/main") in ("", commit("HEAD")) else "origin/main..."


def copy_to(folder: Path) -> Path:
    copy = folder / "copy"
    for name in git("ls-files", "--cached", "--others", "--exclude-standard"):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


def run_tests(tests: Iterable[str], copy: Path, within_s: float = TEST_S) -> tuple[int, str]:
    try:
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p",
             "no:xdist", *tests], cwd=copy, capture_output=True, text=True, timeout=within_s,
            check=False)
    except subprocess.TimeoutExpired:
        return TOO_LONG, f"not within {within_s:.0f} s"
    return result.returncode, result.stdout[-1_500:] + result.stderr[-500:]


def all_pass(tests: Sequence[str]) -> bool:
    """Return whether the tests pass in one run, which is quicker than one for each mutant."""
    with tempfile.TemporaryDirectory() as folder:
        return run_tests(tests, copy_to(Path(folder)), TEST_S * len(tests))[0] == 0


def fault_of(mutant: Mutant, has_passed: bool = False) -> str:
    """Return why the test does not hold the guard; "" if it does. `has_passed`: it is known to
    pass without the mutant."""
    if flaw := mutant.flaw():
        return flaw
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_to(Path(folder))
        code, output = (0, "") if has_passed else run_tests([mutant.test], copy)
        if code != 0:
            return f"{mutant.test} does not pass without it\n{output}"
        file = copy / mutant.file
        file.write_text(file.read_text().replace(mutant.old, mutant.new))
        code, output = run_tests([mutant.test], copy)
        return "" if code == FAILED else (
            f"{mutant.test} passes without the guard (exit {code})\n{output}")


def select(arguments: Sequence[str]) -> list[Mutant]:
    table = mutants()
    match arguments:
        case ["--some", count]:
            return random.sample(table, min(int(count), len(table)))
        case ["--changed", *base]:
            changed = {*git("diff", "--name-only", base[0] if base else base_of_the_change())}
            near = [row for row in table if {row.file, row.test.partition("::")[0]} & changed]
            return random.sample(near, min(len(near), MOST_OF_A_CHANGE))
        case _:
            return [mutant for mutant in table if not arguments or mutant.name in arguments]


def main(arguments: Sequence[str]) -> int:
    todo = select(arguments)
    have_passed = len(todo) > 1 and all_pass(sorted({mutant.test for mutant in todo}))
    faults = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for mutant, fault in zip(todo, pool.map(partial(fault_of, has_passed=have_passed), todo),
                                 strict=True):
            print("missed" if fault else "caught", mutant.name, fault and f"\n  {fault}",
                  flush=True)
            faults.append(fault)
    print(f"{sum(map(bool, faults))} of {len(todo)} missed")
    return int(any(faults) or (not todo and "--changed" not in arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

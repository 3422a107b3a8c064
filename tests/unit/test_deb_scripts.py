"""Script that Debian runs before it removes the package: what the agent has left in force is undone
first, and nothing of that keeps the package installed."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "packaging/deb/prerm"
PROGRAM = "/usr/lib/gpudeck/bin/gpudeck"
UNDO = "service undo agent"


class Removal:
    """Folder with the tools that the script calls, each of which notes its words."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notes = folder, folder / "notes"
        self.notes.touch()
        for name in ("gpudeck", "py3clean", "deb-systemd-invoke"):
            self.tool(name, "exit 0")

    def tool(self, name: str, end: str) -> None:
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.notes}\n{end}\n')
        path.chmod(0o755)

    def run(self, occasion: str, role: str = "agent") -> tuple[int, list[str], str]:
        """Return its exit status, the words of the tools that it called, and what it complains
        of."""
        text = SCRIPT.read_text().replace(PROGRAM, f"{self.folder}/gpudeck")
        for word, value in (("@NAME@", "gpudeck"), ("@UNIT@", f"gpudeck-{role}"),
                            ("@ROLE@", role), ("=5 60 ", "=1 2 ")):
            assert word in text
            text = text.replace(word, value)
        process = subprocess.run(
            ["sh", "-c", text, "prerm", occasion], capture_output=True, text=True, timeout=60,
            env={"PATH": f"{self.folder}:/usr/bin:/bin"})
        notes = [line for line in self.notes.read_text().splitlines()
                 if not line.startswith("deb-systemd-invoke")]
        return process.returncode, notes, process.stderr


@pytest.fixture
def removal(tmp_path: Path) -> Removal:
    return Removal(tmp_path)


def test_what_is_left_in_force_is_undone_while_the_program_is_there(removal: Removal) -> None:
    assert removal.run("remove") == (0, [f"gpudeck {UNDO}", "py3clean -p gpudeck"], "")


@pytest.mark.parametrize(("occasion", "role"), [
    ("upgrade", "agent"), ("deconfigure", "agent"), ("failed-upgrade", "agent"), ("remove", "hub")])
def test_an_upgrade_and_the_hub_undo_nothing(removal: Removal, occasion: str, role: str) -> None:
    assert removal.run(occasion, role) == (0, ["py3clean -p gpudeck"], "")


@pytest.mark.parametrize("end", ["exit 1", "kill -SEGV $$", "exec sleep 600", "trap '' TERM; "
                                 "while :; do sleep 1; done"])
def test_a_program_that_fails_or_hangs_keeps_no_package_installed(removal: Removal, end: str
                                                                  ) -> None:
    removal.tool("gpudeck", end)
    code, notes, complaint = removal.run("remove")
    assert (code, notes) == (0, [f"gpudeck {UNDO}", "py3clean -p gpudeck"])
    assert "not all that the agent has left in force was undone" in complaint


def test_one_that_is_not_there_keeps_none_installed(removal: Removal) -> None:
    (removal.folder / "gpudeck").unlink()
    code, notes, _ = removal.run("remove")
    assert (code, notes) == (0, ["py3clean -p gpudeck"])

"""People at terminals, found by processes that are really there."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.tasks import terminals

TTY, ALICE, SERVICE = 5, 54_321, 54_322


@contextmanager
def _at_a_terminal(program: str, *words: str) -> Iterator[tuple[int, Path]]:
    """Run a program at a terminal of its own; yield the terminal's number and its name."""
    pid, keyboard = os.forkpty()
    if pid == 0:
        os.execv(program, (program, *words))
    try:
        until = time.monotonic() + 10
        while (os.readlink(f"/proc/{pid}/exe") != os.path.realpath(program)
               and time.monotonic() < until):
            time.sleep(0.01)
        name = Path(os.readlink(f"/proc/{pid}/fd/0"))
        yield os.stat(name).st_rdev, name
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(keyboard)


def test_a_shell_sits_there_and_what_waits_for_a_name_does_not(tmp_path: Path) -> None:
    getty = tmp_path / "agetty"
    shutil.copy("/bin/sleep", getty)
    with _at_a_terminal("/bin/sleep", "60") as (shell, _), \
            _at_a_terminal(str(getty), "60") as (waiting, _):
        numbers = terminals.with_people()
        assert shell in numbers
        assert waiting not in numbers
    assert shell not in terminals.with_people()


def test_root_is_told_at_consoles_where_somebody_sits_alone(tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by examiners: "told root at 64 terminals", and nobody was signed in."""
    monkeypatch.setattr(terminals, "TERMINALS", (tmp_path,))
    names: list[str] = []

    def write(path: Path, *_: object) -> str:
        names.append(path.name)
        return "written"

    monkeypatch.setattr(terminals, "_write", write)
    with _at_a_terminal("/bin/sleep", "60") as (_, name):
        for console, there in (("tty1", "/dev/null"), ("tty2", str(name)), ("7", "/dev/null")):
            (tmp_path / console).symlink_to(there)
        assert terminals.notify(terminals.ROOT, ["x"]).terminals == 2
        assert sorted(names) == ["7", "tty2"]
        assert terminals.notify(1_000, ["x"]).terminals == 3


@pytest.mark.parametrize(("mode", "groups", "reach"), [
    (0o620, (TTY,), terminals.TerminalReach(terminals=1)),
    (0o620, (), terminals.TerminalReach(denials=1)),
    (0o600, (TTY,), terminals.TerminalReach(mutes=1))])
def test_a_terminal_that_may_not_be_written_to_is_not_called_absent(
    mode: int, groups: tuple[int, ...], reach: terminals.TerminalReach
) -> None:
    """The service's account writes, which is neither root nor its user."""
    if os.geteuid() != 0:
        pytest.skip("only root gives a terminal to somebody")
    with _at_a_terminal("/bin/sleep", "60") as (_, name):
        os.chown(name, ALICE, TTY)
        os.chmod(name, mode)
        assert _reach_as_service(groups) == reach


def _reach_as_service(groups: tuple[int, ...]) -> terminals.TerminalReach:
    """Notify in a fork: this interpreter is where another account could not start one."""
    out, ends = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups(groups)
        os.setresgid(SERVICE, SERVICE, SERVICE)
        os.setresuid(SERVICE, SERVICE, SERVICE)
        reach = terminals.notify(ALICE, ["x"])
        os.write(ends, bytes((reach.terminals, reach.denials, reach.mutes)))
        os._exit(0)
    os.close(ends)
    os.waitpid(child, 0)
    with open(out, "rb") as file:
        return terminals.TerminalReach(*file.read())

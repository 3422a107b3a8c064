"""`gpudeck top` and `gpudeck free` as processes in a terminal, over a made-up machine and over real
children."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli.free import free
from agent.runtime.data_lock import DataFolderLock
from agent.top.screen import LEAVE
from gpudeck.errors import CommandError, ExitCode
from tests.boards import OLD_ENOUGH_S, Boards, Child
from tests.demos import ROOT
from tests.screens import CODE, DrivenTerminal

MADE_UP = ("--backend", "simulated", "--simulate", "gpus=8 profile=h100")
HEAVY = ("numpy", "cryptography", "agent.node", "agent.actions.context", "gpudeck.client.hub",
         "flask", "importlib.metadata", "tomllib", "agent.tasks.task_table", "agent.tasks.redact",
         "gpudeck.pool.core.schedule")


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[Boards]:
    boards = Boards(tmp_path)
    yield boards
    boards.close()


def test_it_fits_80_by_24_and_follows_the_window() -> None:
    with DrivenTerminal(*MADE_UP) as top:
        assert "8 GPUs" in top.shows("OWNER", "svc-inference", "q quit").splitlines()[0]
        assert [line.split()[0] for line in top.lines[2:10]] == [*"01234567"]
        top.resize(200, 50)
        top.wait(lambda: len(top.lines) == 50 and top.lines[49].endswith("q quit"))
        assert "--tensor-parallel-size" in top.text
        top.resize(100, 50)
        top.wait(lambda: top.lines[49].endswith("q quit") and "W  owner" in top.lines[1])
        top.resize(50, 10)
        top.wait(lambda: "OWNER" in top.lines[1] and top.lines[9].startswith(" ↑↓ select"))
        top.press("q")
        assert top.ends() == ExitCode.OK
        assert top.state() == top.before


def test_keys_filter_tree_details_and_help() -> None:
    with DrivenTerminal(*MADE_UP) as top:
        top.shows("svc-inference", "vllm serve")
        top.press("e")
        top.shows("select a job first")
        top.press("jt")
        top.shows("`- ")
        top.press("\r")
        top.shows("manager", "began")
        top.press("\x1b")
        top.press("?")
        top.shows("follows the job")
        top.press("?/gpu:7\r")
        top.shows("[filter: gpu:7]", "no job matches the filter")
        top.press("/\x15utl<5\r")  # Ctrl-U: what stood there
        top.shows("there is no metric 'utl'; did you mean 'util'?")
        top.press("\x1b")
        top.shows("vllm serve")
        top.press("\x0cq")
        assert top.ends() == ExitCode.OK


RAISES = CODE.replace("cli.find", """
from agent.top import command
drawn = command.frame
def frame(model, view, *more):
    if view.has_help:
        raise RuntimeError("a bug")
    return drawn(model, view, *more)
command.frame = frame
cli.find""")


@pytest.mark.parametrize(("how", "code"), [
    (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131), ("\x03", 130), ("?", 1)])
def test_the_terminal_is_as_it_was_however_it_ends(how: signal.Signals | str, code: int) -> None:
    with DrivenTerminal(*MADE_UP, code=RAISES) as top:
        top.shows("svc-inference")
        assert top.state() != top.before
        if isinstance(how, str):
            top.press(how)
        else:
            os.kill(top.process.pid, how)
        assert top.ends() == code
        assert top.state() == top.before
        assert top.raw.count(LEAVE.encode()) == 1
        assert ("a bug" in top.raw.rpartition(LEAVE.encode())[2].decode()) == (how == "?")


def test_ctrl_z_gives_the_terminal_back_and_takes_it_again() -> None:
    shell = 'set -m; "$@"; echo "stopped $?"; read; fg; exit $?'
    with DrivenTerminal(*MADE_UP, shell=shell) as top:
        top.shows("svc-inference")
        top.press("\x1a")
        top.wait(lambda: b"stopped 148" in top.raw.rpartition(LEAVE.encode())[2])
        assert top.state() == top.before
        bytes_before = len(top.raw)
        top.press("\n")
        top.wait(lambda: b"svc-inference" in top.raw[bytes_before:])
        top.press("q")
        assert top.ends() == ExitCode.OK


@pytest.mark.parametrize(("env", "has_colour"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_only_where_they_are_wanted(env: dict[str, str], has_colour: bool) -> None:
    with DrivenTerminal(*MADE_UP, env=env) as top:
        top.shows("svc-inference")
        assert (b"38;5;" in top.raw) == has_colour
        assert re.search(rb"\x1b\[[0-9;]*\b4[0-8][;m]", top.raw) is None  # no background, ever


def test_once_and_without_a_terminal_it_is_plain_text() -> None:
    for words, env in (((), {}), (("--once",), {}), (("--json",), {}), ((), {"TERM": "dumb"})):
        run = subprocess.run([sys.executable, "-c", CODE, "top", *MADE_UP, *words], cwd=ROOT,
                             env={**os.environ, **env}, capture_output=True, text=True, timeout=60,
                             check=True)
        assert "\x1b" not in run.stdout
        if words == ("--json",):
            assert len(json.loads(run.stdout)["gpus"]) == 8
        else:
            assert "OWNER" in run.stdout
            assert "svc-inference" in run.stdout


def test_the_first_picture_waits_for_nothing_it_does_not_show() -> None:
    code = (f"import sys; import gpudeck.cli.main; import agent.top.local_source; "
            f"import agent.top.command; "
            f"print([name for name in {HEAVY} if name in sys.modules])")
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                         check=True)
    assert run.stdout.strip() == "[]"


def test_the_screen_of_a_hub_loads_nothing_that_reads_a_driver() -> None:
    """Loading that was a third of the time to the first picture."""
    code = ("import sys, agent.top.command, gpudeck.client.hub; print([name for name in ("
            "'gpudeck.contract.wire', 'agent.reader', 'agent.readings', "
            "'agent.telemetry.status_table') "
            "if name in sys.modules])")
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                         check=True)
    assert run.stdout.strip() == "[]"


# -- acts

# Between the screen and the first question, until something was typed.
HASTY = CODE.replace("cli.find", """
import fcntl, struct, termios, time
from agent.top.screen import TerminalScreen
leave, waits = TerminalScreen._off, [True]
def slowly(screen):
    leave(screen)
    while waits and struct.unpack("i", fcntl.ioctl(0, termios.FIONREAD, bytes(4)))[0] < 4:
        time.sleep(0.01)
    waits.clear()
TerminalScreen._off = slowly
cli.find""")


@pytest.fixture
def here(boards: Boards, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    with DataFolderLock(tmp_path / "agent"):
        yield ("--data", str(tmp_path / "agent"), "--backend", "nvml", "--ceiling",
               str(boards.ceiling()))


def grown(*children: Child) -> None:
    born = max(Path(f"/proc/{child.process.pid}").stat().st_ctime for child in children)
    time.sleep(max(0.0, born + OLD_ENOUGH_S - time.time()))


def test_an_act_is_previewed_and_asked_and_hits_what_was_selected(
    boards: Boards, here: tuple[str, ...]
) -> None:
    victim = boards.child("victim", gib=9, workers=2)
    bystander = boards.child("bystander")
    grown(victim, bystander)
    with DrivenTerminal(*here, width=200, height=50, code=HASTY, env=boards.nvml.env()) as top:
        top.shows("OWNER", "9 G", "4 G")
        top.press("\x1b[B")
        top.wait(lambda: b"\x1b[0;7m" in top.raw)
        if "9 G" not in selected(top):
            top.press("j")
            top.wait(lambda: "9 G" in selected(top))
        top.press("e")
        top.wait(lambda: LEAVE.encode() in top.raw)
        top.press("y\ny\n")  # a hand that was too fast answers nothing
        top.shows("why?", str(victim.process.pid))
        top.press("a test\nn\n")
        top.shows("nothing was done", "press Enter")
        top.press("\n")
        top.shows("OWNER", "q quit")
        assert victim.lives
        top.press("v")
        top.shows("this was a preview", "press Enter")
        top.press("\n")
        top.shows("OWNER", "q quit")
        top.press("e")
        top.shows("why?")
        top.press("a test\n")
        top.shows("[y/N]")
        top.press("y\n")
        top.shows("Ended: its processes are gone.", "press Enter")
        top.press("\n")
        top.wait(lambda: "q quit" in top.lines[-1])
        top.wait(lambda: "9 G" not in top.text and "4 G" in top.text)
        top.press("e")
        top.shows("has ended")
        top.press("q")
        assert top.ends() == ExitCode.OK
        assert top.state() == top.before
    assert (victim.all_gone, bystander.lives, bystander.heard_sigterm) == (True, True, False)


def selected(top: DrivenTerminal) -> str:
    """Return the text that was shown reversed last: the selected line's."""
    return "".join(re.findall(r"\x1b\[0;7m([^\x1b]*)", top.raw.decode(errors="replace"))[-2:])


# -- free


def test_free_says_what_is_free_and_fails_where_it_is_too_little(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUDECK_POOL_SOCKET", str(tmp_path / "no"))
    assert free([*MADE_UP]) == ExitCode.OK
    assert capsys.readouterr().out == "7\n"
    assert free([*MADE_UP, "--uuid", "--count", "1", "--memory", "80G"]) == ExitCode.OK
    assert re.fullmatch(r"GPU-[0-9a-f-]{36}\n", capsys.readouterr().out)
    assert free([*MADE_UP, "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["items"][0]["place"] == "7"
    for words in (("--count", "2"), ("--memory", "90GiB"), ("--model", "a100")):
        with pytest.raises(CommandError, match="are free") as error:
            free([*MADE_UP, *words])
        assert (error.value.code, capsys.readouterr().out) == (ExitCode.FAILED, "")

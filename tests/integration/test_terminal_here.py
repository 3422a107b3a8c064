"""Acts at the node's own terminal: real children, unmodified pynvml over the C fake, no hub."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli.hold import hold
from agent.runtime.data_lock import DataFolderLock
from gpudeck.errors import ExitCode
from tests.boards import OLD_ENOUGH_S, Boards, Child
from tests.demos import soon
from tests.terminals import Terminal, TerminalResult, run


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[Boards]:
    boards = Boards(tmp_path)
    yield boards
    boards.close()


@pytest.fixture
def agents_data(tmp_path: Path) -> Iterator[Path]:
    with DataFolderLock(tmp_path / "agent"):
        yield tmp_path / "agent"


@pytest.fixture
def here(boards: Boards, agents_data: Path) -> list[str]:
    return ["--data", str(agents_data), "--backend", "nvml", "--ceiling", str(boards.ceiling())]


def grown(*children: Child) -> None:
    """Wait until they are 5 s old, the least age of what may be acted on."""
    born = max(Path(f"/proc/{child.process.pid}").stat().st_ctime for child in children)
    time.sleep(max(0.0, born + OLD_ENOUGH_S - time.time()))


def act(boards: Boards, *words: str, answers: list[str] | None = None) -> TerminalResult:
    return run(*words, answers=answers, env=boards.nvml.env())


def test_end_ends_the_job_and_nothing_else(boards: Boards, here: list[str]) -> None:
    victim = boards.child("victim", workers=2)
    bystander, elsewhere = boards.child("bystander"), boards.child("elsewhere", gpu=1)
    grown(victim, bystander, elsewhere)
    result = act(boards, "end", victim.task_id, "--reason", "test", "--grace", "5", *here,
                 answers=["y"])
    assert result.code == ExitCode.OK, result
    assert victim.heard_sigterm
    assert victim.all_gone
    assert bystander.lives
    assert elsewhere.lives
    assert not bystander.heard_sigterm
    for pid in victim.pids:
        assert str(pid) in result.out
    assert bystander.task_id in result.out
    assert " on GPU 0 (" in result.out, "by its index, not by its UUID"
    assert "Ended: its processes are gone." in result.out.splitlines()[-1]


def test_a_plan_is_done_on_the_same_process_only(
    boards: Boards, here: list[str], tmp_path: Path
) -> None:
    victim, bystander = boards.child("victim"), boards.child("bystander")
    grown(victim, bystander)
    plan = tmp_path / "plan.json"
    words = ["end", "--plan", str(plan), "--yes", "--reason", "test", "--json", *here]
    assert act(boards, "end", victim.task_id, "--plan-out", str(plan), *here).code == ExitCode.OK
    assert victim.lives
    [job] = json.loads(plan.read_text())["jobs"]
    forged = {**json.loads(plan.read_text()), "jobs": [{**job, "processes": [
        {**job["processes"][0], "start_ticks": job["processes"][0]["start_ticks"] + 1}]}]}
    plan.write_text(json.dumps(forged))
    changed = act(boards, *words)
    assert changed.code == ExitCode.REFUSED, changed
    assert changed.of("changed")
    assert victim.lives
    assert not victim.heard_sigterm
    plan.write_text(json.dumps({**forged, "jobs": [job]}))
    unchanged = act(boards, *words)
    assert unchanged.code == ExitCode.OK, unchanged
    assert (victim.lives, bystander.lives) == (False, True)
    assert unchanged.of("end")[0]["exit_code"] == 0


def test_a_hold_stops_between_sigterm_and_sigkill(
    boards: Boards, here: list[str], agents_data: Path
) -> None:
    victim, bystander = boards.child("victim", stubborn=True), boards.child("bystander")
    grown(victim, bystander)
    terminal = Terminal("end", victim.task_id, "--reason", "test", "--grace", "8", *here,
                        answers=["y"], env=boards.nvml.env())
    assert soon(lambda: victim.heard_sigterm or terminal.process.poll() is not None)
    # In this process: on a busy machine a new one may start after the grace is over.
    assert hold(["--data", str(agents_data), "--reason", "stop it"]) == ExitCode.OK
    result = terminal.end()
    assert victim.heard_sigterm, result
    assert result.code == ExitCode.NOT_EFFECTIVE, result
    assert victim.lives
    assert bystander.lives
    on_hold = act(boards, "end", victim.task_id, "--reason", "test", *here, answers=["y"])
    assert on_hold.code == ExitCode.REFUSED, on_hold
    assert "stop it" in on_hold.out
    assert run("release", "--data", str(agents_data)).code == ExitCode.OK
    after_release = act(boards, "end", victim.task_id, "--reason", "test", "--grace", "1", *here,
                        answers=["y"])
    assert after_release.code == ExitCode.OK, after_release
    assert (victim.lives, bystander.lives) == (False, True)


def test_pause_and_resume(boards: Boards, here: list[str]) -> None:
    victim, bystander = boards.child("victim", workers=1), boards.child("bystander")
    grown(victim, bystander)

    def letters(child: Child) -> set[str]:
        return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                for pid in child.pids}

    paused = act(boards, "pause", victim.task_id, "--reason", "test", *here, answers=["y"])
    assert paused.code == ExitCode.OK, paused
    assert letters(victim) == {"T"}
    assert "T" not in letters(bystander)
    resumed = act(boards, "resume", victim.task_id, "--reason", "test", *here, answers=["y"])
    assert resumed.code == ExitCode.OK, resumed
    assert "T" not in letters(victim)


def test_without_yes_or_without_a_terminal_everybody_lives(boards: Boards, here: list[str]) -> None:
    victim = boards.child("victim")
    grown(victim)
    for answers, code in ((["n"], ExitCode.FAILED), (None, ExitCode.USAGE)):
        result = act(boards, "end", victim.task_id, "--reason", "test", *here, answers=answers)
        assert result.code == code, result
    by_pid = act(boards, "end", str(victim.process.pid), *here, answers=["y"])
    assert (by_pid.code, victim.task_id in by_pid.err) == (ExitCode.USAGE, True), by_pid
    assert victim.lives
    assert not victim.heard_sigterm


def test_what_the_ceiling_forbids_is_refused_and_said(boards: Boards, here: list[str]) -> None:
    victim, bystander = boards.child("victim"), boards.child("bystander")
    boards.ceiling(kills_per_hour="0")
    result = act(boards, "end", victim.task_id, "--reason", "test", *here, answers=["y"])
    assert result.code == ExitCode.REFUSED, result
    assert "nothing was done" in result.out
    assert victim.lives
    assert bystander.lives

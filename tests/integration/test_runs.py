"""Runs without a terminal, on one machine alone: real agent, supervisors and commands on four
boards of the C fake."""

import contextlib
import email
import email.policy
import json
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cli.runs import start
from agent.cli.runs.folder import RunFolders, WaitingSlots
from agent.cli.runs.request import RunRequest
from tests.fakes.hub import wait_for
from tests.faults.test_agent_disk import fill, small_disk
from tests.integration.pools import PoolBed

# Notes which GPU it has from when to when, and says its index. Two on one GPU fail.
NOTES = """
import fcntl, os, sys, time
index = int(os.environ["GPUDECK_ARRAY_INDEX"])
lock = open(os.path.join(sys.argv[1], os.environ["GPUDECK_GPU_UUIDS"]), "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
began = time.time()
time.sleep(0.2)
with open(os.path.join(sys.argv[1], "spans"), "a") as file:
    file.write(f"{began} {time.time()}\\n")
print("index", index)
sys.exit(3 if index == 13 else 0)
"""
SLEEPS = ("sleep", "600")


class RunsBed(PoolBed):
    def __init__(self, folder: Path) -> None:
        super().__init__(None, folder)
        self.env["XDG_STATE_HOME"] = str(folder / "state")
        self.runs = folder / "state/gpudeck/runs"

    def detach(self, *words: str) -> int:
        run = self.run("run", "--detach", *words)
        assert run.returncode == 0, run.stderr
        assert "when you log out" in run.stdout
        return int(run.stdout.split()[1])

    def parts(self, number: int) -> list[dict[str, Any]]:
        items = json.loads(self.run("runs", "--all", "--json").stdout)["items"]
        return next(row["parts"] for row in items if row["run"] == number)

    def states(self, number: int) -> list[str]:
        return [part["state"] for part in self.parts(number)]

    def is_in(self, number: int, *states: str) -> Callable[[], bool]:
        return lambda: set(self.states(number)) <= set(states)

    def pid(self, number: int, file: str) -> int:
        record = json.loads((self.runs / str(number) / file).read_text())
        return int(record.get("process", record)["pid"])

    def close(self) -> None:
        for _, request in RunFolders(self.env):
            self.run("runs", "cancel", "--kill", str(request.number))
        super().close()


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[RunsBed]:
    bed = RunsBed(tmp_path)
    with bed.agent():
        yield bed
        bed.close()


def test_fifty_runs_are_queued_four_at_once_and_end_with_their_status(bed: RunsBed, tmp_path: Path
                                                                     ) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    number = bed.detach("--array", "0-49%4", "--", sys.executable, "-S", "-c", NOTES, str(notes))
    later = bed.detach("--after", f"{number}.7", "--", "sh", "-c", "echo later $GPUDECK_RUN")
    never = bed.detach("--after", str(number), "--", "true")
    wait_for(bed.is_in(number, "ended"), 240)
    parts = bed.parts(number)
    assert {part["index"]: part["status"] for part in parts} == {
        index: 3 if index == 13 else 0 for index in range(50)}
    spans = [tuple(map(float, line.split())) for line in (notes / "spans").read_text().splitlines()]
    assert len(spans) == 50
    assert max(sum(began <= at < end for began, end in spans) for at, _ in spans) <= 4
    assert bed.run("runs", "logs", f"{number}.42").stdout.splitlines()[-1] == "index 42"
    wait_for(bed.is_in(later, "ended"), 30)
    assert bed.run("runs", "logs", str(later)).stdout.splitlines()[-1] == f"later {later}"
    wait_for(bed.is_in(never, "skipped"), 30)
    assert bed.parts(never)[0]["why"] == f"run {number}.13 ended with status 3"
    assert "49 ended with status 0, 1 ended with status 3" in bed.run("runs").stdout
    rerun = bed.run("runs", "again", str(number))
    assert rerun.returncode == 0, rerun.stderr
    wait_for(lambda: bed.parts(number + 3)[0]["status"] == 3, 60)
    assert [part["index"] for part in bed.parts(number + 3)] == [13]
    wait_for(lambda: bed.free() == 4, 30)


def test_more_than_a_user_may_wait_with_wait_all_the_same(bed: RunsBed) -> None:
    """Start them in the order in which they were queued. The node takes 32 claims of a user."""
    blocks = bed.detach("--gpus", "4", "--", *SLEEPS)
    wait_for(bed.is_in(blocks, "running"), 30)
    first = bed.detach("--array", "1-40", "--", "true")
    second = bed.detach("--", "true")
    wait_for(bed.in_queue(16), 60)
    assert bed.run("runs", "remove", str(first)).returncode == 10
    assert bed.states(second) == ["queued"]
    assert bed.run("runs", "cancel", str(blocks)).returncode == 0
    wait_for(bed.is_in(second, "ended"), 120)
    wait_for(bed.is_in(first, "ended"), 60)
    assert {part["status"] for part in bed.parts(first)} == {0}
    assert bed.run("runs", "remove", str(first)).returncode == 0
    assert bed.run("runs", "logs", str(first)).returncode == 2


def test_its_output_is_followed_and_only_its_owner_reads_it(bed: RunsBed) -> None:
    number = bed.detach("--", "sh", "-c", "echo one; sleep 2; echo two >&2; exit 5")
    followed = bed.run("runs", "logs", "-f", str(number))
    assert [line for line in followed.stdout.splitlines() if "gpudeck" not in line] == [
        "one", "two"]
    assert bed.parts(number)[0]["status"] == 5
    assert "ended with status 5 after" in bed.run("runs").stdout
    for path in [bed.runs, *bed.runs.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_run_is_cancelled_while_it_waits_and_while_it_runs(bed: RunsBed) -> None:
    first = bed.detach("--gpus", "4", "--", *SLEEPS)
    wait_for(bed.is_in(first, "running"), 30)
    waits = bed.detach("--", "true")
    wait_for(bed.in_queue(1), 30)
    after = bed.detach("--after", str(first), "--", "true")
    ignores = bed.detach("--after", str(after), "--array", "1-3%1", "--", "true")
    for number in (waits, first):
        assert bed.run("runs", "cancel", str(number)).returncode == 0
    wait_for(bed.is_in(waits, "cancelled"), 30)
    wait_for(bed.is_in(first, "cancelled"), 30)
    wait_for(bed.is_in(after, "skipped"), 30)
    wait_for(bed.is_in(ignores, "skipped"), 30)
    assert "has ended already" in bed.run("runs", "cancel", str(first)).stderr
    wait_for(lambda: bed.free() == 4, 30)


def test_who_is_killed_is_shown_as_such_and_its_gpu_is_nobody_elses(bed: RunsBed) -> None:
    number = bed.detach("--gpus", "2", "--", *SLEEPS)
    wait_for(bed.is_in(number, "running"), 30)
    os.kill(bed.pid(number, "part.json"), signal.SIGKILL)
    wait_for(bed.is_in(number, "unsupervised"), 30)
    time.sleep(3)  # as long as the agent takes to see it
    assert bed.free() == 2
    assert bed.run("run", "--gpus", "3", "--no-wait", "--", "true").returncode == 10
    after = bed.detach("--after", str(number), "--", "true")
    assert bed.states(after) == ["queued"]
    assert bed.run("runs", "cancel", str(number)).returncode == 0
    wait_for(bed.is_in(number, "cancelled"), 30)
    wait_for(bed.is_in(after, "skipped"), 30)
    wait_for(lambda: bed.free() == 4, 30)


def test_what_has_begun_outlives_its_supervisor_and_the_rest_is_run_again(bed: RunsBed) -> None:
    number = bed.detach("--array", "1-4%2", "--", "sleep", "4")
    wait_for(lambda: bed.states(number).count("running") == 2, 30)
    os.kill(bed.pid(number, "supervisor.json"), signal.SIGKILL)
    wait_for(lambda: sorted(bed.states(number)) == ["ended", "ended", "lost", "lost"], 60)
    assert bed.run("runs", "again", str(number)).returncode == 0
    wait_for(bed.is_in(number + 1, "ended"), 60)
    assert [part["index"] for part in bed.parts(number + 1)] == [3, 4]


def test_agents_come_and_go(tmp_path: Path) -> None:
    bed, goes_on = RunsBed(tmp_path), tmp_path / "go-on"
    with bed.agent() as agent:
        running = bed.detach("--gpus", "4", "--", "sh", "-c",
                             f"until [ -e {goes_on} ]; do sleep 0.2; done; exit 4")
        wait_for(bed.is_in(running, "running"), 30)
        waits = bed.detach("--", "true")
        wait_for(bed.is_in(waits, "waiting"), 30)
        agent.kill()
        agent.wait()
    run = bed.run("run", "--detach", "--", "true")
    assert (run.returncode, "no agent answers" in run.stderr) == (4, True)
    assert bed.states(running) == ["running"]
    goes_on.touch()
    with bed.agent():
        wait_for(lambda: [part["status"] for number in (running, waits)
                          for part in bed.parts(number)] == [4, 0], 60)
        bed.close()


def test_a_full_disk_costs_no_run(tmp_path: Path) -> None:
    """Let all writes fail, also of what it says, from when runs wait until four have ended."""
    bed = RunsBed(tmp_path)
    with small_disk(tmp_path / "disk") as disk, bed.agent():
        bed.env["XDG_STATE_HOME"] = str(disk / "state")
        bed.runs = disk / "state/gpudeck/runs"
        holder = bed.start("run", "--gpus", "4", "--", *SLEEPS)
        wait_for(lambda: bed.free() == 0, 30)
        notes = tmp_path / "notes"
        notes.mkdir()
        number = bed.detach("--array", "1-6%4", "--gpus", "2", "--", "sh", "-c",
                            f"touch {notes}/$GPUDECK_ARRAY_INDEX; exit $GPUDECK_ARRAY_INDEX")
        wait_for(bed.in_queue(4), 30)
        filler = fill(disk)
        holder.terminate()  # what waits is told of its place, and begins
        wait_for(lambda: len(list(notes.iterdir())) == 4, 60)
        wait_for(lambda: bed.free() == 4, 30)
        filler.unlink()
        wait_for(bed.is_in(number, "ended"), 60)
        assert {part["index"]: part["status"] for part in bed.parts(number)} == {
            index: index for index in range(1, 7)}
        bed.close()


def test_a_run_whose_folder_is_removed_begins_nothing_more_and_leaves_no_process(bed: RunsBed
                                                                                 ) -> None:
    number = bed.detach("--array", "1-3%1", "--", "sleep", "3")
    wait_for(lambda: bed.states(number)[0] == "running", 30)
    pids = [bed.pid(number, name) for name in ("supervisor.json", "part-1.json")]
    shutil.rmtree(bed.runs / str(number))
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 30)
    wait_for(lambda: bed.free() == 4, 30)


def test_a_run_that_cannot_be_read_hides_no_other(bed: RunsBed) -> None:
    broken, other = (bed.detach("--", "true") for _ in range(2))
    for number in (broken, other):
        wait_for(bed.is_in(number, "ended"), 30)
    (bed.runs / str(broken) / "part.json").write_bytes(b"")  # as a power cut leaves it
    listing = bed.run("runs")
    assert (listing.returncode, f"run {broken} cannot be read" in listing.stderr) == (0, True)
    assert [line.split()[0] for line in listing.stdout.splitlines()] == [str(other)]


def test_what_a_removed_run_has_left_behind_is_not_ended_with_a_later_one(bed: RunsBed) -> None:
    first = bed.detach("--", "sh", "-c", "setsid sleep 600 > /dev/null 2>&1 & echo $!")
    wait_for(bed.is_in(first, "ended"), 30)
    left_pid = int(bed.run("runs", "logs", str(first)).stdout.split()[-1])
    try:
        assert bed.run("runs", "remove", str(first)).returncode == 0
        second = bed.detach("--", *SLEEPS)
        wait_for(bed.is_in(second, "running"), 30)
        assert bed.run("runs", "cancel", "--kill", str(second)).returncode == 0
        wait_for(bed.is_in(second, "cancelled"), 30)
        assert Path(f"/proc/{left_pid}").exists()
    finally:
        os.kill(left_pid, signal.SIGKILL)


SENDMAIL = """#!/bin/sh
{ echo "to $*"; cat; } > "$MAILS/$$.new" && mv "$MAILS/$$.new" "$MAILS/$$"
exit ${SENDMAIL_STATUS:-0}
"""


def test_how_it_ended_is_said_at_ones_terminal_and_by_mail(bed: RunsBed, tmp_path: Path) -> None:
    mails, program = tmp_path / "mails", tmp_path / "bin/sendmail"
    for folder in (mails, program.parent):
        folder.mkdir()
    program.write_text(SENDMAIL)
    program.chmod(0o755)
    bed.env |= {"PATH": f"{program.parent}:{bed.env.get('PATH', os.environ['PATH'])}",
                "MAILS": str(mails)}
    near, far = os.openpty()
    number = bed.detach("--mail", "ann@example.org", "--array", "1-2", "--", "sh", "-c",
                        "exit $((GPUDECK_ARRAY_INDEX - 1))")
    text = f"gpudeck run {number} (sh -c exit $((GPUDECK_ARRAY_INDEX - 1))): "
    [mail] = wait_for(lambda: [path for path in mails.iterdir() if path.suffix == ""], 60)
    words, _, document = mail.read_bytes().partition(b"\n")
    message = email.message_from_bytes(document, policy=email.policy.default)
    assert (words, message["To"]) == (b"to -i -- ann@example.org", "ann@example.org")
    assert message["Subject"] == f"{text}1 ended with status 0, 1 ended with status 1"
    lines = message.get_content().splitlines()
    assert f"run {number}.2 ended with status 1" in lines, "which has failed"
    assert f"Output: {bed.runs / str(number)}" in lines
    os.set_blocking(near, False)
    text_read = b""

    def is_told() -> bool:
        nonlocal text_read
        with contextlib.suppress(BlockingIOError):
            text_read += os.read(near, 65_536)
        return text.encode() in text_read

    wait_for(is_told, 30)
    bed.env["SENDMAIL_STATUS"] = "75"
    skipped = bed.detach("--mail", "ann@example.org", "--after", str(number), "--", "true")
    log = bed.runs / str(skipped) / "supervisor.log"
    wait_for(lambda: "sendmail: exit status 75" in log.read_text(), 60)
    assert len(list(mails.iterdir())) == 2, "also of what never began"
    for fd in (near, far):
        os.close(fd)


REFUSED = (
    (("--detach", "--", "no-such-program"), "No such file"),
    (("--detach", "--array", "5-1", "--", "true"), "contains no index"),
    (("--detach", "--after", "99", "--", "true"), "there is no run 99"),
    (("--detach", "--after", "x", "--", "true"), "is no run"),
    (("--detach", "--print-env", "--", "true"), "needs a terminal"),
    (("--detach", "--ssh", "--", "true"), "needs a terminal"),
    (("--detach", "--mail", "-oQ/tmp@x y", "--", "true"), "an address"),
    (("--array", "1-3", "--", "true"), "goes with --detach"))


def test_what_cannot_be_is_said_before_anything_is_queued(bed: RunsBed) -> None:
    for words, says in REFUSED:
        run = bed.run("run", *words)
        status = 127 if "no-such-program" in words else 2  # as shells have it
        assert (run.returncode, says in run.stderr) == (status, True), run.stderr
    assert list(RunFolders(bed.env)) == []


def test_who_was_queued_first_has_a_slot_first(tmp_path: Path) -> None:
    first, second = WaitingSlots(tmp_path, 1), WaitingSlots(tmp_path, 2)
    slots = [first.take() for _ in range(16)]
    assert None not in slots
    assert first.take() is second.take() is None
    os.close(slots[0] or 0)
    assert second.take() is None, "the first still wants one"
    first.leave()
    last = second.take()
    assert last is not None
    second.leave()
    for slot in (*slots[1:], last):
        os.close(slot or 0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it outlives us
@pytest.mark.parametrize(("lingers", "kills", "says", "in_scope"), [
    (True, "b false", "continues", True), (False, "b false", "continues", False),
    (False, "b true", "it ends when you log out", False), (False, "", "not known", False)])
def test_what_a_log_out_does_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lingers: bool, kills: str, says: str,
    in_scope: bool
) -> None:
    """Use stand-ins of systemd's programs: the scope runs the supervisor, as the real one does."""
    programs, user = tmp_path / "bin", os.environ.get("USER", "root")
    programs.mkdir()
    for name, text in (("busctl", f'echo "{kills}"'), (
            "systemd-run", f'echo "$@" > {tmp_path}/scope\nwhile [ "${{1#-}}" != "$1" ]; do shift; '
                           'done\nexec "$@"')):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd/private").touch()
    if lingers:
        (tmp_path / user).touch()
    monkeypatch.setattr(start, "SYSTEMD", tmp_path)
    monkeypatch.setattr(start, "LINGERS", tmp_path)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("USER", user)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    folder, _ = RunFolders(env).make(RunRequest(
        0, "elsewhere", 0.0, "/", (), ("true",), after=("1",)))  # there is none
    assert says in start.start(folder, env)
    assert (tmp_path / "scope").exists() is in_scope
    wait_for(lambda: (part := folder.part(None)) is not None and part.state == "skipped", 30)

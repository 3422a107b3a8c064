"""What the command of a run has left behind: children of its run by then. Those of others are not
of its lease."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpudeck.contract.pool_messages import Bind, Bound, GiveBack, LeaseEnded

from .test_reservations import Asker, Machine

# Starts a process for each line, and prints its pid.
STARTS = """
import subprocess, sys
started = []
for line in sys.stdin:
    started.append(subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL))
    print(started[-1].pid, flush=True)
for process in started:
    process.kill()
"""


class Program(Asker):
    """A program of the user, with children of its own."""

    def __init__(self) -> None:
        super().__init__(os.getuid(), "ann")
        self.process = subprocess.Popen([sys.executable, "-c", STARTS], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.peer_pid = self.process.pid

    def start(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture
def programs() -> Iterator[tuple[Program, Program]]:
    programs = Program(), Program()
    yield programs
    for program in programs:
        program.process.communicate(timeout=60)


@pytest.fixture
def command() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "600"]) as command:
        yield command
        command.kill()


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_of_older_agent", [False, True])
def test_they_are_the_children_of_its_run_and_of_nobody_else(
        programs: tuple[Program, Program], command: "subprocess.Popen[bytes]", is_restarted: bool,
        is_of_older_agent: bool, tmp_path: Path) -> None:
    run, other = programs
    machine = Machine(tmp_path)
    machine.ask(run, 1, name="l")
    pidfd = os.pidfd_open(command.pid)
    machine.requests.handle(run, Bind("l"), pidfd)  # type: ignore[arg-type]
    if is_of_older_agent:
        lease = machine.leases.all["l"]
        machine.leases.put(replace(lease, run=None), {})
        machine.requests.handle(run, Bind("l"), pidfd)  # type: ignore[arg-type]
    os.close(pidfd)
    assert run.replies[-1] == Bound()
    left, _ = run.start(), other.start()
    if is_restarted:
        machine.start()
    command.kill()
    command.wait()
    machine.handle(run, GiveBack("l"))
    assert isinstance(ended := run.replies[-1], LeaseEnded)
    assert ended.state == "draining"
    assert [pid for pid, _ in machine.leases.all["l"].left] == [left]
    machine.store.close()


@pytest.mark.parametrize("uid", sorted({os.getuid(), 0}))
def test_who_else_gives_it_back_has_nothing_on_it(
        programs: tuple[Program, Program], command: "subprocess.Popen[bytes]", uid: int,
        tmp_path: Path) -> None:
    run, other = programs
    machine = Machine(tmp_path)
    machine.ask(run, 1, name="l")
    pidfd = os.pidfd_open(command.pid)
    machine.requests.handle(run, Bind("l"), pidfd)  # type: ignore[arg-type]
    os.close(pidfd)
    other.start()
    machine.start()
    command.kill()
    command.wait()
    other.uid = uid
    machine.handle(other, GiveBack("l"))
    assert isinstance(ended := other.replies[-1], LeaseEnded)
    assert (ended.state, dict(machine.leases.all)) == ("released", {})
    machine.store.close()

"""Starts the parts of `demo` and `up` as processes, keeps them running, and ends them all."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gpudeck.child_processes import adopt_orphans, children_of_mine, importable, tied_to_me
from gpudeck.errors import CommandError, ExitCode

RESTART_AFTER_S = 0.5
RESTART_MAX_S = 10.0
STEADY_S = 20.0  # who has run for so long starts with a clean record
END_WITHIN_S = 3.0
# "gpudeck.dashboard" as installed, "dashboard" in a bare checkout: the agent is beside us.
BESIDE = (__package__ or "").rpartition("dashboard")[0]


@dataclass(slots=True, eq=False)
class SupervisedProcess:
    name: str
    module: str  # "agent", "dashboard", "agent.cli.simulate"
    arguments: Sequence[str]
    log: Path | None  # None: our own stderr
    process: "subprocess.Popen[bytes] | None" = None
    started_at: float = 0.0
    start_at: float = 0.0
    failures: int = 0
    ended: str = ""  # how it ended the last time

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid


class Supervisor:
    """One thread, the main one: its children are tied to it."""

    def __init__(self, parts: Sequence[SupervisedProcess]) -> None:
        self.parts = parts
        self.starts = 0  # of parts, ever: whoever compares it knows whether pids have changed
        self._tie = tied_to_me()
        self._asked_to_end = False
        self._wake_r, self._wake_w = socket.socketpair()
        self._wake_r.setblocking(False)
        self._wake_w.setblocking(False)

    def __enter__(self) -> "Supervisor":
        adopt_orphans()
        signal.set_wakeup_fd(self._wake_w.fileno())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask_to_end)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        self._end_parts()
        _end_orphans()
        signal.set_wakeup_fd(-1)

    def run(self, step: Callable[[], float]) -> None:
        """Until somebody asks us to end. `step` is called at every turn and says for how many
        seconds nothing need happen."""
        while not self._asked_to_end:
            self._reap()
            now = time.monotonic()
            for part in self.parts:
                if part.process is None and now >= part.start_at:
                    self._start(part, now)
            self._sleep(min([step(), *(part.start_at - now for part in self.parts
                                       if part.process is None)]))

    def give_up(self, part: SupervisedProcess) -> CommandError:
        """What to tell people of a part that cannot start."""
        said = [] if part.log is None else part.log.read_text(errors="replace").splitlines()
        reason = next((line for line in reversed(said) if line.strip()), "it said nothing")
        return CommandError(f"the {part.name} does not start: {reason.removeprefix('gpudeck: ')}",
                            ExitCode.CANNOT_START)

    def _ask_to_end(self, signum: int, frame: FrameType | None) -> None:
        self._asked_to_end = True

    def _sleep(self, seconds: float) -> None:
        select.select([self._wake_r], [], [], max(0.0, seconds))
        with contextlib.suppress(BlockingIOError):
            self._wake_r.recv(4_096)

    def _start(self, part: SupervisedProcess, now: float) -> None:
        if part.ended:
            print(f"gpudeck: the {part.name} ended ({part.ended}) and is being restarted",
                  file=sys.stderr, flush=True)
        with contextlib.ExitStack() as files:
            out = None if part.log is None else files.enter_context(open(part.log, "ab"))
            part.process = subprocess.Popen(
                [sys.executable, "-P", "-m", BESIDE + part.module, *part.arguments],
                preexec_fn=self._tie, start_new_session=True, env=_environment(os.environ),
                # What a part says on stdout (the hub: its sign-in link) is said by us.
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=out,
            )
        part.started_at = now
        self.starts += 1

    def _reap(self) -> None:
        """Parts that have ended, and orphans that have been given to us."""
        mine = {part.pid: part for part in self.parts if part.process is not None}
        while (found := _ended_child()) is not None:
            part = mine.get(found)
            if part is None:
                os.waitpid(found, 0)
            else:
                self._ended(part, time.monotonic())

    def _ended(self, part: SupervisedProcess, now: float) -> None:
        assert part.process is not None
        status = part.process.wait()
        part.ended = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        steady = now - part.started_at > STEADY_S
        part.failures = 1 if steady else part.failures + 1
        wait_s = min(RESTART_AFTER_S * 2 ** (part.failures - 1), RESTART_MAX_S)
        part.process, part.start_at = None, now + wait_s

    def _end_parts(self) -> None:
        running = [part.process for part in self.parts if part.process is not None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + END_WITHIN_S
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _ended_child() -> int | None:
    """A child that has ended and has not been waited for, left in place."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid


def _end_orphans() -> None:
    """Whatever is left of our children's children has come to us."""
    deadline = time.monotonic() + 1.0
    while (left := children_of_mine()) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """What is set for a person's own hub or agent must not reach the parts of a demo."""
    kept = {name: value for name, value in env.items() if not name.startswith("GPUDECK_")}
    return importable(__package__, kept)

"""Supervision of the processes of `demo` and `up`: starts, restarts and ends them."""

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

from gpudeck.errors import CommandError, ExitCode
from gpudeck.system.child_processes import adopt_orphans, children_of_mine, importable, tied_to_me

RESTART_AFTER_S = 0.5
RESTART_MAX_S = 10.0
STEADY_S = 20.0  # a process that ran this long starts again with no failures counted
END_WITHIN_S = 3.0
# "gpudeck." as installed, "" in a bare checkout: the agent's package is next to ours.
PACKAGE_PREFIX = (__package__ or "").rpartition("dashboard")[0]


@dataclass(slots=True, eq=False)
class SupervisedProcess:
    name: str
    module: str  # "agent", "dashboard", "agent.simulator.command"
    arguments: Sequence[str]
    log: Path | None  # None: our own stderr
    process: "subprocess.Popen[bytes] | None" = None
    started_at: float = 0.0
    start_at: float = 0.0
    failures: int = 0
    last_exit: str = ""  # how it ended the last time

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid


class Supervisor:
    """Runs in the main thread, to which its children are tied."""

    def __init__(self, parts: Sequence[SupervisedProcess]) -> None:
        self.parts = parts
        self.starts = 0  # of all parts; if it has changed, pids have changed
        self._tie = tied_to_me()
        self._is_ending = False
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
        """Run the parts until a signal asks us to end. `step` is called at every turn and returns
        the seconds until it needs to be called again."""
        while not self._is_ending:
            self._reap()
            now = time.monotonic()
            for part in self.parts:
                if part.process is None and now >= part.start_at:
                    self._start(part, now)
            self._sleep(min([step(), *(part.start_at - now for part in self.parts
                                       if part.process is None)]))

    def give_up(self, part: SupervisedProcess) -> CommandError:
        """Return the error for a part that cannot start, with the last line of its log."""
        lines = [] if part.log is None else part.log.read_text(errors="replace").splitlines()
        reason = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return CommandError(f"the {part.name} does not start: {reason.removeprefix('gpudeck: ')}",
                            ExitCode.CANNOT_START)

    def _ask_to_end(self, signum: int, frame: FrameType | None) -> None:
        self._is_ending = True

    def _sleep(self, seconds: float) -> None:
        select.select([self._wake_r], [], [], max(0.0, seconds))
        with contextlib.suppress(BlockingIOError):
            self._wake_r.recv(4_096)

    def _start(self, part: SupervisedProcess, now: float) -> None:
        if part.last_exit:
            print(f"gpudeck: the {part.name} ended ({part.last_exit}) and is being restarted",
                  file=sys.stderr, flush=True)
        with contextlib.ExitStack() as files:
            out = None if part.log is None else files.enter_context(open(part.log, "ab"))
            part.process = subprocess.Popen(
                [sys.executable, "-P", "-m", PACKAGE_PREFIX + part.module, *part.arguments],
                preexec_fn=self._tie, start_new_session=True, env=_environment(os.environ),
                # Stdout of a part (the hub's sign-in link) is dropped: we print that ourselves.
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=out,
            )
        part.started_at = now
        self.starts += 1

    def _reap(self) -> None:
        """Wait for parts that have ended, and for orphans that we have adopted."""
        part_by_pid = {part.pid: part for part in self.parts if part.process is not None}
        while (pid := _exited_child()) is not None:
            part = part_by_pid.get(pid)
            if part is None:
                os.waitpid(pid, 0)
            else:
                self._record_exit(part, time.monotonic())

    def _record_exit(self, part: SupervisedProcess, now: float) -> None:
        assert part.process is not None
        status = part.process.wait()
        part.last_exit = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
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


def _exited_child() -> int | None:
    """Return the pid of a child that has ended, without waiting for it; None: none has."""
    try:
        info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if info is None else info.si_pid


def _end_orphans() -> None:
    """Kill the remaining descendants: orphans of our children have become our children."""
    deadline = time.monotonic() + 1.0
    while (orphans := children_of_mine()) and time.monotonic() < deadline:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the parts, without GPUDECK_ variables: those set for a user's own
    hub or agent must not reach them."""
    variables = {name: value for name, value in env.items() if not name.startswith("GPUDECK_")}
    return importable(__package__, variables)

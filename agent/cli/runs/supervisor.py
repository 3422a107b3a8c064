"""Process of a detached run: begins its commands as slots and `--after` allow.

What it has begun goes on without it.
"""

import os
import signal
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpudeck.errors import CommandError, ExitCode, run_as_program

from ...tasks.terminals import notify
from ..run import say
from .folder import RunFolder, RunFolders, WaitingSlots
from .mail import send_mail
from .part import run_part
from .request import RunPart, RunRequest, failure, outcome, parse_run, summary

POLL_EVERY_S = 0.5
ENDS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
WATCHED = {signal.SIGCHLD, *ENDS}


class RunSupervisor:
    def __init__(self, folder: RunFolder, request: RunRequest) -> None:
        self._folder = folder
        self._request = request
        self._runs = RunFolders(os.environ)
        self._slots = WaitingSlots(folder.path.parent, request.number)
        self._queue = deque(request.parts)
        self._running: dict[int, int | None] = {}  # pid to part
        self._unnoted: list[tuple[int | None, int]] = []  # parts that have ended, and how
        self._after = [parse_run(name) for name in request.after]
        self._is_ending = False
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)

    def run(self) -> None:
        self._folder.put_supervisor()
        while (self._queue or self._running or self._unnoted) and self._folder.is_there():
            try:
                self._step()
            except OSError as error:  # such as a full disk; it may have room later
                say(str(error))
            info = signal.sigtimedwait(WATCHED, POLL_EVERY_S)
            if info is not None and info.si_signo in ENDS:
                self._end()
        if not self._is_ending and self._folder.is_there():
            self._report()

    def _step(self) -> None:
        self._reap()
        for index in [index for index in self._queue if self._folder.is_cancelled(index)]:
            self._finish(index, RunPart("cancelled"))
            self._queue.remove(index)
        while self._may_begin():
            if not self._begin():
                return
        self._slots.leave()

    def _may_begin(self) -> bool:
        most = self._request.at_once
        return bool(self._queue) and self._has_after() and (
            most is None or len(self._running) < most)

    def _has_after(self) -> bool:
        while self._after:
            try:
                why = self._runs.why_after_not(*self._after[0])
            except CommandError as error:  # such as removed
                why = str(error)
            if why is None:
                return False
            if why:
                while self._queue:
                    self._finish(self._queue[0], RunPart("skipped", why=why))
                    self._queue.popleft()
                return False
            self._after.pop(0)
        return True

    def _begin(self) -> bool:
        """Begin the next part. False: no slot is free."""
        slot = self._slots.take()
        if slot is None:
            return False
        index = self._queue[0]
        try:
            pid = os.fork()
            if pid == 0:
                self._slots.leave()
                signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
                run_part(self._folder, self._request, index, slot)
        finally:
            os.close(slot)
        self._queue.popleft()
        self._running[pid] = index
        return True

    def _reap(self) -> None:
        """Reap parts that have ended: one that was killed could not note its end."""
        for pid in list(self._running):
            reaped, code = os.waitpid(pid, os.WNOHANG)
            if reaped:
                self._unnoted.append((self._running.pop(pid), code))
        while self._unnoted:  # until there is room on the disk
            self._note_end(*self._unnoted[0])
            self._unnoted.pop(0)

    def _note_end(self, index: int | None, code: int) -> None:
        part = self._folder.part(index)
        if part is None or not part.is_final:
            self._note_killed(index, part or RunPart("lost"), code)
        elif self._folder.is_cancelled(index):
            self._folder.put(index, msgspec.structs.replace(part, state="cancelled", why=""))

    def _note_killed(self, index: int | None, part: RunPart, code: int) -> None:
        """Note that a part was killed. Its command may go on without it: then there is no end to
        note."""
        if self._folder.is_cancelled(index):
            self._finish(index, msgspec.structs.replace(part, state="cancelled"))
        elif not self._folder.pids(self._request.name(index)):
            status = os.waitstatus_to_exitcode(code)
            self._finish(index, msgspec.structs.replace(part, state="lost", why=(
                f"its process was killed by signal {-status}" if status < 0 else
                "its process could not note how it ended")))

    def _finish(self, index: int | None, part: RunPart) -> None:
        self._folder.put(index, msgspec.structs.replace(part, ended_at=time.time()))

    def _end(self) -> None:
        """End at log-out, or when the machine stops: what has begun is asked to end, and the rest
        does not begin."""
        self._is_ending = True
        self._queue.clear()
        for pid in self._running:
            os.kill(pid, signal.SIGTERM)

    def _report(self) -> None:
        parts = self._folder.parts_now(self._request)
        name = f"gpudeck run {self._request.number} ({' '.join(self._request.command)[:200]})"
        message = f"{name}: {summary([*parts.values()])}" if self._request.indices else (
            f"{name} {outcome(parts[None])}")
        notify(os.getuid(), [message])
        if self._request.mail_to:
            lines = [message, "", failure(self._request, parts), f"Output: {self._folder.path}"]
            if why := send_mail(self._request.mail_to, message[:200], lines):
                say(why)


def supervise(argv: Sequence[str]) -> int:
    if len(argv) != 1:
        raise CommandError("`gpudeck run --detach` starts this", ExitCode.USAGE)
    folder = RunFolder(Path(argv[0]))
    RunSupervisor(folder, folder.request()).run()
    return ExitCode.OK


if __name__ == "__main__":
    run_as_program(supervise)

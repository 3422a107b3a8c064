"""The command of `gpudeck run`: forked, held until its lease is bound to it, and waited for."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpudeck.errors import CommandError, ExitCode

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells have them
PR_SET_CHILD_SUBREAPER = 36
SI_KERNEL = 0x80
# The terminal sends these to the command itself: it is of the same process group.
OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
ENDS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
FORWARDED = (*ENDS, signal.SIGTSTP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
             signal.SIGCONT)
WATCHED = {signal.SIGCHLD, *FORWARDED}
# Python ignores these, and a command would inherit that: `yes | head` would never end.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class CommandEnd(NamedTuple):
    """`was_told`: somebody told `run` to end it."""

    status: int
    was_told: bool


def run_command(command: Sequence[str], env: Mapping[str, str], bind: Callable[[int], None]
                ) -> CommandEnd:
    """Its status, 128 + N if signal N ended it. `bind`: names it, by its pidfd, before it begins;
    what it raises ends it unbegun."""
    # Double forks come back to us: their lease ends with them, not before.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    try:
        return _wait(_start(command, env, bind))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _start(command: Sequence[str], env: Mapping[str, str], bind: Callable[[int], None]) -> int:
    go_reads, go = os.pipe()
    failed, fails = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        if os.read(go_reads, 1) != b"g":
            os._exit(NOT_EXECUTABLE)  # the lease is not ours: nothing runs
        for each in IGNORED_BY_PYTHON:
            signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        try:
            os.execvpe(command[0], list(command), dict(env))
        except OSError as error:
            os.write(fails, str(error.errno).encode())
            os._exit(NOT_FOUND)
    os.close(go_reads)
    os.close(fails)
    try:
        bind(os.pidfd_open(child))
        os.write(go, b"g")
    finally:
        os.close(go)
    why = os.read(failed, 16)
    os.close(failed)
    if why:
        os.waitpid(child, 0)
        raise CommandError(f"cannot run {command[0]!r}: {os.strerror(int(why))}", ExitCode.USAGE)
    return child


def _wait(child: int) -> CommandEnd:
    """Forwards signals until the command has ended."""
    was_told = False
    while True:
        caught = signal.sigwaitinfo(WATCHED)
        if caught.si_signo == signal.SIGCHLD:
            if (status := _reap(child)) is not None:
                return CommandEnd(status, was_told)
            continue
        was_told = was_told or caught.si_signo in ENDS
        from_terminal = caught.si_code == SI_KERNEL and caught.si_signo in OF_TERMINAL
        if not from_terminal:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, caught.si_signo)
        if caught.si_signo == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)


def _reap(child: int) -> int | None:
    """The child cannot be another process: nobody else reaps it."""
    ended = None
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == child:
                code = os.waitstatus_to_exitcode(found[1])
                ended = code if code >= 0 else 128 - code
    return ended

"""Command of `gpudeck run`: forked, held until its lease is bound to it, and waited for."""

import contextlib
import ctypes
import errno
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from gpudeck.errors import CommandError, ExitCode

PR_SET_CHILD_SUBREAPER = 36
SI_KERNEL = 0x80
# The terminal sends these to the command itself: it is of the same process group.
OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
OF_SESSION = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)  # which nohup and a shell's & ignore
ENDS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
FORWARDED = (*ENDS, signal.SIGTSTP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
             signal.SIGCONT)
WAKES = signal.SIGALRM  # to ourselves: look whether the command is to be ended
OWN = (signal.SIGCHLD, WAKES)
# Python ignores these, and a command would inherit that: `yes | head` would never end.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


SentSignals = set[tuple[int, signal.Signals]]  # each with the pid that got it
Ending = Callable[[], signal.Signals | None]


class CommandEnd(NamedTuple):
    """`was_signalled`: `run` received a signal to end it. `was_taken`: its GPUs were taken back."""

    status: int
    was_signalled: bool
    was_taken: bool


def check_command(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Raise CommandError if there is no such program: before anybody waits for GPUs."""
    path = env.get("PATH")
    if shutil.which(command[0], path=path) is None:
        is_there = shutil.which(command[0], os.F_OK, path) is not None
        raise _cannot_run(command, errno.EACCES if is_there else errno.ENOENT)


def _cannot_run(command: Sequence[str], number: int) -> CommandError:
    return CommandError(
        f"cannot run {command[0]!r}: {os.strerror(number)}",
        ExitCode.NOT_FOUND if number == errno.ENOENT else ExitCode.NOT_EXECUTABLE)


def run_command(command: Sequence[str], env: Mapping[str, str], bind: Callable[[int, int], None],
                ending: Ending = lambda: None) -> CommandEnd:
    """Run the command; its status is 128 + N if signal N ended it. `bind` gets its pid and pidfd
    before it begins, and keeps the pidfd; if it raises, the command does not begin. `ending`
    returns the signal that shall end it now, if any; it is called after `WAKES`."""
    # Double forks come back to us: their lease ends with them, not before.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    other_children = _children()  # of a shell that became us by `exec`
    signal.signal(WAKES, lambda *_: None)  # it may come when nobody waits any more
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would not report a child's end
    wakers = _wakers()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, wakers)
    try:
        return _wait(_start(command, env, bind, wakers), wakers, ending, bool(other_children))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _wakers() -> set[signal.Signals]:
    """Return the signals to wait for. What was ignored before us, as SIGHUP by nohup, stays so: the
    kernel would queue it for who blocks it, and it would count as the user's wish to end."""
    return {*OWN, *(number for number in FORWARDED if number not in OF_SESSION
                    or signal.getsignal(number) is not signal.SIG_IGN)}


def _start(command: Sequence[str], env: Mapping[str, str], bind: Callable[[int, int], None],
           wakers: Set[signal.Signals]) -> int:
    go_reads, go = os.pipe()
    failed, fails = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        if os.read(go_reads, 1) != b"g":
            os._exit(ExitCode.NOT_EXECUTABLE)  # the lease is not ours: nothing runs
        for number in IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, wakers)
        try:
            os.execvpe(command[0], list(command), dict(env))
        except OSError as error:
            os.write(fails, str(error.errno).encode())
            os._exit(ExitCode.NOT_FOUND)
    os.close(go_reads)
    os.close(fails)
    pidfd = -1
    try:
        pidfd = os.pidfd_open(child)
        bind(child, pidfd)
        os.write(go, b"g")
    except BaseException:
        if pidfd >= 0:
            os.close(pidfd)
        os.close(failed)
        os.close(go)
        os.waitpid(child, 0)
        raise
    os.close(go)
    why = os.read(failed, 16)
    os.close(failed)
    if why:
        os.waitpid(child, 0)
        raise _cannot_run(command, int(why))
    return child


def _wait(child: int, wakers: Set[signal.Signals], ending: Ending, has_others: bool
          ) -> CommandEnd:
    """Forward signals until the command has ended, and all it started if its GPUs were taken back.
    `has_others`: not all our children are of the command, and nobody knows which are."""
    was_signalled, status = False, None
    signals: SentSignals = set()
    while True:
        info = signal.sigwaitinfo(wakers)
        if info.si_signo == signal.SIGCHLD:
            exit_status = _reap(child)
            status = status if exit_status is None else exit_status
        elif info.si_signo != WAKES:
            was_signalled = was_signalled or info.si_signo in ENDS
            _forward(info, child if status is None else None)
        how = ending()
        if how is not None:
            children = set() if has_others else _children()
            signals = _end(child if status is None else None, children, how, signals)
        if status is not None and (how is None or has_others or not _children()):
            return CommandEnd(status, was_signalled, how is not None)


def _forward(info: signal.struct_siginfo, child: int | None) -> None:
    from_terminal = info.si_code == SI_KERNEL and info.si_signo in OF_TERMINAL
    if not from_terminal and child is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, info.si_signo)
    if info.si_signo == signal.SIGTSTP:
        os.kill(os.getpid(), signal.SIGSTOP)


def _end(child: int | None, children: set[int], how: signal.Signals, signals: SentSignals
         ) -> SentSignals:
    """Signal the command first; what it leaves behind becomes our child. Nobody else reaps our
    children, so that their pids are nobody else's."""
    living = children if child is None else {*children, child}
    targets = living if child is None or how == signal.SIGKILL else {child}
    for pid, _ in {(pid, how) for pid in targets} - signals:
        with contextlib.suppress(OSError):  # such as of another user, by sudo
            os.kill(pid, how)
            os.kill(pid, signal.SIGCONT)  # a stopped process receives nothing
    return {entry for entry in signals if entry[0] in living} | {(pid, how) for pid in targets}


def _children() -> set[int]:
    """Return our children, with orphans of theirs and those that are being reaped."""
    children: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            children |= {int(pid) for pid in (thread / "children").read_text().split()}
    return children


def _reap(child: int) -> int | None:
    """Reap children; return the command's status, or None. The child cannot be another process:
    nobody else reaps it."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
            if reaped[0] == child:
                code = os.waitstatus_to_exitcode(reaped[1])
                status = code if code >= 0 else 128 - code
    return status

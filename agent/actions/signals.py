"""The only signals to tasks. A process is opened first, checked second, signalled by its handle.

What is compared through /proc while the pidfd is still alive is the process that the pidfd
signals; the other way round, a pid that was reused in between is hit: pidfd_open(2).
"""

import os
import resource
import select
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack

from gpudeck.contract.actions import ProcessIdentity

from ..tasks.processes import NO_PROCESS, PROC, ProcessFacts, facts

WAKE_EVERY_S = 0.1
FILES_WANTED = 8_192  # two for each victim and bystander


class ProcessHandle:
    """A handle on one process: no other is ever reached through it."""

    def __init__(self, pid: int, pidfd: int, folder: int) -> None:
        self.pid = pid
        self._pidfd = pidfd
        self._folder = folder

    @classmethod
    def open(cls, pid: int) -> "ProcessHandle | None":
        """Open the process; None: there is none (any more). Whatever else is in the way is an
        OSError: a victim that cannot be held must not pass for one that has ended."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            if error.errno in NO_PROCESS:
                return None
            raise
        try:
            folder = os.open(PROC / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            os.close(pidfd)
            if error.errno in NO_PROCESS:
                return None
            raise
        return cls(pid, pidfd, folder)

    def facts(self) -> ProcessFacts | None:
        """Read its facts; None: it has ended, even if its pid lives on in another."""
        current = facts(self.pid, self._folder, self._pidfd)
        return current if self.is_alive() else None

    def is_alive(self) -> bool:
        """Return whether it runs: a pidfd is readable from the moment of exit, reaped or not."""
        return not _poll([self._pidfd], 0)

    def may_signal(self) -> bool:
        try:
            signal.pidfd_send_signal(self._pidfd, 0)  # only asks
        except PermissionError:
            return False
        except ProcessLookupError:
            pass
        return True

    def send(self, number: signal.Signals) -> bool:
        """Send the signal; False: it had ended already."""
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            return False
        return True

    @property
    def fd(self) -> int:
        return self._pidfd

    def close(self) -> None:
        for fd in (self._pidfd, self._folder):
            os.close(fd)


class ProcessHandles(ExitStack):
    """Several handles, closed together."""

    def open(self, pid: int) -> ProcessHandle | None:
        handle = ProcessHandle.open(pid)
        if handle is not None:
            self.callback(handle.close)
        return handle

    def facts(self, pid: int) -> ProcessFacts | None:
        handle = self.open(pid)
        return None if handle is None else handle.facts()


def make_room() -> None:
    """Raise the limit of open files: the usual 1,024 are too few to hold on to a big job."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def is_same(current: ProcessIdentity, former: ProcessIdentity) -> bool:
    """Return whether it is the very process of before, and still the same program. What one of the
    two could not tell is not compared; pid, start and user always are."""
    always = (current.pid, current.start_ticks, current.uid) == (
        former.pid, former.start_ticks, former.uid)
    return always and all(
        one == other for one, other in (
            (current.executable, former.executable), (current.cgroup, former.cgroup),
            (current.pidfs_inode, former.pidfs_inode))
        if one is not None and other is not None)


def living(handles: Sequence[ProcessHandle]) -> list[ProcessHandle]:
    ended_fds = set(_poll([handle.fd for handle in handles], 0))
    return [handle for handle in handles if handle.fd not in ended_fds]


def wait_for_end(handles: Sequence[ProcessHandle], seconds: float) -> list[ProcessHandle]:
    """Wait until all have ended, or for so long. Return those that are still there."""
    deadline = time.monotonic() + seconds
    remaining = living(handles)
    while remaining and (rest := deadline - time.monotonic()) > 0:
        ended_fds = set(_poll([handle.fd for handle in remaining], min(rest, WAKE_EVERY_S)))
        remaining = [handle for handle in remaining if handle.fd not in ended_fds]
    return remaining


def _poll(fds: Sequence[int], seconds: float) -> list[int]:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(seconds * 1_000)]

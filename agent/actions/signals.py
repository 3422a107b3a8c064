"""The only signals to tasks. A process is held first, looked at second, signalled through the hold.

What is compared through /proc while the pidfd is still alive is the process that the pidfd
signals; the other way round, a pid that was reused in between is hit: pidfd_open(2).
"""

import errno
import os
import resource
import select
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack

from gpudeck.actions import ProcessIdentity

from ..tasks.processes import PROC, ProcessFacts, facts

WAKE_EVERY_S = 0.1
# EINVAL before kernel 6.9, ENOENT since: the number is that of a thread.
NO_PROCESS = (errno.ESRCH, errno.ENOENT, errno.EINVAL)
FILES_WANTED = 8_192  # two for each victim and bystander


class ProcessHandle:
    """A hold on one process: no other is ever reached through it."""

    def __init__(self, pid: int, pidfd: int, folder: int) -> None:
        self.pid = pid
        self._pidfd = pidfd
        self._folder = folder

    @classmethod
    def take(cls, pid: int) -> "ProcessHandle | None":
        """None: there is no such process (any more). Whatever else is in the way is an OSError: a
        victim that cannot be held must not pass for one that has ended."""
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
        """None: it has ended, even if its pid lives on in another."""
        found = facts(self.pid, self._folder, self._pidfd)
        return found if self.is_alive() else None

    def is_alive(self) -> bool:
        """Readable from the moment of its exit, reaped or not."""
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
        """False: it had ended already."""
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

    def take(self, pid: int) -> ProcessHandle | None:
        grip = ProcessHandle.take(pid)
        if grip is not None:
            self.callback(grip.close)
        return grip

    def facts(self, pid: int) -> ProcessFacts | None:
        grip = self.take(pid)
        return None if grip is None else grip.facts()


def make_room() -> None:
    """The usual 1,024 files are too few to hold on to a big job."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def is_same(found: ProcessIdentity, shown: ProcessIdentity) -> bool:
    """The very process that was shown, and still the same program. What one of the two could not
    tell is not compared; pid, start and user always are."""
    always = (found.pid, found.start_ticks, found.uid) == (shown.pid, shown.start_ticks, shown.uid)
    return always and all(
        one == other for one, other in (
            (found.executable, shown.executable), (found.cgroup, shown.cgroup),
            (found.pidfs_inode, shown.pidfs_inode))
        if one is not None and other is not None)


def living(grips: Sequence[ProcessHandle]) -> list[ProcessHandle]:
    ended = set(_poll([grip.fd for grip in grips], 0))
    return [grip for grip in grips if grip.fd not in ended]


def wait_for_end(grips: Sequence[ProcessHandle], seconds: float) -> list[ProcessHandle]:
    """Until all have ended, or so long. Returns who is still there."""
    deadline = time.monotonic() + seconds
    left = living(grips)
    while left and (rest := deadline - time.monotonic()) > 0:
        ended = set(_poll([grip.fd for grip in left], min(rest, WAKE_EVERY_S)))
        left = [grip for grip in left if grip.fd not in ended]
    return left


def _poll(fds: Sequence[int], seconds: float) -> list[int]:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(seconds * 1_000)]

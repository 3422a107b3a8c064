"""What shows that a lease is used: its process, or its mark in an environment."""

import errno
import os
import re
import select
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gpudeck.pool.messages import LEASE_ENV

from ..tasks.managers import paths_of, place_of
from ..tasks.processes import (
    PROC,
    about,
    has_pidfs,
    own_manager,
    read_in,
    row_in,
    row_of,
    status_of,
)
from .lock import LeasedProcess, Marks, ProcessKey

_MARK = f"{LEASE_ENV}=".encode()
_LAUNCHER = re.compile(r"/user-(\d{1,10})\.slice(?=/|$)")
ENVIRON_BYTES = 1_000_000


class _Mark(NamedTuple):
    lease_id: str
    process: ProcessKey
    uid: int
    cgroups: str


class ProcessSigns:
    """Asks the kernel."""

    def process_of(self, pidfd: int, uid: int) -> LeasedProcess | None:
        """By its handle, so that a pid that was used again is nobody. None: it has ended, is of
        another pid namespace, or of another user: anybody can open a handle of any process."""
        pid = pid_of(pidfd)
        if pid is None or pid <= 0:
            return None
        row, found = row_of(pid), about(pid)
        # Read first, then asked again: the handle still names the process that was looked at.
        if row is None or found is None or found.uid != uid or pid_of(pidfd) != pid:
            return None
        return LeasedProcess(pid, row.start_ticks, os.fstat(pidfd).st_ino if has_pidfs() else None)

    def is_alive(self, process: LeasedProcess) -> bool:
        """A pidfd first, then the comparison: between the two it cannot be another. Raises OSError
        where the kernel cannot be asked, as without free file descriptors."""
        try:
            pidfd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return False
        try:
            if process.inode is not None and os.fstat(pidfd).st_ino != process.inode:
                return False
            row = row_of(process.pid)
            if row is None:
                return not _has_ended(pidfd)
            return row.start_ticks == process.start_ticks and row.state not in "ZX"
        finally:
            os.close(pidfd)

    def marked(self, uids: Mapping[str, int], proc: Path = PROC) -> Marks:
        """Which processes carry the mark of each lease. Those of the lease's user alone: anyone
        can write a mark into their own environment. `uids`: lease to its user. Raises OSError
        where not all could be looked at: that one has no mark would end a lease in use."""
        found: dict[str, set[ProcessKey]] = {lease_id: set() for lease_id in uids}
        for name in os.listdir(proc):
            mark = _mark(proc, name) if name.isdigit() else None
            if mark is not None and mark.lease_id in found and _is_of(uids[mark.lease_id], mark):
                found[mark.lease_id].add(mark.process)
        return found


def _is_of(uid: int, mark: _Mark) -> bool:
    """Processes in a container belong to the user who started it, whatever uid they run as.
    Without root that is
    below their slice; who may start one elsewhere is as good as root."""
    if mark.uid == uid:
        return True
    paths = paths_of(mark.cgroups)
    place = place_of(paths)
    launchers = {int(each) for path in paths for each in _LAUNCHER.findall(path)}
    return (place.container is not None and place.pod_uid is None
            and place.manager != own_manager() and launchers <= {uid})


def pid_of(pidfd: int) -> int | None:
    try:
        lines = Path(f"/proc/self/fdinfo/{pidfd}").read_bytes().split(b"\n")
        return next((int(line[4:]) for line in lines if line.startswith(b"Pid:")), None)
    except (OSError, ValueError):
        return None


def _has_ended(pidfd: int) -> bool:
    asked = select.poll()
    asked.register(pidfd, select.POLLIN)
    return bool(asked.poll(0))


def _mark(proc: Path, name: str) -> _Mark | None:
    try:
        folder = os.open(proc / name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return _mark_in(folder, name)
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return None


def _mark_in(folder: int, name: str) -> _Mark | None:
    try:
        text = read_in("environ", folder, ENVIRON_BYTES)
        at = text.find(_MARK)
        if at < 0 or (at > 0 and text[at - 1]):
            return None
        row = row_in(int(name), read_in("stat", folder))
        if row is None or row.state in "ZX":
            return None
        lease_id = text[at + len(_MARK):].split(b"\0", 1)[0].decode(errors="replace")
        return _Mark(lease_id, (row.pid, row.start_ticks), status_of(read_in("status", folder))[0],
                     read_in("cgroup", folder).decode(errors="replace"))
    except (ValueError, IndexError):
        return None

"""Signs that a lease is used: its process and its descendants, its mark in an environment, or its
scope."""

import errno
import os
import re
import select
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from gpudeck.contract.pool_messages import LEASE_ENV, SCOPE_UNIT

from ..tasks.jobs import ProcessTableRow
from ..tasks.managers import paths_of, place_of
from ..tasks.processes import (
    NO_PROCESS,
    PROC,
    about,
    has_pidfs,
    own_manager,
    read_in,
    row_in,
    row_of,
    status_of,
    table,
)
from .lock import LeasedProcess, Marks, ProcessKey

_MARK = f"\0{LEASE_ENV}=".encode()
_SCOPE = re.compile(r"([^/\n]{1,256})".join(map(re.escape, f"/{SCOPE_UNIT}".split("{}")))
                    + r"(?=/|$)", re.MULTILINE)
_LAUNCHER = re.compile(r"/user-(\d{1,10})\.slice(?=/|$)")
ENVIRON_BYTES = 1_000_000


class _SeenProcess(NamedTuple):
    """Process as read from /proc. `marked`, `scoped`: leases whose mark or scope it has; "":
    none."""

    row: ProcessTableRow
    uid: int
    marked: str
    scoped: str
    cgroups: str

    @property
    def key(self) -> ProcessKey:
        return self.row.pid, self.row.start_ticks


class ProcessSigns:
    """Signs of use, read from the kernel."""

    def process_of(self, pidfd: int, uid: int) -> LeasedProcess | None:
        """Return the process of a pidfd, so that a reused pid matches nobody. None: it has ended,
        is in another pid namespace, or belongs to another user: anybody can open a pidfd of any
        process."""
        pid = pid_of(pidfd)
        if pid is None or pid <= 0:
            return None
        row, details = row_of(pid), about(pid)
        # Read, then checked again: the handle still names the process that was read.
        if row is None or details is None or details.uid != uid or pid_of(pidfd) != pid:
            return None
        return LeasedProcess(pid, row.start_ticks, os.fstat(pidfd).st_ino if has_pidfs() else None)

    def key_of(self, pid: int) -> ProcessKey | None:
        row = row_of(pid)
        return None if row is None else (pid, row.start_ticks)

    def is_alive(self, process: LeasedProcess) -> bool:
        """Return whether a process is alive. The pidfd is opened first, then compared: in between
        it cannot become another process. Raises OSError where the kernel cannot be asked, as
        without free file descriptors."""
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError as error:
            if error.errno in NO_PROCESS:
                return False
            raise
        try:
            if process.inode is not None and os.fstat(pidfd).st_ino != process.inode:
                return False
            row = row_of(process.pid)
            if row is None:
                return not _has_ended(pidfd)
            return row.start_ticks == process.start_ticks and row.state not in "ZX"
        finally:
            os.close(pidfd)

    def is_stopped(self, pid: int) -> bool:
        """Return whether a process is stopped, by Ctrl-Z or a debugger: it hears nothing
        meanwhile."""
        row = row_of(pid)
        return row is not None and row.state in "Tt"

    def marked(self, uids: Mapping[str, int], roots: Mapping[str, Collection[ProcessKey]],
               proc: Path = PROC) -> Marks:
        """Return the processes of each lease: those that carry its mark, are in its scope, or
        descend from one of these or of its `roots`, which count too. Marks and scopes of the
        lease's user alone: anyone can write a mark into their own environment. `uids`: lease to its
        user. Raises OSError where not all could be looked at: a lease in use must not end because
        its processes were not seen."""
        by_lease: dict[str, set[ProcessKey]] = {lease_id: set() for lease_id in uids}
        if not by_lease:
            return by_lease
        processes = [process for name in os.listdir(proc) if name.isdigit()
                     and (process := _inspect(proc, name)) is not None]
        for process in processes:
            if process.marked in by_lease and _is_of(uids[process.marked], process):
                by_lease[process.marked].add(process.key)
            if process.scoped in by_lease and _is_in_scope_of(uids[process.scoped], process):
                by_lease[process.scoped].add(process.key)
        there = {process.key for process in processes}
        children = _children(process.row for process in processes)
        for lease_id, members in by_lease.items():
            members |= there.intersection(roots.get(lease_id, ()))
            _add_descendants(members, children)
        return by_lease

    def started_by(self, pid: int, since_ticks: int) -> frozenset[ProcessKey]:
        """Return the descendants of a process that still run and began at `since_ticks` or
        later."""
        rows = table()
        if pid not in rows:
            return frozenset()
        tree = {(pid, rows[pid].start_ticks)}
        _add_descendants(tree, _children(rows.values()))
        return frozenset(key for key in tree if key[0] != pid and key[1] >= since_ticks
                         and rows[key[0]].state not in "ZX")


def _children(rows: Iterable[ProcessTableRow]) -> Mapping[int, Collection[ProcessKey]]:
    by_parent: dict[int, list[ProcessKey]] = defaultdict(list)
    for row in rows:
        by_parent[row.parent].append((row.pid, row.start_ticks))
    return by_parent


def _add_descendants(members: set[ProcessKey], children: Mapping[int, Collection[ProcessKey]]
                     ) -> None:
    pending = list(members)
    while pending:
        new = set(children.get(pending.pop()[0], ())) - members
        members |= new
        pending += new


def _is_of(uid: int, process: _SeenProcess) -> bool:
    """Return whether a process is a user's. Processes in a container belong to the user who started
    it, whatever uid they run as. Without root that is below their slice; who may start one
    elsewhere is as good as root."""
    if process.uid == uid:
        return True
    paths = paths_of(process.cgroups)
    place = place_of(paths)
    return (place.container is not None and place.pod_uid is None
            and place.manager != own_manager() and _launchers(paths) <= {uid})


def _is_in_scope_of(uid: int, process: _SeenProcess) -> bool:
    """Return whether a process in a lease's scope is its user's. Below their own slice only users
    themselves place processes, also such as run as others."""
    return process.uid == uid or _launchers(paths_of(process.cgroups)) == {uid}


def _launchers(paths: Iterable[str]) -> set[int]:
    return {int(uid) for path in paths for uid in _LAUNCHER.findall(path)}


def pid_of(pidfd: int) -> int | None:
    try:
        lines = Path(f"/proc/self/fdinfo/{pidfd}").read_bytes().split(b"\n")
        return next((int(line[4:]) for line in lines if line.startswith(b"Pid:")), None)
    except (OSError, ValueError):
        return None


def _has_ended(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def _inspect(proc: Path, name: str) -> _SeenProcess | None:
    """Read a process. None: it has ended, or is a kernel thread."""
    try:
        folder = os.open(proc / name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        _raise_if_short(error)
        return None
    try:
        row = row_in(int(name), read_in("stat", folder))
        if row is None or row.is_kernel or row.state in "ZX":
            return None
        uid, _ = status_of(read_in("status", folder))
        cgroups = read_in("cgroup", folder).decode(errors="replace")
        scope = _SCOPE.search(cgroups)
        return _SeenProcess(row, uid, _mark_in(folder), "" if scope is None else scope[1], cgroups)
    except OSError as error:
        _raise_if_short(error)
        return None
    except (ValueError, IndexError):
        return None
    finally:
        os.close(folder)


def _mark_in(folder: int) -> str:
    """Return the lease that a process's environment names; "": none, or not readable."""
    try:
        _, mark, rest = (b"\0" + read_in("environ", folder, ENVIRON_BYTES)).partition(_MARK)
    except OSError as error:
        _raise_if_short(error)
        return ""
    return rest.split(b"\0", 1)[0].decode(errors="replace") if mark else ""


def _raise_if_short(error: OSError) -> None:
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise error

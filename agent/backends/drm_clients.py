"""Users of boards by their open files: what the kernel says of each file of /dev/dri.

Whose open files may be read is the kernel's decision: without CAP_SYS_PTRACE those of other users
are not seen.

A machine has thousands of open files and hardly any of them is a board's. A list looks at processes
that had a board open, at those that are new, and at some of the others by turns; a list on request
looks at all.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from gpudeck.measures.metrics import DENIED, Absence

from ..tasks.privileges import sees_all
from .sysfs import content, properties

DEVICES = "/dev/dri/"
AWAKE: Mapping[str, str] = MappingProxyType({})
TURNS = 5  # lists until every process was looked at


class DrmClient(NamedTuple):
    """Use of a board by a process through one of its open files. Without values: of a board that
    sleeps, which a read of them may wake."""

    pid: int
    uuid: str
    client: str
    values: Mapping[str, str]


class DrmClients:
    def __init__(self, uuids: Mapping[str, str], proc: Path, turns: int = TURNS) -> None:
        """`uuids`: of the boards, by PCI address."""
        self._uuids, self._proc, self._turns = uuids, proc, turns
        self._pids: frozenset[int] = frozenset()  # of the last list
        self._holders: frozenset[int] = frozenset()  # of them, those with a board open
        self._closed: frozenset[int] = frozenset()  # whose files were refused when looked at last
        self._turn = 0

    @property
    def is_complete(self) -> bool:
        """Return whether all processes of the machine were looked at: none was refused, and none is
        hidden."""
        return not self._closed and sees_all(self._proc)

    def read(self, users: Collection[int], is_whole: bool, asleep: Mapping[str, str] = AWAKE
             ) -> Iterator[DrmClient]:
        """Yield each client once, however often it is open. `users`: who is known to use a board;
        `asleep`: boards whose clients are not asked for numbers, by device file. `is_whole` False:
        a process that opens its first board may be listed `turns` lists late."""
        clients: set[tuple[str, str]] = set()
        holders, closed = set[int](), set[int]()
        looked_at = self._looked_at(users, is_whole)
        for pid in looked_at:
            try:
                for client in self._of_process(pid, asleep):
                    holders.add(pid)
                    if client is None or (client.values and (key := client[1:3]) in clients):
                        continue
                    if client.values:
                        clients.add(key)
                    yield client
            except PermissionError:
                closed.add(pid)
        self._holders = frozenset(holders)
        self._closed = (self._closed - frozenset(looked_at)) & self._pids | closed

    def _looked_at(self, users: Collection[int], is_whole: bool) -> list[int]:
        """Return the processes whose open files are listed this time. By number alone: a process
        that took over the number of a holder is looked at, and is one no more."""
        pids = numbers(self._proc)
        former, self._pids = self._pids, frozenset(pids)
        self._turn += 1
        if is_whole:
            return pids
        return [pid for pid in pids if pid in self._holders or pid in users or pid not in former
                or pid % self._turns == self._turn % self._turns]

    def _of_process(self, pid: int, asleep: Mapping[str, str]) -> Iterator[DrmClient | None]:
        """Yield its open files of boards; None: of none of ours. Raises PermissionError."""
        folder = f"{self._proc}/{pid}"
        for file in _files(f"{folder}/fd"):
            try:
                device = os.readlink(f"{folder}/fd/{file}")
            except PermissionError:
                raise
            except OSError:  # it has just been closed
                continue
            if not device.startswith(DEVICES):
                continue
            if device in asleep:
                yield DrmClient(pid, asleep[device], "", {})
                continue
            values = _values(f"{folder}/fdinfo/{file}")
            board, client = values.get("drm-pdev", ""), values.get("drm-client-id", "")
            if client and board in self._uuids:
                yield DrmClient(pid, self._uuids[board], client, values)
            else:
                yield None


def _values(path: str) -> dict[str, str]:
    """Return what the kernel says of an open file. Raises PermissionError."""
    read = content(path)
    if read is DENIED:
        raise PermissionError(path)
    return {} if isinstance(read, Absence) else properties(read.decode(errors="replace"), ":")


def numbers(folder: Path | str) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except OSError:
        return []


def _files(folder: str) -> list[int]:
    """Return its open files; of a process that has just ended none. Raises PermissionError."""
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except PermissionError:
        raise
    except OSError:
        return []

"""Control groups of this machine, which the driver can limit."""

import os
from pathlib import Path

from ..tasks.control_group import CGROUP, folder_of, group_of
from ..tasks.processes import PROC
from .memory_limits import ControlGroups


class GroupTree:
    """The tree of cgroup v2. `root`: its folder, as NVIDIA's driver expects it."""

    def __init__(self, root: Path = CGROUP, proc: Path = PROC) -> None:
        self._root = root
        self._proc = proc

    def facts(self) -> ControlGroups:
        own = group_of("self", self._proc)
        return ControlGroups("/" if own is None else own,
                             nests=(self._root / "dmem.capacity").exists())

    def folder(self, group: str) -> str:
        return folder_of(group, self._root)

    def identity(self, group: str) -> str | None:
        """Return what tells a group from another one of the same name. None: there is none."""
        if ".." in group.split("/"):
            return None
        try:
            return str(os.lstat(self.folder(group)).st_ino)
        except OSError:
            return None

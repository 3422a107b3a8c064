"""The users of a node: their names, their groups, and how they are told something."""

import os
import pwd
import time
from collections.abc import Callable
from typing import Protocol

from . import terminals
from .task_table import group_names

FRESH_S = 600.0


class NodePeople(Protocol):
    def name_of(self, uid: int, pid: int) -> str:
        """Of the user of that process, which asks for something."""

    def uid_of(self, name: str) -> int | None: ...
    def groups_of(self, uid: int) -> tuple[str, ...]: ...

    def tell(self, uid: int, sentences: list[str]) -> terminals.TerminalReach: ...


class SystemPeople:
    """Those of this machine's user table: the system says who is in which group, and never they
    themselves. Behind it may be a directory service, so groups are asked seldom."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._groups: dict[int, tuple[float, tuple[str, ...]]] = {}

    def name_of(self, uid: int, pid: int) -> str:
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)

    def uid_of(self, name: str) -> int | None:
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            return None

    def groups_of(self, uid: int) -> tuple[str, ...]:
        at, found = self._groups.get(uid, (float("-inf"), ()))
        if self._now() - at >= FRESH_S:
            found = _groups(uid)
            self._groups[uid] = self._now(), found
        return found

    def tell(self, uid: int, sentences: list[str]) -> terminals.TerminalReach:
        return terminals.tell(uid, sentences)


def _groups(uid: int) -> tuple[str, ...]:
    try:
        user = pwd.getpwuid(uid)
        return group_names(os.getgrouplist(user.pw_name, user.pw_gid))
    except (KeyError, OSError):
        return ()

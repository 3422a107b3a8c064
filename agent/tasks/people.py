"""Users of a node: their names, their groups, and how they are notified."""

import time
from collections.abc import Callable
from typing import Protocol

from . import terminals, user_table

FRESH_S = 600.0


class NodePeople(Protocol):
    def name_of(self, uid: int, pid: int) -> str:
        """Return the name of the user of that process, which asks for something. Raises OSError
        where it could not be found out; returns their number where there is no name."""

    def uid_of(self, name: str) -> int | None:
        """Return the user's uid; None: nobody has that name. Raises OSError where it could not be
        found out."""

    def groups_of(self, uid: int) -> tuple[str, ...]: ...

    def notify(self, uid: int, sentences: list[str]) -> terminals.TerminalReach: ...


class SystemPeople:
    """Users of this machine's user table: the system says who is in which group, and never they
    themselves. Behind it may be a directory service, so groups are asked seldom."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._groups: dict[int, tuple[float, tuple[str, ...]]] = {}

    def name_of(self, uid: int, pid: int) -> str:
        name = user_table.user_name(uid)
        return str(uid) if name is None else name

    def uid_of(self, name: str) -> int | None:
        return user_table.uid_of(name)

    def groups_of(self, uid: int) -> tuple[str, ...]:
        at, groups = self._groups.get(uid, (float("-inf"), ()))
        if self._now() - at >= FRESH_S:
            try:
                groups = user_table.groups_of(uid)
            except OSError:
                return groups  # asked again the next time
            self._groups[uid] = self._now(), groups
        return groups

    def notify(self, uid: int, sentences: list[str]) -> terminals.TerminalReach:
        return terminals.notify(uid, sentences)

"""Users of a node: their names, their groups, and how they are notified."""

import errno
import os
import time
from collections.abc import Callable, Collection
from typing import Protocol

from . import terminals, user_table
from .lookups import Lookups

GROUPS_FRESH_S, UIDS_FRESH_S = 600.0, 10.0
# While a directory service does not answer: quotas of a group that somebody has left go on for a
# day, and work does not stop for an outage of hours.
GROUPS_VALID_S = 86_400.0
TaskUser = tuple[int, tuple[int, ...]]  # uid, and numbers of groups
SOON_S = 0.2


class NodePeople(Protocol):
    def name_of(self, uid: int, pid: int) -> str:
        """Return the name of the user of that process, which asks for something; may wait for a
        directory service. Raises OSError where it could not be found out; returns their number
        where there is no name."""

    def uids_of(self, names: Collection[str]) -> dict[str, int | str]:
        """Return the uids of users, or why one has none, without those that are still being looked
        up. Waits a moment at most."""

    def look_up(self, uid: int) -> None:
        """Look up a user's groups, unless that was done lately; may wait for a directory
        service."""

    def groups_of(self, uid: int) -> tuple[str, ...] | None:
        """Return the user's groups as they were looked up last. None: they are being looked up for
        the first time, or have not been found out for a day. Never waits."""

    def notify(self, uid: int, sentences: list[str]) -> terminals.TerminalReach: ...


class SystemPeople:
    """Users of this machine's user table: the system says who is in which group, and never they
    themselves. Behind it may be a directory service, so it is asked seldom, and the pool does not
    wait for it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._groups = Lookups("groups", user_table.groups_of, GROUPS_FRESH_S, now,
                               valid_s=GROUPS_VALID_S)
        self._uids = Lookups("uids", _uid_or_why, UIDS_FRESH_S, now,
                             is_kept=lambda uid: isinstance(uid, int))

    def name_of(self, uid: int, pid: int) -> str:
        name = user_table.user_name(uid)
        return str(uid) if name is None else name

    def uids_of(self, names: Collection[str]) -> dict[str, int | str]:
        return self._uids.all_soon(names, SOON_S)

    def look_up(self, uid: int) -> None:
        self._groups.look_up(uid)

    def groups_of(self, uid: int) -> tuple[str, ...] | None:
        return self._groups.last(uid)

    def notify(self, uid: int, sentences: list[str]) -> terminals.TerminalReach:
        return terminals.notify(uid, sentences)


class TaskUsers:
    """Users of tasks, for a loop that waits only a moment for a directory service."""

    def __init__(self) -> None:
        # Kept for one task only: who was not found may be there when the next begins.
        self._lookups: Lookups[TaskUser, tuple[str, tuple[str, ...]]] = Lookups(
            "task users", lambda key: user_table.user_and_groups(*key), UIDS_FRESH_S,
            is_kept=lambda names: False)
        self._is_slow = False

    def __call__(self, uid: int, gids: tuple[int, ...]) -> tuple[str, tuple[str, ...]]:
        """Return the name of a user and of groups. Raises OSError as long as they are not known."""
        within_s = 0.0 if self._is_slow else SOON_S  # of many users the first is waited for
        names = self._lookups.all_soon({(uid, gids)}, within_s).get((uid, gids))
        self._is_slow = names is None
        if names is None:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return names


def _uid_or_why(name: str) -> int | str:
    """Return the uid of a user, or why there is none."""
    try:
        uid = user_table.uid_of(name)
    except OSError as why:
        return f"its users cannot be read ({why.strerror})"
    return f"there is no user {name}" if uid is None else uid

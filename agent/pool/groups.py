"""In which groups users of this node are: the system says so, and never they themselves."""

import os
import pwd
from collections.abc import Callable

from ..tasks.task_table import group_names

FRESH_S = 600.0


class UserGroups:
    """Asked seldom: behind it may be a directory service."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: dict[int, tuple[float, tuple[str, ...]]] = {}

    def of(self, uid: int) -> tuple[str, ...]:
        at, found = self._known.get(uid, (float("-inf"), ()))
        if self._now() - at >= FRESH_S:
            found = _groups(uid)
            self._known[uid] = self._now(), found
        return found


def _groups(uid: int) -> tuple[str, ...]:
    try:
        user = pwd.getpwuid(uid)
        return group_names(os.getgrouplist(user.pw_name, user.pw_gid))
    except (KeyError, OSError):
        return ()

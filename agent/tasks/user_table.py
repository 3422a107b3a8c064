"""Names of this machine's users and groups, as its system knows them.

A lookup says alike that nobody has a number while a directory service is away, and for want of a
file descriptor: what was not found is not remembered.
"""

import grp
import os
import pwd
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from .wire_text import cut

GROUPS_MAX = 32
K = TypeVar("K")
T = TypeVar("T")


def user_name(uid: int) -> str | None:
    """None: nobody has it. Raises OSError where that could not be found out."""
    return _looked_up(_user_name, uid)


def uid_of(name: str) -> int | None:
    """None: nobody is called that. Raises OSError where that could not be found out."""
    found = _looked_up(pwd.getpwnam, name)
    return None if found is None else found.pw_uid


def name_of(uid: int) -> str:
    """For people to read."""
    try:
        found = user_name(uid)
    except OSError:
        found = None
    return uid_words(uid) if found is None else found


def uid_words(uid: int) -> str:
    """Of somebody who has no name."""
    return f"uid {uid}"


def groups_of(uid: int) -> tuple[str, ...]:
    """Raises OSError where they could not be found out."""
    user = _looked_up(pwd.getpwuid, uid)
    if user is None:
        return ()
    gids = os.getgrouplist(user.pw_name, user.pw_gid)
    _open_a_file()  # else most of them are missing
    return group_names(gids)


def group_names(gids: Sequence[int]) -> tuple[str, ...]:
    """What has no name here is of no group that anybody could mean. Raises OSError where they could
    not be found out."""
    names = (cut(_looked_up(_group_name, gid)) for gid in gids[:GROUPS_MAX])
    return tuple(sorted({name for name in names if name is not None}))


def _looked_up(look: Callable[[K], T], key: K) -> T | None:
    try:
        return look(key)
    except KeyError:
        _open_a_file()
    try:
        return look(key)  # there may have been no file descriptor the first time
    except KeyError:
        return None


def _open_a_file() -> None:
    """Raises OSError where none can be: no lookup finds anything then."""
    os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


@lru_cache(maxsize=1_024)
def _user_name(uid: int) -> str:
    return pwd.getpwuid(uid).pw_name


@lru_cache(maxsize=1_024)
def _group_name(gid: int) -> str:
    return grp.getgrgid(gid).gr_name

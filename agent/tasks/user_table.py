"""Names of this machine's users and groups, as its system knows them.

A lookup says alike that nobody has a number while a directory service is away, and for want of a
file descriptor: what was not found is not remembered.
"""

import ctypes
import errno
import grp
import os
import pwd
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from .wire_text import cut

GROUPS_MAX = 32
GROUPS_AT_FIRST, GROUPS_AT_LAST = 64, 65_536  # of one user, as the kernel has them at most
K = TypeVar("K")
T = TypeVar("T")


def user_name(uid: int) -> str | None:
    """Return the user's name; None: nobody has this uid. Raises OSError where that could not be
    found out."""
    return _look_up(_user_name, uid)


def uid_of(name: str) -> int | None:
    """Return the user's uid; None: nobody is called that. Raises OSError where that could not be
    found out."""
    entry = _look_up(pwd.getpwnam, name)
    return None if entry is None else entry.pw_uid


def name_of(uid: int) -> str:
    """Return the user's name, or words for it, for people to read."""
    try:
        name = user_name(uid)
    except OSError:
        name = None
    return uid_words(uid) if name is None else name


def uid_words(uid: int) -> str:
    """Return words for somebody who has no name."""
    return f"uid {uid}"


def user_and_groups(uid: int, gids: Sequence[int]) -> tuple[str, tuple[str, ...]]:
    """Return the names of a process's user, or words for it, and of its groups. Raises OSError
    where they could not be found out."""
    name = user_name(uid)
    return uid_words(uid) if name is None else name, group_names(gids)


def groups_of(uid: int) -> tuple[str, ...]:
    """Return the names of a user's groups. Raises OSError where they could not be found out."""
    user = _look_up(pwd.getpwuid, uid)
    if user is None:
        return ()
    gids = _group_numbers(user.pw_name, user.pw_gid)
    _open_a_file()  # else most of them are missing
    return group_names(gids)


def _group_numbers(name: str, gid: int) -> list[int]:
    """Return the numbers of a user's groups. os.getgrouplist would stop all threads of this process
    until a directory service has answered. Raises OSError."""
    get = ctypes.CDLL(None).getgrouplist
    most = GROUPS_AT_FIRST
    while most <= GROUPS_AT_LAST:
        gids, count = (ctypes.c_uint * most)(), ctypes.c_int(most)
        if get(os.fsencode(name), ctypes.c_uint(gid), gids, ctypes.byref(count)) >= 0:
            return list(gids[:count.value])
        most *= 2
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


def group_names(gids: Sequence[int]) -> tuple[str, ...]:
    """Return the names of groups, without those that have no name here: nobody could mean one.
    Raises OSError where they could not be found out."""
    names = (cut(_look_up(_group_name, gid)) for gid in gids[:GROUPS_MAX])
    return tuple(sorted({name for name in names if name is not None}))


def _look_up(look: Callable[[K], T], key: K) -> T | None:
    try:
        return look(key)
    except KeyError:
        _open_a_file()
    try:
        return look(key)  # there may have been no file descriptor the first time
    except KeyError:
        return None


def _open_a_file() -> None:
    """Open a file. Raises OSError where none can be opened: no lookup finds anything then."""
    os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


@lru_cache(maxsize=1_024)
def _user_name(uid: int) -> str:
    return pwd.getpwuid(uid).pw_name


@lru_cache(maxsize=1_024)
def _group_name(gid: int) -> str:
    return grp.getgrgid(gid).gr_name

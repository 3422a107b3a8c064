"""The node's own bound on what any hub, rule or person may do here: `ceiling.toml`.

It is read anew for every act, so that a change counts at once. What cannot be trusted (not root's
or ours, writable by others, not understood) permits nothing at all, and says so.
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gpudeck.action_table import SHOWN_ACTIONS

from ..tasks.processes import file_id

DEFAULT = Path("/etc/gpudeck/ceiling.toml")
MANAGED = ("refuse", "allow")


@dataclass(frozen=True, slots=True)
class Ceiling:
    actions: tuple[str, ...] = SHOWN_ACTIONS
    kills_per_hour: int = 3
    rules_may_act: bool = False
    terminal_may_act: bool = True
    root_tasks: bool = False
    managed: str = "refuse"
    own_pid_namespace: bool = False
    protected_users: tuple[str, ...] = ()
    protected_units: tuple[str, ...] = ()
    protected_executables: tuple[str, ...] = ()
    trouble: str = ""  # why nothing is permitted, for people

    @property
    def allowed(self) -> tuple[str, ...]:
        return () if self.trouble else self.actions

    def protected_ids(self) -> frozenset[str]:
        """device:inode of the listed executables, as they are now."""
        found = (file_id(path) for path in self.protected_executables)
        return frozenset(each for each in found if each is not None)


def read_ceiling(path: Path | None) -> Ceiling:
    """`path` None: the usual place, where a missing file means the defaults."""
    where = path or DEFAULT
    try:
        with open(where, "rb", opener=_no_link) as file:
            if trouble := _untrusted(where, os.fstat(file.fileno())):
                return _nothing(trouble)
            return _parsed(where, tomllib.load(file))
    except FileNotFoundError:
        return Ceiling() if path is None else _nothing(
            f"the ceiling {where} is not there; make it, or start the agent without --ceiling")
    except OSError as error:
        return _nothing(f"the ceiling {where} cannot be read ({error.strerror}); nothing is "
                        "permitted until it can")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return _nothing(f"the ceiling {where} is not TOML ({error}); nothing is permitted until "
                        "it is mended")


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)


def _untrusted(path: Path, about: os.stat_result) -> str:
    if not stat.S_ISREG(about.st_mode):
        return f"the ceiling {path} is not a file"
    if about.st_uid not in (0, os.geteuid()):
        return (f"the ceiling {path} belongs to another user; run: chown root {path} - nothing is "
                "permitted until then")
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return (f"others can write the ceiling {path}; run: chmod go-w {path} - nothing is "
                "permitted until then")
    folder = os.stat(path.parent)
    shared = folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not folder.st_mode & stat.S_ISVTX
    if folder.st_uid not in (0, os.geteuid()) or shared:
        return (f"others can replace the ceiling {path}; its folder must be root's and writable "
                "by nobody else - nothing is permitted until then")
    return ""


def _parsed(path: Path, given: Mapping[str, Any]) -> Ceiling:
    known = {each.name: each for each in fields(Ceiling) if each.name != "trouble"}
    unknown = sorted(set(given) - set(known))
    if unknown:
        return _nothing(f"the ceiling {path} has a key {unknown[0]!r}; there are "
                        f"{', '.join(sorted(known))} - nothing is permitted until it is mended")
    values: dict[str, Any] = {}
    for name, value in given.items():
        wanted = type(getattr(Ceiling(), name))
        values[name] = tuple(value) if isinstance(value, list) and wanted is tuple else value
        if not _fits(name, values[name], wanted):
            return _nothing(f"the ceiling {path} says {name} = {value!r}, which does not fit; "
                            "see docs/acts.md - nothing is permitted until it is mended")
    return Ceiling(**values)


def _fits(name: str, value: Any, wanted: Any) -> bool:
    if type(value) is not wanted:
        return False
    if wanted is tuple and not all(isinstance(each, str) and each for each in value):
        return False
    if name == "actions":
        return all(each in SHOWN_ACTIONS for each in value)
    if name == "managed":
        return value in MANAGED
    return not (name == "kills_per_hour" and value < 0)


def _nothing(trouble: str) -> Ceiling:
    return Ceiling(trouble=trouble)

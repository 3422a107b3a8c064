"""The node's own bound on what any hub, rule or person may do here: `ceiling.toml`.

It is read again for every action, so that a change counts at once. A file that cannot be trusted
(not root's or ours, writable by others, not understood) permits nothing, and the refusal says why.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from gpudeck.contract.action_table import PERMITTED, ShownAction
from gpudeck.contract.rungs import RulesCeiling

from ..backends import Backend
from ..tasks.privileges import in_host_namespace
from ..tasks.processes import FOREIGN_PIDS, file_id

DEFAULT = Path("/etc/gpudeck/ceiling.toml")
Name = Annotated[str, Meta(min_length=1)]


@dataclass(frozen=True, slots=True)
class Ceiling:
    actions: tuple[ShownAction, ...] = PERMITTED
    kills_per_hour: Annotated[int, Meta(ge=0)] = 3
    pauses_per_hour: Annotated[int, Meta(ge=0)] = 12
    rules_may_act: bool = False
    terminal_may_act: bool = True
    root_tasks: bool = False
    managed: Literal["refuse", "allow"] = "refuse"
    own_pid_namespace: bool = False
    protected_users: tuple[Name, ...] = ()
    protected_units: tuple[Name, ...] = ()
    protected_executables: tuple[Name, ...] = ()
    trouble: str = ""  # why nothing is permitted, for people

    @property
    def permitted_actions(self) -> tuple[ShownAction, ...]:
        return () if self.trouble else self.actions

    @property
    def rules(self) -> RulesCeiling:
        return RulesCeiling(self.rules_may_act, self.managed == "allow")

    def protected_ids(self) -> frozenset[str]:
        """Return device:inode of the listed executables, as they are now."""
        ids = (file_id(path) for path in self.protected_executables)
        return frozenset(device_inode for device_inode in ids if device_inode is not None)


def read_ceiling(path: Path | None) -> Ceiling:
    """Read the ceiling at `path`; None: at the usual place, where a missing file means the
    defaults."""
    where = path or DEFAULT
    try:
        with open(where, "rb", opener=_no_link) as file:
            if trouble := _untrusted(where, os.fstat(file.fileno())):
                return _nothing(trouble)
            import tomllib  # most machines have no such file, and `gpudeck top` must be there

            return _parse(where, tomllib.load(file))
    except FileNotFoundError:
        return Ceiling() if path is None else _nothing(
            f"the ceiling {where} is not there; make it, or start the agent without --ceiling")
    except OSError as error:
        return _nothing(f"the ceiling {where} cannot be read ({error.strerror}); nothing is "
                        "permitted until it can")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return _nothing(f"the ceiling {where} is not TOML ({error}); nothing is permitted until "
                        "it is fixed")


def foreign_pids(backend: Backend, path: Path | None) -> str:
    """Return why the PIDs that the driver lists name no processes here; "": they do."""
    if (backend.capabilities.pids != "host" or in_host_namespace()
            or read_ceiling(path).own_pid_namespace):
        return ""
    return FOREIGN_PIDS


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


def _parse(path: Path, table: Mapping[str, Any]) -> Ceiling:
    hints = get_type_hints(Ceiling, include_extras=True)
    del hints["trouble"]
    unknown = sorted(set(table) - set(hints))
    if unknown:
        return _nothing(f"the ceiling {path} has a key {unknown[0]!r}; there are "
                        f"{', '.join(sorted(hints))} - nothing is permitted until it is fixed")
    values: dict[str, Any] = {}
    for name, value in table.items():
        try:
            values[name] = msgspec.convert(value, hints[name])
        except msgspec.ValidationError:
            return _nothing(f"the ceiling {path} says {name} = {value!r}, which is not valid; "
                            "see docs/actions.md - nothing is permitted until it is fixed")
    return Ceiling(**values)


def _nothing(trouble: str) -> Ceiling:
    return Ceiling(trouble=trouble)

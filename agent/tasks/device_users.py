"""Processes on this machine that have a driver open: its device files, or its library mapped.
Somebody who reloads the driver has to end these first."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from .driver_files import DriverFiles
from .processes import PROC, table

READER = "agent.reader.watchdog"  # as it starts itself, installed or of a checkout


@dataclass(frozen=True, slots=True)
class DeviceUsers:
    processes: tuple[tuple[int, str], ...]  # pid, name
    unseen: int  # other users' processes, that only root may look at


def openers(drivers: Sequence[DriverFiles]) -> DeviceUsers:
    processes, unseen = [], 0
    for folder in (entry for entry in PROC.iterdir() if entry.name.isdigit()):
        try:
            if _has_open(folder, drivers):
                processes.append((int(folder.name), _name(folder)))
        except PermissionError:
            unseen += 1
        except OSError:
            continue  # it has just ended
    return DeviceUsers(tuple(sorted(processes)), unseen)


def readers(agent: int | None, backends: Collection[str] = ()) -> list[int]:
    """Return the reading processes of this agent; None: of every agent on this machine.
    `backends`: those of these alone; empty: of all."""
    return sorted(row.pid for row in table().values()
                  if agent in (None, row.parent) and _is_reader(PROC / str(row.pid), backends))


def _is_reader(folder: Path, backends: Collection[str]) -> bool:
    try:
        words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return any(word.endswith(READER) and (not backends or backend in backends)
               for word, backend in pairwise(words))


def _has_open(folder: Path, drivers: Sequence[DriverFiles]) -> bool:
    devices = tuple(driver.DEVICE_FILES for driver in drivers)
    if any(os.readlink(entry).startswith(devices) for entry in (folder / "fd").iterdir()):
        return True
    mapped = (folder / "maps").read_bytes()
    return any(driver.LIBRARY in mapped for driver in drivers)


def _name(folder: Path) -> str:
    return (folder / "comm").read_text(errors="replace").strip()

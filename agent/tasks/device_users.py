"""Processes on this machine that have a driver open: its device files, or its library mapped.
Somebody who reloads the driver has to end these first."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .driver_files import DriverFiles
from .processes import PROC, table

READER = b"agent.reader.watchdog"  # as it starts itself, installed or of a checkout


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


def readers(agent: int | None) -> list[int]:
    """Return the reading processes of this agent; None: of every agent on this machine."""
    return sorted(row.pid for row in table().values()
                  if agent in (None, row.parent) and _is_reader(PROC / str(row.pid)))


def _is_reader(folder: Path) -> bool:
    try:
        words = (folder / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.endswith(READER) for word in words)


def _has_open(folder: Path, drivers: Sequence[DriverFiles]) -> bool:
    devices = tuple(driver.DEVICE_FILES for driver in drivers)
    if any(os.readlink(entry).startswith(devices) for entry in (folder / "fd").iterdir()):
        return True
    mapped = (folder / "maps").read_bytes()
    return any(driver.LIBRARY in mapped for driver in drivers)


def _name(folder: Path) -> str:
    return (folder / "comm").read_text(errors="replace").strip()

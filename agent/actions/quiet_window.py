"""Quiet window: this node's readers release the driver for a short time, since a board that anybody
has open cannot be reset, and a reader has all of them open (github.com/NVIDIA/NVSentinel, 1691).

The window ends by itself, whatever becomes of the process that opened it: its file says until
when, on the clock of one boot that nobody sets.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..tasks.boot_id import boot_id

QUIET_FILE = "quiet-window"
LASTS_S = 180.0
LET_GO_WITHIN_S = 15.0
LOOK_EVERY_S = 0.1
SENTENCE = ("its GPUs are not read for a moment: one of them is being reset, or its MIG mode "
            "changed")


def order(data: Path, vendor: str = "") -> str:
    """Return why the readers of a vendor's driver must release it now, for people; "": they need
    not. Without a vendor any window counts."""
    try:
        until, boot, *vendors = (data / QUIET_FILE).read_text().split()
        is_on = boot == boot_id() and 0 < float(until) - _boottime() <= LASTS_S
    except (OSError, ValueError):
        return ""
    return SENTENCE if is_on and (vendor in vendors or not (vendor and vendors)) else ""


@contextmanager
def quiet(data: Path, vendor: str, are_readers_left: Callable[[], bool]) -> Iterator[bool]:
    """Open the window for one vendor's driver ("": for every driver); yield whether every reader
    released it in time.
    Raises OSError where the file cannot be written."""
    file = data / QUIET_FILE
    new = file.with_name(f"{QUIET_FILE}.{os.getpid()}")
    new.write_text(f"{_boottime() + LASTS_S}\n{boot_id()}\n{vendor}\n")
    new.replace(file)
    try:
        deadline = time.monotonic() + LET_GO_WITHIN_S
        while (are_open := are_readers_left()) and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
        yield not are_open
    finally:
        file.unlink(missing_ok=True)


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)

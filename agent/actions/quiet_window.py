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


def order(data: Path) -> str:
    """Return why the readers must release the driver now, for people; "": they need not."""
    try:
        until, boot = (data / QUIET_FILE).read_text().split()
        is_on = boot == boot_id() and 0 < float(until) - _boottime() <= LASTS_S
    except (OSError, ValueError):
        return ""
    return SENTENCE if is_on else ""


@contextmanager
def quiet(data: Path, are_readers_left: Callable[[], bool]) -> Iterator[bool]:
    """Open the window; yield whether every reader released the driver in time.
    Raises OSError where the file cannot be written."""
    file = data / QUIET_FILE
    new = file.with_name(f"{QUIET_FILE}.{os.getpid()}")
    new.write_text(f"{_boottime() + LASTS_S}\n{boot_id()}\n")
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

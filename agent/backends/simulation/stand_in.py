"""Stands in for a job: it holds still until somebody ends it.

Never imported: the keeper copies it to DIR/jobs as train.py, serve.py, ..., and runs it there
without site and environment, so it stands on a few built-in modules. GPUDECK_JOB_* say what it is
like; what `control.json` says of its task is read when SIGTERM comes, for it counts only then.
"""

import os
import signal
import sys
import time

TYPE_CHECKING = False  # without typing, whose import takes as long as all the rest
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

WORKERS = int(os.environ.get("GPUDECK_JOB_WORKERS", "0"))
SAVES_S = float(os.environ.get("GPUDECK_JOB_SAVES_S", "0"))
IGNORES = os.environ.get("GPUDECK_JOB_IGNORES_SIGTERM") == "1"
CONTROL = os.environ.get("GPUDECK_JOB_CONTROL", "")

workers: list[int] = []  # as a DataLoader's, they outlive a parent that is killed


def hold() -> None:
    while True:
        signal.pause()


def control_entry() -> "dict[str, Any]":
    import json

    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read()[:8]
    with open("/proc/self/stat") as file:
        ticks = file.read().rpartition(")")[2].split()[19]
    try:
        with open(CONTROL) as file:
            entry = json.load(file)["tasks"][f"{boot}-{os.getpid()}-{ticks}"]
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return entry if isinstance(entry, dict) else {}


def asked_to_end(signum: int, frame: "FrameType | None") -> None:
    entry = control_entry()
    if entry.get("fork_on_term") is True and os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hold()
    if entry.get("ignore_sigterm", IGNORES) is True:
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(SAVES_S)  # the checkpoint
    for pid in workers:
        os.kill(pid, signal.SIGTERM)  # ours, and not waited for: no other process can have the pid
    sys.exit(0)


if __name__ == "__main__":
    for _ in range(WORKERS):
        pid = os.fork()
        if pid == 0:
            hold()
        workers.append(pid)
    signal.signal(signal.SIGTERM, asked_to_end)
    hold()

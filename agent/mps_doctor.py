"""What is wrong with MPS on this machine, why, and what to do about it; where a setting of ours
mends it, which. Nothing is mended here: a fix is an act like any other."""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpudeck.limits import MpsRestart, MpsSetting, MpsStart

from .leases import GpuLimits
from .mps import DEAD, Daemon, Mps, path_trouble

LOGS = "CUDA_MPS_LOG_DIRECTORY"
DEFAULT_LOGS = Path("/var/log/nvidia-mps")
LOG_BYTES = 65_536
EXCLUSIVE_PROCESS = 3
MODERN_DRIVER = 550
_BAD = re.compile(r"\b(?:errors?|fail\w*|denied|insufficient|fault|cannot)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    cause: str
    remedy: str
    fix: MpsSetting | None = None


def findings(mps: Mps, driver: str | None = None, gpus: tuple[GpuLimits, ...] = ()
             ) -> tuple[Finding, ...]:
    """None: all is well, or there is no MPS here. `driver`: its version."""
    if not mps.is_installed():
        return (Finding("not_installed", f"{mps.program} is not on the agent's PATH",
                        "install the driver's compute utilities, or use no MPS here"),)
    found = [each for daemon in mps.daemons() for each in _of_daemon(daemon)]
    if any(daemon.is_alive() for daemon in mps.daemons()):
        found += [*_of_version(driver), *_of_gpus(gpus), *_of_log()]
    return tuple(found)


def _of_daemon(daemon: Daemon) -> Iterator[Finding]:
    folder = daemon.folder
    if trouble := path_trouble(folder):
        yield Finding("path", trouble, "set CUDA_MPS_PIPE_DIRECTORY for daemon, clients and agent")
        return
    if not daemon.is_alive():
        yield from _dead(daemon)
        return
    uid = daemon.owner()
    if uid is not None and os.geteuid() not in (0, uid):
        yield Finding("owner", f"the daemon in {folder} belongs to uid {uid}, and the agent is uid "
                               f"{os.geteuid()}: drivers from {MODERN_DRIVER} on refuse its "
                               "settings", "run the agent as root, or as the daemon's user")
    for server in daemon.servers() or ():
        if daemon.status(server) == "FAULT":
            yield Finding("fault", f"MPS server {server} had a fatal fault: it takes no new client "
                                   "before those that it has are gone",
                          "end its clients, or restart MPS", MpsRestart(str(folder)))


def _dead(daemon: Daemon) -> Iterator[Finding]:
    """None at all is no fault; what one has left behind is."""
    socket = daemon.folder / "control"
    try:
        about = socket.lstat()
    except OSError:
        return
    if not stat.S_ISSOCK(about.st_mode):
        yield Finding("pipes", f"{socket} is no socket: somebody else put it there",
                      "take it away, then start MPS")
    elif about.st_uid not in (0, os.geteuid()):
        yield Finding("owner", f"what is left of a daemon in {daemon.folder} belongs to uid "
                               f"{about.st_uid}", "let that user start it, or remove the folder")
    else:
        yield Finding("dead", DEAD.format(pipes=daemon.folder) + ". Its sockets are stale: clients "
                      "that look for it wait or fail", "start it again; what was set is back to "
                      "default then", MpsStart(str(daemon.folder)))


def _of_version(driver: str | None) -> Iterator[Finding]:
    series = int(driver.split(".")[0]) if driver and driver[0].isdigit() else None
    if series is not None and series < MODERN_DRIVER:
        yield Finding("version", f"driver {driver}: before {MODERN_DRIVER} any local user who "
                                 "reaches the daemon's socket can change its defaults, and no "
                                 "server tells its status",
                      "give each group of tenants a pipe directory of its own with mode 0750, or "
                      "update the driver")


def _of_gpus(gpus: tuple[GpuLimits, ...]) -> Iterator[Finding]:
    shared = [each.uuid for each in gpus
              if each.compute_mode is not None and each.compute_mode != EXCLUSIVE_PROCESS]
    if shared:
        more = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
        yield Finding("exclusive", f"Gpu {shared[0]}{more} is not in EXCLUSIVE_PROCESS mode: a "
                                   "process with a wrong pipe directory runs beside MPS, without "
                                   "its limits and without an error",
                      f"nvidia-smi -i {shared[0]} -c EXCLUSIVE_PROCESS, and DEFAULT again when MPS "
                      "is stopped for good")


def _of_log() -> Iterator[Finding]:
    path = Path(os.environ.get(LOGS) or DEFAULT_LOGS) / "control.log"
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return
    bad = [line for line in lines if _BAD.search(line)]
    if bad:
        last = "".join(char for char in bad[-1] if char.isprintable())[:200]
        yield Finding("log", f"{len(bad)} of the last {len(lines)} lines of {path} tell of "
                             f"trouble; the last: {last}", "read on there")


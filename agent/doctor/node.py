"""Checks of this machine by `gpudeck doctor`: what the agent may do, where it keeps its data."""

import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from gpudeck import __version__
from gpudeck.contract.action_table import ROWS
from gpudeck.service.installed import is_of_service
from gpudeck.service.units import AGENT
from gpudeck.settings import state_folder

from ..actions.ceiling import DEFAULT, read_ceiling
from ..actions.hold_files import holds, hub_holds, visible_hold_files
from ..backends.check import DoctorCheck, doctor_modules
from ..limits.mps import PROGRAM
from ..runtime.data_lock import agent_pid
from ..tasks.privileges import CAP_KILL, CAP_SYS_ADMIN, PROC, capabilities, in_host_namespace
from ..tasks.processes import has_pidfs
from ..telemetry.self_cost import disk_trouble, outbox_files, size_of

CGROUPS = Path("/sys/fs/cgroup")
FREE_MIN_BYTES = 2**30
CLOSED = "it is the installed service's; run this as root"
MPS_WITHIN_S = 5.0
FRAMEWORKS = ("torch", "tensorflow", "jax", "jaxlib", "cupy-cuda12x", "cupy-cuda13x", "numba",
              "vllm", "triton")


def program_check() -> DoctorCheck:
    return DoctorCheck("gpudeck", "gpudeck", "ok", f"{__version__} on Python "
                       f"{platform.python_version()} ({sys.executable}), {platform.platform()}")


def frameworks_check(version_of: Callable[[str], str] = version) -> DoctorCheck:
    """Check the installed frameworks by their metadata alone: importing them would open the GPU."""
    check = partial(DoctorCheck, "frameworks", "Frameworks here")
    installed, drivers = {}, doctor_modules()
    for name in (*FRAMEWORKS, *(name for driver in drivers for name in driver.PACKAGES)):
        try:
            installed[name] = version_of(name)
        except PackageNotFoundError:
            continue
    packages = ", ".join(f"{name} {number}" for name, number in installed.items()) or (
        "none besides gpudeck")
    for module in drivers:
        if conflict := module.package_conflict(installed):
            return check("warning", f"{packages}. {conflict[0]}", conflict[1])
    return check("ok", packages)


def node_checks(data: Path, ceiling: Path | None, proc: Path = PROC) -> Iterator[DoctorCheck]:
    yield capability_check(proc)
    yield _namespace(proc)
    yield _cgroups()
    yield _pidfd()
    yield mps_check()
    yield data_check(data)
    yield ceiling_check(ceiling)
    yield hardware_check(ceiling)
    yield holds_check(data)
    yield agent_check(data)


def capability_check(proc: Path = PROC) -> DoctorCheck:
    check = partial(DoctorCheck, "privileges", "Privileges")
    if (there := capabilities(proc)) is None:
        return check("not checked", "the kernel does not say")
    kill, admin = CAP_KILL in there, CAP_SYS_ADMIN in there
    if kill and admin:
        return check("ok", "CAP_KILL and CAP_SYS_ADMIN: everything")
    lacks = [words for has_it, words in (
        (kill, "without CAP_KILL only this user's own tasks can be paused or ended"),
        (admin, "without CAP_SYS_ADMIN some drivers deny some metrics, and GPU settings cannot "
                "be changed")) if not has_it]
    return check("warning", "; ".join(lacks), "monitoring needs neither; for actions, give the "
                                              "agent both, as systemd's AmbientCapabilities= does")


def _namespace(proc: Path) -> DoctorCheck:
    check = partial(DoctorCheck, "pid_namespace", "Process namespace")
    if in_host_namespace(proc):
        return check("ok", "the machine's own: tasks can be named")
    return check("warning", "not the machine's: the driver's process ids mean nothing here, so "
                            "tasks of other containers are missing, and actions are refused",
                 "run the agent on the host, or with --pid=host (hostPID: true)")


def _cgroups(folder: Path = CGROUPS) -> DoctorCheck:
    check = partial(DoctorCheck, "cgroups", "cgroups")
    if (folder / "cgroup.controllers").exists():
        return check("ok", "version 2")
    if folder.is_dir() and any(folder.iterdir()):
        return check("ok", "version 1: containers and jobs are identified; memory limits by cgroup "
                           "need version 2")
    return check("warning", f"{folder} is not there or empty",
                 "mount it; without it, containers, pods and Slurm jobs cannot be identified")


def _pidfd() -> DoctorCheck:
    check = partial(DoctorCheck, "pidfd", "Signals")
    try:
        unique = has_pidfs()
    except OSError as error:
        return check("problem",
                     f"the kernel has no pidfd ({error.strerror}): actions on tasks would not be "
                     "safe",
                     "a kernel of 5.3 or newer is needed")
    more = "with ids that are never reused" if unique else "without pidfs (kernel 6.9)"
    return check("ok", f"by pidfd, {more}")


def mps_check(program: str = PROGRAM) -> DoctorCheck:
    check = partial(DoctorCheck, "mps", "MPS")
    if shutil.which(program) is None:
        return check("not checked", f"{program} is not installed here")
    try:
        reply = subprocess.run([program], input="get_server_list\n", capture_output=True, text=True,
                               timeout=MPS_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return check("problem", "the control daemon takes a command and does not answer",
                     "see its log in CUDA_MPS_LOG_DIRECTORY; restart it")
    if reply.returncode != 0:
        return check("ok", "no control daemon runs, or not with this CUDA_MPS_PIPE_DIRECTORY")
    servers = len(reply.stdout.split())
    return check("ok", f"the control daemon answers; servers: {servers}")


def is_closed(data: Path) -> bool:
    """Return whether this is the installed service's folder and closed to us: only root and the
    service may enter it."""
    return is_of_service("agent", data) and not os.access(data, os.X_OK)


def data_check(data: Path) -> DoctorCheck:
    check = partial(DoctorCheck, "data", "Data folder")
    if is_closed(data):
        return check("not checked", f"{data}: {CLOSED}")
    if not data.is_dir():
        parent = next((folder for folder in data.parents if folder.is_dir()), data)
        if os.access(parent, os.W_OK):
            return check("ok", f"{data} is not there yet and can be made")
        return check("problem", f"{data} cannot be made: no access to {parent}",
                     "choose another folder with --data")
    status = data.stat()
    if not os.access(data, os.W_OK | os.X_OK):
        return check("problem", f"{data} is not writable by us",
                     "run this as the agent's user, or give it the folder")
    if trouble := disk_trouble(data):
        return check("problem", f"{data} is full", trouble)
    if stat.S_IMODE(status.st_mode) & 0o077:
        return check("warning", f"{data} is open to other users; it holds this node's key",
                     f"run: chmod 700 {data}")
    free = shutil.disk_usage(data).free
    message = (f"{data}: {free / 2**30:.1f} GiB free, outbox "
               f"{(size_of(outbox_files(data)) or 0.0) / 2**20:.1f} MiB")
    if free < FREE_MIN_BYTES:
        return check("warning", message, "free some space: an outage of the hub may need 1 GiB; "
                                         "without it, history is dropped and counted")
    return check("ok", message)


def ceiling_check(path: Path | None) -> DoctorCheck:
    check = partial(DoctorCheck, "ceiling", "Ceiling")
    ceiling = read_ceiling(path)
    if ceiling.trouble:
        return check("problem", ceiling.trouble.partition(" - ")[0],
                     "fix the file; until then every action is refused here (docs/actions.md)")
    where = path or DEFAULT
    location = str(where) if where.exists() else f"no {where}: the defaults apply"
    return check("ok", f"{location}; allowed: {', '.join(ceiling.actions) or 'nothing'}, at most "
                       f"{ceiling.kills_per_hour} ends an hour")


def hardware_check(path: Path | None) -> DoctorCheck:
    check = partial(DoctorCheck, "hardware", "Verified on hardware")
    unverified = [action for action in read_ceiling(path).actions if ROWS[action].is_unverified]
    if not unverified:
        return check("ok", "nothing is allowed here that was never run on a card")
    return check("warning", f"allowed here, though never run on a card: {', '.join(unverified)}",
                 "try them on an empty GPU first, or take them out of the ceiling "
                 "(docs/hardware.md)")


def holds_check(data: Path) -> DoctorCheck:
    check = partial(DoctorCheck, "holds", "Holds")
    if hub := hub_holds():
        return check("warning", f"no actions here: {'; '.join(hub)}", "resume actions at the hub")
    reasons = holds(visible_hold_files(data))
    if reasons:
        return check("warning", f"no actions here: {'; '.join(reasons)}",
                     "run `gpudeck release` to resume")
    return check("ok", "none by a file")


def agent_check(data: Path) -> DoctorCheck:
    check = partial(DoctorCheck, "agent", "Agent")
    if is_closed(data):
        return check("not checked", f"{CLOSED}; or run: systemctl status {AGENT.unit}")
    pid = agent_pid(data)
    if pid is None and is_of_service("agent", data):
        return check("problem", "the installed service does not run",
                     f"see `journalctl -u {AGENT.unit}`; start it: `systemctl start {AGENT.unit}`")
    if pid is None and (beside := agent_pid(state_folder("up", os.environ) / "agent")) is not None:
        return check("ok", f"runs as process {beside}, that of `gpudeck up`")
    if pid is None:
        return check("warning", f"none runs on {data}",
                     "start it: `gpudeck agent`")
    return check("ok", f"runs as process {pid}")

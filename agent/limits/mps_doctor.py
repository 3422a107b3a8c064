"""Diagnosis of MPS on this machine: what is wrong, why, and what to do about it; where settings of
ours fix it, which. Nothing is fixed here: a fix is an action like any other."""

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from gpudeck.contract import limits
from gpudeck.contract.wire import GpuFacts

from . import mps as control
from .apply import MODES
from .mps_store import Default

# Every question to the daemon writes some five lines: ours of some hours.
LOG_BYTES = 2**20
LOG_FOR_S = 86_400.0
PRIORITIES = ("normal", "below normal")
TROUBLE = ("error", "fail", "denied", "insufficient", "fault", "cannot")
_BAD = re.compile(r"\b(?:errors?|fail\w*|denied|insufficient|fault|cannot)\b", re.IGNORECASE)
_LINE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.\d+ \w+ +\d+\] (.*)")


def _finding(code: str, weight: Literal["fault", "advice"], cause: str, remedy: str,
             fixes: tuple[limits.Setting, ...] = ()) -> limits.MpsFinding:
    return limits.MpsFinding(code, weight, cause[:1_024], remedy, fixes[:limits.MAX_FIXES])


fault, advice = partial(_finding, weight="fault"), partial(_finding, weight="advice")


def findings(mps: control.LocalMpsDaemons, driver: str | None = None,
             modes: Mapping[str, int | None] | None = None, defaults: Iterable[Default] = (),
             quotes_log: bool = False) -> tuple[limits.MpsFinding, ...]:
    """Return what is wrong; empty: all is well, or there is no MPS here. `driver`: its version.
    `modes`: the compute mode of each board. `defaults`: those set by gpudeck. `quotes_log`: for a
    reader with rights to that file; its lines may name users, paths and commands."""
    if not mps.is_installed():
        return (advice("not_installed", cause=f"{mps.program} is not on the agent's PATH",
                       remedy="install the driver's compute utilities, or do without MPS here"),)
    set_here, daemons = tuple(defaults), mps.daemons(control.FOUND_FOR_S)[:limits.MAX_DAEMONS]
    servers = {daemon: daemon.servers() for daemon in daemons}
    results = [finding for daemon in daemons
               for finding in _of_daemon(daemon, servers[daemon], set_here)]
    if any(pids is not None for pids in servers.values()):
        results += [*_of_programs(mps), *_of_version(driver), *_of_gpus(modes or {}),
                    *_of_log(mps.front.log(), quotes_log)]
    return tuple(results[:limits.MAX_FINDINGS])


def whole_boards(facts: Iterable[GpuFacts]) -> list[str]:
    """Return the boards whose mode can be set; MIG instances have no mode that counts here."""
    gpus = tuple(facts)
    split = {gpu.parent_uuid for gpu in gpus}
    return [gpu.uuid for gpu in gpus if gpu.parent_uuid is None and gpu.uuid not in split]


def _of_daemon(daemon: control.MpsDaemonHandle, servers: tuple[int, ...] | None,
               defaults: tuple[Default, ...]) -> Iterator[limits.MpsFinding]:
    """Yield what is wrong with a daemon. `servers` None: it does not answer."""
    folder = daemon.folder
    if trouble := control.path_trouble(folder):
        yield fault("path", cause=trouble,
                    remedy="set CUDA_MPS_PIPE_DIRECTORY for daemon, clients and agent")
        return
    own_defaults = [default for default in defaults if default.pipes == str(folder)]
    if servers is None:
        yield from _dead(daemon, bool(own_defaults))
        return
    uid = daemon.owner()
    if uid is not None and os.geteuid() not in (0, uid):
        yield fault("owner", cause=f"the daemon in {folder} belongs to uid {uid}, and the agent is "
                                   f"uid {os.geteuid()}: drivers from {control.MODERN_DRIVER} on "
                                   "refuse its settings",
                    remedy="run the agent as root, or as the daemon's user")
    for server in servers:
        if daemon.status(server) == "FAULT":
            yield fault("fault", cause=f"MPS server {server} had a fatal fault: it accepts no "
                                       "new client until its present ones have left",
                        remedy="end its clients, or restart MPS",
                        fixes=(limits.MpsRestart(str(folder)),))
    yield from _forgotten(daemon, own_defaults)


def _dead(daemon: control.MpsDaemonHandle, was_set: bool) -> Iterator[limits.MpsFinding]:
    """Yield what a dead daemon has left behind; no daemon at all is no fault. `was_set`: gpudeck
    has set defaults there, and has not stopped it since."""
    folder, socket = daemon.folder, daemon.folder / "control"
    try:
        about = socket.lstat()
    except PermissionError:
        yield _locked_out(folder)
        return
    except OSError:
        if was_set:
            yield _missing(folder)
        return
    if not stat.S_ISSOCK(about.st_mode):
        yield fault("pipes", cause=f"{socket} is not a socket: somebody else put it there",
                    remedy="remove it, then start MPS")
    elif not os.access(socket, os.R_OK | os.W_OK):
        yield _locked_out(folder)
    elif about.st_uid not in (0, os.geteuid()):
        yield fault("owner", cause=f"remains of a daemon in {folder} belongs to uid {about.st_uid}",
                    remedy="let that user start it, or remove the folder")
    else:
        yield fault("dead", cause=control.DEAD.format(pipes=folder).partition(";")[0]
                    + ". Its sockets are stale: clients that look for it wait or fail",
                    remedy="start it again; its settings are then back to default",
                    fixes=(limits.MpsStart(str(folder)),))


def _missing(folder: Path) -> limits.MpsFinding:
    return advice("gone", cause=f"no MPS control daemon runs in {folder} any more, where gpudeck "
                                "has set defaults: somebody else stopped it, a restart was "
                                "interrupted, or the machine was restarted",
                  remedy="start it; to remove it for good, then stop it with gpudeck",
                  fixes=(limits.MpsStart(str(folder)),))


def _locked_out(folder: Path) -> limits.MpsFinding:
    return fault("denied", cause=f"the agent (uid {os.geteuid()}) may not reach the socket in "
                                 f"{folder}: whether a daemon runs there is not known",
                 remedy="run the agent as root, or as a user who may enter that folder")


def _forgotten(daemon: control.MpsDaemonHandle, defaults: list[Default]
               ) -> Iterator[limits.MpsFinding]:
    """Yield the defaults that are not in force. A restarted daemon has forgotten all settings."""
    forgotten = [(default, words) for default in defaults if (words := _differs(daemon, default))]
    if forgotten:
        yield fault("lost", cause=f"these settings of gpudeck in {daemon.folder} are not in "
                                  f"force: {'; '.join(words for _, words in forgotten)}. The "
                                  "daemon was restarted, or somebody else changed them",
                    remedy="set them again, or store the present values through gpudeck",
                    fixes=tuple(default for default, _ in forgotten))


def _differs(daemon: control.MpsDaemonHandle, default: Default) -> str:
    """Describe how a default differs; "": it is as wanted, or cannot be read."""
    what, current, right = _beside(daemon, default)
    if current is None or current == right:
        return ""
    return f"{what} {current or 'no limit'}, not {right or 'no limit'}"


def _beside(daemon: control.MpsDaemonHandle, default: Default) -> tuple[str, str | None, str]:
    """Return what a default is about, what is read, what is wanted."""
    match default:
        case limits.MpsPercent():
            pct = daemon.percent()
            return ("share of the threads", None if pct is None else f"{pct:g} %",
                    f"{default.pct} %")
        case limits.MpsPriority():
            priority = daemon.priority()
            return ("priority", None if priority is None else PRIORITIES[priority],
                    PRIORITIES[default.priority])
    return (f"memory on device {default.ordinal}", daemon.memory(default.ordinal),
            control.shown_limit(default.mem_mib))


def _of_programs(mps: control.LocalMpsDaemons) -> Iterator[limits.MpsFinding]:
    if not mps.front.has_server():
        yield fault("server", cause=f"{control.SERVER} is not installed: the daemon answers, and "
                                    "every client waits for a server that cannot begin",
                    remedy="install it next to the control program; it comes in the same package")


def _of_version(driver: str | None) -> Iterator[limits.MpsFinding]:
    if control.is_old(driver):
        yield advice("version", cause=f"driver {driver}: before {control.MODERN_DRIVER} any local "
                                      "user who reaches the daemon's socket can change its "
                                      "defaults, and servers do not report their status",
                     remedy="give each group of tenants its own pipe directory with mode "
                            "0750, or update the driver")


def _of_gpus(modes: Mapping[str, int | None]) -> Iterator[limits.MpsFinding]:
    # Somebody closed a GPU that is closed to all processes: that is not ours to fix.
    shared = [uuid for uuid, mode in modes.items() if mode == MODES["default"]]
    if shared:
        what = (f"GPU {shared[0]} is" if len(shared) == 1 else
                f"{len(shared)} of {len(modes)} GPUs are")
        yield advice("exclusive", cause=f"{what} not in EXCLUSIVE_PROCESS mode: a process with a "
                                        "wrong pipe directory runs outside MPS, without its "
                                        "limits and without an error",
                     remedy="set exclusive mode; reset it when you stop using MPS",
                     fixes=tuple(limits.ComputeMode(uuid, "exclusive_process") for uuid in shared))


def _of_log(path: Path | None, quotes: bool) -> Iterator[limits.MpsFinding]:
    if path is None:
        return
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return
    bad = [text for text in map(_recent, lines) if _BAD.search(text)]
    if bad:
        many = f"{len(bad)} lines" if len(bad) > 1 else "a line"
        last = "".join(char for char in bad[-1] if char.isprintable())[:200]
        yield advice("log", cause=f"trouble in {many} of {path} within the last day, with "
                                  f"{_kinds(bad)}{f'; the last: {last}' if quotes else ''}",
                     remedy="read on there" if quotes else "read on there; `gpudeck mps doctor` on "
                                                           "the node shows the last line")


def _kinds(lines: Iterable[str]) -> str:
    """Return which words of TROUBLE are in the lines: ours, and no more of them."""
    matches = {word.lower() for line in lines for word in _BAD.findall(line)}
    return ", ".join(f'"{trouble}"' for trouble in TROUBLE
                     if any(word.startswith(trouble) for word in matches))


def _recent(line: str) -> str:
    """Return what a line says; "": it is from another day, or repeats what the daemon was asked."""
    entry = _LINE.match(line)
    if entry is None:
        return line
    at, text = entry.groups()
    try:
        age_s = time.time() - time.mktime(time.strptime(at, "%Y-%m-%d %H:%M:%S"))
    except (ValueError, OverflowError):
        return text
    is_echo = text.startswith("Cmd:") or re.fullmatch(r"[A-Z_]+", text)  # or a server's status
    return "" if age_s > LOG_FOR_S or is_echo else text

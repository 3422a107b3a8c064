"""Sets MPS's share of the threads, memory limit and priority, for clients that come next."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpudeck.contract.actions import Refusal
from gpudeck.contract.limits import (
    ORDINALS,
    PRESETS,
    MpsDaemon,
    MpsMemory,
    MpsPercent,
    MpsPreset,
    MpsPriority,
    MpsSetting,
    SettingChange,
)
from gpudeck.contract.vendors import is_nvidia

from ...journal.store import JournalError
from ...limits.mps import MpsControlError, MpsDaemonHandle, path_trouble, shown_limit
from ...limits.mps_store import MpsSettingStore
from ..context import TaskSnapshot
from .execution import ActionExecution, ActionRefusedError
from .setting_kind import Applied, MpsPreview, SettingKind, listed, many

ANSWERS_WITHIN_S = 0.5  # from its own memory
READ_EVERY_S = 0.1

MpsValue = MpsPercent | MpsMemory | MpsPriority | MpsPreset


def needs_daemon(setting: MpsSetting, preview: MpsPreview) -> Iterator[Refusal]:
    daemon, server = preview.daemon, getattr(setting, "server", None)
    if trouble := path_trouble(Path(setting.pipes)):
        yield Refusal("setting", trouble)
    elif not daemon.is_alive:
        yield Refusal("setting", daemon.trouble)
    elif server is not None and server not in {server.pid for server in daemon.servers}:
        yield Refusal("setting", f"there is no MPS server {server} in {setting.pipes}; it has "
                                 f"{listed([str(server.pid) for server in daemon.servers])}")


def client_names(preview: MpsPreview) -> str:
    return listed([f"{client.user or 'owner unknown'} ({client.pid})"
                   for client in preview.daemon.clients])


def daemon_trouble(preview: MpsPreview) -> Iterator[str]:
    daemon = preview.daemon
    if daemon.trouble and daemon.is_alive:
        yield daemon.trouble[:1].upper() + daemon.trouble[1:]


def changes(setting: MpsValue, preview: MpsPreview) -> tuple[SettingChange, ...]:
    daemon = preview.daemon
    match setting:
        case MpsPercent():
            return (_percent_change(daemon, setting.server, setting.pct),)
        case MpsMemory():
            memory = _limits(daemon, setting.server)
            return (SettingChange(f"pinned memory on device {setting.ordinal}, "
                                  f"{_whose(setting.server)}",
                                  memory.get(setting.ordinal, "no limit"),
                                  _memory_words(setting.mem_mib)),)
        case MpsPriority():
            return (_priority_change(daemon, setting.priority),)
        case MpsPreset():
            pct, priority = PRESETS[setting.name]
            return (_percent_change(daemon, setting.server, pct),
                    _priority_change(daemon, priority))


def _percent_change(daemon: MpsDaemon, server: int | None, pct: int) -> SettingChange:
    now = daemon.default_pct if server is None else next(
        (row.pct for row in daemon.servers if row.pid == server), None)
    return SettingChange(f"share of the threads, {_whose(server)}",
                         "not known" if now is None else f"{now:g} %", f"{pct} %")


def _priority_change(daemon: MpsDaemon, priority: int) -> SettingChange:
    words = {0: "normal", 1: "below normal", None: "not known"}
    return SettingChange("priority of clients", words[daemon.default_priority], words[priority])


def _whose(server: int | None) -> str:
    return "default of the next server" if server is None else f"server {server}"


def _limits(daemon: MpsDaemon, server: int | None) -> dict[int, str]:
    limits = daemon.default_memory if server is None else next(
        (row.memory for row in daemon.servers if row.pid == server), ())
    return {limit.ordinal: limit.limit for limit in limits}


def _memory_words(mem_mib: int | None) -> str:
    words = shown_limit(mem_mib)
    if not words:
        return "no limit"
    return words if (mem_mib is not None and mem_mib % 1_024 == 0) or words.endswith("M") else (
        f"{mem_mib} MiB (MPS shows {words})")


def warnings(setting: MpsValue, preview: MpsPreview) -> Iterator[str]:
    daemon = preview.daemon
    if daemon.clients:
        keeps = "keeps" if len(daemon.clients) == 1 else "keep"
        yield (f"New clients only: {many(len(daemon.clients), 'running client')} {keeps} the old "
               f"value: {client_names(preview)}.")
    else:
        yield "New clients only; none runs now."
    if getattr(setting, "server", None) is None and daemon.servers and not isinstance(
            setting, MpsPriority):
        pids = listed([str(server.pid) for server in daemon.servers])
        yield (f"It is the default, which the next server takes; clients of the present one "
               f"({pids}) get that one's own value.")
    yield from daemon_trouble(preview)
    yield from _no_such_device(setting, preview.snapshot)


def ordinals(snapshot: TaskSnapshot | None) -> range:
    return range(0 if snapshot is None else min(
        sum(map(is_nvidia, snapshot.fresh.mem_used_bytes)), ORDINALS))


def _no_such_device(setting: MpsValue, snapshot: TaskSnapshot | None) -> Iterator[str]:
    """Warn of an unlisted device. MPS takes any number (C.3). No refusal: it may see a GPU that we
    do not list."""
    if not isinstance(setting, MpsMemory) or setting.mem_mib is None or snapshot is None:
        return
    count = len(ordinals(snapshot))
    if setting.ordinal >= count:
        yield (f"No GPU here has the number {setting.ordinal}: {many(count, 'GPU')} "
               f"{'is' if count == 1 else 'are'} listed, which MPS numbers from 0 on. It takes "
               "the limit all the same.")


def do(act: ActionExecution, setting: MpsValue) -> Applied:
    daemon = act.context.limits.mps.daemon(setting.pipes)
    try:
        words = set_values(act.context.limits.mps_settings, daemon, setting)
    except MpsControlError as why:
        raise ActionRefusedError(Refusal("setting", f"{why}; nothing was changed")) from why
    except JournalError as why:
        raise ActionRefusedError(Refusal("journal", str(why))) from why
    if wrong := [problem for problem in words if problem]:
        return True, False, "applied, not in force: " + "; ".join(wrong)
    return True, True, "read back as wanted; " + _bystander_words(act) + store_wanted(act, setting)


def store_wanted(act: ActionExecution, setting: MpsSetting) -> str:
    """Recorded so that a restarted daemon, which has forgotten it, can be given it again."""
    try:
        act.context.limits.mps_settings.now_wanted(setting)
    except JournalError as why:
        return f"; the wanted value could not be stored ({why})"
    return ""


def _bystander_words(act: ActionExecution) -> str:
    count = len(act.preview.bystanders)
    if count == 0:
        return "no client runs that has another value"
    return f"{count} running client{'s' * (count != 1)} keep{'s' * (count == 1)} the old value"


def set_values(store: MpsSettingStore, daemon: MpsDaemonHandle, setting: MpsValue) -> list[str]:
    """Set the values; return what reads back otherwise. Raises MpsControlError, JournalError."""
    match setting:
        case MpsPercent():
            return [_set_percent(store, daemon, setting.pct, setting.server)]
        case MpsMemory():
            daemon.set_memory(setting.ordinal, setting.mem_mib, setting.server)
            return [_same(lambda: daemon.memory(setting.ordinal, setting.server),
                          shown_limit(setting.mem_mib))]
        case MpsPriority():
            return [_set_priority(daemon, setting.priority)]
        case MpsPreset():
            pct, priority = PRESETS[setting.name]
            wrong = _set_percent(store, daemon, pct, setting.server)
            try:
                return [wrong, _set_priority(daemon, priority)]
            except MpsControlError as why:  # the first of the two was taken
                return [wrong, str(why)]


def _set_percent(store: MpsSettingStore, daemon: MpsDaemonHandle, pct: int,
                 server: int | None) -> str:
    """Set the share. What running clients keep is noted first: it is true also if this is
    refused."""
    before = daemon.percent(server)
    if server is not None and before is not None:
        store.note(str(daemon.folder), server, before, daemon.clients(server))
    daemon.set_percent(pct, server)
    return _same(lambda: daemon.percent(server), float(pct))


def _set_priority(daemon: MpsDaemonHandle, priority: int) -> str:
    daemon.set_priority(priority)
    return _same(daemon.priority, priority)


def _same(read: Callable[[], object], target: object) -> str:
    """Return how it reads back otherwise; "": it reads back as wanted, soon."""
    until = time.monotonic() + ANSWERS_WITHIN_S
    while (value := read()) != target and time.monotonic() < until:
        time.sleep(READ_EVERY_S)
    if value == target:
        return ""
    words = "nothing" if value in (None, "") else str(value)
    return f"it reads back {words}, not {target or 'no limit'}"


MPS_VALUES = tuple(SettingKind(setting, needs_daemon, changes, warnings, do)
                   for setting in (MpsPercent, MpsMemory, MpsPriority, MpsPreset))

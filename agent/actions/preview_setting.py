"""A fresh look at what a setting of MPS or of a Gpu would change, and for whom.

Running clients of MPS keep what they were given, so they are bystanders of a setting; of a stop
they are its victims. What a Gpu's limit slows down are the tasks on it.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gpudeck.actions import MAX_BYSTANDERS, MAX_VICTIMS, Bystander, Preview, Refusal, Victim
from gpudeck.limits import (
    ENDS_CLIENTS,
    ORDINALS,
    PRESETS,
    SETTING_ACTIONS,
    ClockLock,
    ComputeMode,
    GpuSetting,
    LimitRelease,
    MpsClient,
    MpsDaemon,
    MpsMemory,
    MpsPercent,
    MpsPreset,
    MpsPriority,
    MpsRestart,
    MpsSetting,
    MpsStart,
    MpsStop,
    PowerCap,
    Setting,
    SettingChange,
    action_of,
)

from ..journal.store import JournalError
from ..limits import mps_view
from ..limits.apply import MODES
from ..limits.compute_modes import words_of
from ..limits.mps import LocalMpsDaemons, path_trouble, shown_limit
from ..limits.timed_limits import same_limit
from ..readings import GpuLimits
from . import guard
from .ceiling import read_ceiling
from .guard import GuardedProcess, GuardInput
from .preview import (
    HOUR_S,
    NodeContext,
    PreviewRequest,
    TaskSnapshot,
    empty,
    find,
    nothing,
    protected,
    subject_of,
)
from .preview import preview as of_task
from .signals import ProcessHandles

MOST_NAMED = 6
OF_MPS = ("mps_server", "mps_client")


def look(place: NodeContext, ask: PreviewRequest) -> Preview:
    """Of whatever may be asked for. Not signed yet."""
    if ask.action in SETTING_ACTIONS or ask.params.setting is not None:
        return preview(place, ask)
    return of_task(place, ask)


def preview(place: NodeContext, ask: PreviewRequest, asker: str | None = None) -> Preview:
    """Of a setting. Not signed yet."""
    setting = ask.params.setting
    if setting is None or action_of(setting) != ask.action:
        return nothing(place, ask, Refusal("schema", f"{ask.action} comes with a setting of its "
                                                     "own kind; nothing was touched"))
    if isinstance(setting, GpuSetting):
        return _of_gpu(place, ask, setting, asker)
    return _of_mps(place, ask, setting, asker)


# MPS


def _of_mps(place: NodeContext, ask: PreviewRequest, setting: MpsSetting,
            asker: str | None) -> Preview:
    if trouble := mps_view.why_not(place.mps):
        return nothing(place, ask, Refusal("setting", trouble))
    found = find(place)
    seen = _as_tasks(mps_view.view(
        place.mps.daemon(setting.pipes), _asked_of(found, setting), place.given,
        lambda pid: _task_id(found, pid), place.driver()), found)
    with ProcessHandles() as grips:
        clients = _clients(place, grips, seen, found)
        is_end = ask.action in ENDS_CLIENTS
        subjects = tuple(subject for _, subject in clients) if is_end else ()
        refusals = [*guard.refusals(_case(place, ask, subjects, asker)),
                    *_mps_flaws(place.mps, setting, seen)]
        return msgspec.structs.replace(
            empty(place, ask, None), changes=mps_changes(setting, seen), owner=seen.user,
            victims=tuple(_victim(*each) for each in clients) if is_end else (),
            bystanders=() if is_end else tuple(_bystander(*each, found) for each in clients),
            refusals=tuple(refusals)[:32],
            warnings=(*_mps_warnings(ask, setting, seen), *_no_such_device(setting, found),
                      *_stay_exclusive(place, setting, found)))


def ordinals(found: TaskSnapshot | None) -> range:
    return range(0 if found is None else min(len(found.fresh.mem_used_bytes), ORDINALS))


def _asked_of(found: TaskSnapshot | None, setting: MpsSetting) -> tuple[int, ...]:
    """Also where no driver lists a Gpu of that number: what is not asked is not known."""
    own = {setting.ordinal} if isinstance(setting, MpsMemory) else set()
    return tuple(sorted({*ordinals(found), *own}))


def _task_id(found: TaskSnapshot | None, pid: int) -> str | None:
    task = None if found is None else found.of(pid)
    return None if task is None else task.id


def _as_tasks(seen: MpsDaemon, found: TaskSnapshot | None) -> MpsDaemon:
    """Clients have the names that they have as tasks, by which they are protected as well."""
    def named(client: MpsClient) -> MpsClient:
        task = None if found is None else found.of(client.pid)
        return client if task is None else msgspec.structs.replace(
            client, user=task.user or client.user,
            command=(task.command and task.command[:512]) or client.command)

    return msgspec.structs.replace(seen, servers=tuple(
        msgspec.structs.replace(server, clients=tuple(map(named, server.clients)))
        for server in seen.servers))


def _clients(place: NodeContext, grips: ProcessHandles, seen: MpsDaemon, found: TaskSnapshot | None
             ) -> list[tuple[MpsClient, GuardedProcess]]:
    made = []
    for client in seen.clients[:min(MAX_VICTIMS, MAX_BYSTANDERS)]:
        grip = grips.take(client.pid)
        facts = None if grip is None else grip.facts()
        if facts is not None:
            made.append((client, subject_of(place, facts, client.user, "mps_client", True)))
    return made


def _victim(client: MpsClient, subject: GuardedProcess) -> Victim:
    return Victim(subject.facts.identity, client.command, client.user, client.task_id)


def _bystander(client: MpsClient, subject: GuardedProcess, found: TaskSnapshot | None) -> Bystander:
    held = () if found is None else found.held(client.pid)
    return Bystander(subject.facts.identity, client.task_id or f"pid {client.pid}", client.user,
                     client.command, held)


def _case(place: NodeContext, ask: PreviewRequest, subjects: tuple[GuardedProcess, ...],
          asker: str | None) -> GuardInput:
    ceiling = read_ceiling(place.ceiling_file)
    spent = place.kills_since(place.wall() - HOUR_S)
    return GuardInput(
        action=ask.action, ceiling=ceiling, subjects=subjects, target_pid=0, age_s=None,
        protected=protected(), protected_by_ceiling=ceiling.protected_ids(), holds=place.holds(),
        asker=asker,
        # The INTENT of the very act that is looked at anew is counted already.
        kills_last_hour=spent if asker is None else max(spent - 1, 0))


def _mps_flaws(mps: LocalMpsDaemons, setting: MpsSetting, seen: MpsDaemon) -> Iterable[Refusal]:
    if trouble := path_trouble(Path(setting.pipes)):
        yield Refusal("setting", trouble)
    elif isinstance(setting, MpsStart):
        if seen.is_alive:
            yield Refusal("setting", f"a control daemon answers in {setting.pipes} already")
        elif not _may_begin(mps, Path(setting.pipes)):
            yield Refusal("setting", f"{setting.pipes} is neither the pipe directory of the "
                                     "agent's own environment nor a folder that is its alone; make "
                                     "it so, or set CUDA_MPS_PIPE_DIRECTORY for the agent")
    elif not seen.is_alive:
        yield Refusal("setting", seen.trouble)
    else:
        server = getattr(setting, "server", None)
        if server is not None and server not in {each.pid for each in seen.servers}:
            yield Refusal("setting", f"there is no MPS server {server} in {setting.pipes}; it has "
                                     f"{_listed([str(each.pid) for each in seen.servers])}")


def _may_begin(mps: LocalMpsDaemons, pipes: Path) -> bool:
    """Nobody who may order this can have root make sockets wherever he likes."""
    if pipes == mps.daemons()[0].folder:
        return True
    try:
        about = os.lstat(pipes)
    except OSError:
        return False
    return about.st_uid == os.geteuid() and not about.st_mode & 0o022


def mps_changes(setting: Setting, seen: MpsDaemon) -> tuple[SettingChange, ...]:
    match setting:
        case MpsPercent():
            return (_percent(seen, setting.server, setting.pct),)
        case MpsMemory():
            whose, memory = _whose(setting.server), _limits(seen, setting.server)
            return (SettingChange(f"pinned memory on device {setting.ordinal}, {whose}",
                                  memory.get(setting.ordinal, "no limit"),
                                  _memory_words(setting.mem_mib)),)
        case MpsPriority():
            return (_priority(seen, setting.priority),)
        case MpsPreset():
            pct, priority = PRESETS[setting.name]
            return (_percent(seen, setting.server, pct), _priority(seen, priority))
        case MpsStart():
            return (SettingChange(f"control daemon in {setting.pipes}", "none", "runs"),)
        case MpsStop():
            return (SettingChange(f"control daemon in {setting.pipes}", "runs", "none"),)
        case MpsRestart():
            return (SettingChange(f"control daemon in {setting.pipes}", "runs",
                                  "another one, with the same defaults"),)
    return ()


def _percent(seen: MpsDaemon, server: int | None, pct: int) -> SettingChange:
    now = seen.default_pct if server is None else next(
        (each.pct for each in seen.servers if each.pid == server), None)
    return SettingChange(f"share of the threads, {_whose(server)}",
                         "not known" if now is None else f"{now:g} %", f"{pct} %")


def _priority(seen: MpsDaemon, priority: int) -> SettingChange:
    words = {0: "normal", 1: "below normal", None: "not known"}
    return SettingChange("priority of clients", words[seen.default_priority], words[priority])


def _whose(server: int | None) -> str:
    return "default of the next server" if server is None else f"server {server}"


def _limits(seen: MpsDaemon, server: int | None) -> dict[int, str]:
    limits = seen.default_memory if server is None else next(
        (each.memory for each in seen.servers if each.pid == server), ())
    return {each.ordinal: each.limit for each in limits}


def _memory_words(mem_mib: int | None) -> str:
    shown = shown_limit(mem_mib)
    if not shown:
        return "no limit"
    return shown if (mem_mib is not None and mem_mib % 1_024 == 0) or shown.endswith("M") else (
        f"{mem_mib} MiB (MPS shows {shown})")


def _mps_warnings(ask: PreviewRequest, setting: MpsSetting, seen: MpsDaemon) -> tuple[str, ...]:
    names = _listed([f"{client.user or 'owner unknown'} ({client.pid})"
                     for client in seen.clients])
    many = _many(len(seen.clients), "running client")
    said = []
    if ask.action in ENDS_CLIENTS:
        if seen.clients:
            said.append(f"{many} will lose what they do on the Gpu: {names}. They have "
                        f"{ask.params.grace_s:.0f} s to leave by themselves.")
        if isinstance(setting, MpsRestart):
            said.append("The defaults are set again afterwards, memory limits that gpudeck has not "
                        "set in whole GiB, as MPS shows them; what was set for single servers is "
                        "lost with them.")
    elif ask.action == "set_mps":
        if seen.clients:
            keeps = "keeps" if len(seen.clients) == 1 else "keep"
            said.append(f"New clients only: {many} {keeps} the old value: {names}.")
        else:
            said.append("New clients only; none runs now.")
        if getattr(setting, "server", None) is None and seen.servers and not isinstance(
                setting, MpsPriority):
            pids = _listed([str(each.pid) for each in seen.servers])
            said.append("It is the default, which the next server takes; clients of the present "
                        f"one ({pids}) get that one's own value.")
    if seen.trouble and seen.is_alive:
        said.append(seen.trouble[:1].upper() + seen.trouble[1:])
    return tuple(each[:1_024] for each in said)


def _no_such_device(setting: MpsSetting, found: TaskSnapshot | None) -> tuple[str, ...]:
    """MPS takes any number (C.3). No refusal: a Gpu may be there for it that we do not list."""
    if not isinstance(setting, MpsMemory) or setting.mem_mib is None or found is None:
        return ()
    count = len(ordinals(found))
    if setting.ordinal < count:
        return ()
    return (f"No Gpu here has the number {setting.ordinal}: {_many(count, 'Gpu')} "
            f"{'is' if count == 1 else 'are'} listed, which MPS numbers from 0 on. It takes the "
            "limit all the same.",)


def _stay_exclusive(place: NodeContext, setting: MpsSetting,
                    found: TaskSnapshot | None) -> tuple[str, ...]:
    """Stopping MPS does not open its Gpus again."""
    if not isinstance(setting, MpsStop) or found is None or place.limiter.trouble():
        return ()
    read = place.limiter.read([*found.fresh.mem_used_bytes])
    closed = [uuid for uuid, limits in read.items()
              if limits.compute_mode == MODES["exclusive_process"]]
    if not closed:
        return ()
    is_one = len(closed) == 1
    return (f"{_many(len(closed), 'Gpu')} stay{'s' * is_one} in exclusive mode, one process at a "
            f"time: {_listed(closed)}. `gpudeck gpu mode UUID default` opens "
            f"{'it' if is_one else 'each'} again.",)


# Gpus


def _of_gpu(place: NodeContext, ask: PreviewRequest, setting: GpuSetting,
            asker: str | None) -> Preview:
    if trouble := place.limiter.trouble():
        return nothing(place, ask, Refusal("setting", trouble))
    limits = place.limiter.read([setting.gpu_uuid])[setting.gpu_uuid]
    found = find(place)
    with ProcessHandles() as grips:
        bystanders = _on_gpu(setting.gpu_uuid, found, grips)
    flaws = [Refusal("setting", limits.trouble)] if limits.trouble else [
        *_gpu_flaws(place, setting, limits)]
    refusals = [*guard.refusals(_case(place, ask, (), asker)), *flaws]
    return msgspec.structs.replace(
        empty(place, ask, None), bystanders=bystanders, refusals=tuple(refusals)[:32],
        changes=gpu_changes(place, setting, limits),
        warnings=_gpu_warnings(setting, bystanders, found, place.mps))


def _on_gpu(uuid: str, found: TaskSnapshot | None, grips: ProcessHandles) -> tuple[Bystander, ...]:
    made = []
    for each in () if found is None else found.seen:
        grip = grips.take(each.task.pid) if each.gpu_uuid == uuid else None
        facts = None if grip is None else grip.facts()
        if facts is not None and found is not None:
            made.append(Bystander(facts.identity, each.task.id, each.task.user,
                                  each.task.command and each.task.command[:512],
                                  found.held(each.task.pid)))
    return tuple(made[:MAX_BYSTANDERS])


def _gpu_flaws(place: NodeContext, setting: GpuSetting, limits: GpuLimits) -> Iterable[Refusal]:
    match setting:
        case ComputeMode():
            if limits.compute_mode is None:
                yield Refusal("setting", "this Gpu does not say its compute mode; of a board that "
                                         "is split by MIG it cannot be set here")
        case PowerCap():
            low, high = limits.power_min_w, limits.power_max_w
            if low is None or high is None or limits.power_w is None:
                yield Refusal("setting", "this Gpu does not say what power it can be limited to")
            elif not low <= setting.watts <= high:
                yield Refusal("setting", f"this Gpu takes {low:.0f} to {high:.0f} W, not "
                                         f"{setting.watts} W")
        case ClockLock():
            top = limits.clock_max_mhz
            if setting.min_mhz > setting.max_mhz:
                yield Refusal("setting", "a lock goes from a lower clock to a higher one")
            elif top is not None and setting.max_mhz > top:
                yield Refusal("setting", f"this Gpu's clock goes to {top:.0f} MHz, not "
                                         f"{setting.max_mhz} MHz")
        case LimitRelease():
            try:
                if not any(same_limit(lease, setting.gpu_uuid, setting.what)
                           for lease in place.leases()):
                    yield Refusal("setting", "gpudeck holds no such limit on this Gpu; what "
                                             "somebody else has set is theirs to take back")
            except JournalError as why:
                yield Refusal("journal", str(why))


def gpu_changes(place: NodeContext, setting: GpuSetting, limits: GpuLimits) -> tuple[SettingChange,
                                                                                     ...]:
    power = "not known" if limits.power_w is None else f"{limits.power_w:.0f} W"
    match setting:
        case PowerCap():
            return (SettingChange("power limit", power,
                                  f"{setting.watts} W for {_time(setting.lease_s)}"),)
        case ClockLock():
            return (SettingChange("clock lock", _locked(limits),
                                  f"{setting.min_mhz} to {setting.max_mhz} "
                                  f"MHz for {_time(setting.lease_s)}"),)
        case ComputeMode():
            return (SettingChange("compute mode", words_of(limits.compute_mode),
                                  words_of(MODES[setting.mode])),)
        case LimitRelease(what="power"):
            return (SettingChange("power limit", power, f"{_before(place, setting)} W"),)
        case LimitRelease():
            return (SettingChange("clock lock", _locked(limits), "none: the driver chooses"),)


def _before(place: NodeContext, setting: LimitRelease) -> str:
    try:
        found = [lease.before[0] for lease in place.leases()
                 if same_limit(lease, setting.gpu_uuid, setting.what) and lease.before]
    except JournalError:
        found = []
    return f"{found[0]:.0f}" if found else "unknown"


def _locked(limits: GpuLimits) -> str:
    if limits.locked_mhz is not None:
        return "{:.0f} to {:.0f} MHz".format(*limits.locked_mhz)
    return "none" if limits.tells_lock else "not known: NVML cannot read a lock back"


def _gpu_warnings(setting: GpuSetting, bystanders: tuple[Bystander, ...],
                  found: TaskSnapshot | None,
                  mps: LocalMpsDaemons) -> tuple[str, ...]:
    if isinstance(setting, ComputeMode):
        return _mode_warnings(setting, found, mps)
    said = []
    owners = _listed(sorted({each.user or "owner unknown" for each in bystanders}))
    if bystanders and not isinstance(setting, LimitRelease):
        said.append(f"It slows the whole Gpu: {_many(len(bystanders), 'task')} on it, of {owners}.")
    if isinstance(setting, ClockLock):
        said.append("NVML cannot read a lock back: that it is in force is seen by the clock alone.")
    return tuple(said)


def _mode_warnings(setting: ComputeMode, found: TaskSnapshot | None,
                   mps: LocalMpsDaemons) -> tuple[str, ...]:
    """Of those that run nothing is taken; what counts is who can begin."""
    if setting.mode == "default":
        return ("From now on several processes can use this Gpu at a time, also beside MPS and "
                "without its limits.",)
    until = ("It holds until it is set back to default: a driver that is loaded anew has forgotten "
             "it, and then it is set again.")
    theirs = {pid for server, clients in mps.clients().items() for pid in (server, *clients)}
    beside = [each.task for each in (() if found is None else found.seen)
              if each.gpu_uuid == setting.gpu_uuid and each.task.pid not in theirs
              and each.task.kind not in OF_MPS]
    said = ["From now on one process at a time can begin on this Gpu: where MPS runs, its server, "
            "and its clients through it. Whoever comes without MPS fails."]
    if beside:
        names = _listed([f"{task.user or 'owner unknown'} ({task.pid})" for task in beside])
        said.append(f"{_many(len(beside), 'task')} of it {'go' if len(beside) > 1 else 'goes'} on "
                    f"without MPS, and nothing else can begin there until then: {names}.")
    return (*said, until)


def _time(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _listed(words: list[str]) -> str:
    more = f" and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
    return (", ".join(words[:MOST_NAMED]) or "none") + more

"""Preview: a fresh look at what an action would hit or change, for whom, and what forbids it.

Of a task: its Job's processes, and their neighbours. Of MPS: running clients keep what they were
given, so they are bystanders of a setting; of a stop they are its victims. Of a GPU: its limit
slows down the tasks on it. Blocks on the driver and on /proc; never on the node's own thread.
"""

import time
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from gpudeck.contract.action_table import ENDS_WORK, ROWS, ShownAction
from gpudeck.contract.actions import (
    MAX_BYSTANDERS,
    MAX_VICTIMS,
    Bystander,
    Preview,
    Refusal,
    Victim,
)
from gpudeck.contract.limits import (
    GpuSetting,
    MigLayout,
    MpsClient,
    MpsDaemon,
    MpsMemory,
    MpsSetting,
    SchedulerSetting,
    ServiceSetting,
    Setting,
    action_of,
)
from gpudeck.contract.repairs import WHOLE_NODE
from gpudeck.contract.slurm import SlurmSetting
from gpudeck.contract.wire import Look, Task

from ..journal.store import JournalError
from ..limits import mps_view
from ..limits.stores import NotUnderstoodError
from ..tasks.jobs import ProcessTableRow, members, root_of
from ..tasks.managers import WHOLE_JOBS
from ..tasks.processes import ProcessFacts, about, age_s, ourselves, shown_command, table
from ..tasks.user_table import name_of
from . import guard
from .context import NodeContext, TaskSnapshot, managed_by, task_preview
from .guard import GuardedProcess, GuardInput
from .kinds import checkpoint_wait, kubernetes, slurm
from .kinds.board_repair import RESETS_WITHIN_S, at_work
from .kinds.kubernetes import KubernetesPreview
from .kinds.mig_layout import mig_preview
from .kinds.service import RETURN_OF_NODE
from .kinds.set_mps import ordinals
from .kinds.setting_kind import GpuPreview, MpsPreview, ServicePreview
from .kinds.slurm import SlurmPreview
from .kinds.table import SETTING_KINDS, TASK_KINDS
from .signals import ProcessHandles

COMMANDS_BYTES = 200_000  # of all victims together: a message has 1 MB


def preview(context: NodeContext, look: Look, is_begun: bool = False) -> Preview:
    """Preview any action; not signed yet. `is_begun`: the action has begun, and looks once more."""
    if not ROWS[look.action].is_setting and look.params.setting is None:
        return _of_task(context, look)
    setting = look.params.setting
    if setting is None or action_of(setting) != look.action:
        return refused_preview(context, look, Refusal(
            "schema", f"{look.action} takes another kind of setting; nothing was touched"))
    if isinstance(setting, MigLayout):
        return _of_mig(context, look, setting, is_begun)
    if isinstance(setting, GpuSetting):
        return _of_gpu(context, look, setting, is_begun)
    if isinstance(setting, ServiceSetting):
        return _of_service(context, look, setting, is_begun)
    if isinstance(setting, SchedulerSetting):
        return _of_scheduler(context, look, setting, is_begun)
    return _of_mps(context, look, setting, is_begun)


def refused_preview(context: NodeContext, look: Look, refusal: Refusal, task: Task | None = None
            ) -> Preview:
    return replace(_empty(context, look, task), refusals=(refusal,))


def _empty(context: NodeContext, look: Look, task: Task | None = None) -> Preview:
    task_shown = Task("-", 0, 0, None, None, None) if task is None else task
    return Preview(
        ask_id=look.ask_id, nonce=look.nonce, node_id=context.node.node_id,
        boot_id=context.node.boot_id, taken_at=time.time(), action=look.action, params=look.params,
        task_id=look.task_id, job_id=task_shown.job_id, owner=task_shown.user, age_s=None,
        kind=None if task is None else task.kind, manager=task_shown.manager,
        victims=(), bystanders=())


# tasks


def _of_task(context: NodeContext, look: Look) -> Preview:
    snapshot = context.tasks.find()
    if snapshot is None:
        holds = context.guards.holds()  # one of them may be why there is nothing to read
        return refused_preview(
            context, look, guard.hold_refusal(holds) if holds else guard.unreadable_refusal(
            context.tasks.source.detail))
    task = snapshot.task(look.task_id)
    if task is None and snapshot.fresh.unread:
        return refused_preview(context, look, guard.unreadable_refusal(
            context.tasks.source.detail))
    if task is None:
        return refused_preview(context, look, guard.gone_refusal(look.task_id))
    if context.node.is_recorded:
        return refused_preview(context, look, guard.recorded_refusal(), task)
    if (fiction := guard.made_up_refusal(task.pid)) is not None:
        return refused_preview(context, look, fiction, task)
    rows = table()
    with ProcessHandles() as handles:
        target = handles.facts(task.pid)
        if target is None or target.identity.start_ticks != task.start_ticks:
            return refused_preview(context, look, guard.gone_refusal(look.task_id), task)
        job_id, group = _job(context, look.action, target, rows)
        if len(group) > MAX_VICTIMS:
            return refused_preview(context, look, _too_many(len(group)), task)
        subjects = _subjects(context, handles, group, snapshot)
        case = context.case(look.action, subjects, target, look.asker)
        victims, at = _victims(subjects, snapshot, task, target), time.time()
        paces = checkpoint_wait.paces_of(context, victims, at)
        kind, job = TASK_KINDS[look.action], task_preview(context, subjects, snapshot)
        return replace(
            _empty(context, look, task), job_id=job_id[:128], manager=case.manager or task.manager,
            age_s=age_of(task, at),
            victims=victims, bystanders=_neighbours(subjects, snapshot, handles),
            refusals=(*guard.refusals(case), *kind.flaws(job),
                      *checkpoint_wait.flaws(look.action, look.params, paces))[:32],
            warnings=(*kind.notes(job), *_warnings(look, case), *checkpoint_wait.warnings(
                look.action, look.params, paces, at))[:32])


def age_of(task: Task, at: float) -> float:
    """Return its age as every page has it: in a demo the process is younger than its job."""
    age = age_s(task.start_ticks) if task.started_at is None else at - task.started_at
    return max(age, 0.0)


def _job(
    context: NodeContext, action: ShownAction, target: ProcessFacts,
    rows: dict[int, ProcessTableRow],
) -> tuple[str, tuple[ProcessTableRow, ...]]:
    """Return the job's id, and all its processes, parents first."""
    manager = managed_by(target)
    if manager is not None and target.group is not None and manager.startswith(WHOLE_JOBS):
        inside = (row for row in rows.values() if _is_in(row.pid, manager, target.group))
        return manager[:128], tuple(sorted(inside, key=lambda row: row.start_ticks))
    pid = target.identity.pid
    root = root_of(pid, rows.get, about, ourselves()) or target.row
    job_id = f"{context.node.boot_id[:8]}-{root.pid}-{root.start_ticks}"
    if not TASK_KINDS[action].is_whole_job:  # nobody asked about the others in it
        return job_id, (target.row,)
    return job_id, members(root.pid, rows)


def _is_in(pid: int, manager: str, group: str | None) -> bool:
    """Compare the group's whole path: a container's root may nest one with another's id."""
    with ProcessHandles() as handles:
        facts = handles.facts(pid)
        return facts is not None and (facts.manager, facts.group) == (manager, group)


def _subjects(context: NodeContext, handles: ProcessHandles, group: Iterable[ProcessTableRow],
              snapshot: TaskSnapshot) -> tuple[GuardedProcess, ...]:
    subjects = []
    for row in group:
        handle = handles.open(row.pid)
        facts = None if handle is None else handle.facts()
        if handle is None or facts is None or facts.row.start_ticks != row.start_ticks:
            continue  # it ended in the meantime
        its = snapshot.task_of(row.pid)
        user = name_of(facts.identity.uid) if its is None else its.user
        kind = None if its is None else its.kind
        subjects.append(context.subject(facts, user, kind, handle.may_signal()))
    return tuple(subjects)


def _victims(
    subjects: tuple[GuardedProcess, ...], snapshot: TaskSnapshot, task: Task, target: ProcessFacts
) -> tuple[Victim, ...]:
    room = COMMANDS_BYTES // max(len(subjects), 1) // 4
    victims = []
    for subject in subjects:
        identity = subject.facts.identity
        its = snapshot.task_of(identity.pid)
        command = its.command if its is not None else shown_command(identity.pid)
        # A simulated owner has no account here; the workers are as much theirs.
        user = task.user if identity.uid == target.identity.uid else subject.user
        victims.append(Victim(identity, command and command[:room], user,
                              None if its is None else its.id, snapshot.held_gpus(identity.pid)))
    return tuple(victims)


def _neighbours(subjects: tuple[GuardedProcess, ...], snapshot: TaskSnapshot,
                handles: ProcessHandles) -> tuple[Bystander, ...]:
    victims = {subject.facts.identity.pid for subject in subjects}
    gpus = {gpu.gpu_uuid for pid in victims for gpu in snapshot.held_gpus(pid)}
    return _bystanders(snapshot, handles, {
        entry.task.pid: entry.task for entry in snapshot.gpu_tasks
        if entry.gpu_uuid in gpus and entry.task.pid not in victims}.values())


def _bystanders(snapshot: TaskSnapshot, handles: ProcessHandles, tasks: Iterable[Task]
                ) -> tuple[Bystander, ...]:
    readable = [(task, facts) for task in tasks if (facts := handles.facts(task.pid)) is not None]
    return tuple(Bystander(facts.identity, task.id, task.user, task.command and task.command[:512],
                           snapshot.held_gpus(task.pid))
                 for task, facts in readable[:MAX_BYSTANDERS])


def _warnings(look: Look, case: GuardInput) -> tuple[str, ...]:
    warnings = [*TASK_KINDS[look.action].warnings(look.params, case)]
    if look.action in guard.SIGNALS and len(case.subjects) > 1:
        warnings.append(f"All {len(case.subjects)} processes of this job.")
    stuck = [str(subject.facts.identity.pid) for subject in case.subjects
             if subject.facts.row.state == "D"]
    if stuck:
        warnings.append(f"Process {', '.join(stuck[:5])} waits inside the kernel (state D) and may "
                        "not react until that wait ends.")
    return tuple(warnings[:32])


def _too_many(count: int) -> Refusal:
    return Refusal("too_many", f"the job has {count} processes; gpudeck acts on at most "
                               f"{MAX_VICTIMS} at once. End it from inside, or by its manager.")


# settings


def _refusals(context: NodeContext, look: Look, subjects: tuple[GuardedProcess, ...],
              is_begun: bool, flaws: Iterable[Refusal]) -> tuple[Refusal, ...]:
    case = context.case(look.action, subjects, None, look.asker)
    return (*guard.refusals(guard.discount_itself(case) if is_begun else case), *flaws)[:32]


def _of_gpu(context: NodeContext, look: Look, setting: GpuSetting, is_begun: bool) -> Preview:
    applier, kind = context.limits.applier, SETTING_KINDS[type(setting)]
    if trouble := applier.trouble(setting.gpu_uuid):
        return refused_preview(context, look, Refusal("setting", trouble))
    limits = applier.read([setting.gpu_uuid])[setting.gpu_uuid]
    snapshot = context.tasks.find(setting.gpu_uuid)
    with ProcessHandles() as handles:
        bystanders = () if snapshot is None else _bystanders(snapshot, handles, (
            entry.task for entry in snapshot.gpu_tasks if entry.gpu_uuid == setting.gpu_uuid))
    details = GpuPreview(context, limits, snapshot, bystanders)
    flaws = ((Refusal("setting", limits.trouble),) if limits.trouble
             else kind.flaws(setting, details))
    return replace(
        _empty(context, look), bystanders=bystanders, changes=kind.changes(setting, details),
        refusals=_refusals(context, look, (), is_begun, flaws),
        warnings=tuple(kind.warnings(setting, details)))


def _of_service(context: NodeContext, look: Look, setting: ServiceSetting, is_begun: bool
                ) -> Preview:
    """Preview service, also for a board that does not respond, or a node without a driver: service
    actions exist for those. Bystanders are listed as far as they can be determined."""
    kind, uuid = SETTING_KINDS[type(setting)], setting.gpu_uuid
    snapshot = context.tasks.find(uuid)
    boards = context.tasks.recent.board_of
    with ProcessHandles() as handles:
        bystanders = () if snapshot is None else _bystanders(snapshot, handles, {
            entry.task.pid: entry.task for entry in snapshot.gpu_tasks
            if uuid in (WHOLE_NODE, boards.get(entry.gpu_uuid, entry.gpu_uuid))}.values())
    is_understood = True
    try:
        store = context.limits.repairs
        own, of_node, trouble = store.of(uuid), store.of(WHOLE_NODE), ""
        busy = at_work(store.all(), uuid)
        resets = store.resets(uuid, time.time() - RESETS_WITHIN_S)
    except JournalError as why:
        own, of_node, trouble, busy, resets = None, None, str(why), "", 0
        is_understood = not isinstance(why, NotUnderstoodError)
        if not is_understood and setting == RETURN_OF_NODE:
            own, trouble = store.whole_node(why), ""
    tasks = () if snapshot is None else tuple(sorted({
        entry.task.id for entry in snapshot.gpu_tasks
        if boards.get(entry.gpu_uuid, entry.gpu_uuid) == uuid}))
    details = ServicePreview(
        context, own, of_node, _is_board(uuid, boards, snapshot), bystanders, trouble, snapshot,
        context.tasks.recent.facts.get(uuid), tasks, busy, resets, is_understood)
    return replace(
        _empty(context, look), bystanders=bystanders, changes=kind.changes(setting, details),
        refusals=_refusals(context, look, (), is_begun, kind.flaws(setting, details)),
        warnings=tuple(kind.warnings(setting, details)))


def _of_mig(context: NodeContext, look: Look, setting: MigLayout, is_begun: bool) -> Preview:
    kind, snapshot = SETTING_KINDS[MigLayout], context.tasks.find(setting.gpu_uuid)
    details = mig_preview(context, setting, snapshot)
    boards = context.tasks.recent.board_of
    with ProcessHandles() as handles:
        bystanders = () if snapshot is None else _bystanders(snapshot, handles, {
            entry.task.pid: entry.task for entry in snapshot.gpu_tasks
            if entry.gpu_uuid in details.uuids
            or boards.get(entry.gpu_uuid, entry.gpu_uuid) == setting.gpu_uuid}.values())
    return replace(
        _empty(context, look), bystanders=bystanders, changes=kind.changes(setting, details),
        refusals=_refusals(context, look, (), is_begun, kind.flaws(setting, details)),
        warnings=tuple(warning[:1_024] for warning in kind.warnings(setting, details)))


def _is_board(uuid: str, boards: Mapping[str, str], snapshot: TaskSnapshot | None) -> bool:
    """Return whether it is a board. A terminal has no earlier readings: the driver's list must
    do."""
    listed = () if snapshot is None else snapshot.fresh.mem_used_bytes
    return uuid in boards.values() if boards else uuid in listed and not uuid.startswith("MIG-")


def _of_scheduler(context: NodeContext, look: Look, setting: SchedulerSetting, is_begun: bool
                  ) -> Preview:
    kind, owner = SETTING_KINDS[type(setting)], None
    details: SlurmPreview | KubernetesPreview
    if isinstance(setting, SlurmSetting):
        details = slurm.preview_of(context.schedulers.slurm, setting)
        owner = None if details.job is None else details.job.user
    else:
        details = kubernetes.preview_of(context.schedulers.kubernetes, setting)
    return replace(
        _empty(context, look), owner=owner,
        changes=kind.changes(setting, details), warnings=tuple(kind.warnings(setting, details)),
        refusals=_refusals(context, look, (), is_begun, kind.flaws(setting, details)))


def _of_mps(context: NodeContext, look: Look, setting: MpsSetting, is_begun: bool) -> Preview:
    limits, kind = context.limits, SETTING_KINDS[type(setting)]
    if trouble := mps_view.why_not(limits.mps):
        return refused_preview(context, look, Refusal("setting", trouble))
    snapshot = context.tasks.find()
    daemon = _as_tasks(mps_view.view(
        limits.mps.daemon(setting.pipes), _device_numbers(snapshot, setting),
        limits.mps_settings.of, lambda pid: _task_id(snapshot, pid),
        context.node.driver()), snapshot)
    details = MpsPreview(context, daemon, snapshot, look.params.grace_s)
    with ProcessHandles() as handles:
        clients = _clients(context, handles, daemon)
        is_end = look.action in ENDS_WORK
        subjects = tuple(subject for _, subject in clients) if is_end else ()
        return replace(
            _empty(context, look), changes=kind.changes(setting, details), owner=daemon.user,
            victims=tuple(_victim(*client) for client in clients) if is_end else (),
            bystanders=() if is_end else tuple(_bystander(*client, snapshot) for client in clients),
            refusals=_refusals(context, look, subjects, is_begun, kind.flaws(setting, details)),
            warnings=tuple(warning[:1_024] for warning in kind.warnings(setting, details)))


def _device_numbers(snapshot: TaskSnapshot | None, setting: Setting) -> tuple[int, ...]:
    """Return the devices to ask about, also where no driver lists a GPU of that number: what is
    not asked is not known."""
    own = {setting.ordinal} if isinstance(setting, MpsMemory) else set()
    return tuple(sorted({*ordinals(snapshot), *own}))


def _task_id(snapshot: TaskSnapshot | None, pid: int) -> str | None:
    task = None if snapshot is None else snapshot.task_of(pid)
    return None if task is None else task.id


def _as_tasks(daemon: MpsDaemon, snapshot: TaskSnapshot | None) -> MpsDaemon:
    """Give clients the names that they have as tasks, by which they are protected as well."""
    def with_task_names(client: MpsClient) -> MpsClient:
        task = None if snapshot is None else snapshot.task_of(client.pid)
        return client if task is None else replace(
            client, user=task.user or client.user,
            command=(task.command and task.command[:512]) or client.command)

    return replace(daemon, servers=tuple(
        replace(server, clients=tuple(map(with_task_names, server.clients)))
        for server in daemon.servers))


def _clients(context: NodeContext, handles: ProcessHandles, daemon: MpsDaemon
             ) -> list[tuple[MpsClient, GuardedProcess]]:
    return [(client, context.subject(facts, client.user, "mps_client", True))
            for client in daemon.clients[:min(MAX_VICTIMS, MAX_BYSTANDERS)]
            if (facts := handles.facts(client.pid)) is not None]


def _victim(client: MpsClient, subject: GuardedProcess) -> Victim:
    return Victim(subject.facts.identity, client.command, client.user, client.task_id)


def _bystander(client: MpsClient, subject: GuardedProcess, snapshot: TaskSnapshot | None
               ) -> Bystander:
    gpus = () if snapshot is None else snapshot.held_gpus(client.pid)
    return Bystander(subject.facts.identity, client.task_id or f"pid {client.pid}", client.user,
                     client.command, gpus)

"""A fresh look at what an act would hit or change, for whom, and what forbids it.

Of a task: its Job's processes, and their neighbours. Of MPS: running clients keep what they were
given, so they are bystanders of a setting; of a stop they are its victims. Of a GPU: what its limit
slows down are the tasks on it. Blocks on the driver and on /proc; never on the node's own thread.
"""

import time
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from gpudeck.action_table import ENDS_WORK, ROWS, ShownAction
from gpudeck.actions import MAX_BYSTANDERS, MAX_VICTIMS, Bystander, Preview, Refusal, Victim
from gpudeck.limits import (
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
from gpudeck.repairs import WHOLE_NODE
from gpudeck.slurm import SlurmSetting
from gpudeck.wire import Look, Task

from ..journal.store import JournalError
from ..limits import mps_view
from ..limits.stores import NotUnderstoodError
from ..tasks.jobs import ProcessTableRow, members, root_of
from ..tasks.managers import WHOLE_JOBS
from ..tasks.processes import ProcessFacts, about, age_s, ourselves, shown_command, table
from ..tasks.user_table import name_of
from . import guard
from .context import NodeContext, TaskSnapshot, managed_by
from .guard import GuardedProcess, GuardInput
from .kinds import checkpoint_wait, kubernetes, slurm
from .kinds.board_repair import RESETS_WITHIN_S, at_work
from .kinds.kubernetes import KubernetesPreview
from .kinds.mig_layout import looked
from .kinds.service import RETURN_OF_NODE
from .kinds.set_mps import ordinals
from .kinds.setting_kind import GpuPreview, MpsPreview, ServicePreview
from .kinds.slurm import SlurmPreview
from .kinds.table import SETTING_KINDS, TASK_KINDS
from .signals import ProcessHandles

COMMANDS_BYTES = 200_000  # of all victims together: a message has 1 MB


def preview(context: NodeContext, look: Look, is_begun: bool = False) -> Preview:
    """Of whatever may be asked for. Not signed yet. `is_begun`: it is looked at once more."""
    if not ROWS[look.action].is_setting and look.params.setting is None:
        return _of_task(context, look)
    setting = look.params.setting
    if setting is None or action_of(setting) != look.action:
        return nothing(context, look, Refusal(
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


def nothing(context: NodeContext, look: Look, refusal: Refusal, task: Task | None = None
            ) -> Preview:
    return replace(_empty(context, look, task), refusals=(refusal,))


def _empty(context: NodeContext, look: Look, task: Task | None = None) -> Preview:
    known = Task("-", 0, 0, None, None, None) if task is None else task
    return Preview(
        ask_id=look.ask_id, nonce=look.nonce, node_id=context.node.node_id,
        boot_id=context.node.boot_id, taken_at=time.time(), action=look.action, params=look.params,
        task_id=look.task_id, job_id=known.job_id, owner=known.user, age_s=None,
        kind=None if task is None else task.kind, manager=known.manager, victims=(), bystanders=())


# tasks


def _of_task(context: NodeContext, look: Look) -> Preview:
    found = context.tasks.find()
    if found is None:
        holds = context.guards.holds()  # one of them may be why there is nothing to read
        return nothing(context, look, guard.held(holds) if holds else guard.unreadable(
            context.tasks.source.detail))
    task = found.task(look.task_id)
    if task is None:
        return nothing(context, look, guard.gone(look.task_id))
    if context.node.is_recorded:
        return nothing(context, look, guard.recorded(), task)
    if (fiction := guard.made_up(task.pid)) is not None:
        return nothing(context, look, fiction, task)
    rows = table()
    with ProcessHandles() as grips:
        target = grips.facts(task.pid)
        if target is None or target.identity.start_ticks != task.start_ticks:
            return nothing(context, look, guard.gone(look.task_id), task)
        job_id, group = _job(context, look.action, target, rows)
        if len(group) > MAX_VICTIMS:
            return nothing(context, look, _too_many(len(group)), task)
        subjects = _subjects(context, grips, group, found)
        case = context.case(look.action, subjects, target, look.asker)
        victims, at = _victims(subjects, found, task, target), time.time()
        paces = checkpoint_wait.paces_of(context, victims, at)
        return replace(
            _empty(context, look, task), job_id=job_id[:128], manager=case.manager or task.manager,
            age_s=age_of(task, at),
            victims=victims, bystanders=_neighbours(subjects, found, grips),
            refusals=(*guard.refusals(case),
                      *checkpoint_wait.flaws(look.action, look.params, paces))[:32],
            warnings=(*_warnings(look, case), *checkpoint_wait.warnings(
                look.action, look.params, paces, at))[:32])


def age_of(task: Task, at: float) -> float:
    """As every page has it: in a demo the process is younger than the job that it stands for."""
    known = age_s(task.start_ticks) if task.started_at is None else at - task.started_at
    return max(known, 0.0)


def _job(
    context: NodeContext, action: ShownAction, target: ProcessFacts,
    rows: dict[int, ProcessTableRow],
) -> tuple[str, tuple[ProcessTableRow, ...]]:
    """Its id, and all its processes, parents first."""
    manager = managed_by(target)
    if manager is not None and target.group is not None and manager.startswith(WHOLE_JOBS):
        inside = (row for row in rows.values() if _is_in(row.pid, manager, target.group))
        return manager[:128], tuple(sorted(inside, key=lambda row: row.start_ticks))
    pid = target.identity.pid
    root = root_of(pid, rows.get, about, ourselves()) or target.row
    job_id = f"{context.node.boot_id[:8]}-{root.pid}-{root.start_ticks}"
    if not TASK_KINDS[action].is_whole_job:  # of the others in it nobody asked
        return job_id, (target.row,)
    return job_id, members(root.pid, rows)


def _is_in(pid: int, manager: str, group: str | None) -> bool:
    """By its group's whole path: root of a container may make one below that has another's id."""
    with ProcessHandles() as grips:
        found = grips.facts(pid)
        return found is not None and (found.manager, found.group) == (manager, group)


def _subjects(context: NodeContext, grips: ProcessHandles, group: Iterable[ProcessTableRow],
              found: TaskSnapshot) -> tuple[GuardedProcess, ...]:
    subjects = []
    for row in group:
        grip = grips.take(row.pid)
        facts = None if grip is None else grip.facts()
        if grip is None or facts is None or facts.row.start_ticks != row.start_ticks:
            continue  # it ended while we looked
        its = found.of(row.pid)
        user = name_of(facts.identity.uid) if its is None else its.user
        kind = None if its is None else its.kind
        subjects.append(context.subject(facts, user, kind, grip.may_signal()))
    return tuple(subjects)


def _victims(
    subjects: tuple[GuardedProcess, ...], found: TaskSnapshot, task: Task, target: ProcessFacts
) -> tuple[Victim, ...]:
    room = COMMANDS_BYTES // max(len(subjects), 1) // 4
    made = []
    for subject in subjects:
        identity = subject.facts.identity
        its = found.of(identity.pid)
        command = its.command if its is not None else shown_command(identity.pid)
        # A simulated owner has no account here; the workers are as much theirs.
        user = task.user if identity.uid == target.identity.uid else subject.user
        made.append(Victim(identity, command and command[:room], user,
                           None if its is None else its.id, found.held(identity.pid)))
    return tuple(made)


def _neighbours(subjects: tuple[GuardedProcess, ...], found: TaskSnapshot, grips: ProcessHandles
                ) -> tuple[Bystander, ...]:
    victims = {subject.facts.identity.pid for subject in subjects}
    gpus = {held.gpu_uuid for pid in victims for held in found.held(pid)}
    return _bystanders(found, grips, {
        each.task.pid: each.task for each in found.seen
        if each.gpu_uuid in gpus and each.task.pid not in victims}.values())


def _bystanders(found: TaskSnapshot, grips: ProcessHandles, tasks: Iterable[Task]
                ) -> tuple[Bystander, ...]:
    seen = [(task, facts) for task in tasks if (facts := grips.facts(task.pid)) is not None]
    return tuple(Bystander(facts.identity, task.id, task.user, task.command and task.command[:512],
                           found.held(task.pid)) for task, facts in seen[:MAX_BYSTANDERS])


def _warnings(look: Look, case: GuardInput) -> tuple[str, ...]:
    said = [*TASK_KINDS[look.action].warnings(look.params, case)]
    if look.action in guard.SIGNALS and len(case.subjects) > 1:
        said.append(f"All {len(case.subjects)} processes of this job.")
    stuck = [str(each.facts.identity.pid) for each in case.subjects if each.facts.row.state == "D"]
    if stuck:
        said.append(f"Process {', '.join(stuck[:5])} waits inside the kernel (state D) and may not "
                    "react until that wait ends.")
    return tuple(said[:32])


def _too_many(count: int) -> Refusal:
    return Refusal("too_many", f"the job has {count} processes; gpudeck acts on at most "
                               f"{MAX_VICTIMS} at once. End it from inside, or by its manager.")


# settings


def _refusals(context: NodeContext, look: Look, subjects: tuple[GuardedProcess, ...],
              is_begun: bool, flaws: Iterable[Refusal]) -> tuple[Refusal, ...]:
    case = context.case(look.action, subjects, None, look.asker)
    return (*guard.refusals(guard.begun(case) if is_begun else case), *flaws)[:32]


def _of_gpu(context: NodeContext, look: Look, setting: GpuSetting, is_begun: bool) -> Preview:
    applier, kind = context.limits.applier, SETTING_KINDS[type(setting)]
    if trouble := applier.trouble():
        return nothing(context, look, Refusal("setting", trouble))
    limits = applier.read([setting.gpu_uuid])[setting.gpu_uuid]
    found = context.tasks.find()
    with ProcessHandles() as grips:
        bystanders = () if found is None else _bystanders(found, grips, (
            each.task for each in found.seen if each.gpu_uuid == setting.gpu_uuid))
    shown = GpuPreview(context, limits, found, bystanders)
    flaws = (Refusal("setting", limits.trouble),) if limits.trouble else kind.flaws(setting, shown)
    return replace(
        _empty(context, look), bystanders=bystanders, changes=kind.changes(setting, shown),
        refusals=_refusals(context, look, (), is_begun, flaws),
        warnings=tuple(kind.warnings(setting, shown)))


def _of_service(context: NodeContext, look: Look, setting: ServiceSetting, is_begun: bool
                ) -> Preview:
    """Also for a board that does not respond, or a node without a driver: service actions exist for
    those. Bystanders are listed as far as they can be determined."""
    kind, found, uuid = SETTING_KINDS[type(setting)], context.tasks.find(), setting.gpu_uuid
    boards = context.tasks.recent.board_of
    with ProcessHandles() as grips:
        bystanders = () if found is None else _bystanders(found, grips, {
            each.task.pid: each.task for each in found.seen
            if uuid in (WHOLE_NODE, boards.get(each.gpu_uuid, each.gpu_uuid))}.values())
    is_understood = True
    try:
        store = context.limits.repairs
        own, of_node, trouble = store.of(uuid), store.of(WHOLE_NODE), ""
        others = at_work(store.all(), uuid)
        resets = store.resets(uuid, time.time() - RESETS_WITHIN_S)
    except JournalError as why:
        own, of_node, trouble, others, resets = None, None, str(why), "", 0
        is_understood = not isinstance(why, NotUnderstoodError)
        if not is_understood and setting == RETURN_OF_NODE:
            own, trouble = store.whole_node(why), ""
    tasks = () if found is None else tuple(sorted({
        each.task.id for each in found.seen if boards.get(each.gpu_uuid, each.gpu_uuid) == uuid}))
    shown = ServicePreview(
        context, own, of_node, _is_board(uuid, boards, found), bystanders, trouble, found,
        context.tasks.recent.facts.get(uuid), tasks, others, resets, is_understood)
    return replace(
        _empty(context, look), bystanders=bystanders, changes=kind.changes(setting, shown),
        refusals=_refusals(context, look, (), is_begun, kind.flaws(setting, shown)),
        warnings=tuple(kind.warnings(setting, shown)))


def _of_mig(context: NodeContext, look: Look, setting: MigLayout, is_begun: bool) -> Preview:
    kind, found = SETTING_KINDS[MigLayout], context.tasks.find()
    shown = looked(context, setting, found)
    boards = context.tasks.recent.board_of
    with ProcessHandles() as grips:
        bystanders = () if found is None else _bystanders(found, grips, {
            each.task.pid: each.task for each in found.seen if each.gpu_uuid in shown.uuids
            or boards.get(each.gpu_uuid, each.gpu_uuid) == setting.gpu_uuid}.values())
    return replace(
        _empty(context, look), bystanders=bystanders, changes=kind.changes(setting, shown),
        refusals=_refusals(context, look, (), is_begun, kind.flaws(setting, shown)),
        warnings=tuple(each[:1_024] for each in kind.warnings(setting, shown)))


def _is_board(uuid: str, boards: Mapping[str, str], found: TaskSnapshot | None) -> bool:
    """A terminal knows no readings of before: what the driver lists now has to do."""
    listed = () if found is None else found.fresh.mem_used_bytes
    return uuid in boards.values() if boards else uuid in listed and not uuid.startswith("MIG-")


def _of_scheduler(context: NodeContext, look: Look, setting: SchedulerSetting, is_begun: bool
                  ) -> Preview:
    kind, owner = SETTING_KINDS[type(setting)], None
    shown: SlurmPreview | KubernetesPreview
    if isinstance(setting, SlurmSetting):
        shown = slurm.looked(context.schedulers.slurm, setting)
        owner = None if shown.job is None else shown.job.user
    else:
        shown = kubernetes.looked(context.schedulers.kubernetes, setting)
    return replace(
        _empty(context, look), owner=owner,
        changes=kind.changes(setting, shown), warnings=tuple(kind.warnings(setting, shown)),
        refusals=_refusals(context, look, (), is_begun, kind.flaws(setting, shown)))


def _of_mps(context: NodeContext, look: Look, setting: MpsSetting, is_begun: bool) -> Preview:
    limits, kind = context.limits, SETTING_KINDS[type(setting)]
    if trouble := mps_view.why_not(limits.mps):
        return nothing(context, look, Refusal("setting", trouble))
    found = context.tasks.find()
    seen = _as_tasks(mps_view.view(
        limits.mps.daemon(setting.pipes), _asked_of(found, setting), limits.mps_settings.of,
        lambda pid: _task_id(found, pid), context.node.driver()), found)
    shown = MpsPreview(context, seen, found, look.params.grace_s)
    with ProcessHandles() as grips:
        clients = _clients(context, grips, seen)
        is_end = look.action in ENDS_WORK
        subjects = tuple(subject for _, subject in clients) if is_end else ()
        return replace(
            _empty(context, look), changes=kind.changes(setting, shown), owner=seen.user,
            victims=tuple(_victim(*each) for each in clients) if is_end else (),
            bystanders=() if is_end else tuple(_bystander(*each, found) for each in clients),
            refusals=_refusals(context, look, subjects, is_begun, kind.flaws(setting, shown)),
            warnings=tuple(each[:1_024] for each in kind.warnings(setting, shown)))


def _asked_of(found: TaskSnapshot | None, setting: Setting) -> tuple[int, ...]:
    """Also where no driver lists a GPU of that number: what is not asked is not known."""
    own = {setting.ordinal} if isinstance(setting, MpsMemory) else set()
    return tuple(sorted({*ordinals(found), *own}))


def _task_id(found: TaskSnapshot | None, pid: int) -> str | None:
    task = None if found is None else found.of(pid)
    return None if task is None else task.id


def _as_tasks(seen: MpsDaemon, found: TaskSnapshot | None) -> MpsDaemon:
    """Clients have the names that they have as tasks, by which they are protected as well."""
    def named(client: MpsClient) -> MpsClient:
        task = None if found is None else found.of(client.pid)
        return client if task is None else replace(
            client, user=task.user or client.user,
            command=(task.command and task.command[:512]) or client.command)

    return replace(seen, servers=tuple(
        replace(server, clients=tuple(map(named, server.clients))) for server in seen.servers))


def _clients(context: NodeContext, grips: ProcessHandles, seen: MpsDaemon
             ) -> list[tuple[MpsClient, GuardedProcess]]:
    return [(client, context.subject(facts, client.user, "mps_client", True))
            for client in seen.clients[:min(MAX_VICTIMS, MAX_BYSTANDERS)]
            if (facts := grips.facts(client.pid)) is not None]


def _victim(client: MpsClient, subject: GuardedProcess) -> Victim:
    return Victim(subject.facts.identity, client.command, client.user, client.task_id)


def _bystander(client: MpsClient, subject: GuardedProcess, found: TaskSnapshot | None) -> Bystander:
    held = () if found is None else found.held(client.pid)
    return Bystander(subject.facts.identity, client.task_id or f"pid {client.pid}", client.user,
                     client.command, held)

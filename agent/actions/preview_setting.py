"""A fresh look at what a setting of MPS or of a Gpu would change, and for whom.

Running clients of MPS keep what they were given, so they are bystanders of a setting; of a stop
they are its victims. What a Gpu's limit slows down are the tasks on it.
"""

import msgspec

from gpudeck.action_table import ENDS_CLIENTS, SETTING_ACTIONS
from gpudeck.actions import MAX_BYSTANDERS, MAX_VICTIMS, Bystander, Preview, Refusal, Victim
from gpudeck.limits import GpuSetting, MpsClient, MpsDaemon, MpsMemory, MpsSetting, action_of

from ..limits import mps_view
from . import guard
from .context import NodeContext, TaskSnapshot
from .guard import GuardedProcess, GuardInput
from .guard_input import protected, subject_of
from .kinds.set_mps import ordinals
from .kinds.setting_kind import GpuPreview, MpsPreview
from .kinds.table import GPU_KINDS, MPS_KINDS
from .preview import PreviewRequest, empty, nothing
from .preview import preview as of_task
from .signals import ProcessHandles


def look(context: NodeContext, request: PreviewRequest) -> Preview:
    """Of whatever may be asked for. Not signed yet."""
    if request.action in SETTING_ACTIONS or request.params.setting is not None:
        return preview(context, request)
    return of_task(context, request)


def preview(context: NodeContext, request: PreviewRequest, asker: str | None = None) -> Preview:
    """Of a setting. Not signed yet."""
    setting = request.params.setting
    if setting is None or action_of(setting) != request.action:
        return nothing(context, request, Refusal(
            "schema", f"{request.action} comes with a setting of its own kind; nothing was "
                      "touched"))
    if isinstance(setting, GpuSetting):
        return _of_gpu(context, request, setting, asker)
    return _of_mps(context, request, setting, asker)


# MPS


def _of_mps(context: NodeContext, request: PreviewRequest, setting: MpsSetting,
            asker: str | None) -> Preview:
    limits = context.limits
    if trouble := mps_view.why_not(limits.mps):
        return nothing(context, request, Refusal("setting", trouble))
    found, kind = context.tasks.find(), MPS_KINDS[type(setting)]
    seen = _as_tasks(mps_view.view(
        limits.mps.daemon(setting.pipes), _asked_of(found, setting), limits.mps_settings.of,
        lambda pid: _task_id(found, pid), context.node.driver()), found)
    shown = MpsPreview(context, seen, found, request.params.grace_s)
    with ProcessHandles() as grips:
        clients = _clients(context, grips, seen)
        is_end = request.action in ENDS_CLIENTS
        subjects = tuple(subject for _, subject in clients) if is_end else ()
        refusals = [*guard.refusals(_case(context, request, subjects, asker)),
                    *kind.flaws(setting, shown)]
        return msgspec.structs.replace(
            empty(context, request, None), changes=kind.changes(setting, shown), owner=seen.user,
            victims=tuple(_victim(*each) for each in clients) if is_end else (),
            bystanders=() if is_end else tuple(_bystander(*each, found) for each in clients),
            refusals=tuple(refusals)[:32],
            warnings=tuple(each[:1_024] for each in kind.warnings(setting, shown)))


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


def _clients(context: NodeContext, grips: ProcessHandles, seen: MpsDaemon
             ) -> list[tuple[MpsClient, GuardedProcess]]:
    made = []
    for client in seen.clients[:min(MAX_VICTIMS, MAX_BYSTANDERS)]:
        grip = grips.take(client.pid)
        facts = None if grip is None else grip.facts()
        if facts is not None:
            made.append((client, subject_of(context, facts, client.user, "mps_client", True)))
    return made


def _victim(client: MpsClient, subject: GuardedProcess) -> Victim:
    return Victim(subject.facts.identity, client.command, client.user, client.task_id)


def _bystander(client: MpsClient, subject: GuardedProcess, found: TaskSnapshot | None) -> Bystander:
    held = () if found is None else found.held(client.pid)
    return Bystander(subject.facts.identity, client.task_id or f"pid {client.pid}", client.user,
                     client.command, held)


def _case(context: NodeContext, request: PreviewRequest, subjects: tuple[GuardedProcess, ...],
          asker: str | None) -> GuardInput:
    ceiling = context.guards.ceiling()
    spent = context.guards.kills_last_hour()
    return GuardInput(
        action=request.action, ceiling=ceiling, subjects=subjects, target_pid=0, age_s=None,
        protected=protected(), protected_by_ceiling=ceiling.protected_ids(),
        holds=context.guards.holds(), asker=asker,
        # The INTENT of the very act that is looked at anew is counted already.
        kills_last_hour=spent if asker is None else max(spent - 1, 0))


# GPUs


def _of_gpu(context: NodeContext, request: PreviewRequest, setting: GpuSetting,
            asker: str | None) -> Preview:
    applier = context.limits.applier
    if trouble := applier.trouble():
        return nothing(context, request, Refusal("setting", trouble))
    limits = applier.read([setting.gpu_uuid])[setting.gpu_uuid]
    found, kind = context.tasks.find(), GPU_KINDS[type(setting)]
    with ProcessHandles() as grips:
        bystanders = _on_gpu(setting.gpu_uuid, found, grips)
    shown = GpuPreview(context, limits, found, bystanders)
    flaws = [Refusal("setting", limits.trouble)] if limits.trouble else [
        *kind.flaws(setting, shown)]
    refusals = [*guard.refusals(_case(context, request, (), asker)), *flaws]
    return msgspec.structs.replace(
        empty(context, request, None), bystanders=bystanders, refusals=tuple(refusals)[:32],
        changes=kind.changes(setting, shown), warnings=tuple(kind.warnings(setting, shown)))


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

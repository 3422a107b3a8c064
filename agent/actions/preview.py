"""A fresh look at what an act would hit: the Job's processes, its neighbours, and what forbids it.

Blocks on the driver and on /proc; never on the node's own thread.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from gpudeck.action_table import ShownAction
from gpudeck.actions import (
    MAX_BYSTANDERS,
    MAX_VICTIMS,
    ActionParams,
    Bystander,
    Preview,
    Refusal,
    Victim,
)
from gpudeck.wire import Task

from ..tasks.jobs import ProcessTableRow, members, root_of
from ..tasks.managers import WHOLE_JOBS
from ..tasks.processes import ProcessFacts, about, age_s, ourselves, table
from ..tasks.task_table import shown_command
from ..tasks.terminals import name_of
from . import guard
from .context import NodeContext, TaskSnapshot
from .guard import GuardedProcess, GuardInput
from .guard_input import case_of, managed_by, subject_of
from .kinds.table import TASK_KINDS
from .signals import ProcessHandles

COMMANDS_BYTES = 200_000  # of all victims together: a message has 1 MB


@dataclass(frozen=True, slots=True)
class PreviewRequest:
    """A question to a node, by the hub or at its terminal."""

    ask_id: str
    nonce: bytes
    action: ShownAction
    params: ActionParams
    task_id: str
    asker: str | None = None  # who would order it, where that is known already


def preview(context: NodeContext, request: PreviewRequest) -> Preview:
    """Not signed yet."""
    found = context.tasks.find()
    if found is None:
        holds = context.guards.holds()  # one of them may be why there is nothing to read
        return nothing(context, request, guard.held(holds) if holds else guard.unreadable(
            context.tasks.source.detail))
    task = found.task(request.task_id)
    if task is None:
        return nothing(context, request, guard.gone(request.task_id))
    if context.node.is_recorded:
        return nothing(context, request, guard.recorded(), task)
    if (fiction := guard.made_up(task.pid)) is not None:
        return nothing(context, request, fiction, task)
    rows = table()
    with ProcessHandles() as grips:
        target = _facts(grips, task.pid)
        if target is None or target.identity.start_ticks != task.start_ticks:
            return nothing(context, request, guard.gone(request.task_id), task)
        job_id, group = _job(context, request.action, target, rows)
        if len(group) > MAX_VICTIMS:
            return nothing(context, request, _too_many(len(group)), task)
        subjects = _subjects(context, grips, group, found, task)
        return _shown(context, request, found, task, job_id, target, subjects, grips)


def _shown(
    context: NodeContext, request: PreviewRequest, found: TaskSnapshot, task: Task, job_id: str,
    target: ProcessFacts,
    subjects: tuple[GuardedProcess, ...], grips: ProcessHandles,
) -> Preview:
    case = case_of(context, request.action, subjects, target, request.asker)
    return msgspec.structs.replace(
        empty(context, request, task), job_id=job_id[:128], manager=case.manager or task.manager,
        age_s=max(age_s(task.start_ticks), 0.0),
        victims=_victims(subjects, found, task, target),
        bystanders=_bystanders(subjects, found, grips),
        refusals=guard.refusals(case)[:32],
        warnings=_warnings(request, case),
    )


def _job(
    context: NodeContext, action: ShownAction, target: ProcessFacts,
    rows: dict[int, ProcessTableRow],
) -> tuple[str, tuple[ProcessTableRow, ...]]:
    """Its id, and all its processes, parents first."""
    manager = managed_by(target)
    if manager is not None and manager.startswith(WHOLE_JOBS):
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
        found = _facts(grips, pid)
        return found is not None and (found.manager, found.group) == (manager, group)


def _facts(grips: ProcessHandles, pid: int) -> ProcessFacts | None:
    grip = grips.take(pid)
    return None if grip is None else grip.facts()


def _subjects(
    context: NodeContext, grips: ProcessHandles, group: Iterable[ProcessTableRow],
    found: TaskSnapshot, task: Task
) -> tuple[GuardedProcess, ...]:
    subjects = []
    for row in group:
        grip = grips.take(row.pid)
        facts = None if grip is None else grip.facts()
        if grip is None or facts is None or facts.row.start_ticks != row.start_ticks:
            continue  # it ended while we looked
        its = found.of(row.pid)
        user = name_of(facts.identity.uid) if its is None else its.user
        kind = None if its is None else its.kind
        subjects.append(subject_of(context, facts, user, kind, grip.may_signal()))
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


def _bystanders(
    subjects: tuple[GuardedProcess, ...], found: TaskSnapshot, grips: ProcessHandles
) -> tuple[Bystander, ...]:
    victims = {subject.facts.identity.pid for subject in subjects}
    gpus = {held.gpu_uuid for pid in victims for held in found.held(pid)}
    near = {each.task.pid: each.task for each in found.seen
            if each.gpu_uuid in gpus and each.task.pid not in victims}
    made = []
    for pid, task in near.items():
        facts = _facts(grips, pid)
        if facts is not None:
            command = task.command and task.command[:512]
            made.append(Bystander(facts.identity, task.id, task.user, command, found.held(pid)))
    return tuple(made[:MAX_BYSTANDERS])


def _warnings(request: PreviewRequest, case: GuardInput) -> tuple[str, ...]:
    said = [*TASK_KINDS[request.action].warnings(request.params, case)]
    if request.action in guard.SIGNALS and len(case.subjects) > 1:
        said.append(f"All {len(case.subjects)} processes of the job are meant.")
    stuck = [str(each.facts.identity.pid) for each in case.subjects if each.facts.row.state == "D"]
    if stuck:
        said.append(f"Process {', '.join(stuck[:5])} waits inside the kernel (state D) and may not "
                    "react before that is over.")
    return tuple(said[:32])


def _too_many(count: int) -> Refusal:
    return Refusal("too_many", f"the job has {count} processes; gpudeck acts on at most "
                               f"{MAX_VICTIMS} at once. End it from inside, or by its manager.")


def nothing(context: NodeContext, request: PreviewRequest, refusal: Refusal,
            task: Task | None = None) -> Preview:
    return msgspec.structs.replace(empty(context, request, task), refusals=(refusal,))


def empty(context: NodeContext, request: PreviewRequest, task: Task | None) -> Preview:
    known = Task("-", 0, 0, None, None, None) if task is None else task
    return Preview(
        ask_id=request.ask_id, nonce=request.nonce, node_id=context.node.node_id,
        boot_id=context.node.boot_id,
        taken_at=time.time(), action=request.action, params=request.params, task_id=request.task_id,
        job_id=known.job_id, owner=known.user, age_s=None,
        kind=None if task is None else task.kind, manager=known.manager, victims=(), bystanders=(),
    )


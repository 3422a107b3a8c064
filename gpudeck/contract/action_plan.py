"""A plan: an action written down with the exact identities it is for. Pure.

A person has seen beforehand what a plan does; between then and now a pid may be another process, a
job may have grown, a neighbour may have come. Any such difference means: not this plan.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from gpudeck.contract.action_table import ShownAction
from gpudeck.contract.action_views import KeepView, PreviewItemView, PreviewView

VERSION: Literal[1] = 1
MAX_BYTES = 16 * 2**20


class PlannedProcess(Struct, frozen=True, forbid_unknown_fields=True):
    pid: int
    start_ticks: int | None
    task_id: str | None
    user: str | None
    command: str | None


class PlannedBystander(Struct, frozen=True, forbid_unknown_fields=True):
    task_id: str
    user: str | None
    gpus: tuple[str, ...]


class PlannedJob(Struct, frozen=True, forbid_unknown_fields=True):
    node: str
    host: str
    job_id: str | None
    owner: str | None
    command: str | None
    kind: str | None
    manager: str | None
    task_ids: Annotated[tuple[str, ...], Meta(min_length=1)]
    gpus: tuple[str, ...]
    processes: tuple[PlannedProcess, ...]
    bystanders: tuple[PlannedBystander, ...]
    keep: KeepView | None


class ActionPlanDocument(Struct, frozen=True, forbid_unknown_fields=True):
    gpudeck_plan: Literal[1]
    made_at: float
    action: ShownAction
    params: dict[str, Any]
    jobs: Annotated[tuple[PlannedJob, ...], Meta(min_length=1)]

    @property
    def targets(self) -> list[str]:
        return [task_id for job in self.jobs for task_id in job.task_ids]


class InvalidPlanError(ValueError):
    """Error of a document that is no valid plan."""


def plan_of(view: PreviewView, made_at: float) -> ActionPlanDocument:
    """Plan what would not be refused; the caller says what is left out."""
    if not view.possible:
        raise InvalidPlanError("everything would be refused, so there is nothing to plan")
    jobs = tuple(_job(item) for item in view.possible)
    vague = [process.pid for job in jobs for process in job.processes
             if process.start_ticks is None and process.task_id is None]
    if vague:
        raise InvalidPlanError(f"process {vague[0]} is identified only by its pid, which may be "
                               "reused later; act without a plan, or update the hub")
    return ActionPlanDocument(VERSION, made_at, view.action, view.params, jobs)


def _job(item: PreviewItemView) -> PlannedJob:
    processes = sorted((PlannedProcess(view.pid, view.start_ticks or None, view.task_id, view.user,
                                       view.command) for view in item.processes),
                       key=lambda process: process.pid)
    bystanders = sorted((PlannedBystander(other.task_id, other.user, tuple(other.uuids))
                         for other in item.bystanders), key=lambda other: other.task_id)
    return PlannedJob(
        item.node, item.host, item.job_id, item.owner, item.command, item.kind, item.manager,
        tuple(sorted(item.task_ids)), tuple(sorted(gpu.uuid for gpu in item.gpus)),
        tuple(processes), tuple(bystanders), item.keep)


def encode(plan: ActionPlanDocument) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"


def decode(raw: bytes) -> ActionPlanDocument:
    if len(raw) > MAX_BYTES:
        raise InvalidPlanError(f"it has {len(raw)} bytes; a plan has at most {MAX_BYTES}")
    try:
        return msgspec.json.decode(raw, type=ActionPlanDocument)
    except msgspec.MsgspecError as error:  # ValidationError is one of them
        raise InvalidPlanError(f"it is not a plan of this version: {error}") from error


_WORDS: Mapping[str, str] = {
    "host": "the node's name", "job_id": "the job", "owner": "the owner",
    "command": "the command line", "kind": "how it uses the GPU", "manager": "the manager",
    "task_ids": "its tasks", "gpus": "its GPUs", "processes": "its processes",
    "bystanders": "other tasks on its GPUs", "keep": "its owner's request to keep it",
}


def changes(plan: ActionPlanDocument, view: PreviewView) -> list[str]:
    """List differences from the plan, for people; none: the preview is of exactly this plan."""
    differences = []
    if view.action != plan.action:
        differences.append(f"the plan is to {plan.action}, not to {view.action}")
    if view.params != plan.params:
        differences.append("grace, checkpoint or text differ from the plan")
    planned, there = _by_task(plan.jobs), _by_task(tuple(_job(item) for item in view.items))
    differences += [f"{name}: it is no longer there" for name in planned if name not in there]
    differences += [f"{name}: it was not planned" for name in there if name not in planned]
    for name in planned:
        differences += _differences(name, planned[name], there.get(name))
    return differences + [f"{item.task_ids[0]}: it would be refused now: {refusal.sentence}"
                          for item in view.items for refusal in item.refusals]


def _by_task(jobs: tuple[PlannedJob, ...]) -> dict[str, PlannedJob]:
    """Index jobs by node and task: boot id, pid and start time are in the task's id."""
    return {f"{job.node[:12]} {task_id}": job for job in jobs for task_id in job.task_ids}


def _differences(name: str, planned: PlannedJob, there: PlannedJob | None) -> list[str]:
    if there is None or planned == there:
        return []
    wrong = [word for field, word in _WORDS.items()
             if getattr(planned, field) != getattr(there, field)]
    return [f"{name}: {', '.join(wrong) or 'the node'} changed"]

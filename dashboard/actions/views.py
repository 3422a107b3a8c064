"""What people and programs are shown of acts: previews, commands, plans. Pure."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gpudeck.actions import (
    NO_TASK,
    ActionParams,
    Bystander,
    HeldGpu,
    Preview,
    Refusal,
    ShownAction,
    Victim,
)
from gpudeck.command_sentences import sentence
from gpudeck.limits import SettingChange

from ..fleet.views import KeepView
from ..fleet.visibility import CommandLineVisibility
from .lifecycle import CommandRecord

MAX_TARGETS = 512




class RefusalView(msgspec.Struct):
    code: str
    sentence: str


class HeldGpuView(msgspec.Struct):
    uuid: str
    index: int | None
    mem_used_bytes: float | None
    place: str | None = None  # "3"; of a MIG instance "3/9"


class ProcessView(msgspec.Struct):
    pid: int
    user: str | None
    command: str | None
    task_id: str | None
    start_ticks: int  # with pid and boot, what is never reused


class BystanderView(msgspec.Struct):
    task_id: str
    user: str | None
    command: str | None
    gpus: list[HeldGpuView]


class PreviewItemView(msgspec.Struct):
    """One job, as its node sees it now."""

    task_ids: list[str]
    node: str
    host: str
    job_id: str | None
    owner: str | None
    command: str | None
    age_s: float | None
    kind: str | None
    manager: str | None
    mem_used_bytes: float | None
    gpus: list[HeldGpuView]
    processes: list[ProcessView]
    bystanders: list[BystanderView]
    keep: KeepView | None
    warnings: list[str]
    refusals: list[RefusalView]
    changes: list[SettingChange] = []  # of a setting of MPS or of a Gpu


class ActionRequirementsView(msgspec.Struct):
    fresh: bool
    second_person: bool
    maintenance: bool = False  # to be said once more: `despite_maintenance`


class PreviewView(msgspec.Struct):
    id: str
    action: str
    params: ActionParams
    expires_at: float
    items: list[PreviewItemView]
    needs: ActionRequirementsView
    refused: bool  # none of the items would be done


class NewPreview(msgspec.Struct, forbid_unknown_fields=True):
    action: ShownAction
    targets: Annotated[list[str], Meta(min_length=1, max_length=MAX_TARGETS)]
    params: ActionParams = ActionParams()
    plan: bool = False  # more than 10 jobs: of programs that show their plan to somebody first


class NewCommands(msgspec.Struct, forbid_unknown_fields=True):
    preview: str
    reason: Annotated[str, Meta(max_length=1_024)]
    despite_maintenance: bool = False


class RequesterView(msgspec.Struct):
    kind: str
    name: str
    approved_by: str | None = None


class VerificationView(msgspec.Struct):
    exited: bool | None
    memory_returned: bool | None
    bystanders_alive: bool | None
    mem_before_bytes: float | None
    mem_after_bytes: float | None
    vanished: list[str]
    survivors: list[int]
    applied: bool | None = None  # of a setting: taken without a word
    in_force: bool | None = None  # of a setting: read back as wanted


class CommandTransitionView(msgspec.Struct):
    state: str
    at: float
    step: str


class CommandView(msgspec.Struct):
    id: str
    action: str
    task_id: str | None
    task_ids: list[str]
    job_id: str | None
    node: str
    host: str
    owner: str | None
    command: str | None
    mem_used_bytes: float | None
    state: str
    step: str
    refusal: RefusalView | None
    verified: VerificationView | None
    sentence: str
    by: RequesterView
    reason: str
    requested_at: float
    updated_at: float
    history: list[CommandTransitionView]


class CommandList(msgspec.Struct):
    items: list[CommandView]
    next: str | None


PlanState = Literal["waiting", "approved", "withdrawn", "expired"]


class ActionPlanView(msgspec.Struct):
    id: str
    action: str
    params: ActionParams
    by: RequesterView
    reason: str
    asked_at: float
    ends_at: float
    items: list[PreviewItemView]
    state: PlanState


class ActionPlanList(msgspec.Struct):
    items: list[ActionPlanView]


class OrderResultView(msgspec.Struct):
    """`plan`: nothing was ordered yet; another person has to approve it."""

    items: list[CommandView]
    plan: ActionPlanView | None = None


# -- from what there is


Places = Mapping[str, tuple[int | None, str | None]]  # by UUID: index and place


def item(preview: Preview, host: str, reads: CommandLineVisibility, places: Places,
         refusals: Iterable[Refusal] = (), keep: KeepView | None = None) -> PreviewItemView:
    victims = preview.victims
    held = _summed([each for victim in victims for each in victim.held])
    first = main_victim(preview)
    return PreviewItemView(
        _task_ids(preview),
        preview.node_id, host, preview.job_id, preview.owner,
        None if first is None else reads.line(first.user, first.command), preview.age_s,
        preview.kind, preview.manager, _total([each.mem_used_bytes for each in held]),
        _held(held, places),
        [ProcessView(victim.process.pid, victim.user, reads.line(victim.user, victim.command),
                     victim.task_id, victim.process.start_ticks) for victim in victims],
        [_bystander(one, reads, places) for one in preview.bystanders], keep,
        list(preview.warnings),
        [RefusalView(one.code, one.sentence) for one in (*preview.refusals, *refusals)],
        [*preview.changes])


def _task_ids(preview: Preview) -> list[str]:
    """None of a setting, unless it ends clients of MPS."""
    found = [victim.task_id for victim in preview.victims if victim.task_id is not None]
    return found or ([] if preview.task_id == NO_TASK else [preview.task_id])


def refused_item(task_ids: list[str], node_id: str, host: str, owner: str | None,
                 command: str | None, refusal: Refusal) -> PreviewItemView:
    """The node could not be asked."""
    return PreviewItemView([each for each in task_ids if each != NO_TASK], node_id, host, None,
                           owner,
                           command, None, None, None, None, [], [], [], None, [],
                           [RefusalView(refusal.code, refusal.sentence)])


def main_victim(preview: Preview) -> Victim | None:
    """The one that was pointed at, or the first of its job."""
    return next((victim for victim in preview.victims if victim.task_id == preview.task_id),
                next(iter(preview.victims), None))


def _bystander(one: Bystander, reads: CommandLineVisibility, places: Places) -> BystanderView:
    return BystanderView(one.task_id, one.user, reads.line(one.user, one.command),
                         _held(one.held, places))


def _held(held: Iterable[HeldGpu], places: Places) -> list[HeldGpuView]:
    shown = ((each, places.get(each.gpu_uuid, (None, None))) for each in held)
    return [HeldGpuView(each.gpu_uuid, index, each.mem_used_bytes, place)
            for each, (index, place) in shown]


def _summed(held: Iterable[HeldGpu]) -> list[HeldGpu]:
    """One per Gpu."""
    parts: dict[str, list[float | None]] = {}
    for each in held:
        parts.setdefault(each.gpu_uuid, []).append(each.mem_used_bytes)
    return [HeldGpu(uuid, _total(amounts)) for uuid, amounts in parts.items()]


def _total(parts: list[float | None]) -> float | None:
    """None where any part is not known: a sum of the rest would be a wrong number."""
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None


def mem_of(preview: Preview) -> float | None:
    return _total([each.mem_used_bytes for victim in preview.victims for each in victim.held])


def command_view(record: CommandRecord, reads: CommandLineVisibility) -> CommandView:
    refusal, found = record.refusal, record.verified
    return CommandView(
        record.id, record.action, record.task_id, list(record.task_ids), record.job_id,
        record.node_id, record.host, record.owner, reads.line(record.owner, record.command),
        record.mem_used_bytes, record.state, record.step,
        None if refusal is None else RefusalView(refusal.code, refusal.sentence),
        None if found is None else VerificationView(
            found.exited, found.memory_returned, found.bystanders_alive, found.mem_before_bytes,
            found.mem_after_bytes, list(found.vanished), list(found.survivors),
            found.applied, found.in_force),
        sentence(record),
        RequesterView(record.asker.kind, record.asker.name, record.asker.approved_by),
        record.reason, record.requested_at, record.updated_at,
        [CommandTransitionView(one.state, one.at, one.step) for one in record.history])

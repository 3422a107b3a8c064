"""Answers of the REST interface about actions: made by the hub, read by the terminal and the
notebook.

A hub sends every field. A field with a default here is missing from the answer of an older hub; one
without a default is required: without it the answer is an error, so that nobody confirms half of
what there is. A field that this version does not know is ignored.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from msgspec import UNSET, Struct
from msgspec.structs import asdict

from gpudeck.contract.action_table import ShownAction
from gpudeck.contract.actions import (
    ActionVerification,
    CommandState,
    HeldGpu,
    Preview,
    Victim,
    total,
)
from gpudeck.contract.limits import SettingChange

PlanState = Literal["waiting", "approved", "withdrawn", "expired"]


class RefusalView(Struct, frozen=True):
    code: str
    sentence: str


class ProcessView(Struct, frozen=True):
    pid: int
    user: str | None
    command: str | None
    task_id: str | None
    start_ticks: int = 0  # with pid and boot, what is never reused; 0: not known


class GpuUseView(Struct, frozen=True):
    uuid: str
    index: int | None
    mem_used_bytes: float | None
    place: str | None = None  # "3"; of a MIG instance "3/9"


class BystanderView(Struct, frozen=True):
    task_id: str
    user: str | None
    command: str | None
    gpus: tuple[GpuUseView, ...] = ()

    @property
    def uuids(self) -> list[str]:
        return sorted(gpu.uuid for gpu in self.gpus)


class KeepView(Struct, frozen=True):
    """The owner's wish that the task be left alone until then."""

    until: float
    because: str
    by: str = ""


class PreviewItemView(Struct, frozen=True):
    """A job, whose tasks stand or fall together, as its node sees it now."""

    task_ids: tuple[str, ...]
    node: str
    host: str
    job_id: str | None
    owner: str | None
    command: str | None
    age_s: float | None
    kind: str | None
    manager: str | None
    mem_used_bytes: float | None
    gpus: tuple[GpuUseView, ...]
    processes: tuple[ProcessView, ...]
    bystanders: tuple[BystanderView, ...]
    keep: KeepView | None
    warnings: tuple[str, ...]
    refusals: tuple[RefusalView, ...]
    changes: tuple[SettingChange, ...] = ()  # of a setting of MPS or of a GPU


class ActionRequirementsView(Struct, frozen=True):
    fresh: bool = False
    second_person: bool = False
    maintenance: bool = False  # must be confirmed: `despite_maintenance`


class PreviewView(Struct, frozen=True):
    """`refused`: none of the items would be done."""

    id: str
    action: ShownAction
    params: dict[str, Any]
    expires_at: float
    items: tuple[PreviewItemView, ...]
    needs: ActionRequirementsView = ActionRequirementsView()
    refused: bool = False

    @property
    def possible(self) -> tuple[PreviewItemView, ...]:
        return tuple(item for item in self.items if not item.refusals)


class RequesterView(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    approved_by: str | None = None


class VerificationView(Struct, frozen=True):
    exited: bool | None = None
    memory_returned: bool | None = None
    bystanders_alive: bool | None = None
    mem_before_bytes: float | None = None
    mem_after_bytes: float | None = None
    vanished: tuple[str, ...] = ()
    survivors: tuple[int, ...] = ()
    applied: bool | None = None  # of a setting: accepted without an error
    in_force: bool | None = None  # of a setting: read back as wanted
    checkpoint_at: float | None = None  # end of the checkpoint that was waited for


def verification_view(verified: ActionVerification | None) -> VerificationView | None:
    """Return what was observed. What a node leaves out is None."""
    if verified is None:
        return None
    fields: dict[str, Any] = {name: None if value is UNSET else value
                              for name, value in asdict(verified).items()}
    return VerificationView(**fields)


class CommandTransitionView(Struct, frozen=True):
    state: str
    at: float
    step: str


class CommandView(Struct, frozen=True):
    id: str
    action: str
    node: str
    host: str
    state: CommandState
    sentence: str
    task_id: str | None = None
    job_id: str | None = None
    owner: str | None = None
    command: str | None = None
    step: str = ""
    refusal: RefusalView | None = None
    verified: VerificationView | None = None
    reason: str = ""
    updated_at: float = 0.0
    task_ids: tuple[str, ...] = ()
    mem_used_bytes: float | None = None
    by: RequesterView = RequesterView()
    requested_at: float = 0.0
    history: tuple[CommandTransitionView, ...] = ()


class ActionPlanView(Struct, frozen=True):
    """An order that waits for a second person's approval."""

    id: str
    state: PlanState
    ends_at: float
    items: tuple[PreviewItemView, ...] = ()
    action: str = ""
    params: dict[str, Any] = {}
    by: RequesterView = RequesterView()
    reason: str = ""
    asked_at: float = 0.0


class OrderResultView(Struct, frozen=True):
    """`plan`: nothing was ordered yet; another person has to approve it."""

    items: tuple[CommandView, ...]
    plan: ActionPlanView | None = None


# -- from what a node has shown


GpuNames = Mapping[str, tuple[int | None, str | None]]  # by UUID: index and place
# From user and command: as much of the command as this reader may see; None: nothing.
CommandReader = Callable[[str | None, str | None], str | None]


def preview_item(preview: Preview, host: str, task_ids: tuple[str, ...], main: Victim | None,
                 held_gpus: Iterable[HeldGpu], gpu_names: GpuNames, read: CommandReader
                 ) -> PreviewItemView:
    """Build the view of a preview. `main`: its command stands for all; `held_gpus`: of all
    victims."""
    uses = gpu_uses(held_gpus, gpu_names)
    return PreviewItemView(
        task_ids, preview.node_id, host, preview.job_id, preview.owner,
        None if main is None else read(main.user, main.command), preview.age_s, preview.kind,
        preview.manager, total(use.mem_used_bytes for use in uses), uses,
        tuple(ProcessView(victim.process.pid, victim.user, read(victim.user, victim.command),
                          victim.task_id, victim.process.start_ticks)
              for victim in preview.victims),
        tuple(BystanderView(other.task_id, other.user, read(other.user, other.command),
                            gpu_uses(other.held, gpu_names)) for other in preview.bystanders),
        None, preview.warnings,
        tuple(RefusalView(refusal.code, refusal.sentence) for refusal in preview.refusals),
        preview.changes)


def gpu_uses(held_gpus: Iterable[HeldGpu], gpu_names: GpuNames) -> tuple[GpuUseView, ...]:
    named_gpus = ((gpu, gpu_names.get(gpu.gpu_uuid, (None, None))) for gpu in held_gpus)
    return tuple(GpuUseView(gpu.gpu_uuid, index, gpu.mem_used_bytes, place)
                 for gpu, (index, place) in named_gpus)

"""What the REST interface answers about acts, as its callers read it: the terminal, the notebook.

A field that this version does not know is passed over; one that it needs and that is missing is
an error, so that nobody confirms half of what there is.
"""

from typing import Any

from msgspec import Struct

from gpudeck.actions import CommandState, ShownAction
from gpudeck.limits import SettingChange


class RefusalView(Struct, frozen=True):
    code: str
    sentence: str


class ProcessView(Struct, frozen=True):
    pid: int
    user: str | None
    command: str | None
    task_id: str | None
    start_ticks: int | None = None


class GpuUseView(Struct, frozen=True):
    uuid: str
    index: int | None
    mem_used_bytes: float | None


class BystanderView(Struct, frozen=True):
    task_id: str
    user: str | None
    command: str | None
    gpus: tuple[str | GpuUseView, ...] = ()

    @property
    def uuids(self) -> list[str]:
        return sorted(gpu if isinstance(gpu, str) else gpu.uuid for gpu in self.gpus)


class KeepView(Struct, frozen=True):
    until: float
    because: str
    by: str | None = None


class PreviewItemView(Struct, frozen=True):
    """One job: what stands or falls together."""

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
    changes: tuple[SettingChange, ...] = ()


class ActionRequirementsView(Struct, frozen=True):
    fresh: bool = False
    second_person: bool = False
    maintenance: bool = False


class PreviewView(Struct, frozen=True):
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


class VerificationView(Struct, frozen=True):
    exited: bool | None = None
    memory_returned: bool | None = None
    bystanders_alive: bool | None = None
    mem_before_bytes: float | None = None
    mem_after_bytes: float | None = None
    vanished: tuple[str, ...] = ()
    survivors: tuple[int, ...] = ()
    applied: bool | None = None
    in_force: bool | None = None


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
    step: str | None = None
    refusal: RefusalView | None = None
    verified: VerificationView | None = None
    reason: str = ""
    updated_at: float | None = None


class PendingApprovalView(Struct, frozen=True):
    """What waits for a second person."""

    id: str
    state: str
    ends_at: float
    items: tuple[PreviewItemView, ...] = ()


class OrderResultView(Struct, frozen=True):
    items: tuple[CommandView, ...]
    plan: PendingApprovalView | None = None

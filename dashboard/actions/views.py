"""Actions as people and programs see them: previews, commands, plans, holds, and present limits.
Pure."""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct, UnsetType, convert
from msgspec.structs import replace

from gpudeck.contract.action_table import ShownAction
from gpudeck.contract.action_views import (
    ActionPlanView,
    CommandTransitionView,
    CommandView,
    GpuNames,
    KeepView,
    PreviewItemView,
    RefusalView,
    RequesterView,
    preview_item,
    verification_view,
)
from gpudeck.contract.actions import NO_TASK, ActionParams, HeldGpu, Preview, Refusal, Victim, total
from gpudeck.contract.limits import (
    GroupMemoryLimit,
    LimitsNow,
    ManagedComputeMode,
    ManagedMigLayout,
    MpsClient,
    MpsDaemon,
    MpsFinding,
    MpsServer,
    TimedLimit,
)
from gpudeck.contract.repairs import (
    ASKED_FOR,
    LIFE,
    WHOLE_NODE,
    WORDS,
    GpuRepair,
    RepairState,
    overdue,
)
from gpudeck.words.commands import sentence

from ..fleet.fleet import Fleet, Node
from ..fleet.visibility import CommandLineVisibility, VisibleFleet
from .lifecycle import CommandRecord
from .preview_cache import PreviewTarget

MAX_TARGETS = 512


class NewPreview(Struct, forbid_unknown_fields=True):
    action: ShownAction
    targets: Annotated[list[str], Meta(min_length=1, max_length=MAX_TARGETS)]
    params: ActionParams = ActionParams()
    plan: bool = False  # more than 10 jobs: for programs that first show their plan to somebody


class NewCommands(Struct, forbid_unknown_fields=True):
    preview: str
    reason: Annotated[str, Meta(max_length=1_024)]
    despite_maintenance: bool = False


class CommandList(Struct):
    items: list[CommandView]
    next: str | None


class ActionPlanList(Struct):
    items: list[ActionPlanView]


NodeId = Annotated[str, Meta(min_length=1, max_length=128)]
Line = Annotated[str, Meta(max_length=400)]


class NewHold(Struct, forbid_unknown_fields=True):
    """`node` null: the whole fleet, which must be stated explicitly."""

    node: NodeId | None
    reason: Line = ""


class HoldView(Struct):
    by: str
    reason: str
    since: float


class NodeHoldView(Struct):
    """`holds`: those in force as the node reports them. `wanted`: this hub wants one."""

    node: str
    host: str | None
    holds: list[str]
    wanted: bool
    by: str | None
    reason: str | None
    since: float | None


class HoldStateView(Struct):
    fleet: HoldView | None
    nodes: list[NodeHoldView]


class NewKeep(Struct, forbid_unknown_fields=True):
    until: float
    because: Line = ""


class NodeMpsView(Struct):
    """`trouble`: why nothing of MPS can be set there. `findings`: those of its doctor."""

    node: str
    host: str
    taken_at: float
    trouble: str
    daemons: list[MpsDaemon]
    findings: list[MpsFinding]


class MpsList(Struct):
    items: list[NodeMpsView]


class NodeLimitsView(Struct):
    node: str
    host: str
    taken_at: float
    trouble: str
    leases: list[TimedLimit]
    modes: list[ManagedComputeMode]
    layouts: list[ManagedMigLayout]
    memory: list[GroupMemoryLimit]
    unread: str = ""


class LimitsList(Struct):
    items: list[NodeLimitsView]


class RepairView(Struct):
    """`gpu` null: the whole node. `until`: end of the time that a drain was given."""

    node: str
    host: str
    gpu: str | None
    index: int | None
    state: RepairState
    says: str  # the state, for people
    by: str
    reason: str
    began_at: float
    since: float
    until: float | None
    is_overdue: bool
    seen: str
    may: list[str]  # what can be requested next


class RepairList(Struct):
    items: list[RepairView]


# -- views of actions


def item(preview: Preview, host: str, reads: CommandLineVisibility, gpu_names: GpuNames,
         keep: KeepView | None, warnings: Iterable[str], refusals: Iterable[Refusal]
         ) -> PreviewItemView:
    by_gpu = _sum_by_gpu(held_gpu for victim in preview.victims for held_gpu in victim.held)
    base = preview_item(preview, host, shown_task_ids(preview), main_victim(preview), by_gpu,
                        gpu_names, reads.line)
    return replace(base, keep=keep, warnings=(*base.warnings, *warnings), refusals=(
        *base.refusals, *(RefusalView(one.code, one.sentence) for one in refusals)))


def shown_task_ids(preview: Preview) -> tuple[str, ...]:
    """Return the tasks of a preview; none for a setting, unless it ends clients of MPS."""
    task_ids = tuple(victim.task_id for victim in preview.victims if victim.task_id is not None)
    return task_ids or (() if preview.task_id == NO_TASK else (preview.task_id,))


def refused_item(target: PreviewTarget, refusal: Refusal, reads: CommandLineVisibility,
                 keep: KeepView | None, warnings: Iterable[str]) -> PreviewItemView:
    """Return the item of a job whose node could not be asked."""
    return PreviewItemView(
        target.real_tasks, target.node_id, target.host, None, target.owner,
        reads.line(target.owner, target.command), None, None, None, None, (), (), (), keep,
        tuple(warnings), (RefusalView(refusal.code, refusal.sentence),))


def main_victim(preview: Preview) -> Victim | None:
    """Return the victim that was selected, or the first one of its job."""
    return next((victim for victim in preview.victims if victim.task_id == preview.task_id),
                next(iter(preview.victims), None))


def _sum_by_gpu(gpus: Iterable[HeldGpu]) -> list[HeldGpu]:
    """Return the sum for each GPU."""
    parts: dict[str, list[float | None]] = {}
    for part in gpus:
        parts.setdefault(part.gpu_uuid, []).append(part.mem_used_bytes)
    return [HeldGpu(uuid, total(amounts)) for uuid, amounts in parts.items()]


def mem_of(preview: Preview) -> float | None:
    return total(held_gpu.mem_used_bytes for victim in preview.victims for held_gpu in victim.held)


def command_view(record: CommandRecord, reads: CommandLineVisibility) -> CommandView:
    return CommandView(
        record.id, record.action, record.node_id, record.host, record.state, sentence(record),
        task_id=record.task_id, job_id=record.job_id, owner=record.owner,
        command=reads.line(record.owner, record.command), step=record.step,
        refusal=convert(record.refusal, RefusalView | None, from_attributes=True),
        verified=verification_view(record.verified),
        reason=record.reason, updated_at=record.updated_at, task_ids=record.task_ids,
        mem_used_bytes=record.mem_used_bytes,
        by=convert(record.asker, RequesterView, from_attributes=True),
        requested_at=record.requested_at,
        history=convert(record.history, tuple[CommandTransitionView, ...], from_attributes=True))


# -- MPS and limits of GPUs, as nodes report them


def mps_list(fleet: Fleet, visible: VisibleFleet, node_id: str | None) -> MpsList:
    return MpsList([_mps(node, limits, visible.reads)
                    for node, limits in _nodes_with_limits(fleet, visible, node_id)])


def limits_list(fleet: Fleet, visible: VisibleFleet, node_id: str | None) -> LimitsList:
    return LimitsList([
        NodeLimitsView(node.hello.node_id, node.hello.host, limits.taken_at, limits.limits_trouble,
                       list(limits.leases), list(limits.modes), list(limits.layouts),
                       [] if isinstance(limits.memory, UnsetType) else list(limits.memory),
                       limits.unread)
        for node, limits in _nodes_with_limits(fleet, visible, node_id)])


def repair_list(fleet: Fleet, visible: VisibleFleet, node_id: str | None, now: float
                ) -> RepairList:
    return RepairList([
        _repair(fleet, node, repair, now) for node in visible.nodes(fleet, node_id)
        if node.repairs is not None
        for repair in node.repairs.repairs])


def _repair(fleet: Fleet, node: Node, repair: GpuRepair, now: float) -> RepairView:
    is_node = repair.gpu_uuid == WHOLE_NODE
    slot = None if is_node else fleet.slot_on(node.hello.node_id, repair.gpu_uuid)
    return RepairView(
        node.hello.node_id, node.hello.host, None if is_node else repair.gpu_uuid,
        None if slot is None else int(fleet.index[slot]), repair.state, WORDS[repair.state],
        repair.by, repair.reason, repair.began_at, repair.since, repair.until,
        overdue(repair, now), repair.words,
        [event for event in LIFE[repair.state] if event in ASKED_FOR])


def _nodes_with_limits(fleet: Fleet, visible: VisibleFleet, node_id: str | None
                       ) -> list[tuple[Node, LimitsNow]]:
    return [(node, node.limits) for node in visible.nodes(fleet, node_id)
            if node.limits is not None]


def _mps(node: Node, limits: LimitsNow, reads: CommandLineVisibility) -> NodeMpsView:
    return NodeMpsView(node.hello.node_id, node.hello.host, limits.taken_at, limits.mps_trouble,
                       [replace(daemon, servers=tuple(_server(server, node, reads)
                                                      for server in daemon.servers))
                        for daemon in limits.daemons], list(limits.findings))


def _server(server: MpsServer, node: Node, reads: CommandLineVisibility) -> MpsServer:
    return replace(server,
                   clients=tuple(_client(client, node, reads) for client in server.clients))


def _client(client: MpsClient, node: Node, reads: CommandLineVisibility) -> MpsClient:
    """Return a client with the user and command of its task; one that its node does not list as a
    client cannot be disconnected."""
    task = None if client.task_id is None else node.tasks.get(client.task_id)
    is_listed = task is not None and task.kind == "mps_client"
    user = client.user if task is None else task.user or client.user
    command = client.command if task is None else task.command or client.command
    return replace(client, user=user, command=reads.line(user, command),
                   task_id=client.task_id if is_listed else None)

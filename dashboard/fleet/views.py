"""Views: exactly what a page or a program is shown, from state: live (docs/internals/live.md),
then the API. Pure; encodes nothing, formats nothing."""

from collections.abc import Collection, Mapping
from itertools import chain
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from gpudeck.contract.action_table import OPTIONAL, TaskAction
from gpudeck.contract.action_views import KeepView
from gpudeck.contract.suspensions import suspend_refusal
from gpudeck.contract.wire import Task
from gpudeck.measures.availability import Reason
from gpudeck.measures.metrics import HARMFUL_THROTTLE, Absence
from gpudeck.network.keys import spaced

from .available_gpus import available, why_not
from .colour_scales import exact, levels
from .filters import STATES, Filter, Mask
from .fleet import Fleet, GpuStatus, Node, out_of_range
from .gpu_table import AVAILABLE, MAX_OWNERS, NO_TASK, SPLIT, FleetMetricColumn
from .host_views import CheckpointsView, HostLoadView, HostUseView, ServingView
from .members import EnrolledNode, TakeoversView
from .metric_table import MetricTable
from .mig import NO_PARENT, once
from .node_health import NodeHealthView, health, reading_age_s, successor
from .node_parts import (
    AgentCostView,
    GpuFactsView,
    GpuLinkView,
    NodeRefusalView,
    driver_words,
)
from .owner_views import OwnerView, owner_view
from .service_states import out_of_service
from .site_views import gpu_link, node_link, sites_now, sites_seen
from .sites import site_of
from .state_machine import FleetStateMachine
from .visibility import CommandLineVisibility, VisibleFleet
from .wasted_gpus import wasted_now, wasted_s

MAX_EXACT = 1_024
HOT_C = 85.0
TOTALLED = ("util_pct", "power_w", "mem_used_bytes", "throttle_bits")


def layout(fleet: Fleet, visible: VisibleFleet, slot: int = 0, node: int = 0) -> dict[str, Any]:
    """Return the layout of what is seen, from this slot and this node on."""
    slots = visible.slots
    model, models = _renumbered(fleet.model_at[slots], fleet.models, visible)
    places = np.array([visible.place_of.get(node_id, -1) for node_id in fleet.node_ids], np.int64)
    nodes = [[at, node_id, fleet.all_nodes[node_id].hello.host,
              *(() if (site := site_of(fleet, node_id)) is None else (site,))]
             for at, node_id in enumerate(visible.node_ids) if at >= node]
    new = slots[slot:]
    return {"epoch": visible.epoch, "from": slot, "nodes": nodes, "models": models,
            "uuid": [fleet.uuids[at] for at in new.tolist()],
            "node": places[fleet.node_at[new]].tolist() if len(new) else [],
            "index": fleet.index[new].tolist(), "model": model[slot:].tolist(),
            "instances": _instances(fleet, visible, slot)}


def _instances(fleet: Fleet, visible: VisibleFleet, slot: int) -> list[list[Any]]:
    """Return of each MIG instance its slot, that of its board, its place and its profile."""
    parents = fleet.parent[visible.slots]
    at = np.flatnonzero(parents != NO_PARENT)
    boards = np.searchsorted(visible.slots, parents[at])
    return [[own, board, fleet.facts[visible.slots[own]].place,
             fleet.facts[visible.slots[own]].mig_profile]
            for own, board in zip(at.tolist(), boards.tolist(), strict=True) if own >= slot]


def _renumbered(numbers: npt.NDArray[Any], names: list[str], visible: VisibleFleet
                ) -> tuple[npt.NDArray[Any], list[str]]:
    """Renumber by first appearance within what is seen, so that names outside of it are not
    revealed and the numbers stay as slots are appended."""
    if visible.is_whole:
        return numbers, names
    new_number: dict[int, int] = {}
    renumbered = [new_number.setdefault(number, len(new_number)) for number in numbers.tolist()]
    return np.array(renumbered, numbers.dtype), [names[number] for number in new_number]


def cells(fleet: Fleet, visible: VisibleFleet, key: str, picked: Filter | None, now: float,
          mono: float) -> dict[str, Any]:
    size, column, show = len(visible), fleet.column(key, mono), fleet.statuses(mono)
    mask = None if picked is None else picked.matches(fleet, mono, visible.reads)[visible.slots]
    return {"epoch": visible.epoch, "metric": key, "at": now, "n": size,
            "cells": levels(column, show)[visible.slots].tobytes(),
            "mask": None if mask is None else _packed(mask),
            "matched": size if mask is None else int(mask.sum()),
            "exact": None if size > MAX_EXACT else exact(column, show)[visible.slots].tobytes()}


def owners(fleet: Fleet, visible: VisibleFleet) -> dict[str, Any]:
    """Return owners; SPLIT on a split board without tasks, as they run on its instances. Only
    names of those who are on a visible GPU: not all that was ever said is sent again and again."""
    owner = np.where(fleet.is_split() & (fleet.owner[: len(fleet)] == NO_TASK), np.uint16(SPLIT),
                     fleet.owner[: len(fleet)])[visible.slots]
    is_one = owner < MAX_OWNERS
    numbers, owner[is_one] = np.unique(owner[is_one], return_inverse=True)
    names = [fleet.owners[number] for number in numbers.tolist()]
    return {"epoch": visible.epoch, "names": names, "owner": owner.astype("<u2").tobytes(),
            "paused": _packed(fleet.is_paused[visible.slots])}


# Backends whose numbers no board measured just now.
INVENTED = frozenset(("simulated", "recorded"))


def totals(fleet: Fleet, visible: VisibleFleet, now: float, mono: float) -> dict[str, Any]:
    size = len(fleet)
    show = np.full(size, GpuStatus.RETIRED, np.uint8)
    show[visible.slots] = fleet.statuses(mono)[visible.slots]
    # A board that is split is not one to give out: its instances are counted in its place.
    unit = np.where(fleet.is_split(), GpuStatus.RETIRED, show)
    is_free = available(fleet, show, mono)
    nodes = [node for node in visible.nodes(fleet) if not node.is_dismissed]
    present = [node for node in nodes if not node.is_imported]
    states = [node.state for node in present]
    return {
        "at": now,
        "nodes": {state: states.count(state) for state in ("live", "suspect", "silent")},
        "gpus": {"total": int((unit != GpuStatus.RETIRED).sum()),
                 **{word: int((unit == status).sum()) for word, status in STATES.items()},
                 "free": int(is_free.sum())},
        "healthy": sum(health(fleet, node, mono).word == "healthy" for node in present),
        "simulated": sum(node.hello.backend in INVENTED for node in nodes),
        "epoch": visible.epoch,
        "free": _packed(is_free[visible.slots]),
        "service": out_of_service(fleet, visible),
        "memory": levels(fleet.column("mem_used_bytes", mono), show)[visible.slots].tobytes(),
        "wasted": wasted_now(fleet, visible, now, mono),
        "tasks": sum(len(node.tasks) for node in nodes if node.state != "silent") + sum(
            site.tasks for site in sites_seen(fleet, visible) if site.state == "live"),
        **sites_now(fleet, visible, unit),
        **sums({key: fleet.column(key, mono) for key in (*TOTALLED, "temp_c")},
               show == GpuStatus.OK, fleet.parent[:size], fleet.shares_memory[:size]),
    }


def _packed(mask: Mask) -> bytes:
    return np.packbits(mask, bitorder="little").tobytes()


def sums(columns: Mapping[str, FleetMetricColumn], among: Mask, parent: npt.NDArray[np.int32],
         shares_memory: Mask) -> dict[str, Any]:
    """Sum over the slots `among` that report it; None where none does."""
    def there(key: str) -> npt.NDArray[np.float64]:
        values: npt.NDArray[np.float64] = columns[key].values
        return values.compress(among & (columns[key].absent == Absence.PRESENT))

    util, throttle, mem = there("util_pct"), there("throttle_bits"), columns["mem_used_bytes"]
    is_known = once(parent, among & (mem.absent == Absence.PRESENT) & ~np.isnan(mem.full),
                    shares_memory)
    fields = {"util_mean_pct": float(util.mean()) if len(util) else None,
              "power_w": _sum(there("power_w")), "mem_used_bytes": _sum(mem.values[is_known]),
              "mem_total_bytes": _sum(mem.full[is_known])}
    if "temp_c" in columns:
        fields["hot"] = _count(there("temp_c") >= HOT_C)
    return fields | {"throttled": _count((throttle.astype(np.int64) & HARMFUL_THROTTLE) != 0)}


def _sum(values: npt.NDArray[np.float64]) -> float | None:
    return float(values.sum()) if len(values) else None


def _count(hits: Mask) -> int | None:
    return int(hits.sum()) if len(hits) else None


GpuStateWord = Literal["ok", "stale", "lost", "error"]
AbsenceWord = Literal["unsupported", "denied", "stale", "lost", "unknown"]


class ReaderView(msgspec.Struct):
    state: str
    age_s: float | None
    detail: str


class FramesView(msgspec.Struct):
    stream: str
    first_seq: int | None
    last_seq: int | None
    acked_seq: int
    applied: int
    duplicates: int
    missing: int
    late: int
    future: int
    unreadable: int
    out_of_range: int


class NodeView(msgspec.Struct):
    id: str
    host: str
    fingerprint: str  # of its key, as the agent shows it
    group: str
    access: Literal["approved", "waiting", "revoked"]
    enrolled_at: float | None
    takeovers: TakeoversView
    state: Literal["live", "suspect", "silent"]
    last_heard_at: float | None
    reader: ReaderView | None
    backend: str
    driver_version: str | None
    agent_version: str
    boot_id: str
    gpus: int
    clock_offset_s: float | None
    frames: FramesView | None
    holds: list[str] = msgspec.field(default_factory=list)  # who holds all acts there, and why
    platform: str = ""
    cost: AgentCostView | None = None
    pending: int | None = None  # messages that wait at the agent for this hub's receipt
    dropped: int | None = None  # messages that outgrew its outbox, ever
    links: list[GpuLinkView] | None = None  # of one Node, not in lists
    # Types of messages of its agent that this hub does not know: the agent is newer.
    unknown_types: list[str] = msgspec.field(default_factory=list)
    refused: NodeRefusalView | None = None  # null: it may come
    imported: bool = False  # a recording of a machine: history without a present
    site: str | None = None  # where this hub views others: whose it is
    link: str | None = None  # its page there
    host_load: HostLoadView | None = None  # of one Node, not in lists
    cuda_version: str | None = None  # the newest that its driver runs
    health: NodeHealthView | None = None  # null: it is no part of the fleet
    successor: str | None = None  # id of the node that reports the GPUs of this silent one


class WhyNotFreeView(msgspec.Struct):
    """`why`: for people."""

    reason: Reason
    why: str


class GpuView(msgspec.Struct, omit_defaults=True):
    uuid: str
    node: str  # its id, which is never reused; `host` is its name
    host: str
    index: int  # of a MIG instance, that of its board
    place: str  # "3"; of a MIG instance "3/9"
    name: str
    state: GpuStateWord
    sampled_at: float | None
    age_s: float | None
    values: dict[str, float]
    missing: dict[str, AbsenceWord]
    facts: GpuFactsView
    tasks: list[str]
    is_free: bool  # it is available: docs/filters.md
    last_values: dict[str, float] | None = None
    slow_sampled_at: float | None = None  # of what is told every 15 to 60 s; null: never yet
    slow_age_s: float | None = None
    site: str | None = None  # where this hub views others: whose it is
    link: str | None = None  # its page there
    wasted_s: float | None = None  # for so long under 5 % busy, though tasks hold memory
    why_not_free: WhyNotFreeView | None = None  # null: it is free


class TaskGpuUseView(msgspec.Struct):
    uuid: str
    mem_used_bytes: float | None
    sm_pct: float | None
    place: str | None = None  # on its node, as in GpuView; null: another site's hub does not say


TaskState = Literal["running", "paused", "uninterruptible", "zombie", "suspended"]


class TaskView(msgspec.Struct):
    id: str
    node: str
    host: str
    pid: int
    started_at: float | None
    user: str | None
    command: str | None
    command_is: Literal["whole", "program"]  # of others' tasks, the program's name may be all
    gpus: list[TaskGpuUseView]
    mem_used_bytes: float | None
    sm_pct: float | None  # average over its GPUs
    state: TaskState | None
    manager: str | None
    kind: Literal["compute", "graphics", "mps_server", "mps_client"] | None
    job_id: str | None  # tasks with the same one stand or fall together
    owner: OwnerView = OwnerView()
    keep: KeepView | None = None
    idle_s: float | None = None  # for so long all its GPUs were under 5 % busy; null: one is not
    on_host: HostUseView | None = None
    checkpoints: CheckpointsView | None = None  # null: no rhythm of them is known
    serving: ServingView | None = None  # of a job that serves models, one task has it
    # Actions that are off elsewhere, and that the ceiling of its node permits.
    permits: list[TaskAction] = []
    # Why one of them cannot be done to it, by the action: its GPUs, or its kind, speak against it.
    refuses: dict[TaskAction, str] = {}


class NodeList(msgspec.Struct):
    items: list[NodeView]
    next: str | None


class GpuList(msgspec.Struct):
    items: list[GpuView]
    next: str | None


def node_view(machine: FleetStateMachine, node_id: str, member: EnrolledNode | None,
              mono: float) -> NodeView:
    node = machine.fleet.nodes.get(node_id)
    if node is None and (viewed := machine.fleet.all_nodes.get(node_id)) is not None:
        return _viewed(machine.fleet, viewed, mono)
    if node is None:
        assert member is not None, "it is known as one or the other"
        return _outside(member)
    hello, beat = node.hello, node.beat
    return NodeView(
        hello.node_id, hello.host, spaced(node_id), machine.fleet.group_of(node_id),
        member.access if member is not None else "approved" if node.is_imported else "revoked",
        None if member is None else member.enrolled_at,
        machine.takeovers.get(node_id, TakeoversView(0, None)),
        node.state, node.heard_at, _reader(node, mono), hello.backend,
        driver_words(hello.driver_version,
                     () if node.listing is None else node.listing.inventory.gpus),
        hello.agent_version, hello.boot_id,
        0 if node.listing is None else len(node.listing.order), node.clock_offset_s,
        _frames(machine, node), [] if beat is None else [*beat.holds], hello.platform, _cost(node),
        None if beat is None else beat.pending, None if beat is None else beat.dropped,
        unknown_types=[*node.unknown_types], refused=_refusal(node, mono),
        imported=node.is_imported, cuda_version=hello.cuda_version or None,
        site=site_of(machine.fleet, node_id),
        health=None if node.is_imported else health(machine.fleet, node, mono),
        successor=None if (heir := successor(machine.fleet, node)) is None else heir.hello.node_id)


def _viewed(fleet: Fleet, node: Node, mono: float) -> NodeView:
    """Return what the hub of another site says of its node; the rest is on that hub."""
    hello, site = node.hello, node.site
    assert site is not None
    size = len(fleet)
    gpus = int(((fleet.node_at[:size] == node.at) & ~fleet.retired[:size]).sum())
    return NodeView(
        hello.node_id, hello.host, "", fleet.group_of(hello.node_id), "approved", None,
        TakeoversView(0, None), node.state, node.heard_at, None, hello.backend,
        hello.driver_version, hello.agent_version, "", gpus, None, None, site=site.name,
        link=node_link(node), health=health(fleet, node, mono))


def _refusal(node: Node, mono: float) -> NodeRefusalView | None:
    if node.refusal is None or node.refused_s(mono) == 0:
        return None
    return NodeRefusalView(node.refusal.until, node.refusal.why)


def _cost(node: Node) -> AgentCostView | None:
    """Return the agent's cost; nothing is known once it is silent."""
    cost = None if node.beat is None or node.state == "silent" else node.beat.cost
    return msgspec.convert(cost, AgentCostView | None, from_attributes=True)


def links_of(fleet: Fleet, node_id: str) -> list[GpuLinkView]:
    node = fleet.nodes.get(node_id)
    if node is None or node.listing is None:
        return []
    uuids = [fleet.uuids[slot] for slot in node.listing.order]
    return [GpuLinkView(uuids[link.a], uuids[link.b], link.path, link.nvlinks)
            for link in node.listing.inventory.links
            if max(link.a, link.b) < len(uuids)]


def _outside(member: EnrolledNode) -> NodeView:
    """Return the view of a node that was not let in: of what it says, only its name is kept."""
    return NodeView(
        member.node_id, member.host, spaced(member.node_id), member.group, member.access,
        member.enrolled_at, TakeoversView(0, None), "silent", None, None, "", None, "", "", 0, None,
        None)


def _reader(node: Node, mono: float) -> ReaderView | None:
    if node.beat is None:
        return None
    age_s = reading_age_s(node, mono)
    return ReaderView(node.beat.reader, None if age_s is None else round(age_s, 1),
                      node.beat.detail)


def _frames(machine: FleetStateMachine, node: Node) -> FramesView:
    name = node.hello.stream
    stream = machine.streams.of(node.hello.node_id)[name]
    outcomes = {outcome.value: count for outcome, count in node.outcomes.items()}
    return FramesView(
        name, stream.ledger.first, stream.ledger.last, stream.acked, stream.applied,
        stream.ledger.duplicates, stream.ledger.missing, outcomes["late"], outcomes["future"],
        outcomes["unreadable"], out_of_range(machine.fleet, node))


# That its node is silent is the node's state; of the GPU itself it is known only that this is old.
SHOW_WORDS: dict[int, GpuStateWord] = {
    GpuStatus.OK: "ok", GpuStatus.STALE: "stale", GpuStatus.LOST: "lost",
    GpuStatus.ERROR: "error",
    GpuStatus.OFFLINE: "stale"}


def gpu_view(fleet: Fleet, slot: int, show: GpuStatus, reason_code: int, on_it: list[str],
             mono: float, only: Collection[str] | None = None) -> GpuView:
    """`reason_code`: why it is not available. `only`: these metrics; None: all."""
    facts, hello = fleet.facts[slot], fleet.node_of(slot).hello
    is_ok, why = show is GpuStatus.OK, why_not(fleet, slot, reason_code, mono)
    values, missing = _values(fleet, slot, show, mono, only)
    (at, age_s), slow_sampled = (_sampled(table, slot, mono) for table in (fleet, fleet.slow))
    last = {metric.key: round(value, 3) for table in (fleet, fleet.slow)
            for metric, value in zip(table.metrics, table.values[slot].tolist(), strict=True)
            if value == value and (only is None or metric.key in only)}
    old = {key: value for key, value in last.items() if missing.get(key) in ("stale", "lost")}
    return GpuView(
        facts.uuid, hello.node_id, hello.host, facts.index, facts.place, facts.name,
        SHOW_WORDS[show],
        at, age_s, values, missing,
        GpuFactsView(*(getattr(facts, name) for name in GpuFactsView.__struct_fields__)),
        on_it, reason_code == AVAILABLE, (old or None) if is_ok else last, *slow_sampled,
        why_not_free=None if why is None else WhyNotFreeView(*why),
        wasted_s=wasted_s(fleet, slot, show, mono),
        site=site_of(fleet, hello.node_id), link=gpu_link(fleet, slot))


def _sampled(table: MetricTable, slot: int, mono: float) -> tuple[float | None, float | None]:
    """Return when, and how long ago. None: never, or it came from before this hub's start."""
    at, age_s = float(table.sampled_at[slot]), mono - float(table.sampled_mono[slot])
    return (None if np.isnan(at) else at,
            round(max(0.0, age_s), 1) if np.isfinite(age_s) else None)


def _values(fleet: Fleet, slot: int, show: GpuStatus, mono: float, only: Collection[str] | None
            ) -> tuple[dict[str, float], dict[str, AbsenceWord]]:
    """Return each metric once. Slow ones are left out where the agent never reported any."""
    values: dict[str, float] = {}
    missing: dict[str, AbsenceWord] = {}
    tables = (fleet,) if np.isnan(fleet.slow.sampled_at[slot]) else (fleet, fleet.slow)
    for metric, value, code in chain.from_iterable(
            zip(table.metrics, table.values[slot].tolist(),
                table.absent_at(slot, mono).tolist(), strict=True) for table in tables):
        if only is not None and metric.key not in only:
            continue
        absence = _absence(Absence(code), show)
        if absence is Absence.PRESENT:
            values[metric.key] = round(value, 3)
        else:
            missing[metric.key] = absence.word  # type: ignore[assignment]
    return values, missing


def _absence(reported: Absence, show: GpuStatus) -> Absence:
    """Return the absence now: what the board never reports stays so; what it did is not live."""
    if reported in (Absence.UNSUPPORTED, Absence.DENIED):
        return reported
    if show is GpuStatus.LOST:
        return Absence.LOST
    if show in (GpuStatus.STALE, GpuStatus.OFFLINE):
        return Absence.STALE
    if show is GpuStatus.ERROR:
        return Absence.UNKNOWN
    return reported


def tasks_on(node: Node) -> dict[int, list[str]]:
    """Return task ids by slot."""
    by_slot: dict[int, list[str]] = {}
    if node.listing is not None:
        for use in node.uses:
            by_slot.setdefault(node.listing.order[use.gpu], []).append(use.task_id)
    return by_slot


def _suspend_refusal(node: Node, task: Task, on: list[TaskGpuUseView]) -> str:
    of_node = "" if node.limits is None else node.limits.suspend_trouble or ""
    return suspend_refusal([use.uuid for use in on], task.kind) or of_node


def task_view(node: Node, task: Task, on: list[TaskGpuUseView], mem_used_bytes: float | None,
              sm_pct: float | None, state: TaskState | None, reads: CommandLineVisibility
              ) -> TaskView:
    has_whole = reads.of_user(task.user)
    permits = [action for action in OPTIONAL if action in node.permits]
    why = _suspend_refusal(node, task, on) if "suspend" in permits else ""
    return TaskView(
        task.id, node.hello.node_id, node.hello.host, task.pid, task.started_at, task.user,
        reads.line(task.user, task.command), "whole" if has_whole else "program", on,
        mem_used_bytes, sm_pct, state, task.manager, task.kind, task.job_id,
        owner_view(task, has_whole),
        permits=permits, refuses={"suspend": why} if why else {})

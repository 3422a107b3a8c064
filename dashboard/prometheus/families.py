"""The fleet as Prometheus text. Pure.

`snapshot` copies what may change, on the loop and quickly; `pages` makes text of it, which takes
long for a large fleet and may be done in any thread.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from gpudeck.contract.hosts import HostSample, HostTask
from gpudeck.contract.serving import ServingSample
from gpudeck.contract.wire import Beat, GpuFacts, Task, Use
from gpudeck.measures.metrics import Absence
from gpudeck.prometheus import dcgm
from gpudeck.prometheus.dcgm import NAN, ExportedGpus, families, gpu_labels, same_place, task_labels
from gpudeck.prometheus.hosts import host_families, serving_families, task_families
from gpudeck.prometheus.text import Kind, family, labels, unique

from ..fleet.available_gpus import available
from ..fleet.fleet import Fleet, GpuStatus, Node
from ..fleet.mig import NO_PARENT
from ..fleet.node_health import health
from ..fleet.visibility import VisibleFleet

XID_FOR_S = 600.0
NO_GPU = -1

Floats = npt.NDArray[np.float64]
TaskOnGpu = tuple[int, int, Task, Use]  # node, place of its GPU, and who is on it

# Numbers of an agent that is live.
OF_AGENTS: tuple[tuple[str, Kind, str, Callable[[Beat], float | None]], ...] = (
    (*dcgm.OF_AGENTS[0], lambda beat: beat.reading_age_s),
    (*dcgm.OF_AGENTS[1], lambda beat: beat.pending),
    (*dcgm.OF_AGENTS[2], lambda beat: beat.dropped),
    ("gpudeck_agent_reader_up", "gauge", "1: the agent can read its GPUs; 0: it cannot.",
     lambda beat: float(beat.reader == "ok")),
    ("gpudeck_agent_holds", "gauge", "Reasons why actions are stopped on the node.",
     lambda beat: len(beat.holds)),
    ("gpudeck_agent_cpu_ratio", "gauge", "Share of one core used by the agent.",
     lambda beat: None if beat.cost is None or beat.cost.cpu_pct is None
     else beat.cost.cpu_pct / 100),
    ("gpudeck_agent_journal_room_seconds", "gauge",
     "Time that the agent's journal holds, where its hub archives at once.",
     lambda beat: None if beat.copies is UNSET else beat.copies.room_s),
    ("gpudeck_agent_memory_bytes", "gauge", "Memory of agent and reader (PSS).",
     lambda beat: None if beat.cost is None else beat.cost.memory_bytes),
)


@dataclass(frozen=True, slots=True)
class FleetMetricsSnapshot:
    slots: list[int]
    facts: list[GpuFacts]  # of each of `slots`, as all below
    node_at: list[int]  # its place among `nodes`
    show: list[int]
    is_available: list[bool]
    parent: list[int]
    shares_memory: list[bool]
    columns: dict[str, Floats]  # NaN: not there
    mem_total_bytes: Floats
    xid: Floats
    throttled_ns: Floats  # a row each, a column per violation
    nodes: list[Node]  # copies: what they refer to is replaced and never changed
    healths: list[str]  # of each node
    hosts: list[HostSample | None]


def snapshot(fleet: Fleet, visible: VisibleFleet, xids: Mapping[tuple[str, str], float],
             mono: float) -> FleetMetricsSnapshot:
    """Copy what may change. `xids`: the latest of those that had one lately, by node and GPU."""
    size, visible = len(fleet), visible.ours(fleet)  # others export their own
    show = fleet.statuses(mono)
    slots = visible.slots[show[visible.slots] != GpuStatus.RETIRED]
    is_reported = show[slots] == GpuStatus.OK
    place = np.full(size + 1, NO_GPU)
    place[slots] = np.arange(len(slots))
    parent = fleet.parent[slots]
    facts = [fleet.facts[slot] for slot in slots.tolist()]
    at = np.zeros(len(fleet.node_ids), np.intp)
    at[[fleet.nodes[node_id].at for node_id in visible.node_ids]] = np.arange(len(visible.node_ids))
    total = np.array([gpu.mem_total_bytes for gpu in facts], float)  # None becomes NaN
    xid = np.array([xids.get((fleet.node_ids[node], gpu.uuid), NAN) for node, gpu in zip(
        fleet.node_at[slots].tolist(), facts, strict=True)]) if xids else np.full(len(facts), NAN)
    return FleetMetricsSnapshot(
        slots.tolist(), facts, at[fleet.node_at[slots]].tolist(), show[slots].tolist(),
        available(fleet, show, mono)[slots].tolist(),
        np.where(parent == NO_PARENT, NO_GPU, place[parent]).tolist(),
        fleet.shares_memory[slots].tolist(), _columns(fleet, slots, is_reported, mono),
        np.where(is_reported, total, NAN), xid,  # an Xid happened, whatever can be read since
        np.where(is_reported[:, None], fleet.slow.throttled_ns[slots], NAN),
        [copy(node) for node in visible.nodes(fleet)],
        [health(fleet, node, mono).word for node in visible.nodes(fleet)],
        [node.host_now(mono) for node in visible.nodes(fleet)])


def _columns(fleet: Fleet, slots: npt.NDArray[np.intp], is_reported: npt.NDArray[np.bool_],
             mono: float) -> dict[str, Floats]:
    columns: dict[str, Floats] = {}
    for table in (fleet, fleet.slow):
        is_there = (table.absent_at(slots, mono) == Absence.PRESENT) & is_reported[:, None]
        rows = np.where(is_there, table.values[slots], NAN)
        columns |= {metric.key: rows[:, at] for at, metric in enumerate(table.metrics)}
    return columns


def _tasks_of(node: Node) -> Mapping[str, Task] | None:
    """Return the node's tasks; None: it has not reported them."""
    return node.tasks if node.are_tasks_known and node.state != "silent" else None


# -- text


def pages(fleet: FleetMetricsSnapshot, names: frozenset[str] | None = None) -> Iterator[str]:
    """Yield one family after the other. `names`: only these; None: all."""
    tasks = list(_tasks(fleet))
    label_sets = _labels(fleet, tasks)
    keep = unique(label_sets)  # of two nodes that say the same name and GPU the first one stays
    places = {old: new for new, old in enumerate(keep)}
    gpus = ExportedGpus([label_sets[at] for at in keep],
                        [places.get(fleet.parent[at], NO_GPU) for at in keep],
                        [fleet.shares_memory[at] for at in keep],
                        fleet.mem_total_bytes[keep].tolist(), fleet.xid[keep].tolist(),
                        fleet.throttled_ns[keep].T.tolist())
    columns = {key: values[keep] for key, values in fleet.columns.items()}
    yield from families(gpus, columns, names)
    yield from only(_own_families(fleet, gpus.labels, keep, tasks), names)


def only(texts: Iterable[str], names: frozenset[str] | None) -> Iterator[str]:
    """Filter families by name; None: all."""
    return (text for text in texts
            if text and (names is None or text.split(maxsplit=3)[2] in names))


def _tasks(fleet: FleetMetricsSnapshot) -> Iterator[TaskOnGpu]:
    place = {slot: at for at, slot in enumerate(fleet.slots)}
    for number, node in enumerate(fleet.nodes):
        tasks, order = _tasks_of(node), [] if node.listing is None else node.listing.order
        for use in node.uses if tasks is not None else ():
            task = (tasks or {}).get(use.task_id)
            if task is not None and use.gpu < len(order) and order[use.gpu] in place:
                yield number, place[order[use.gpu]], task, use


def _labels(fleet: FleetMetricsSnapshot, tasks: Iterable[TaskOnGpu]) -> list[str]:
    on: dict[int, list[Task]] = {}
    for _, at, task, _ in tasks:
        on.setdefault(at, []).append(task)
    return [
        gpu_labels(facts, fleet.nodes[node].hello.host,
                   facts.driver or fleet.nodes[node].hello.driver_version,
                   fleet.facts[parent] if parent != NO_GPU else None,
                   same_place(on[at]) if at in on else None)
        for at, (facts, node, parent) in enumerate(zip(
            fleet.facts, fleet.node_at, fleet.parent, strict=True))]


def _own_families(fleet: FleetMetricsSnapshot, label_sets: Sequence[str], keep: list[int],
                  tasks: list[TaskOnGpu]) -> Iterator[str]:
    count = Counter(at for _, at, _, _ in tasks)
    is_known = [_tasks_of(fleet.nodes[node]) is not None
                and show not in (GpuStatus.LOST, GpuStatus.ERROR)
                for node, show in zip(fleet.node_at, fleet.show, strict=True)]
    uses = {task_labels(fleet.nodes[node].hello.host, fleet.facts[at], task): use
            for node, at, task, use in tasks}
    yield from dcgm.ours(
        label_sets, [GpuStatus(fleet.show[at]).name.lower() for at in keep],
        [float(count[at]) if is_known[at] else NAN for at in keep], uses)
    yield family("gpudeck_gpu_available", "gauge", "1: nothing uses this GPU, nobody has leased it "
                 "and it is in service.", label_sets,
                 [float(fleet.is_available[at]) for at in keep])
    yield from _owners(fleet, tasks)
    yield from _agents(fleet.nodes, fleet.healths)
    yield from _hosts(fleet)


def _owners(fleet: FleetMetricsSnapshot, tasks: list[TaskOnGpu]) -> Iterator[str]:
    """Yield families by owner. For tasks whose owner is not known, the label is left out."""
    gpus: dict[str | None, set[int]] = {}
    ids: dict[str | None, set[tuple[int, str]]] = {}
    memory: dict[str | None, float] = {}
    for node, at, task, use in tasks:
        gpus.setdefault(task.user, set()).add(at)
        ids.setdefault(task.user, set()).add((node, task.id))
        memory[task.user] = memory.get(task.user, 0.0) + (
            NAN if use.mem_used_bytes is None else use.mem_used_bytes)
    label_sets = [labels({"user": user}) for user in gpus]
    for name, help, values in (
        ("gpudeck_owner_gpus", "GPUs on which this owner has tasks.", map(len, gpus.values())),
        ("gpudeck_owner_tasks", "Tasks of this owner on GPUs.", map(len, ids.values())),
        ("gpudeck_owner_memory_bytes", "GPU memory held by this owner's tasks, if known for "
         "all of them.", memory.values()),
    ):
        yield family(name, "gauge", help, label_sets, map(float, values))


def _agents(all_nodes: list[Node], words: list[str]) -> Iterator[str]:
    there = [(node, word) for node, word in zip(all_nodes, words, strict=True)
             if not node.is_imported]
    nodes, healths = [node for node, _ in there], [word for _, word in there]
    label_sets = [labels({"Hostname": node.hello.host, "node": node.hello.node_id})
                  for node in nodes]
    yield family("gpudeck_agent_up", "gauge", "1: the agent is live; 0: it is not.", label_sets,
                 [float(node.state == "live") for node in nodes])
    yield family("gpudeck_node_health", "gauge", "1; its label says whether the node is healthy, "
                 "or what is wrong.", [f'{label_set},health="{word}"' for label_set, word in zip(
                     label_sets, healths, strict=True)], [1.0] * len(label_sets))
    yield family("gpudeck_agent_info", "gauge", "1; its labels are versions.", [labels({
        "Hostname": node.hello.host, "node": node.hello.node_id,
        "driver_version": node.hello.driver_version, "agent_version": node.hello.agent_version})
        for node in nodes], [1.0] * len(nodes))
    beats = [None if node.state != "live" else node.beat for node in nodes]
    for name, kind, help, value in OF_AGENTS:
        numbers = [None if beat is None else value(beat) for beat in beats]
        yield family(name, kind, help, label_sets,
                     [NAN if number is None else float(number) for number in numbers])
    yield family("gpudeck_agent_clock_offset_seconds", "gauge", "The node's clock minus the hub's.",
                 label_sets, [NAN if node.clock_offset_s is None or node.state != "live"
                              else node.clock_offset_s for node in nodes])


def _hosts(fleet: FleetMetricsSnapshot) -> Iterator[str]:
    there = [(node, sample) for node, sample in zip(fleet.nodes, fleet.hosts, strict=True)
             if sample is not None and node.state == "live"]
    yield from host_families([labels({"Hostname": node.hello.host, "node": node.hello.node_id})
                              for node, _ in there], [sample for _, sample in there])
    uses: dict[str, HostTask] = {}
    servers: dict[str, ServingSample] = {}
    for node, sample in there:
        for use in sample.tasks:
            if use.task_id in node.tasks:
                uses[_task_label(node, use.task_id)] = use
        for server in sample.serving:
            if server.task_id in node.tasks:
                servers[_task_label(node, server.task_id)] = server
    yield from task_families([*uses], [*uses.values()])
    yield from serving_families([*servers], [*servers.values()])


def _task_label(node: Node, task_id: str) -> str:
    return labels({"Hostname": node.hello.host, "node": node.hello.node_id, "task": task_id,
                   "user": node.tasks[task_id].user})

"""The hub's present picture of all nodes and their GPUs."""

import math
from collections.abc import Container
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from gpudeck.contract.hosts import HostSample
from gpudeck.contract.kubernetes import KubernetesNow, PodGpusNow
from gpudeck.contract.limits import LimitsNow
from gpudeck.contract.pool_link import NodeMaintenance, PoolReport
from gpudeck.contract.repairs import RepairsNow, of_gpu, state_of
from gpudeck.contract.slurm import SlurmNow
from gpudeck.contract.wire import (
    GPU_STATES,
    Beat,
    Frame,
    Hello,
    Inventory,
    Task,
    Tasks,
    Use,
    WireError,
)

from ..access.policy import DEFAULT_GROUP
from .frame_table import FrameNumbers
from .gpu_table import AVAILABLE, REASON_CODE, SERVICE_STATES, GpuTable, MarkedUses
from .metric_table import Slots
from .moved_gpus import mark_moved
from .node_clock import NodeClock
from .quarantine import NodeRefusal
from .sampled_tasks import (
    NO_TASKS,
    SampledTasks,
    collective_numbers,
    host_numbers,
    host_pressure_pct,
    lease_numbers,
    server_numbers,
)

STALE_AFTER_S = 5.0
SUSPECT_AFTER_S = 15.0
SILENT_AFTER_S = 60.0
FUTURE_S = 5.0
HOST_STALE_AFTER_S = 20.0
MAX_INVENTORIES = 16
FORGOTTEN_AFTER_S = 3_600.0  # a GPU that left its node: another one may have its slot

NodeState = Literal["live", "suspect", "silent"]

# Of a node that is a recording. No agent can have such an id: theirs are fingerprints of keys.
IMPORTED = "import-"


class GpuStatus(IntEnum):
    """State of a GPU at this moment."""

    OK = 0
    STALE = 1
    LOST = 2
    OFFLINE = 3
    # No longer in its node's inventory, as a MIG instance that was destroyed; or its node is
    # silent, and another one reports it.
    RETIRED = 4
    ERROR = 5  # its driver lists it, and fails at every question about it


# As a frame says it (`gpudeck.contract.wire.GPU_STATES`).
REPORTED = {GpuStatus.LOST: GPU_STATES.index("lost"), GpuStatus.ERROR: GPU_STATES.index("error")}


class FrameOutcome(Enum):
    """Result of a Frame; all but APPLIED are counted and leave the live picture alone."""

    APPLIED = "applied"
    LATE = "late"
    FUTURE = "future"
    UNREADABLE = "unreadable"

    # Each is there once. Enum's own hash, of its name, is Python's work twice for every Frame.
    __hash__ = object.__hash__


@dataclass(slots=True)
class InventorySlots:
    """The slots of one generation of a Node's inventory, in its order."""

    inventory: Inventory
    order: list[int]
    slots: Slots
    rows: npt.NDArray[np.intp] = field(init=False)  # the same, always an array

    def __post_init__(self) -> None:
        self.rows = np.array(self.order, np.intp)


@dataclass(slots=True)
class Site:
    """Another hub that this one views. `state` "away": nothing is known of its GPUs now."""

    name: str
    url: str
    state: Literal["connecting", "live", "away"] = "connecting"
    since: float = 0.0  # UTC: of this state
    why: str = ""
    nodes: "list[Node]" = field(default_factory=list)  # in the site's own order
    slots: "npt.NDArray[np.intp] | None" = None  # ours, in the order of its own
    left_out: int = 0  # GPUs over what one site may fill
    tasks: int = 0


@dataclass(slots=True)
class Node:
    at: int  # its number in the layout
    hello: Hello
    heard_at: float
    heard_mono: float
    steady_mono: float = 0.0  # since when hub, agent and driver have been there together
    joined_mono: float = 0.0  # its newest connection
    connected: bool = True
    is_dismissed: bool = False  # its key was revoked: it is in no count
    state: NodeState = "live"
    beat: Beat | None = None
    beat_mono: float = 0.0
    recovered_mono: float = -math.inf  # from disk, and not heard of since
    limits: LimitsNow | None = None  # None: it has not said
    repairs: RepairsNow | None = None  # None: it has not said
    pool: PoolReport | None = None  # None: it gives out no GPUs
    leased_tasks: SampledTasks = NO_TASKS
    slurm: SlurmNow | None = None  # None: it does not speak for Slurm
    slurm_mono: float = 0.0
    kubernetes: KubernetesNow | None = None  # the same
    kubernetes_mono: float = 0.0
    pod_gpus: PodGpusNow | None = None  # None: it does not ask its kubelet
    pod_gpus_mono: float = 0.0
    clock_offset_s: float | None = None  # its clock minus ours
    clock: NodeClock = field(default_factory=NodeClock)
    refusal: NodeRefusal | None = None  # the newest; it may be over
    site: "Site | None" = None  # of another hub, which is viewed; None: it is ours
    listings: dict[int, InventorySlots] = field(default_factory=dict)
    listing: InventorySlots | None = None  # the one that is shown
    newest: tuple[str, int] = ("", 0)  # stream and seq of the newest applied Frame
    frame: Frame | None = None
    frame_at: float = 0.0  # when that was taken, by our clock
    host: HostSample | None = None  # the newest
    host_mono: float = 0.0
    host_tasks: SampledTasks = NO_TASKS
    servers: SampledTasks = NO_TASKS
    collectives: SampledTasks = NO_TASKS
    host_pressure_pct: float | None = None
    tasks: dict[str, Task] = field(default_factory=dict)
    uses: tuple[Use, ...] = ()
    marked: MarkedUses | None = None
    suspended: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # ids of tasks
    # Task and GPU -> since when it is used, by our clock: no node can make itself older by that.
    used_since: dict[tuple[str, int], float] = field(default_factory=dict)
    are_tasks_known: bool = False
    outcomes: dict[FrameOutcome, int] = field(
        default_factory=lambda: dict.fromkeys(FrameOutcome, 0))
    lies: int = 0  # numbers out of range, of Frames whose numbers are applied
    unknown_types: list[str] = field(default_factory=list)  # of its newest connection's messages

    def take_host(self, sample: HostSample, mono: float) -> None:
        self.host, self.host_mono = sample, mono
        self.host_tasks, self.servers = host_numbers(sample), server_numbers(sample)
        self.collectives = collective_numbers(sample)
        self.host_pressure_pct = host_pressure_pct(sample)

    def note_lies(self, count: int) -> None:
        self.lies += count

    def host_now(self, mono: float) -> HostSample | None:
        """Return the newest host sample; None: an old one is not passed off as live."""
        return self.host if mono - self.host_mono <= HOST_STALE_AFTER_S else None

    @property
    def is_imported(self) -> bool:
        """True for a recording of a machine: a past without a present."""
        return self.hello.node_id.startswith(IMPORTED)

    @property
    def permits(self) -> tuple[str, ...]:
        """Return the actions that its ceiling allows."""
        return (*self.hello.actions, *(self.hello.more_actions or ()))

    def hear(self, now: float, mono: float) -> None:
        self.heard_at = now
        self.heard_mono = mono
        if self.connected:
            self.state = "live"

    def disconnect(self) -> None:
        self.connected = False
        if self.state == "live":
            self.state = "suspect"

    def take_beat(self, beat: Beat, mono: float) -> None:
        if beat.reader != "ok" or (self.beat is not None and self.beat.reader != "ok"):
            self.steady_mono = mono
        self.beat = beat
        self.beat_mono = mono

    def set_clock(self, agent_at: float, asked_mono: float, now: float, mono: float) -> None:
        """Take an answered Probe."""
        self.clock_offset_s = self.clock.measure(agent_at, asked_mono, mono) + mono - now

    def refused_s(self, mono: float) -> float:
        """Return for how many seconds it is still refused, for what it sent; 0: it may come."""
        return 0.0 if self.refusal is None else max(0.0, self.refusal.until_mono - mono)

    def age_s(self, taken_at: float, now: float, mono: float) -> float:
        """Return how long ago that was by our clock. Before the first Probe is answered the agent's
        clock is believed where it makes a sample old, never where it makes it fresh."""
        if self.clock.minus_mono_s is None:
            return max(0.0, now - taken_at)
        return mono - (taken_at - self.clock.minus_mono_s)

    def state_at(self, mono: float) -> NodeState:
        unheard_s = mono - self.heard_mono
        if unheard_s >= SILENT_AFTER_S or self.is_imported:
            return "silent"
        return "live" if self.connected and unheard_s < SUSPECT_AFTER_S else "suspect"


class Fleet(GpuTable):
    """The GPUs of all nodes, and the nodes that report them."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch
        self.cluster = ""  # as our own nodes' site is called beside others
        self.sites: dict[str, Site] = {}
        self.nodes: dict[str, Node] = {}  # ours: what acts, evaluates and records knows these alone
        self.all_nodes: dict[str, Node] = {}  # with those of other sites: what is shown
        self.node_ids: list[str] = []
        # By node, also of one that has not come yet; and until when, monotonic.
        self.maintenance: dict[str, tuple[NodeMaintenance, float]] = {}
        self.disk_error: str | None = None  # why what nodes report is not kept now
        self.groups_version = 0
        self._groups: dict[str, str] = {}  # node id -> group, where it is not DEFAULT_GROUP

    # -- groups of nodes

    def group_of(self, node_id: str) -> str:
        return self._groups.get(node_id, DEFAULT_GROUP)

    def set_group(self, node_id: str, group: str) -> None:
        """Put a node into a group; it may not have come yet."""
        if group != self.group_of(node_id):
            self._groups[node_id] = group
            self.groups_version += 1

    # -- what agents say

    def hello(self, hello: Hello, now: float, mono: float) -> Node:
        node = self.nodes.get(hello.node_id)
        if node is None:
            node = Node(len(self.node_ids), hello, now, mono)
            self.nodes[hello.node_id] = self.all_nodes[hello.node_id] = node
            self.node_ids.append(hello.node_id)
        if hello.boot_id != node.hello.boot_id:
            # Task ids carry the boot id: none of the old ones can still run.
            self._apply_tasks(node, Tasks(True, (), ()), now)
            node.are_tasks_known = False
            node.host, node.host_tasks, node.servers = None, NO_TASKS, NO_TASKS
            node.collectives, node.host_pressure_pct = NO_TASKS, None
        if hello.stream != node.hello.stream:
            node.listings.clear()  # generations are numbered within a stream
        node.hello = hello
        node.connected = True
        self.take_pool(node, None)  # it may give out none any more
        node.slurm = node.kubernetes = node.pod_gpus = None
        node.unknown_types.clear()
        node.steady_mono = node.joined_mono = mono
        node.hear(now, mono)
        if node.is_imported:
            node.connected, node.state = False, "silent"
        return node

    def inventory(self, node: Node, inventory: Inventory) -> None:
        if self.new_names(node.hello.node_id, inventory.gpus):
            self.spare = forgettable(self, node.heard_mono)
            self.forget_models()
        order = [self.slot(node.hello.node_id, node.at, facts) for facts in inventory.gpus]
        if len(set(order)) != len(order):
            raise WireError("an inventory lists the same GPU twice")
        node.listings.pop(inventory.generation, None)
        listing = InventorySlots(inventory, order, _as_slots(order))
        node.listings[inventory.generation] = listing
        while len(node.listings) > MAX_INVENTORIES:
            del node.listings[next(iter(node.listings))]
        if inventory.generation == max(node.listings):
            self._show(node, listing)
        for former in {self.node_ids[self.node_at[slot]] for at in order
                       for slot in self.slots_of_uuid(self.uuids[at])} & self.nodes.keys():
            mark_moved(self, self.nodes[former])

    def _show(self, node: Node, listing: InventorySlots) -> None:
        if listing is node.listing:
            return
        removed = [] if node.listing is None else sorted({*node.listing.order} - {*listing.order})
        node.listing = listing
        self.retired[removed], self.retired_mono[removed] = True, node.heard_mono
        self.show(listing.slots, listing.order, listing.inventory.gpus, node.heard_mono)
        if node.is_imported:
            self.retired[listing.slots] = True
        self.take_pool(node, node.pool)
        self.take_repairs(node, node.repairs)

    def dismiss(self, node_id: str, now: float) -> None:
        """Remove a revoked node from the picture; its slots may be others' in an hour."""
        node = self.nodes.get(node_id)
        if node is None:
            return
        node.is_dismissed = True
        self._apply_tasks(node, Tasks(True, (), ()), now)
        self._show(node, InventorySlots(Inventory(0, ()), [], _as_slots([])))
        node.listings.clear()
        node.frame = node.limits = node.repairs = None
        node.slurm = node.kubernetes = node.pod_gpus = None
        self.take_pool(node, None)

    def take_pool(self, node: Node, report: PoolReport | None) -> None:
        if report is not node.pool:
            node.pool = report
            node.leased_tasks = NO_TASKS if report is None else lease_numbers(report)
        if node.listing is None:
            return
        # An older agent gives its reason for people only.
        reasons = {} if report is None else {gpu.uuid: REASON_CODE.get(
            gpu.reason, REASON_CODE["unknown"]) if gpu.trouble else AVAILABLE
            for gpu in report.gpus}
        leased = () if report is None else {uuid for lease in report.leases for uuid in lease.uuids}
        uuids = [self.uuids[slot] for slot in node.listing.order]
        self.in_pool[node.listing.slots] = [uuid in reasons for uuid in uuids]
        self.pool_reason[node.listing.slots] = [reasons.get(uuid, AVAILABLE) for uuid in uuids]
        self.is_leased[node.listing.slots] = [uuid in leased for uuid in uuids]

    def take_repairs(self, node: Node, repairs: RepairsNow | None) -> None:
        """Take a node's repairs; former ones are believed while it has not said others."""
        node.repairs = repairs
        if node.listing is None or repairs is None:
            return
        boards = [facts.parent_uuid or facts.uuid for facts in node.listing.inventory.gpus]
        self.service[node.listing.slots] = [
            SERVICE_STATES.index(state_of(of_gpu(repairs.repairs, board))) for board in boards]

    def frame(self, node: Node, frame: Frame, now: float, mono: float) -> FrameOutcome:
        outcome = self._frame(node, frame, now, mono)
        node.outcomes[outcome] += 1
        return outcome

    def _frame(self, node: Node, frame: Frame, now: float, mono: float) -> FrameOutcome:
        listing = node.listings.get(frame.generation)
        if listing is None or len(listing.order) != len(frame.states):
            return FrameOutcome.UNREADABLE
        stream, seq = node.newest
        if stream == node.hello.stream and frame.seq <= seq:
            return FrameOutcome.LATE
        age_s = node.age_s(frame.taken_at, now, mono)
        if age_s < -FUTURE_S:
            return FrameOutcome.FUTURE
        node.newest = (node.hello.stream, frame.seq)
        at, at_mono = now - max(age_s, 0.0), mono - max(age_s, 0.0)
        node.frame, node.frame_at = frame, at
        if isinstance(frame.host, HostSample):
            node.take_host(frame.host, at_mono)
        self._show(node, listing)
        self.put_numbers(node.at, FrameNumbers(listing.rows, frame, at, at_mono, node.note_lies))
        if frame.tasks is not None:
            self._apply_tasks(node, frame.tasks, now)
        return FrameOutcome.APPLIED

    def _apply_tasks(self, node: Node, tasks: Tasks, now: float) -> None:
        keys = [(use.task_id, use.gpu) for use in tasks.uses]
        if tasks.snapshot or tasks.began or keys != [*node.used_since]:  # not only their numbers
            node.marked = None
            began = {task.id: task for task in tasks.began}
            described = began if tasks.snapshot else node.tasks | began
            used_ids = {task_id for task_id, _ in keys}
            node.tasks = {task_id: task for task_id, task in described.items()
                          if task_id in used_ids}
            node.used_since = {key: node.used_since.get(key, now) for key in keys}
        node.uses, node.suspended = tasks.uses, tasks.suspended
        node.are_tasks_known = True
        if node.listing is not None:
            node.marked = self.mark_uses(node.listing.order, node.tasks, node.uses, node.marked)

    # -- what time does

    def tick(self, mono: float) -> list[tuple[str, NodeState]]:
        """Return the Nodes whose state changes now."""
        changed: list[tuple[str, NodeState]] = []
        for node_id, node in self.nodes.items():
            state = node.state_at(mono)
            if state != node.state:
                node.state = state
                changed.append((node_id, state))
        for node_id, state in changed:
            if state == "silent":
                mark_moved(self, self.nodes[node_id])
        return changed

    def forgive(self, gap_s: float) -> None:
        """Give back a silence that was ours, as the hub itself stood still."""
        for node in self.nodes.values():
            node.heard_mono += gap_s

    def recovered(self, now: float, mono: float) -> None:
        """Show what came from disk as known once, not as live."""
        for node in self.nodes.values():
            node.connected = False
            node.state = "silent" if node.is_imported else "suspect"
            node.heard_mono = node.recovered_mono = mono
        there = ~np.isnan(self.sampled_at)
        ages_s = np.maximum(now - self.sampled_at[there], STALE_AFTER_S + 1)
        self.sampled_mono[there] = mono - ages_s
        # What changes seldom is shown as the last that was known, until a Frame says it again.
        self.slow.sampled_mono[:] = -np.inf

    # -- what there is to see

    def statuses(self, mono: float) -> npt.NDArray[np.uint8]:
        """Return the GpuStatus of each slot."""
        size = len(self)
        show = np.full(size, GpuStatus.OK, np.uint8)
        show[(mono - self.sampled_mono[:size] > STALE_AFTER_S) | (self.reported[:size] == 1)] = (
            GpuStatus.STALE)
        for status, state in REPORTED.items():
            show[self.reported[:size] == state] = status
        silent = np.array([self.all_nodes[node_id].state == "silent" for node_id in self.node_ids],
                          bool)
        if silent.any():
            is_away = silent[self.node_at[:size]]
            show[is_away] = GpuStatus.OFFLINE
            show[is_away & self.moved[:size]] = GpuStatus.RETIRED
        show[self.retired[:size]] = GpuStatus.RETIRED
        return show

    def find(self, uuid: str, on: Container[str] | None = None) -> int | None:
        """Find a GPU's slot; of a board that moved between nodes, the one that was sampled last;
        among these nodes, where they are given."""
        slots = [slot for slot in self.slots_of_uuid(uuid)
                 if on is None or self.node_ids[self.node_at[slot]] in on]
        return max(slots, key=lambda slot: float(self.sampled_mono[slot]), default=None)

    def host_of(self, node_id: str) -> str | None:
        node = self.all_nodes.get(node_id)
        return None if node is None else node.hello.host

    def node_of(self, slot: int) -> Node:
        return self.all_nodes[self.node_ids[self.node_at[slot]]]

    def snapshot(self, node: Node) -> Frame | None:
        """Return the last Frame, complete in itself: with all tasks and what changes seldom."""
        if node.frame is None:
            return None
        tasks = Tasks(True, tuple(node.tasks.values()), node.uses,
                      node.suspended) if node.are_tasks_known else None
        listing = node.listings.get(node.frame.generation)
        slow = None if listing is None else self.slow.told_last(listing.slots)
        return msgspec.structs.replace(node.frame, tasks=tasks, slow=slow)


def out_of_range(fleet: Fleet, node: Node) -> int:
    """Return how many numbers of a node were out of range, and so became unknown."""
    fleet.settle()
    return node.lies


def forgettable(fleet: Fleet, mono: float) -> list[int]:
    """Return slots of what left long ago, and of which no Frame can tell any more: a stolen key
    invents GPUs for as long as it is not revoked."""
    size = len(fleet)
    old = np.flatnonzero(fleet.retired[:size]
                         & (mono - fleet.retired_mono[:size] > FORGOTTEN_AFTER_S))
    listed = {at: {slot for listing in fleet.all_nodes[fleet.node_ids[at]].listings.values()
                   for slot in listing.order} for at in np.unique(fleet.node_at[old]).tolist()}
    # A site that still lists a GPU which left its node may say something of its slot.
    viewed = {slot for site in fleet.sites.values() if site.slots is not None
              for slot in np.asarray(site.slots).tolist()}
    return [slot for slot in old[::-1].tolist()
            if slot not in viewed and slot not in listed[int(fleet.node_at[slot])]]


def _as_slots(order: list[int]) -> Slots:
    if order and order == list(range(order[0], order[0] + len(order))):
        return slice(order[0], order[0] + len(order))
    return np.array(order, np.intp)

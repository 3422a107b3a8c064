"""The hub's present picture of all nodes and their GPUs."""

from collections.abc import Container
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from gpudeck.limits import LimitsNow
from gpudeck.pool.link import PoolReport
from gpudeck.wire import Beat, Frame, Hello, Inventory, Task, Tasks, Use, WireError

from ..access.policy import DEFAULT_GROUP
from .gpu_table import GIVEN_OUT, GpuTable
from .metric_table import Slots
from .quarantine import NodeRefusal

STALE_AFTER_S = 5.0
SUSPECT_AFTER_S = 15.0
SILENT_AFTER_S = 60.0
FUTURE_S = 5.0
MAX_INVENTORIES = 16

NodeState = Literal["live", "suspect", "silent"]


class GpuStatus(IntEnum):
    """What a GPU is called at this moment."""

    OK = 0
    STALE = 1
    LOST = 2
    OFFLINE = 3
    RETIRED = 4  # no longer in its node's inventory: a MIG instance that was destroyed
    ERROR = 5  # its driver lists it, and fails at every question about it


class FrameOutcome(Enum):
    """What became of a Frame; all but APPLIED are counted and leave the live picture alone."""

    APPLIED = "applied"
    LATE = "late"
    FUTURE = "future"
    UNREADABLE = "unreadable"


@dataclass(slots=True)
class InventorySlots:
    """The slots of one generation of a Node's inventory, in its order."""

    inventory: Inventory
    order: list[int]
    slots: Slots


@dataclass(slots=True)
class Node:
    at: int  # its number in the layout
    hello: Hello
    heard_at: float
    heard_mono: float
    steady_mono: float = 0.0  # since when hub, agent and driver are there together
    joined_mono: float = 0.0  # its newest connection
    connected: bool = True
    state: NodeState = "live"
    beat: Beat | None = None
    beat_mono: float = 0.0
    limits: LimitsNow | None = None  # None: it has not said
    pool: PoolReport | None = None  # None: it gives out no GPUs
    clock_offset_s: float | None = None  # its clock minus ours
    clock_minus_mono_s: float | None = None
    refusal: NodeRefusal | None = None  # the newest; it may be over
    listings: dict[int, InventorySlots] = field(default_factory=dict)
    listing: InventorySlots | None = None  # the one that is shown
    newest: tuple[str, int] = ("", 0)  # stream and seq of the newest applied Frame
    frame: Frame | None = None
    frame_at: float = 0.0  # when that was taken, by our clock
    tasks: dict[str, Task] = field(default_factory=dict)
    uses: tuple[Use, ...] = ()
    # Task and GPU -> since when it is used, by our clock: no node can make itself older by that.
    used_since: dict[tuple[str, int], float] = field(default_factory=dict)
    are_tasks_known: bool = False
    outcomes: dict[FrameOutcome, int] = field(
        default_factory=lambda: dict.fromkeys(FrameOutcome, 0))
    out_of_range: int = 0
    unknown_types: list[str] = field(default_factory=list)  # of its newest connection's messages

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
        """One answered Probe; the middle of the round trip is when the agent looked."""
        half = (mono - asked_mono) / 2
        self.clock_offset_s = agent_at - (now - half)
        self.clock_minus_mono_s = agent_at - (mono - half)

    def refused_s(self, mono: float) -> float:
        """How long it is refused yet, for what it sent; 0: it may come."""
        return 0.0 if self.refusal is None else max(0.0, self.refusal.until_mono - mono)

    def age_s(self, taken_at: float, now: float, mono: float) -> float:
        """How long ago by our clock. Before the first Probe is answered the agent's clock is
        believed where it makes a sample old, never where it makes it fresh."""
        if self.clock_minus_mono_s is None:
            return max(0.0, now - taken_at)
        return mono - (taken_at - self.clock_minus_mono_s)

    def state_at(self, mono: float) -> NodeState:
        unheard_s = mono - self.heard_mono
        if unheard_s >= SILENT_AFTER_S:
            return "silent"
        return "live" if self.connected and unheard_s < SUSPECT_AFTER_S else "suspect"


class Fleet(GpuTable):
    """The GPUs of all nodes, and the nodes that report them."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch
        self.nodes: dict[str, Node] = {}
        self.node_ids: list[str] = []
        self.tasks_version = 0
        self.groups_version = 0
        self._groups: dict[str, str] = {}  # node id -> group, where it is not DEFAULT_GROUP

    # -- groups of nodes

    def group_of(self, node_id: str) -> str:
        return self._groups.get(node_id, DEFAULT_GROUP)

    def set_group(self, node_id: str, group: str) -> None:
        """Also of a node that has not come yet."""
        if group != self.group_of(node_id):
            self._groups[node_id] = group
            self.groups_version += 1

    # -- what agents say

    def hello(self, hello: Hello, now: float, mono: float) -> Node:
        node = self.nodes.get(hello.node_id)
        if node is None:
            node = Node(len(self.node_ids), hello, now, mono)
            self.nodes[hello.node_id] = node
            self.node_ids.append(hello.node_id)
        if hello.boot_id != node.hello.boot_id:
            # Task ids carry the boot id: none of the old ones can still run.
            self._apply_tasks(node, Tasks(True, (), ()), now)
            node.are_tasks_known = False
        if hello.stream != node.hello.stream:
            node.listings.clear()  # generations are numbered within a stream
        node.hello = hello
        node.connected = True
        self.take_pool(node, None)  # it may give out none any more
        node.unknown_types.clear()
        node.steady_mono = node.joined_mono = mono
        node.hear(now, mono)
        return node

    def inventory(self, node: Node, inventory: Inventory) -> None:
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

    def _show(self, node: Node, listing: InventorySlots) -> None:
        if listing is node.listing:
            return
        left = [] if node.listing is None else sorted({*node.listing.order} - {*listing.order})
        node.listing = listing
        self.retired[left] = True
        self.show(listing.slots, listing.order, listing.inventory.gpus, node.heard_mono)
        self.take_pool(node, node.pool)

    def take_pool(self, node: Node, report: PoolReport | None) -> None:
        node.pool = report
        if node.listing is not None:
            free = {} if report is None else report.free
            self.given_out[node.listing.slots] = [
                GIVEN_OUT[free.get(self.uuids[slot])] for slot in node.listing.order]

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
        self._show(node, listing)
        node.out_of_range += self.apply_numbers(listing.slots, frame, at, at_mono)
        if frame.tasks is not None:
            self._apply_tasks(node, frame.tasks, now)
        return FrameOutcome.APPLIED

    def _apply_tasks(self, node: Node, tasks: Tasks, now: float) -> None:
        began = {task.id: task for task in tasks.began}
        known = began if tasks.snapshot else node.tasks | began
        used = {use.task_id for use in tasks.uses}
        node.tasks = {task_id: task for task_id, task in known.items() if task_id in used}
        node.uses = tasks.uses
        node.used_since = {key: node.used_since.get(key, now)
                           for key in ((use.task_id, use.gpu) for use in tasks.uses)}
        node.are_tasks_known = True
        self.tasks_version += 1
        if node.listing is not None:
            self.mark_owners(node.listing.order, node.tasks, node.uses)

    # -- what time does

    def tick(self, mono: float) -> list[tuple[str, NodeState]]:
        """The Nodes whose state changes now."""
        changed: list[tuple[str, NodeState]] = []
        for node_id, node in self.nodes.items():
            state = node.state_at(mono)
            if state != node.state:
                node.state = state
                changed.append((node_id, state))
        return changed

    def forgive(self, gap_s: float) -> None:
        """The hub itself stood still: the silence was ours, everyone gets it back."""
        for node in self.nodes.values():
            node.heard_mono += gap_s

    def recovered(self, now: float, mono: float) -> None:
        """What came from disk is shown as what it is: known once, not live."""
        for node in self.nodes.values():
            node.connected = False
            node.state = "suspect"
            node.heard_mono = mono
        there = ~np.isnan(self.sampled_at)
        ages_s = np.maximum(now - self.sampled_at[there], STALE_AFTER_S + 1)
        self.sampled_mono[there] = mono - ages_s
        # What changes seldom is shown as the last that was known, until a Frame says it again.
        self.slow.sampled_mono[:] = -np.inf

    # -- what there is to see

    def shown(self, mono: float) -> npt.NDArray[np.uint8]:
        """Show, per slot."""
        size = len(self)
        show = np.full(size, GpuStatus.OK, np.uint8)
        show[(mono - self.sampled_mono[:size] > STALE_AFTER_S) | (self.reported[:size] == 1)] = (
            GpuStatus.STALE)
        for state, status in ((2, GpuStatus.LOST), (3, GpuStatus.ERROR)):
            show[self.reported[:size] == state] = status
        silent = np.array([self.nodes[node_id].state == "silent" for node_id in self.node_ids],
                          bool)
        if silent.any():
            show[silent[self.node_at[:size]]] = GpuStatus.OFFLINE
        show[self.retired[:size]] = GpuStatus.RETIRED
        return show

    def find(self, uuid: str, on: Container[str] | None = None) -> int | None:
        """Of a board that moved between nodes, the slot that was sampled last; among these nodes,
        where they are given."""
        slots = [slot for slot in self.slots_of_uuid(uuid)
                 if on is None or self.node_ids[self.node_at[slot]] in on]
        return max(slots, key=lambda slot: float(self.sampled_mono[slot]), default=None)

    def host_of(self, node_id: str) -> str | None:
        node = self.nodes.get(node_id)
        return None if node is None else node.hello.host

    def node_of(self, slot: int) -> Node:
        return self.nodes[self.node_ids[self.node_at[slot]]]

    def snapshot(self, node: Node) -> Frame | None:
        """The last Frame, made to stand alone: with all tasks and what changes seldom."""
        if node.frame is None:
            return None
        tasks = Tasks(True, tuple(node.tasks.values()), node.uses) if node.are_tasks_known else None
        listing = node.listings.get(node.frame.generation)
        slow = None if listing is None else self.slow.told_last(listing.slots)
        return msgspec.structs.replace(node.frame, tasks=tasks, slow=slow)


def _as_slots(order: list[int]) -> Slots:
    if order and order == list(range(order[0], order[0] + len(order))):
        return slice(order[0], order[0] + len(order))
    return np.array(order, np.intp)

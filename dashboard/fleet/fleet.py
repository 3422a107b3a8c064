"""The hub's present picture of all Nodes: one slot per Gpu, one column per metric."""

from collections.abc import Container
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from gpudeck.limits import LimitsNow
from gpudeck.metrics import COLUMN, COLUMNS, SLOW, SLOW_COLUMN, WIDTH, Absence, Metric
from gpudeck.wire import Beat, Frame, GpuFacts, Hello, Inventory, Task, Tasks, Use, WireError

from ..access.policy import DEFAULT_GROUP
from . import mig
from .slow_metrics import Slots, SlowMetricTable

STALE_AFTER_S = 5.0
SUSPECT_AFTER_S = 15.0
SILENT_AFTER_S = 60.0
FUTURE_S = 5.0
MAX_INVENTORIES = 16
MAX_OWNERS = 65_000

NO_TASK, SEVERAL, UNKNOWN_OWNER, SPLIT = 65_535, 65_534, 65_533, 65_532

NodeState = Literal["live", "suspect", "silent"]
Users = tuple[int, ...]  # owner numbers, UNKNOWN_OWNER for a Task whose owner is not known

LOW = np.array([metric.low for metric in COLUMNS])
HIGH = np.array([metric.high for metric in COLUMNS])


class GpuStatus(IntEnum):
    """What a Gpu is called at this moment."""

    OK = 0
    STALE = 1
    LOST = 2
    OFFLINE = 3
    RETIRED = 4  # no longer in its node's inventory: a MIG instance that was destroyed


class FrameOutcome(Enum):
    """What became of a Frame; all but APPLIED are counted and leave the live picture alone."""

    APPLIED = "applied"
    LATE = "late"
    FUTURE = "future"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class FleetMetricColumn:
    """One metric of all slots, at one moment. `full` is NaN where it is not known."""

    metric: Metric
    values: npt.NDArray[np.float64]
    absent: npt.NDArray[np.uint8]
    full: npt.NDArray[np.float64]


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
    connected: bool = True
    state: NodeState = "live"
    beat: Beat | None = None
    beat_mono: float = 0.0
    limits: LimitsNow | None = None  # None: it has not said
    clock_offset_s: float | None = None  # its clock minus ours
    clock_minus_mono_s: float | None = None
    listings: dict[int, InventorySlots] = field(default_factory=dict)
    listing: InventorySlots | None = None  # the one that is shown
    newest: tuple[str, int] = ("", 0)  # stream and seq of the newest applied Frame
    frame: Frame | None = None
    frame_at: float = 0.0  # when that was taken, by our clock
    tasks: dict[str, Task] = field(default_factory=dict)
    uses: tuple[Use, ...] = ()
    are_tasks_known: bool = False
    outcomes: dict[FrameOutcome,
                   int] = field(default_factory=lambda: dict.fromkeys(FrameOutcome, 0))
    out_of_range: int = 0


class Fleet:
    """Slots are only ever appended: a slot never changes its Gpu while this Fleet lives."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.nodes: dict[str, Node] = {}
        self.node_ids: list[str] = []
        self.uuids: list[str] = []
        self.facts: list[GpuFacts] = []
        self.users: list[Users | None] = []  # None: its node has not told its tasks
        self.models: list[str] = []
        self.owners: list[str] = []
        self.tasks_version = 0
        self.groups_version = 0
        self._groups: dict[str, str] = {}  # node id -> group, where it is not DEFAULT_GROUP
        self._slot_of: dict[tuple[str, str], int] = {}
        self._slots_of_uuid: dict[str, list[int]] = {}
        self._model_of: dict[str, int] = {}
        self._owner_of: dict[str, int] = {}
        self._allocate(64)
        self.slow = SlowMetricTable(64)

    def __len__(self) -> int:
        return len(self.uuids)

    def _allocate(self, room: int) -> None:
        self.values = np.zeros((room, WIDTH))
        self.absent = np.full((room, WIDTH), Absence.UNKNOWN, np.uint8)
        self.last = np.full((room, WIDTH), np.nan)  # the last that was there, however old
        self.full = np.full((room, WIDTH), np.nan)
        self.reported = np.zeros(room, np.uint8)
        self.sampled_mono = np.full(room, -np.inf)
        self.sampled_at = np.full(room, np.nan)
        self.node_at = np.zeros(room, np.int32)
        self.model_at = np.zeros(room, np.int32)
        self.index = np.zeros(room, np.int32)
        self.retired = np.zeros(room, bool)
        self.parent = np.full(room, mig.NO_PARENT, np.int32)  # slot of a MIG instance's board
        self.shares_memory = np.zeros(room, bool)  # with an instance before it
        self.owner = np.full(room, UNKNOWN_OWNER, np.uint16)
        self.task_count = np.zeros(room, np.int32)

    ARRAYS = ("values", "absent", "last", "full", "reported", "sampled_mono", "sampled_at",
              "node_at", "model_at", "index", "retired", "parent", "shares_memory", "owner",
              "task_count")

    def _grow(self, wanted: int) -> None:
        if wanted <= len(self.index):
            return
        old = {name: getattr(self, name) for name in self.ARRAYS}
        self._allocate(max(wanted, 2 * len(self.index)))
        for name, array in old.items():
            getattr(self, name)[: len(array)] = array
        self.slow.grow(len(self.index))

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
            self._apply_tasks(node, Tasks(True, (), ()))
            node.are_tasks_known = False
        if hello.stream != node.hello.stream:
            node.listings.clear()  # generations are numbered within a stream
        node.hello = hello
        node.connected = True
        node.steady_mono = mono
        self.heard(node, now, mono)
        return node

    def heard(self, node: Node, now: float, mono: float) -> None:
        node.heard_at = now
        node.heard_mono = mono
        if node.connected:
            node.state = "live"

    def disconnected(self, node: Node) -> None:
        node.connected = False
        if node.state == "live":
            node.state = "suspect"

    def beat(self, node: Node, beat: Beat, mono: float) -> None:
        if beat.reader != "ok" or (node.beat is not None and node.beat.reader != "ok"):
            node.steady_mono = mono
        node.beat = beat
        node.beat_mono = mono

    def clock(self, node: Node, agent_at: float, asked_mono: float, now: float, mono: float
              ) -> None:
        """One answered Probe; the middle of the round trip is when the agent looked."""
        half = (mono - asked_mono) / 2
        node.clock_offset_s = agent_at - (now - half)
        node.clock_minus_mono_s = agent_at - (mono - half)

    def inventory(self, node: Node, inventory: Inventory) -> None:
        order = [self._slot(node, facts) for facts in inventory.gpus]
        if len(set(order)) != len(order):
            raise WireError("an inventory lists the same Gpu twice")
        node.listings.pop(inventory.generation, None)
        listing = InventorySlots(inventory, order, _as_slots(order))
        node.listings[inventory.generation] = listing
        while len(node.listings) > MAX_INVENTORIES:
            del node.listings[next(iter(node.listings))]
        if inventory.generation == max(node.listings):
            self._show(node, listing)

    def _slot(self, node: Node, facts: GpuFacts) -> int:
        key = (node.hello.node_id, facts.uuid)
        slot = self._slot_of.get(key)
        if slot is None:
            slot = len(self.uuids)
            self._grow(slot + 1)
            self._slot_of[key] = slot
            self.uuids.append(facts.uuid)
            self._slots_of_uuid.setdefault(facts.uuid, []).append(slot)
            self.facts.append(facts)
            self.users.append(None)
            self.node_at[slot] = node.at
        self._describe(slot, facts)
        return slot

    def _describe(self, slot: int, facts: GpuFacts) -> None:
        self.facts[slot] = facts
        self.index[slot] = facts.index
        self.model_at[slot] = _number(facts.name, self.models, self._model_of)
        for column, metric in enumerate(COLUMNS):
            full = getattr(facts, metric.full_fact) if metric.full_fact else metric.full
            self.full[slot, column] = full or np.nan
        self.slow.describe(slot, facts)

    def _show(self, node: Node, listing: InventorySlots) -> None:
        if listing is node.listing:
            return
        if node.listing is not None:
            self.retired[node.listing.slots] = True
        node.listing = listing
        self.retired[listing.slots] = False
        self.parent[listing.slots] = mig.parents(listing.order, listing.inventory.gpus)
        self.shares_memory[listing.slots] = mig.shares_memory(listing.inventory.gpus)

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
        age_s = self.age_s(node, frame.taken_at, now, mono)
        if age_s < -FUTURE_S:
            return FrameOutcome.FUTURE
        node.newest = (node.hello.stream, frame.seq)
        node.frame, node.frame_at = frame, now - max(age_s, 0.0)
        self._show(node, listing)
        self._apply_numbers(node, listing, frame)
        at, at_mono = now - max(age_s, 0.0), mono - max(age_s, 0.0)
        self._mark_sampled(listing, frame, at, at_mono)
        if frame.slow is not None:
            were_read = np.frombuffer(frame.states, np.uint8) == 0
            node.out_of_range += self.slow.take(listing.slots, frame.slow, were_read, at, at_mono)
        if frame.tasks is not None:
            self._apply_tasks(node, frame.tasks)
        return FrameOutcome.APPLIED

    def _mark_sampled(self, listing: InventorySlots, frame: Frame, at: float,
                      at_mono: float) -> None:
        """A Frame that calls a Gpu stale or lost is news of its state, not a sample of it: what
        was read last keeps its age."""
        were_read = np.frombuffer(frame.states, np.uint8) == 0
        for times, time in ((self.sampled_mono, at_mono), (self.sampled_at, at)):
            times[listing.slots] = np.where(were_read, time, times[listing.slots])

    def age_s(self, node: Node, taken_at: float, now: float, mono: float) -> float:
        """How long ago by our clock. Before the first Probe is answered the agent's clock is
        believed where it makes a sample old, never where it makes it fresh."""
        if node.clock_minus_mono_s is None:
            return max(0.0, now - taken_at)
        return mono - (taken_at - node.clock_minus_mono_s)

    def _apply_numbers(self, node: Node, listing: InventorySlots, frame: Frame) -> None:
        shape = (len(listing.order), WIDTH)
        values = np.frombuffer(frame.values, "<f8").reshape(shape)
        absent = np.frombuffer(frame.absent, np.uint8).reshape(shape)
        present = absent == 0
        lies = present & ((values < LOW) | (values > HIGH))
        if lies.any():
            node.out_of_range += int(lies.sum())
            absent = np.where(lies, np.uint8(Absence.UNKNOWN), absent)
            present &= ~lies
        slots = listing.slots
        self.values[slots] = values
        self.absent[slots] = absent
        self.last[slots] = np.where(present, values, self.last[slots])
        self.reported[slots] = np.frombuffer(frame.states, np.uint8)

    def _apply_tasks(self, node: Node, tasks: Tasks) -> None:
        began = {task.id: task for task in tasks.began}
        known = began if tasks.snapshot else node.tasks | began
        used = {use.task_id for use in tasks.uses}
        node.tasks = {task_id: task for task_id, task in known.items() if task_id in used}
        node.uses = tasks.uses
        node.are_tasks_known = True
        self.tasks_version += 1
        if node.listing is not None:
            self._mark_owners(node, node.listing)

    def _mark_owners(self, node: Node, listing: InventorySlots) -> None:
        users: list[dict[int, None]] = [{} for _ in listing.order]
        counts = [0] * len(listing.order)
        for use in node.uses:
            task = node.tasks.get(use.task_id)
            users[use.gpu][self._owner(None if task is None else task.user)] = None
            counts[use.gpu] += 1
        for slot, on_gpu, count in zip(listing.order, users, counts, strict=True):
            self.users[slot] = tuple(on_gpu)
            self.task_count[slot] = count
            self.owner[slot] = _one_of(tuple(on_gpu))

    def _owner(self, user: str | None) -> int:
        if user is None or (len(self.owners) >= MAX_OWNERS and user not in self._owner_of):
            return UNKNOWN_OWNER
        return _number(user, self.owners, self._owner_of)

    # -- what time does

    def tick(self, mono: float) -> list[tuple[str, NodeState]]:
        """The Nodes whose state changes now."""
        changed: list[tuple[str, NodeState]] = []
        for node_id, node in self.nodes.items():
            state = _node_state(node, mono)
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
        self.slow.forget_ages()

    # -- what there is to see

    def shown(self, mono: float) -> npt.NDArray[np.uint8]:
        """Show, per slot."""
        size = len(self)
        show = np.full(size, GpuStatus.OK, np.uint8)
        show[(mono - self.sampled_mono[:size] > STALE_AFTER_S) | (self.reported[:size] == 1)] = (
            GpuStatus.STALE)
        show[self.reported[:size] == 2] = GpuStatus.LOST
        silent = np.array([self.nodes[node_id].state == "silent" for node_id in self.node_ids],
                          bool)
        if silent.any():
            show[silent[self.node_at[:size]]] = GpuStatus.OFFLINE
        show[self.retired[:size]] = GpuStatus.RETIRED
        return show

    def is_split(self) -> npt.NDArray[np.bool_]:
        """Per slot: a board with MIG on, where nobody can run but on its instances."""
        size = len(self)
        is_on: npt.NDArray[np.bool_] = self.slow.values[:size, SLOW_COLUMN["mig_on"]] == 1
        return is_on | mig.split(self.parent[:size], ~self.retired[:size])

    def column(self, key: str, mono: float) -> FleetMetricColumn:
        size = len(self)
        if key in COLUMN:
            at = COLUMN[key]
            return FleetMetricColumn(COLUMNS[at], self.values[:size, at], self.absent[:size, at],
                                     self.full[:size, at])
        at = SLOW_COLUMN[key]
        return FleetMetricColumn(SLOW[at], np.nan_to_num(self.slow.values[:size, at]),
                                 self.slow.absent_at(size, at, mono), self.slow.full(size, at))

    def find(self, uuid: str, on: Container[str] | None = None) -> int | None:
        """Of a board that moved between nodes, the slot that was sampled last; among these nodes,
        where they are given."""
        slots = [slot for slot in self._slots_of_uuid.get(uuid, ())
                 if on is None or self.node_ids[self.node_at[slot]] in on]
        return max(slots, key=lambda slot: float(self.sampled_mono[slot]), default=None)

    def slot_on(self, node_id: str, uuid: str) -> int | None:
        return self._slot_of.get((node_id, uuid))

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
        slow = None if listing is None else self.slow.snapshot(listing.slots)
        return msgspec.structs.replace(node.frame, tasks=tasks, slow=slow)


def _node_state(node: Node, mono: float) -> NodeState:
    unheard_s = mono - node.heard_mono
    if unheard_s >= SILENT_AFTER_S:
        return "silent"
    return "live" if node.connected and unheard_s < SUSPECT_AFTER_S else "suspect"


def _as_slots(order: list[int]) -> Slots:
    if order and order == list(range(order[0], order[0] + len(order))):
        return slice(order[0], order[0] + len(order))
    return np.array(order, np.intp)


def _number(name: str, names: list[str], numbers: dict[str, int]) -> int:
    if name not in numbers:
        numbers[name] = len(names)
        names.append(name)
    return numbers[name]


def _one_of(users: Users) -> int:
    if not users:
        return NO_TASK
    return users[0] if len(users) == 1 else SEVERAL

"""Table of GPUs: a slot per GPU on a node, a column per number, as known at this moment."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from gpudeck.contract.repairs import LIFE, ServiceState
from gpudeck.contract.wire import GpuFacts, Task, Use
from gpudeck.measures.availability import REASONS, is_use
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN, Metric
from gpudeck.prometheus.dcgm import shares_memory

from . import mig
from .frame_table import FrameTable
from .metric_table import Codes, Floats, MetricTable, Slots

MAX_OWNERS = 65_000
# So many may there be before those of no GPU are forgotten.
OWNERS_KEPT, MODELS_KEPT = 4_096, 256

NO_TASK, SEVERAL, UNKNOWN_OWNER, SPLIT = 65_535, 65_534, 65_533, 65_532

NO_FACTS = GpuFacts("", 0, "")
FACT_COLUMNS = ("mem_total_bytes", "power_limit_max_w", "temp_slowdown_c", "temp_shutdown_c",
                "pcie_width_max")
AVAILABLE = 0  # beside it, REASON_CODE says why a GPU is not
REASON_CODE: Mapping[str, int] = {reason: code for code, reason in enumerate(REASONS, 1)}

# 0: in service; the others by their place, as the Fleet map is told them.
SERVICE_STATES: tuple[ServiceState, ...] = tuple(LIFE)

Users = tuple[int, ...]  # owner numbers, UNKNOWN_OWNER for a Task whose owner is not known
UseMarks = tuple[Users, int, int, bool]  # with how many tasks, how many paused, and is_used


class MarkedUses(Struct, gc=False):
    """Uses of a node's GPUs, as they were marked last: the slots, and of each use what may change
    while its task goes on. `numbering`: that of the owners then."""

    order: Sequence[int]
    states: Sequence[tuple[str | None, bool]]
    numbering: int


@dataclass(frozen=True, slots=True)
class FleetMetricColumn:
    """A metric of all slots, at one moment. `full` is NaN where it is not known."""

    metric: Metric
    values: npt.NDArray[np.float64]
    absent: npt.NDArray[np.uint8]
    full: npt.NDArray[np.float64]


class GpuTable(FrameTable):
    """Live metrics of GPUs, and those that change seldom. A slot keeps its GPU until that has been
    gone for long and another one needs room: `hands` counts how often that was, and `hand` says of
    each slot which of those was its newest."""

    def __init__(self) -> None:
        self.uuids: list[str] = []
        self.facts: list[GpuFacts] = []
        self.users: list[Users | None] = []  # None: its node has not reported its tasks
        self._marks: list[UseMarks | None] = []  # as `mark_uses` made them; None: not by it
        self.models: list[str] = []
        self.owners: list[str] = []
        self.numbering = 0  # how often owners got new numbers
        self.hands = 0
        self.spare: list[int] = []  # slots that a GPU which comes now may have
        self._keys: list[tuple[str, str]] = []
        self._slot_of: dict[tuple[str, str], int] = {}
        self._slots_of_uuid: dict[str, list[int]] = {}
        self._model_of: dict[str, int] = {}
        self._owner_of: dict[str, int] = {}
        self._owners_most, self._models_most = OWNERS_KEPT, MODELS_KEPT
        super().__init__()

    def __len__(self) -> int:
        return len(self.uuids)

    def _allocate(self, room: int) -> None:
        super()._allocate(room)
        self.node_at = np.zeros(room, np.int32)
        self.model_at = np.zeros(room, np.int32)
        self.index = np.zeros(room, np.int32)
        self._fact_values = np.full((room, len(FACT_COLUMNS)), np.nan)
        self.hand = np.zeros(room, np.int64)
        self.retired = np.zeros(room, bool)
        self.viewed = np.zeros(room, bool)  # of another site: shown, and nothing else
        self.moved = np.zeros(room, bool)  # another node reports it, if its own is silent
        self.retired_mono = np.full(room, np.nan)
        self.listed_mono = np.full(room, np.nan)  # since when it is in its node's inventory
        self.parent = np.full(room, mig.NO_PARENT, np.int32)  # slot of a MIG instance's board
        self.shares_memory = np.zeros(room, bool)  # with an instance before it
        self.owner = np.full(room, UNKNOWN_OWNER, np.uint16)
        self.are_users_known = np.zeros(room, bool)
        self.task_count = np.zeros(room, np.int32)
        self.is_used = np.zeros(room, bool)  # by a task that counts, leased or not
        self.in_pool = np.zeros(room, bool)  # its node's pool gives it out
        self.pool_reason = np.zeros(room, np.uint8)  # why that pool does not now
        self.is_leased = np.zeros(room, bool)
        self.service = np.zeros(room, np.uint8)  # place in SERVICE_STATES; an instance as its board
        self.is_paused = np.zeros(room, bool)  # all tasks on it
        self.idle_mono = np.full(room, np.nan)  # since when, with memory held: wasted_gpus.py
        self.worked_mono = np.full(room, np.nan)  # when it was last seen otherwise by this hub
        self.idle_today_s = np.full(room, np.nan)

    # -- slots

    def slot(self, node_id: str, node_at: int, facts: GpuFacts) -> int:
        key = (node_id, facts.uuid)
        slot = self._slot_of.get(key)
        if slot is None:
            slot = self._slot_of[key] = self._forget(self.spare.pop()) if self.spare else (
                self._append())
            self._keys[slot], self.uuids[slot], self.node_at[slot] = key, facts.uuid, node_at
            self._slots_of_uuid.setdefault(facts.uuid, []).append(slot)
        self.facts[slot] = facts
        self.index[slot] = facts.index
        self._fact_values[slot] = np.array([getattr(facts, name) for name in FACT_COLUMNS], float)
        self.model_at[slot] = _number(facts.name, self.models, self._model_of)
        self.describe(slot, facts)
        self.slow.describe(slot, facts)
        return slot

    def _append(self) -> int:
        slot = len(self.uuids)
        if slot == len(self.index):
            self.grow(2 * slot)
            self.slow.grow(2 * slot)
        self._keys.append(("", ""))
        self.uuids.append("")
        self.facts.append(NO_FACTS)
        self.users.append(None)
        self._marks.append(None)
        return slot

    def _forget(self, slot: int) -> int:
        """Forget the GPU that had the slot."""
        uuid = self.uuids[slot]
        del self._slot_of[self._keys[slot]]
        self._slots_of_uuid[uuid].remove(slot)
        if not self._slots_of_uuid[uuid]:
            del self._slots_of_uuid[uuid]
        self.users[slot] = self._marks[slot] = None
        self.clear(slot)
        self.slow.clear(slot)
        self.parent[self.parent == slot] = mig.NO_PARENT
        self.hands += 1
        self.hand[slot] = self.hands
        return slot

    def forget_models(self) -> None:
        """Forget names that no slot has any more, when they are many."""
        if len(self.models) <= self._models_most:
            return
        in_use, places = np.unique(self.model_at[: len(self)], return_inverse=True)
        self.models = [self.models[number] for number in in_use.tolist()]
        self._model_of = {name: number for number, name in enumerate(self.models)}
        self.model_at[: len(self)] = places
        self._models_most = max(MODELS_KEPT, 2 * len(in_use))
        self.hands += 1

    def slot_on(self, node_id: str, uuid: str) -> int | None:
        return self._slot_of.get((node_id, uuid))

    def slots_of_uuid(self, uuid: str) -> Sequence[int]:
        """Return the slots of a GPU: several where a board has moved between nodes."""
        return self._slots_of_uuid.get(uuid, ())

    def show(self, slots: Slots, order: list[int], gpus: Sequence[GpuFacts], mono: float) -> None:
        """Show the GPUs of a node's present inventory."""
        was_there = ~self.retired[slots] & ~np.isnan(self.listed_mono[slots])
        self.listed_mono[slots] = np.where(was_there, self.listed_mono[slots], mono)
        self.retired[slots] = False
        self.parent[slots] = mig.parents(order, gpus)
        self.owners_version += 1  # a board may be split now
        self.shares_memory[slots] = shares_memory(gpus)

    # -- what a Frame says of them

    def mark_uses(self, order: Sequence[int], tasks: Mapping[str, Task], uses: Sequence[Use],
                  marked: MarkedUses | None) -> MarkedUses:
        """Mark the users of these GPUs. `marked`: how they were marked last, for the same tasks on
        the same GPUs; most nodes report the same again and again."""
        states = [(use.state, is_use(use.mem_used_bytes, use.sm_pct, None)) for use in uses]
        if (marked is not None and marked.order is order and marked.states == states
                and marked.numbering == self.numbering):
            return marked
        self._mark_owners(order, tasks, uses)
        return MarkedUses(order, states, self.numbering)

    def _mark_owners(self, order: Sequence[int], tasks: Mapping[str, Task], uses: Iterable[Use]
                     ) -> None:
        self.forget_owners()
        users: list[Users] = [()] * len(order)
        counts, paused, in_use = [0] * len(order), [0] * len(order), [False] * len(order)
        for use in uses:
            task, at = tasks.get(use.task_id), use.gpu
            number = self.owner_number(None if task is None else task.user)
            if number not in users[at]:
                users[at] += (number,)
            counts[at] += 1
            paused[at] += use.state == "paused"
            in_use[at] |= is_use(use.mem_used_bytes, use.sm_pct,
                                 None if task is None else task.kind)
        for slot, marks in zip(order, zip(users, counts, paused, in_use, strict=True),
                               strict=True):
            if self._marks[slot] != marks:
                self._marks[slot] = marks
                self._mark(slot, *marks)

    def _mark(self, slot: int, users: Users, count: int, paused: int, is_used: bool) -> None:
        self.users[slot] = users
        self.are_users_known[slot] = True
        self.task_count[slot] = count
        self.is_paused[slot] = count > 0 and paused == count
        self.is_used[slot] = is_used
        self.owner[slot] = _one_of(users)
        self.owners_version += 1

    def forget_owners(self) -> None:
        """Forget names that nobody on a GPU has any more, when they are many."""
        if len(self.owners) < self._owners_most:
            return
        size, old = len(self), self.owners
        for slot in np.flatnonzero(self.retired[:size]).tolist():
            self.users[slot], self.owner[slot] = None, UNKNOWN_OWNER
            self.are_users_known[slot] = False
        in_use = sorted({number for users in self.users for number in users or ()
                         if number < MAX_OWNERS})
        place = np.arange(2**16, dtype=np.uint16)  # what is no owner stays what it is
        place[in_use] = np.arange(len(in_use))
        self.owners = [old[number] for number in in_use]
        self._owner_of = {name: number for number, name in enumerate(self.owners)}
        self.users = [None if users is None else tuple(place[[*users]].tolist())
                      for users in self.users]
        self.owner[:size] = place[self.owner[:size]]
        self._marks = [None] * size
        self.numbering += 1
        self._owners_most = max(OWNERS_KEPT, 2 * len(in_use))

    def new_names(self, node_id: str, gpus: Iterable[GpuFacts]) -> int:
        """Return how many of these GPUs and models were not known."""
        listed = list(gpus)
        return (len({facts.uuid for facts in listed if (node_id, facts.uuid) not in self._slot_of})
                + len({facts.name for facts in listed} - self._model_of.keys()))

    def new_owners(self, tasks: Iterable[Task]) -> int:
        return len({task.user for task in tasks} - self._owner_of.keys() - {None})

    def owner_number(self, user: str | None) -> int:
        if user is None or (len(self.owners) >= MAX_OWNERS and user not in self._owner_of):
            return UNKNOWN_OWNER
        return _number(user, self.owners, self._owner_of)

    # -- columns

    def fact(self, name: str) -> npt.NDArray[np.float64]:
        """Return a fact per slot. NaN: not known."""
        return self._fact_values[: len(self), FACT_COLUMNS.index(name)]

    def is_split(self) -> npt.NDArray[np.bool_]:
        """Return per slot whether it is a board with MIG on: only its instances can be used."""
        size = len(self)
        is_on: npt.NDArray[np.bool_] = self.slow.values[:size, SLOW_COLUMN["mig_on"]] == 1
        return is_on | mig.split(self.parent[:size], ~self.retired[:size])

    def column(self, key: str, mono: float) -> FleetMetricColumn:
        size = len(self)
        table, at = _table_of(self, key)
        return FleetMetricColumn(
            table.metrics[at], table.values[:size, at],
            table.absent_at(slice(size), mono, at), table.full(size, at))


def newest(gpus: GpuTable, key: str, mono: float, size: int) -> tuple[Floats, Codes]:
    """Return a metric of the first `size` slots, and why it is absent."""
    table, at = _table_of(gpus, key)
    return table.values[:size, at], table.absent_at(slice(size), mono, at)


def _table_of(gpus: GpuTable, key: str) -> tuple[MetricTable, int]:
    return (gpus, COLUMN[key]) if key in COLUMN else (gpus.slow, SLOW_COLUMN[key])


def _number(name: str, names: list[str], numbers: dict[str, int]) -> int:
    if name not in numbers:
        numbers[name] = len(names)
        names.append(name)
    return numbers[name]


def _one_of(users: Users) -> int:
    if not users:
        return NO_TASK
    return users[0] if len(users) == 1 else SEVERAL

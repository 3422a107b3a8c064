"""The fleet's GPUs as what Rules look at: one row per slot."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpudeck.limits import TimedLimit
from gpudeck.metrics import COLUMN, SLOW_COLUMN, Absence

from ...fleet.filters import Filter
from ...fleet.fleet import SUSPECT_AFTER_S, Fleet, GpuStatus, Node
from ...fleet.mig import NO_PARENT
from .firing_alerts import AlertTarget
from .gpu_uses import GpuUseTable
from .numbers import FACTS, distinct_on_gpus
from .rule_signal import Floats, SignalTerm
from .rule_tracker import TargetStability, TargetValues
from .state_machine import Mask, Rows
from .xid_counts import BY_BOARD, BY_TASK, XidCounter

NEVER = (Absence.UNSUPPORTED, Absence.DENIED)
T = TypeVar("T")
NO_ROWS = np.empty(0, np.intp)
TOLD_OF_THE_SILENT = frozenset(("lost", "error", "sample_age_s", "is_board", "node_silent_s",
                                "node_reading_age_s", BY_TASK, BY_BOARD))
# A node says these when they change: as long as it is heard of, they are so.
TOLD_ON_CHANGE = frozenset(("power_cap_drift_w", "clock_lock_drifted"))


@dataclass(frozen=True, slots=True)
class HubSelfMetrics:
    """What a hub watches of itself. `blind_s`: how much of the last minute nobody looked."""

    rules_failing: int = 0  # not evaluated, or not as they should be
    blind_s: float = 0.0
    brakes_on: int = 0  # the breaker and storms
    is_unrecorded: bool = False  # the audit takes nothing


CALM = HubSelfMetrics()


@dataclass(slots=True)
class EvaluationContext:
    """What all targets of one look share."""

    fleet: Fleet
    now: float
    mono: float
    listens_since: float  # monotonic: silence before is not theirs
    uses: GpuUseTable
    xids: XidCounter
    hub: HubSelfMetrics = CALM
    left: Collection[str] = ()  # nodes that were sent away: their silence is no news
    _made: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, what: Hashable, make: Callable[[], T]) -> T:
        """The same for all rules that ask for it."""
        if what not in self._made:
            self._made[what] = make()
        found: T = self._made[what]
        return found

    def nodes(self) -> list[Node]:
        return [self.fleet.nodes[node_id] for node_id in self.fleet.node_ids]

    def standing(self) -> TargetStability:
        """Of each Node."""
        return self.once("standing", lambda: TargetStability(
            self.mono - np.maximum(self.each(lambda node: node.steady_mono), self.listens_since),
            self.each(lambda node: node.clock_offset_s)))

    def each(self, of: Callable[[Node], float | None]) -> Floats:
        """Of each Node."""
        return np.array([of(node) for node in self.nodes()], float)

    def live(self, name: str) -> TargetValues:
        """A metric of each slot, as its newest sample has it."""
        fleet, size = self.fleet, len(self.fleet)
        column = fleet.column(name, self.mono)
        absent = column.absent[:size]
        is_there = (fleet.reported[:size] == 0) & (absent == Absence.PRESENT)
        return TargetValues(np.where(is_there, column.values[:size], np.nan),
                            np.isin(absent, NEVER))

    def shares(self, who: str) -> Floats:
        """How many Jobs, or Owners, are on each slot; of one that is not known, it is not known."""
        uses = self.uses
        of_row = uses.job if who == "jobs" else uses.owner
        return self.once(who, lambda: np.where(self.are_tasks_known(), distinct_on_gpus(
            uses.slot, of_row[uses.row], len(self.fleet)), np.nan))

    def are_tasks_known(self) -> Mask:
        """Of each slot."""
        return np.fromiter((users is not None for users in self.fleet.users), bool,
                           len(self.fleet))

    def of_node_of_each_gpu(self, of_nodes: Floats) -> Floats:
        return of_nodes[self.fleet.node_at[: len(self.fleet)]]

    def silent_s(self) -> Floats:
        """Of each Node."""
        return self.once("silent_s", lambda: self.mono - np.maximum(
            self.each(lambda node: node.heard_mono), self.listens_since))

    def reading_age_s(self) -> Floats:
        """Of each Node. Only a living agent knows whether its driver answers."""
        return self.once("reading_age_s", lambda: self.each(self._reading_age_s))

    def _reading_age_s(self, node: Node) -> float | None:
        if (not node.connected or node.beat is None
                or (since_beat_s := self.mono - node.beat_mono) >= SUSPECT_AFTER_S):
            return None
        if node.beat.reading_age_s is not None:
            return node.beat.reading_age_s + max(0.0, since_beat_s)
        has_gpus = node.listing is not None and bool(node.listing.order)
        return self.mono - max(node.joined_mono, self.listens_since) if has_gpus else None

    def heard_at(self) -> Floats:
        return self.once("heard_at", lambda: self.each(lambda node: node.heard_at))

    def is_there(self) -> Mask:
        """Of each Node."""
        return np.array([node_id not in self.left for node_id in self.fleet.node_ids], bool)

    def boards(self) -> Mask:
        """Of each slot."""
        fleet, size = self.fleet, len(self.fleet)
        return np.asarray(~fleet.retired[:size] & (fleet.parent[:size] == NO_PARENT))

    def is_in(self, state: GpuStatus) -> Mask:
        return np.asarray(self.fleet.shown(self.mono) == state)

    def drift(self, what: str) -> Floats:
        """Of each slot, how far a limit that was ordered is from what its node reads back: 0 where
        none was ordered; not known where the node has not said, or cannot tell."""
        return self.once(what, lambda: self._drift(what))

    def _drift(self, what: str) -> Floats:
        fleet = self.fleet
        known = self.each(lambda node: None if node.limits is None else 0.0)
        found = known[fleet.node_at[: len(fleet)]]
        for node in self.nodes():
            for lease in () if node.limits is None else node.limits.leases:
                slot = fleet.slot_on(node.hello.node_id, lease.gpu_uuid)
                if slot is not None and slot < len(found) and lease.what == what:
                    found[slot] = _drift(lease)
        return found

    def fact(self, name: str) -> Floats:
        """Of each slot."""
        return self.once(name, lambda: np.array(
            [getattr(each, name) for each in self.fleet.facts], float))


class FixedRowTargets(ABC):
    """Targets whose rows never change hands, and on which nothing can be done."""

    def __init__(self, moment: EvaluationContext) -> None:
        self.moment = moment
        self.there = self._there()

    @abstractmethod
    def _there(self) -> Mask: ...

    @property
    def fleet(self) -> Fleet:
        return self.moment.fleet

    @property
    def size(self) -> int:
        return len(self.there)

    @property
    def fresh(self) -> Rows:
        return NO_ROWS

    def matters_to(self, row: int) -> list[tuple[str, str]]:
        """Node and id of the Tasks that it is about."""
        return []


def _drift(lease: TimedLimit) -> float:
    match lease.state:
        case "in_force":
            return 0.0
        case "drifted" | "not_in_force":
            if lease.what == "clocks":
                return 1.0  # NVML tells the clock, and not the lock
            return np.nan if lease.seen is None else abs(lease.seen - lease.wanted[0])
        case _:
            return np.nan


class GpuTargets(FixedRowTargets):
    """What is TOLD_OF_THE_SILENT is known of a GPU that gives no sample: rules about silence must
    not be silent, and an Xid is no reading. All else is of its newest sample, and of no older one.
    GPUs that come while it is looked at are there at the next look."""

    def _there(self) -> Mask:
        return np.asarray(~self.fleet.retired[: len(self.fleet)])

    def sampled_at(self, names: frozenset[str]) -> Floats:
        if names <= TOLD_OF_THE_SILENT:
            return np.full(self.size, self.moment.now)
        if names <= TOLD_ON_CHANGE:
            return self.moment.heard_at()[self.fleet.node_at[: self.size]]
        return self.fleet.sampled_at[: self.size].copy()

    def numbers(self, term: SignalTerm) -> TargetValues:
        name, moment = term.name, self.moment
        if name in COLUMN or name in SLOW_COLUMN:
            found = moment.live(name)
            return TargetValues(found.values[: self.size], found.cannot[: self.size])
        if name in FACTS:
            facts = moment.fact(name)[: self.size]
            return TargetValues(facts, np.isnan(facts))
        return TargetValues(np.asarray(NOW[name](moment)[: self.size], float))

    def in_scope(self, scope: Filter) -> Mask:
        return self.moment.once(("scope", "gpu", scope.text), lambda: scope.matches(
            self.fleet, self.moment.mono)[: self.size])

    def standing(self) -> TargetStability:
        of_node, at = self.moment.standing(), self.fleet.node_at[: self.size]
        return self.moment.once("standing of gpus", lambda: TargetStability(
            of_node.steady_s[at], of_node.skew_s[at]))

    def name(self, row: int) -> AlertTarget:
        fleet, node = self.fleet, self.fleet.node_of(row)
        users = tuple(sorted(fleet.owners[number] for number in fleet.users[row] or ()
                             if number < len(fleet.owners)))
        return AlertTarget(fleet.uuids[row], node.hello.node_id, node.hello.host,
                           fleet.facts[row].place, users, (fleet.uuids[row],))

    def identity(self, row: int) -> str:
        """A board may have moved to another Node, where it is another target."""
        return f"{self.fleet.node_of(row).hello.node_id} {self.fleet.uuids[row]}"


def _tasks(moment: EvaluationContext) -> Floats:
    known = moment.are_tasks_known()
    return np.where(known, moment.fleet.task_count[: len(known)], np.nan)


def _sample_age_s(moment: EvaluationContext) -> Floats:
    """What has just joined could not give one before."""
    fleet, size = moment.fleet, len(moment.fleet)
    begun = np.fmax(fleet.listed_mono[:size], moment.listens_since)
    return np.asarray(moment.mono - np.maximum(fleet.sampled_mono[:size], begun))


NOW: dict[str, Callable[[EvaluationContext], npt.NDArray[Any]]] = {
    "lost": lambda moment: moment.is_in(GpuStatus.LOST),
    "error": lambda moment: moment.is_in(GpuStatus.ERROR),
    "sample_age_s": _sample_age_s,
    "is_board": lambda moment: moment.boards(),
    "node_silent_s": lambda moment: moment.of_node_of_each_gpu(moment.silent_s()),
    "node_reading_age_s": lambda moment: moment.of_node_of_each_gpu(moment.reading_age_s()),
    "tasks": _tasks,
    "jobs": lambda moment: moment.shares("jobs"),
    "owners": lambda moment: moment.shares("owners"),
    BY_TASK: lambda moment: moment.xids.counts(moment.fleet, BY_TASK),
    BY_BOARD: lambda moment: moment.xids.counts(moment.fleet, BY_BOARD),
    "power_cap_drift_w": lambda moment: moment.drift("power"),
    "clock_lock_drifted": lambda moment: moment.drift("clocks"),
}

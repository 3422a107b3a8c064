"""The fleet's GPUs as what Rules look at: one row per slot."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpudeck.limits import TimedLimit
from gpudeck.metrics import COLUMN, SLOW_COLUMN, Absence
from gpudeck.wire import Beat

from ...fleet.filters import Filter
from ...fleet.fleet import REPORTED, SILENT_AFTER_S, SUSPECT_AFTER_S, Fleet, GpuStatus, Node
from ...fleet.gpu_table import newest
from ...fleet.mig import NO_PARENT
from ...history.columns import AT, as_stored
from .firing_alerts import AlertTarget
from .gpu_uses import GpuUseTable
from .numbers import FACTS, GPU, distinct_on_gpus, number_of_gpus
from .rule import Of
from .rule_signal import Floats, SignalTerm
from .rule_tracker import TargetStability, TargetValues
from .state_machine import Mask, Rows
from .xid_counts import COUNTERS, XidCounter

PRESENT = int(Absence.PRESENT)  # numpy asks an IntEnum for ways to be an array
NEVER = np.isin(np.arange(256), (Absence.UNSUPPORTED, Absence.DENIED))  # by code
T = TypeVar("T")
NO_ROWS = np.empty(0, np.intp)
TOLD_OF_THE_SILENT = frozenset(("lost", "error", "sample_age_s", "is_board", "node_silent_s",
                                "node_reading_age_s", *COUNTERS))
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
    """What all targets of one look share. Others have their turn between two Rules: GPUs and Nodes
    that come then are there at the next look, or its columns would be of different lengths."""

    fleet: Fleet
    now: float
    mono: float
    listens_since: float  # monotonic: silence before is not theirs
    uses: GpuUseTable
    xids: XidCounter
    fresh_gpus: Rows  # slots that are another GPU's since the last look
    hub: HubSelfMetrics = CALM
    left: Collection[str] = ()  # nodes that were sent away: their silence is no news
    # By node: GPUs that a scheduler has allocated without a process of the job.
    unused: Callable[[], Mapping[str, float]] = dict
    made: dict[Hashable, Any] = field(default_factory=dict)
    gpu_count: int = field(init=False)
    node_count: int = field(init=False)
    node_at: Rows = field(init=False)  # of each slot

    def __post_init__(self) -> None:
        self.gpu_count, self.node_count = len(self.fleet), len(self.fleet.node_ids)
        self.node_at = self.fleet.node_at[: self.gpu_count].astype(np.intp)

    def once(self, what: Hashable, make: Callable[[], T]) -> T:
        """The same for all rules that ask for it."""
        if what not in self.made:
            self.made[what] = make()
        found: T = self.made[what]
        return found

    def nodes(self) -> list[Node]:
        return [self.fleet.known[node_id] for node_id in self.fleet.node_ids[: self.node_count]]

    def standing(self) -> TargetStability:
        """Of each Node."""
        return self.once("standing", lambda: TargetStability(
            self.mono - np.maximum(self.each(lambda node: node.steady_mono), self.listens_since),
            self.each(lambda node: node.clock_offset_s)))

    def each(self, of: Callable[[Node], float | None]) -> Floats:
        """Of each Node."""
        return np.array([of(node) for node in self.nodes()], float)

    def live(self, name: str) -> TargetValues:
        """A metric of each slot, as its newest sample has it; in the steps of history, so that a
        rehearsal finds the same."""
        fleet, size = self.fleet, self.gpu_count
        values, absent = newest(fleet, name, self.mono, size)
        is_there = (fleet.reported[:size] == 0) & (absent == PRESENT)
        if name in AT:
            values = as_stored(name, values)
        return TargetValues(np.where(is_there, values, np.nan), NEVER[absent])

    def shares(self, who: str) -> Floats:
        """How many Jobs, or Owners, are on each slot; of one that is not known, it is not known."""
        uses = self.uses
        of_row = uses.job if who == "jobs" else uses.owner
        return self.once(who, lambda: np.where(self.are_tasks_known(), distinct_on_gpus(
            uses.slot, of_row[uses.row], self.gpu_count), np.nan))

    def are_tasks_known(self) -> Mask:
        """Of each slot."""
        return self.fleet.are_users_known[: self.gpu_count].copy()

    def of_node_of_each_gpu(self, of_nodes: Floats) -> Floats:
        return of_nodes[self.node_at]

    def silent_s(self) -> Floats:
        """Of each Node. Who has not spoken since this hub listens may be about to: not known until
        it is silent by our own measure."""
        def found() -> Floats:
            silent_s = self.mono - np.maximum(self.each(lambda node: node.heard_mono),
                                              self.listens_since)
            return np.where(self.awaited(), np.nan, silent_s)

        return self.once("silent_s", found)

    def awaited(self) -> Mask:
        """Of each Node, whether it has not spoken since this hub listens, and has time yet."""
        def found() -> Mask:
            heard = self.each(lambda node: node.heard_mono)
            since = np.maximum(self.each(lambda node: node.recovered_mono), self.listens_since)
            return np.asarray((heard <= since) & (self.mono - since < SILENT_AFTER_S))

        return self.once("awaited", found)

    def reading_age_s(self) -> Floats:
        """Of each Node. Only a living agent knows whether its driver answers."""
        return self.once("reading_age_s", lambda: self.each(self._reading_age_s))

    def _reading_age_s(self, node: Node) -> float | None:
        beat = fresh_beat(node, self.mono)
        if beat is None:
            return None
        if beat.reading_age_s is not None:
            return beat.reading_age_s + max(0.0, self.mono - node.beat_mono)
        return self.mono - max(node.joined_mono, self.listens_since) if has_gpus(node) else None

    def heard_at(self) -> Floats:
        return self.once("heard_at", lambda: self.each(lambda node: node.heard_at))

    def is_there(self) -> Mask:
        """Of each Node."""
        return np.array([node.hello.node_id not in self.left and not node.is_imported
                         and node.site is None
                         for node in self.nodes()], bool)

    def ours(self) -> Mask:
        """Of each slot: a GPU of another site is its own hub's to watch."""
        fleet, size = self.fleet, self.gpu_count
        return np.asarray(~fleet.retired[:size] & ~fleet.viewed[:size])

    def boards(self) -> Mask:
        """Of each slot."""
        fleet, size = self.fleet, self.gpu_count
        return np.asarray(self.ours() & (fleet.parent[:size] == NO_PARENT))

    def is_in(self, state: GpuStatus) -> Mask:
        return np.asarray(self.ours() & (self.fleet.shown(self.mono)[: self.gpu_count] == state))

    def drift(self, what: str) -> Floats:
        """Of each slot, how far a limit that was ordered is from what its node reads back: 0 where
        none was ordered; not known where the node has not said, or cannot tell."""
        return self.once(what, lambda: self._drift(what))

    def _drift(self, what: str) -> Floats:
        found = self.each(lambda node: None if node.limits is None else 0.0)[self.node_at]
        for node in self.nodes():
            for lease in () if node.limits is None else node.limits.leases:
                slot = self.fleet.slot_on(node.hello.node_id, lease.gpu_uuid)
                if slot is not None and slot < len(found) and lease.what == what:
                    found[slot] = _drift(lease)
        return found


def has_gpus(node: Node) -> bool:
    return node.listing is not None and bool(node.listing.order)


def fresh_beat(node: Node, mono: float) -> Beat | None:
    is_fresh = node.connected and mono - node.beat_mono < SUSPECT_AFTER_S
    return node.beat if is_fresh else None


def reported(moment: EvaluationContext, state: GpuStatus) -> Floats:
    """Of each slot, 1 or 0 as its node said last; not known while the node is awaited."""
    fleet, size = moment.fleet, moment.gpu_count
    is_so = moment.ours() & (fleet.reported[:size] == REPORTED[state])
    return np.where(moment.awaited()[moment.node_at], np.nan, is_so)


class FixedRowTargets(ABC):
    """Targets on which nothing can be done, and whose rows do not change hands unless they say
    so."""

    of: Of

    def __init__(self, moment: EvaluationContext) -> None:
        self.moment = moment
        self.there = self._there()

    @abstractmethod
    def _there(self) -> Mask: ...

    @abstractmethod
    def numbers(self, term: SignalTerm) -> TargetValues: ...

    @abstractmethod
    def in_scope(self, scope: Filter) -> Mask: ...

    @property
    def fleet(self) -> Fleet:
        return self.moment.fleet

    @property
    def size(self) -> int:
        return len(self.there)

    @property
    def fresh(self) -> Rows:
        return NO_ROWS

    def prepare(self, names: frozenset[str], scope: Filter | None) -> Iterator[None]:
        made = self.moment.made
        if "standing" not in made:
            self.moment.standing()
            yield
        if scope is not None and ("scope", self.of, scope.text) not in made:
            self.in_scope(scope)
            yield
        for name in names & GPU.keys():
            if ("gpu", name) not in made:
                self.numbers(SignalTerm("last", name))
                yield
        for name in names & OF_NODES.keys():
            if OF_NODES[name][0] not in made:
                OF_NODES[name][1](self.moment)
                yield

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
    not be silent, and an Xid is no reading. All else is of its newest sample, and of none older."""

    of = "gpu"

    @property
    def fresh(self) -> Rows:
        return self.moment.fresh_gpus[self.moment.fresh_gpus < self.size]

    def _there(self) -> Mask:
        return self.moment.ours()

    def sampled_at(self, names: frozenset[str]) -> Floats:
        if names <= TOLD_OF_THE_SILENT:
            return np.full(self.size, self.moment.now)
        if names <= TOLD_ON_CHANGE:
            return self.moment.heard_at()[self.moment.node_at]
        return self.fleet.sampled_at[: self.size].copy()

    def numbers(self, term: SignalTerm) -> TargetValues:
        name, moment = term.name, self.moment
        if name in COLUMN or name in SLOW_COLUMN:
            found = moment.live(name)
            return TargetValues(found.values[: self.size], found.cannot[: self.size])
        if name in FACTS:
            facts = self.fleet.fact(name)[: self.size]
            return TargetValues(facts, np.isnan(facts))
        if name in GPU:
            return moment.once(("gpu", name), lambda: self._derived(name))
        return TargetValues(np.asarray(NOW[name](moment)[: self.size], float))

    def _derived(self, name: str) -> TargetValues:
        parts = {part: self.numbers(SignalTerm("last", part)) for part in GPU[name].of}
        return TargetValues(
            number_of_gpus(name, lambda part: parts[part].values),
            np.logical_or.reduce([parts[part].cannot for part in GPU[name].needs]))

    def in_scope(self, scope: Filter) -> Mask:
        return self.moment.once(("scope", self.of, scope.text), lambda: scope.matches(
            self.fleet, self.moment.mono)[: self.size])

    def standing(self) -> TargetStability:
        of_node, at = self.moment.standing(), self.moment.node_at
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


# What rules on GPUs and on nodes share, by the name of the number.
OF_NODES: dict[str, tuple[str, Callable[[EvaluationContext], Floats]]] = {
    f"{of}{name}": (name, make) for of in ("", "node_") for name, make in (
        ("silent_s", EvaluationContext.silent_s),
        ("reading_age_s", EvaluationContext.reading_age_s))}


def _tasks(moment: EvaluationContext) -> Floats:
    known = moment.are_tasks_known()
    return np.where(known, moment.fleet.task_count[: len(known)], np.nan)


def _sample_age_s(moment: EvaluationContext) -> Floats:
    """What has just joined could not give one before."""
    fleet, size = moment.fleet, moment.gpu_count
    begun = np.fmax(fleet.listed_mono[:size], moment.listens_since)
    return np.asarray(moment.mono - np.maximum(fleet.sampled_mono[:size], begun))


def _xids(name: str, moment: EvaluationContext) -> Floats:
    return moment.xids.counts(moment.fleet, name)


NOW: dict[str, Callable[[EvaluationContext], npt.NDArray[Any]]] = {
    "lost": lambda moment: reported(moment, GpuStatus.LOST),
    "error": lambda moment: reported(moment, GpuStatus.ERROR),
    "sample_age_s": _sample_age_s,
    "is_board": lambda moment: moment.boards(),
    "node_silent_s": lambda moment: moment.of_node_of_each_gpu(moment.silent_s()),
    "node_reading_age_s": lambda moment: moment.of_node_of_each_gpu(moment.reading_age_s()),
    "tasks": _tasks,
    "jobs": lambda moment: moment.shares("jobs"),
    "owners": lambda moment: moment.shares("owners"),
    **{name: partial(_xids, name) for name in COUNTERS},
    "power_cap_drift_w": lambda moment: moment.drift("power"),
    "clock_lock_drifted": lambda moment: moment.drift("clocks"),
}

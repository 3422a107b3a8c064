"""The fleet's GPUs as targets of rules: one row per slot."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpudeck.contract.limits import TimedLimit
from gpudeck.contract.wire import Beat
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN, Absence

from ...fleet.filters import Filter
from ...fleet.fleet import REPORTED, SILENT_AFTER_S, SUSPECT_AFTER_S, Fleet, GpuStatus, Node
from ...fleet.gpu_table import newest
from ...fleet.mig import NO_PARENT
from ...history.columns.layout import AT, as_stored
from .firing_alerts import AlertTarget
from .gpu_uses import GpuUseTable
from .numbers import FACTS, GPU, distinct_on_gpus, number_of_gpus
from .rule import Of
from .rule_signal import Floats, SignalTerm
from .rule_tracker import TargetStability, TargetValues
from .state_machine import Mask, Rows
from .xid_counts import COUNTERS, XidCounter

PRESENT = int(Absence.PRESENT)  # an int: numpy probes an IntEnum for array interfaces
NEVER = np.isin(np.arange(256), (Absence.UNSUPPORTED, Absence.DENIED))  # by code
T = TypeVar("T")
NO_ROWS = np.empty(0, np.intp)
KNOWN_WHILE_SILENT = frozenset(("lost", "error", "sample_age_s", "is_board", "node_silent_s",
                                "node_reading_age_s", *COUNTERS))
# A node reports these when they change: they hold for as long as the node is heard.
REPORTED_ON_CHANGE = frozenset(("power_cap_drift_w", "clock_lock_drifted"))


@dataclass(frozen=True, slots=True)
class HubSelfMetrics:
    """Metrics of the hub about itself. `blind_s`: seconds of the last minute in which no rule was
    evaluated."""

    rules_failing: int = 0  # not evaluated, or not correctly
    blind_s: float = 0.0
    brakes_on: int = 0  # the breaker and storms
    is_unrecorded: bool = False  # the audit log accepts nothing


CALM = HubSelfMetrics()


@dataclass(slots=True)
class EvaluationContext:
    """Values that all targets of one step share. Other greenlets run between two rules: GPUs and
    nodes that join in the meantime appear at the next step, or the columns of this one would differ
    in length."""

    fleet: Fleet
    now: float
    mono: float
    listens_since: float  # monotonic: silence before that is not the nodes' own
    uses: GpuUseTable
    xids: XidCounter
    fresh_gpus: Rows  # slots that another GPU has taken since the last step
    hub: HubSelfMetrics = CALM
    revoked: Collection[str] = ()  # nodes whose silence is no news
    # By node: GPUs that a scheduler has allocated without a process of the job.
    unused: Callable[[], Mapping[str, float]] = dict
    cache: dict[Hashable, Any] = field(default_factory=dict)
    gpu_count: int = field(init=False)
    node_count: int = field(init=False)
    nodes: list[Node] = field(init=False)
    node_at: Rows = field(init=False)  # of each slot

    def __post_init__(self) -> None:
        self.nodes = [self.fleet.all_nodes[node_id] for node_id in self.fleet.node_ids]
        self.gpu_count, self.node_count = len(self.fleet), len(self.nodes)
        self.node_at = self.fleet.node_at[: self.gpu_count].astype(np.intp)

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` makes, once for all rules that ask for this key."""
        if key not in self.cache:
            self.cache[key] = make()
        value: T = self.cache[key]
        return value

    def standing(self) -> TargetStability:
        """Return the stability of each node."""
        return self.cached("standing", lambda: TargetStability(
            self.mono - np.maximum(self.of_nodes("steady_mono"), self.listens_since),
            self.of_nodes("clock_offset_s")))

    def by_node(self, value_of: Callable[[Node], float | None]) -> Floats:
        """Return a value of each node; None becomes NaN."""
        return np.array([value_of(node) for node in self.nodes], float)

    def of_nodes(self, attribute: str) -> Floats:
        """Return an attribute of each node; None becomes NaN."""
        return self.cached(("of nodes", attribute), lambda: np.array(
            [*map(attrgetter(attribute), self.nodes)], float))

    def beats(self) -> list[Beat | None]:
        """Return the Beat of each node; None if it is old."""
        return self.cached("beats", lambda: [fresh_beat(node, self.mono) for node in self.nodes])

    def live(self, name: str) -> TargetValues:
        """Return a metric of each slot from its newest sample, rounded as history stores it, so
        that a rehearsal finds the same."""
        fleet, size = self.fleet, self.gpu_count
        values, absent = newest(fleet, name, self.mono, size)
        is_there = (fleet.reported[:size] == 0) & (absent == PRESENT)
        if name in AT:
            values = as_stored(name, values)
        return TargetValues(np.where(is_there, values, np.nan), NEVER[absent])

    def shares(self, group: str) -> Floats:
        """Return how many jobs, or owners, are on each slot; NaN where one of them is not known."""
        uses = self.uses
        of_row = uses.job if group == "jobs" else uses.owner
        return self.cached(group, lambda: np.where(self.are_tasks_known(), uses.reuse(
            (group, self.gpu_count), lambda: distinct_on_gpus(
                uses.slot, of_row[uses.row], self.gpu_count)), np.nan))

    def are_tasks_known(self) -> Mask:
        """Return, for each slot, whether the users of its GPU are known."""
        return self.fleet.are_users_known[: self.gpu_count].copy()

    def by_gpu(self, of_nodes: Floats) -> Floats:
        return of_nodes[self.node_at]

    def silent_s(self) -> Floats:
        """Return for how long each node has been silent. NaN while a node that has not reported
        since this hub listens still has time to: silence counts by the hub's own measure."""
        def compute() -> Floats:
            silent_s = self.mono - np.maximum(self.of_nodes("heard_mono"), self.listens_since)
            return np.where(self.awaited(), np.nan, silent_s)

        return self.cached("silent_s", compute)

    def awaited(self) -> Mask:
        """Return, for each node, whether it has not reported since this hub listens, and still has
        time to."""
        def compute() -> Mask:
            heard_mono = self.of_nodes("heard_mono")
            since = np.maximum(self.of_nodes("recovered_mono"), self.listens_since)
            return np.asarray((heard_mono <= since) & (self.mono - since < SILENT_AFTER_S))

        return self.cached("awaited", compute)

    def reading_age_s(self) -> Floats:
        """Return the age of each node's last reading. Only a running agent knows whether its driver
        answers."""
        return self.cached("reading_age_s", lambda: np.array(
            [*map(self._reading_age_s, self.nodes, self.beats())], float))

    def _reading_age_s(self, node: Node, beat: Beat | None) -> float | None:
        if beat is None:
            return None
        if beat.reading_age_s is not None:
            return beat.reading_age_s + max(0.0, self.mono - node.beat_mono)
        return self.mono - max(node.joined_mono, self.listens_since) if has_gpus(node) else None

    def is_there(self) -> Mask:
        """Return, for each node, whether this hub watches it."""
        return np.array([node.hello.node_id not in self.revoked and not node.is_imported
                         and node.site is None
                         for node in self.nodes], bool)

    def own_gpus(self) -> Mask:
        """Return, for each slot, whether this hub watches it: a GPU of another site is left to that
        site's hub."""
        fleet, size = self.fleet, self.gpu_count
        return np.asarray(~fleet.retired[:size] & ~fleet.viewed[:size])

    def boards(self) -> Mask:
        """Return, for each slot, whether it is a physical GPU of this hub."""
        fleet, size = self.fleet, self.gpu_count
        return np.asarray(self.own_gpus() & (fleet.parent[:size] == NO_PARENT))

    def is_in(self, state: GpuStatus) -> Mask:
        statuses = self.fleet.statuses(self.mono)[: self.gpu_count]
        return np.asarray(self.own_gpus() & (statuses == state))

    def drift(self, what: str) -> Floats:
        """Return, for each slot, how far a limit that was set is from what its node reads back: 0
        where none was set, NaN where the node has not reported or cannot tell."""
        return self.cached(what, lambda: self._drift(what))

    def _drift(self, what: str) -> Floats:
        drift = self.by_node(lambda node: None if node.limits is None else 0.0)[self.node_at]
        for node in self.nodes:
            for lease in () if node.limits is None else node.limits.leases:
                slot = self.fleet.slot_on(node.hello.node_id, lease.gpu_uuid)
                if slot is not None and slot < len(drift) and lease.what == what:
                    drift[slot] = _drift(lease)
        return drift


def has_gpus(node: Node) -> bool:
    return node.listing is not None and bool(node.listing.order)


def fresh_beat(node: Node, mono: float) -> Beat | None:
    is_fresh = node.connected and mono - node.beat_mono < SUSPECT_AFTER_S
    return node.beat if is_fresh else None


def reported(moment: EvaluationContext, state: GpuStatus) -> Floats:
    """Return, for each slot, 1 or 0 by the last report of its node; NaN while the node is
    awaited."""
    fleet, size = moment.fleet, moment.gpu_count
    is_in_state = moment.own_gpus() & (fleet.reported[:size] == REPORTED[state])
    return np.where(moment.awaited()[moment.node_at], np.nan, is_in_state)


class FixedRowTargets(ABC):
    """Targets on which no action is possible, and whose rows keep their targets unless `fresh` says
    otherwise."""

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
        cache = self.moment.cache
        if "standing" not in cache:
            self.moment.standing()
            yield
        if scope is not None and ("scope", self.of, scope.text) not in cache:
            self.in_scope(scope)
            yield
        for name in names & GPU.keys():
            if ("gpu", name) not in cache:
                self.numbers(SignalTerm("last", name))
                yield
        for name in names & OF_NODES.keys():
            if OF_NODES[name][0] not in cache:
                OF_NODES[name][1](self.moment)
                yield

    def matters_to(self, row: int) -> list[tuple[str, str]]:
        """Return the node and id of the tasks that a row is about."""
        return []


def _drift(lease: TimedLimit) -> float:
    match lease.state:
        case "in_force":
            return 0.0
        case "drifted" | "not_in_force":
            if lease.what == "clocks":
                return 1.0  # NVML reports the clock, not the lock
            return np.nan if lease.seen is None else abs(lease.seen - lease.wanted[0])
        case _:
            return np.nan


class GpuTargets(FixedRowTargets):
    """GPUs as targets. Numbers in KNOWN_WHILE_SILENT are known for a GPU without samples too: rules
    about silence must not be silent, and an Xid is no reading. All others come from the newest
    sample, and from none older."""

    of = "gpu"

    @property
    def fresh(self) -> Rows:
        return self.moment.fresh_gpus[self.moment.fresh_gpus < self.size]

    def _there(self) -> Mask:
        return self.moment.own_gpus()

    def sampled_at(self, names: frozenset[str]) -> Floats:
        if names <= KNOWN_WHILE_SILENT:
            return np.full(self.size, self.moment.now)
        if names <= REPORTED_ON_CHANGE:
            return self.moment.of_nodes("heard_at")[self.moment.node_at]
        return self.fleet.sampled_at[: self.size].copy()

    def numbers(self, term: SignalTerm) -> TargetValues:
        name, moment = term.name, self.moment
        if name in COLUMN or name in SLOW_COLUMN:
            live = moment.live(name)
            return TargetValues(live.values[: self.size], live.cannot[: self.size])
        if name in FACTS:
            facts = self.fleet.fact(name)[: self.size]
            return TargetValues(facts, np.isnan(facts))
        if name in GPU:
            return moment.cached(("gpu", name), lambda: self._derived(name))
        return TargetValues(np.asarray(NOW[name](moment)[: self.size], float))

    def _derived(self, name: str) -> TargetValues:
        parts = {part: self.numbers(SignalTerm("last", part)) for part in GPU[name].of}
        return TargetValues(
            number_of_gpus(name, lambda part: parts[part].values),
            np.logical_or.reduce([parts[part].cannot for part in GPU[name].needs]))

    def in_scope(self, scope: Filter) -> Mask:
        return self.moment.cached(("scope", self.of, scope.text), lambda: scope.matches(
            self.fleet, self.moment.mono)[: self.size])

    def standing(self) -> TargetStability:
        of_node, at = self.moment.standing(), self.moment.node_at
        return self.moment.cached("standing of gpus", lambda: TargetStability(
            of_node.steady_s[at], of_node.skew_s[at]))

    def name(self, row: int) -> AlertTarget:
        fleet, node = self.fleet, self.fleet.node_of(row)
        users = tuple(sorted(fleet.owners[number] for number in fleet.users[row] or ()
                             if number < len(fleet.owners)))
        return AlertTarget(fleet.uuids[row], node.hello.node_id, node.hello.host,
                           fleet.facts[row].place, users, (fleet.uuids[row],))

    def identity(self, row: int) -> str:
        """Return the identity of a row. A board may have moved to another node, where it is another
        target."""
        return f"{self.fleet.node_of(row).hello.node_id} {self.fleet.uuids[row]}"


# Numbers that rules on GPUs and on nodes share.
OF_NODES: dict[str, tuple[str, Callable[[EvaluationContext], Floats]]] = {
    f"{of}{name}": (name, make) for of in ("", "node_") for name, make in (
        ("silent_s", EvaluationContext.silent_s),
        ("reading_age_s", EvaluationContext.reading_age_s))}


def _tasks(moment: EvaluationContext) -> Floats:
    is_known = moment.are_tasks_known()
    return np.where(is_known, moment.fleet.task_count[: len(is_known)], np.nan)


def _sample_age_s(moment: EvaluationContext) -> Floats:
    """Return the age of each GPU's newest sample, or the time since it joined if that is shorter:
    it could give none before."""
    fleet, size = moment.fleet, moment.gpu_count
    joined_mono = np.fmax(fleet.listed_mono[:size], moment.listens_since)
    return np.asarray(moment.mono - np.maximum(fleet.sampled_mono[:size], joined_mono))


def _xids(name: str, moment: EvaluationContext) -> Floats:
    return moment.xids.counts(moment.fleet, name)


NOW: dict[str, Callable[[EvaluationContext], npt.NDArray[Any]]] = {
    "lost": lambda moment: reported(moment, GpuStatus.LOST),
    "error": lambda moment: reported(moment, GpuStatus.ERROR),
    "sample_age_s": _sample_age_s,
    "is_board": lambda moment: moment.boards(),
    "node_silent_s": lambda moment: moment.by_gpu(moment.silent_s()),
    "node_reading_age_s": lambda moment: moment.by_gpu(moment.reading_age_s()),
    "tasks": _tasks,
    "jobs": lambda moment: moment.shares("jobs"),
    "owners": lambda moment: moment.shares("owners"),
    **{name: partial(_xids, name) for name in COUNTERS},
    "power_cap_drift_w": lambda moment: moment.drift("power"),
    "clock_lock_drifted": lambda moment: moment.drift("clocks"),
}

"""Nodes, and the fleet as a whole, as what Rules look at."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gpudeck.wire import Beat

from ...fleet.filters import Filter
from ...fleet.fleet import Fleet, GpuStatus, Node
from ...fleet.mig import NO_PARENT
from .firing_alerts import AlertTarget
from .gpu_targets import EvaluationContext
from .numbers import FLEET, NODE, number_of_fleet, number_of_nodes
from .rule_signal import Floats, SignalTerm
from .rule_tracker import TargetStability, TargetValues
from .state_machine import Mask, Rows

NO_ROWS = np.empty(0, np.intp)
FLEET_KEY = "fleet"


@dataclass(slots=True)
class NodeTargets:
    """What is known of who is silent is known now: `silent_s`, how many Gpus and Tasks it had, and
    how old all else is. What its Gpus do is known while a sample is fresh."""

    moment: EvaluationContext
    left: frozenset[str] = frozenset()  # who was sent away: their silence is no news
    there: Mask = field(init=False)
    fresh: Rows = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.moment.fleet.node_ids)
        self.there = np.array([node_id not in self.left for node_id in self.moment.fleet.node_ids],
                              bool)
        self.fresh = NO_ROWS  # a Node keeps its number

    def sampled_at(self, names: frozenset[str]) -> Floats:
        if names <= OF_THE_SILENT:
            return np.full(self.size, self.moment.now)
        return np.array([node.heard_at for node in self.moment.nodes()[: self.size]], float)

    def numbers(self, term: SignalTerm) -> TargetValues:
        values = self._of_gpus(term.name) if term.name in NODE else NOW[term.name](self)
        return TargetValues(np.asarray(values[: self.size], float), np.zeros(self.size, bool))

    def _of_gpus(self, name: str) -> Floats:
        fleet, values = self.moment.fleet, self.moment.live(name).values
        size = len(values)
        return np.asarray(number_of_nodes(
            name, values[:, None], fleet.node_at[:size].astype(np.intp), ~fleet.retired[:size],
            fleet.parent[:size] == NO_PARENT, self.size)[:, 0])

    def in_scope(self, scope: Filter) -> Mask:
        key = ("node", scope.text)
        if key not in self.moment.scopes:
            self.moment.scopes[key] = nodes_in_scope(self.moment.fleet, scope, self.moment.mono)
        return self.moment.scopes[key][: self.size]

    def standing(self) -> TargetStability:
        found = self.moment.standing()
        return TargetStability(found.steady_s[: self.size], found.skew_s[: self.size])

    def each(self, of: Callable[[Node], float | None]) -> Floats:
        return np.array([of(node) for node in self.moment.nodes()[: self.size]], float)

    def told(self, of: Callable[[Beat], float | None]) -> Floats:
        return self.each(lambda node: None if node.beat is None else of(node.beat))

    def boards(self) -> Mask:
        fleet, size = self.moment.fleet, len(self.moment.fleet)
        return np.asarray(~fleet.retired[:size] & (fleet.parent[:size] == NO_PARENT))

    def count(self, which: Mask) -> Floats:
        """How many GPUs of each node."""
        at = self.moment.fleet.node_at[: len(which)]
        return np.bincount(at[which], minlength=self.size).astype(float)

    def name(self, row: int) -> AlertTarget:
        node_id = self.moment.fleet.node_ids[row]
        return AlertTarget(node_id, node_id, self.moment.fleet.nodes[node_id].hello.host)

    def identity(self, row: int) -> str:
        return self.moment.fleet.node_ids[row]

    def matters_to(self, row: int) -> list[tuple[str, str]]:
        return []


def nodes_in_scope(fleet: Fleet, scope: Filter, mono: float) -> Mask:
    """Nodes whose GPUs are all meant; a node without a GPU is not."""
    size, nodes = len(fleet), len(fleet.node_ids)
    there, at = ~fleet.retired[:size], fleet.node_at[:size]
    meant = there & scope.matches(fleet, mono)[:size]
    of_node = np.bincount(at[there], minlength=nodes)
    return np.asarray((of_node > 0) & (np.bincount(at[meant], minlength=nodes) == of_node))


def _reading_age_s(targets: NodeTargets) -> Floats:
    """It goes on growing while no Beat comes."""
    mono = targets.moment.mono
    return targets.each(lambda node: None if node.beat is None or node.beat.reading_age_s is None
                      else node.beat.reading_age_s + max(0.0, mono - node.beat_mono))


NOW: dict[str, Callable[[NodeTargets], Floats]] = {
    "silent_s": lambda targets: targets.moment.mono - np.maximum(
        targets.each(lambda node: node.heard_mono), targets.moment.listens_since),
    "clock_offset_s": lambda targets: targets.each(lambda node: node.clock_offset_s),
    "clock_skew_s": lambda targets: np.abs(targets.each(lambda node: node.clock_offset_s)),
    "gpus": lambda targets: targets.count(targets.boards()),
    "gpus_lost": lambda targets: targets.count(targets.boards() & (
        targets.moment.fleet.shown(targets.moment.mono) == GpuStatus.LOST)),
    "tasks": lambda targets: targets.each(
        lambda node: len(node.tasks) if node.are_tasks_known else None),
    "reading_age_s": _reading_age_s,
    "pending": lambda targets: targets.told(lambda beat: beat.pending),
    "dropped": lambda targets: targets.told(lambda beat: beat.dropped),
    "outbox_bytes": lambda targets: targets.told(
        lambda beat: None if beat.cost is None else beat.cost.outbox_bytes),
}
OF_THE_SILENT = frozenset(("silent_s", "gpus", "gpus_lost", "tasks", "reading_age_s"))


@dataclass(slots=True)
class FleetTarget:
    """One row."""

    moment: EvaluationContext
    left: frozenset[str] = frozenset()
    there: Mask = field(default_factory=lambda: np.ones(1, bool))
    fresh: Rows = field(default_factory=lambda: NO_ROWS)

    def sampled_at(self, names: frozenset[str]) -> Floats:
        return np.array([self.moment.now])

    def numbers(self, term: SignalTerm) -> TargetValues:
        value = number_of_fleet(term.name, self)[0] if term.name in FLEET else (
            NOW_OF_FLEET[term.name](self))
        return TargetValues(np.array([value], float), np.zeros(1, bool))

    def in_scope(self, scope: Filter) -> Mask:
        """The whole, or nothing: a part of the fleet is not the fleet."""
        return np.zeros(1, bool)

    def standing(self) -> TargetStability | None:
        return None

    # -- the columns of its numbers

    def is_there(self) -> Mask:
        return NodeTargets(self.moment, self.left).there[:, None]

    def is_silent(self) -> Mask:
        silent = np.array([node.state == "silent" for node in self.moment.nodes()], bool)
        return np.asarray(self.is_there() & silent[:, None])

    def boards(self) -> Floats:
        return np.array([self._boards().sum()], float)

    def is_lost(self) -> Mask:
        lost = self.moment.fleet.shown(self.moment.mono) == GpuStatus.LOST
        return np.asarray((self._boards() & lost)[:, None])

    def _boards(self) -> Mask:
        return NodeTargets(self.moment, self.left).boards()

    def live(self, name: str) -> Floats:
        works = self.moment.fleet.shown(self.moment.mono) == GpuStatus.OK
        return np.where(works, self.moment.live(name).values, np.nan)[:, None]

    # -- who

    def name(self, row: int) -> AlertTarget:
        return AlertTarget(FLEET_KEY, "", "")

    def identity(self, row: int) -> str:
        return FLEET_KEY

    def matters_to(self, row: int) -> list[tuple[str, str]]:
        return []


def _free(moment: EvaluationContext) -> float:
    """As the filter `state:free` counts them: works, is not split, and nobody is on it."""
    fleet, known = moment.fleet, moment.are_tasks_known()
    works = known & (fleet.shown(moment.mono) == GpuStatus.OK)
    return float((works & ~fleet.is_split() & (fleet.task_count[: len(known)] == 0)).sum())


NOW_OF_FLEET: dict[str, Callable[[FleetTarget], float]] = {
    "gpus_free": lambda targets: _free(targets.moment),
    "rules_failing": lambda targets: targets.moment.hub.rules_failing,
    "blind_s": lambda targets: targets.moment.hub.blind_s,
    "brakes_on": lambda targets: targets.moment.hub.brakes_on,
    "is_unrecorded": lambda targets: targets.moment.hub.is_unrecorded,
}

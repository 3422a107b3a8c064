"""Nodes, and the fleet as a whole, as what Rules look at."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gpudeck.wire import Beat

from ...fleet.filters import Filter
from ...fleet.fleet import GpuStatus, Node
from ...fleet.mig import NO_PARENT
from .firing_alerts import AlertTarget
from .gpu_targets import EvaluationContext
from .rule_signal import Floats, SignalTerm
from .rule_tracker import TargetStability, TargetValues
from .state_machine import Mask, Rows

NO_ROWS = np.empty(0, np.intp)
FLEET = "fleet"


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
        values = NODE[term.name](self)[: self.size]
        return TargetValues(np.asarray(values, float), np.zeros(self.size, bool))

    def in_scope(self, scope: Filter) -> Mask:
        """Whose Gpus are all meant; a Node without a Gpu is not."""
        fleet = self.moment.fleet
        key = ("node", scope.text)
        if key not in self.moment.scopes:
            size = len(fleet)
            meant = scope.matches(fleet, self.moment.mono)[:size]
            there, at = ~fleet.retired[:size], fleet.node_at[:size]
            of_node = np.bincount(at[there], minlength=self.size)
            self.moment.scopes[key] = (of_node > 0) & (
                np.bincount(at[there & meant], minlength=self.size) == of_node)
        return self.moment.scopes[key][: self.size]

    def standing(self) -> TargetStability:
        found = self.moment.standing()
        return TargetStability(found.steady_s[: self.size], found.skew_s[: self.size])

    def each(self, of: Callable[[Node], float | None]) -> Floats:
        return np.array([of(node) for node in self.moment.nodes()[: self.size]], float)

    def told(self, of: Callable[[Beat], float | None]) -> Floats:
        return self.each(lambda node: None if node.beat is None else of(node.beat))

    def by_node(self, values: Floats, which: Mask) -> Floats:
        at = self.moment.fleet.node_at[: len(values)]
        return np.bincount(at[which], values[which], self.size).astype(float)

    def boards(self) -> Mask:
        fleet, size = self.moment.fleet, len(self.moment.fleet)
        return np.asarray(~fleet.retired[:size] & (fleet.parent[:size] == NO_PARENT))

    def name(self, row: int) -> AlertTarget:
        node_id = self.moment.fleet.node_ids[row]
        return AlertTarget(node_id, node_id, self.moment.fleet.nodes[node_id].hello.host)

    def identity(self, row: int) -> str:
        return self.moment.fleet.node_ids[row]

    def matters_to(self, row: int) -> list[tuple[str, str]]:
        return []


def _gpus(scene: NodeTargets) -> Floats:
    boards = scene.boards()
    return scene.by_node(boards.astype(float), boards)


def _gpus_lost(scene: NodeTargets) -> Floats:
    lost = scene.moment.fleet.shown(scene.moment.mono) == GpuStatus.LOST
    return scene.by_node(lost.astype(float), scene.boards() & lost)


def _mean(scene: NodeTargets, name: str) -> Floats:
    """Of the Gpus that tell it."""
    values = scene.moment.live(name).values
    which = ~np.isnan(values) & ~scene.moment.fleet.retired[: len(values)]
    count = scene.by_node(np.ones(len(values)), which)
    total = scene.by_node(values, which)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _whole(scene: NodeTargets, name: str) -> Floats:
    """Not known where one of its boards does not tell."""
    boards = scene.boards()
    total = scene.by_node(scene.moment.live(name).values, boards)
    return np.where(_gpus(scene) > 0, total, np.nan)


def _most(scene: NodeTargets, name: str) -> Floats:
    values = scene.moment.live(name).values
    which = ~np.isnan(values) & scene.boards()
    found = np.full(scene.size, -np.inf)
    np.maximum.at(found, scene.moment.fleet.node_at[: len(values)][which], values[which])
    return np.where(np.isinf(found), np.nan, found)


def _reading_age_s(scene: NodeTargets) -> Floats:
    """It goes on growing while no Beat comes."""
    mono = scene.moment.mono
    return scene.each(lambda node: None if node.beat is None or node.beat.reading_age_s is None
                      else node.beat.reading_age_s + max(0.0, mono - node.beat_mono))


NODE: dict[str, Callable[[NodeTargets], Floats]] = {
    "silent_s": lambda scene: scene.moment.mono - np.maximum(
        scene.each(lambda node: node.heard_mono), scene.moment.listens_since),
    "clock_offset_s": lambda scene: scene.each(lambda node: node.clock_offset_s),
    "clock_skew_s": lambda scene: np.abs(scene.each(lambda node: node.clock_offset_s)),
    "gpus": _gpus,
    "gpus_lost": _gpus_lost,
    "tasks": lambda scene: scene.each(
        lambda node: len(node.tasks) if node.are_tasks_known else None),
    "util_pct": lambda scene: _mean(scene, "util_pct"),
    "power_w": lambda scene: _whole(scene, "power_w"),
    "temp_c": lambda scene: _most(scene, "temp_c"),
    "reading_age_s": _reading_age_s,
    "pending": lambda scene: scene.told(lambda beat: beat.pending),
    "dropped": lambda scene: scene.told(lambda beat: beat.dropped),
    "outbox_bytes": lambda scene: scene.told(
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
        return TargetValues(np.array([WHOLE[term.name](NodeTargets(self.moment, self.left))],
                                     float),
                            np.zeros(1, bool))

    def in_scope(self, scope: Filter) -> Mask:
        """The whole, or nothing: a part of the fleet is not the fleet."""
        return np.zeros(1, bool)

    def standing(self) -> TargetStability | None:
        return None

    def name(self, row: int) -> AlertTarget:
        return AlertTarget(FLEET, "", "")

    def identity(self, row: int) -> str:
        return FLEET

    def matters_to(self, row: int) -> list[tuple[str, str]]:
        return []


def _free(scene: NodeTargets) -> float:
    """As the filter `state:free` counts them: works, is not split, and nobody is on it."""
    fleet, size = scene.moment.fleet, len(scene.moment.fleet)
    told = np.fromiter((users is not None for users in fleet.users), bool, size)
    works = fleet.shown(scene.moment.mono) == GpuStatus.OK
    return float((told & works & ~fleet.is_split() & (fleet.task_count[:size] == 0)).sum())


def _of_live(scene: NodeTargets, name: str) -> Floats:
    values = scene.moment.live(name).values
    works = scene.moment.fleet.shown(scene.moment.mono) == GpuStatus.OK
    return np.asarray(values[works & ~np.isnan(values)])


WHOLE: dict[str, Callable[[NodeTargets], float]] = {
    "nodes": lambda scene: float(scene.there.sum()),
    "nodes_silent": lambda scene: float((scene.there & np.array(
        [node.state == "silent" for node in scene.moment.nodes()], bool)).sum()),
    "gpus": lambda scene: float(_gpus(scene).sum()),
    "gpus_lost": lambda scene: float(_gpus_lost(scene).sum()),
    "gpus_free": _free,
    "util_pct": lambda scene: float(found.mean()) if len(
        found := _of_live(scene, "util_pct")) else np.nan,
    "power_w": lambda scene: float(found.sum()) if len(
        found := _of_live(scene, "power_w")) else np.nan,
    "rules_failing": lambda scene: float(scene.moment.hub.rules_failing),
    "blind_s": lambda scene: scene.moment.hub.blind_s,
    "brakes_on": lambda scene: float(scene.moment.hub.brakes_on),
    "is_unrecorded": lambda scene: float(scene.moment.hub.is_unrecorded),
}

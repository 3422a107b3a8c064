"""Nodes, and the fleet as a whole, as targets of rules."""

from collections.abc import Callable

import numpy as np
from msgspec import UNSET

from gpudeck.contract.hosts import HOST_KEYS
from gpudeck.contract.wire import Beat, ReaderState

from ...fleet.available_gpus import available
from ...fleet.filters import Filter
from ...fleet.fleet import Fleet, GpuStatus
from ...fleet.mig import NO_PARENT
from .firing_alerts import AlertTarget
from .gpu_targets import EvaluationContext, FixedRowTargets, has_gpus, reported
from .numbers import FLEET, NODE, number_of_fleet, number_of_nodes
from .rule_signal import Floats, SignalTerm
from .rule_tracker import TargetStability, TargetValues
from .state_machine import Mask

FLEET_KEY = "fleet"
MOST_NODES_FROM = 3  # clocks that have one in the middle


class NodeTargets(FixedRowTargets):
    """Nodes as targets. Numbers in KNOWN_WHILE_SILENT are known now even for a silent node, such as
    `silent_s` and how many GPUs and tasks it had. What its GPUs do is known while a sample is
    fresh."""

    of = "node"

    def _there(self) -> Mask:
        return self.moment.is_there()

    def sampled_at(self, names: frozenset[str]) -> Floats:
        if names <= KNOWN_WHILE_SILENT:
            return np.full(self.size, self.moment.now)
        return self.moment.of_nodes("heard_at")

    def numbers(self, term: SignalTerm) -> TargetValues:
        values = self._of_gpus(term.name) if term.name in NODE else NOW[term.name](self.moment)
        return TargetValues(np.asarray(values, float))

    def _of_gpus(self, name: str) -> Floats:
        fleet, values = self.fleet, self.moment.live(name).values
        size = len(values)
        return np.asarray(number_of_nodes(
            name, values[:, None], self.moment.node_at, ~fleet.retired[:size],
            fleet.parent[:size] == NO_PARENT, self.size)[:, 0])

    def in_scope(self, scope: Filter) -> Mask:
        return self.moment.cached(("scope", self.of, scope.text), lambda: nodes_in_scope(
            self.fleet, scope, self.moment.mono))[: self.size]

    def standing(self) -> TargetStability:
        return self.moment.standing()

    def name(self, row: int) -> AlertTarget:
        node_id = self.fleet.node_ids[row]
        return AlertTarget(node_id, node_id, self.fleet.all_nodes[node_id].hello.host)

    def identity(self, row: int) -> str:
        return self.fleet.node_ids[row]


def nodes_in_scope(fleet: Fleet, scope: Filter, mono: float) -> Mask:
    """Return the nodes whose GPUs are all in scope; a node without a GPU is not."""
    size, nodes = len(fleet), len(fleet.node_ids)
    there, at = ~fleet.retired[:size], fleet.node_at[:size]
    in_scope = there & scope.matches(fleet, mono)[:size]
    of_node = np.bincount(at[there], minlength=nodes)
    return np.asarray((of_node > 0) & (np.bincount(at[in_scope], minlength=nodes) == of_node))


def _beat(value_of: Callable[[Beat], float | None]) -> Callable[[EvaluationContext], Floats]:
    return lambda moment: moment.by_node(
        lambda node: None if node.beat is None else value_of(node.beat))


def _of_host(key: str) -> Callable[[EvaluationContext], Floats]:
    def numbers(moment: EvaluationContext) -> Floats:
        samples = (node.host_now(moment.mono) for node in moment.nodes)
        return np.array([None if sample is None else sample.number(key)
                         for sample in samples], float)

    return numbers


def _boards(moment: EvaluationContext, which: Floats) -> Floats:
    """Return how many boards of each node are in a state; NaN where it is not known for one of
    them."""
    boards = moment.boards()
    return np.bincount(moment.node_at[boards], which[boards],
                       minlength=moment.node_count).astype(float)


def _reader_is(*states: ReaderState) -> Callable[[EvaluationContext], Floats]:
    """Return 1 or 0 for each node, NaN without a fresh Beat; 0 for a node without a GPU, which has
    no driver to lose."""
    def flags(moment: EvaluationContext) -> Floats:
        return np.array([
            None if beat is None else float(beat.reader in states and has_gpus(node))
            for node, beat in zip(moment.nodes, moment.beats(), strict=True)], float)

    return flags


def _without_process(moment: EvaluationContext) -> Floats:
    unused = moment.unused()
    return moment.by_node(lambda node: unused.get(node.hello.node_id))


NOW: dict[str, Callable[[EvaluationContext], Floats]] = {
    "silent_s": lambda moment: moment.silent_s(),
    "refused_s": lambda moment: moment.by_node(lambda node: node.refused_s(moment.mono)),
    "clock_offset_s": lambda moment: moment.of_nodes("clock_offset_s"),
    "clock_skew_s": lambda moment: np.abs(moment.of_nodes("clock_offset_s")),
    "gpus": lambda moment: _boards(moment, np.ones(moment.gpu_count)),
    "gpus_lost": lambda moment: _boards(moment, reported(moment, GpuStatus.LOST)),
    "tasks": lambda moment: moment.by_node(
        lambda node: len(node.tasks) if node.are_tasks_known else None),
    "reading_age_s": lambda moment: moment.reading_age_s(),
    "driver_gone": _reader_is("no_driver", "no_library"),
    "driver_released": _reader_is("released"),
    "gpus_without_process": _without_process,
    "pending": _beat(lambda beat: beat.pending),
    "dropped": _beat(lambda beat: beat.dropped),
    "outbox_bytes": _beat(lambda beat: None if beat.cost is None else beat.cost.outbox_bytes),
    "outbox_in_memory": _beat(
        lambda beat: None if beat.is_in_memory is UNSET else float(beat.is_in_memory)),
    **{f"host_{key}": _of_host(key) for key in HOST_KEYS},
}
KNOWN_WHILE_SILENT = frozenset(("silent_s", "gpus", "gpus_lost", "tasks", "reading_age_s",
                                "driver_gone", "driver_released", "refused_s"))


class FleetTarget(FixedRowTargets):
    """The fleet as a target: one row, and the columns of its numbers."""

    of = "fleet"

    def _there(self) -> Mask:
        return np.ones(1, bool)

    def sampled_at(self, names: frozenset[str]) -> Floats:
        return np.array([self.moment.now])

    def numbers(self, term: SignalTerm) -> TargetValues:
        value = number_of_fleet(term.name, self)[0] if term.name in FLEET else (
            NOW_OF_FLEET[term.name](self.moment))
        if term.name == "nodes_silent" and (self.moment.awaited() & self.moment.is_there()).any():
            value = np.nan
        return TargetValues(np.array([value], float))

    def in_scope(self, scope: Filter) -> Mask:
        """Return no target: a part of the fleet is not the fleet."""
        return np.zeros(1, bool)

    def standing(self) -> TargetStability | None:
        return None

    def is_there(self) -> Mask:
        return self.moment.is_there()[:, None]

    def is_silent(self) -> Mask:
        silent = np.array([node.state == "silent" for node in self.moment.nodes], bool)
        return np.asarray(self.is_there() & silent[:, None])

    def boards(self) -> Floats:
        return np.array([self.moment.boards().sum()], float)

    def is_lost(self) -> Mask:
        return np.asarray((self.moment.boards() & self.moment.is_in(GpuStatus.LOST))[:, None])

    def live(self, name: str) -> Floats:
        works = self.moment.is_in(GpuStatus.OK)
        return np.where(works, self.moment.live(name).values, np.nan)[:, None]

    def name(self, row: int) -> AlertTarget:
        return AlertTarget(FLEET_KEY, "", "")

    def identity(self, row: int) -> str:
        return FLEET_KEY


def _free(moment: EvaluationContext) -> float:
    """Return the number of free GPUs, counted as the filter `state:free` does."""
    show = moment.fleet.statuses(moment.mono)
    free = available(moment.fleet, show, moment.mono)[: moment.gpu_count]
    return float((moment.is_in(GpuStatus.OK) & free).sum())


def _hub_clock_skew_s(moment: EvaluationContext) -> float:
    """Return how far the median of all connected nodes' clocks is from the hub's: where most nodes
    are off by the same, the hub's clock is. NaN for fewer than three nodes, as of two nobody knows
    which is right."""
    offsets = moment.by_node(lambda node: node.clock_offset_s if node.connected else None)
    known_offsets = offsets[~np.isnan(offsets)]
    return float(abs(np.median(known_offsets))) if len(known_offsets) >= MOST_NODES_FROM else np.nan


NOW_OF_FLEET: dict[str, Callable[[EvaluationContext], float]] = {
    "gpus_free": _free,
    "hub_clock_skew_s": _hub_clock_skew_s,
    "rules_failing": lambda moment: moment.hub.rules_failing,
    "blind_s": lambda moment: moment.hub.blind_s,
    "brakes_on": lambda moment: moment.hub.brakes_on,
    "is_unrecorded": lambda moment: moment.hub.is_unrecorded,
    "disk_refuses": lambda moment: moment.fleet.disk_error is not None,
}

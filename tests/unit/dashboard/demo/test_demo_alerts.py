"""Alerts that a visitor of a demo sees: few, each once, and the wasted GPU among them; by the
product's own rules, over the simulated fleet's first ten minutes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import structs

from agent.backends.simulation.board import ChassisSlot
from agent.backends.simulation.jobs import jobs_at
from agent.backends.simulation.scenes import SLOW_RANK, STUCK_NODE
from agent.backends.simulation.stage import WINDOW_S, lost_gpu
from agent.backends.simulation.world import SimulationOptions, units_of
from agent.simulator.past import DemoHistoryNode
from dashboard.alerts.active_rules import shipped_rules
from dashboard.alerts.core.evaluator import RuleEvaluator
from dashboard.alerts.core.firing_alerts import FiringAlerts
from dashboard.alerts.core.rule import check
from dashboard.alerts.core.target_collector import NamedRuleTargets, RuleTargetCollector
from dashboard.automation.alert_mutes import AlertMutes
from dashboard.automation.alert_targets import AlertTargets
from dashboard.demo.fleet import LOST_PER_QUARTER_HOUR, NODE_ODDS_MAX, node_name, pool_numbers
from dashboard.demo.rules import demo_rules
from dashboard.fleet.events import FleetEvent, RecentEvents
from dashboard.fleet.fleet import Fleet, Node
from gpudeck.contract.wire import Event, Frame, Inventory
from tests.unit import fleets

AT = 1_763_640_000
SEED = 1  # the demo's own
MOST = 3
SECONDS = 600
READ_EVERY_S = 5  # its boards; the seconds between repeat what was read


@dataclass
class HealthyDemo:
    nodes: int
    fleet: Fleet = field(default_factory=lambda: Fleet(1))
    events: RecentEvents = field(default_factory=RecentEvents)
    targets: dict[Any, NamedRuleTargets] = field(default_factory=dict)
    # Whether it is muted: as it is, if it were critical, and if it had fired minutes ago.
    slow_ranks: list[tuple[bool, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ready = {rule.id: check(rule) for rule in demo_rules() if rule.severity != "info"}
        self.evaluator, self.alerts = RuleEvaluator(), FiringAlerts()
        self.evaluator.set_rules(self.ready)
        self.collector = RuleTargetCollector(self.fleet, self.events)
        numbers = [number for number in range(1, self.nodes + 1)
                   if number not in pool_numbers(self.nodes)]
        self.simulated_nodes = [(self._add(node_name(number)), DemoHistoryNode(
            SimulationOptions(node_name(number), seed=SEED), None, range(AT, AT + SECONDS)))
            for number in numbers]

    def _add(self, name: str) -> Node:
        node = self.fleet.hello(fleets.hello(name, host=name), AT, AT)
        node.connected = True
        return node

    def matters_to(self, of: Any, row: int) -> list[tuple[str, str]]:
        return self.targets[of].matters_to(row)

    def seconds(self) -> Iterator[set[tuple[str, str, str]]]:
        """Yield, for each second, rule, host and place of what fires and is not explained."""
        frames: dict[str, Frame] = {}
        for at in range(AT, AT + SECONDS):
            for node, simulated in self.simulated_nodes:
                if (at - AT) % READ_EVERY_S == 0:
                    frames[node.hello.node_id] = self._read(node, simulated.second(at))
                last = frames[node.hello.node_id]
                node.hear(at, at)
                self.fleet.frame(node, structs.replace(
                    last, seq=at, taken_at=float(at), tasks=None if at > last.taken_at
                    else last.tasks), at, at)
            yield self._look(at)

    def _read(self, node: Node, messages: Iterator[Any]) -> Frame:
        frames: list[Frame] = []
        for message in messages:
            if isinstance(message, Inventory):
                self.fleet.inventory(node, message)
            elif isinstance(message, Event):
                self.events.add(FleetEvent(node.hello.node_id, "s", message.taken_at, None,
                                           message))
            else:
                frames.append(message)
        return frames[-1]

    def _look(self, at: int) -> set[tuple[str, str, str]]:
        self.targets = dict(self.collector.look(at, at, AT - 60))
        for changes in self.evaluator.step(self.targets, at):
            for change in changes:
                list(self.alerts.take(change, lambda of, row: self.targets[of].name(row)))
        service: Any = self
        targets = AlertTargets(service, at, self.alerts.open())
        mutes = AlertMutes(service, targets, at, self.alerts.recently_ended(at), {}, ())
        self.slow_ranks += [tuple(
            mutes.is_muted(row, variant) for variant in (
                alert, structs.replace(alert, severity="crit"),
                structs.replace(alert, fired_at=at - 301.0)))
            for row, alert in self.alerts.open() if alert.rule_id == "rank-lagging"]
        return {(alert.rule_id, alert.target.host, alert.target.place)
                for row, alert in self.alerts.open() if not mutes.is_muted(row, alert)}


def test_a_healthy_demo_has_at_most_three_alerts_and_the_wasted_gpu_is_one() -> None:
    """The slow rank follows from the heat of its board, and is not said beside it, nor in the
    minutes before the heat has lasted for long enough to be an alert."""
    demo = HealthyDemo(8)
    visible: set[tuple[str, str, str]] = set()
    ever: set[tuple[str, str, str]] = set()
    for visible in demo.seconds():
        assert len(visible) <= MOST, visible
        ever |= visible
    assert {rule for rule, _, _ in visible} == {"idle-held", "slowed-by-heat", "job-stuck"}
    assert {("idle-held", "n001", "5"), ("slowed-by-heat", "n003", str(SLOW_RANK))} <= visible
    assert {host for rule, host, _ in visible if rule == "job-stuck"} == {f"n{STUCK_NODE:03}"}
    assert "rank-lagging" in {alert.rule_id for alert in demo.alerts.firing()}
    assert {rule for rule, _, _ in ever} == {rule for rule, _, _ in visible}
    assert demo.slow_ranks[0] == (True, False, False), "it waits for the heat, and for no longer"
    assert demo.slow_ranks[-1] == (True, True, True), "the heat explains it"


def test_a_thousand_gpus_have_no_more_of_them() -> None:
    """Many hold little and do nothing: that is on the list of wasted GPUs, and no alert each."""
    large: list[tuple[str, int]] = []
    hot: list[tuple[str, int]] = []
    hogs = 0
    for number in range(1, 126):
        setup = SimulationOptions(node_name(number), seed=SEED)
        uuids, _ = units_of(setup)
        for job in jobs_at(SEED, setup.node, uuids, AT):
            hogs += job.kind == "hog"
            if job.kind == "hog" and job.mem_share >= 0.5:
                large.append((setup.node, uuids.index(job.gpus[0])))
        hot += [(setup.node, index) for index in range(setup.gpus)
                if ChassisSlot.of(SEED, setup.node, index, setup.board).per_watt
                > 1.3 * setup.board.temp_per_watt]
    assert large == [("n001", 5)]
    assert hot == [("n003", SLOW_RANK)]
    assert hogs > 10


@pytest.mark.parametrize("nodes", [8, 125])
def test_gpus_are_lost_one_after_the_other(nodes: int) -> None:
    odds = min(NODE_ODDS_MAX, LOST_PER_QUARTER_HOUR / nodes)
    nodes_by_minute = [_nodes_with_lost_gpu(nodes, odds, AT + second)
                       for second in range(0, int(12 * WINDOW_S), 60)]
    assert max(map(len, nodes_by_minute)) == 1
    assert len({name for names in nodes_by_minute for name in names}) > 3


def _nodes_with_lost_gpu(nodes: int, odds: float, at: float) -> Sequence[str]:
    return [name for name in map(node_name, range(1, nodes + 1))
            if lost_gpu(SEED, name, 8, at, odds) is not None]


def test_what_a_demos_rule_says_of_its_time_is_its_own_time() -> None:
    """Found by an examiner: an alert after five minutes spoke of two hours."""
    words = {"5m": "five minutes", "30m": "half an hour", "2h": "two hours"}
    shipped = {rule.id: rule for rule in shipped_rules()}
    changed = [rule for rule in demo_rules() if rule.for_ != shipped[rule.id].for_]
    assert "idle-held" in {rule.id for rule in changed}
    for rule in changed:
        formerly = words.get(shipped[rule.id].for_)
        if formerly is None or formerly not in shipped[rule.id].runbook:
            continue
        here, _, elsewhere = rule.runbook.partition("Elsewhere")
        assert (words[rule.for_] in here, formerly in here) == (True, False), rule.id
        assert formerly in elsewhere

"""A story of a fleet, told to a hub's live rules and to its history at once: load that changes,
GPUs that are lost, Nodes that fall silent."""

import random
from pathlib import Path
from typing import Any

import msgspec

from dashboard.alerts.core.evaluator import RuleEvaluator
from dashboard.alerts.core.firing_alerts import FiringAlerts
from dashboard.alerts.core.rule import CompiledRule, check, read
from dashboard.alerts.core.target_collector import RuleTargetCollector
from dashboard.alerts.rehearsal.engine import RehearsalEngine
from dashboard.alerts.rehearsal.fleet import FleetRehearsalSource
from dashboard.fleet.events import RecentEvents
from dashboard.fleet.fleet import Fleet
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.reads.embedded import EmbeddedHistory
from gpudeck.contract.wire import Inventory
from tests.unit import fleets

NODES, GPUS, MINUTES = 4, 3, 32
BEGIN = 1_700_000_000 - 1_700_000_000 % 86_400 - 960  # midnight comes while some are silent
END = BEGIN + MINUTES * 60
LAST = END - 60
SILENT = {"n1": (710, 1_190), "n2": (750, 900), "n3": (773, 1_055), "n0": (1_500, 1_548)}


def ready(rules: dict[str, dict[str, Any]], name: str, **change: Any) -> CompiledRule:
    return check(read({"id": name, "title": name, "scope": "*"} | rules[name] | change))


class Story:
    def __init__(self, folder: Path, seed: int, rules: dict[str, dict[str, Any]]) -> None:
        self.random = random.Random(seed)
        self.fleet, self.history = Fleet(1), EmbeddedHistory(folder / "history")
        self.history.open()
        self.spans = self.history.rules
        self.evaluator, self.alerts = RuleEvaluator(), FiringAlerts()
        self.evaluator.set_rules({name: ready(rules, name) for name in rules})
        self.scenes = RuleTargetCollector(self.fleet, RecentEvents())
        self.live: dict[str, list[Any]] = {name: [] for name in rules}
        self.level = {(at, gpu): 40.0 for at in range(NODES) for gpu in range(GPUS)}
        self.lost_gpus: set[tuple[int, int]] = set()
        self.seq = 0
        for at in range(NODES):
            node = fleets.add_node(self.fleet, f"n{at}", GPUS, mono=BEGIN)
            self.history.append([HistoryMessage(f"n{at}", "s1", 0.0, node.hello), HistoryMessage(
                f"n{at}", "s1", 0.0, Inventory(1, tuple(fleets.facts(f"n{at}", gpu)
                                                        for gpu in range(GPUS))))], 1)

    def run(self) -> None:
        for second in range(BEGIN, END):
            self.second(second)

    def second(self, second: int) -> None:
        now, messages = second + 0.5, []
        for at in range(NODES):
            first, last = SILENT.get(f"n{at}", (0, 0))
            if self.random.random() < 1 / 1_200:
                self.lost_gpus ^= {(at, self.random.randrange(GPUS))}
            if not first < second - BEGIN < last:
                messages.append(self.frame(at, second, now))
        self.history.append(messages, 1)
        self.fleet.tick(now)
        scenes = self.scenes.look(now, now, 0.0)
        for moved in self.evaluator.step(scenes, now):
            for change in moved:
                for alert in self.alerts.take(change, lambda of, row: scenes[of].name(row)):
                    self.keep(alert)

    def frame(self, at: int, second: int, now: float) -> HistoryMessage:
        rows, states = [], []
        for gpu in range(GPUS):
            if self.random.random() < 1 / 240:
                self.level[at, gpu] = float(self.random.randrange(101))
            level = self.level[at, gpu]
            is_lost = (at, gpu) in self.lost_gpus
            rows.append({} if is_lost else {"util_pct": level, "power_w": 4 * level})
            states.append("lost" if is_lost else "ok")
        self.seq += 1
        frame = fleets.frame(rows, self.seq, second + 0.2, states=states)
        node = self.fleet.nodes[f"n{at}"]
        node.hear(now, now)
        self.fleet.frame(node, frame, now, now)
        return HistoryMessage(f"n{at}", "s1", now, frame, second)

    def keep(self, alert: Any) -> None:
        """Keep an alert, with the value by which it began to fire."""
        mine = {live.id: live for live in self.live[alert.rule_id]}
        first = mine.get(alert.id, alert)
        mine[alert.id] = msgspec.structs.replace(alert, value=first.value)
        self.live[alert.rule_id] = list(mine.values())

    # -- the past

    def rehearsed(self, of: CompiledRule) -> tuple[FleetRehearsalSource, RehearsalEngine]:
        past = FleetRehearsalSource(self.spans, self.fleet, of)
        rehearsal = RehearsalEngine(of)
        for stretch in past.stretches(BEGIN, LAST if of.is_by_minutes else END):
            rehearsal.take(stretch)
        return past, rehearsal

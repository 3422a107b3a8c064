"""A story of Owners, told to a hub's live rules and to its history at once: Tasks that come and go
at any second, on shared GPUs and several Nodes; silence, lost Frames, and Xids."""

import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dashboard.alerts.core.evaluator import RuleEvaluator
from dashboard.alerts.core.firing_alerts import FiringAlerts
from dashboard.alerts.core.minute_aggregates import RuleMinuteAggregator
from dashboard.alerts.core.rule import CompiledRule, check, read
from dashboard.alerts.core.rule_signal import SignalTerm
from dashboard.alerts.core.target_collector import RuleTargetCollector
from dashboard.alerts.rehearsal.engine import RehearsalEngine
from dashboard.alerts.rehearsal.fleet import FleetRehearsalSource
from dashboard.alerts.rehearsal.owners import OwnerRehearsalSource
from dashboard.fleet.events import FleetEvent, RecentEvents
from dashboard.fleet.fleet import Fleet
from dashboard.history.embedded import EmbeddedHistory
from dashboard.history.rows import HistoryMessage
from gpudeck.wire import Event, Inventory, Task, Tasks, Use
from tests.unit import fleets

NODES, GPUS, MINUTES = 4, 3, 32
BEGIN = 1_700_000_000 - 1_700_000_000 % 86_400 - 960  # midnight comes while some are silent
END = BEGIN + MINUTES * 60
LAST = END - 60  # the minute after it is not closed when the story ends
SILENT = {"n1": (710, 1_190), "n2": (750, 900), "n3": (773, 1_055), "n0": (1_500, 1_548)}
USERS = ("ann", "ann", "bob", "cat", "dan", None)


def ready(rules: dict[str, dict[str, Any]], name: str, **change: Any) -> CompiledRule:
    return check(read({"id": name, "title": name, "scope": "*"} | rules[name] | change))


class Story:
    """A Task stays for two minutes at least: when in a minute one was there that began and ended in
    it, history does not say."""

    def __init__(self, folder: Path, seed: int, rules: dict[str, dict[str, Any]]) -> None:
        self.random = random.Random(seed)
        self.fleet, self.history = Fleet(1), EmbeddedHistory(folder / "history")
        self.history.open()
        self.spans, self.events = self.history.rules, RecentEvents()
        self.evaluator, self.alerts = RuleEvaluator(), FiringAlerts()
        self.evaluator.set_rules({name: ready(rules, name) for name in rules})
        self.scenes = RuleTargetCollector(self.fleet, self.events)
        self.closing = RuleMinuteAggregator(("util_pct",))
        self.live: dict[str, list[Any]] = {name: [] for name in rules}
        self.utils: dict[tuple[str, int], float] = {}  # by whom and the end of a minute
        self.uneven: set[tuple[str | None, int]] = set()  # minutes in which a GPU came or went
        self.on: dict[int, list[tuple[Task, list[Use]]]] = {at: [] for at in range(NODES)}
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
            self.come_and_go(at, second)
            if second - BEGIN in (first, last):
                self.disturb(second)
            if not first < second - BEGIN < last:
                messages.append(self.frame(at, second, now))
        self.history.append(messages, 1)
        self.fleet.tick(now)
        scenes = self.scenes.look(now, now, 0.0)
        self.keep_utils(scenes["owner"], now)
        for moved in self.evaluator.step(scenes, now):
            for change in moved:
                for alert in self.alerts.take(change, lambda of, row: scenes[of].name(row)):
                    self.keep(alert)

    def keep_utils(self, scene: Any, now: float) -> None:
        closed = self.closing.close(scene, now, {})
        list(self.closing.add(scene, now))
        if closed is not None:
            values = closed.numbers(SignalTerm("last", "util_pct")).values
            self.utils |= {(str(scene.roster.keys[row]), int(closed.ends_at)): float(values[row])
                           for row in np.flatnonzero(closed.there)}

    def disturb(self, second: int, *users: str | None) -> None:
        """Mark the minutes as uneven: a change is reported within two seconds."""
        self.uneven |= {(user, at // 60 * 60 + 60) for user in users or USERS
                        for at in (second, second + 2)}

    # -- what nodes tell

    def come_and_go(self, at: int, second: int) -> None:
        mine = self.on[at]
        for entry in [entry for entry in mine if second > (entry[0].started_at or 0) + 130]:
            if self.random.random() < 1 / 600:
                mine.remove(entry)
                self.disturb(second, entry[0].user)
        if len(mine) < 6 and self.random.random() < 1 / 120:
            self.seq += 1
            user, pid = self.random.choice(USERS), 100 + self.seq
            launch = "torchrun x:29500" if user == "dan" and self.random.random() < 0.5 else None
            task = Task(f"b{at}:{pid}:1", pid, 1, float(second), user, "python",
                        job_id=f"j{self.seq // 2}", launch=launch)
            gpus = self.random.sample(range(GPUS), self.random.choice([1, 1, 2, 3]))
            mine.append((task, [Use(task.id, gpu, float(self.random.choice([1, 2, 8]) * 2**30), 5.0)
                                for gpu in gpus]))
            self.disturb(second, user)
            if self.random.random() < 0.7:
                self.xid(at, self.random.choice(gpus), second)
        if self.random.random() < 1 / 1_200:
            self.lost_gpus ^= {(at, self.random.randrange(GPUS))}
            self.disturb(second)

    def xid(self, at: int, gpu: int, second: int) -> None:
        self.seq += 1
        event = Event(self.seq, second + 0.1, "xid", f"GPU-n{at}-{gpu}",
                      numbers={"xid": self.random.choice([31.0, 31.0, 45.0, 79.0]), "count": 1.0})
        self.events.add(FleetEvent(f"n{at}", "s1", second + 0.1, None, event))
        self.history.append([HistoryMessage(f"n{at}", "s1", second + 0.3, event)], 1)

    def frame(self, at: int, second: int, now: float) -> HistoryMessage:
        rows, states = [], []
        for gpu in range(GPUS):
            if self.random.random() < 1 / 240:
                self.level[at, gpu] = float(self.random.randrange(101))
            level = self.level[at, gpu]
            is_lost = (at, gpu) in self.lost_gpus
            rows.append({} if is_lost else {"util_pct": level, "power_w": 4 * level})
            states.append("lost" if is_lost else "ok")
        tasks = None
        if (second + at) % 2 == 0:
            tasks = Tasks(True, tuple(task for task, _ in self.on[at]),
                          tuple(use for _, uses in self.on[at] for use in uses))
        self.seq += 1
        frame = fleets.frame(rows, self.seq, second + 0.2, states=states, tasks=tasks)
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

    def past(self, of: CompiledRule) -> OwnerRehearsalSource | FleetRehearsalSource:
        return OwnerRehearsalSource(self.spans, self.fleet, of) if of.rule.of == "owner" else (
            FleetRehearsalSource(self.spans, self.fleet, of))

    def rehearsed(self, of: CompiledRule) -> tuple[OwnerRehearsalSource | FleetRehearsalSource,
                                                   RehearsalEngine]:
        past, rehearsal = self.past(of), RehearsalEngine(of)
        for stretch in past.stretches(BEGIN, LAST if of.is_by_minutes else END):
            rehearsal.take(stretch)
        return past, rehearsal

"""A healthy fleet whose time is turned by hand, under the rules that come with gpudeck, and one
receiver that hears everything: hours pass in seconds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from dashboard.alerts.active_rules import ActiveRules
from dashboard.alerts.core.firing_alerts import Alert
from dashboard.alerts.core.gpu_targets import CALM
from dashboard.alerts.events import AlertChanged
from dashboard.alerts.service import AlertService, AlertSources
from dashboard.alerts.silences import SilenceService
from dashboard.alerts.store import AlertsStore
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.store import AuditStore
from dashboard.automation.brakes import BrakeService
from dashboard.automation.holds import HubHolds
from dashboard.automation.rule_source import RuleIntentSource
from dashboard.automation.store import AutomationStore
from dashboard.fleet.events import FleetEvent, RecentEvents
from dashboard.fleet.fleet import Fleet, Node
from dashboard.fleet.quarantine import NodeRefusal
from dashboard.notifications.channels.table import owners_for
from dashboard.notifications.grouping import NotificationGrouping, NotificationTiming, fold
from dashboard.notifications.receivers import Receiver
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from gpudeck.contract.wire import Beat, Event, GpuFacts, Inventory, ReaderState, Tasks
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN
from tests.unit import fleets
from tests.unit.climbing import PATCHED, Clock

NODES, GPUS, INSTANCES = 8, 8, 7
BEAT_EVERY_S, SLOW_EVERY_S = 5, 15
PHASE_S = 60  # of all that comes now and then, so that each fault finds the same moment
WELL: fleets.Row = {"util_pct": 50.0, "util_max_pct": 60.0, "mem_used_bytes": 5e9, "temp_c": 55.0,
                    "power_w": 300.0}
CALM_SLOW: fleets.Row = {
    "temp_margin_c": 30.0, "ecc_uncorrected": 0.0, "ecc_corrected": 0.0, "rows_pending": 0.0,
    "pages_pending": 0.0, "rows_failed": 0.0, "slowed_soft_thermal_pct": 0.0,
    "slowed_hard_thermal_pct": 0.0, "slowed_power_pct": 0.0, "slowed_brake_pct": 0.0,
    "pcie_replays": 0.0, "nvlink_errors": 0.0,
    "nvlinks_up": 18.0, "recovery_action": 0.0, "pcie_width": 16.0}


@dataclass
class Machine:
    """Node, and the faults that it has. `states` and `rows`: by the place of a GPU."""

    node: Node
    facts: tuple[GpuFacts, ...]
    is_up: bool = True
    hung_at: float | None = None
    trouble: ReaderState = "hung"  # of a reader that gives no reading
    states: dict[int, str] = field(default_factory=dict)
    rows: dict[int, fleets.Row] = field(default_factory=dict)
    tasks: Tasks | None = None
    seq: int = 0


class Bench:
    """A fleet whose time is turned by hand, and one receiver that hears everything."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.clock, self.fleet, self.recent = clock, Fleet(1), RecentEvents()
        self.event_seqs = count(1_000_000)
        self.state = HubState.open(folder)
        self.state._db.execute("pragma synchronous = off")
        self.groups = NotificationGrouping(NotificationTiming(), owners_for)
        self.notifications: list[tuple[float, str, str]] = []  # when, why, rule
        self.changes: list[Alert] = []
        self.open()
        self.machines = [self.add(number) for number in range(NODES)]
        self.turn(700)  # until windows are full

    def open(self) -> None:
        """Build the services of a hub that starts, from what its disk has."""
        clock, events = self.clock, Dispatcher()
        audit = AuditRecorder(self.state.store(AuditStore), None, events)
        rules = ActiveRules(self.state.store(AlertsStore), events)
        brakes = BrakeService(self.state.store(AutomationStore), audit, events)
        self.alerts = AlertService(
            AlertSources(self.fleet, self.recent, lambda: (), lambda: CALM, dict, None), rules,
            self.state.store(AlertsStore), events)
        nothing: Any = SimpleNamespace(of_any=lambda *_: None, refusal=lambda _: None,
                                       why=lambda _: None)
        silences = SilenceService(self.state.store(AlertsStore), audit, self.fleet, rules)
        self.rules = RuleIntentSource(self.alerts, silences, brakes,
                                      HubHolds(nothing, nothing, nothing))
        ops = Receiver("r", "ops", "webhook", "http://ops.example/", "info")
        events.listen(AlertChanged, lambda event: self.groups.take(
            event.alert, ops, self._names(event.alert), clock.now))
        events.listen(AlertChanged, lambda event: self.changes.append(event.alert))

    def restart(self, seconds: int, is_killed: bool = False) -> None:
        if not is_killed:
            self.alerts.close()
        for machine in self.machines:
            machine.node.disconnect()
        self.clock.now += seconds
        self.clock.mono += seconds
        self.fleet.recovered(self.clock.now, self.clock.mono)
        self.open()
        for machine in self.machines:
            if machine.is_up:
                self.start(machine)

    def _names(self, alert: Alert) -> tuple[str, ...]:
        return self.alerts.ready[alert.rule_id].rule.group_by

    def add(self, number: int) -> Machine:
        """The first has a board that is split."""
        node_id = f"n{number}"
        boards = tuple(structs.replace(fleets.facts(node_id, at), power_limit_max_w=700.0)
                       for at in range(GPUS))
        parts = () if number else tuple(
            GpuFacts(f"MIG-{at}", 0, "H100 1g", parent_uuid=boards[0].uuid, gpu_instance=at,
                     mem_total_bytes=10e9) for at in range(INSTANCES))
        facts = (boards[0], *parts, *boards[1:])
        node = self.fleet.hello(fleets.hello(node_id), self.clock.now, self.clock.mono)
        node.clock_offset_s = 0.0
        self.fleet.inventory(node, Inventory(1, facts))
        return Machine(node, facts)

    # -- time

    def turn(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.now += 1.0
            self.clock.mono += 1.0
            for machine in self.machines:
                if machine.is_up:
                    self._speak(machine)
            self.fleet.tick(self.clock.mono)
            self.alerts.step(self.clock.now, self.clock.mono)
            for batch in fold(self.groups.due(self.clock.now, self.rules.mute())):
                for what, of in (("firing", batch.firing), ("resolved", batch.over)):
                    self.notifications += [(self.clock.now, what, rule_id)
                                           for rule_id in sorted({alert.rule_id for alert in of})]

    def _speak(self, machine: Machine) -> None:
        now, mono, node = self.clock.now, self.clock.mono, machine.node
        machine.seq += 1
        if machine.seq % BEAT_EVERY_S == 0:
            age_s = 0.5 if machine.hung_at is None else mono - machine.hung_at
            node.hear(now, mono)
            node.take_beat(Beat("ok" if age_s < 5 else machine.trouble, age_s, 0, 0), mono)
        if machine.hung_at is not None:
            return
        node.hear(now, mono)
        rows, slow = [], []
        for at, facts in enumerate(machine.facts):
            numbers = {**WELL, **CALM_SLOW, **machine.rows.get(at, {})}
            rows.append({key: numbers[key] for key in numbers if key in COLUMN})
            slow.append({key: numbers[key] for key in numbers
                         if key in SLOW_COLUMN and facts.parent_uuid is None})
        states = [machine.states.get(at, "ok") for at in range(len(rows))]
        self.fleet.frame(node, fleets.frame(
            rows, machine.seq, now, states, tasks=machine.tasks,
            slow=slow if machine.seq % SLOW_EVERY_S == 1 else None), now, mono)

    # -- what befalls it

    def xid(self, machine: Machine, place: int, code: float) -> None:
        event = Event(next(self.event_seqs), self.clock.now, "xid", machine.facts[place].uuid,
                      numbers={"xid": code, "count": 1.0})
        self.recent.add(FleetEvent(machine.node.hello.node_id, "s1", self.clock.now, None, event))

    def refuse(self, machine: Machine, seconds: float) -> None:
        self.stop(machine)
        clock = self.clock
        machine.node.refusal = NodeRefusal(clock.now + seconds, clock.mono + seconds, "")

    def stop(self, machine: Machine) -> None:
        machine.is_up = False
        machine.node.disconnect()

    def start(self, machine: Machine) -> None:
        self.fleet.hello(machine.node.hello, self.clock.now, self.clock.mono)
        machine.is_up = True

    def standing(self) -> set[str]:
        """Rules that fire, and that no other explains."""
        mute = self.rules.mute()
        return {alert.rule_id for alert in self.alerts.firing() if not mute(alert)}


@contextmanager
def open_bench(folder: Path) -> Iterator[Bench]:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patched:
        for module in PATCHED:
            patched.setattr(f"dashboard.{module}.time", clock)
        bench = Bench(folder, clock)
        assert bench.notifications == [], "a healthy fleet raises nothing"
        yield bench
        bench.state.close()


@pytest.fixture(name="bench", scope="module")
def make_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with open_bench(tmp_path_factory.mktemp("hub")) as bench:
        yield bench


def stop(machines: int) -> Callable[[Bench], None]:
    def some(bench: Bench) -> None:
        for machine in bench.machines[1 : 1 + machines]:
            bench.stop(machine)

    return some


def start(bench: Bench) -> None:
    for machine in bench.machines:
        if not machine.is_up:
            bench.start(machine)

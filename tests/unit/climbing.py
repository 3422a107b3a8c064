"""A fleet whose time is turned by hand, with Rules that act on it; what is done is written down."""

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dashboard.actions.lifecycle import CommandRecord
from dashboard.alerts.active_rules import ActiveRules
from dashboard.alerts.core.rule import Rule, read
from dashboard.alerts.service import AlertService, AlertSources
from dashboard.alerts.silences import SilenceService
from dashboard.alerts.store import AlertsStore
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.store import AuditFilter, AuditStore
from dashboard.automation.brakes import BrakeService, BrakesReset
from dashboard.automation.holds import HubHolds
from dashboard.automation.intents import ActionIntent, Source
from dashboard.automation.ladder_runs import LadderRun
from dashboard.automation.rule_source import RuleIntentSource
from dashboard.automation.service import LadderService
from dashboard.automation.store import AutomationStore
from dashboard.fleet.events import RecentEvents
from dashboard.fleet.fleet import Fleet
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.runtime.runner import Loop, Runner
from dashboard.runtime.sql_transaction import together
from dashboard.state import HubState
from gpudeck.contract.action_table import ShownAction
from gpudeck.contract.actions import (
    NO_TASK,
    ActionParams,
    ActionVerification,
    HeldGpu,
    Preview,
    ProcessIdentity,
    Refusal,
    RuleCondition,
    Victim,
)
from gpudeck.contract.wire import Beat, Task, Tasks, Use
from tests.unit import fleets

PATCHED = ("alerts.service", "automation.brakes", "automation.rule_source",
           "automation.holds", "automation.ladder_runs",
           "automation.ladder_guards", "automation.service")
GIB = 2**30


@dataclass
class Clock:
    now: float = fleets.NOW
    mono: float = fleets.MONO
    gmtime: Any = time.gmtime
    strftime: Any = time.strftime

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.mono


@dataclass
class Busy:
    """A Task and what it does; `ended_at`: it is not there any more."""

    task: Task
    node_id: str
    gpu: int
    sm_pct: float = 0.0
    mem_used_bytes: float = 8.0 * GIB
    refusal: Refusal | None = None
    ended_at: float | None = None


@dataclass
class World:
    """`outcome`: what becomes of an order, `after_s` later. `history`: None or one that fails."""

    folder: Path
    clock: Clock
    outcome: Callable[[CommandRecord], CommandRecord]
    after_s: float = 2.0
    history: Any = None
    fleet: Fleet = field(default_factory=lambda: Fleet(1))
    tasks: list[Busy] = field(default_factory=list)
    orders: list[CommandRecord] = field(default_factory=list)
    fence: Refusal | None = None
    known: dict[str, CommandRecord] = field(default_factory=dict)
    recalls: list[tuple[str, str]] = field(default_factory=list)
    notices: list[tuple[ActionIntent, str]] = field(default_factory=list)
    keeps: dict[str, Any] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)  # nodes whose GPUs are
    while_looking: Callable[[], None] = lambda: None
    is_isolated: bool = False  # by the hub's runner: what fails is logged
    _seq: int = 0
    _open: list[tuple[float, CommandRecord]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = HubState.open(self.folder)
        self.state._db.execute("pragma synchronous = off")
        self.events = Dispatcher()
        self.audit = AuditRecorder(self.state.store(AuditStore), None, self.events)
        self._watch()
        with together(self.state._db):
            for _rule_id, (_, rule) in self.active_rules.rules.items():
                self.state.store(AlertsStore).put_rule(rule, "test", 0.0, is_there=False)
        self.active_rules.reload()
        self.begin()

    def _watch(self) -> None:
        self.active_rules = ActiveRules(self.state.store(AlertsStore), self.events)
        self.desk = AlertService(AlertSources(
            self.fleet, RecentEvents(), lambda: (), lambda: self.brakes.hub_metrics(), dict,
            self.history),
            self.active_rules, self.state.store(AlertsStore), self.events)
        self.silences = SilenceService(self.state.store(AlertsStore), self.audit, self.fleet,
                                       self.active_rules)

    def restart(self, down_s: float = 5.0) -> None:
        """Stop the hub for that long; everything that it does not keep on its disk is lost."""
        self.turn(31)  # what is kept now and then is kept
        self.kill(down_s)

    def kill(self, down_s: float = 5.0) -> None:
        self.clock.now += down_s
        self.clock.mono += down_s
        self.events = Dispatcher()
        self.audit = AuditRecorder(self.state.store(AuditStore), None, self.events)
        self._watch()
        self.begin()

    def begin(self) -> None:
        """Build the parts that every start of the hub builds from scratch."""
        self.brakes = BrakeService(self.state.store(AutomationStore), self.audit, self.events)
        keeps: Any = SimpleNamespace(of_any=lambda _, task_ids: next(
            (self.keeps[task_id] for task_id in task_ids if task_id in self.keeps), None))
        nothing: Any = SimpleNamespace(refusal=lambda node_id: None, why=lambda node_id: None)
        self.rules = RuleIntentSource(self.desk, self.silences, self.brakes,
                                      HubHolds(keeps, nothing, nothing))
        self.sources: list[Source] = [self.rules]
        hands: Any = self
        self.ladders = LadderService([self._intents], self.brakes, hands, self.audit,
                                     self.state.store(AutomationStore), self.events,
                                     lambda *notice: self.notices.append(notice),
                                     spawn=lambda call, *args: call(*args),
                                     mono=self.clock.monotonic)
        self.loop = Loop("ladders", self.ladders.step, 1.0)
        self.events.listen(BrakesReset, lambda _: self.desk.restart_acting_rules())

    def _intents(self) -> Iterable[ActionIntent]:
        for source in self.sources:
            yield from source()

    def step_ladders(self) -> None:
        """Step the ladders as the hub does: a failure is logged, and the next second comes."""
        Runner([self.loop], lambda: None).once(self.loop)

    # -- what is there

    def add(self, nodes: int, tasks_each: int, user: str = "ann", sm_pct: float = 0.0,
            gpus: int = 2) -> list[Busy]:
        added = []
        for _ in range(nodes):
            node_id = f"n{len(self.fleet.nodes):04}"
            node = fleets.add_node(self.fleet, node_id, gpus, mono=self.clock.mono - 3_600.0)
            node.steady_mono = self.clock.mono - 3_600.0
            node.clock_offset_s = 0.0
            node.take_beat(Beat("ok", 0.5, 0, 0), self.clock.mono)
            node.steady_mono = self.clock.mono - 3_600.0
            added += [self.start(node_id, at % gpus, user, sm_pct) for at in range(tasks_each)]
        return added

    def start(self, node_id: str, gpu: int = 0, user: str = "ann", sm_pct: float = 0.0) -> Busy:
        pid = random.randrange(10, 2**22)
        task = Task(f"boot-{pid}-{len(self.tasks)}", pid, len(self.tasks) + 1,
                    self.clock.now - 7_200.0, user, "python train.py", job_id=f"job-{pid}")
        one = Busy(task, node_id, gpu, sm_pct)
        self.tasks.append(one)
        return one

    @property
    def ended(self) -> list[Busy]:
        return [one for one in self.tasks if one.ended_at is not None]

    def put(self, mode: str = "auto", by: str = "ada", **more: Any) -> Rule:
        """Put a rule in force at once: how a rule gets into its mode is tested elsewhere."""
        rule = read({"id": "idle", "title": "Idle with memory held", "of": "task", "scope": "*",
                     "signal": "sm_pct", "fire": "<= 1", "for": "30s", "mode": mode,
                     "ladder": [{"do": "tell"}, {"do": "tell", "after": "60s"},
                                {"do": "end", "after": "60s"}],
                     "expires": time.strftime("%Y-%m-%d", time.gmtime(self.clock.now + 9e6))}
                    | more)
        self.state.store(AlertsStore).put_rule(rule, by, self.clock.now)
        self.active_rules.reload()
        return rule

    def put_all(self, rules: Iterable[Mapping[str, Any]]) -> None:
        """Replace all rules with these."""
        expires = time.strftime("%Y-%m-%d", time.gmtime(self.clock.now + 9e6))
        with together(self.state._db):
            for _, rule in self.active_rules.rules.values():
                self.state.store(AlertsStore).put_rule(rule, "ada", self.clock.now, is_there=False)
            for fields in rules:
                new_rule = read(dict({"title": "t", "mode": "auto", "expires": expires}, **fields))
                self.state.store(AlertsStore).put_rule(new_rule, "ada", self.clock.now)
        self.active_rules.reload()

    # -- time

    def turn(self, seconds: float = 1.0) -> None:
        for _ in range(int(seconds)):
            self.clock.now += 1.0
            self.clock.mono += 1.0
            self._seq += 1
            self._tell()
            for due, record in list(self._open):
                if self.clock.mono >= due:
                    self._open.remove((due, record))
                    self._finish(record)
            self.desk.step(self.clock.now, self.clock.mono)
            if self.is_isolated:
                self.step_ladders()
            else:
                self.ladders.step(self.clock.now, self.clock.mono)

    def until(self, true: Callable[[], Any], most_s: int = 400) -> Any:
        for _ in range(most_s):
            if value := true():
                return value
            self.turn()
        raise AssertionError(f"not within {most_s} s: {self.climbs()}")

    def _tell(self) -> None:
        on: dict[str, list[Busy]] = {}
        for one in self.tasks:
            if one.ended_at is None:
                on.setdefault(one.node_id, []).append(one)
        for node_id, node in self.fleet.nodes.items():
            here = on.get(node_id, [])
            rows = [{"util_pct": 0.0, "util_max_pct": 0.0, "mem_used_bytes": 0.0} for _ in
                    (node.listing.order if node.listing else ())]
            tasks = Tasks(True, tuple(one.task for one in here), tuple(
                Use(one.task.id, one.gpu, one.mem_used_bytes, one.sm_pct) for one in here))
            node.hear(self.clock.now, self.clock.mono)
            states = ["lost" if node_id in self.lost else "ok"] * len(rows)
            self.fleet.frame(node, fleets.frame(rows, self._seq, self.clock.now, states, tasks),
                             self.clock.now, self.clock.mono)

    # -- hands

    def preview(self, node_id: str, task_id: str, action: ShownAction, params: ActionParams
                ) -> Preview | Refusal:
        self.while_looking()
        if task_id == NO_TASK:  # a setting
            return Preview("ask", bytes(32), node_id, "boot", self.clock.now, action, params,
                           task_id, None, None, None, None, None, (), ())
        one = next((busy for busy in self.tasks if busy.task.id == task_id
                    and busy.ended_at is None), None)
        if one is None:
            return Refusal("gone", "it is gone")
        gpus = (HeldGpu(f"GPU-{node_id}-{one.gpu}", one.mem_used_bytes),)
        victim = Victim(ProcessIdentity(one.task.pid, one.task.start_ticks, 1_000, None, None,
                                        None),
                        one.task.command, one.task.user, task_id, gpus)
        return Preview("ask", bytes(32), node_id, "boot", self.clock.now, action, params, task_id,
                       one.task.job_id, one.task.user, 7_200.0, "compute", None, (victim,), (),
                       () if one.refusal is None or action == "notify" else (one.refusal,))

    def order(self, record: CommandRecord, preview: Preview, condition: RuleCondition | None,
              **fields: Any) -> CommandRecord:
        command = replace(record, state="sent")
        self.orders.append(command)
        self.known[command.id] = command
        self._open.append((self.clock.mono + self.after_s, command))
        return command

    def _finish(self, record: CommandRecord) -> None:
        outcome = self.known[record.id] = self.outcome(record)
        if outcome.action == "end" and outcome.state == "done":
            one = next(busy for busy in self.tasks if busy.task.id == outcome.task_id)
            one.ended_at = self.clock.now
        self.ladders.runs.command_changed(outcome)

    def recall(self, node_id: str, command_id: str, why: str) -> None:
        self.recalls.append((command_id, why))

    def fence_refusal(self, node_id: str) -> Refusal | None:
        return self.fence

    def find(self, command_id: str) -> CommandRecord | None:
        return self.known.get(command_id)

    def busy_nodes(self) -> set[str]:
        return {record.node_id for _, record in self._open if record.action != "notify"}

    def sampled_mono(self, node_id: str) -> float | None:
        node = self.fleet.nodes[node_id]
        return max(float(self.fleet.sampled_mono[slot])
                   for slot in (node.listing.order if node.listing else ()))

    def node_count(self) -> int:
        return len(self.fleet.nodes)

    # -- what came of it

    def did(self, *actions: str) -> list[CommandRecord]:
        return [record for record in self.orders if record.action in (actions or ("pause", "end"))]

    def climbs(self) -> list[LadderRun]:
        return [*self.ladders.runs]

    def recorded(self, kind: str) -> list[dict[str, Any]]:
        return [msgspec.json.decode(link.body) for link in self.state.store(AuditStore).newest(
            AuditFilter(kind=kind), None, 1_000)]


def done(record: CommandRecord) -> CommandRecord:
    return replace(record, state="done", step="ended on SIGTERM",
                   verified=ActionVerification(True, True, True))


@pytest.fixture(name="world")
def a_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterable[World]:
    clock = Clock()
    for module in PATCHED:
        monkeypatch.setattr(f"dashboard.{module}.time", clock)
    world = World(tmp_path, clock, done)
    yield world
    world.state.close()


def one_idle(world: World, nodes: int = 12) -> tuple[Busy, list[Busy]]:
    """Start many busy tasks with one idle among them; return that one and the others."""
    busy = world.add(nodes, 2, "bob", sm_pct=80.0)
    hog = random.choice(busy)
    hog.sm_pct = 0.0
    return hog, [one for one in busy if one is not hog]


def shown(want: ActionIntent, *victims: tuple[str | None, str]) -> Preview:
    tasks = tuple(Victim(ProcessIdentity(at + 10, 1, 1_000, None, None, None), None, user, task_id)
                  for at, (task_id, user) in enumerate(victims))
    return Preview("a", bytes(32), want.node_id, "b", 0.0, "end", ActionParams(), want.task_ids[0],
                   None,
                   None, 60.0, None, None, tasks, ())

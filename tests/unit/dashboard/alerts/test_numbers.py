"""A number that a rule reads live is the number that its rehearsal reads from history."""

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from agent.actions.rule_condition import flaw
from agent.tasks.seen import GpuTask
from dashboard.alerts.core.minute_aggregates import RuleMinuteAggregator
from dashboard.alerts.core.numbers import NAMES, NODE, RECORDED, USES
from dashboard.alerts.core.rule import check, read
from dashboard.alerts.core.rule_signal import SignalTerm
from dashboard.alerts.core.target_collector import RuleTargetCollector
from dashboard.alerts.rehearsal.fleet import FleetRehearsalSource
from dashboard.alerts.rehearsal.nodes import NodeRehearsalSource
from dashboard.alerts.rehearsal.tasks import TaskRehearsalSource
from dashboard.fleet.events import RecentEvents
from dashboard.fleet.fleet import Fleet
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.reads.rule_reads import RuleHistoryReader
from gpudeck.contract.actions import MetricBound, RuleCondition
from gpudeck.contract.hosts import HostSample, HostTask
from gpudeck.contract.wire import GpuFacts, Inventory, Task, Tasks, Use
from tests.unit import fleets

BEGIN = 1_700_000_000 - 1_700_000_000 % 3_600
KINDS = ("task", "job", "owner", "node", "fleet")
NODES, GPUS, END = 2, 3, BEGIN + 200
Targets = dict[str, dict[str, float]]  # by name of the number, by target


class SteadyFleet:
    """Fleet in which nothing changes for some minutes: then no mean hides a difference. On each
    node a board, one that is split by MIG, and its instance; tasks and jobs on any of them, and
    launches over both nodes."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.fleet, self.history = Fleet(1), EmbeddedHistory(folder / "history")
        self.history.open()
        self.spans = RuleHistoryReader(self.history.store)
        self.rows = {at: [self.row(), self.row(), {
            "mem_used_bytes": self.bytes(), "sm_active_pct": self.random.randrange(200) / 2}]
            for at in range(NODES)}
        self.on = {at: self.tasks(at) for at in range(NODES)}
        self.hosts = {at: HostSample({}, {}, tuple(HostTask(
            task.id, self.random.choice([None, self.random.randrange(80) / 2]), None, None, None,
            None) for task in self.on[at].began)) for at in range(NODES)}
        for at in range(NODES):
            gpus = Inventory(1, (*(fleets.facts(f"n{at}", gpu) for gpu in range(2)), GpuFacts(
                f"MIG-n{at}", 1, "NVIDIA H100 MIG", parent_uuid=f"GPU-n{at}-1",
                mig_profile="3g.40gb", gpu_instance=1, mem_total_bytes=4e10)))
            node = self.fleet.hello(fleets.hello(f"n{at}"), BEGIN, BEGIN)
            self.fleet.inventory(node, gpus)
            self.history.append([HistoryMessage(f"n{at}", "s1", 0.0, node.hello),
                                 HistoryMessage(f"n{at}", "s1", 0.0, gpus)], 1)

    def row(self) -> dict[str, float]:
        return {"util_pct": self.random.randrange(200) / 2, "temp_c": 50.0,
                "util_max_pct": self.random.randrange(200) / 2, "mem_used_bytes": self.bytes(),
                "mem_util_pct": float(self.random.randrange(6)),
                "power_w": float(self.random.randrange(700))}

    def bytes(self) -> float:
        return float(self.random.randrange(40) * 2**30)

    def tasks(self, at: int) -> Tasks:
        tasks, uses = [], []
        for pid in range(self.random.randrange(1, 7)):
            user = self.random.choice(["ann", "bob", None])
            launch = self.random.choice([None, None, "torchrun x:29500"]) if user else None
            task = Task(f"b{at}:{pid}:1", pid + 2, 1, float(BEGIN - pid), user, "python",
                        job_id=self.random.choice([None, "j1", "j2"]), launch=launch)
            tasks.append(task)
            for gpu in self.random.sample(range(GPUS), self.random.choice([1, 1, 2])):
                uses.append(Use(task.id, gpu, self.random.choice([self.bytes(), None]),
                                self.random.choice([self.random.randrange(80) / 2, None])))
        return Tasks(True, tuple(tasks), tuple(uses))

    def live_numbers(self) -> dict[str, Targets]:
        """Return the last closed minute, as a rule by the minute sees it."""
        collector = RuleTargetCollector(self.fleet, RecentEvents())
        closing = {of: RuleMinuteAggregator(RECORDED[of]) for of in KINDS}
        numbers: dict[str, Targets] = {}
        for second in range(BEGIN, END):
            now = second + 0.5
            for at in range(NODES):
                frame = structs.replace(
                    fleets.frame(self.rows[at], second - BEGIN + 1, second + 0.2,
                                 tasks=self.on[at]), host=self.hosts[at])
                node = self.fleet.nodes[f"n{at}"]
                node.hear(now, now)
                self.fleet.frame(node, frame, now, now)
                self.history.append([HistoryMessage(f"n{at}", "s1", now, frame, second)], 1)
            targets: Any = collector.look(now, now, 0.0)
            for of in KINDS:
                closed = closing[of].close(targets[of], now, {})
                list(closing[of].add(targets[of], now))
                if closed is not None and closed.ends_at == BEGIN + 180:
                    names = {row: targets[of].name(row).key.partition(" with ")[0]
                             for row in np.flatnonzero(closed.there).tolist()}
                    numbers[of] = {name: {
                        key: float(closed.numbers(SignalTerm("last", name)).values[row])
                        for row, key in names.items()} for name in RECORDED[of]}
        return numbers

    def rehearsed_numbers(self, of: str) -> Targets:
        first, *rest = RECORDED[of]
        names = {"task": [first, "busy_pct"],
                 "job": [first, "busy_pct", "gpus_stuck", "rank_lag_pct"]}.get(of, [first, *rest])
        rule = check(read({"id": "r", "title": "r", "scope": "*", "of": of, "signal": names[0],
                           "fire": "> 0", "clear": "", "for": "5m",
                           "where": [f"{name} > 0" for name in names[1:]]}))
        sources: dict[str, Any] = {"node": NodeRehearsalSource, "fleet": FleetRehearsalSource}
        past = sources.get(of, TaskRehearsalSource)(self.spans, self.fleet, rule)
        [chunk] = past.stretches(BEGIN, BEGIN + 180)
        return {name: {past.name(row).key: float(value) for row, value in enumerate(
            chunk.values(SignalTerm("last", name), slice(None))[:, 2])} for name in RECORDED[of]}


def test_history_keeps_what_it_says() -> None:
    """Numbers that the test below compares; a number that is added is added here."""
    assert {of: sorted(RECORDED[of]) for of in KINDS} == {
        "task": sorted(["mem_used_bytes", "sm_pct", "util_pct", "util_max_pct", "busy_pct",
                        "mem_share", "gpu_mem_share", "gpu_jobs", "gpus", "power_w",
                        "host_cpu_pct", "works_on_host"]),
        "job": sorted(["mem_used_bytes", "sm_pct", "util_pct", "util_max_pct", "busy_pct",
                       "mem_share", "gpu_mem_share", "gpu_jobs", "gpus", "power_w",
                       "tasks", "gpus_stuck", "rank_lag_pct", "host_cpu_pct", "works_on_host"]),
        "owner": sorted(["gpus", "tasks", "jobs", "mem_used_bytes", "util_pct", "gpus_faulty"]),
        "node": sorted(NODE), "fleet": sorted(["nodes", "nodes_silent", "gpus", "gpus_lost",
                                               "util_pct", "power_w"])}
    assert all(set(number.of) <= NAMES.keys() for number in USES.values())


@settings(max_examples=3, deadline=None, phases=[Phase.generate])  # each is seconds long
@given(seed=st.integers(0, 10**9))
def test_each_number_is_the_same_live_and_rehearsed(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        steady = SteadyFleet(Path(folder), seed)
        try:
            lived = steady.live_numbers()
            for of in KINDS:
                rehearsed = steady.rehearsed_numbers(of)
                for name in RECORDED[of]:
                    assert rehearsed[name] == pytest.approx(lived[of][name], nan_ok=True), (
                        of, name)
        finally:
            steady.history.close()


BOUND = ("sm_pct", "mem_used_bytes", "busy_pct", "age_s")  # what a node looks at again by itself


@given(seed=st.integers(0, 10**9))
def test_a_node_reads_what_the_hub_reads(seed: int) -> None:
    """A node reads its own process list before it acts; a doubt of the hub is one of the node."""
    chance, at, gpus = random.Random(seed), fleets.NOW, range(3)
    fleet = Fleet(1)
    node = fleets.add_node(fleet, "n1", len(gpus))
    util = [chance.choice([chance.randrange(100) / 2, None]) for _ in gpus]
    tasks, uses, process_list = [], [], []
    for pid in range(chance.randrange(1, 6)):
        task = Task(f"b:{pid}:1", pid + 2, 1, chance.choice([at - pid, None]), "ann", "python",
                    job_id=chance.choice([None, "j1", "j2"]),
                    launch=chance.choice([None, None, "torchrun x:29500"]))
        tasks.append(task)
        for gpu in chance.sample(gpus, chance.choice([1, 1, 2])):
            mem, sm = (chance.choice([float(chance.randrange(50)), None]) for _ in range(2))
            uses.append(Use(task.id, gpu, mem, sm))
            process_list.append(GpuTask(task, f"GPU-n1-{gpu}", mem, sm, "running"))
    node.hear(at, fleets.MONO)
    fleet.frame(node, fleets.frame([{} if pct is None else {"util_pct": pct} for pct in util],
                                   tasks=Tasks(True, tuple(tasks), tuple(uses))), at, fleets.MONO)
    targets = RuleTargetCollector(fleet, RecentEvents()).look(at, fleets.MONO, 0.0)["task"]
    by_gpu = {f"GPU-n1-{gpu}": pct for gpu, pct in enumerate(util)}
    for name in BOUND:
        values = targets.numbers(SignalTerm("last", name)).values
        for row in np.flatnonzero(targets.there).tolist():
            bound = MetricBound(name, "=", float(values[row]))  # type: ignore[arg-type]
            refusal = flaw(RuleCondition((bound,)), targets.name(row).key, process_list, by_gpu,
                           at)
            if np.isnan(values[row]):
                assert "is not known" in (refusal or ""), name
            else:
                assert refusal is None, name

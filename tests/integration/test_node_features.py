"""Features of one node together: each is set, the agent is killed and started, and each is still
there; then one after the other is undone, and the others stay."""

import itertools
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.actions import guard
from agent.actions.standalone import StandaloneNode
from agent.journal.facts import Fact
from agent.tasks.boot_id import boot_id
from gpudeck.contract.actions import NO_TASK, ActionParams
from gpudeck.contract.limits import (
    ClockLock,
    ComputeMode,
    Cordon,
    LimitRelease,
    MpsPercent,
    PowerCap,
    ReturnToService,
    Setting,
    action_of,
)
from gpudeck.contract.quota import Quota
from gpudeck.network.keys import fingerprint
from tests.fakes.children import a_ceiling, state_of
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.mps_control import FakeMps
from tests.fakes.nvml import start_ticks
from tests.integration.pools import WAITS, PoolBed
from tests.integration.test_agent_process import more_frames

HOUR_S = 3_600.0
LIMITED, TASK = 0, 3  # of the four boards


class Node:
    """A pool, limits, MPS, quotas and a task on one node: a real agent on the C fake of NVML."""

    def __init__(self, hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
        self.mps = FakeMps(folder / "mps")
        for name, value in self.mps.env().items():
            monkeypatch.setenv(name, value)
        self.mps.start()
        self.hub, self.folder = hub, folder
        self.bed = PoolBed(hub, folder, "--local-claims")
        self.task = subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.DEVNULL)
        for gpu in self.bed.nvml.gpus:
            gpu.update(power_limit_mw=700_000, power_min_mw=200_000, power_max_mw=700_000,
                       power_default_mw=700_000)
        self.bed.nvml.gpus[TASK].process(self.task.pid, 2**30)
        self.bed.nvml.save()
        self.bed.nvml.use_in_children(monkeypatch)
        self.bed.env = {**self.bed.env, **self.mps.env()}
        self.uuid = str(self.bed.nvml.gpus[LIMITED]["uuid"])
        self.generations = itertools.count(1)
        self.pool: dict[str, Any] = {}  # as it was shown last

    def apply(self, setting: Setting) -> None:
        self._act(lambda here: here.preview(action_of(setting), NO_TASK,
                                            ActionParams(setting=setting)))

    def turn(self, action: Any) -> None:
        """Act on the task that runs on the last board."""
        pid = self.task.pid
        self._act(lambda here: here.preview(action, f"{boot_id()[:8]}-{pid}-{start_ticks(pid)}"))

    def _act(self, preview: Callable[[StandaloneNode], Any]) -> None:
        with StandaloneNode(self.folder / "data", "nvml", "",
                            a_ceiling(self.folder, own_pid_namespace=True)) as here:
            look = preview(here)
            assert look.refusals == ()
            reply = here.act(look, "a test", "ada")
        assert reply.state == "done", reply

    def run(self, *words: str) -> None:
        completed = self.bed.run(*words)
        assert completed.returncode == 0, completed.stderr

    def leases(self) -> list[str]:
        return [lease["lease_id"] for lease in self.pool["held"]]

    def reservations(self) -> list[str]:
        return [claim["claim_id"] for claim in self.pool["waiting"]]

    def limits(self) -> set[str]:
        """Return the kinds of timed limits that the agent reports, and `mode` for compute modes."""
        report = self.hub.limits[-1]
        assert report.unread == ""
        return {lease.what for lease in report.leases} | ({"mode"} if report.modes else set())

    def give_quotas(self, *quotas: Quota) -> None:
        generation = next(self.generations)
        self.hub.tell(self.hub.desired(generation, *quotas))
        wait_for(lambda: self.hub.in_force and self.hub.in_force[-1].generation == generation, 30)

    def has_quota(self) -> bool:
        return bool(self.hub.in_force) and bool(self.hub.in_force[-1].quotas)

    def forget(self) -> None:
        """Forget what the killed agent said: it proves nothing of the next one."""
        self.hub.limits.clear()
        self.hub.in_force.clear()

    def close(self) -> None:
        self.bed.close()
        self.task.kill()
        self.task.wait()
        self.mps.close()


@dataclass(frozen=True)
class Feature:
    name: str
    begin: Callable[[Node], None]
    is_there: Callable[[Node], bool]
    end: Callable[[Node], None]


FEATURES = (
    Feature("lease", lambda node: node.run("claim", "--gpus", "1"),
            lambda node: bool(node.leases()),
            lambda node: node.run("claim", "--give-back", *node.leases())),
    Feature("reservation", lambda node: node.run("claim", "--gpus", "1", "--from", "+2h",
                                                 "--for", "1h"),
            lambda node: bool(node.reservations()),
            lambda node: node.run("pool", "cancel", *node.reservations())),
    Feature("power cap", lambda node: node.apply(PowerCap(node.uuid, 300, HOUR_S)),
            lambda node: "power" in node.limits(),
            lambda node: node.apply(LimitRelease(node.uuid, "power"))),
    Feature("clock lock", lambda node: node.apply(ClockLock(node.uuid, 300, 900, HOUR_S)),
            lambda node: "clocks" in node.limits(),
            lambda node: node.apply(LimitRelease(node.uuid, "clocks"))),
    Feature("compute mode", lambda node: node.apply(ComputeMode(node.uuid, "exclusive_process")),
            lambda node: "mode" in node.limits(),
            lambda node: node.apply(ComputeMode(node.uuid, "default"))),
    Feature("MPS", lambda node: node.apply(MpsPercent(str(node.mps.pipes), 40)),
            lambda node: node.mps.ask("get_default_active_thread_percentage").startswith("40"),
            lambda node: node.apply(MpsPercent(str(node.mps.pipes), 100))),
    Feature("quota", lambda node: node.give_quotas(Quota("q", "*", f"gpu:{node.uuid}", gpus=0,
                                                         mode="observe")),
            lambda node: node.has_quota(), lambda node: node.give_quotas()),
    Feature("out of service", lambda node: node.apply(Cordon(node.uuid)),
            lambda node: node.uuid in {gpu["uuid"] for gpu in node.pool["unavailable"]},
            lambda node: node.apply(ReturnToService(node.uuid))),
    Feature("pause", lambda node: node.turn("pause"),
            lambda node: state_of(node.task.pid) == "T", lambda node: node.turn("resume")),
)


@pytest.fixture
def node(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    node = Node(hub, tmp_path, monkeypatch)
    yield node
    node.close()


def wait_for_all(node: Node, features: tuple[Feature, ...]) -> None:
    """Wait until these features are there, and no other."""
    def are_there() -> bool:
        if not node.hub.limits:
            return False
        node.pool = node.bed.status()
        return all(feature.is_there(node) == (feature.name in names) for feature in FEATURES)

    names = {feature.name for feature in features}
    wait_for(are_there, 60)


@pytest.mark.parametrize("features", [FEATURES, FEATURES[::-1]], ids=["one", "other"])
def test_none_takes_another_away(node: Node, features: tuple[Feature, ...]) -> None:
    """Use this order and its reverse: each is set and undone before and after every other."""
    with node.bed.agent() as agent:
        for place, feature in enumerate(features):
            feature.begin(node)
            wait_for_all(node, features[:place + 1])
        agent.kill()
        agent.wait()
    node.forget()
    with node.bed.agent() as agent:
        wait_for_all(node, features)
        for place, feature in enumerate(features[:5], 1):
            feature.end(node)
            wait_for_all(node, features[place:])
        agent.kill()
        agent.wait()
    node.forget()
    with node.bed.agent():
        wait_for_all(node, features[5:])
        for place, feature in enumerate(features[5:], 6):
            feature.end(node)
            wait_for_all(node, features[place:])


def rewrite(node: Node, sql: str, *values: str) -> None:
    with closing(sqlite3.connect(node.folder / "data" / "acts.db")) as db, db:
        db.execute(sql, values)


def test_a_node_upgraded_with_mixed_leases_keeps_them_and_can_set_limits(node: Node) -> None:
    """An agent that kept both under one name had written its leases over the limits."""
    lease, _, cap, *_ = FEATURES
    with node.bed.agent() as agent:
        lease.begin(node)
        before = [entry["lease_id"] for entry in node.bed.status()["held"]]
        agent.kill()
        agent.wait()
    rewrite(node, "UPDATE fact SET name = ? WHERE name = ?", Fact.TIMED_LIMITS, Fact.POOL_LEASES)
    node.forget()
    with node.bed.agent():
        assert [entry["lease_id"] for entry in node.bed.status()["held"]] == before
        cap.begin(node)
        wait_for(lambda: cap.is_there(node), 30)
        assert [entry["lease_id"] for entry in node.bed.status()["held"]] == before


@pytest.mark.parametrize("text", ["}{", "{}", '["x"]'])
def test_an_agent_whose_facts_are_not_understood_monitors_and_leases_nothing(
        node: Node, text: str) -> None:
    cap = FEATURES[2]
    with node.bed.agent() as agent:
        agent.kill()
        agent.wait()
    for fact in Fact:
        rewrite(node, "INSERT OR REPLACE INTO fact VALUES ('', ?, ?)", fact, text)
    for fact in (Fact.EPOCH, Fact.ANCHOR, Fact.QUOTAS):
        rewrite(node, "INSERT OR REPLACE INTO fact SELECT '', ? || ' ' || ?, ?", fact,
                fingerprint(node.hub.key.public), text)
    rewrite(node, "DELETE FROM fact WHERE name = ?", Fact.HUB_HOLD)  # any text is a hold
    rewrite(node, "DELETE FROM fact WHERE name = ?", Fact.REPAIRS)  # keeps every GPU by itself
    node.forget()
    with node.bed.agent():
        wait_for(more_frames(node.hub, 2), 30)
        _, beat = node.hub.beats[-1]
        assert "the epoch in the journal is not understood" in " ".join(beat.holds)
        run = node.bed.run("run", "--no-wait", "--", "true")
        assert "are not understood" in run.stderr
        assert all("not understood" in gpu["why"] for gpu in node.bed.status()["unavailable"])
        node.run("claim", "--give-back", "unread")
        wait_for(lambda: node.bed.free() == len(node.bed.nvml.gpus) - 1, 30)  # one has a task
        cap.begin(node)
        wait_for(lambda: node.hub.limits and node.hub.limits[-1].leases, 30)
        assert "neither holds nor undoes them" in node.hub.limits[-1].unread

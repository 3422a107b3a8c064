"""Quotas on a node: held on its disk, in force or not and why, and without a hub."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.actions import guard
from agent.backends import SIMULATED
from agent.journal.store import ActionJournal, ActionStore
from agent.link.identity import NodeIdentity, node_key
from agent.link.outbox import Outbox
from agent.link.outbox_file import OutboxFile
from agent.node import run_node
from agent.node_config import NodeConfig
from agent.quotas import wiring as quota_wiring
from agent.quotas.service import QuotaService
from agent.readings import Reading, ReadingSource
from agent.runtime.wake import ThreadWakeSignal
from agent.tasks.boot_id import boot_id
from gpudeck.audit.chain import verify
from gpudeck.contract.desired_state import RECONCILE_EVERY_S, InForce
from gpudeck.contract.ladder import LadderRung
from gpudeck.contract.quota import Quota
from gpudeck.network.keys import SigningKey, fingerprint
from tests.fakes.children import Children, a_ceiling
from tests.fakes.hub import FakeHub, wait_for

from .test_actions_agent import a_running_node

LADDER = (LadderRung("tell"), LadderRung("tell", 0.5), LadderRung("end", 0.5))


class ReadChildren(Children):
    """Children whose processes come in Readings as well. `driver` None: it is not loaded."""

    driver: str | None = "580.95.05"

    def latest(self) -> Reading | None:
        fresh = self.fresh(1.0)
        if time.monotonic() < self.__dict__.get("next_at", 0.0) or fresh is None or (
                self.driver is None):
            return None
        self.__dict__["next_at"] = time.monotonic() + 0.5
        return Reading(time.time(), 0.5, (), (), fresh.processes, self.driver)


class Bed:
    def __init__(self, hub: FakeHub, children: ReadChildren, data: Path) -> None:
        self.hub, self.children, self.data = hub, children, data

    def quota(self, quota_id: str = "q", **fields: Any) -> Quota:
        return msgspec.structs.replace(
            Quota(quota_id, "*", "gpu:GPU-1", gpus=0, mode="act", ladder=LADDER), **fields)

    def newest(self, generation: int) -> InForce:
        report: InForce = wait_for(lambda: next(
            (row for row in reversed(self.hub.in_force) if row.generation == generation), None))
        return report

    def records(self) -> list[str]:
        journal = ActionJournal(ActionStore(self.data / "acts.db"))
        assert verify(journal.audit.links()) is None
        return [link.body for link in journal.audit.links()]

    def intents(self, action: str) -> int:
        return sum('"intent":true' in record.replace(" ", "") and f'"{action}"' in record
                   for record in self.records())


@pytest.fixture(name="bed")
def _bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    a_ceiling(data, rules_may_act=True)
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    hub, children = FakeHub(), ReadChildren(detail="")
    try:
        yield Bed(hub, children, data)
    finally:
        children.close()
        hub.close()


def test_it_is_held_on_the_disk_and_said_again_after_a_restart(bed: Bed) -> None:
    bed.children.start()
    with a_running_node(bed.hub, bed.children, bed.data):
        bed.hub.tell(bed.hub.desired(7, bed.quota(mode="observe")))
        report = bed.newest(7)
        assert [(quota.quota_id, quota.is_in_force) for quota in report.quotas] == [("q", True)]
        assert {mechanism.name for mechanism in report.mechanisms} == {
            "ladder", "memory_limit", "hami", "mps", "mig"}
        bed.hub.tell(bed.hub.desired(6))  # an older word comes late
        wait_for(lambda: bed.hub.in_force[-1].trouble)
        assert bed.hub.in_force[-1].generation == 7
    bed.hub.in_force.clear()
    with a_running_node(bed.hub, bed.children, bed.data):
        report = bed.newest(7)
        assert [quota.quota_id for quota in report.quotas] == ["q"]


def test_after_a_reload_of_the_driver_it_looks_at_once_and_holds_the_same(bed: Bed) -> None:
    child = bed.children.start()

    def proof(report: InForce) -> str:
        return next(row.proof for row in report.mechanisms if row.name == "memory_limit")

    with a_running_node(bed.hub, bed.children, bed.data):
        bed.hub.tell(bed.hub.desired(3, bed.quota()))
        wait_for(lambda: "580.95" in proof(bed.newest(3)) and bed.newest(3).quotas[0].is_in_force)
        bed.children.driver = None
        time.sleep(1.0)
        version = f"590.{random.randrange(10, 99)}.01"
        bed.children.driver, reloaded = version, time.monotonic()
        wait_for(lambda: version in proof(bed.newest(3)))
        assert time.monotonic() - reloaded < RECONCILE_EVERY_S / 2
        [mark] = bed.newest(3).quotas
        assert (mark.is_in_force, "1 task of it seen here" in mark.proof) == (True, True)
        assert bed.intents("notify") == 0
        assert child.is_alive()


@pytest.mark.parametrize("wrong", ["another key", "another node", "nothing"])
def test_only_what_this_hub_signed_for_this_node_is_held(bed: Bed, wrong: str) -> None:
    bed.children.start()
    with a_running_node(bed.hub, bed.children, bed.data):
        good = bed.hub.desired(3, bed.quota())
        if wrong == "another key":
            good = msgspec.structs.replace(good, signature=SigningKey(bytes(32)).sign(good.body))
        elif wrong == "another node":
            good = bed.hub.desired(3, bed.quota(), node_id="f" * 32)
        bed.hub.tell(good)
        report = wait_for(lambda: bed.hub.in_force and bed.hub.in_force[-1])
        assert report.generation == (3 if wrong == "nothing" else 0)
        assert bool(report.trouble) == (wrong != "nothing")


def test_a_ceiling_that_forbids_it_is_told(bed: Bed) -> None:
    a_ceiling(bed.data, rules_may_act=False)
    bed.children.start()
    with a_running_node(bed.hub, bed.children, bed.data):
        bed.hub.tell(bed.hub.desired(1, bed.quota(), bed.quota("told", mode="warn")))
        marks = {mark.quota_id: mark for mark in bed.newest(1).quotas}
        assert not marks["q"].is_in_force
        assert "rules_may_act" in marks["q"].proof
        assert marks["told"].is_in_force


@contextmanager
def alone(bed: Bed) -> Iterator[None]:
    """Run the node without a hub."""
    identity = NodeIdentity(node_key(bed.data), fingerprint(bed.hub.key.public), None)
    journal = OutboxFile(bed.data / "journal.db")
    config = NodeConfig((bed.hub.url,), lambda _: None, identity, "host",
                        SIMULATED, boot_id(), bed.data,
                        ActionStore(bed.data / "acts.db"), ceiling=bed.data / "ceiling.toml")
    stop = threading.Event()
    source: ReadingSource = bed.children
    thread = threading.Thread(target=run_node, args=(
        config, source, Outbox(journal), stop, ThreadWakeSignal()))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=5)
        journal.close()
        config.acts.close()


def test_without_a_hub_owners_are_notified_nothing_ends_and_a_restart_does_nothing_twice(
        bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota of before may still say that its node ends tasks by itself; it does not."""
    monkeypatch.setattr(quota_wiring, "QuotaService", partial(QuotaService, cut_off_after_s=1.0))
    patient, acted, warned, bystander = (bed.children.start(gpu=f"GPU-{at}") for at in range(1, 5))
    quotas = (bed.quota("allowed", offline="allow"),
              bed.quota("acted", scope="gpu:GPU-2"),
              bed.quota("warned", scope="gpu:GPU-3", mode="warn"),
              bed.quota("fleet", scope="fleet", subject="user:nobody-at-all"))
    with a_running_node(bed.hub, bed.children, bed.data):
        bed.hub.tell(bed.hub.desired(1, *quotas))
        bed.newest(1)
        time.sleep(1.5)  # with a hub, the node itself does nothing
        assert bed.intents("notify") == 0
        bed.hub.crash()
        wait_for(lambda: bed.intents("notify") == 6)
        time.sleep(1.5)  # an end would be due since a second
    with alone(bed):
        time.sleep(3)
    assert (bed.intents("notify"), bed.intents("end")) == (6, 0)
    assert all(child.is_alive() for child in (patient, acted, warned, bystander))

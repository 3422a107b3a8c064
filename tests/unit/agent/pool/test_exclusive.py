"""Leased GPUs in exclusive-process mode: set with a lease, set back after it, and no others."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from agent.journal.store import ActionJournal, ActionStore
from agent.pool.exclusive import AGAIN_AFTER_S, UNCHANGED, ExclusiveGpus
from agent.pool.lock import NodeLease, PoolGpu
from agent.readings import GpuLimits
from gpudeck.pool.core.claims import Claim

GPUS = {name: PoolGpu(name, "H100", index, name == "mig", 0, None, None, "")
        for index, name in enumerate(("a", "b", "mig"))}


def lease(*uuids: str, share: int = 1_000) -> NodeLease:
    claim = Claim(id="l", owner="ann", gpus=len(uuids), submitted_at=0.0, share_milli=share)
    return NodeLease(id="l", claim=claim, uuids=uuids, uid=1, is_run=True, state="active",
                     since=0.0, until=1e9, used_at=0.0)


class Driver:
    def __init__(self) -> None:
        self.modes = dict.fromkeys(GPUS, 0)
        self.trouble = ""
        self.is_ignoring = False

    def read(self, uuids: Sequence[str]) -> dict[str, GpuLimits]:
        return {uuid: GpuLimits(uuid, compute_mode=self.modes[uuid]) for uuid in uuids}

    def set_mode(self, uuid: str, mode: int) -> str:
        if not self.trouble and not self.is_ignoring:
            self.modes[uuid] = mode
        return self.trouble


class Node:
    def __init__(self, folder: Path) -> None:
        self.driver, self.orders, self.holds = Driver(), set[str](), set[str]()
        self.store = ActionStore(folder / "acts.db", durable=False)
        self.now = 0.0
        self.restart()

    def restart(self) -> None:
        self.exclusive = ExclusiveGpus(ActionJournal(self.store), self.driver,
                                       lambda: self.orders, lambda: self.holds)

    def step(self, *leases: NodeLease) -> dict[str, int]:
        self.now += AGAIN_AFTER_S
        if self.exclusive.is_due(leases, GPUS, self.now):
            self.exclusive.step(leases, GPUS, self.now)
        return self.driver.modes


def refusals(node: Node) -> list[tuple[str, str]]:
    bodies = [msgspec.json.decode(body) for (body,) in node.store.rows(
        "select body from audit order by seq")]
    return [(body["gpu"], body["why"]) for body in bodies if body["mode"] == "unchanged"]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.store.close()


def test_it_is_set_with_a_lease_and_set_back_after_it_also_over_a_restart(node: Node) -> None:
    assert node.step(lease("a")) == {"a": 3, "b": 0, "mig": 0}
    assert not node.exclusive.is_due([lease("a")], GPUS, node.now)
    node.restart()
    assert node.step(lease("b")) == {"a": 0, "b": 3, "mig": 0}
    assert node.step() == dict.fromkeys(GPUS, 0)


@pytest.mark.parametrize("case", [
    lease("a", share=300), lease("mig"), replace(lease("a"), state="offered")])
def test_what_several_share_and_what_has_no_mode_is_left_alone(node: Node, case: NodeLease) -> None:
    assert node.step(case) == dict.fromkeys(GPUS, 0)


def test_a_mode_that_somebody_else_has_set_is_theirs(node: Node) -> None:
    node.driver.modes["a"] = 3
    node.orders.add("b")
    assert node.step(lease("a", "b")) == {"a": 3, "b": 0, "mig": 0}
    assert node.step() == {"a": 3, "b": 0, "mig": 0}
    node.driver.modes["a"] = 0
    node.step(lease("a"))
    node.driver.modes["a"] = 2  # prohibited, by somebody, meanwhile
    assert node.step()["a"] == 2


def test_while_all_acts_are_held_nothing_is_set_and_what_failed_is_tried_again(node: Node) -> None:
    node.holds.add("root")
    assert node.step(lease("a"))["a"] == 0
    node.holds.clear()
    assert node.step(lease("a"))["a"] == 3
    node.driver.trouble = "the driver did not answer"
    assert node.step()["a"] == 3
    node.driver.trouble = ""
    node.driver.is_ignoring = True
    assert node.step()["a"] == 3
    node.driver.is_ignoring = False
    assert node.step()["a"] == 0, "what the driver ignored is not taken for done"


def test_what_is_refused_or_ignored_is_in_the_audit_log_once_for_a_lease(node: Node) -> None:
    for trouble, is_ignoring, why in (("No permission", False, "No permission"),
                                      ("", True, UNCHANGED)):
        node.driver.trouble, node.driver.is_ignoring = trouble, is_ignoring
        before = len(refusals(node))
        for _ in range(2):
            assert node.step(lease("a"))["a"] == 0
        assert refusals(node)[before:] == [("a", why)]
        node.step()

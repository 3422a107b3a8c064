"""Timed limits when gpudeck is removed, at the C fake of the driver."""

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.backends import NVML
from agent.journal.store import ActionJournal, ActionStore
from agent.limits.apply import LimitApplier
from agent.limits.mps import LocalMpsDaemons
from agent.limits.removal import TimedRemoval
from agent.limits.stores import TimedLimitStore
from gpudeck.contract.limits import LeaseState, LimitKind, TimedLimit
from tests.fakes.nvml import FakeNvml

SET, RESET = "nvmlDeviceSetPowerManagementLimit", "nvmlDeviceResetGpuLockedClocks"
# The real applier asks in a child process, which a unit test has no time for.
IN_PROCESS = replace(NVML, capabilities=replace(NVML.capabilities, limits="in process"))


class LimitedNode:
    """Machine with two GPUs, whose agent has ended."""

    def __init__(self, folder: Path, nvml: FakeNvml) -> None:
        self.nvml, self.uuid = nvml, str(nvml.gpus[0]["uuid"])
        self.journal = ActionStore(folder / "acts.db", durable=False)
        self.applier = LimitApplier(IN_PROCESS, "", lambda _: "")
        self.store = TimedLimitStore(ActionJournal(self.journal))
        self.removal = TimedRemoval(self.store, self.applier, LocalMpsDaemons(""), "boot-1")

    def begin(self, what: LimitKind, values: tuple[float, ...], before: tuple[float, ...] = (),
              state: LeaseState = "in_force", boot: str = "boot-1") -> TimedLimit:
        limit = TimedLimit(f"c-{what}", self.uuid, what, values, before, "ada", "hot", time.time(),
                           time.time() + 3_600, "boot-1",
                           time.clock_gettime(time.CLOCK_BOOTTIME) + 3_600, state)
        self.store.begin(limit)
        return limit

    def power_w(self) -> float | None:
        return self.applier.read([self.uuid])[self.uuid].power_w


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LimitedNode]:
    nvml = FakeNvml(tmp_path / "nvml", gpus=2)
    for gpu in nvml.gpus:
        gpu.update(util=0, sm_clock=345)
    nvml.save()
    nvml.use(monkeypatch)
    node = LimitedNode(tmp_path, nvml)
    yield node
    node.journal.close()


def test_a_power_cap_is_undone_long_before_its_end(node: LimitedNode) -> None:
    watts, before = random.randint(210, 400), random.randint(410, 690)
    node.applier.set_power(node.uuid, watts)
    node.begin("power", (watts,), (before,))
    lines, remaining = node.removal.undo_all()
    assert lines == [f"undid the power cap of {node.uuid}, which gpudeck had set"]
    assert (remaining, node.power_w(), node.store.all()) == ([], before, ())
    assert node.removal.undo_all() == ([], []), "once"


def test_what_somebody_else_has_set_since_is_left_alone(node: LimitedNode) -> None:
    node.applier.set_power(node.uuid, 450)
    node.begin("power", (300.0,), (700.0,))
    lines, remaining = node.removal.undo_all()
    assert lines == [f"left the power cap of {node.uuid} alone: somebody has set 450 W since"]
    assert (remaining, node.power_w()) == ([], 450.0)


def test_one_that_the_driver_refuses_to_undo_is_named_and_kept(node: LimitedNode) -> None:
    node.applier.set_power(node.uuid, 300)
    limit = node.begin("power", (300.0,), (700.0,))
    node.nvml.gpus[0].error(SET, 4)
    node.nvml.save()
    lines, [trouble] = node.removal.undo_all()
    assert lines == []
    assert "is still in force" in trouble
    assert "CAP_SYS_ADMIN" in trouble
    assert node.store.all() == (limit,)


def test_one_that_cannot_be_read_is_named_and_not_guessed_at(node: LimitedNode) -> None:
    node.begin("power", (300.0,), (700.0,))
    node.nvml.unload()
    [line], remaining = node.removal.undo_all()
    assert "may still be in force" in line
    assert remaining == []
    assert len(node.store.all()) == 1


def test_a_lock_that_no_driver_reports_is_undone(node: LimitedNode) -> None:
    """Undo it without a proof: at rest nothing shows whether a lock is there, and no agent would
    look again."""
    node.applier.lock_clocks(node.uuid, 210, 1_410)
    node.begin("clocks", (210.0, 1_410.0))
    lines, remaining = node.removal.undo_all()
    assert len(node.nvml.calls(RESET)) == 1
    assert (len(lines), remaining, node.store.all()) == (1, [], ())

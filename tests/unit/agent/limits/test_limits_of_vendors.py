"""Limits on a node with boards of several vendors: each is vendors of the board's own driver, and
what that cannot do is refused in words."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.actions.context import BoardRepairs
from agent.backends import AMD, NVML, SIMULATED, Backend, mixed
from agent.limits.apply import NO_DRIVER, LimitApplier
from gpudeck.contract.vendors import NO_SUSPENSION
from tests.fakes.nvml import FakeNvml

BOARD, SET = "GPU-946d7e1ef9b172dd", "nvmlDeviceSetPowerManagementLimit"
# The real applier asks in a child process, which a unit test has no time for.
MIXED = replace(mixed((NVML, AMD)), capabilities=replace(NVML.capabilities, limits="in process"))
REFUSED = "limits of GPUs cannot be set through the backend amd"


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    nvml = FakeNvml(tmp_path / "nvml", gpus=1)
    nvml.use(monkeypatch)
    return nvml


def test_a_limit_goes_to_the_drivers_own_boards_alone(nvml: FakeNvml) -> None:
    applier, uuid = LimitApplier(MIXED, "", lambda _: ""), str(nvml.gpus[0]["uuid"])
    assert applier.trouble() == applier.trouble(uuid) == ""
    assert applier.set_power(uuid, 300.0) == ""
    for trouble in (applier.trouble(BOARD), applier.set_power(BOARD, 200.0),
                    applier.lock_clocks(BOARD, 210, 800), applier.unlock_clocks(BOARD),
                    applier.set_mode(BOARD, 3), applier.set_mig_mode(BOARD, True),
                    applier.clear_memory(BOARD, "/a"), applier.mig(BOARD).trouble):
        assert trouble == REFUSED
    assert applier.set_power("a board of nobody", 300.0) == NO_DRIVER
    assert [call.arguments for call in nvml.calls(SET)] == [("300000",)]


def test_one_that_cannot_be_limited_hinders_no_other(nvml: FakeNvml) -> None:
    applier, uuid = LimitApplier(MIXED, "", lambda _: ""), str(nvml.gpus[0]["uuid"])
    limits = applier.read([BOARD, uuid])
    assert (limits[BOARD].trouble, limits[BOARD].power_w) == (REFUSED, None)
    assert (limits[uuid].trouble, limits[uuid].power_w) == ("", 700.0)
    of_amd, of_nvidia = applier.memory([(BOARD, "/a"), (uuid, "/a")])
    assert (of_amd.gpu_uuid, of_amd.trouble) == (BOARD, REFUSED)
    assert of_nvidia.trouble != REFUSED


def test_a_driver_that_is_released_hinders_no_other(nvml: FakeNvml) -> None:
    uuid, vendors = str(nvml.gpus[0]["uuid"]), list[str]()

    def order(vendor: str) -> str:
        vendors.append(vendor)
        return "it is being repaired" if vendor == "AMD" else ""

    assert LimitApplier(MIXED, "", order).set_power(uuid, 300.0) == ""
    assert vendors == ["NVIDIA"]


def test_repairs_and_suspensions_are_the_vendors_own(tmp_path: Path) -> None:
    boards, nvidia = BoardRepairs(mixed((NVML, AMD)), tmp_path), "GPU-5d0a1c7e-0000-4000-8000-1"
    assert boards.module(nvidia) is NVML.repair_module()
    assert boards.module(BOARD) is None
    assert boards.time_slice_module(nvidia) is NVML.time_slice_module()
    assert boards.time_slice_module(BOARD) is None
    assert boards.suspend_module((nvidia,)) is NVML.suspend_module()
    assert boards.suspend_module((nvidia, BOARD)) is None, "half of a task cannot be suspended"
    assert boards.suspend_module(()) is NVML.suspend_module(), "what a restore asks for"


@pytest.mark.parametrize(("backend", "driver", "why"), [
    (AMD, None, NO_SUSPENSION), (SIMULATED, "575.57.08", NO_SUSPENSION),
    (NVML, "550.54.15", "driver 550.54.15 is older than 575.57.08"), (NVML, "580.95.05", ""),
    (MIXED, "550.54.15", "driver 550.54.15 is older than 575.57.08"), (MIXED, "580.95.05", "")])
def test_a_node_says_why_it_can_suspend_no_task(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Backend, driver: str | None,
        why: str) -> None:
    (tmp_path / "cuda-checkpoint").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert backend.suspend_trouble(driver) == why
    monkeypatch.setenv("PATH", "")
    assert backend.suspend_trouble(driver) != ""

"""A timed limit survives restarts and reloads, and nothing is set twice: a real agent on the C fake
of the driver, whose setters are recorded."""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from agent.actions.standalone import StandaloneNode
from gpudeck.contract.actions import NO_TASK, ActionParams
from gpudeck.contract.limits import PowerCap, action_of
from tests.fakes.children import a_ceiling
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nvml import FakeNvml
from tests.integration.test_agent_process import an_agent, flags

SETTER = "nvmlDeviceSetPowerManagementLimit"


@pytest.fixture
def nvml(tmp_path: Path) -> FakeNvml:
    nvml = FakeNvml(tmp_path / "nvml.txt", gpus=0)
    nvml.gpu(power_limit_mw=700_000, power_min_mw=200_000, power_max_mw=700_000,
             power_default_mw=700_000)
    nvml.save()
    return nvml


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def cap_power(nvml: FakeNvml, tmp_path: Path, watts: int, seconds: float) -> None:
    setting = PowerCap(str(nvml.gpus[0]["uuid"]), watts, seconds)
    with StandaloneNode(tmp_path / "data", "nvml", "",
                        a_ceiling(tmp_path, own_pid_namespace=True)) as here:
        look = here.preview(action_of(setting), NO_TASK, ActionParams(setting=setting))
        assert look.refusals == ()
        reply = here.act(look, "the room is hot", "ada")
    assert reply.state == "done", reply


def sets(nvml: FakeNvml) -> list[str]:
    return [call.arguments[0] for call in nvml.calls(SETTER)]


@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_killed_restarted_reloaded_and_taken_back(
    hub: FakeHub, nvml: FakeNvml, tmp_path: Path, stack: ExitStack,
    monkeypatch: pytest.MonkeyPatch, is_long: bool,
) -> None:
    nvml.use_in_children(monkeypatch)
    watts = random.randint(200, 690)
    milliwatts = str(watts * 1_000)
    start = partial(an_agent, *flags(hub, tmp_path), "--backend", "nvml",
                    env={**os.environ, **nvml.env()})
    agent = stack.enter_context(start())
    wait_for(lambda: hub.hellos)
    cap_power(nvml, tmp_path, watts, 3_600.0)
    assert sets(nvml) == [milliwatts]
    # Killed, and the machine's driver reloaded meanwhile: set again once, from the disk.
    agent.kill()
    agent.wait()
    nvml.reload_driver()
    agent = stack.enter_context(start())
    wait_for(lambda: sets(nvml) == [milliwatts] * 2)
    if not is_long:
        return
    # Killed, and the limit is still there: it is left as it is.
    agent.kill()
    agent.wait()
    hellos = len(hub.hellos)
    agent = stack.enter_context(start())
    wait_for(lambda: len(hub.hellos) > hellos)
    wait_for(lambda: in_force(hub))
    assert sets(nvml) == [milliwatts] * 2
    # Under the running agent.
    nvml.unload()
    nvml.reload_driver()
    wait_for(lambda: any(beat.reader == "no_driver" for _, beat in hub.beats[-2:]))
    nvml.load()
    wait_for(lambda: sets(nvml) == [milliwatts] * 3)
    # The hub is gone for good; its time ends all the same.
    hub.close()
    cap_power(nvml, tmp_path, 210, 1.0)
    wait_for(lambda: sets(nvml)[-1] == "700000")
    assert sets(nvml) == [*[milliwatts] * 3, "210000", "700000"]
    agent.send_signal(signal.SIGTERM)
    agent.wait(10)


def in_force(hub: FakeHub) -> bool:
    reports = hub.limits
    return bool(reports and reports[-1].leases and reports[-1].leases[0].state == "in_force")



"""Simulated boards say what changes seldom too, and what their real ones never say."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from agent.backends.simulation import folder
from agent.backends.simulation.control import SimulationControl
from agent.backends.simulation.jobs import jobs_at
from agent.backends.simulation.profiles import PROFILES
from agent.backends.simulation.reader import SLOW_EVERY_S, SimulatedReader, open_reader
from agent.backends.simulation.world import LiveJob, SimulatedNode, SimulationOptions, uuid_of
from gpudeck.measures.metrics import SLOW, Absence
from tests.unit.readings import value

SEED = random.randrange(2**32)
NODE = f"n{random.randrange(2, 999):03}"
NOON = 1_763_640_000.0 + random.randrange(86_400)
UUIDS = tuple(uuid_of(SEED, NODE, index) for index in range(8))


def worlds(key: str) -> "tuple[SimulatedNode, list[Any]]":
    setup = SimulationOptions(NODE, key, 8, SEED)
    lives = [LiveJob(job) for job in jobs_at(SEED, NODE, UUIDS, NOON)]
    world = SimulatedNode(setup, lives, NOON)
    slow_readings = []
    for second in range(1, 600):
        readings = world.advance(NOON + second, lives, {}, SimulationControl(), second % 15 == 0)
        assert {bool(reading.slow) for reading in readings} == {second % 15 == 0}
        slow_readings += [reading for reading in readings if reading.slow]
    return world, slow_readings


@pytest.mark.parametrize("key", [key for key in sorted(PROFILES) if not PROFILES[key].is_split])
def test_slow_values_are_believable(key: str) -> None:
    profile = PROFILES[key]
    world, slow_readings = worlds(key)
    assert len(slow_readings) == 39 * 8
    for reading in slow_readings:
        for metric in SLOW:
            number = value(reading, metric.key)
            if metric.key in profile.unsupported:
                assert number is Absence.UNSUPPORTED, metric.key
            else:
                assert metric.low <= number <= metric.high, metric.key
        assert value(reading, "temp_margin_c") == profile.temp_slowdown_c - value(
            reading, "temp_c")
        assert value(reading, "mem_unseen_bytes") == 0
        bits = value(reading, "throttle_bits")
        assert not (int(bits) & 0x4 and value(reading, "slowed_power_pct") == 0)
    assert world.facts[3].minor == 3
    assert set(world.facts[0].missing) == set(profile.unsupported)
    assert len(world.links) == 28
    assert {link.nvlinks for link in world.links} == {profile.nvlinks}
    assert [link.path for link in world.links if (link.a, link.b) in ((0, 3), (3, 4))] == [
        "numa node", "system"]


def test_memory_that_leaked_is_held_by_nobody() -> None:
    """Pitfall 15."""
    world = SimulatedNode(SimulationOptions(NODE, "h100", 8, SEED), [], NOON)
    readings = world.advance(NOON + 1, [], {UUIDS[2]: 0.5}, SimulationControl(), True)
    leaked = value(readings[2], "mem_unseen_bytes")
    assert leaked == pytest.approx(0.5 * PROFILES["h100"].mem_total_bytes, rel=0.02)
    assert leaked == value(readings[2], "mem_used_bytes")
    assert value(readings[3], "mem_unseen_bytes") == 0


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedReader:
    monkeypatch.setattr(folder, "LOOK_EVERY_S", 0.0)
    return open_reader(f"node={NODE},gpus=8,seed={SEED},world={tmp_path}")


def set_control(tmp_path: Path, content: object) -> None:
    new = tmp_path / "new"
    new.write_text(json.dumps(content))
    os.replace(new, tmp_path / "control.json")


def test_a_slow_value_that_is_set_shows_at_once(reader: SimulatedReader, tmp_path: Path) -> None:
    reader.read()
    assert reader.read().gpus[0].slow == ()
    errors = random.randrange(1, 99)
    set_control(tmp_path, {"gpus": {UUIDS[1]: {
        "ecc_uncorrected": errors, "recovery_action": 1, "unsupported": ["nvlinks_up"]}}})
    gpu = reader.read().gpus[1]
    assert (value(gpu, "ecc_uncorrected"), value(gpu, "recovery_action")) == (errors, 1)
    assert value(gpu, "nvlinks_up") is Absence.UNSUPPORTED
    assert reader.read().gpus[1].slow == ()
    (tmp_path / "control.json").unlink()
    gpu = reader.read().gpus[1]
    assert (value(gpu, "ecc_uncorrected"), value(gpu, "nvlinks_up")) == (0, 18)


def test_a_slow_value_that_cannot_be_is_refused(
    reader: SimulatedReader, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_control(tmp_path, {"gpus": {UUIDS[1]: {"recovery_action": 9}}})
    assert value(reader.read().gpus[1], "recovery_action") == 0
    assert "recovery_action must be a number from 0 to 5" in capsys.readouterr().err


def test_nodes_of_a_fleet_do_not_say_it_all_in_one_second() -> None:
    """Ten thousand GPUs of it are 4 MB."""
    dues = []
    for number in range(40):
        reader = open_reader(f"node=n{number:03},gpus=1,seed={SEED}")
        assert reader._wants_slow(1_000.0, SimulationControl())
        control = reader._obeyed
        assert control is not None
        dues.append(next(second for second in range(1, 17)
                         if reader._wants_slow(1_000.0 + second, control)))
    assert len(set(dues)) > 8
    assert max(dues) <= SLOW_EVERY_S

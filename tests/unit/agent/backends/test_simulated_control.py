"""control.json: exact values, their withdrawal, and warnings about a broken file."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from agent.backends.simulation import folder
from agent.backends.simulation.control import parse
from agent.backends.simulation.folder import SimulationControlFile
from agent.backends.simulation.reader import (
    SimulatedReader,
    open_reader,
    parse_options,
)
from agent.backends.simulation.world import SimulationOptions, uuid_of
from gpudeck.errors import CommandError, ExitCode
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence

NODE = "n003"
SEED = random.randrange(2**32)
UUIDS = [uuid_of(SEED, NODE, index) for index in range(4)]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedReader:
    monkeypatch.setattr(folder, "LOOK_EVERY_S", 0.0)
    return open_reader(f"node={NODE},gpus=4,seed={SEED},world={tmp_path}")


def set_control(tmp_path: Path, content: object) -> None:
    new = tmp_path / "new"
    new.write_text(content if isinstance(content, str) else json.dumps(content))
    os.replace(new, tmp_path / "control.json")


def test_a_value_is_exact_and_constant_until_withdrawn(
    reader: SimulatedReader, tmp_path: Path
) -> None:
    before = reader.read()
    util, power = random.randrange(101), round(random.uniform(1, 5000), 3)
    set_control(tmp_path, {"gpus": {UUIDS[2]: {"util_pct": util, "power_w": power}}})
    for _ in range(3):
        gpus = reader.read().gpus
        assert gpus[2].values[COLUMN["util_pct"]] == util
        assert gpus[2].values[COLUMN["util_max_pct"]] == util
        assert gpus[2].values[COLUMN["power_w"]] == power
        assert gpus[2].values[COLUMN["power_max_w"]] == power
    absences = [gpu.absent for gpu in gpus]
    assert absences == [gpu.absent for gpu in before.gpus]
    assert [gpu.uuid for gpu in gpus] == UUIDS
    (tmp_path / "control.json").unlink()
    after = reader.read().gpus[2]
    assert after.values[COLUMN["power_w"]] <= 700
    assert after.values[COLUMN["power_w"]] != power


def test_lost_unsupported_and_a_value_where_the_board_has_none(
    reader: SimulatedReader, tmp_path: Path
) -> None:
    set_control(tmp_path, {"gpus": {
        UUIDS[0]: {"state": "lost"}, UUIDS[1]: {"unsupported": ["temp_c", "util_pct"]},
        UUIDS[3]: {"fan_pct": 61},
    }})
    reading = reader.read()
    lost_gpu, bare, same, fan = reading.gpus
    assert lost_gpu.state == "lost"
    assert lost_gpu.absent == bytes([Absence.LOST]) * WIDTH
    missing = {key for key, column in COLUMN.items() if bare.absent[column] == Absence.UNSUPPORTED}
    assert missing == {"temp_c", "util_pct", "util_max_pct", "fan_pct"}
    assert bare.values[COLUMN["temp_c"]] == 0
    assert same.absent[COLUMN["temp_c"]] == Absence.PRESENT
    assert (fan.absent[COLUMN["fan_pct"]], fan.values[COLUMN["fan_pct"]]) == (0, 61)
    assert reading.processes is not None
    assert UUIDS[0] not in {process.gpu_uuid for process in reading.processes}


def test_a_broken_file_keeps_the_last_good_one_and_is_told_once(
    reader: SimulatedReader, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_control(tmp_path, {"gpus": {UUIDS[0]: {"util_pct": 93}}})
    reader.read()
    assert capsys.readouterr().err == ""
    set_control(tmp_path, '{"gpus": {')
    for _ in range(3):
        assert reader.read().gpus[0].values[COLUMN["util_pct"]] == 93
    stderr = capsys.readouterr().err
    assert stderr.count("control.json") == 1
    assert "stays in force" in stderr


def test_control_beats_the_fault_schedule(tmp_path: Path) -> None:
    options = SimulationOptions(NODE, gpus=4, seed=SEED, world=tmp_path, fault_odds=1.0)
    set_control(tmp_path, {"gpus": {uuid: {"state": "ok"} for uuid in UUIDS}})
    reader = SimulatedReader(options, SimulationControlFile(tmp_path / "control.json"))
    assert {gpu.state for gpu in reader.read().gpus} == {"ok"}


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({"gpu": {}}, "unknown key 'gpu'"),
        ({"gpus": []}, "must be an object"),
        ({"gpus": {"GPU-1": 5}}, "an object is expected"),
        ({"gpus": {"GPU-1": {"utilisation": 5}}}, "unknown key 'utilisation'"),
        ({"gpus": {"GPU-1": {"util_pct": 101}}}, "0 to 100"),
        ({"gpus": {"GPU-1": {"util_pct": True}}}, "must be a number"),
        ({"gpus": {"GPU-1": {"util_pct": "93"}}}, "must be a number"),
        ({"gpus": {"GPU-1": {"state": "dead"}}}, "ok, stale, lost"),
        ({"gpus": {"GPU-1": {"state": ["lost"]}}}, "ok, stale, lost"),
        ({"gpus": {"GPU-1": {"unsupported": "fan_pct"}}}, "must be a list"),
        ({"gpus": {"GPU-1": {"unsupported": ["fan"]}}}, "no metric 'fan'"),
        ({"nodes": {"n001": {"reader": "crash"}}}, "hang"),
        ({"tasks": {"1-2-3": {"leak_memory_on_exit": 1}}}, "true or false"),
        ({"tasks": {"1-2-3": {"ignore_sigterm": "yes"}}}, "true or false"),
        ({"tasks": {"1-2-3": {"fork_on_term": None}}}, "true or false"),
        ({"tasks": {"1-2-3": {"leak": True}}}, "unknown key 'leak'; there are leak_memory_on"),
    ],
)
def test_what_means_nothing_is_said(content: dict[str, Any], word: str) -> None:
    control, warnings = parse(json.dumps(content))
    assert len(warnings) == 1
    assert word in warnings[0]
    assert not control.hung_nodes
    assert not control.leaking_tasks


@pytest.mark.parametrize("text", ["", "[]", "nul", "{", "5", '"x"'])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)


def test_options(tmp_path: Path) -> None:
    odd = tmp_path / "a b,c"
    assert parse_options(f"node=x,gpus=2 seed=7,world={odd},faults=0.5") == SimulationOptions(
        "x", "h100", 2, 7, odd, 0.5)
    for bad in ("gpus=-1", "gpus=many", "gpus=300", "profile=v100", "speed=1", "gpus", "faults=2",
                "mps=1"):
        with pytest.raises(CommandError) as error:
            parse_options(bad)
        assert error.value.code == ExitCode.USAGE


def test_energy_goes_on_after_a_restart(tmp_path: Path) -> None:
    options = SimulationOptions(NODE, gpus=4, seed=SEED, world=tmp_path)
    reader = SimulatedReader(options, None)
    before = [gpu.values[COLUMN["energy_j"]] for gpu in reader.read().gpus]
    reader.close()
    after = [gpu.values[COLUMN["energy_j"]] for gpu in SimulatedReader(options, None).read().gpus]
    for old, new in zip(before, after, strict=True):
        assert 0 <= new - old < 5_000

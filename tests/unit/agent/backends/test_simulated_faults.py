"""Faults of the simulation: on demand by control.json, and by the seed."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from agent.backends import ReaderUnavailableError
from agent.backends.simulation import folder, stage
from agent.backends.simulation.control import parse
from agent.backends.simulation.reader import SimulatedReader, open_reader
from agent.backends.simulation.stage import (
    UPGRADED_VERSION,
    WINDOW_S,
    XIDS,
    SimulatedFaults,
    xids_between,
)
from agent.backends.simulation.world import uuid_of
from agent.telemetry.events import NodeEventDetector
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN, THROTTLE_REASONS, Absence

NODE = "n003"
SEED = random.randrange(2**32)
UUIDS = [uuid_of(SEED, NODE, index) for index in range(4)]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedReader:
    monkeypatch.setattr(folder, "LOOK_EVERY_S", 0.0)
    return make(tmp_path)


def make(tmp_path: Path) -> SimulatedReader:
    return open_reader(f"node={NODE},gpus=4,seed={SEED},world={tmp_path}")


def set_control(tmp_path: Path, content: object) -> None:
    new = tmp_path / "new"
    new.write_text(json.dumps(content))
    os.replace(new, tmp_path / "control.json")


def xids(reader: SimulatedReader) -> list[tuple[str | None, float]]:
    return [(event.gpu_uuid, event.numbers["xid"]) for event in reader.read().happenings]


def test_an_xid_is_told_once_when_its_entry_comes(reader: SimulatedReader, tmp_path: Path) -> None:
    assert xids(reader) == []
    codes = random.sample(range(1, 200), 3)
    set_control(tmp_path, {"gpus": {UUIDS[1]: {"xid": codes[0]}}})
    assert xids(reader) == [(UUIDS[1], codes[0])]
    assert xids(reader) == []
    set_control(tmp_path, {"gpus": {UUIDS[1]: {"xid": codes[:2]}, UUIDS[2]: {"xid": codes[2]}}})
    assert xids(reader) == [(UUIDS[1], codes[1]), (UUIDS[2], codes[2])]
    assert xids(reader) == []
    set_control(tmp_path, {})
    assert xids(reader) == []
    set_control(tmp_path, {"gpus": {UUIDS[1]: {"xid": codes[0]}}})
    assert xids(reader) == [(UUIDS[1], codes[0])]


def test_an_xid_in_the_file_is_told_by_the_node_that_has_the_gpu(reader: SimulatedReader,
                                                                 tmp_path: Path) -> None:
    """Found by examiners: all nodes of a demo reported it."""
    assert xids(reader) == []
    mine, code = random.choice(UUIDS), random.randint(1, 200)
    set_control(tmp_path, {"gpus": {mine: {"xid": code}, "GPU-of-another-node": {"xid": code}}})
    assert xids(reader) == [(mine, code)]


@pytest.mark.parametrize("age_s", [0.0, 60.0])
def test_a_reader_that_begins_anew_does_not_tell_an_old_entry_again(
    tmp_path: Path, age_s: float
) -> None:
    set_control(tmp_path, {"gpus": {UUIDS[0]: {"xid": 79}}})
    modified_at = os.stat(tmp_path / "control.json").st_mtime - age_s
    os.utime(tmp_path / "control.json", (modified_at, modified_at))
    assert xids(make(tmp_path)) == ([] if age_s else [(UUIDS[0], 79)])


@pytest.mark.parametrize("how", [{"lost": True}, {"state": "lost"}])
def test_a_gpu_that_falls_off_the_bus_says_so_by_xid_79(
    reader: SimulatedReader, tmp_path: Path, how: Any
) -> None:
    reader.read()
    set_control(tmp_path, {"gpus": {UUIDS[3]: how}})
    reading = reader.read()
    assert [gpu.state for gpu in reading.gpus] == ["ok", "ok", "ok", "lost"]
    assert [(event.gpu_uuid, event.numbers) for event in reading.happenings] == [
        (UUIDS[3], {"xid": 79.0})]
    assert xids(reader) == []


def test_slow_metrics_and_their_events(reader: SimulatedReader, tmp_path: Path) -> None:
    agent, errors = NodeEventDetector(), random.randrange(1, 1_000)
    set_control(tmp_path, {"gpus": {UUIDS[0]: {"ecc_uncorrected": 0}}})
    assert agent.reading(reader.read(), (), None, 0.0) == []
    set_control(tmp_path, {"gpus": {
        UUIDS[0]: {"ecc_uncorrected": errors, "rows_pending": True,
                   "unsupported": ["nvlinks_up"], "recovery_action": 1}}})
    reading = reader.read()
    gpu = reading.gpus[0]
    for key, value in (("ecc_uncorrected", errors), ("rows_pending", 1), ("recovery_action", 1)):
        assert (gpu.slow[SLOW_COLUMN[key]], gpu.slow_absent[SLOW_COLUMN[key]]) == (value, 0)
    assert gpu.slow_absent[SLOW_COLUMN["nvlinks_up"]] == Absence.UNSUPPORTED
    events = {event.kind: event for event in agent.reading(reading, (), None, 1.0)}
    assert set(events) == {"ecc_uncorrected", "rows_pending", "recovery_advised"}
    assert events["ecc_uncorrected"].numbers["count"] == errors
    assert agent.reading(reader.read(), (), None, 2.0) == []


@pytest.mark.parametrize(("bit", "word"), THROTTLE_REASONS.items())
def test_a_reason_to_throttle_in_words(
    reader: SimulatedReader, tmp_path: Path, bit: int, word: str
) -> None:
    set_control(tmp_path, {"gpus": {UUIDS[2]: {"throttle": word}}})
    assert reader.read().gpus[2].values[COLUMN["throttle_bits"]] == bit


def test_a_driver_that_goes_and_one_that_is_reloaded(
    reader: SimulatedReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = reader.read()
    set_control(tmp_path, {"nodes": {NODE: {"driver": "gone"}, "n004": {"driver": "gone"}}})
    for _ in range(3):
        for ask in (reader.read, reader.fresh):
            with pytest.raises(ReaderUnavailableError, match="modprobe") as error:
                ask()
            assert error.value.state == "no_driver"
    set_control(tmp_path, {"nodes": {NODE: {"driver": "reloaded"}}})
    with pytest.raises(ReaderUnavailableError):
        reader.read()
    monkeypatch.setattr(stage, "RELOAD_S", 0.0)
    after = reader.read()
    assert after.driver_version == before.driver_version
    assert [gpu.uuid for gpu in after.gpus] == UUIDS
    energy = COLUMN["energy_j"]
    for old, new in zip(before.gpus, after.gpus, strict=True):
        assert new.values[energy] < 60_000 < old.values[energy]
    set_control(tmp_path, {"nodes": {NODE: {"driver": "upgraded"}}})
    assert reader.read().driver_version == UPGRADED_VERSION != before.driver_version


def test_boards_that_are_renumbered_keep_what_is_theirs(
    reader: SimulatedReader, tmp_path: Path
) -> None:
    """pitfall 13: the UUID is the GPU, its number is not"""
    set_control(tmp_path, {"gpus": {UUIDS[0]: {"temp_c": 77}}, "nodes": {NODE: {"permute": True}}})
    reading = reader.read()
    assert [facts.uuid for facts in reading.facts] == UUIDS[::-1]
    assert [gpu.uuid for gpu in reading.gpus] == UUIDS[::-1]
    assert [facts.index for facts in reading.facts] == [0, 1, 2, 3]
    assert reading.gpus[3].values[COLUMN["temp_c"]] == 77


@pytest.mark.parametrize(("content", "word"), [
    ({"gpus": {"GPU-1": {"xid": "79"}}}, "xid must be a number"),
    ({"gpus": {"GPU-1": {"xid": True}}}, "xid must be a number"),
    ({"gpus": {"GPU-1": {"xid": [79, -1]}}}, "xid must be a number"),
    ({"gpus": {"GPU-1": {"throttle": "hot"}}}, "throttle must be one of"),
    ({"gpus": {"GPU-1": {"lost": 1}}}, "lost must be true or false"),
    ({"gpus": {"GPU-1": {"rows_pending": 2}}}, "rows_pending must be a number from 0 to 1"),
    ({"gpus": {"GPU-1": {"ecc_uncorrected": True}}}, "ecc_uncorrected must be a number"),
    ({"gpus": {"GPU-1": {"util_pct": 10**400}}}, "util_pct must be a number"),
    ({"nodes": {"n001": {"driver": "broken"}}}, "driver must be one of"),
    ({"nodes": {"n001": {"permute": "yes"}}}, "permute must be true or false"),
    ({"nodes": {"n001": {"mps": "alive"}}}, "mps must be one of dead"),
    ({"nodes": {"n001": {"drivers": "gone"}}}, "unknown key 'drivers'"),
])
def test_what_means_nothing_is_told(content: Any, word: str) -> None:
    _, warnings = parse(json.dumps(content))
    assert len(warnings) == 1
    assert word in warnings[0]


def test_xids_by_the_seed_come_now_and_then_and_once() -> None:
    days, odds = 20, 0.25
    since = random.uniform(1.6e9, 1.8e9)
    whole = [xid for day in range(days * 96)
             for xid in xids_between(SEED, NODE, 8, since + day * WINDOW_S,
                                     since + (day + 1) * WINDOW_S, odds)]
    assert 0.5 < len(whole) / (days * 96 * 2 * odds) < 2
    assert {code for _, code, _ in whole} <= set(XIDS)
    assert {index for index, _, _ in whole} == set(range(8))
    cut = [xid for second in range(3_600)
           for xid in xids_between(SEED, NODE, 8, since + second, since + second + 1, odds)]
    assert cut == [xid for xid in whole if xid[2] <= since + 3_600]
    assert xids_between(SEED, NODE, 8, since, since + 600, 0.0) == []


def test_a_lost_gpu_tells_no_xid_by_the_seed() -> None:
    one = SimulatedFaults(SEED, NODE, 0, 1.0, 0.0)
    assert one.happenings((), parse("{}")[0], 1e6) == ()

"""Simulated boards split by MIG: what their instances report, and that nothing is counted twice."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from agent.backends.simulation import folder
from agent.backends.simulation.jobs import lanes_of
from agent.backends.simulation.mig import slices_of
from agent.backends.simulation.profiles import PROFILES
from agent.backends.simulation.reader import SimulatedReader, open_reader
from agent.backends.simulation.world import SimulationOptions, facts_of, units_of
from agent.readings import GpuReading, Reading
from gpudeck.contract.wire import GpuFacts
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN, Absence

GPUS = 8


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedReader:
    monkeypatch.setattr(folder, "LOOK_EVERY_S", 0.0)
    seed = random.randrange(2**32)
    return open_reader(f"node=n{random.randint(2, 99):03},profile=h100-mig,gpus={GPUS},"
                       f"seed={seed},world={tmp_path}")


def value(gpu: GpuReading, key: str) -> Any:
    at = COLUMN[key]
    return gpu.values[at] if gpu.absent[at] == Absence.PRESENT else Absence(gpu.absent[at])


def instances(reading: Reading) -> list[tuple[GpuFacts, GpuReading]]:
    return [(facts, gpu) for facts, gpu in zip(reading.facts, reading.gpus, strict=True)
            if facts.parent_uuid is not None]


def test_two_of_eight_boards_are_split_and_instances_follow_their_board() -> None:
    facts = facts_of(SimulationOptions("n001", "h100-mig", GPUS,
                                        random.randrange(2**32)))
    layout = [(gpu.index, gpu.mig_profile) for gpu in facts]
    assert layout == [*((index, None) for index in range(7)), *[(6, "1g.10gb")] * 7, (7, None),
                      (7, "4g.40gb"), (7, "3g.40gb")]
    boards = {gpu.uuid: gpu for gpu in facts if gpu.parent_uuid is None}
    for gpu in facts:
        if gpu.parent_uuid is not None:
            assert boards[gpu.parent_uuid].index == gpu.index
            assert gpu.missing["util_pct"] == "unsupported"
    assert len({gpu.uuid for gpu in facts}) == len(facts) == 17


def test_every_instance_fits_its_board() -> None:
    board = PROFILES["h100-mig"]
    for index in range(GPUS):
        slices = slices_of(index, GPUS)
        assert sum(slice_.sevenths for slice_ in slices) in (0, 7)
        total_bytes = sum(slice_.mem_total_bytes for slice_ in slices)
        assert total_bytes <= board.mem_total_bytes - board.mem_reserved_bytes


def test_utilization_is_never_told_and_heat_is_the_boards(reader: SimulatedReader) -> None:
    reading = reader.read()
    split = {facts.parent_uuid for facts, _ in instances(reading)}
    for facts, gpu in zip(reading.facts, reading.gpus, strict=True):
        is_instance, is_split = facts.parent_uuid is not None, facts.uuid in split
        has_util = value(gpu, "util_pct") is not Absence.UNSUPPORTED
        assert has_util == (not is_instance and not is_split)
        assert isinstance(value(gpu, "temp_c"), float) == (not is_instance)
        assert isinstance(value(gpu, "sm_active_pct"), float) == (not is_split)
        unsupported = {key for key in COLUMN if value(gpu, key) is Absence.UNSUPPORTED}
        unsupported |= {key for key, at in SLOW_COLUMN.items()
                        if gpu.slow_absent[at] == Absence.UNSUPPORTED}
        assert unsupported == facts.missing.keys()
        if not is_instance:
            assert gpu.slow[SLOW_COLUMN["mig_on"]] == is_split


def test_links_join_boards_and_no_instances(reader: SimulatedReader) -> None:
    reading = reader.read()
    ends = [reading.facts[at] for link in reading.links for at in (link.a, link.b)]
    assert {facts.index for facts in ends} == set(range(GPUS))
    assert {facts.parent_uuid for facts in ends} == {None}


def test_jobs_of_several_gpus_never_reach_instances_and_split_boards_have_none() -> None:
    for number in range(1, 40):
        setup = SimulationOptions(f"n{number:03}", "h100-mig", GPUS,
                                   random.randrange(2**32))
        uuids, count = units_of(setup)
        assert (len(uuids), count) == (GPUS - 2 + 9, 9)
        split = {gpu.parent_uuid for gpu in facts_of(setup)} - {None}
        assert not split & set(uuids)
        for lane in lanes_of(setup.seed, setup.node, len(uuids) - count, count):
            assert lane.width == 1 or lane.first + lane.width <= len(uuids) - count


def test_the_board_holds_what_its_instances_hold(reader: SimulatedReader) -> None:
    reading = reader.read()
    boards = {facts.uuid: gpu for facts, gpu in zip(reading.facts, reading.gpus, strict=True)}
    sums: dict[str, float] = {}
    for facts, gpu in instances(reading):
        assert 0 <= value(gpu, "mem_used_bytes") <= (facts.mem_total_bytes or 0)
        sums[str(facts.parent_uuid)] = sums.get(str(facts.parent_uuid), 0) + value(
            gpu, "mem_used_bytes")
    for uuid, amount in sums.items():
        assert value(boards[uuid], "mem_used_bytes") == pytest.approx(amount, abs=64)
    busy_uuids = {row.gpu_uuid for row in reading.processes or ()}
    assert not busy_uuids & sums.keys()
    its = {gpu.uuid for _, gpu in instances(reading)}
    assert busy_uuids & its
    assert all((row.sm_pct is None) == (row.gpu_uuid in its) for row in reading.processes or ())


def test_control_json_reaches_an_instance_and_a_lost_board_takes_its_own_with_it(
    reader: SimulatedReader, tmp_path: Path
) -> None:
    reading = reader.read()
    facts, _ = random.choice(instances(reading))
    board = next(candidate for candidate in reading.facts
                 if candidate.mig_profile is None and candidate.index == 13 - facts.index)
    active, mem_bytes = random.uniform(0, 100), float(random.randrange(2**30))
    gpus = {facts.uuid: {"sm_active_pct": active, "mem_used_bytes": mem_bytes},
            board.uuid: {"state": "lost"}}
    new = tmp_path / "new"
    new.write_text(json.dumps({"gpus": gpus}))
    new.replace(tmp_path / "control.json")
    reading = reader.read()
    [gpu] = [gpu for gpu in reading.gpus if gpu.uuid == facts.uuid]
    assert (value(gpu, "sm_active_pct"), value(gpu, "mem_used_bytes")) == (active, mem_bytes)
    for its, gpu in zip(reading.facts, reading.gpus, strict=True):
        is_lost = board.uuid in (its.uuid, its.parent_uuid)
        assert gpu.state == ("lost" if is_lost else "ok")

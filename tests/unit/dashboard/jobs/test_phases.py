"""Phases of a job, by its minutes: named where there is evidence, and called work where there is
none."""

from typing import Any

import numpy as np
import pytest

from dashboard.jobs.core.job_minutes import OF_GPUS, OF_HOSTS, JobMinutes, JobRank, Matrix
from dashboard.jobs.core.phases import JobPhase, PhaseWitnesses, phases_of
from tests.dice import generator
from tests.insight_scenes import noise, serving

T0, RANKS, TRAINS_W = 1_700_000_040, 4, 500.0
NOTHING: dict[str, Any] = {"began_at": T0, "checkpoints": (), "has_steps": False, "serves": False}


def witnesses(**facts: Any) -> PhaseWitnesses:
    return PhaseWitnesses(**NOTHING | facts)


def job(power: Matrix, util: Matrix, **more: Matrix) -> JobMinutes:
    """`power`, `util`: of each minute, or of each rank and minute."""
    shape = (RANKS, power.shape[-1])
    ranks = [JobRank("n", "h", f"G{at}", str(at), f"t{at}", "j", at, 80e9, 700.0)
             for at in range(RANKS)]
    numbers = dict.fromkeys((*OF_GPUS, *OF_HOSTS, "host_cpu_pct"), np.full(shape, np.nan)) | {
        "util_pct": util * np.ones(shape), "power_w": power * np.ones(shape),
        "mem_used_bytes": np.full(shape, 4e10), "held_s": np.full(shape, 60.0)}
    return JobMinutes(T0, 60, ranks, numbers | {
        name: values * np.ones(shape) for name, values in more.items()})


def training(dice: np.random.Generator, minutes: int) -> tuple[Matrix, Matrix]:
    power = TRAINS_W * (1 + noise(dice, minutes, 1, 0.02, 0.5)[:, 0])
    return power, np.full(minutes, 95.0)


def kinds(phases: list[JobPhase]) -> list[tuple[str, int]]:
    """Kinds with their minutes."""
    return [(phase.kind, (phase.end - phase.start) // 60) for phase in phases]


def test_work_is_called_training_on_evidence_alone() -> None:
    power, util = training(generator(), 60)
    minutes = job(power, util)
    assert kinds(phases_of(minutes, witnesses())) == [("work", 60)]
    assert kinds(phases_of(minutes, witnesses(has_steps=True))) == [("training", 60)]
    assert kinds(phases_of(minutes, witnesses(checkpoints=[(T0 - 900.0, 0.0)]))) == [
        ("training", 60)]
    assert kinds(phases_of(minutes, witnesses(serves=True))) == [("serving", 60)]


def test_it_loads_before_it_works_where_its_host_works_or_its_memory_grows() -> None:
    dice = generator()
    loads = int(dice.integers(2, 20))
    power, util = training(dice, 60)
    power[:loads], util[:loads] = 90.0, dice.uniform(0, 4, loads)
    cpu = np.where(np.arange(60) < loads, 150.0, 5.0)
    memory = np.where(np.arange(60) < loads, 1e9 * np.arange(60), 4e10)
    for evidence in ({"host_cpu_pct": cpu}, {"mem_used_bytes": memory}):
        assert kinds(phases_of(job(power, util, **evidence), witnesses())) == [
            ("loading", loads), ("work", 60 - loads)]
    assert kinds(phases_of(job(power, util), witnesses()))[0] == ("idle", loads)
    # A model that is loaded and waits for work does not load on.
    never = job(np.full(60, 90.0), np.zeros(60), mem_used_bytes=memory)
    assert kinds(phases_of(never, witnesses())) == [("loading", loads), ("idle", 60 - loads)]
    known_before = job(power, util, host_cpu_pct=cpu)
    assert phases_of(known_before, witnesses(began_at=T0 - 3_600.0))[0].kind != "loading"


def test_evaluations_are_named_once_three_are_alike() -> None:
    dice = generator()
    every, lasts = int(dice.integers(18, 28)), int(dice.integers(4, 8))
    power, util = training(dice, 120)
    begins = [every * number for number in range(1, 5) if every * number + lasts < 120]
    for at in begins:
        power[at:at + lasts], util[at:at + lasts] = 0.65 * power[at:at + lasts], 60.0
    phases = kinds(phases_of(job(power, util), witnesses()))
    assert [minutes for kind, minutes in phases if kind == "evaluation"] == [lasts] * len(begins)
    assert {kind for kind, _ in phases} == {"training", "evaluation"}
    assert {kind for kind, _ in kinds(phases_of(job(power, util), witnesses(serves=True)))} == {
        "serving"}
    twice = power.copy()
    for at in begins[2:]:
        twice[at:at + lasts] = TRAINS_W
    assert kinds(phases_of(job(twice, util), witnesses())) == [("work", 120)], "two are no rhythm"
    late = power.copy()
    late[begins[1]:begins[1] + lasts] = TRAINS_W
    shifted = begins[1] + every // 2
    late[shifted:shifted + lasts] = 0.65 * TRAINS_W
    assert kinds(phases_of(job(late, util), witnesses())) == [("work", 120)], "not at intervals"


def test_load_that_comes_and_goes_has_no_evaluations() -> None:
    power = serving(generator(), 120 * 200, 1)[:, 0].reshape(200, 120)
    for run in power:
        assert {kind for kind, _ in kinds(phases_of(job(run, np.full(120, 60.0)), witnesses()))
                } == {"work"}


def test_a_short_rest_is_a_pause_a_known_one_a_checkpoint_and_a_long_one_idle() -> None:
    power, util = training(generator(), 100)
    rests = {20: 2, 40: 2, 60: 15, 97: 3}
    for at, lasts in rests.items():
        power[at:at + lasts], util[at:at + lasts] = 100.0, 0.0
    saved = [(T0 + 42 * 60.0, 0.0), (T0 + 18 * 60.0, 240.0)]
    assert kinds(phases_of(job(power, util), witnesses(checkpoints=saved))) == [
        ("training", 20), ("checkpoint", 2), ("training", 18), ("checkpoint", 2),
        ("training", 18), ("idle", 15), ("training", 22), ("idle", 3)]
    assert kinds(phases_of(job(power, util), witnesses()))[1] == ("pause", 2)


def test_what_is_not_known_is_not_named() -> None:
    power, util = training(generator(), 30)
    util[10:12] = np.nan
    minutes = job(power, util)
    assert kinds(phases_of(minutes, witnesses())) == [("work", 10), ("unknown", 2), ("work", 18)]
    minutes.numbers["held_s"][:, 20:] = 0.0
    assert kinds(phases_of(minutes, witnesses()))[-1] == ("work", 8), "it has gone"
    one = job(power, util)
    one.numbers["util_pct"][0, :] = np.nan
    assert {kind for kind, _ in kinds(phases_of(one, witnesses()))} == {"unknown"}
    coarse = JobMinutes(T0, 300, one.ranks, one.numbers)
    assert phases_of(coarse, witnesses()) == []


@pytest.mark.parametrize("minutes", [0, 1])
def test_a_job_that_has_just_begun(minutes: int) -> None:
    empty = job(np.full(minutes, 500.0), np.full(minutes, 90.0))
    assert kinds(phases_of(empty, witnesses())) == [("work", 1)] * minutes

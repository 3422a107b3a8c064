"""Findings: injected faults are found with the right ranks, and runs as they were recorded raise
none. The shipped rules have the same thresholds."""

import random
from typing import Any

import numpy as np
import pytest

from dashboard.alerts.rules_file import PACK, parse
from dashboard.jobs.core import findings, signs
from dashboard.jobs.core.findings import findings_of
from dashboard.jobs.core.job_minutes import OF_GPUS, OF_HOSTS, JobMinutes, JobRank, Matrix

STEPS, T0 = 60, 1_700_000_000
# Watts of the ranks, utilization and memory utilization: steady phases of 8 H100s of 700 W, from
# github.com/atharvanihalani/gpu-telemetry-exploration (e7e6625b), with the spread between ranks.
RECORDED = {
    "8B loaded, idle": ((117, 123), 0, 0), "DDP 136M": ((538, 563), 85, 42),
    "DDP 3.4B": ((685, 692), 100, 48), "FSDP with offload": ((183, 191), 14, 5),
    "8 decoders": ((196, 213), 69, 19)}


def job(watts: Matrix, util: float | Matrix = 100.0, mem_util: float = 45.0, nodes: int = 1,
        share: float = 0.7, **more: Matrix) -> JobMinutes:
    many, steps = watts.shape
    ranks = [JobRank(f"n{at * nodes // many}", f"h{at * nodes // many}", f"G{at}", str(at % 8),
                     f"t{at}", "j", at, 80e9, 700.0) for at in range(many)]
    whole = np.ones((many, steps))
    numbers = dict.fromkeys((*OF_GPUS, *OF_HOSTS, "host_cpu_pct"), whole * np.nan) | {
        "util_pct": whole * util, "util_max_pct": whole * util,
        "load_pct": whole * util, "mem_util_pct": whole * mem_util,
        "power_w": watts, "mem_used_bytes": whole * share * 80e9, "held_s": whole * 60} | more
    return JobMinutes(T0, 60, ranks, numbers)


def kinds(minutes: JobMinutes, is_running: bool = True) -> dict[str, list[int]]:
    return {one.kind: one.ranks for one in findings_of(minutes, is_running)}


def noisy(level: float, many: int = 8, spread: float = 0.02) -> Matrix:
    lots = np.random.default_rng(random.randrange(2**32))
    return level * (1 + spread * lots.standard_normal((many, STEPS)))


@pytest.mark.parametrize("name", RECORDED)
def test_runs_as_they_were_recorded_raise_nothing(name: str) -> None:
    (low, high), util, mem_util = RECORDED[name]
    watts = np.linspace(low, high, 8).reshape(-1, 1) * np.ones(STEPS) * noisy(1.0)
    alarms = kinds(job(watts, util, mem_util))
    assert set(alarms) <= ({"unused"} if util == 0 else set())  # that one is: it is loaded and idle


def test_stages_of_a_pipeline_are_no_slow_ranks() -> None:
    watts = np.repeat([[417.0], [481.0]], 4, axis=0) * np.ones(STEPS)
    assert kinds(job(watts, 98.0, 43.0)) == {}


def test_half_that_does_something_else_is_not_slow() -> None:
    """Four of eight H100s train, four generate: the same recordings, e2."""
    watts = np.repeat([[131.0], [685.0]], 4, axis=0) * np.ones(STEPS)
    util = np.repeat([[6.0], [99.0]], 4, axis=0) * np.ones(STEPS)
    assert kinds(job(watts, util, 30.0)) == {}


def test_a_collective_that_hangs_is_found_after_three_minutes() -> None:
    since = STEPS - 3
    watts, mem_util = noisy(600), np.full((8, STEPS), 45.0)
    watts[:, since:] = random.uniform(80, 200)
    mem_util[:, since:] = 0
    links = np.full((8, STEPS), 9e10)
    links[:, since:] = 0
    report = findings_of(job(watts, mem_util_pct=mem_util, nvlink_tx_bytes_per_s=links), True)
    assert [(one.kind, one.ranks, one.since) for one in report] == [
        ("stuck", [*range(8)], float(T0 + since * 60))]
    evidence = {one.metric: one.value for one in report[0].evidence}
    assert evidence.keys() == {"util_pct", "power_w", "mem_util_pct", "nvlink_tx_bytes_per_s"}
    assert evidence["nvlink_tx_bytes_per_s"] == 0
    assert {one.metric: one.value for one in findings_of(job(
        watts, mem_util_pct=mem_util), True)[0].evidence}["nvlink_tx_bytes_per_s"] is None
    watts[:, -3] = 600
    assert kinds(job(watts, mem_util_pct=mem_util)) == {}  # not yet


def test_the_one_rank_at_0_is_named_and_no_other() -> None:
    missing, other = random.sample(range(8), 2)
    watts, mem_util, util = noisy(600), np.full((8, STEPS), 45.0), np.full((8, STEPS), 100.0)
    watts[:, -4:], mem_util[:, -4:] = random.uniform(80, 200), 0
    util[missing, -4:] = 0.0
    [one] = findings_of(job(watts, util, mem_util_pct=mem_util), True)
    assert one.kind == "stuck"
    assert missing not in one.ranks
    assert f"rank {missing} on h0:{missing} is the only one at 0 %" in one.sentence.lower()
    for value in (0.0, 40.0, np.nan):  # a second one, one that works, one that is not known
        also = util.copy()
        also[other, -4:] = value
        [one] = findings_of(job(watts, also, mem_util_pct=mem_util), True)
        assert "at 0 %" not in one.sentence


def test_a_slow_rank_is_named_after_four_minutes_on_its_own_node() -> None:
    slow = random.randrange(8, 16)
    watts = noisy(600, 16)
    watts[slow, -4:] *= 0.7
    [one] = findings_of(job(watts, nodes=2), True)
    assert (one.kind, one.ranks, one.since) == ("slow_rank", [slow], float(T0 + 56 * 60))
    assert f"rank {slow} on h1" in one.sentence.lower()
    watts[slow, -4] = 600
    assert kinds(job(watts, nodes=2)) == {}


def add_pauses(watts: Matrix, util: Matrix, every: int, minutes: int = 1, first: int | None = None
               ) -> None:
    """Let all ranks rest while they write a checkpoint: for half of a minute and the next ones."""
    for at in range(every - 1 if first is None else first, STEPS, every):
        watts[:, at] = (watts[:, at] + 120) / 2
        util[:, at] /= 2
        watts[:, at + 1:at + 1 + minutes], util[:, at + 1:at + 1 + minutes] = 120, 0


def findings_by_minute(watts: Matrix, util: Matrix, **more: Matrix) -> list[dict[str, list[int]]]:
    """Return the findings minute by minute, each time of what has been until then."""
    minutes = []
    for end in range(1, STEPS + 1):
        until: Any = {name: values[:, :end] for name, values in more.items()}
        minutes.append(kinds(job(watts[:, :end], util[:, :end], **until)))
    return minutes


@pytest.mark.parametrize("every", [7, 12])
def test_a_slow_rank_is_found_once_in_a_job_that_writes_checkpoints(every: int) -> None:
    slow, watts, util = random.randrange(8), noisy(600, spread=0.01), np.full((8, STEPS), 99.0)
    watts[slow] *= 0.72
    add_pauses(watts, util, every)
    assert findings_by_minute(watts, util) == [{}] * 3 + [{"slow_rank": [slow]}] * (STEPS - 3)


@pytest.mark.parametrize("minutes", [2, 3])
def test_a_slow_rank_is_found_in_a_job_that_rests_for_most_of_every_five_minutes(minutes: int
                                                                                 ) -> None:
    """The job never works for four minutes in a row."""
    slow, watts, util = random.randrange(8), noisy(600, spread=0.01), np.full((8, STEPS), 99.0)
    watts[slow] *= random.uniform(0.4, 0.7)
    add_pauses(watts, util, 5, minutes, first=2)
    found_after = 2 + minutes + 1  # three minutes before the pause, one after it
    assert findings_by_minute(watts, util) == (
        [{}] * found_after + [{"slow_rank": [slow]}] * (STEPS - found_after))
    [one] = findings_of(job(watts, util), True)
    assert one.since == T0


def test_pauses_alone_make_no_rank_slow() -> None:
    """A rank begins later after each checkpoint, and is as fast as the others from then on."""
    late, watts, util = random.randrange(8), noisy(600, spread=0.01), np.full((8, STEPS), 99.0)
    add_pauses(watts, util, 5, 2, first=2)
    watts[late, 5::5] = 450  # the minute after the pause
    assert findings_by_minute(watts, util) == [{}] * STEPS


@pytest.mark.parametrize(("works", "late"), [(1, 4), (2, 3), (2, 1)])
def test_minutes_at_work_between_pauses_count_against_a_slow_rank(works: int, late: int) -> None:
    """A job that rests every second or third minute; one rank lags in the first minute of some
    spells of work, and is as fast as the others in all other minutes."""
    one, watts, util = random.randrange(8), noisy(600, spread=0.01), np.full((8, STEPS), 99.0)
    every = works + 1
    watts[:, works::every], util[:, works::every] = 120, 0
    watts[one, ::every * late] = 450
    assert findings_by_minute(watts, util) == [{}] * STEPS


def test_a_slow_rank_that_is_mended_is_over_after_ten_minutes_and_says_so_until_then() -> None:
    slow, watts, util = random.randrange(8), noisy(600), np.full((8, STEPS), 99.0)
    watts[slow, :20] *= 0.6
    over = 20 + signs.KEPT_S // 60
    assert findings_by_minute(watts, util) == (
        [{}] * 3 + [{"slow_rank": [slow]}] * (over - 3) + [{}] * (STEPS - over))
    for minutes in (0, 1, 10):
        [one] = findings_of(job(watts[:, :20 + minutes], util[:, :20 + minutes]), True)
        assert one.since == T0
        assert f"Not in the last {minutes} min" in one.sentence or minutes == 0
        assert ("Not in the last" in one.sentence) is (minutes > 0)
        by = {evidence.metric: evidence for evidence in one.evidence}["power_w"]
        assert by.value == pytest.approx(watts[slow, :20].mean())  # of the minutes in which it was


def test_a_slow_rank_that_has_left_is_slow_no_more() -> None:
    slow, watts, util = random.randrange(8), noisy(600), np.full((8, STEPS), 99.0)
    held_s = np.full((8, STEPS), 60.0)
    watts[slow] *= 0.7
    held_s[slow, -1] = 0
    assert findings_by_minute(watts, util, held_s=held_s)[-2:] == [{"slow_rank": [slow]}, {}]


def test_a_job_that_waits_for_data_or_needs_little_memory_is_found_once_between_checkpoints(
        ) -> None:
    watts, util, most = noisy(400), np.full((8, STEPS), 45.0), np.full((8, STEPS), 100.0)
    add_pauses(watts, util, 7)
    most[util == 0] = 0
    pressure = np.where(util == 0, 2.0, 40.0)
    kind = {"starved": [*range(8)]}
    assert findings_by_minute(watts, util, util_max_pct=most, io_pressure_pct=pressure) == (
        [{}] * 3 + [kind] * (STEPS - 3))
    kind = {"memory_unused": [*range(8)]}
    small = np.full((8, STEPS), 0.02 * 80e9)
    assert findings_by_minute(watts, util, util_max_pct=most, mem_used_bytes=small) == (
        [{}] * 3 + [kind] * (STEPS - 3))


def test_a_host_that_is_slow_shows_in_utilization() -> None:
    util = np.full((8, STEPS), 100.0)
    util[3, -6:] = 55
    assert kinds(job(noisy(600), util)) == {"slow_rank": [3]}


def test_a_rank_that_crashed_while_others_hold_on() -> None:
    held_s = np.full((8, STEPS), 60.0)
    held_s[5, -4:] = 0
    crashed = job(noisy(600), held_s=held_s)
    assert kinds(crashed) == {"crashed_rank": [5]}
    assert "7 GPUs" in findings_of(crashed, True)[0].sentence
    assert kinds(crashed, is_running=False) == {}
    held_s[:, -4:] = 0
    assert kinds(job(noisy(600), held_s=held_s)) == {}  # all have ended


def test_memory_far_larger_than_needed_and_what_is_not_used_at_all() -> None:
    assert kinds(job(noisy(300), 60.0, share=0.02)) == {"memory_unused": [*range(8)]}
    assert kinds(job(noisy(300), 60.0, share=0.2)) == {}
    assert kinds(job(noisy(100), 0.0, 0.0)) == {"unused": [*range(8)]}


def test_an_instance_that_is_not_used_is_found_by_its_sm_activity() -> None:
    """MIG reports no utilization: what makes it wasted makes its job one that does not use it."""
    quiet = np.full((2, STEPS), 1.0)
    unknown = np.full((2, STEPS), np.nan)
    resting = job(unknown, np.nan, np.nan, sm_active_pct=quiet, load_pct=quiet)
    [finding] = findings_of(resting, True)
    assert (finding.kind, finding.ranks) == ("unused", [0, 1])
    assert (finding.evidence[0].metric, finding.evidence[0].value) == ("sm_active_pct", 1.0)
    assert kinds(job(unknown, np.nan, np.nan, sm_active_pct=quiet, load_pct=quiet * 40)) == {}
    assert kinds(job(unknown, np.nan, np.nan)) == {}


def test_what_is_not_known_is_no_sign() -> None:
    nothing = np.full((8, STEPS), np.nan)
    assert kinds(job(nothing, nothing, share=np.nan)) == {}
    assert findings_of(JobMinutes(T0, 60, [], {"held_s": np.zeros((0, 5))}), True) == []


def test_one_value_against_the_median_of_all_is_the_same_by_hand() -> None:
    """Beside a slow and plain way to compute it."""
    lots = np.random.default_rng(random.randrange(2**32))
    group = lots.integers(0, 6, 50)
    group[:3] = 6, 7, 7  # too few
    group *= random.choice((1, 2**33))  # jobs x minutes x nodes are many
    power, util = lots.uniform(300, 700, 50), lots.uniform(0, 100, 50)
    power[lots.random(50) < 0.2] = np.nan
    lag, is_compared, rests = signs.rank_lag(util, power, np.full(50, 700.0), group)
    for at in range(50):
        mine = group == group[at]
        if mine.sum() < signs.PEERS_LEAST:
            assert (lag[at], is_compared[at], rests[at]) == (0, False, False)
        elif np.isnan(power[at]):
            assert np.isnan(lag[at])
        else:
            middle = [np.nanpercentile(values[mine], 50, method="lower")
                      for values in (power, util)]
            lags = [100 * (1 - values[at] / of)
                    for values, of in zip((power, util), middle, strict=True)]
            works = middle[0] >= signs.WORKING_SHARE * 700
            assert lag[at] == pytest.approx(max(0.0, *lags) if works else 0.0, abs=1e-4)


def test_the_pack_has_the_same_thresholds() -> None:
    pack = parse(PACK.read_text()).rules
    for name, fire, seconds in (("job-stuck", 1, signs.STUCK_FOR_S),
                                ("rank-lagging", signs.LAG_PCT, signs.LAG_FOR_S),
                                ("job-starved", signs.STARVED_PCT, signs.STARVED_FOR_S),
                                ("memory-unneeded", findings.MEMORY_SHARE, findings.MEMORY_FOR_S),
                                ("rank-gone", 0, findings.CRASHED_FOR_S)):
        rule = pack[name]
        assert rule.fire.number == pytest.approx(fire), name
        assert rule.for_s == seconds, name
    for name, clear in (("rank-lagging", signs.LAG_CLEAR_PCT),
                        ("job-starved", signs.STARVED_CLEAR_PCT),
                        ("memory-unneeded", findings.MEMORY_CLEAR_SHARE)):
        assert pack[name].clear.number == pytest.approx(clear), name
        assert pack[name].keep_s == signs.KEPT_S, name


def test_a_starved_loader_is_found_after_four_minutes() -> None:
    rng = random.Random()
    many, pressure = 8, np.full((8, STEPS), 1.0)
    util, most = np.full((many, STEPS), 97.0), np.full((many, STEPS), 100.0)
    util[:, -4:], pressure[:, -4:] = rng.uniform(20, 65), rng.uniform(25, 90)
    where = rng.choice(("io_pressure_pct", "cpu_pressure_pct"))
    more: Any = {where: pressure, "util_max_pct": most, "host_cpu_pct": most}
    starved = job(noisy(400), util, **more)
    (finding,) = (one for one in findings_of(starved, True) if one.kind == "starved")
    assert finding.ranks == list(range(many))
    assert finding.since == T0 + (STEPS - 4) * 60
    assert ("disks" if where == "io_pressure_pct" else "processors") in finding.sentence
    evidence = {one.metric: one.value for one in finding.evidence}
    assert evidence[where] == pytest.approx(pressure[0, -1])
    early = starved.numbers | {"util_pct": util.copy()}
    early["util_pct"][:, -4] = 97.0  # three minutes are not enough
    assert "starved" not in kinds(JobMinutes(T0, 60, starved.ranks, early))


def test_a_task_is_not_starved_by_what_its_gpu_did_before() -> None:
    """A GPU and its host have numbers before the task that holds them now began."""
    calm, held_s = np.full((8, STEPS), 1.0), np.full((8, STEPS), 60.0)
    pressure, most = np.full((8, STEPS), 60.0), np.full((8, STEPS), 100.0)
    for minutes, starved in ((1, False), (3, False), (4, True)):
        held_s[:, :] = 0.0
        held_s[:, -minutes:] = 60.0
        signs_now = job(noisy(400), 40.0, io_pressure_pct=pressure, cpu_pressure_pct=calm,
                      util_max_pct=most, held_s=held_s)
        since = [one.since for one in findings_of(signs_now, True) if one.kind == "starved"]
        assert since == ([float(T0 + (STEPS - minutes) * 60)] if starved else []), minutes


def test_pauses_on_a_host_that_is_short_of_nothing_are_not_for_want_of_data() -> None:
    calm = np.full((8, STEPS), signs.STARVED_PRESSURE_PCT - 1)
    most = np.full((8, STEPS), 100.0)
    assert "starved" not in kinds(job(noisy(400), 40.0, io_pressure_pct=calm, util_max_pct=most))
    assert "starved" not in kinds(job(noisy(400), 40.0, util_max_pct=most))  # nothing is known

"""Advice rehearsed on a played past: GPU-hours as would have been, commands that do what was said
and take it back, and silence where too little was measured."""

import random
import shlex
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dashboard.insight.core.advice import (
    Advice,
    UnusedLease,
    advise,
    hours_words,
    needed_memory,
)
from dashboard.insight.core.sharing import LoadProfile, choose, kept_speed, mig_profile
from dashboard.insight.core.week import WEEK_H, MeasuredWeek
from gpudeck.mig.boards import BOARDS, board_of
from gpudeck.mig.planner import plan
from gpudeck.mig.wishes import parse_wish

from .played_weeks import A100, GIB, H100, HOURS, T4, PlayedFleet, fleet, job

WEEKS = HOURS / WEEK_H


def of(week: MeasuredWeek, kind: str, leases: Sequence[UnusedLease] = (), strategy: str = "pack",
       free: dict[str, int] | None = None) -> list[Advice]:
    return [advice for advice in advise(week, leases, free or {}, strategy) if advice.kind == kind]


def idle_fleet() -> PlayedFleet:
    seed = random.randrange(10**6)
    return fleet(*(job("ana", gpu, 60.0, 40, share, seed=seed + gpu)
                   for gpu, share in enumerate((0.9, 0.1, 0.02, 0.02))))


def test_an_idle_holder_would_have_left_so_many_hours_and_the_command_is_taken_back() -> None:
    past = idle_fleet()
    (advice,) = of(past.week(), "idle")
    after = past.do(advice.command)
    assert advice.gpu_hours * WEEKS == pytest.approx(past.gpu_hours() - after.gpu_hours())
    assert advice.gpu_hours > 100
    assert after.do(advice.undo).gpu_hours() == past.gpu_hours()
    assert "--mode observe" in advice.command
    # Those that were in use and would have had to wait, counted hour by hour.
    cap = after.quotas["ana"]
    waits = sum(max(0, sum(hour in played.works for played in past.jobs) - cap)
                for hour in range(HOURS))
    assert f"{waits} GPU-hours of work would have had to wait" in advice.past


def test_half_an_hour_is_not_none() -> None:
    assert [hours_words(hours) for hours in (0.0, 0.5, 7.0, 9.94, 168.4)] == [
        "0", "0.5", "7", "9.9", "168"]


def test_two_jobs_that_fit_one_gpu_would_have_freed_the_other() -> None:
    past = fleet(job("ana", 0, 25.0, 20, end=150), job("ana", 1, 30.0, 22, start=30),
                 job("bob", 2, 90.0, 70), job("bob", 3, 20.0, 60))
    (advice,) = of(past.week(), "share")
    assert advice.owner == "ana"
    assert set(advice.gpus) == {0, 1}
    after = past.do(advice.command, advice.gpus)
    assert advice.gpu_hours * WEEKS == pytest.approx(past.gpu_hours() - after.gpu_hours())
    assert after.do(advice.undo, advice.gpus) == past
    assert "93 %" not in advice.risk  # together they were at 55 %
    assert "69 %" in advice.risk


@pytest.mark.parametrize("why", ["load", "bandwidth", "memory", "owner", "node", "unmeasured"])
def test_no_pair_where_one_thing_forbids_it(why: str) -> None:
    """The control is the pair of the test above."""
    other = job("ana" if why != "owner" else "bob", 1, 70.0 if why == "load" else 30.0,
                70 if why == "memory" else 22, bandwidth=50.0 if why == "bandwidth" else 20.0)
    past = fleet(job("ana", 0, 25.0, 20), other, models=(H100, H100),
                 nodes=("n1", "n2" if why == "node" else "n1"))
    week = past.week()
    if why == "unmeasured":
        week = replace(week, bandwidth=np.full_like(week.bandwidth, np.nan))
    assert of(week, "share") == []


def test_small_jobs_of_several_owners_fit_one_board_split_by_mig() -> None:
    past = fleet(job("ana", 0, 40.0, 30), job("bob", 1, 12.0, 8), job("eve", 2, 10.0, 7, end=100),
                 job("zoe", 3, 60.0, 30))
    (advice,) = of(past.week(), "mig")
    assert advice.gpus == (0, 1, 2), "no slice has room for the last"
    assert advice.owner is None
    after = past.do(advice.command, advice.gpus)
    assert advice.gpu_hours * WEEKS == pytest.approx(past.gpu_hours() - after.gpu_hours())
    assert after.do(advice.undo, advice.gpus) == past
    board = BOARDS["h100-80"]
    layout = shlex.split(advice.command)[3]
    assert plan(board, (), parse_wish(layout, board)).create
    assert layout == "1x 3g.40gb + 2x 1g.10gb"


@pytest.mark.parametrize("why", ["one owner", "another node", "no such board", "unmeasured"])
def test_no_mig_where_one_thing_forbids_it(why: str) -> None:
    """The control is the pair of which nothing is changed."""
    def advice(why: str) -> list[Advice]:
        owner = "ana" if why == "one owner" else "bob"
        past = fleet(job("ana", 0, 12.0, 5), job(owner, 1, 12.0, 5),
                     models=(T4 if why == "no such board" else H100,) * 2,
                     nodes=("n1", "n2" if why == "another node" else "n1"))
        week = past.week()
        if why == "unmeasured":
            week = replace(week, util=np.full_like(week.util, np.nan))
        return of(week, "mig")

    assert advice("")
    assert advice(why) == []


def test_a_smaller_board_of_this_fleet_holds_it() -> None:
    past = fleet(job("ana", 0, 30.0, 20), job("bob", 1, 90.0, 20), models=(H100, H100, A100),
                 nodes=("n1",) * 3)
    (advice,) = of(past.week(), "size", free={A100: 1})
    assert (advice.owner, advice.gpus) == ("ana", (0,))
    assert advice.gpu_hours == pytest.approx(WEEK_H)
    assert A100 in advice.command
    assert H100 in advice.undo
    assert "--mem 23G" in advice.command  # 20 GiB and 15 %
    assert of(past.week(), "size", free={A100: 0}) == []


def test_needed_memory_is_a_high_quantile_of_daily_peaks_with_a_margin() -> None:
    past = fleet(job("ana", 0, 30.0, 20, end=HOURS - 24),
                 job("ana", 0, 30.0, 30, start=HOURS - 24)).week()
    assert needed_memory(past, 0) == pytest.approx(30 * 1.15 * GIB)


def test_a_lease_without_use_is_given_back() -> None:
    lease = UnusedLease("lease-1", "ana", "host-n1", "n1", ("GPU-0", "GPU-1"), 10 * 3_600)
    (advice,) = of(idle_fleet().week(), "lease", [lease])
    assert advice.gpu_hours == 20
    assert advice.command == "gpudeck claim --give-back lease-1"
    assert advice.undo == "gpudeck claim --gpus 2"
    assert of(idle_fleet().week(), "lease", [replace(lease, idle_s=600.0)]) == []


def test_free_gpus_that_no_node_has_together() -> None:
    nodes = ("n1",) * 8 + ("n2",) * 8
    jobs = [job("ana", gpu, 90.0, 60, end=100) for gpu in (0, 1, 2, 8, 9, 10)]
    past = fleet(*jobs, models=(H100,) * 16, nodes=nodes).week()
    (advice,) = of(past, "fragmentation", strategy="spread")
    assert advice.gpu_hours * WEEKS == pytest.approx(8 * 100)
    assert '"pack"' in advice.command
    assert '"spread"' in advice.undo
    assert of(past, "fragmentation", strategy="pack") == []
    packed = fleet(*(job("ana", gpu, 90.0, 60, end=100) for gpu in range(6)),
                   models=(H100,) * 16, nodes=nodes).week()
    assert of(packed, "fragmentation", strategy="spread") == []
    unseen = replace(past, memory=np.full_like(past.memory, np.nan))
    assert of(unseen, "fragmentation", strategy="spread") == []


def test_a_full_node_with_a_half_empty_one_next_to_it() -> None:
    jobs = [job("ana", gpu, 90.0, 60, end=100) for gpu in range(2)]
    past = fleet(*jobs, nodes=("n1", "n1", "n2", "n2")).week()
    (advice,) = of(past, "imbalance")
    assert advice.gpu_hours * WEEKS == pytest.approx(200)
    assert "host-n1" in advice.title


def test_the_most_hours_stand_first_and_each_keeps_its_name() -> None:
    lease = UnusedLease("lease-1", "ana", "host-n1", "n1", ("GPU-0",), 6 * 3_600)
    advice = advise(idle_fleet().week(), [lease], {}, "pack")
    assert [item.gpu_hours for item in advice] == sorted(
        (item.gpu_hours for item in advice), reverse=True)
    repeated = advise(idle_fleet().week(), [lease], {}, "pack")
    assert {item.id for item in advice if item.kind != "share"} == {
        item.id for item in repeated if item.kind != "share"}


def test_there_is_none_before_seven_days() -> None:
    week = idle_fleet().week()
    hours = int(WEEK_H) - 1
    short = replace(week, **{name: getattr(week, name)[:hours] for name in (
        "held", "used", "util", "sm", "bandwidth", "memory", "power", "clock", "owner_held",
        "owner_used")})
    assert advise(week, [], {}, "pack")
    assert advise(short, [], {}, "pack") == []
    assert advise(short, [], {}, "pack", hours)


def test_an_owner_with_a_hostile_name_stays_one_word() -> None:
    past = fleet(job("$(reboot) '\n", 0, 1.0, 40, 0.0))
    (advice,) = of(past.week(), "idle")
    assert past.do(advice.command).quotas == {"$(reboot) '\n": 0}


@pytest.mark.parametrize(("load", "isolated", "method"), [
    (LoadProfile(90, None, 10, 10 * GIB, 1.0), False, "alone"),
    (LoadProfile(50, None, 70, 10 * GIB, 1.0), False, "alone"),
    (LoadProfile(50, None, 20, 50 * GIB, 1.0), False, "alone"),
    (LoadProfile(50, None, None, 10 * GIB, 1.0), False, "alone"),
    (LoadProfile(90, 30, 20, 10 * GIB, 1.0), False, "mps"),
    (LoadProfile(50, None, None, 10 * GIB, 0.1), False, "time slices"),
    (LoadProfile(12, None, 20, 8 * GIB, 1.0), True, "mig"),
    (LoadProfile(70, None, 20, 8 * GIB, 1.0), True, "alone")])
def test_the_tree(load: LoadProfile, isolated: bool, method: str) -> None:
    assert choose(load, H100, 80 * GIB, isolated).method == method


@pytest.mark.parametrize(("model", "gib", "board"), [
    (H100, 80, "h100-80"), (H100, 79.6, "h100-80"), (A100, 40, "a100-40"), (A100, 80, "a100-80"),
    ("NVIDIA H200", 140.4, "h200"), ("NVIDIA A30", 24, "a30"), ("NVIDIA H100 NVL", 94, None),
    ("Tesla T4", 15, None), ("NVIDIA GH200 480GB", 96, None)])
def test_boards_by_name_and_memory(model: str, gib: float, board: str | None) -> None:
    assert board_of(model, gib * GIB) == board


def test_slices_and_what_pairs_keep() -> None:
    for load, memory, name in ((12, 8, "1g.10gb"), (12, 9, "1g.20gb"), (20, 9, "2g.20gb"),
                               (40, 9, "3g.40gb"), (50, 9, "4g.40gb"), (60, 9, None),
                               (12, 36, None)):
        profile = mig_profile(LoadProfile(load, None, 20, memory * GIB, 1.0), 80 * GIB,
                              BOARDS["h100-80"])
        assert (None if profile is None else profile.name) == name
    assert choose(LoadProfile(12, None, 20, 8 * GIB, 1.0), "Tesla T4", 80 * GIB, True
                  ).method == "alone"
    assert [kept_speed(joint)[0] for joint in (39, 41, 61, 81, 96)] == [93, 69, 62, 35, 9]

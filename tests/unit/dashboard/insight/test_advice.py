"""Advice rehearsed on a played past: GPU-hours as would have been, commands that do what was said
and take it back, and silence where too little was measured."""

import random
import shlex
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dashboard.insight.core.advice import Advice, UnusedLease, advise, needed_memory
from dashboard.insight.core.sharing import LoadProfile, choose, kept_speed, mig_profile
from dashboard.insight.core.week import WEEK_H, MeasuredWeek
from gpudeck.mig.boards import BOARDS, board_of
from gpudeck.mig.planner import plan
from gpudeck.mig.wishes import parse_wish

from .played_weeks import A100, GIB, H100, HOURS, T4, PlayedFleet, fleet, job

WEEKS = HOURS / WEEK_H


def of(week: MeasuredWeek, kind: str, leases: Sequence[UnusedLease] = (), strategy: str = "pack",
       free: dict[str, int] | None = None) -> list[Advice]:
    return [each for each in advise(week, leases, free or {}, strategy) if each.kind == kind]


def idle_fleet() -> PlayedFleet:
    seed = random.randrange(10**6)
    return fleet(*(job("ana", gpu, 60.0, 40, share, seed=seed + gpu)
                   for gpu, share in enumerate((0.9, 0.1, 0.02, 0.02))))


def test_an_idle_holder_would_have_left_so_many_hours_and_the_command_is_taken_back() -> None:
    past = idle_fleet()
    (found,) = of(past.week(), "idle")
    after = past.do(found.command)
    assert found.gpu_hours * WEEKS == pytest.approx(past.gpu_hours() - after.gpu_hours())
    assert found.gpu_hours > 100
    assert after.do(found.undo).gpu_hours() == past.gpu_hours()
    assert "--mode observe" in found.command
    # Those that were in use and would have had to wait, counted hour by hour.
    cap = after.quotas["ana"]
    waits = sum(max(0, sum(hour in each.works for each in past.jobs) - cap)
                for hour in range(HOURS))
    assert f"{waits} GPU-hours of work would have had to wait" in found.past


def test_two_jobs_that_fit_one_gpu_would_have_freed_the_other() -> None:
    past = fleet(job("ana", 0, 25.0, 20, end=150), job("ana", 1, 30.0, 22, start=30),
                 job("bob", 2, 90.0, 70), job("bob", 3, 20.0, 60))
    (found,) = of(past.week(), "share")
    assert found.owner == "ana"
    assert set(found.gpus) == {0, 1}
    after = past.do(found.command, found.gpus)
    assert found.gpu_hours * WEEKS == pytest.approx(past.gpu_hours() - after.gpu_hours())
    assert after.do(found.undo, found.gpus) == past
    assert "93 %" not in found.risk  # together they were at 55 %
    assert "69 %" in found.risk


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
    (found,) = of(past.week(), "mig")
    assert found.gpus == (0, 1, 2), "no slice has room for the last"
    assert found.owner is None
    after = past.do(found.command, found.gpus)
    assert found.gpu_hours * WEEKS == pytest.approx(past.gpu_hours() - after.gpu_hours())
    assert after.do(found.undo, found.gpus) == past
    board = BOARDS["h100-80"]
    layout = shlex.split(found.command)[3]
    assert plan(board, (), parse_wish(layout, board)).create
    assert layout == "1x 3g.40gb + 2x 1g.10gb"


@pytest.mark.parametrize("why", ["one owner", "another node", "no such board", "unmeasured"])
def test_no_mig_where_one_thing_forbids_it(why: str) -> None:
    """The control is the pair of which nothing is changed."""
    def found(why: str) -> list[Advice]:
        owner = "ana" if why == "one owner" else "bob"
        past = fleet(job("ana", 0, 12.0, 5), job(owner, 1, 12.0, 5),
                     models=(T4 if why == "no such board" else H100,) * 2,
                     nodes=("n1", "n2" if why == "another node" else "n1"))
        week = past.week()
        if why == "unmeasured":
            week = replace(week, util=np.full_like(week.util, np.nan))
        return of(week, "mig")

    assert found("")
    assert found(why) == []


def test_a_smaller_board_of_this_fleet_holds_it() -> None:
    past = fleet(job("ana", 0, 30.0, 20), job("bob", 1, 90.0, 20), models=(H100, H100, A100),
                 nodes=("n1",) * 3)
    (found,) = of(past.week(), "size", free={A100: 1})
    assert (found.owner, found.gpus) == ("ana", (0,))
    assert found.gpu_hours == pytest.approx(WEEK_H)
    assert A100 in found.command
    assert H100 in found.undo
    assert "--mem 23G" in found.command  # 20 GiB and 15 %
    assert of(past.week(), "size", free={A100: 0}) == []


def test_needed_memory_is_a_high_quantile_of_daily_peaks_with_a_margin() -> None:
    past = fleet(job("ana", 0, 30.0, 20, end=HOURS - 24),
                 job("ana", 0, 30.0, 30, start=HOURS - 24)).week()
    assert needed_memory(past, 0) == pytest.approx(30 * 1.15 * GIB)


def test_a_lease_without_use_is_given_back() -> None:
    lease = UnusedLease("lease-1", "ana", "host-n1", "n1", ("GPU-0", "GPU-1"), 10 * 3_600)
    (found,) = of(idle_fleet().week(), "lease", [lease])
    assert found.gpu_hours == 20
    assert found.command == "gpudeck claim --give-back lease-1"
    assert found.undo == "gpudeck claim --gpus 2"
    assert of(idle_fleet().week(), "lease", [replace(lease, idle_s=600.0)]) == []


def test_free_gpus_that_no_node_has_together() -> None:
    nodes = ("n1",) * 8 + ("n2",) * 8
    jobs = [job("ana", gpu, 90.0, 60, end=100) for gpu in (0, 1, 2, 8, 9, 10)]
    past = fleet(*jobs, models=(H100,) * 16, nodes=nodes).week()
    (found,) = of(past, "fragmentation", strategy="spread")
    assert found.gpu_hours * WEEKS == pytest.approx(8 * 100)
    assert '"pack"' in found.command
    assert '"spread"' in found.undo
    assert of(past, "fragmentation", strategy="pack") == []
    packed = fleet(*(job("ana", gpu, 90.0, 60, end=100) for gpu in range(6)),
                   models=(H100,) * 16, nodes=nodes).week()
    assert of(packed, "fragmentation", strategy="spread") == []
    unseen = replace(past, memory=np.full_like(past.memory, np.nan))
    assert of(unseen, "fragmentation", strategy="spread") == []


def test_a_full_node_with_a_half_empty_one_next_to_it() -> None:
    jobs = [job("ana", gpu, 90.0, 60, end=100) for gpu in range(2)]
    past = fleet(*jobs, nodes=("n1", "n1", "n2", "n2")).week()
    (found,) = of(past, "imbalance")
    assert found.gpu_hours * WEEKS == pytest.approx(200)
    assert "host-n1" in found.title


def test_the_most_hours_stand_first_and_each_keeps_its_name() -> None:
    lease = UnusedLease("lease-1", "ana", "host-n1", "n1", ("GPU-0",), 6 * 3_600)
    found = advise(idle_fleet().week(), [lease], {}, "pack")
    assert [each.gpu_hours for each in found] == sorted(
        (each.gpu_hours for each in found), reverse=True)
    again = advise(idle_fleet().week(), [lease], {}, "pack")
    assert {each.id for each in found if each.kind != "share"} == {
        each.id for each in again if each.kind != "share"}


def test_there_is_none_before_seven_days() -> None:
    week = idle_fleet().week()
    hours = int(WEEK_H) - 1
    short = replace(week, **{name: getattr(week, name)[:hours] for name in (
        "held", "used", "util", "sm", "bandwidth", "memory", "owner_held", "owner_used")})
    assert advise(week, [], {}, "pack")
    assert advise(short, [], {}, "pack") == []
    assert advise(short, [], {}, "pack", hours)


def test_an_owner_with_a_hostile_name_stays_one_word() -> None:
    past = fleet(job("$(reboot) '\n", 0, 1.0, 40, 0.0))
    (found,) = of(past.week(), "idle")
    assert past.do(found.command).quotas == {"$(reboot) '\n": 0}


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
        found = mig_profile(LoadProfile(load, None, 20, memory * GIB, 1.0), 80 * GIB,
                            BOARDS["h100-80"])
        assert (None if found is None else found.name) == name
    assert choose(LoadProfile(12, None, 20, 8 * GIB, 1.0), "Tesla T4", 80 * GIB, True
                  ).method == "alone"
    assert [kept_speed(joint)[0] for joint in (39, 41, 61, 81, 96)] == [93, 69, 62, 35, 9]

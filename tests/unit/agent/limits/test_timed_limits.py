"""Steps for a timed limit of a GPU, from what was read: minute by minute."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agent.limits import timed_limits
from agent.limits.timed_limits import LimitStep, NodeTime, judged, left_s, with_new
from agent.readings import GpuLimits
from gpudeck.contract.limits import TimedLimit

NOW = NodeTime(1_000_000.0, "boot-1", 500.0)
CAP = TimedLimit("c-1", "GPU-1", "power", (300.0,), (700.0,), "ada", "hot", 1_000_000.0,
                 1_000_060.0,
                 "boot-1", 560.0, "in_force")
LOCK = replace(CAP, lease_id="c-2", what="clocks", wanted=(210.0, 1_410.0), before=())


def at(seconds: float) -> NodeTime:
    return NodeTime(NOW.wall + seconds, NOW.boot_id, NOW.boottime_s + seconds)


def step(lease: TimedLimit, limits: GpuLimits | None, clock: NodeTime = NOW,
         is_fresh: bool = False) -> LimitStep:
    return timed_limits.step(lease, limits, clock, is_fresh)


# What is set, whether the driver or the agent began anew, how late it is; what is done, and how it
# stands.
@pytest.mark.parametrize(("watts", "is_fresh", "after_s", "does", "state"), [
    (300.0, False, 1, "keep", "in_force"), (300.4, False, 1, "keep", "in_force"),
    (300.0, True, 1, "keep", "in_force"),  # nothing is set twice
    # What a driver has forgotten nobody has changed.
    (700.0, True, 1, "apply", "not_in_force"), (700.0, False, 1, "keep", "drifted"),
    (450.0, False, 1, "keep", "drifted"),
    (300.0, False, 61, "undo", "in_force"), (300.0, True, 61, "undo", "in_force"),
    (450.0, False, 61, "forget", "drifted"),  # somebody else's now
    (None, False, 61, "keep", "unknown"), (None, True, 1, "keep", "unknown"),
])
def test_a_power_cap(watts: float | None, is_fresh: bool, after_s: float, does: str,
                     state: str) -> None:
    next_step = step(CAP, GpuLimits("GPU-1", power_w=watts), at(after_s), is_fresh)
    assert (next_step.do, next_step.limit.state) == (does, state)


def test_a_gpu_that_is_not_there_is_not_guessed_at() -> None:
    for limits in (None, GpuLimits("GPU-1", trouble="the GPU is lost")):
        for clock in (at(1), at(61)):
            next_step = step(CAP, limits, clock, True)
            assert next_step.do == "keep"
            assert next_step.limit.state == "unknown"
            assert next_step.limit.words


def test_what_was_begun_and_not_recorded_is_taken_back() -> None:
    """Never run again: the outcome of that act is unknown."""
    for watts in (300.0, 700.0):
        next_step = step(replace(CAP, state="beginning"), GpuLimits("GPU-1", power_w=watts), at(1))
        assert next_step.do == "undo"


@pytest.mark.parametrize(("clock", "util", "state"), [
    (1_400.0, 80.0, "in_force"), (1_400.0, 0.0, "unknown"), (1_980.0, 80.0, "drifted"),
    (1_980.0, 0.0, "drifted"), (None, 80.0, "unknown"), (1_400.0, None, "unknown"),
])
def test_a_clock_lock_is_seen_by_the_clock_alone(
    clock: float | None, util: float | None, state: str
) -> None:
    """NVML has nothing that reads it back; a GPU at rest proves nothing."""
    limits = GpuLimits("GPU-1", sm_clock_mhz=clock, util_pct=util)
    assert judged(LOCK, limits, NOW.wall).state == state
    read_back = GpuLimits("GPU-1", locked_mhz=(210.0, 1_410.0), tells_lock=True)
    assert judged(LOCK, read_back, NOW.wall).state == "in_force"
    assert judged(LOCK, replace_locked(read_back, None), NOW.wall).state == "drifted"


@pytest.mark.parametrize(("limits", "is_fresh", "after_s", "does"), [
    (GpuLimits("GPU-1", sm_clock_mhz=345.0, util_pct=0.0), True, 1, "apply"),
    (GpuLimits("GPU-1", sm_clock_mhz=345.0, util_pct=0.0), False, 1, "keep"),
    (GpuLimits("GPU-1", sm_clock_mhz=345.0, util_pct=0.0), True, 61, "keep"),
    (GpuLimits("GPU-1", sm_clock_mhz=1_400.0, util_pct=80.0), True, 1,
     "keep"),  # it is seen to hold
    (GpuLimits("GPU-1", trouble="the driver did not answer"), True, 1, "keep"),
])
def test_a_driver_that_is_loaded_anew_is_told_of_a_lock_that_nobody_can_read_back(
    limits: GpuLimits, is_fresh: bool, after_s: float, does: str
) -> None:
    """A GPU at rest proves nothing; without it the first work would find no lock at all."""
    assert step(LOCK, limits, at(after_s), is_fresh).do == does


def test_a_limit_that_never_came_to_be_is_not_taken_back() -> None:
    """The present limit is not ours; but a lock that no driver reports may be there nonetheless."""
    cap, lock = (replace(limit, state="not_in_force") for limit in (CAP, LOCK))
    for before in (600.0, 700.0):
        next_step = step(replace(cap, before=(before,)), GpuLimits("GPU-1", power_w=700.0), at(61))
        assert next_step.do == "forget"
    other = GpuLimits("GPU-1", locked_mhz=(1.0, 2.0), tells_lock=True)
    assert step(lock, other, at(61)).do == "forget"
    above = GpuLimits("GPU-1", sm_clock_mhz=1_980.0, util_pct=80.0)
    assert step(lock, above, at(61)).do == "undo"


def replace_locked(limits: GpuLimits, locked: tuple[float, float] | None) -> GpuLimits:
    return GpuLimits(limits.uuid, locked_mhz=locked, tells_lock=True)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_setting_the_wall_clock_neither_ends_nor_stretches_a_lease(
    jump_s: float, passed_s: float
) -> None:
    clock = NodeTime(NOW.wall + jump_s, "boot-1", NOW.boottime_s + passed_s)
    assert left_s(CAP, clock) == pytest.approx(60 - passed_s, abs=1e-3)


def test_after_another_boot_the_wall_clock_counts_and_adds_nothing() -> None:
    for passed_s in (10.0, 59.0, 61.0):
        clock = NodeTime(NOW.wall + passed_s, "boot-2", 3.0)
        assert left_s(CAP, clock) == pytest.approx(60 - passed_s)
    assert left_s(CAP, NodeTime(NOW.wall - 1e6, "boot-2", 3.0)) == pytest.approx(60.0)


def test_a_new_lease_keeps_what_was_before_the_first() -> None:
    """Else the end of the second would set the first one's limit for ever."""
    other = replace(CAP, lease_id="c-9", gpu_uuid="GPU-2")
    new = replace(CAP, lease_id="c-3", wanted=(400.0,), before=(300.0,))
    all_of_them = with_new((CAP, LOCK, other), new)
    assert {lease.lease_id for lease in all_of_them} == {"c-2", "c-3", "c-9"}
    assert next(lease for lease in all_of_them if lease.lease_id == "c-3").before == (700.0,)


@given(st.lists(st.tuples(st.sampled_from([300.0, 700.0, 450.0, None]), st.booleans(),
                          st.floats(0, 30)), max_size=12))
def test_whatever_happens_only_ours_is_taken_back(
    story: list[tuple[float | None, bool, float]]
) -> None:
    """A limit that somebody else has set is never undone, nor set over without a fresh driver."""
    lease, passed_s = replace(CAP, before=(random.choice([600.0, 700.0]),)), 0.0
    for watts, is_fresh, wait_s in story:
        passed_s += wait_s
        next_step = step(lease, GpuLimits("GPU-1", power_w=watts), at(passed_s), is_fresh)
        if watts not in (300.0, None):
            assert next_step.do != "undo"
            assert is_fresh or next_step.do != "apply"
        if watts is None:
            assert next_step.do == "keep"
        lease = next_step.limit

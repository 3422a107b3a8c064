"""Quotas on a node: what is in force, and whom it notifies without a hub. Time is an argument."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.quotas import evaluate
from agent.quotas.evaluate import QuotaRefusals, QuotaSnapshot, QuotaWarnings
from gpudeck.contract.desired_state import DesiredState
from gpudeck.contract.ladder import PUT_OFF_MOST, LadderRung
from gpudeck.contract.quota import Quota
from gpudeck.contract.quota_usage import TaskHolding
from gpudeck.contract.wire import Task

ISSUED = 1_000_000.0
LADDER = (LadderRung("tell"), LadderRung("tell", 60.0), LadderRung("end", 60.0))


def desired(*quotas: Quota, **more: Any) -> DesiredState:
    return DesiredState("n", 1, more.pop("generation", 1), more.pop("issued_at", ISSUED), "default",
                        quotas)


def quota(**more: Any) -> Quota:
    return msgspec.structs.replace(Quota("q", "*", "node:host", gpus=0, mode="act", ladder=LADDER),
                                   **more)


def scene(*names: str, **more: Any) -> QuotaSnapshot:
    holdings = tuple(TaskHolding(Task(name, 1, 1, 1.0, "alice", None, job_id=name), "n", "host",
                                 "default", ((f"G-{name}", 1.0),)) for name in names)
    return QuotaSnapshot(holdings, more.pop("sample_age_s", 0.0), ISSUED,
                         more.pop("rights", QuotaRefusals("", "")), more.pop("spared", frozenset()),
                         **more)


def run(target: DesiredState, seconds: int, hub: Any = "gone", **more: Any) -> list[int]:
    """Return the seconds of notifications."""
    warnings: QuotaWarnings = {}
    times = list[int]()
    for now in range(seconds):
        warnings, due = evaluate.due_warnings(warnings, target, scene("t", **more), hub,
                                              float(now))
        times += [now for _ in due]
    return times


@pytest.mark.parametrize("mode", ["warn", "act"])
def test_owners_are_notified_at_the_times_of_the_ladder_and_nothing_else_comes(mode: Any) -> None:
    assert run(desired(quota(mode=mode)), 400) == [0, 60]
    later = (LadderRung("tell", 7.0), LadderRung("tell", 30.0), LadderRung("pause", 1.0))
    assert run(desired(quota(mode=mode, ladder=later)), 400) == [7, 37]


@pytest.mark.parametrize(("why", "limit", "more"), [
    ("there is a hub", quota(), {"hub": "there"}),
    ("it is not known yet whether there is one", quota(), {"hub": "quiet"}),
    ("it only observes", quota(mode="observe"), {}),
    ("one node cannot tell", quota(scope="fleet"), {}),
    ("nothing fresh was seen", quota(), {"sample_age_s": 60.0}),
    ("nothing was seen", quota(), {"sample_age_s": None}),
    ("it is protected", quota(), {"spared": frozenset(("t",))}),
    ("it is within", quota(gpus=1), {}),
    ("the ceiling forbids it", quota(), {"rights": QuotaRefusals("forbidden", "forbidden")}),
    ("nothing in its ladder notifies", quota(ladder=(LadderRung("end"),)), {}),
])
def test_nothing_at_all_is_done(why: str, limit: Quota, more: dict[str, Any]) -> None:
    assert run(desired(limit), 300, **more) == [], why


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=120))
def test_nobody_is_notified_before_the_time_without_sight_or_with_a_hub(
        seconds: list[tuple[bool, bool, bool]]) -> None:
    """Seconds with any `over`, `fresh` and `hub`, in any order."""
    target, count, began_at = desired(quota()), 0, 0.0
    warnings: QuotaWarnings = {}
    for at, (over, fresh, hub) in enumerate(seconds):
        now = at * 20.0
        sight = scene(*(("t",) if over else ()), sample_age_s=0.0 if fresh else 99.0)
        warnings, due = evaluate.due_warnings(
            warnings, target, sight, "there" if hub else "gone", now)
        if hub or (fresh and not over):
            count = 0
        for _ in due:
            assert over
            assert fresh
            assert not hub
            assert count == 0 or now >= began_at + 60.0
            began_at, count = now, count + 1
            assert count <= 2


def test_a_restart_notifies_nobody_twice() -> None:
    """The record that is stored when a warning is due says already that it was given."""
    warnings, due = evaluate.due_warnings({}, desired(quota()), scene("t"), "gone", 5.0)
    assert len(due) == 1
    assert evaluate.due_warnings(warnings, desired(quota()), scene("t"), "gone", 6.0)[1] == ()


def test_a_warning_that_was_put_off_comes_again_after_a_minute() -> None:
    target = desired(quota())
    warnings, [due] = evaluate.due_warnings({}, target, scene("t"), "gone", 5.0)
    warnings = evaluate.put_off(warnings, due.key, 6.0)
    assert evaluate.due_warnings(warnings, target, scene("t"), "gone", 65.0)[1] == ()
    assert len(evaluate.due_warnings(warnings, target, scene("t"), "gone", 66.0)[1]) == 1
    assert evaluate.put_off({}, due.key, 6.0) == {}


def test_a_warning_that_is_put_off_each_time_comes_to_an_end() -> None:
    target, times = desired(quota()), list[int]()
    warnings: QuotaWarnings = {}
    for now in range(0, 3_600, 10):
        warnings, due = evaluate.due_warnings(warnings, target, scene("t"), "gone", float(now))
        for warning in due:
            times.append(now)
            warnings = evaluate.put_off(warnings, warning.key, float(now))
    assert times == [60 * number for number in range(PUT_OFF_MOST)]


def test_an_older_word_takes_nothing_back() -> None:
    current = desired(quota(), generation=5)
    assert not evaluate.is_newer(desired(generation=4, issued_at=ISSUED + 9), current)
    assert not evaluate.is_newer(current, current)
    assert evaluate.is_newer(desired(generation=5, issued_at=ISSUED + 9), current)
    assert evaluate.is_newer(desired(generation=6, issued_at=ISSUED - 9), current)


def test_marks_say_what_is_in_force_and_why_not() -> None:
    one = desired(quota(), quota(id="fleet", scope="fleet"), quota(id="w", mode="warn"))
    marks = {mark.quota_id: mark for mark in evaluate.marks(one, scene("t"))}
    assert marks["q"].is_in_force or marks["w"].is_in_force
    assert "summed up at the hub" in marks["fleet"].proof
    forbidden = scene("t", rights=QuotaRefusals("", "the ceiling forbids it"))
    marks = {mark.quota_id: mark for mark in evaluate.marks(one, forbidden)}
    assert (marks["q"].is_in_force, marks["w"].is_in_force) == (False, True)
    assert "the ceiling forbids it" in marks["q"].proof
    assert not any(mark.is_in_force for mark in evaluate.marks(one, scene("t", sample_age_s=60.0)))

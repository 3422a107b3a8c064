"""Quotas on a node: what is in force, and the ladder without a hub. Time is an argument."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.quotas import evaluate
from agent.quotas.evaluate import DueQuotaStep, OfflineQuotaState, QuotaRefusals, QuotaSnapshot
from gpudeck.desired_state import OFFLINE_FOR_S, DesiredState
from gpudeck.ladder import LadderRung
from gpudeck.quota import Quota
from gpudeck.quota_usage import TaskHolding
from gpudeck.wire import Task

ISSUED = 1_000_000.0
LADDER = (LadderRung("tell"), LadderRung("tell", 60.0), LadderRung("end", 60.0))


def desired(*quotas: Quota, **more: Any) -> DesiredState:
    return DesiredState("n", 1, more.pop("generation", 1), more.pop("issued_at", ISSUED), "default",
                        quotas)


def quota(**more: Any) -> Quota:
    return msgspec.structs.replace(Quota("q", "*", "node:host", gpus=0, mode="act", ladder=LADDER,
                                         offline="allow"), **more)


def scene(*names: str, **more: Any) -> QuotaSnapshot:
    holdings = tuple(TaskHolding(Task(name, 1, 1, 1.0, "alice", None, job_id=name), "n", "host",
                                 "default", ((f"G-{name}", 1.0),)) for name in names)
    return QuotaSnapshot(holdings, more.pop("sample_age_s", 0.0), ISSUED,
                         more.pop("rights", QuotaRefusals("", "")), more.pop("spared", frozenset()),
                         **more)


def run(target: DesiredState, seconds: int, hub_now: float | None = ISSUED, hub: Any = "gone",
        **more: Any) -> list[tuple[int, str]]:
    """Return the second and the name of each step, if each succeeds at once."""
    stand, steps = OfflineQuotaState(), list[tuple[int, str]]()
    for now in range(seconds):
        at = None if hub_now is None else hub_now + now
        stand = evaluate.advance(stand, target, scene("t", **more), hub, at, float(now))
        for due in stand.due:
            steps.append((now, due.step.do))
            stand = evaluate.settled(stand, due.key, "done", "", float(now))
    return steps


def test_told_told_again_and_ended_in_their_time() -> None:
    [first, second, third] = run(desired(quota()), 200)
    assert [first[1], second[1], third[1]] == ["tell", "tell", "end"]
    assert second[0] - first[0] >= 60
    assert third[0] - second[0] >= 60


@pytest.mark.parametrize(("why", "limit", "more"), [
    ("it says wait", quota(offline="wait"), {}),
    ("it warns", quota(mode="warn"), {}),
    ("it is a day old", quota(), {"hub_now": ISSUED + OFFLINE_FOR_S}),
    ("it is from the future", quota(), {"hub_now": ISSUED - 3_600}),
    ("the hub's time is not known", quota(), {"hub_now": None}),
    ("the ceiling forbids it", quota(), {"rights": QuotaRefusals("", "the ceiling forbids it")}),
])
def test_without_a_hub_it_tells_and_never_ends(why: str, limit: Quota, more: dict[str, Any]
                                               ) -> None:
    assert [do for _, do in run(desired(limit), 400, **more)] == ["tell", "tell"], why


@pytest.mark.parametrize(("why", "limit", "more"), [
    ("there is a hub", quota(), {"hub": "there"}),
    ("it is not known yet whether there is one", quota(), {"hub": "quiet"}),
    ("it only observes", quota(mode="observe"), {}),
    ("one node cannot tell", quota(scope="fleet"), {}),
    ("nothing fresh was seen", quota(), {"sample_age_s": 60.0}),
    ("nothing was seen", quota(), {"sample_age_s": None}),
    ("it is protected", quota(), {"spared": frozenset(("t",))}),
    ("it is within", quota(gpus=1), {}),
])
def test_nothing_at_all_is_done(why: str, limit: Quota, more: dict[str, Any]) -> None:
    assert run(desired(limit), 300, **more) == [], why


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
                max_size=120))
def test_no_step_is_skipped_and_none_while_one_is_being_done(
        seconds: list[tuple[bool, bool, bool, bool]]) -> None:
    """Seconds with any `over`, `fresh`, `settles` and `hub`, in any order."""
    target, stand, steps, open_due = desired(quota()), OfflineQuotaState(), [], []  # type: ignore[var-annotated]
    for at, (over, fresh, settles, hub) in enumerate(seconds):
        now = at * 20.0
        if settles and open_due:
            stand = evaluate.settled(stand, open_due.pop().key, "done", "", now)
        stand = evaluate.advance(stand, target, scene(*(("t",) if over else ()),
                                                  sample_age_s=0.0 if fresh else 99.0),
                             "there" if hub else "gone", ISSUED + now, now)
        for due in stand.due:
            assert isinstance(due, DueQuotaStep)
            assert open_due == []
            assert over
            assert fresh
            assert not hub
            open_due.append(due)
            steps.append((due.step.rung, due.step.do))
    for (before, _), (rung, _) in pairwise(steps):
        assert rung in (0, before + 1)
    assert all(rung == 2 for rung, do in steps if do == "end")


def test_a_restart_in_the_middle_of_an_end_does_not_end_again() -> None:
    target, stand, now = desired(quota()), OfflineQuotaState(), 0.0
    while not any(due.step.do == "end" for due in stand.due):
        stand = evaluate.advance(stand, target, scene("t"), "gone", ISSUED + now, now)
        for due in stand.due:
            if due.step.do == "tell":
                stand = evaluate.settled(stand, due.key, "done", "", now)
        now += 1.0
    restarted = evaluate.recovered(stand.climbs, now)
    for later in range(500):
        at = now + later
        restarted = evaluate.advance(restarted, target, scene("t"), "gone", ISSUED + at, at)
        assert restarted.due == ()


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

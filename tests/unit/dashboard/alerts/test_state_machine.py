"""Life of alerts: by the table, compared with a slow machine of one row, and in time."""

import math
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.alerts.core.state_machine import (
    TABLE,
    AlertPhase,
    AlertStateMachine,
    AlertTiming,
    ConditionResult,
    PhaseChange,
)

NONE, P, F, R = AlertPhase.INACTIVE, AlertPhase.PENDING, AlertPhase.FIRING, AlertPhase.RESOLVING


def look_of(rows: list[tuple[str, float]]) -> ConditionResult:
    """(what, when it was sampled): b breach, c clear, d between the two, u not known, x gone."""
    what = np.array([letter for letter, _ in rows])
    return ConditionResult(what != "x", np.array([at for _, at in rows]),
                           ~np.isin(what, ("u", "x", "n")),
                           what == "b", what == "c", what == "n")


def play(timing: AlertTiming, story: str,
         start: float = 1_000.0) -> list[tuple[int, AlertPhase, str]]:
    """Play a story of one letter a second; `_`: no sample came."""
    machine, changes, at = AlertStateMachine(timing, 1), [], start
    for second, letter in enumerate(story):
        if letter != "_":
            at = start + second
        moves = machine.step(look_of([(letter if letter != "_" else "u", at)]), start + second)
        changes += [(second, move.after, move.reason) for move in moves]
    return changes


NOTICE = AlertTiming(5, 3, 3, 1, 0.8, has_ladder=False)
ACTS = AlertTiming(5, 3, 3, 1, 0.8, has_ladder=True)
AT_ONCE = AlertTiming(0, 0, 3, 1, 0.8, has_ladder=False)


@pytest.mark.parametrize(("timing", "story", "changes"), [
    (NOTICE, "cccc", []),
    (NOTICE, "bbbbb", [(0, P, "breach")]),
    (NOTICE, "bbbbbb", [(0, P, "breach"), (5, F, "held")]),
    (NOTICE, "bbbbdb", [(0, P, "breach"), (4, NONE, "not so any more"), (5, P, "breach")]),
    (NOTICE, "bbbbbbdddd", [(0, P, "breach"), (5, F, "held")]),
    (NOTICE, "bbbbbbcccc", [(0, P, "breach"), (5, F, "held"), (6, R, "clear"),
                            (9, NONE, "resolved")]),
    (NOTICE, "bbbbbbccbcccc", [(0, P, "breach"), (5, F, "held"), (6, R, "clear"),
                               (8, F, "breach"), (9, R, "clear"), (12, NONE, "resolved")]),
    (NOTICE, "bbbbbbccdccc", [(0, P, "breach"), (5, F, "held"), (6, R, "clear"),
                              (11, NONE, "resolved")]),
    # A gap: what only tells does not count it, what acts begins anew.
    (NOTICE, "bbb_____bbb", [(0, P, "breach"), (10, F, "held")]),
    (ACTS, "bbb_____bbb", [(0, P, "breach"), (8, NONE, "gap"), (8, P, "breach")]),
    (ACTS, "bbb_____bbbbbb", [(0, P, "breach"), (8, NONE, "gap"), (8, P, "breach"),
                              (13, F, "held")]),
    # A second lost here and there is no gap, but too many are no proof.
    (NOTICE, "bb_bbb", [(0, P, "breach"), (5, F, "held")]),
    (NOTICE, "b__b_b_b_b_b", [(0, P, "breach")]),
    (NOTICE, "bbbbbbx", [(0, P, "breach"), (5, F, "held"), (6, NONE, "gone")]),
    (NOTICE, "bbbbbb" + "_" * 700, [(0, P, "breach"), (5, F, "held"), (606, NONE, "no data")]),
    (AT_ONCE, "cbc", [(1, F, "held"), (2, NONE, "resolved")]),
    (AT_ONCE, "uuub", [(3, F, "held")]),
])
def test_the_table_of_seconds(timing: AlertTiming, story: str,
                              changes: list[tuple[int, AlertPhase, str]]
                              ) -> None:
    assert play(timing, story) == changes


@dataclass
class PlainMachine:
    """State machine of one row, as plainly as it can be said: the specification, read aloud."""

    timing: AlertTiming
    phase: AlertPhase = NONE
    sampled_at: float | None = None
    since: float = 0.0
    samples: float = 0.0
    looked_at: float | None = None
    credit: float = 1.0
    changes: list[tuple[AlertPhase, AlertPhase, str]] = field(default_factory=list)

    def go(self, after: AlertPhase, reason: str) -> None:
        self.changes.append((self.phase, after, reason))
        self.phase = after

    def step(self, what: str, at: float, now: float) -> None:
        is_strict = self.looked_at is None or self.timing.has_ladder
        self.credit = 1.0 if is_strict else min(3.0, max(1.0, now - (self.looked_at or 0.0)))
        self.looked_at = now
        if what == "x":
            if self.phase is not NONE:
                self.go(NONE, "gone")
            self.sampled_at = None
            return
        if what in "bcd" and (self.sampled_at is None or at > self.sampled_at):
            self.sample(what, at)
        if self.phase is not NONE and (self.sampled_at is None
                                    or now - self.sampled_at > max(self.timing.for_s, 600)):
            self.go(NONE, "no data")

    def sample(self, what: str, at: float) -> None:
        gap = 0 if self.sampled_at is None else at - self.sampled_at
        if gap > self.timing.gap_s and self.phase is P:
            if self.timing.has_ladder:
                self.go(NONE, "gap")
            else:
                self.since += gap - self.timing.period_s
        self.sampled_at = at
        match self.phase, what:
            case AlertPhase.INACTIVE, "b":
                self.since, self.samples = at, 1
                self.go(*((F, "held") if not self.timing.for_s and not self.timing.has_ladder
                          else (P, "breach")))
            case AlertPhase.PENDING, "b":
                self.samples += self.credit
                held_s = at - self.since
                if held_s >= self.timing.for_s and self.samples * self.timing.period_s >= (
                        self.timing.min_coverage * (held_s + self.timing.period_s)):
                    self.go(F, "held")
            case AlertPhase.PENDING, _:
                self.go(NONE, "not so any more")
            case AlertPhase.FIRING, "c":
                self.since = at
                self.go(*((R, "clear") if self.timing.keep_s else (NONE, "resolved")))
            case AlertPhase.RESOLVING, "b":
                self.go(F, "breach")
            case AlertPhase.RESOLVING, "d":
                self.since = at
            case AlertPhase.RESOLVING, "c" if at - self.since >= self.timing.keep_s:
                self.go(NONE, "resolved")


TIMINGS = st.builds(AlertTiming, st.sampled_from([0.0, 1.0, 3.0, 7.0]),
                    st.sampled_from([0.0, 2.0, 5.0]),
                    st.sampled_from([2.0, 3.0]), st.just(1.0), st.sampled_from([0.5, 0.8, 1.0]),
                    st.booleans())
STEPS = st.lists(st.tuples(st.lists(st.sampled_from("bbbbccdu_nx"), min_size=3, max_size=3),
                           st.sampled_from([1, 1, 1, 1, 2, 5, 400, 700])), max_size=60)


@settings(max_examples=150, deadline=None)
@given(timing=TIMINGS, steps=STEPS)
def test_all_rows_at_once_are_each_as_one_alone(timing: AlertTiming,
                                                steps: list[tuple[list[str], int]]
                                               ) -> None:
    machine, ones, now = AlertStateMachine(timing, 3), [PlainMachine(timing) for _ in range(3)], 0.0
    changes: list[list[tuple[AlertPhase, AlertPhase, str]]] = [[], [], []]
    at = [0.0, 0.0, 0.0]
    for letters, seconds in steps:
        now += seconds
        at = [now if letter != "_" else before for letter, before in zip(letters, at, strict=True)]
        rows = [("u" if letter == "_" else letter, when)
                for letter, when in zip(letters, at, strict=True)]
        for move in machine.step(look_of(rows), now):
            for row in move.rows:
                changes[row].append((move.before, move.after, move.reason))
        for one, (letter, when) in zip(ones, rows, strict=True):
            one.step(letter, when, now)
        assert changes == [one.changes for one in ones]
    assert_invariants(changes)


def assert_invariants(changes: list[list[tuple[AlertPhase, AlertPhase, str]]]) -> None:
    for row_changes in changes:
        phase = NONE
        for before, after, reason in row_changes:
            assert before is phase
            assert TABLE[before][reason] is after
            phase = after


@settings(max_examples=60, deadline=None)
@given(timing=TIMINGS.filter(lambda timing: timing.for_s > 0),
       story=st.text("bbbbbcd_", max_size=80))
def test_never_firing_without_having_held(timing: AlertTiming, story: str) -> None:
    """Counted from outside: the seconds of breach before it that nothing interrupted."""
    for second, after, reason in play(timing, story):
        if after is F and reason == "held":
            run = story[: second + 1].replace("u", "_")
            unbroken = run[max(run.rfind("c"), run.rfind("d")) + 1 :]
            assert unbroken.count("b") >= math.floor(timing.min_coverage * (timing.for_s + 1))
            assert len(unbroken) > timing.for_s


@pytest.mark.parametrize(("timing", "every_s", "fires"), [
    (NOTICE, 1.7, True), (NOTICE, 2.9, True), (ACTS, 1.2, True), (ACTS, 1.7, False)])
def test_a_hub_that_looks_too_seldom_still_tells_and_does_not_act(timing: AlertTiming,
                                                                  every_s: float,
                                                                 fires: bool) -> None:
    """Agents report each second, and the hub sees every other."""
    machine, now = AlertStateMachine(timing, 1), 1_000.0
    for _ in range(40):
        now += every_s
        machine.step(look_of([("b", now)]), now)
    assert bool(machine.phase[0] == F) is fires


def test_a_replay_is_the_same_to_the_byte() -> None:
    rng = np.random.default_rng(random.getrandbits(32))
    seed = int(rng.integers(2**32))

    def once() -> bytes:
        random = np.random.default_rng(seed)
        machine, out = AlertStateMachine(NOTICE, 500), []
        for second in range(200):
            what = random.choice(list("bbbbcdux"), 500)
            moves: list[PhaseChange] = machine.step(
                look_of([(letter, float(second)) for letter in what]), float(second))
            out += [(second, move.before, move.after, move.reason, move.rows.tobytes())
                    for move in moves]
        return repr(out).encode() + machine.phase.tobytes() + machine.since.tobytes()

    assert once() == once()


def test_rows_that_come_later_are_rows_like_others() -> None:
    machine = AlertStateMachine(NOTICE, 1)
    for second in range(6):
        machine.step(look_of([("b", float(second))]), float(second))
    machine.grow(3)
    assert machine.phase.tolist() == [F, NONE, NONE]
    for second in range(6, 12):
        machine.step(look_of([("b", float(second))] * 3), float(second))
    assert machine.phase.tolist() == [F, F, F]

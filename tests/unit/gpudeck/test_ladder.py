"""The ladder: whatever the observations, holds and outcomes, no rung is skipped, no step is taken
while its condition is not met, and never two at once."""

import random
import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dashboard.alerts.core.rule import CompiledRule, RuleStep
from dashboard.alerts.rules_file import parse
from dashboard.automation.brake_limits import TABLE
from gpudeck.contract.ladder import (
    AGAIN_AFTER_S,
    FRESH_S,
    LIFE,
    PUT_OFF_MOST,
    ClimbState,
    Do,
    LadderClimb,
    LadderObservation,
    LadderRung,
    LadderStep,
    So,
    begin,
    look,
    resumed,
    settle,
)
from gpudeck.contract.quota import Quota, flaws

T0 = 1_700_000_000.0
IDLE = (LadderRung("tell"), LadderRung("tell", 600.0), LadderRung("end", 600.0))


def sight(condition: So, age_s: float | None, holds: tuple[str, ...] = (),
          mutes: tuple[str, ...] = (), kept_until: float | None = None,
          keep_reason: str = "") -> LadderObservation:
    return LadderObservation(condition, age_s, holds, mutes, kept_until, keep_reason)


YES = sight("yes", 0.5)


@dataclass
class Walk:
    """A Climb with its clock; what was handed out."""

    climb: LadderClimb
    now: float = T0
    steps: list[LadderStep] = field(default_factory=list)

    def see(self, sight: LadderObservation = YES, after_s: float = 1.0) -> LadderStep | None:
        self.now += after_s
        self.climb, step = look(self.climb, sight, self.now)
        if step is not None:
            self.steps.append(step)
        return step

    def outcome(self, kind: str = "done", sentence: str = "", after_s: float = 1.0) -> None:
        self.now += after_s
        self.climb = settle(self.climb, kind, sentence, self.now)  # type: ignore[arg-type]

    def until_step(self, most_s: int = 3_600) -> float:
        started = self.now
        for _ in range(most_s):
            if self.see() is not None:
                return self.now - started
        raise AssertionError(f"no step in {most_s} s: {self.climb.why}")


def walk(rungs: tuple[LadderRung, ...] = IDLE, skips_refused: bool = False) -> Walk:
    return Walk(begin("idle@1", "task", rungs, T0, skips_refused))


def test_told_told_again_then_ended() -> None:
    first, second = random.uniform(60, 900), random.uniform(60, 900)
    climb = walk((LadderRung("tell"), LadderRung("tell", first), LadderRung("end", second)))
    climb.until_step()
    climb.outcome()
    assert climb.until_step() >= first
    climb.outcome()
    assert climb.until_step() >= second
    climb.outcome(sentence="ended on SIGTERM")
    climb.see()
    assert [step.do for step in climb.steps] == ["tell", "tell", "end"]
    assert climb.climb.state == "finished"
    assert climb.see() is None


def test_it_begins_anew_when_it_comes_back() -> None:
    climb = walk()
    climb.until_step()
    climb.outcome()
    climb.see(sight("clearing", 0.5), 599.0)
    assert climb.climb.state == "resting"
    for _ in range(random.randint(1, 5)):
        assert climb.see(sight("clearing", 0.5), 600.0) is None
    climb.see()
    assert climb.until_step() < 10
    assert climb.steps[-1].rung == 0


@pytest.mark.parametrize("sight", [
    sight("unknown", 0.5), sight("yes", FRESH_S + 0.1),
    sight("yes", None),
    sight("yes", float("nan")), sight("yes", -1.0),
    sight("yes", 0.5, ("the breaker is open",)),
    sight("yes", 0.5, kept_until=T0 + 1e6,
                      keep_reason="kept by ada until Friday: the paper is due"),
])
def test_nothing_is_done_without_being_sure(sight: LadderObservation) -> None:
    climb, control = walk((LadderRung("end", 60.0),)), walk((LadderRung("end", 60.0),))
    for _ in range(200):
        assert climb.see(sight) is None
    assert climb.climb.why
    control.until_step()  # the same, when one is sure


def test_a_hold_is_told_in_its_own_words_and_does_not_keep_the_owner_from_being_told() -> None:
    why = f"storm {random.random()}"
    climb = walk()
    assert climb.see(sight("yes", 0.5, (why,))) is not None
    climb.outcome()
    climb = walk((LadderRung("pause"),))
    assert climb.see(sight("yes", 0.5, (why, "silenced"))) is None
    assert climb.climb.why == f"{why}; silenced"
    climb = walk()
    assert climb.see(sight("yes", 0.5, mutes=("muted",))) is None
    assert climb.climb.why == "muted"


def test_kept_is_respected_to_the_second() -> None:
    until = T0 + random.randint(100, 1_000)
    climb = walk((LadderRung("end"),))
    while climb.see(sight("yes", 0.5, kept_until=until, keep_reason="kept")) is None:
        assert climb.now < until
        assert climb.climb.why == "kept"
    assert climb.now >= until


def test_the_next_rung_waits_for_a_sample_from_after_the_step_before() -> None:
    climb = walk((LadderRung("tell"), LadderRung("end")))
    climb.until_step()
    climb.outcome(after_s=30.0)
    for _ in range(int(FRESH_S) - 1):
        taken_before = climb.now + 1.0 - climb.climb.done[-1].ended_at + 0.1  # type: ignore[operator]
        assert climb.see(sight("yes", taken_before)) is None
    assert climb.climb.state == "settling"
    assert climb.see(sight("yes", 0.0)) is not None


@pytest.mark.parametrize("kind", ["refused", "failed"])
def test_an_outcome_that_was_not_hoped_for_stops_it_for_good(kind: str) -> None:
    climb = walk((LadderRung("pause"), LadderRung("end")))
    climb.until_step()
    climb.outcome(kind, "it belongs to slurm job 7")
    for _ in range(100):
        assert climb.see(random.choice((YES, sight("clearing", 0.5)))) is None
    assert climb.climb.state == "stopped"
    assert climb.climb.why == "it belongs to slurm job 7"


@pytest.mark.parametrize("kind", ["refused", "failed"])
def test_what_a_preemption_cannot_suspend_is_ended(kind: str) -> None:
    climb = walk((LadderRung("tell"), LadderRung("suspend"), LadderRung("end", 120.0)), True)
    climb.until_step()
    climb.outcome()
    climb.until_step()
    climb.outcome(kind, "it needs 80 GiB of host memory")
    assert climb.until_step() >= 120 - 1, "with its whole grace"
    assert climb.steps[-1].do == "end"


def test_a_step_that_failed_is_not_gone_past_by_rules() -> None:
    climb = walk((LadderRung("tell"), LadderRung("pause"), LadderRung("end")), True)
    climb.until_step()
    climb.outcome()
    climb.until_step()
    climb.outcome("failed", "the outcome is unknown")
    assert climb.climb.state == "stopped"


def test_no_rule_and_no_quota_suspends() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"do": "suspend"}, RuleStep)
    quota = Quota("q", "user:ann", gpus=1, mode="act", ladder=(
        LadderRung("tell"), LadderRung("suspend", 600.0), LadderRung("end", 600.0)))
    assert any("suspend is no step of quotas" in str(flaw) for flaw in flaws(quota))


def test_a_rung_that_is_refused_is_skipped_where_the_rule_says_so() -> None:
    climb = walk((LadderRung("tell"), LadderRung("pause", 60.0), LadderRung("end", 600.0)), True)
    climb.until_step()
    climb.outcome()
    climb.until_step()
    climb.outcome("refused", "rules pause only what is one tree")
    assert [step.outcome for step in climb.climb.done] == ["done", "refused"]
    assert climb.climb.state == "settling", "a sample from after it is waited for all the same"
    assert resumed(climb.climb, climb.now).skips_refused
    assert climb.until_step() >= 600 - 1, "at its time, and no sooner"
    assert climb.steps[-1].do == "end"
    climb.outcome("refused", "it belongs to slurm job 7")
    assert (climb.climb.state, climb.climb.why) == ("stopped", "it belongs to slurm job 7")


@pytest.mark.parametrize(("kind", "do"), [("failed", "pause"), ("refused", "tell")])
def test_nothing_harsher_follows_what_failed_or_a_warning_that_nobody_got(kind: str, do: Do
                                                                          ) -> None:
    climb = walk((LadderRung(do), LadderRung("end")), True)
    climb.until_step()
    climb.outcome(kind, "no")
    assert climb.climb.state == "stopped"


def test_what_is_put_off_is_tried_again_and_not_for_ever() -> None:
    climb = walk((LadderRung("end"),))
    for number in range(PUT_OFF_MOST):
        waited_s = climb.until_step()
        assert number == 0 or waited_s >= AGAIN_AFTER_S - 1
        climb.outcome("put_off", "the node is busy")
    assert climb.climb.state == "stopped"
    assert "the node is busy" in climb.climb.why


def test_while_a_step_acts_nothing_but_its_outcome_counts() -> None:
    climb = walk((LadderRung("pause"), LadderRung("end")))
    climb.until_step()
    for condition in ("yes", "no", "gone", "clearing", "unknown"):
        assert climb.see(sight(condition, 0.5), 1_000.0) is None
        assert climb.climb.state == "acting"
    climb.outcome()
    climb.see(sight("gone", 0.5))
    assert climb.climb.state == "over"


def test_every_state_can_end() -> None:
    for state in LIFE:
        reached: set[ClimbState] = set()
        todo = [state]
        while todo:
            reached.add(current := todo.pop())
            todo += [after for after in LIFE[current] if after not in reached]
        assert "over" in reached


sights = st.builds(
    LadderObservation, st.sampled_from(("yes", "yes", "yes", "clearing", "no", "gone", "unknown")),
    st.one_of(st.none(), st.floats(-5, 30)),
    st.sampled_from(((), (), ("held",))), st.sampled_from(((), (), ("muted",))),
    st.one_of(st.none(), st.floats(T0, T0 + 5_000)))
rungs = st.lists(st.builds(LadderRung, st.sampled_from(("tell", "pause", "end")),
                           st.floats(0, 900)), min_size=1, max_size=4).map(tuple)


class LadderMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.walk: Walk | None = None
        self.states: list[ClimbState] = []
        self.acting = False
        self.rested = False
        self.ended_at: float | None = None
        self.next = 0

    @precondition(lambda self: self.walk is None)
    @rule(rungs=rungs)
    def start(self, rungs: tuple[LadderRung, ...]) -> None:
        self.walk = walk(rungs)
        self.states.append("waiting")

    @precondition(lambda self: self.walk is not None)
    @rule(sight=sights, after_s=st.sampled_from((0.5, 1.0, 5.0, 60.0, 600.0)))
    def observe(self, sight: LadderObservation, after_s: float) -> None:
        assert self.walk is not None
        before = self.walk.climb
        step = self.walk.see(sight, after_s)
        after = self.walk.climb
        if after.state != before.state:
            # A look may see that what was done is behind it, and what comes next is due.
            via = [before.state, "waiting", after.state] if (
                before.state, after.state) == ("settling", "acting") else [before.state,
                                                                          after.state]
            assert all(to in LIFE[fro] for fro, to in pairwise(via))
        if after.state == "waiting" and before.state == "resting":
            self.next = 0
        if step is not None:
            self._check(step, sight, before)

    def _check(self, step: LadderStep, sight: LadderObservation, before: LadderClimb) -> None:
        assert self.walk is not None
        assert not self.acting, "two at once"
        assert sight.condition == "yes"
        assert sight.sample_age_s is not None
        assert 0 <= sight.sample_age_s <= FRESH_S
        assert step.rung == self.next, "a rung was skipped"
        assert step.do == before.rungs[step.rung].do
        assert not (sight.mutes if step.do == "tell" else sight.holds)
        assert step.do == "tell" or not (sight.kept_until and self.walk.now < sight.kept_until)
        if step.rung and self.ended_at is not None:
            assert self.walk.now >= self.ended_at + before.rungs[step.rung].after_s
            assert self.walk.now - sight.sample_age_s > self.ended_at
        numbers = [one.number for one in self.walk.steps]
        assert numbers == list(range(1, len(numbers) + 1))
        self.acting = True

    @precondition(lambda self: self.acting)
    @rule(kind=st.sampled_from(("done", "done", "done", "put_off", "refused", "failed")),
          after_s=st.sampled_from((0.1, 1.0, 40.0)))
    def answer(self, kind: str, after_s: float) -> None:
        assert self.walk is not None
        self.walk.outcome(kind, "so it is", after_s)
        self.acting = False
        if kind == "done":
            self.next += 1
            self.ended_at = self.walk.now

    @invariant()
    def why_is_said(self) -> None:
        if self.walk is not None and self.walk.climb.state in ("acting", "resting", "stopped"):
            assert self.walk.climb.why


TestLadder = LadderMachine.TestCase


def page() -> str:
    return (Path(__file__).resolve().parents[3] / "docs" / "rules-that-act.md").read_text()


def test_the_page_draws_the_table() -> None:
    rows = re.findall(r"^\| (\w+) \|([\w, ]*)\|", page(), re.M)
    page_table = {state: tuple(filter(None, after.strip().split(", "))) for state, after in rows
                  if state in LIFE}
    assert page_table == LIFE


def test_the_page_shows_a_rule_that_is_well_written() -> None:
    [rule] = yaml_of(re.findall(r"```yaml\n(.*?)```", page(), re.S)[0])
    assert [do for do, _ in rule.steps] == ["tell", "tell", "end"]


def test_the_page_names_every_brake() -> None:
    brakes = set(re.findall(r"^\| (\w+) \|", page(), re.M))
    assert {brake.name for brake in TABLE} <= brakes


def yaml_of(text: str) -> list[CompiledRule]:
    parsed = parse(text)
    assert parsed.faults == ()
    return list(parsed.rules.values())

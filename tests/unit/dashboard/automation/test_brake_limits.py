"""Brakes: the bounds of automatic actions hold whatever clock, restart or order there is; and
the modes that a rule may have."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.alerts.core.promotion import (
    DAY_S,
    PROVEN_S,
    PromotionRequest,
    RuleRevision,
    as_put,
    author,
    dry_run_s,
    effective,
    refusal,
)
from dashboard.alerts.core.rule import Mode, Rule, RuleStep, version
from dashboard.automation import brake_limits
from dashboard.automation.brake_limits import BrakeRequest, BrakeState, BrakeTrip

NOW = 1_790_000_000.0


def ask(source: str = "rule idle", node: str = "n1", acts: int = 5, nodes: int = 1_000,
        busy: frozenset[str] = frozenset()) -> BrakeRequest:
    return BrakeRequest(source, node, acts, 600.0, nodes, busy)


def names(blocks: list[brake_limits.BrakeBlock]) -> list[str]:
    return [block.brake for block in blocks]


def state_after(times: int, every_s: float = 2.0, source: str = "rule idle") -> BrakeState:
    state = BrakeState()
    for at in range(times):
        state = brake_limits.spend(state, source, "n1", NOW - at * every_s - 2.0)
    return state


def test_each_bound_holds_and_the_one_before_does_not() -> None:
    assert brake_limits.holds(state_after(4), ask(), NOW) == []
    assert names(brake_limits.holds(state_after(5), ask(), NOW)) == ["cause"]
    assert brake_limits.holds(state_after(5), ask("rule other"), NOW) == []
    assert names(brake_limits.holds(state_after(10), ask("rule other"), NOW)) == ["fleet"]
    assert names(brake_limits.holds(state_after(1), ask("rule other", nodes=8), NOW)) == ["fleet"]
    assert names(brake_limits.holds(BrakeState(), ask(busy=frozenset({"n1"})), NOW)) == ["node"]
    assert brake_limits.holds(BrakeState(), ask(busy=frozenset({"n2"})), NOW) == []
    state = brake_limits.spend(BrakeState(), "rule other", "n2", NOW - 0.5)
    assert names(brake_limits.holds(state, ask(), NOW)) == ["pace"]


@pytest.mark.parametrize(("nodes", "most"), [
    (0, 1), (1, 1), (19, 1), (20, 1), (40, 2), (100, 5), (200, 10), (10_000, 10)])
def test_the_fleets_bound(nodes: int, most: int) -> None:
    assert brake_limits.fleet_most(nodes) == most


def test_no_act_of_another_rule_gives_a_long_budget_back() -> None:
    state = brake_limits.spend(BrakeState(), "rule rare", "n1", NOW - 20_000.0)
    state = brake_limits.spend(state, "rule idle", "n1", NOW - 700.0)
    wish = BrakeRequest("rule rare", "n2", 1, 86_400.0, 1_000, frozenset())
    assert names(brake_limits.holds(state, wish, NOW)) == ["cause"]
    assert brake_limits.spend(state, "rule idle", "n1", NOW + 90_000.0).spent[0].at > NOW


def test_the_breaker_and_a_storm_hold_words_too() -> None:
    state = brake_limits.with_breaker(BrakeState(),
                                      BrakeTrip(NOW, "breaker", "an act ended unknown"))
    assert names(brake_limits.mutes(state, "rule idle")) == ["breaker"]
    later = brake_limits.with_breaker(state, BrakeTrip(NOW + 1, "fleet", "later"))
    assert later == state
    state = brake_limits.with_storm(BrakeState(), "rule idle", BrakeTrip(NOW, "storm", "too many"))
    assert names(brake_limits.mutes(state, "rule idle")) == ["storm"]
    assert brake_limits.mutes(state, "rule other") == []
    assert brake_limits.reset(brake_limits.spend(state, "rule idle", "n1", NOW)).spent


@pytest.mark.parametrize(("began", "targets", "is_storm"), [
    ([0.0] * 5, 25, True), ([0.0] * 4, 4, False), ([0.0] * 5, 26, False),
    ([0.0] * 4 + [61.0], 10, False), ([59.0] * 5, 10, True), ([0.0] * 1_000, 10_000, False),
    ([0.0] * 2_000, 10_000, True)])
def test_a_storm_is_many_and_a_share(began: list[float], targets: int, is_storm: bool) -> None:
    trip = brake_limits.storm("rule idle", [NOW - ago for ago in began], targets, NOW)
    assert (trip is not None) == is_storm


@given(st.lists(st.tuples(st.floats(0, 3_000), st.sampled_from("abc"), st.sampled_from("xyz"),
                          st.booleans()), max_size=80))
def test_no_order_of_wishes_gets_more_than_the_bounds(
    wishes: list[tuple[float, str, str, bool]],
) -> None:
    """Wishes come at any time, the clock set back in between, and a restart before each."""
    state, acts = BrakeState(), []
    latest = NOW
    for ahead, source, node, is_back in wishes:
        now = NOW + ahead - (2_000.0 if is_back else 0.0)
        wish = ask(source, node, acts=3, nodes=100)
        if not brake_limits.holds(state, wish, now):
            state = brake_limits.spend(state, source, node, now)
            acts.append((now, source))
        latest = max(latest, now)
    for at, _ in acts:
        within = [act for act in acts if at - 600.0 < act[0] <= at]
        assert len(within) <= 5
        for source in "abc":
            assert sum(act[1] == source for act in within) <= 3


RULE = Rule("idle", "Idle", "sm_pct", "<= 1", of="task", scope="*", for_="2h",
            ladder=(RuleStep("tell"), RuleStep("end", "10m")))


def rule_in(mode: Mode, **more: str) -> Rule:
    return Rule(**{name: getattr(RULE, name) for name in RULE.__struct_fields__} | {
        "mode": mode} | more)


def case(was: Mode, mode: Mode, days: float = 0.0, by: str = "ada", promoter: str = "ben",
         **more: Any) -> PromotionRequest:
    rule = rule_in(was)
    puts = [RuleRevision(rule, by, NOW - 1.0),
            RuleRevision(rule_in("dry_run"), by, NOW - days * DAY_S)]
    return PromotionRequest(rule, mode, "2026-10-31", puts, more.pop("rehearsals", ()),
                            frozenset({promoter}), more.pop("needs_second", True), NOW)


class Backtest:
    def __init__(self, days: float, approved_by: str | None, of: Rule = RULE) -> None:
        self.rule_version, self.by, self.approved_by = version(of), "ada", approved_by
        self.start, self.end = NOW - days * DAY_S, NOW


@pytest.mark.parametrize(("promotion", "says"), [
    (case("observe", "auto", 9), "from observe to dry_run"),
    (case("observe", "confirm", 9), "from observe to dry_run"),
    (case("dry_run", "auto", 6.9), "7 days of dry_run"),
    (case("dry_run", "auto", 8, promoter="ada"), "another admin"),
    (case("dry_run", "auto", 1, rehearsals=[Backtest(8, None)]), "7 days"),
    (case("dry_run", "auto", 1, rehearsals=[Backtest(6, "ben")]), "7 days"),
    (case("dry_run", "auto", 1, rehearsals=[Backtest(8, "ada")]), "7 days"),
    (case("dry_run", "auto", 1, rehearsals=[Backtest(8, "ben", rule_in("auto", fire="<= 2"))]),
     "7 days"),
])
def test_what_is_not_proven_does_not_act(promotion: PromotionRequest, says: str) -> None:
    assert says in (refusal(promotion) or "")


@pytest.mark.parametrize("promotion", [
    case("dry_run", "auto", 7.1), case("confirm", "auto", 7.1), case("dry_run", "confirm", 0.1),
    case("dry_run", "auto", 1, rehearsals=[Backtest(7.1, "ben")]), case("auto", "observe"),
    case("dry_run", "auto", 8, promoter="ada", needs_second=False), case("observe", "dry_run"),
])
def test_what_is_proven_may(promotion: PromotionRequest) -> None:
    assert refusal(promotion) is None


@pytest.mark.parametrize(("hours", "days", "says"), [
    (1, 0.03, "after 1 hour of dry_run (it has 0.7 hours)"), (1, 0.05, None),
    (36, 1.0, "after 36 hours of dry_run (it has 24 hours)"),
    (168, 6.9, "after 7 days of dry_run (it has 6.9 days)")])
def test_how_much_proof_it_takes_is_the_sites_choice(hours: int, days: float, says: str | None
                                                     ) -> None:
    reason = refusal(replace(case("dry_run", "auto", days), proof_s=hours * 3_600.0))
    assert reason is None if says is None else says in (reason or "")


@pytest.mark.parametrize("expires", ["", "tomorrow", "2026-01-01", "2027-09-30"])
def test_auto_has_an_end_that_is_near(expires: str) -> None:
    promotion = case("dry_run", "auto", 8)
    reason = refusal(PromotionRequest(promotion.rule, "auto", expires, promotion.puts, (),
                                      promotion.names, True, NOW))
    assert "expires" in (reason or "")


def test_an_edit_of_what_it_means_takes_back_what_was_proven() -> None:
    was = rule_in("auto", expires="2026-10-31")
    for change in ({"fire": "<= 2"}, {"scope": "user:bob"}, {"for_": "1h"}):
        assert as_put(was, rule_in("auto", **change)).mode == "dry_run"
    assert as_put(was, rule_in("auto", title="Idle GPUs")).mode == "auto"
    puts = [RuleRevision(rule_in("dry_run", fire="<= 2"), "eve", NOW - 60),
            RuleRevision(was, "ada", NOW - PROVEN_S)]
    assert author(puts) == "eve"
    assert dry_run_s(puts, NOW) == 60
    observed = [RuleRevision(rule_in("dry_run"), "ada", NOW - 60),
                RuleRevision(rule_in("observe"), "ada", NOW - 100),
                RuleRevision(rule_in("dry_run"), "ada", NOW - 2 * PROVEN_S)]
    assert dry_run_s(observed, NOW) == 60


def test_on_the_day_after_its_last_it_acts_no_more() -> None:
    assert effective(rule_in("auto", expires="2026-10-31"), NOW) == "auto"
    assert effective(rule_in("auto", expires="2026-01-31"), NOW) == "dry_run"
    assert effective(rule_in("auto"), NOW) == "dry_run"
    assert effective(rule_in(random.choice(("observe", "confirm"))), NOW) in ("observe", "confirm")

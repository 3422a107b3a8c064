"""Changes between the decision and the order: each of them counts, and nothing is left over."""

import random
from typing import NoReturn

import pytest

from dashboard.actions.lifecycle import CommandRecord
from dashboard.automation.intents import ActionIntent
from dashboard.automation.ladder_state import RETURN_WITHIN_S
from gpudeck.contract.action_table import ON_RUNG
from gpudeck.contract.actions import CommandActor
from gpudeck.contract.ladder import LadderStep
from tests.unit.climbing import Busy, World, a_world, done

__all__ = ["a_world"]


def one_idle(world: World) -> Busy:
    hog = random.choice(world.add(12, 2, "bob", sm_pct=80.0))
    hog.sm_pct = 0.0
    return hog


def once(world: World, does: object) -> None:
    """Call it while a node is asked the next time."""
    def hook() -> None:
        world.while_looking = lambda: None
        does()  # type: ignore[operator]
    world.while_looking = hook


@pytest.mark.parametrize("mode", ["confirm", "dry_run", "observe"])
def test_a_rule_that_may_less_since_its_node_was_asked_orders_nothing(world: World, mode: str
                                                                     ) -> None:
    one_idle(world)
    world.put()
    world.until(lambda: len(world.did("notify")) == 2)
    world.turn(30)
    once(world, lambda: world.put(mode))
    world.until(lambda: world.active_rules.rules["idle"][1].mode == mode)
    world.turn(5)
    assert world.did() == []
    assert world.brakes.state.spent == (), "and what was not done is not counted"


def test_nobody_is_told_after_the_breaker_has_opened(world: World) -> None:
    one_idle(world)
    world.put()
    once(world, lambda: world.brakes.trip("breaker", "a test"))
    world.until(lambda: world.brakes.state.breaker)
    world.turn(200)
    assert world.orders == []


def go_away(world: World, hog: Busy, seconds: float) -> None:
    hog.ended_at = world.clock.now
    world.turn(seconds)
    hog.ended_at = None


@pytest.mark.parametrize(("away_s", "tells"), [
    (60.0, 2), (RETURN_WITHIN_S + 10.0, 4), (3_000.0, 4)])
def test_whoever_comes_back_long_after_the_hub_is_told_from_the_first_rung(
    world: World, away_s: float, tells: int
) -> None:
    """The hub did not see what it did meanwhile."""
    hog = one_idle(world)
    world.put()
    world.until(lambda: len(world.did("notify")) == 2)
    world.turn(31)
    hog.ended_at = world.clock.now
    world.kill(5.0)
    go_away(world, hog, away_s)
    world.until(lambda: world.ended)
    assert [record.action for record in world.orders] == ["notify"] * tells + ["end"]


def waiting_alert(world: World) -> str:
    """Return the id of an Alert that waits for a person."""
    one_idle(world)
    world.put("confirm")
    world.until(lambda: any("waiting for a person" in run.climb.why for run in world.climbs()))
    [run] = world.climbs()
    return run.intent.alert_id


def test_an_outcome_that_is_there_before_the_person_is_answered_counts(world: World) -> None:
    alert_id = waiting_alert(world)

    def order(want: ActionIntent, step: LadderStep) -> CommandRecord:
        record = CommandRecord("c-1", ON_RUNG[step.do], want.node_id, want.host,
                               CommandActor("person", "ada"), "yes", world.clock.now,
                               world.clock.now, world.clock.now + 30.0, state="sent",
                               task_id=want.task_ids[0])
        world.known[record.id] = done(record)
        world.ladders.runs.command_changed(world.known[record.id])
        return record

    assert not isinstance(world.ladders.confirm(alert_id, order), str)
    [run] = world.climbs()
    assert (run.climb.state, run.climb.done[-1].outcome) == ("settling", "done")


def test_a_reset_while_a_person_confirms_drops_that_too(world: World) -> None:
    alert_id = waiting_alert(world)

    def order(want: ActionIntent, step: LadderStep) -> NoReturn:
        world.ladders.runs.drop()
        raise RuntimeError("its preview is too old")

    with pytest.raises(RuntimeError):
        world.ladders.confirm(alert_id, order)
    assert world.climbs() == []
    assert world.brakes.state.spent == ()


def test_a_ladder_that_stands_still_opens_the_breaker(world: World) -> None:
    one_idle(world)
    world.put()
    world.turn(40)

    def fails() -> NoReturn:
        raise KeyError("somebody's fault")

    world.sources.insert(0, fails)
    world.step_ladders()
    world.step_ladders()
    world.sources.remove(fails)
    world.step_ladders()
    assert world.brakes.state.breaker is None, "it was passing"
    world.sources.insert(0, fails)
    for _ in range(5):
        world.step_ladders()
    trip = world.brakes.state.breaker
    assert trip is not None
    assert "KeyError" in trip.sentence
    [entry] = world.recorded("brake")
    assert entry["sentence"] == trip.sentence


@pytest.mark.parametrize("is_reset", [False, True])
def test_an_outcome_that_nobody_told_of_is_found_out(world: World, is_reset: bool) -> None:
    hog = one_idle(world)
    world.put()

    def unheard(record: CommandRecord) -> None:
        world.known[record.id] = done(record)
        if record.action == "end":
            hog.ended_at = world.clock.now
            if is_reset:
                world.ladders.runs.drop()

    world._finish = unheard  # type: ignore[method-assign]
    world.until(lambda: hog.ended_at)
    world.turn(10)
    assert [record.action for record in world.orders] == ["notify", "notify", "end"]
    assert world.climbs() == []
    assert world.ladders.runs.busy() == set()

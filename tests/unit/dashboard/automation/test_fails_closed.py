"""Doubt means no: a guard that is missing, or that fails, lets nothing act."""

import inspect
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from dashboard.automation.alert_mutes import AlertMutes
from dashboard.automation.alert_targets import AlertTargets
from dashboard.automation.brakes import BrakeService
from dashboard.automation.holds import HubHolds, MaintenanceService
from dashboard.automation.quota_source import QuotaIntentSource
from dashboard.automation.rule_planner import RuleIntentPlanner
from dashboard.automation.rule_source import RuleIntentSource
from dashboard.automation.service import LadderService
from dashboard.notifications.service import NotificationService
from tests.unit.climbing import Busy, World, a_world

__all__ = ["a_world"]


def fails(*_: object) -> NoReturn:
    raise OSError("the disk is gone")


def almost_ended(world: World) -> Busy:
    """Return a task whose owner was notified twice, so that its end comes next."""
    hog = random.choice(world.add(12, 2, "bob", sm_pct=80.0))
    hog.sm_pct = 0.0
    world.put()
    world.until(lambda: len(world.did("notify")) == 2)
    return hog


def turn(world: World, seconds: int) -> None:
    """Pass time as in a hub, whose runner logs what fails and goes on."""
    world.is_isolated = True
    world.turn(seconds)


GUARDS: tuple[tuple[str, Callable[[Any], None]], ...] = (
    ("maintenance", lambda holds: setattr(holds.maintenance, "why", fails)),
    ("hold", lambda holds: setattr(holds.holds, "refusal", fails)),
    ("keep", lambda holds: setattr(holds.keeps, "of_any", fails)))


@pytest.mark.parametrize("break_guard", [break_guard for _, break_guard in GUARDS], ids=[
    name for name, _ in GUARDS])
def test_a_guard_that_raises_lets_nothing_act(world: World, break_guard: Callable[[Any], None]
                                             ) -> None:
    hog = almost_ended(world)
    break_guard(world.rules.hub_holds)
    turn(world, 120)
    assert world.did("end") == []
    assert hog.ended_at is None
    trip = world.brakes.state.breaker
    assert trip is not None, "and an admin hears of it"
    assert "OSError" in trip.sentence


@pytest.mark.parametrize("break_guard", [break_guard for _, break_guard in GUARDS], ids=[
    name for name, _ in GUARDS])
def test_a_guard_that_raises_while_the_node_is_asked_lets_nothing_act(
    world: World, break_guard: Callable[[Any], None]
) -> None:
    hog = almost_ended(world)
    world.while_looking = lambda: break_guard(world.rules.hub_holds)
    turn(world, 120)
    assert world.did("end") == []
    assert hog.ended_at is None


@pytest.mark.parametrize("guard", ["keeps", "holds", "maintenance"])
def test_what_a_guard_forbids_is_not_done(world: World, guard: str) -> None:
    """The control of those above: the same fleet acts once the guard lets it."""
    hog = almost_ended(world)
    holds, until = world.rules.hub_holds, world.clock.now + 300.0
    forbidding: Any = {
        "keeps": SimpleNamespace(of_any=lambda *_: SimpleNamespace(until=until, by="bob",
                                                                  because="")),
        "holds": SimpleNamespace(refusal=lambda _: SimpleNamespace(sentence="all is held")),
        "maintenance": SimpleNamespace(why=lambda _: "people work on it")}
    before = getattr(holds, guard)
    object.__setattr__(holds, guard, forbidding[guard])
    world.turn(200)
    assert world.did("end") == []
    object.__setattr__(holds, guard, before)
    world.until(lambda: hog.ended_at)


def test_an_owner_who_could_not_be_notified_was_not(world: World) -> None:
    hog = random.choice(world.add(12, 2, "bob", sm_pct=80.0))
    hog.sm_pct = 0.0
    world.notices = SimpleNamespace(append=fails)  # type: ignore[assignment]
    world.begin()
    world.put()
    world.turn(300)
    assert world.did("end") == []
    [run] = world.climbs()
    assert run.climb.done[0].outcome == "failed"


@pytest.mark.parametrize("part", [
    AlertTargets, AlertMutes, RuleIntentPlanner, RuleIntentSource, QuotaIntentSource, HubHolds,
    LadderService, BrakeService, MaintenanceService, NotificationService])
def test_no_guard_has_a_default(part: type) -> None:
    """Parameters that may have one: clocks, threads, and what the class fills by itself."""
    optional = {name for name, parameter in inspect.signature(part).parameters.items()
                if parameter.default is not inspect.Parameter.empty}
    assert optional <= {"began_mono", "began_at", "spawn", "mono", "_modes", "_matters", "_gpus_of",
                        "_pending", "_templates"}

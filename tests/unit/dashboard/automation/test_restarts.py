"""Restarts of the hub, which must neither lose nor repeat how far each ladder is, that a target
comes and goes, and how long it cools down; and clocks that are set."""

import random

import numpy as np
import pytest
from msgspec.structs import replace

from dashboard.access.policy import Actor, Role, Scope
from dashboard.alerts.events import AlertChanged
from dashboard.alerts.store import AlertsStore
from dashboard.automation.intents import ActionIntent
from dashboard.automation.ladder_state import (
    GAP_MOST_S,
    RETURN_WITHIN_S,
    SavedLadderClimb,
    SavedLadderState,
    continued_climb,
    restored,
    saved_state,
)
from dashboard.quotas.evaluate import over_since
from gpudeck.contract.ladder import (
    LadderClimb,
    LadderObservation,
    LadderRung,
    begin,
    look,
    resumed,
    settle,
)
from gpudeck.contract.quota import Quota
from tests.unit.climbing import Busy, World, a_world
from tests.unit.dashboard.alerts.test_restart_state import BEGIN, Hub
from tests.unit.dashboard.quotas.test_quotas import NOW, balance, intents

__all__ = ["a_world"]

ADMIN = Actor("person", "ada", Role.ADMIN, Scope(("*",)), "s", 1e12)
RUNGS = (LadderRung("tell"), LadderRung("tell", 60.0), LadderRung("end", 60.0))
SEEN = LadderObservation("yes", 0.5, (), (), None, "")


def one_idle(world: World, nodes: int = 12) -> Busy:
    busy = world.add(nodes, 2, "bob", sm_pct=80.0)
    hog = random.choice(busy)
    hog.sm_pct = 0.0
    return hog


def ordered_actions(world: World) -> list[str]:
    return [record.action for record in world.orders]


def run_until_notified(world: World, times: int) -> None:
    world.until(lambda: len(world.did("notify")) == times)
    world.turn(3)  # and its outcome is known


# -- whole

@pytest.mark.parametrize("times", [1, 2])
def test_whoever_was_told_is_not_told_again_and_nobody_ends_sooner(world: World, times: int
                                                                  ) -> None:
    hog = one_idle(world)
    world.put()
    run_until_notified(world, times)
    world.restart(random.uniform(1.0, 200.0))
    began = world.clock.now
    world.until(lambda: world.ended)
    assert ordered_actions(world) == ["notify", "notify", "end"]
    [end] = world.did("end")
    assert end.requested_at - began >= 30.0 + (60.0 if times == 2 else 120.0)
    assert world.ended == [hog]
    assert len(world.notices) == 2


def test_restart_after_restart_tells_nobody_more_than_the_ladder_says(world: World) -> None:
    one_idle(world)
    world.put()
    for _ in range(random.randint(4, 7)):
        world.turn(random.randint(36, 70))  # it has fired again
        world.kill(random.uniform(1.0, 20.0))
    assert len(world.did("notify")) <= 2
    assert world.did("end") == []
    world.until(lambda: world.ended)
    assert ordered_actions(world) == ["notify", "notify", "end"]


def test_after_a_long_stop_all_begins_at_the_first_rung(world: World) -> None:
    one_idle(world)
    world.put()
    run_until_notified(world, 2)
    world.restart(GAP_MOST_S + 60.0)
    world.until(lambda: world.ended)
    assert ordered_actions(world) == ["notify", "notify", "notify", "notify", "end"]


def test_whoever_worked_since_is_told_from_the_first_rung(world: World) -> None:
    hog = one_idle(world)
    world.put()
    run_until_notified(world, 2)
    world.restart()
    world.turn(5)
    hog.sm_pct = 90.0
    world.turn(2)
    hog.sm_pct = 0.0
    world.until(lambda: world.ended)
    assert ordered_actions(world) == ["notify", "notify", "notify", "notify", "end"]


def test_an_edit_while_a_ladder_is_under_way_and_a_restart_begin_anew(world: World) -> None:
    one_idle(world)
    world.put()
    run_until_notified(world, 2)
    world.put(fire="<= 2")
    world.restart()
    world.until(lambda: world.ended)
    assert ordered_actions(world) == ["notify"] * 4 + ["end"]


def test_an_edit_calls_back_what_is_under_way(world: World) -> None:
    hog = one_idle(world)
    world.put()
    run_until_notified(world, 2)
    world.after_s = 60.0
    [order] = world.until(world.did)
    world.put("dry_run", fire="<= 2")
    world.turn(5)
    assert {command_id for command_id, _ in world.recalls} == {order.id}
    assert "no longer requested" in world.recalls[0][1]
    world.turn(300)
    assert world.did() == [order]
    assert hog.ended_at is not None, "this one's node had done it before it heard"


@pytest.mark.parametrize("became", ["expired", "not_effective"])
def test_what_became_of_it_meanwhile_is_looked_up(world: World, became: str) -> None:
    """An order that came to nothing is tried again, one that failed is not."""
    hog = one_idle(world, 40)  # what was spent stays spent
    world.put()
    run_until_notified(world, 2)
    world.after_s = 1e9
    [order] = world.until(world.did)
    world.kill()
    world._open.clear()
    world.known[order.id] = replace(order, state=became)
    world.after_s = 2.0
    world.turn(200)
    assert (hog.ended_at is not None) == (became == "expired")
    assert len(world.did("notify")) == 2


def test_an_end_that_was_under_way_is_never_ordered_twice(world: World) -> None:
    hog = one_idle(world)
    world.put()
    run_until_notified(world, 2)
    world.after_s = 1e9
    world.until(world.did)
    world.kill()
    world.turn(400)
    assert len(world.did("end")) == 1
    assert hog.ended_at is None
    [climb] = world.climbs()
    assert climb.climb.state == "stopped"
    assert "in progress when the hub stopped" in climb.climb.why


def test_one_at_a_time_on_a_node_also_over_a_restart(world: World) -> None:
    world.add(100, 2, sm_pct=80.0)
    node_id = world.tasks[0].node_id
    for one in world.tasks[:2]:
        one.sm_pct = 0.0
    world.put()
    run_until_notified(world, 4)
    world.after_s = 250.0
    world.until(world.did)
    world.kill()
    world.turn(200)
    assert len(world.did()) == 1, "the first is still in flight"
    assert node_id in world.ladders.runs.busy()


def test_after_a_reset_and_a_restart_nothing_goes_on(world: World) -> None:
    one_idle(world)
    world.put()
    run_until_notified(world, 2)
    world.brakes.trip("breaker", "a test")
    world.brakes.reset(ADMIN, "it was a test")
    world.restart()
    world.until(lambda: len(world.did("notify")) == 4)
    assert world.did("end") == []


def test_a_breaker_that_the_disk_did_not_take_is_kept_once_it_does(world: World) -> None:
    one_idle(world)
    world.put()
    run_until_notified(world, 1)
    world.state._db.execute("pragma query_only = on")  # as a disk that is full or read-only
    world.audit.note("test", {"action": "x", "outcome": "done"})
    assert world.brakes.state.breaker is not None
    acts = len(world.orders)
    world.turn(120)
    assert len(world.orders) == acts
    assert world.audit.trouble
    assert len(world.desk.alerts.firing()) == 1, "rules go on"
    world.state._db.execute("pragma query_only = off")
    world.turn(2)
    assert any(entry["action"] == "trip" for entry in world.recorded("brake"))
    assert (world.audit.trouble, world.desk._writer.unsaved) == ("", {})
    world.kill()
    assert world.brakes.state.breaker is not None
    world.turn(300)
    assert len(world.orders) == acts


def test_an_alert_of_a_full_disk_is_told_and_kept_later(world: World) -> None:
    states: list[str] = []
    world.events.listen(AlertChanged, lambda event: states.append(event.alert.state))
    world.put("observe", expires="")
    world.add(1, 1)
    world.state._db.execute("pragma query_only = on")
    world.turn(40)
    assert states == ["firing"]
    assert world.state.store(AlertsStore).open_alerts() == []
    world.state._db.execute("pragma query_only = off")
    world.turn(1)
    assert [alert.state for alert in world.state.store(AlertsStore).open_alerts()] == ["firing"]


# -- of quotas

def over_quota(world: World, one: Busy, goes_on: bool) -> None:
    """Add a quota's intent for this task, from now on and as long as the task is there."""
    def wants() -> list[ActionIntent]:
        climb = begin("quota q v1", f"{one.node_id}/j", RUNGS, 0.0)
        return [] if one.ended_at is not None else [a_want(
            climb, source="quotas", target=climb.target, place="", node_id=one.node_id,
            task_ids=(one.task.id,), owner="ann", goes_on=goes_on)]

    world.sources.append(wants)


@pytest.mark.parametrize("goes_on", [True, False])
def test_the_ladder_of_a_quota_goes_on_where_its_job_was_over_all_along(world: World, goes_on: bool
                                                                       ) -> None:
    [one, *_] = world.add(40, 1, sm_pct=80.0)
    over_quota(world, one, False)
    run_until_notified(world, 2)
    world.kill()
    over_quota(world, one, goes_on)
    world.until(lambda: world.ended)
    assert ordered_actions(world) == ["notify"] * (2 if goes_on else 4) + ["end"]


def test_quotas_wait_for_what_the_fleet_bears_whoever_used_it_up(world: World) -> None:
    """A rule that ended a task is no reason to hold all that acts until an admin looks."""
    [hog, one, *_] = world.add(12, 1, sm_pct=80.0)
    hog.sm_pct = 0.0
    world.put()
    world.until(lambda: world.ended)
    over_quota(world, one, False)
    run_until_notified(world, 4)
    world.turn(90)
    [climb] = world.ladders.runs.of("quotas").values()
    used_up = "the fleet's limit of 1 action in 10 min is used up"
    assert used_up in world.ladders.guards.holds_of(climb)
    assert world.ended == [hog]
    world.until(lambda: one.ended_at is not None, 700)
    assert (one.ended_at or 0.0) - (hog.ended_at or 0.0) >= 600
    assert world.brakes.state.breaker is None


@pytest.mark.parametrize(("away_s", "times"), [(100, 2), (200, 4)])
def test_a_hub_that_ends_again_before_it_knows_forgets_nothing_of_quotas(
    world: World, away_s: int, times: int,
) -> None:
    """The memory lasts until a job that was over must have been seen again."""
    [one, *_] = world.add(40, 1, sm_pct=80.0)
    over_quota(world, one, False)
    run_until_notified(world, 2)
    world.kill()
    world.turn(away_s)
    world.kill()
    over_quota(world, one, True)
    world.until(lambda: world.ended)
    assert ordered_actions(world) == ["notify"] * times + ["end"]


@pytest.mark.parametrize(("returned_by", "goes_on"), [(NOW - 1.0, False), (NOW, True)])
def test_who_was_over_at_the_first_sums_is_over_all_along(returned_by: float, goes_on: bool
                                                         ) -> None:
    over = [balance(Quota("q", "*", gpus=1, mode="act"))]
    [want] = intents(over, over_since({}, over, NOW), NOW + 40.0,
                    began_at=returned_by - RETURN_WITHIN_S)
    assert want.goes_on is goes_on


# -- a clock that is set

@pytest.mark.parametrize("by_s", [-7_200.0, -3.0, 3.0, 7_200.0])
def test_a_clock_that_is_set_neither_freezes_nor_hurries_what_acts(world: World, by_s: float
                                                                  ) -> None:
    hog = one_idle(world)
    world.put()
    run_until_notified(world, 2)
    world.clock.now += by_s
    stepped_mono = world.clock.mono
    world.turn(3)
    assert world.desk.alerts.firing() == []
    world.until(lambda: world.ended)
    assert world.ended == [hog]
    assert world.clock.mono - stepped_mono >= 30.0 + 120.0


@pytest.mark.parametrize("by_s", [-7_200.0, 7_200.0])
def test_a_clock_that_is_set_ends_no_alert_and_hides_none(world: World, by_s: float) -> None:
    hog = one_idle(world)
    world.put("observe", expires="", ladder=[])
    world.turn(40)
    [alert] = world.desk.alerts.firing()
    world.clock.now += by_s
    world.turn(5)
    assert world.desk.alerts.firing() == [alert]
    hog.sm_pct = 90.0
    world.turn(3)
    assert world.desk.alerts.firing() == []


@pytest.mark.parametrize("by_s", [-7_200.0, 7_200.0])
def test_a_clock_that_is_set_ends_no_cooldown(world: World, by_s: float) -> None:
    hog = one_idle(world)
    world.put(cooldown="10m")
    run_until_notified(world, 1)
    hog.sm_pct = 90.0
    world.turn(5)
    hog.sm_pct = 0.0
    world.clock.now += by_s
    world.until(lambda: len(world.did("notify")) == 3)
    world.turn(100)
    assert world.did("end") == []
    assert "cooling down" in world.climbs()[0].climb.why


# -- what holds

def test_cooling_down_outlives_the_hub(world: World) -> None:
    hog = one_idle(world)
    world.put(cooldown="10m")
    run_until_notified(world, 1)
    hog.sm_pct = 90.0
    world.turn(5)
    world.restart(20.0)
    hog.sm_pct = 0.0
    world.turn(300)
    assert world.did("end") == []
    assert "cooling down" in world.climbs()[0].climb.why
    world.until(lambda: world.ended)


def test_a_reset_of_the_brakes_gives_no_cooldown_back(world: World) -> None:
    hog = one_idle(world)
    world.put(cooldown="10m")
    run_until_notified(world, 1)
    hog.sm_pct = 90.0
    world.turn(5)
    world.brakes.trip("breaker", "a test")
    world.brakes.reset(ADMIN, "it was a test")
    hog.sm_pct = 0.0
    world.turn(250)
    assert world.did("end") == []
    assert "cooling down" in world.climbs()[0].climb.why


def test_what_comes_and_goes_does_so_after_a_restart_too() -> None:
    disk: dict[str, object] = {}
    hub, ladder = Hub(disk, BEGIN, ladder=[{"do": "tell"}], cooldown="0s"), [{"do": "tell"}]
    for _ in range(12):
        hub.go(61, 9.0)
        hub.go(31, 0.0)
        if hub.watch.flaps.is_flapping[0]:
            break
    assert hub.watch.flaps.is_flapping[0]
    bits = int(hub.watch.flaps.bits[0])
    after = Hub(disk, hub.now + 10, ladder=ladder, cooldown="0s")
    after.go(2, 0.0)
    assert after.watch.flaps.is_flapping[0]
    assert int(after.watch.flaps.bits[0]) in (bits, bits << 1 & (2**21 - 1))
    late = Hub(disk, hub.now + 22 * 60, ladder=ladder, cooldown="0s")
    late.go(2, 0.0)
    assert not late.watch.flaps.is_flapping[0], "it was calm meanwhile, as far as anybody knows"


def test_holds_go_to_whom_they_are_of() -> None:
    disk: dict[str, object] = {}
    hub = Hub(disk, BEGIN, ladder=[{"do": "tell"}])
    hub.go(70, 9.0)
    hub.go(40, 0.0)
    until = float(hub.watch.cooldowns.until[0])
    after = Hub(disk, hub.now + 100, ladder=[{"do": "tell"}])
    after.go(1, 0.0, row=3)
    assert after.watch.cooldowns.until.tolist() == [-np.inf] * 3 + [until]
    assert after.watch.cooldowns.episodes.tolist() == [0, 0, 0, 1]
    assert not after.restart.cooldowns


# -- pure

def a_want(climb: LadderClimb, **more: object) -> ActionIntent:
    fields = {"cause": climb.cause, "source": "rule idle", "title": "Idle", "target": "n1 t 9",
              "node_id": "n1", "host": "host", "task_ids": ("t",), "owner": "ann",
              "rungs": climb.rungs, "mode": "auto", "condition_met": "yes",
              "sample_age_s": 0.5, "since": 0.0, "sentence": "idle", "acts": 5,
              "within_s": 600.0, "holds": (), "mutes": (),
              "keep": None, "condition": None, "place": "n1 t", "goes_on": True}
    return ActionIntent(**(fields | more))  # type: ignore[arg-type]


def climb_after(rungs: int, is_acting: bool = False) -> LadderClimb:
    climb, now = begin("rule idle@1", "n1 t 5", RUNGS, 0.0), 0.0
    for _ in range(rungs):
        climb, step = look(climb, SEEN, now)
        assert step is not None
        climb = settle(climb, "done", "", now)
        climb, _ = look(climb, SEEN, now + 2.0)
        now += 61.0
    if is_acting:
        climb, step = look(climb, SEEN, now)
        assert step is not None
    return climb


@pytest.mark.parametrize(("was", "state", "rung"), [
    (climb_after(0, True), "waiting", 0), (climb_after(1), "waiting", 1),
    (climb_after(1, True), "waiting", 1), (climb_after(2), "waiting", 2),
    (climb_after(2, True), "stopped", 2), (climb_after(3), "finished", 3),
    (replace(climb_after(1), state="stopped", why="protected"), "stopped", 1)])
def test_no_rung_twice_and_none_left_out(was: LadderClimb, state: str, rung: int) -> None:
    now = random.uniform(1e3, 1e6)
    climb = resumed(was, now)
    assert (climb.state, climb.rung, climb.number) == (state, rung, was.number)
    if state == "waiting":
        assert climb.due_at == now + RUNGS[rung].after_s


@pytest.mark.parametrize("change", [
    {"goes_on": False}, {"mode": "dry_run"}, {"rungs": RUNGS[:2]}])
def test_what_is_not_the_same_story_begins_anew(change: dict[str, object]) -> None:
    was = SavedLadderClimb("rule idle", "n1 t", "auto", climb_after(2))
    assert continued_climb(was, a_want(was.climb), None, 1e3) is not None
    assert continued_climb(was, a_want(was.climb, **change), None, 1e3) is None
    assert continued_climb(None, a_want(was.climb), None, 1e3) is None


def test_what_is_kept_and_for_how_long() -> None:
    advanced, fresh = climb_after(1), climb_after(0)
    saved = saved_state([(advanced, a_want(advanced), None), (fresh, a_want(fresh), None)],
                 [SavedLadderClimb("quotas", "q", "auto", advanced),
                  SavedLadderClimb("rule x", "r", "auto", advanced)], 100.0)
    assert [climb.place for climb in saved.climbs] == ["n1 t", "q"]
    assert len(restored(saved, 100.0 + GAP_MOST_S)) == 2
    for now in (101.0 + GAP_MOST_S, 90.0):
        assert restored(saved, now) == {}
    assert restored(None, 0.0) == {}
    assert restored(SavedLadderState(1.0), 2.0) == {}


def test_what_lies_broken_on_the_disk_is_nothing(world: World) -> None:
    world.state._db.execute("insert or replace into brakes values ('climbs', '{broken')")
    world.begin()
    assert world.ladders.runs._before == {}

"""Rules that act on a whole simulated fleet: what they may do within their brakes, and no more."""

import random
import secrets
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from dashboard.access.policy import Actor, Role, Scope
from dashboard.alerts.core.silence import Silence
from dashboard.alerts.views import NO_DETAIL
from dashboard.automation.brake_limits import BrakeRequest, BrakeState, fleet_most
from gpudeck.contract.actions import ActionVerification, Refusal
from gpudeck.contract.ladder import FRESH_S
from tests.unit.climbing import Busy, World, a_world, one_idle

__all__ = ["a_world"]

ADMIN = Actor("person", "ada", Role.ADMIN, Scope(("*",)), "s", 1e12)


def silence(world: World, node: str = "", target: str = "", user: str = "") -> Silence:
    entry = Silence("z" + secrets.token_hex(4), "ada", "demo day", world.clock.now,
                    world.clock.now + 3_600.0, "idle", node, target, user)
    world.silences.silences[entry.id] = entry
    return entry


def void(_: object) -> None:
    """Make a callback of an expression whose value is not looked at."""


def test_the_owner_is_told_twice_and_then_it_ends_and_nobody_else_does(world: World) -> None:
    hog, other_tasks = one_idle(world)
    world.put()
    world.until(lambda: world.ended)
    assert [record.action for record in world.orders] == ["notify", "notify", "end"]
    assert {record.task_id for record in world.orders} == {hog.task.id}
    assert world.ended == [hog]
    first, second, end = (record.requested_at for record in world.orders)
    assert second - first >= 60.0
    assert end - second >= 60.0
    assert all(record.asker.kind == "rule" and record.asker.name.startswith("idle@")
               for record in world.orders)
    assert "gpudeck will end it" in world.orders[0].params.text
    assert len(world.notices) == 2
    world.turn(60)
    assert world.climbs() == []
    assert len(world.orders) == 3
    assert not any(one.ended_at for one in other_tasks)


def test_a_dry_run_tells_the_same_story_and_touches_nobody(world: World) -> None:
    hog, _ = one_idle(world)
    world.put("dry_run")
    world.until(lambda: world.climbs() and world.climbs()[0].climb.state == "finished")
    assert (world.orders, world.notices, world.ended) == ([], [], [])
    assert [step.do for step in world.climbs()[0].climb.done] == ["tell", "tell", "end"]
    entries = world.recorded("ladder")
    assert [entry["action"] for entry in reversed(entries)] == [
        "would tell", "would tell", "would end"]
    assert all(entry["task_id"] == hog.task.id for entry in entries)
    # What was only rehearsed was not told: from here on, from the first rung.
    world.put("auto")
    world.until(lambda: world.ended)
    assert [record.action for record in world.orders] == ["notify", "notify", "end"]


def test_observe_does_nothing_at_all(world: World) -> None:
    one_idle(world)
    world.put("observe", expires="")
    world.turn(200)
    assert (world.orders, world.notices, world.climbs()) == ([], [], [])
    assert len(world.desk.alerts.firing()) == 1


def test_confirm_waits_for_a_person_and_tells_meanwhile(world: World) -> None:
    hog, _ = one_idle(world)
    world.put("confirm")
    world.turn(300)
    assert [record.action for record in world.orders] == ["notify", "notify"]
    [run] = world.climbs()
    assert "waiting for a person" in run.climb.why
    confirmation = world.ladders.waiting(run.intent.alert_id)
    assert not isinstance(confirmation, str)
    waiting, step, _ = confirmation
    assert (step.do, waiting.intent.task_ids) == ("end", (hog.task.id,))
    silence(world)
    world.turn()
    assert "silenced by ada" in str(world.ladders.waiting(run.intent.alert_id))


def test_all_agents_at_nothing_at_once_is_a_storm_and_nobody_dies(world: World) -> None:
    world.add(40, 2, sm_pct=80.0)
    world.put()
    world.turn(40)
    for one in world.tasks:
        one.sm_pct = 0.0
    world.turn(200)
    assert world.orders == []
    assert "idle" in next(iter(world.brakes.state.storms))
    assert all("wrong data" in run.climb.why for run in world.climbs())
    assert len(world.climbs()) == 80
    assert any(entry["action"] == "storm" for entry in world.recorded("brake"))


def test_a_silence_holds_what_is_due_and_calls_back_what_is_under_way(world: World) -> None:
    hog, _ = one_idle(world)
    world.put()
    world.until(lambda: len(world.did("notify")) == 2)
    active = silence(world, node=hog.node_id)
    world.turn(300)
    assert world.did() == []
    assert "silenced by ada" in world.climbs()[0].climb.why
    world.silences.silences[active.id] = replace(active, ended_at=world.clock.now)
    world.after_s = 30.0
    [order] = world.until(world.did)
    silence(world, target=hog.task.id)
    world.turn()
    assert [command_id for command_id, _ in world.recalls] == [order.id]
    assert "silenced" in world.recalls[0][1]


def test_a_silence_that_comes_while_the_node_is_asked_counts(world: World) -> None:
    hog, _ = one_idle(world)
    world.put()
    world.until(lambda: len(world.did("notify")) == 2)
    world.turn(30)
    world.while_looking = lambda: void(silence(world, user="bob"))
    world.turn(120)
    assert world.did() == []
    assert hog.ended_at is None


def test_what_clears_under_way_is_called_back_and_begins_at_the_first_rung(world: World) -> None:
    hog, _ = one_idle(world)
    world.put(keep_firing_for="10m")
    world.after_s = 20.0
    world.outcome = lambda record: replace(
        record, state="done" if record.action == "notify" else "refused",
        refusal=None if record.action == "notify" else Refusal("hold", "called back"))
    world.until(world.did)
    hog.sm_pct = 90.0
    world.turn(3)
    assert "not met any more" in world.recalls[0][1]
    world.turn(30)
    [run] = world.climbs()
    assert run.climb.state == "resting"
    hog.sm_pct = 0.0
    world.turn(5)
    assert world.orders[-1].action == "notify"


def test_whoever_is_kept_is_kept(world: World) -> None:
    hog, _ = one_idle(world)
    world.put()
    class Keep:
        until, because, by = world.clock.now + 500.0, "the paper", "bob"
    world.keeps[hog.task.id] = Keep
    world.turn(499)
    assert [record.action for record in world.orders] == ["notify", "notify"]
    assert "bob asked that it be kept" in world.climbs()[0].climb.why
    world.until(lambda: world.ended, 30)


@pytest.mark.parametrize("code", ["managed", "rules"])
def test_a_refusal_that_lasts_stops_the_climb_in_its_own_words(world: World, code: str) -> None:
    hog, _ = one_idle(world)
    why = f"it belongs to slurm job {random.randint(1, 99)}"
    hog.refusal = Refusal(code, why)  # type: ignore[arg-type]
    world.put()
    world.turn(220)
    [run] = world.climbs()
    assert (run.climb.state, run.climb.why) == ("stopped", why)
    assert world.did() == []
    assert world.brakes.state.spent == ()
    assert world.recorded("ladder")[0]["sentence"] == why


def test_a_sample_that_is_old_is_no_reason(world: World) -> None:
    hog, _ = one_idle(world)
    world.put()
    world.until(lambda: len(world.did("notify")) == 2)
    tell, world._tell = world._tell, lambda: None  # type: ignore[method-assign]
    world.turn(int(FRESH_S) + 90)
    assert world.did() == []
    world._tell = tell  # type: ignore[method-assign]
    world.until(lambda: world.ended, 200)
    assert world.ended == [hog]


@pytest.mark.parametrize("outcome", ["unknown", "bystander"])
def test_an_outcome_that_frightens_opens_the_breaker(world: World, outcome: str) -> None:
    one_idle(world)
    world.put()
    world.outcome = lambda record: replace(
        record, state="unknown" if outcome == "unknown" else "not_effective",
        verified=None if outcome == "unknown" else ActionVerification(True, True, False,
                                                                      vanished=("other",))
    ) if record.action == "end" else replace(record, state="done")
    world.until(lambda: world.brakes.state.breaker)
    assert world.climbs()[0].climb.state == "stopped"
    for one in random.sample(world.tasks, 3):
        one.sm_pct = 0.0
    acts = len(world.orders)
    world.turn(300)
    assert len(world.orders) == acts, "not even words, while it is open"
    # A start of the hub gives nothing back.
    world.begin()
    assert world.brakes.state.breaker is not None
    assert world.brakes.state.spent
    world.turn(300)
    assert len(world.orders) == acts


def test_one_at_a_time_on_a_node(world: World) -> None:
    world.add(100, 2, sm_pct=80.0)
    node_id = world.tasks[0].node_id
    for one in world.tasks:
        one.sm_pct = 0.0 if one.node_id == node_id else 80.0
    world.put()
    world.after_s = 20.0
    world.until(lambda: len(world.did()) == 2)
    first, second = world.did()
    assert second.requested_at >= first.requested_at + world.after_s + 1.0


def test_a_reset_drops_a_backlog_of_a_thousand(world: World) -> None:
    world.add(50, 20, sm_pct=80.0)
    world.put()
    world.turn(5)
    world.brakes.trip("breaker", "a test")
    for one in world.tasks:
        one.sm_pct = 0.0
    world.until(lambda: len(world.climbs()) == 1_000, 60)
    world.turn(5)
    world.brakes.reset(ADMIN, "it was a test")
    assert world.climbs() == []
    world.turn(5)
    assert (world.climbs(), world.orders) == ([], [])
    assert world.desk.alerts.firing() == [], "they begin to count from nothing"


def test_fifty_harmful_rules_stay_within_the_fleets_bound(world: World) -> None:
    """Rules about four targets each, which is no storm; together they want two hundred."""
    protected = []
    for number in range(50):
        world.add(2, 2, f"user{number}")
    world.put_all({
        "id": f"harm-{number}", "of": "task", "scope": f"user:user{number}", "signal": "sm_pct",
        "fire": "<= 1", "for": "30s", "budget": {"acts": 100},
        "ladder": [{"do": "tell"}, {"do": "end", "after": "60s"}]} for number in range(50))
    for one in random.sample(world.tasks, 40):
        one.refusal = Refusal("protected", "it is sshd")
        protected.append(one)
    most = fleet_most(world.node_count())
    world.turn(103)
    assert 1 <= len(world.did()) <= most == 5
    assert world.brakes.state.breaker is not None
    assert world.brakes.state.breaker.brake == "fleet"
    assert not any(one.ended_at for one in protected)
    acts = len(world.orders)
    world.turn(10)
    assert len(world.orders) == acts
    assert all(run.climb.why for run in world.climbs() if run.climb.state != "finished")


def test_a_restart_within_ten_minutes_gives_no_fresh_budget(world: World) -> None:
    hog, other_tasks = one_idle(world, nodes=20)
    world.put()
    world.until(lambda: world.ended)
    world.begin()
    other_tasks[0].sm_pct = 0.0
    world.turn(300)
    assert world.ended == [hog]
    assert world.brakes.state.breaker is not None


def test_a_clock_that_is_set_forward_gives_no_budget(world: World) -> None:
    hog, other_tasks = one_idle(world)
    world.put()
    world.until(lambda: world.ended)
    world.clock.now += 7_200.0
    other_tasks[0].sm_pct = 0.0
    world.turn(200)
    assert world.ended == [hog]
    assert world.brakes.state.breaker is not None


def test_notices_are_one_per_rung_however_often_the_node_is_tried(world: World) -> None:
    one_idle(world)
    world.put()
    world.outcome = lambda record: replace(record, state="expired")
    world.turn(200)
    assert len(world.did("notify")) >= 2
    assert len(world.notices) == 1


def a_random_rule(number: int) -> dict[str, object]:
    ladder = [{"do": "tell", "after": f"{random.randint(0, 20)}s"}]
    if random.random() < 0.4:
        ladder.append({"do": "pause", "after": f"{random.randint(0, 60)}s"})
    ladder.append({"do": "end", "after": f"{random.randint(60, 90)}s"})
    signal, fire = random.choice((
        ("sm_pct", f"<= {random.randint(0, 100)}"), ("sm_pct", f">= {random.randint(0, 100)}"),
        ("mem_used_bytes", f">= {random.randint(0, 10)}GiB"), ("age_s", "> 0"),
        ("avg(sm_pct, 20s)", f"< {random.randint(1, 100)}"), ("gpus", ">= 0"),
        ("sm_pct + 0 * avg(sm_pct, 10s)", f"<= {random.randint(0, 100)}")))
    scope = random.choice(("*", f"user:user{random.randint(0, 9)}", "util<50", "mem<99%"))
    return {"id": f"random-{number}", "of": random.choice(("task", "job")), "signal": signal,
            "fire": fire, "clear": "", "scope": scope, "ladder": ladder, "for": "30s",
            "keep_firing_for": random.choice(("0s", "5s")),
            "budget": {"acts": random.randint(1, 100), "within": "10m"}}


@pytest.mark.parametrize("mode", ["confirm", "dry_run", "observe"])
def test_whose_rule_may_not_act_any_more_is_called_back(world: World, mode: str) -> None:
    one_idle(world)
    world.put()
    world.until(lambda: len(world.did("notify")) == 2)
    world.after_s = 20.0
    [order] = world.until(world.did)
    world.put(mode)
    world.turn(7)
    assert {command_id for command_id, _ in world.recalls} == {order.id}
    assert len(world.recalls) >= 3, "until its outcome is known: one of them may be lost"
    world.turn(60)
    assert len(world.recalls) <= 11


def test_a_hub_that_was_superseded_tells_nobody(world: World) -> None:
    one_idle(world)
    world.fence = Refusal("fence", "another hub has taken over")
    world.put()
    world.turn(120)
    assert (world.orders, world.notices) == ([], [])
    [run] = world.climbs()
    assert {step.sentence for step in run.climb.done} == {"another hub has taken over"}


@dataclass
class Tally:
    rules: int = 0
    notifications: int = 0
    ends: int = 0
    breakers: int = 0
    storms: int = 0
    seconds: int = 0


def try_random_rules(world: World, tally: Tally, count: int, seconds: int) -> None:
    """Try rules on a fleet that is there; what was ended is begun again first."""
    world.tasks = [one for one in world.tasks if one.ended_at is None]
    on = Counter(one.node_id for one in world.tasks)
    for at, node_id in enumerate(world.fleet.nodes):
        for gpu in range(on[node_id], 2):
            one = world.start(node_id, gpu, f"user{at // 2}", float(random.randint(0, 100)))
            one.refusal = Refusal("protected", "it is sshd") if random.random() < 0.25 else None
    world.brakes.state = BrakeState()
    first = len(world.orders)
    world.put_all(a_random_rule(tally.rules + number) for number in range(count))
    assert len(world.desk.ready) == count, "none of them is refused"
    for _ in range(seconds):
        if random.random() < 0.3:
            random.choice(world.tasks).sm_pct = random.choice((0.0, 50.0, 100.0))
        world.turn()
        in_flight = Counter(record.node_id for _, record in world._open
                            if record.action != "notify")
        assert max(in_flight.values(), default=0) <= 1
    acts = [record for record in world.orders[first:] if record.action != "notify"]
    moments = sorted(record.requested_at for record in acts)
    assert all(later - one >= 1.0 for one, later in pairwise(moments))
    assert len(acts) <= fleet_most(world.node_count())  # all of it is within ten minutes
    budgets = {rule_id: rule.budget.acts for rule_id, (_, rule) in world.active_rules.rules.items()}
    by_rule = Counter(record.asker.name.partition("@")[0] for record in acts)
    assert all(many <= budgets[rule_id] for rule_id, many in by_rule.items())
    protected_ids = {one.task.id for one in world.tasks if one.refusal is not None}
    assert not protected_ids & {record.task_id for record in acts}
    assert_explained(world)
    tally.rules += count
    tally.notifications += len(world.orders) - first - len(acts)
    tally.ends += len(acts)
    tally.breakers += world.brakes.state.breaker is not None
    tally.storms += len(world.brakes.state.storms)
    tally.seconds += seconds


def assert_explained(world: World) -> None:
    """Assert that each ladder that could go on and does not says why."""
    now = world.ladders.clock.now()
    for run in world.climbs():
        is_due = run.climb.state == "waiting" and now > run.climb.due_at + 1.0
        assert run.climb.why or not (is_due or run.climb.state in ("acting", "resting",
                                                                     "stopped"))


def a_small_fleet_of_many(world: World) -> None:
    """Add nodes for as many tasks as ten thousand rules can look at; they count as forty."""
    world.add(8, 0)
    world.node_count = lambda: 40  # type: ignore[method-assign]


def test_random_rules_stay_within_the_bounds(world: World) -> None:
    a_small_fleet_of_many(world)
    try_random_rules(world, Tally(), 40, 130)


@pytest.mark.soak
def test_ten_thousand_random_rules_stay_within_the_bounds(world: World) -> None:
    a_small_fleet_of_many(world)
    tally = Tally()
    while tally.rules < 10_000:
        try_random_rules(world, tally, 200, 130)
        world.orders.clear()
        world.known.clear()
    print(f"{tally}")
    assert tally.ends > 0
    assert tally.breakers > 0
    assert tally.storms > 0


def test_an_act_that_cannot_be_counted_does_not_happen(world: World) -> None:
    one_idle(world)
    world.put()
    world.until(lambda: len(world.did("notify")) == 2)
    world.state._db.execute("drop table brakes")
    world.turn(120)
    assert world.did() == []
    assert world.brakes.state.breaker is not None


def test_brakes_that_cannot_be_read_are_on(world: World) -> None:
    world.state._db.execute("insert or replace into brakes values ('fleet', '{broken')")
    world.begin()
    assert world.brakes.state.breaker is not None
    request = BrakeRequest("rule idle", "n1", 5, 600.0, 10, frozenset())
    assert isinstance(world.brakes.reserve(request), str)


def test_a_rule_that_stands_above_holds_and_both_stay_visible(world: World) -> None:
    hog, _ = one_idle(world)
    world.put(id="node-hot", title="Node is sick", of="node", signal="tasks", fire=">= 1",
              scope=f"node:{hog.node_id}.example", ladder=[], mode="observe", expires="",
              **{"for": "0s"})
    world.put(inhibited_by=["node-hot"])
    world.turn(250)
    assert [record.action for record in world.orders] == ["notify", "notify"]
    [run] = world.climbs()
    assert "inhibited by 'Node is sick'" in run.climb.why
    assert len(world.desk.alerts.firing()) == 2
    detail = world.rules.details_of()[run.intent.alert_id]
    assert any("inhibited" in why for why in detail.holds)
    assert detail.inhibited_by == [
        alert.id for alert in world.desk.alerts.firing() if alert.rule_id == "node-hot"]


def start_launch(world: World) -> list[Busy]:
    """Return a rank on each of two nodes; somebody else's task is on a third."""
    ranks = world.add(2, 1, "ann", sm_pct=80.0)
    for one in ranks:
        one.task = replace(one.task, launch="torchrun 10.0.0.1:29500/run")
    world.add(1, 1, "bob", sm_pct=80.0)
    return ranks


@pytest.mark.parametrize("other", ["gpu", "node"])
def test_what_is_wrong_at_one_rank_explains_the_job_on_all_its_nodes(
    world: World, other: Any
) -> None:
    _, rank = start_launch(world)
    quiet: Any = {"ladder": [], "mode": "observe", "expires": "", "for": "0s"}
    world.put(**quiet, id="cause", title="A part is sick", of=other,
              signal="util_pct" if other == "gpu" else "gpus_lost", fire=">= 0",
              scope=f"node:{rank.node_id}.example" + " & user:ann" * (other == "gpu"))
    world.put(**quiet, id="jobs", title="Job is slow", of="job", signal="sm_pct", fire=">= 0",
              inhibited_by=["cause"])
    world.turn(3)
    details = {alert.target.users: world.rules.details_of(alert)[alert.id]
               for alert in world.desk.alerts.firing() if alert.rule_id == "jobs"}
    assert details[("bob",)] == NO_DETAIL
    [why] = details[("ann",)].holds
    assert why.startswith("inhibited by 'A part is sick'")


def test_a_stuck_job_explains_its_gpus_on_all_its_nodes(world: World) -> None:
    start_launch(world)
    quiet: Any = {"ladder": [], "mode": "observe", "expires": "", "for": "0s"}
    world.put(**quiet, id="cause", title="Job is stuck", of="job", signal="sm_pct", fire=">= 0",
              scope="user:ann")
    world.put(**quiet, id="gpus", title="No progress", of="gpu", signal="util_pct", fire=">= 0",
              inhibited_by=["cause"])
    world.turn(3)
    explained = {alert.target.host: bool(world.rules.details_of(alert)[alert.id].inhibited_by)
                 for alert in world.desk.alerts.firing()
                 if alert.rule_id == "gpus" and alert.target.key.endswith("-0")}
    assert explained == {"n0000.example": True, "n0001.example": True, "n0002.example": False}

"""The rung `limit`: between telling and pausing, and taken back when what it was for is over."""

from typing import Any

import pytest
from msgspec.structs import replace

from dashboard.alerts.core.rule import InvalidRuleError, check, read
from dashboard.automation.ladder_state import RETURN_WITHIN_S
from dashboard.automation.limit_returns import LimitReturns, is_due
from gpudeck.contract.limits import LimitRelease, LimitsNow, TimedLimit
from tests.unit.climbing import World, a_world, one_idle

__all__ = ["a_world"]
LADDER = [{"do": "tell"}, {"do": "limit", "after": "60s"}, {"do": "end", "after": "1h"}]


def limit_of(record: Any, gpu: str = "GPU-1") -> TimedLimit:
    return TimedLimit(record.id, gpu, "power", (210.0,), (300.0,), record.asker.name, "hot", 0.0,
                      9e9, "boot", 9e9, "in_force")


def limit_one(world: World) -> tuple[Any, Any, LimitReturns]:
    hog, _ = one_idle(world)
    world.put(ladder=LADDER)
    world.until(lambda: world.did("limit"))
    world.turn(4)
    [record] = world.did("limit")
    returns = LimitReturns(world.fleet, world.ladders.runs, world,  # type: ignore[arg-type]
                           world.clock.mono - RETURN_WITHIN_S)
    world.fleet.nodes[hog.node_id].limits = LimitsNow(0.0, leases=(limit_of(record),))
    return hog, record, returns


def test_it_comes_after_telling_and_goes_back_when_the_alert_has_cleared(world: World) -> None:
    hog, record, returns = limit_one(world)
    assert [order.action for order in world.orders if order.node_id == hog.node_id] == [
        "notify", "limit"]
    returns.step(world.clock.now, world.clock.mono)
    assert world.did("release_limit") == [], "what it is for still goes on"
    hog.sm_pct = 90.0
    world.turn(60)
    returns.step(world.clock.now, world.clock.mono)
    [back] = world.did("release_limit")
    assert (back.asker, back.node_id) == (record.asker, hog.node_id), "by whom it was set"
    assert back.params.setting == LimitRelease("GPU-1", "power")
    returns.step(world.clock.now, world.clock.mono)
    assert len(world.did("release_limit")) == 1, "not again at once"
    assert world.did("end") == []


def test_it_goes_back_when_the_task_has_ended_or_the_rule_may_not_act(world: World) -> None:
    hog, record, returns = limit_one(world)
    world.put("dry_run", ladder=LADDER)
    world.turn(2)
    returns.step(world.clock.now, world.clock.mono)
    assert len(world.did("release_limit")) == 1
    assert not is_due(world.known[record.id], {(record.asker.name, hog.task.id)})
    assert is_due(world.known[record.id], set())


def test_what_no_ladder_has_limited_is_left_alone(world: World) -> None:
    hog, record, returns = limit_one(world)
    hog.sm_pct = 90.0
    world.turn(60)
    mine, record = limit_of(record), world.known[record.id]
    assert is_due(record, set())
    by_ada = replace(record, id="c-ada", asker=replace(record.asker, kind="person", name="a@b"))
    cap = replace(record, id="c-cap", action="set_power_cap")
    world.known |= {entry.id: entry for entry in (by_ada, cap)}
    world.fleet.nodes[hog.node_id].limits = LimitsNow(0.0, leases=(
        replace(mine, lease_id="c-ada", by="a@b"), replace(mine, lease_id="c-cap"),
        replace(mine, lease_id="c-nobody's"), replace(mine, by="ada")))
    returns.step(world.clock.now, world.clock.mono)
    assert world.did("release_limit") == []


def test_after_a_restart_it_is_waited_for_those_who_come_back(world: World) -> None:
    hog, _, returns = limit_one(world)
    hog.sm_pct = 90.0
    world.turn(60)
    late = LimitReturns(world.fleet, world.ladders.runs, world,  # type: ignore[arg-type]
                        world.clock.mono)
    late.step(world.clock.now, world.clock.mono)
    assert world.did("release_limit") == []
    returns.step(world.clock.now, world.clock.mono)
    assert len(world.did("release_limit")) == 1


@pytest.mark.parametrize(("ladder", "why"), [
    ([{"do": "limit"}], "tell the owner first"),
    ([{"do": "tell"}, {"do": "pause"}, {"do": "limit"}], "from mild to severe"),
])
def test_where_it_may_stand(ladder: list[dict[str, str]], why: str) -> None:
    base = {"id": "hot", "title": "t", "of": "task", "scope": "*", "signal": "sm_pct",
            "fire": "> 90", "for": "1m"}
    with pytest.raises(InvalidRuleError, match=why):
        check(read(base | {"ladder": ladder}))
    assert check(read(base | {"ladder": LADDER})).steps[1] == ("limit", 60)
    with pytest.raises(InvalidRuleError, match="applies to tasks and jobs"):
        check(read(base | {"of": "gpu", "signal": "util_pct", "ladder": LADDER}))

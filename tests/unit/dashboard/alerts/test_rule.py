"""A hub that watches itself: rules that fail, looks that come late, brakes, and an audit that takes
nothing; and what nodes say of limits and of who was given a GPU."""

import random

import numpy as np
import pytest

from dashboard.alerts.core.rule_signal import SignalTerm
from dashboard.alerts.core.rule_tracker import RuleTracker
from gpudeck.contract.limits import LeaseState, LimitsNow, TimedLimit
from gpudeck.contract.pool_link import OutsideUse, PoolReport, ReportedLease
from gpudeck.contract.wire import Task, Tasks, Use
from gpudeck.pool.core.claims import Claim
from tests.unit import fleets
from tests.unit.climbing import World as Acting
from tests.unit.climbing import a_world
from tests.unit.dashboard.alerts.test_targets import World, of, task

__all__ = ["a_world"]


def of_hub(world: Acting, rule_id: str, signal: str, fire: str) -> None:
    world.put("observe", id=rule_id, of="fleet", scope="*", signal=signal, fire=fire, ladder=[],
              expires="", **{"for": "0s"})


def firing(world: Acting) -> dict[str, float | None]:
    return {alert.rule_id: alert.value for alert in world.desk.alerts.firing()}


def test_a_rule_that_fails_is_an_alert_while_the_others_go_on(
    world: Acting, monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_hub(world, "meta", "rules_failing", ">= 1")
    world.put("observe", id="bad", ladder=[], expires="")
    world.add(1, 1)
    world.turn(5)
    assert firing(world) == {}
    usual = RuleTracker.look

    def look(self: RuleTracker, *args: object) -> object:
        if self.ready.rule.id == "bad":
            raise ZeroDivisionError("no such thing")
        return usual(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(RuleTracker, "look", look)
    world.turn(3)
    assert firing(world) == {}, "once is nothing, three times are"
    world.turn(1)
    assert firing(world) == {"meta": 1.0}
    assert "no such thing" in world.desk.failing()["bad"]
    monkeypatch.setattr(RuleTracker, "look", usual)
    world.turn(2)
    assert firing(world) == {}


def test_a_rule_that_is_not_well_written_any_more_is_an_alert(world: Acting) -> None:
    """A rule may be left from an older version, whose words are not valid now."""
    of_hub(world, "meta", "rules_failing", ">= 1")
    world.put("observe", id="old", ladder=[], expires="")
    world.state._db.execute(
        "update rules set body = replace(body, 'sm_pct', 'sn_pct') where id = 'old'")
    world.active_rules.reload()
    world.turn(2)
    assert firing(world) == {"meta": 1.0}
    assert "edit it" in world.desk.failing()["old"]


def test_a_look_that_comes_late_is_an_alert(world: Acting) -> None:
    of_hub(world, "late", "blind_s", "> 12")
    world.turn(5)
    late_s = random.uniform(13.0, 60.0)
    world.clock.now += late_s
    world.clock.mono += late_s
    world.turn(1)
    assert firing(world)["late"] == pytest.approx(late_s)
    world.turn(60)
    assert firing(world) == {}


def test_looks_that_always_come_a_bit_late_are_an_alert(world: Acting) -> None:
    of_hub(world, "late", "blind_s", "> 12")
    for _ in range(40):
        world.clock.now += 0.4
        world.clock.mono += 0.4
        world.turn(1)
    assert 12.0 < (firing(world)["late"] or 0.0) < 13.0, "as soon as it is so"


def test_a_brake_that_holds_is_an_alert(world: Acting) -> None:
    of_hub(world, "held", "brakes_on", ">= 1")
    world.turn(2)
    world.brakes.trip("breaker", "a test")
    world.turn(1)
    assert firing(world) == {"held": 1.0}


def test_an_audit_that_takes_nothing_is_an_alert(world: Acting) -> None:
    of_hub(world, "mute", "is_unrecorded", "= 1")
    world.turn(2)
    world.state._db.execute("pragma query_only = on")
    world.audit.note("test", {"action": "x", "outcome": "done"})
    world.turn(1)
    assert firing(world) == {"mute": 1.0}
    world.state._db.execute("pragma query_only = off")
    world.turn(2)
    assert firing(world) == {}


class BrokenHistory:
    """A history that cannot be read."""

    def minute(self, *_: object) -> object:
        raise OSError("no such minute")


def test_a_rule_whose_minute_history_does_not_give_is_an_alert(world: Acting) -> None:
    world.history = BrokenHistory()
    world.kill()
    of_hub(world, "meta", "rules_failing", ">= 1")
    world.put("observe", id="idle-gpu", of="gpu", signal="util_pct", fire="<= 1", ladder=[],
              expires="", **{"for": "10m"})
    world.add(1, 1)
    world.turn(130)
    assert firing(world) == {"meta": 1.0}
    assert "history" in world.desk.failing()["idle-gpu"]


# -- limits of GPUs

def lease(gpu: int, what: str, values: tuple[float, ...], state: LeaseState,
          reading: float | None = None) -> TimedLimit:
    return TimedLimit("c", f"GPU-n0-{gpu}", what, values, (), "ada", "", 0.0, 1e12, "boot",  # type: ignore[arg-type]
                      1e12,
                      state, reading)


@pytest.mark.parametrize(("state", "reading", "drift"), [
    ("in_force", 300.0, 0.0), ("drifted", 700.0, 400.0), ("not_in_force", 700.0, 400.0),
    ("drifted", None, None), ("unknown", 700.0, None), ("beginning", None, None)])
def test_how_far_a_cap_is_from_what_was_set(state: LeaseState, reading: float | None,
                                            drift: float | None) -> None:
    world = World()
    node = world.fleet.nodes["n0"]
    node.limits = LimitsNow(0.0, leases=(lease(1, "power", (300.0,), state, reading),))
    drifts = of(world.next_look()["gpu"], "power_cap_drift_w")
    assert drifts["GPU-n0-0"] == 0.0, "nothing was set there, so nothing has drifted"
    assert np.isnan(drifts["GPU-n1-0"]), "its node has not said"
    assert drifts["GPU-n0-1"] == drift if drift is not None else np.isnan(drifts["GPU-n0-1"])


def test_a_lock_is_as_its_node_judges_it() -> None:
    world = World()
    world.fleet.nodes["n0"].limits = LimitsNow(0.0, leases=(
        lease(0, "clocks", (500.0, 900.0), "drifted", 1_900.0),
        lease(1, "clocks", (500.0, 900.0), "unknown", 210.0)))
    scene = world.next_look()["gpu"]
    locks = of(scene, "clock_lock_drifted")
    assert locks["GPU-n0-0"] == 1.0
    assert np.isnan(locks["GPU-n0-1"]), "at rest nothing is proved"
    world.fleet.nodes["n0"].limits = LimitsNow(0.0)
    assert of(world.next_look()["gpu"], "clock_lock_drifted")["GPU-n0-0"] == 0.0, "it was let go of"


def test_what_a_silent_node_said_of_its_limits_is_old() -> None:
    world = World()
    for node in world.fleet.nodes.values():
        node.limits = LimitsNow(0.0)
    names = frozenset(("power_cap_drift_w",))
    for _ in range(20):
        scene = world.next_look(silent=("n1",))["gpu"]
    ages = world.now - scene.sampled_at(names)
    assert ages.tolist() == [0.0, 0.0, 20.0, 20.0]


# -- who was given a GPU

UNIT, SLURM, POD = "unit train.service", "slurm job 12", "pod ml/train"


@pytest.mark.parametrize(("one", "beside", "is_foreign"), [
    (task("ann"), None, 0.0), (task("ann"), task("bob", manager=SLURM), 1.0),
    (task("ann"), task("bob", manager=POD), 1.0), (task(None), None, 1.0),
    (task("ann", manager=SLURM), task("bob", manager=SLURM), 0.0),
    (task("root", manager=UNIT), task("bob", manager=SLURM), 0.0),
    (task("ann", manager="container 3fa"), task("bob", manager=SLURM), 1.0),
    (task(None, manager=POD), None, 0.0), (task("ann", pod="made up"), task("b", manager=POD), 1.0),
    (task("root", kind="mps_server"), task("bob", manager=SLURM), 0.0)])
def test_who_is_on_a_gpu_that_nobody_gave_them(one: Task, beside: Task | None, is_foreign: float
                                               ) -> None:
    world = World()
    world.on["n0"] = [(one, 0, 1e9, 1.0)]
    if beside is not None:
        world.on["n0"].append((beside, 1, 1e9, 1.0))
    free = task("eve")
    world.on["n1"] = [(free, 0, 1e9, 1.0)]
    foreign = of(world.next_look()["task"], "is_foreign")
    assert foreign[one.id] == is_foreign
    assert foreign[free.id] == 0.0, "its node is not given out by anybody"


def test_between_two_jobs_a_node_is_given_out_all_the_same() -> None:
    world, stray = World(), task("ann")
    world.on["n0"] = [(stray, 0, 1e9, 1.0), (task("bob", manager=SLURM), 1, 1e9, 1.0)]
    world.next_look()
    world.on["n0"] = [(stray, 0, 1e9, 1.0)]
    for _ in range(3):
        assert of(world.next_look()["task"], "is_foreign") == {stray.id: 1.0}


def test_a_task_that_is_not_described_is_not_judged() -> None:
    world = World()
    node = world.fleet.nodes["n0"]
    world.fleet.frame(node, fleets.frame(
        [{}, {}], 1, world.now, tasks=Tasks(True, (), (Use("who", 0, 1e9, 1.0),))),
        world.now, world.mono)
    scene = world.look()["task"]
    assert np.isnan(scene.numbers(SignalTerm("last", "is_foreign")).values).tolist() == [True]


# -- leases


def reported_lease(gpu: str, *tasks: Task, until: float = 1e12) -> ReportedLease:
    claim = Claim(id=f"l{gpu}", owner="ann", gpus=1, submitted_at=0.0)
    return ReportedLease(claim, (gpu,), "active", 0.0, until, 0.0,
                         tuple(one.id for one in tasks))


def test_who_is_outside_of_a_lease_is_as_the_node_says() -> None:
    world = World()
    own, stray, free, elsewhere = task("ann"), task("bob"), task("cid"), task("dan")
    world.on["n0"] = [(own, 0, 1e9, 1.0), (stray, 0, 1e9, 1.0), (stray, 1, 1e9, 1.0),
                      (free, 1, 1e9, 1.0)]
    world.on["n1"] = [(elsewhere, 0, 1e9, 1.0)]
    world.fleet.take_pool(world.fleet.nodes["n0"], PoolReport(
        (), (), (reported_lease("GPU-n0-0", own),), outside=(
            OutsideUse("GPU-n0-0", stray.id, 7, "bob"), OutsideUse("GPU-n0-1", free.id, 8, "cid"),
            OutsideUse("GPU-n0-0", elsewhere.id, 9, "dan"))))
    flags = of(world.next_look()["task"], "is_outside_lease")
    assert {one.user: flags[one.id] for one in (own, stray, free)} == {
        "ann": 0.0, "bob": 1.0, "cid": 0.0}, "what nobody leases is anybody's"
    assert np.isnan(flags[elsewhere.id]), "a node speaks of its own tasks, and that one leases none"


def test_how_long_a_lease_is_overdue_by_the_clock_of_its_node() -> None:
    world = World()
    late, in_time = task("ann"), task("bob")
    world.on["n0"] = [(late, 0, 1e9, 1.0), (in_time, 1, 1e9, 1.0)]
    node = world.fleet.nodes["n0"]
    node.clock_offset_s = 50.0
    until = world.now + 1.0 - random.randint(100, 900)
    world.fleet.take_pool(node, PoolReport((), (), (reported_lease("GPU-n0-0", late, until=until),
                                                    reported_lease("GPU-n0-1", in_time))))
    scene = world.next_look()["task"]
    overdue_s = of(scene, "lease_overdue_s")
    assert (overdue_s[late.id], overdue_s[in_time.id]) == (world.now + 50.0 - until, 0.0)


def test_an_agent_that_comes_back_without_a_pool_says_nothing_of_leases() -> None:
    world = World()
    node = world.fleet.nodes["n0"]
    world.fleet.take_pool(node, PoolReport((), (), ()))
    world.fleet.hello(node.hello, world.now, world.mono)
    assert node.pool is None

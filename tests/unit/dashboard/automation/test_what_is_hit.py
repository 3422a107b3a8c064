"""Targets of a rule's action: what it would hit, and what it is never done to."""

import pytest
from msgspec.structs import replace

from dashboard.automation.intents import ActionIntent, preview_flaw
from gpudeck.contract import rungs
from gpudeck.contract.actions import Refusal
from gpudeck.contract.ladder import LadderRung
from gpudeck.contract.wire import Beat
from tests.unit.climbing import World, a_world, one_idle, shown

__all__ = ["a_world"]


@pytest.mark.parametrize("trouble", ["gpu", "driver", "node"])
def test_below_what_is_lost_nothing_is_done(world: World, trouble: str) -> None:
    hog, _ = one_idle(world)
    world.put()
    world.until(lambda: len(world.did("notify")) == 2)
    world.turn(55)
    node = world.fleet.nodes[hog.node_id]
    match trouble:
        case "gpu":
            world.lost.add(hog.node_id)
        case "driver":
            node.take_beat(Beat("no_driver", 0.5, 0, 0), world.clock.mono)
        case "node":
            node.connected = False
    world.turn(60)
    assert world.did() == []
    assert hog.ended_at is None


@pytest.mark.parametrize("mode", ["auto", "dry_run"])
@pytest.mark.parametrize("when_refused", ["stop", "skip"])
def test_a_rung_that_is_refused_ends_the_ladder_or_is_skipped(world: World, mode: str,
                                                              when_refused: str) -> None:
    hog, _ = one_idle(world)
    hog.refusal = Refusal("multi_process", "it is not one tree")
    world.put(mode, when_refused=when_refused, ladder=[
        {"do": "tell"}, {"do": "pause", "after": "60s"}, {"do": "end", "after": "90s"}])
    climb = world.until(lambda: next((run.climb for run in world.climbs() if any(
        step.do == "pause" and step.outcome for step in run.climb.done)), None))
    assert climb.done[-1].outcome == "refused"
    hog.refusal = None
    world.turn(80)
    assert world.did() == [], "not before its time"
    world.turn(60)
    run = next((run for run in world.climbs() if run.intent.target == climb.target), None)
    if when_refused == "stop":
        assert run is not None
        assert (run.climb.state, world.did()) == ("stopped", [])
    elif mode == "dry_run":
        assert run is not None
        assert [(step.do, step.outcome) for step in run.climb.done] == [
            ("tell", "done"), ("pause", "refused"), ("end", "done")]
        assert world.did() == []
    else:
        assert [record.action for record in world.did()] == ["end"]
        assert hog.ended_at is not None


def test_a_job_over_several_nodes_is_held_in_the_words_of_a_rehearsal(world: World) -> None:
    first, second = world.add(2, 1)
    for one in (first, second):
        one.task = replace(one.task, launch="torchrun a:1")
    world.put(of="job")
    world.turn(200)
    [run] = world.climbs()
    [hold] = rungs.by_nodes("end", 1)
    assert hold.sentence in run.climb.why
    assert world.did() == []


@pytest.mark.parametrize(("victims", "code"), [
    ((("t1", "ann"), ("t2", "ann")), None), ((("t1", "ann"), ("t2", "ann"), (None, "ann")), None),
    ((("t1", "ann"), ("t2", "ann"), ("t3", "ann")), "changed"), ((("t1", "ann"),), "multi_process"),
    ((("t2", "ann"),), "gone"), ((("t1", "ann"), ("t2", "ann"), (None, "root")), "scope")])
def test_what_the_node_would_hit_is_all_of_what_is_meant_and_nothing_else(
    victims: tuple[tuple[str | None, str], ...], code: str | None,
) -> None:
    want = ActionIntent("rule idle@1", "rule idle", "Idle", "n1 job", "n1", "host", ("t1", "t2"),
                        "ann", (LadderRung("end"),), "auto", "yes", 0.5, 0.0, "idle", 5, 600.0,
                        holds=(), mutes=(), keep=None, condition=None)
    flaw = preview_flaw(want, "end", shown(want, *victims))
    assert (None if flaw is None else flaw.code) == code

"""What an act of a rule would hit, and what it is never done to."""

import pytest

from dashboard.automation.intents import ActionIntent, preview_flaw
from gpudeck.ladder import LadderRung
from gpudeck.wire import Beat
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
    found = preview_flaw(want, "end", shown(want, *victims))
    assert (None if found is None else found.code) == code

"""Numbers of a GPU that gives no sample: since when, and that an Xid came."""

import random

from dashboard.alerts.core.rule_tracker import RuleTracker
from dashboard.alerts.core.state_machine import AlertPhase
from dashboard.alerts.rules_file import PACK, parse
from dashboard.fleet.events import FleetEvent
from gpudeck.contract.wire import Event
from tests.unit import fleets
from tests.unit.dashboard.alerts.test_targets import World, of


def test_what_has_just_joined_is_not_silent() -> None:
    """Found by examiners: each GPU of a new node was as silent as its hub was old."""
    world = World(nodes=1)
    world.mono += random.uniform(100, 10_000)
    node = fleets.add_node(world.fleet, "new", 1, mono=world.mono)
    assert of(world.look()["gpu"], "sample_age_s")["GPU-new-0"] == 0
    world.mono += 30
    node.hear(world.now, world.mono)
    assert of(world.look()["gpu"], "sample_age_s")["GPU-new-0"] == 30


def test_an_xid_counts_while_nothing_can_be_read() -> None:
    """Found by examiners: the rule waited for the next sample, which came when all was well."""
    world = World(nodes=1)
    tracker = RuleTracker(parse(PACK.read_text()).rules["xid-of-driver"])
    for _ in range(70):
        tracker.step(world.next_look()["gpu"], world.now)
    event = Event(1, world.now, "xid", "GPU-n0-1", numbers={"xid": 119.0, "count": 1.0})
    world.events.add(FleetEvent("n0", "s1", world.now, None, event))
    for _ in range(60):
        tracker.step(world.next_look(silent=("n0",))["gpu"], world.now)
    assert tracker.machine.phase[1] == AlertPhase.FIRING
    assert tracker.machine.phase[0] != AlertPhase.FIRING

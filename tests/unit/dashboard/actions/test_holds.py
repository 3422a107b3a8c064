"""Holds take effect whatever becomes of the listeners."""

import random
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dashboard.access.policy import Actor, Role, Scope
from dashboard.actions.events import HoldChanged
from dashboard.actions.holds import HoldService
from dashboard.actions.standing_store import StandingStore
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.store import AuditStore
from dashboard.fleet.fleet import Fleet
from dashboard.fleet.visibility import VisibleFleetCache
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from gpudeck.contract.action_table import Action
from gpudeck.contract.actions import HELD_BY_HUB
from gpudeck.contract.wire import Beat
from tests.unit import fleets


def failing(_: object) -> None:
    raise OSError("a listener fails")


@pytest.mark.parametrize("place", [None, "n1"])
def test_a_hold_takes_effect_though_a_listener_fails(tmp_path: Path, place: str | None) -> None:
    fleet, events, orders = Fleet(1), Dispatcher(), list[Action]()
    node = fleet.hello(fleets.hello("n1"), fleets.NOW, fleets.MONO)
    node.beat = beat = Beat("ok", 0.0, 0, 0)
    state = HubState.open(tmp_path)
    admin = Actor("person", "ada", Role.ADMIN, Scope(("*",), ()), "s", time.time() + 300)

    def order(_node: str, _host: str, action: Action, *_by_whom: Any) -> None:
        orders.append(action)

    holds = HoldService(
        state.store(StandingStore), AuditRecorder(state.store(AuditStore), None, events), fleet,
        VisibleFleetCache(fleet), lambda _: True, order, events)
    events.listen(HoldChanged, failing)
    reason = f"because {random.random()}"
    holds.hold(admin, place, reason)
    assert holds.wake.is_set(), "nodes are told at once"
    refusal = holds.refusal("n1")
    assert refusal is not None
    assert reason in refusal.sentence
    assert [*state.store(StandingStore).holds()] == [place or ""]
    holds.step(time.time(), fleets.MONO)
    assert orders == ["hold"]
    node.beat = replace(beat, holds=(f"{HELD_BY_HUB} {reason}",))
    holds.beat_received("n1")
    holds.wake.clear()
    holds.release(admin, place)
    assert holds.wake.is_set()
    assert holds.desired("n1") is None
    assert state.store(StandingStore).holds() == {}
    holds.step(time.time(), fleets.MONO)
    assert orders == ["hold", "release"]
    assert events.failures == 3, "it is logged and counted"
    holds.beat_received("n1")
    refusal = holds.refusal("n1")
    assert refusal is not None
    assert "being resumed" in refusal.sentence, "until the node confirms it"
    node.beat = replace(beat, holds=("the file /run/gpudeck/hold",))
    refusal = holds.refusal("n1")
    assert refusal is not None
    assert "Resume actions there first" in refusal.sentence
    node.beat = beat
    assert holds.refusal("n1") is None
    # Over before the node has reported it: it is told all the same.
    holds.hold(admin, place, reason)
    holds.step(time.time(), fleets.MONO)
    holds.release(admin, place)
    holds.step(time.time(), fleets.MONO)
    assert orders == ["hold", "release"] * 2
    state.close()

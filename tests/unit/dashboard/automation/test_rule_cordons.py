"""A rule takes a GPU out of service by itself: only in `auto`, within its brakes, no more."""

from typing import Any

import pytest

from dashboard.alerts.core.rule import InvalidRuleError, check, read, version
from dashboard.automation.brakes import BrakeService
from dashboard.automation.rule_cordons import RuleCordons, share_brake
from gpudeck.contract.limits import Cordon
from gpudeck.contract.repairs import GpuRepair, RepairsNow
from tests.unit.climbing import World, a_world

__all__ = ["a_world"]
RULE = {"id": "rattles", "title": "Fan stopped", "of": "gpu", "scope": "*", "signal": "util_pct",
        "fire": "< 1", "for": "30s", "ladder": [{"do": "tell"}], "cordon": True,
        "budget": {"acts": 2, "within": "1h"}}


class Cordons:
    """Cordons on a fleet where one node's GPUs idle, and so the rule fires for them alone."""

    def __init__(self, world: World, nodes: int = 20, gpus: int = 2, **rule: Any) -> None:
        self.world = world
        world.add(nodes, 0, gpus=gpus)
        self.rule(**rule)
        self.service = RuleCordons(world.rules.cordons, world.fleet, world.brakes,
                                   world, world.audit)  # type: ignore[arg-type]

    def rule(self, mode: str = "auto", **more: Any) -> None:
        self.world.put(mode, **{**RULE, "scope": "node:n0000", **more})

    def turn(self, seconds: int) -> list[str]:
        """UUIDs of the boards that were cordoned so far."""
        for _ in range(seconds):
            self.world.turn()
            self.service.step(self.world.clock.now, self.world.clock.mono)
            self._nodes_obey()
        return [record.params.setting.gpu_uuid for record in self.world.did("cordon")
                if isinstance(record.params.setting, Cordon)]

    def _nodes_obey(self) -> None:
        for record in self.world.known.values():
            setting = record.params.setting
            node = self.world.fleet.nodes[record.node_id]
            if record.state == "done" and isinstance(setting, Cordon):
                before = () if node.repairs is None else node.repairs.repairs
                if setting.gpu_uuid not in {repair.gpu_uuid for repair in before}:
                    repair = GpuRepair(setting.gpu_uuid, "cordoned", record.asker.name, "", 0.0,
                                       0.0, "boot")
                    self.world.fleet.take_repairs(node, RepairsNow(0.0, (*before, repair)))

    def entries(self, action: str) -> list[dict[str, Any]]:
        return [entry for entry in self.world.recorded("ladder") if entry["action"] == action]


@pytest.fixture(autouse=True)
def fleet_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lift the fleet's bound: it has a separate test, and these are about the other brakes."""
    monkeypatch.setattr("dashboard.automation.brake_limits.FLEET_SHARE", 1.0)


def test_it_is_cordoned_once_by_its_rule_and_nothing_else_is_done(world: World) -> None:
    cordons = Cordons(world)
    uuids = cordons.turn(80)
    assert sorted(uuids) == sorted({*uuids})
    assert len(uuids) == 2, "both boards of that node, each once"
    assert {record.node_id for record in world.did("cordon")} == {"n0000"}
    assert {record.asker.name.partition("@")[0] for record in world.did("cordon")} == {"rattles"}
    assert {record.action for record in world.orders} <= {"cordon", "notify"}


@pytest.mark.parametrize("mode", ["observe", "dry_run", "confirm"])
def test_only_auto_does_it(world: World, mode: str) -> None:
    cordons = Cordons(world, mode=mode)
    assert cordons.turn(80) == []
    assert (len(cordons.entries("would cordon")) == 2) == (mode == "dry_run"), "once for each alert"


def test_a_rule_that_does_not_say_so_does_not_cordon(world: World) -> None:
    assert Cordons(world, cordon=False).turn(80) == []


def test_its_budget_holds_for_the_hour(world: World) -> None:
    cordons = Cordons(world, gpus=4, budget={"acts": 2, "within": "1h"})
    assert len(cordons.turn(110)) == 2
    assert "budget" in cordons.entries("not cordoned")[0]["sentence"]


def test_not_where_a_twentieth_is_out_of_service_already(world: World) -> None:
    cordons = Cordons(world, nodes=10, gpus=2)  # of 20 boards one
    node = world.fleet.nodes["n0009"]
    world.fleet.take_repairs(node, RepairsNow(0.0, (
        GpuRepair("GPU-n0009-0", "needs_reboot", "ada", "", 0.0, 0.0, "boot"),)))
    assert cordons.turn(80) == []
    assert "a person has to look" in cordons.entries("not cordoned")[0]["sentence"]
    world.fleet.take_repairs(node, RepairsNow(0.0, ()))
    assert len(cordons.turn(80)) == 1


def test_what_is_under_way_counts_and_boards_of_other_sites_do_not(world: World) -> None:
    cordons = Cordons(world, nodes=10, gpus=2)  # of 20 boards one
    cordons._nodes_obey = lambda: None  # type: ignore[method-assign]
    assert len(cordons.turn(80)) == 1, "no node has said yet that it is out"
    assert "a person has to look" in cordons.entries("not cordoned")[0]["sentence"]
    node = world.fleet.nodes["n0009"]
    world.fleet.take_repairs(node, RepairsNow(0.0, (
        GpuRepair("GPU-n0009-0", "cordoned", "ada", "", 0.0, 0.0, "boot"),)))
    assert share_brake(world.fleet, 0) != ""
    world.fleet.viewed[: len(world.fleet)] = True
    assert share_brake(world.fleet, 0) == "", "none of them is ours"
    assert share_brake(world.fleet, 1) != ""


def test_the_breaker_holds_until_a_person_resets_it(world: World) -> None:
    cordons = Cordons(world)
    world.brakes.trip("fleet", "a test")
    assert cordons.turn(80) == []
    world.restart()
    cordons.service.brakes = world.brakes
    cordons.service.requests = world.rules.cordons
    assert isinstance(world.brakes, BrakeService)
    assert cordons.turn(80) == [], "it outlives a restart"


def test_the_bound_of_the_fleet_opens_the_breaker(world: World, monkeypatch: pytest.MonkeyPatch
                                                  ) -> None:
    monkeypatch.setattr("dashboard.automation.brake_limits.FLEET_SHARE", 0.05)
    cordons = Cordons(world, nodes=20, gpus=4, budget={"acts": 50, "within": "1h"})
    assert len(cordons.turn(110)) == 1, "of 20 nodes one in ten minutes"
    assert world.brakes.state.breaker is not None


def test_a_node_that_is_not_connected_is_left_alone(world: World) -> None:
    cordons = Cordons(world)
    world.fleet.nodes["n0000"].connected = False
    assert cordons.turn(80) == []


@pytest.mark.parametrize(("change", "why"), [
    ({"of": "node", "signal": "gpus"}, "about a node"), ({"for": "5s"}, "at least 30s"),
    ({"budget": {"acts": 2, "within": "10m"}}, "in an hour or longer"),
    ({"mode": "auto"}, "expire"), ({"ladder": [], "mode": "dry_run"}, "needs a ladder")])
def test_what_such_a_rule_has_to_say(change: dict[str, Any], why: str) -> None:
    check(read(RULE))
    with pytest.raises(InvalidRuleError, match=why):
        check(read(RULE | change))


def test_a_rule_of_before_has_the_version_it_had() -> None:
    old = {key: value for key, value in RULE.items() if key != "cordon"}
    assert version(read(old)) == version(read(old | {"cordon": False})) != version(read(RULE))

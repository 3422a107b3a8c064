"""Lists of one node: pages ask for them every two seconds, so they cost what the node has, not what
the fleet has."""

from types import SimpleNamespace
from typing import Any

from flask import Flask

from dashboard.fleet.api import FleetApi
from dashboard.fleet.fleet import Fleet
from dashboard.fleet.visibility import VisibleFleet, focus
from tests.unit.fleets import add_node

from .test_visibility import scope_of, two_labs


def places(fleet: Fleet, visible: VisibleFleet, query: str, node: str | None
           ) -> list[tuple[int, int]]:
    api: Any = SimpleNamespace(machine=SimpleNamespace(fleet=fleet))
    with Flask("test").test_request_context(f"/api/v1/gpus?{query}"):
        return [*FleetApi._places(api, visible, node)]


def test_only_the_gpus_of_the_node_are_looked_at() -> None:
    fleet = two_labs()
    whole, part = (focus(fleet, scope_of(group)) for group in "*b")
    all_places = places(fleet, whole, "", None)
    assert all_places == [(slot, slot) for slot in range(12)]
    assert places(fleet, whole, "", "b3") == all_places[6:8]
    assert places(fleet, part, "", "b3") == [(2, 6), (3, 7)]  # by place among what is seen
    assert places(fleet, part, "", "a0") == places(fleet, whole, "", "none") == []
    uuid = fleet.uuids[7]
    assert places(fleet, whole, f"uuid={uuid}", "b3") == [(7, 7)]
    assert places(fleet, whole, f"uuid={uuid}", "a0") == []


def test_one_node_of_a_scope() -> None:
    fleet = two_labs()
    add_node(fleet, "late", gpus=1)
    visible = focus(fleet, scope_of("b"))
    assert [node.hello.node_id for node in visible.nodes(fleet, "b3")] == ["b3"]
    assert visible.nodes(fleet, "a0") == visible.nodes(fleet, "late") == []

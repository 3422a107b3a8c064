"""GPUs of other sites in the picture: shown, kept apart, and met by nothing that acts."""

import numpy as np
import pytest

from dashboard.fleet import effects, views
from dashboard.fleet.filters import parse
from dashboard.fleet.fleet import GpuStatus, forgettable
from dashboard.fleet.node_names import NodeNames
from dashboard.fleet.service_states import repair_brake
from dashboard.fleet.sites import id_at, own_id
from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.fleet.visibility import (
    ALL_READ,
    EVERYTHING_SEEN,
    VisibilityScope,
    VisibleFleetCache,
    focus,
)
from gpudeck.contract.gpu_facts import GpuFacts
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence
from tests.unit.fleets import MONO, NOW, add_node

UTIL = COLUMN["util_pct"]
MOST_GPUS = MOST_NODES = 50  # here, to be quick


def layout(*uuids: str, node: str = "n1") -> effects.SiteLayout:
    return effects.SiteLayout(
        (effects.SiteNode(node, f"{node}.example", "nvml", None, "0.1"),),
        tuple(GpuFacts(uuid, at, "NVIDIA H100", mem_total_bytes=80e9)
              for at, uuid in enumerate(uuids)), np.zeros(len(uuids), np.intp))


def numbers(count: int, util: float = 42.0, mono: float = MONO, **other: object
            ) -> effects.SiteNumbers:
    values = np.full((count, WIDTH), util)
    columns = {"absent": np.zeros((count, WIDTH), np.uint8), "states": np.zeros(count, np.uint8),
               "age_s": np.zeros(count), "is_free": np.zeros(count, bool),
               "node_states": ("live",), "tasks": 0} | other
    return effects.SiteNumbers(mono, values, **columns)  # type: ignore[arg-type]


def hub_viewing(*names: str) -> FleetStateMachine:
    machine = FleetStateMachine("hub", 1, MONO)
    sites = tuple((name, f"https://{name}.example") for name in names)
    machine.handle(effects.SitesViewed("here", sites), NOW, MONO)
    return machine


def receive(machine: FleetStateMachine, site: str, *uuids: str, **columns: object) -> None:
    machine.handle(effects.SiteHeard(site, layout(*uuids), None, numbers(
        len(uuids), **columns)), NOW, MONO)  # type: ignore[arg-type]


def test_two_sites_that_claim_the_same_gpu_have_one_each() -> None:
    machine = hub_viewing("lyon", "oslo")
    receive(machine, "lyon", "GPU-1", util=10.0)
    receive(machine, "oslo", "GPU-1", util=90.0)
    fleet = machine.fleet
    assert fleet.uuids == ["lyon:GPU-1", "oslo:GPU-1"]
    assert fleet.values[:2, UTIL].tolist() == [10.0, 90.0]
    assert [fleet.node_of(slot).hello.node_id for slot in range(2)] == ["lyon:n1", "oslo:n1"]


def test_what_acts_and_evaluates_does_not_know_them() -> None:
    machine = hub_viewing("lyon")
    receive(machine, "lyon", "GPU-1")
    fleet = machine.fleet
    assert not fleet.nodes
    assert fleet.viewed[: len(fleet)].all()
    assert machine.link_of == {}


def test_of_a_site_that_is_away_nothing_is_known_and_the_others_go_on() -> None:
    machine = hub_viewing("lyon", "oslo")
    receive(machine, "lyon", "GPU-1")
    receive(machine, "oslo", "GPU-2")
    machine.handle(effects.SiteAway("lyon", "cannot be reached"), NOW + 1, MONO + 1)
    fleet = machine.fleet
    assert fleet.statuses(MONO + 1).tolist() == [GpuStatus.OFFLINE, GpuStatus.OK]
    totals = views.totals(fleet, focus(fleet, EVERYTHING_SEEN), NOW + 1, MONO + 1)
    assert [(site["state"], site["since"], site["gpus"]) for site in totals["sites"]] == [
        ("away", NOW + 1, 1), ("live", NOW, 1)]
    assert totals["util_mean_pct"] == 42.0
    gpu = views.gpu_view(fleet, 0, GpuStatus.OFFLINE, 0, [], MONO + 1)
    assert (gpu.values, gpu.site) == ({}, "lyon")
    assert gpu.link == "https://lyon.example/?gpu=GPU-1"


def test_a_site_that_says_nothing_more_is_not_passed_off_as_live() -> None:
    """Even if nobody notices that it is away."""
    machine = hub_viewing("lyon")
    receive(machine, "lyon", "GPU-1")
    assert machine.fleet.statuses(MONO + 6).tolist() == [GpuStatus.STALE]


def test_away_since_is_of_the_first_failure() -> None:
    machine = hub_viewing("lyon")
    machine.handle(effects.SiteAway("lyon", "cannot be reached"), NOW, MONO)
    [changes] = [machine.handle(effects.SiteAway("lyon", why), NOW + 9, MONO + 9)
                 for why in ("it refuses the token",)]
    assert machine.fleet.sites["lyon"].since == NOW
    assert machine.fleet.sites["lyon"].why == "it refuses the token"
    assert len(changes) == 1
    assert machine.handle(effects.SiteAway("lyon", "it refuses the token"), NOW, MONO) == []


def test_a_number_that_cannot_be_is_unknown() -> None:
    machine = hub_viewing("lyon")
    receive(machine, "lyon", "GPU-1", util=1e9)
    assert machine.fleet.absent[0, UTIL] == Absence.UNKNOWN
    receive(machine, "lyon", "GPU-1", util=float("nan"))
    assert machine.fleet.absent[0, UTIL] == Absence.UNKNOWN


@pytest.mark.parametrize(("text", "uuids"), [
    ("site:lyon", ["lyon:GPU-1"]), ("site:here", ["GPU-own-0"]), ("!site:lyon", ["GPU-own-0"]),
    ("gpu:GPU-1", ["lyon:GPU-1"]), ("node:own", ["GPU-own-0"])])
def test_filters(text: str, uuids: list[str]) -> None:
    machine = hub_viewing("lyon")
    add_node(machine.fleet, "own", gpus=1)
    receive(machine, "lyon", "GPU-1")
    picked = parse(text)
    assert picked is not None
    hits = picked.matches(machine.fleet, MONO)
    assert [machine.fleet.uuids[slot] for slot in np.flatnonzero(hits)] == uuids


def test_owners_and_what_is_free_are_as_the_site_says() -> None:
    machine = hub_viewing("lyon")
    machine.handle(effects.SiteHeard(
        "lyon", layout("GPU-1", "GPU-2", "GPU-3"), effects.SiteOwners(
            ("alice",), np.array([0, 65_535, 65_534], np.uint16), np.zeros(3, bool)),
        numbers(3, is_free=np.array([False, True, False]))), NOW, MONO)
    fleet = machine.fleet
    for text, slots in (("user:alice", [0]), ("state:free", [1]), ("state:busy", [0, 2]),
                        ("task:x | !task:x", [])):
        picked = parse(text)
        assert picked is not None
        assert np.flatnonzero(picked.matches(fleet, MONO)).tolist() == slots, text


def test_who_may_not_see_the_site_sees_nothing_of_it() -> None:
    machine = hub_viewing("lyon")
    add_node(machine.fleet, "own", gpus=1)
    receive(machine, "lyon", "GPU-1")
    fleet = machine.fleet
    visible = focus(fleet, VisibilityScope(("default",), ALL_READ))
    assert visible.node_ids == ["own"]
    assert "sites" not in views.totals(fleet, visible, NOW, MONO)
    assert focus(fleet, VisibilityScope(("site-lyon",), ALL_READ)).node_ids == ["lyon:n1"]


def test_a_gpu_that_left_its_site_leaves_the_map_and_its_slot_is_not_written_again() -> None:
    machine = hub_viewing("lyon")
    receive(machine, "lyon", "GPU-1", "GPU-2")
    receive(machine, "lyon", "GPU-2")
    fleet = machine.fleet
    assert fleet.statuses(MONO).tolist() == [GpuStatus.RETIRED, GpuStatus.OK]
    # Retired at its site, but still listed there: its slot must not become another GPU's.
    receive(machine, "lyon", "GPU-2", "GPU-3", states=np.array([GpuStatus.RETIRED, GpuStatus.OK]))
    assert fleet.uuids[1] == "lyon:GPU-2"
    assert 1 not in forgettable(fleet, MONO + 1e6)
    assert 0 in forgettable(fleet, MONO + 1e6)
    receive(machine, "lyon", "GPU-3")
    receive(machine, "lyon", "GPU-2", "GPU-3", states=np.array([GpuStatus.RETIRED, GpuStatus.OK]))
    assert 1 not in forgettable(fleet, MONO + 1e6), "it left, and is listed again"


def test_a_site_that_names_others_and_others_is_turned_away(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.fleet.sites.MOST_GPUS", MOST_GPUS)
    machine = hub_viewing("lyon", "oslo")
    receive(machine, "oslo", "GPU-x")
    for at in range(3):
        receive(machine, "lyon", *(f"GPU-{at}-{number}" for number in range(MOST_GPUS)))
    site = machine.fleet.sites["lyon"]
    assert (site.state, "GPUs within an hour" in site.why) == ("away", True)
    assert len(machine.fleet) == 2 * MOST_GPUS + 1
    assert machine.fleet.sites["oslo"].state == "live"


def test_nodes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.fleet.sites.MOST_NODES", MOST_NODES)
    machine = hub_viewing("lyon")
    for at in range(3):
        nodes = tuple(effects.SiteNode(f"{at}-{number}", "h", "nvml", None, "0")
                      for number in range(MOST_NODES))
        machine.handle(effects.SiteHeard("lyon", effects.SiteLayout(
            nodes, (), np.zeros(0, np.intp)), None, None), NOW, MONO)
    assert len(machine.fleet.node_ids) == 2 * MOST_NODES
    assert "nodes" in machine.fleet.sites["lyon"].why


def test_repairs_count_our_own_boards_alone() -> None:
    machine = hub_viewing("lyon")
    add_node(machine.fleet, "own", gpus=20)
    machine.fleet.service[0] = 1
    without = repair_brake(machine.fleet)
    receive(machine, "lyon", *(f"GPU-{at}" for at in range(200)))
    assert repair_brake(machine.fleet) == without


def test_a_host_name_means_our_own_node() -> None:
    class Members:
        def member(self, node_id: str) -> None:
            return None

        def members(self) -> list[object]:
            return []

    machine = hub_viewing("lyon")
    add_node(machine.fleet, "n1", gpus=1)
    receive(machine, "lyon", "GPU-1")
    names = NodeNames(machine.fleet, VisibleFleetCache(machine.fleet), Members())  # type: ignore[arg-type]
    from dashboard.access.policy import Actor, Role, Scope

    actor = Actor("person", "ann", Role.ADMIN, Scope(("*",)), "s")
    assert names.ids_named(actor, "n1.example") == {"n1"}


def test_ids() -> None:
    assert own_id(id_at("lyon", "MIG-1:2")) == "MIG-1:2"

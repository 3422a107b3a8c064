"""Hub and agent over a link that tears, delays and cuts: each command ends one way, done once."""

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from gpudeck.audit.chain import verify
from gpudeck.contract.actions import YOUNGEST_S
from tests.fakes.children import COUNTS, Child
from tests.faults.fleet import GENEROUS, Fleet, a_fleet_behind
from tests.faults.toxic import ToxicProxy, Toxics
from tests.integration.hubs import HubProcess, wait_for

ORDERS = 6


@pytest.fixture
def link(tmp_path: Path) -> Iterator[tuple[Fleet, ToxicProxy]]:
    (tmp_path / "f").mkdir(mode=0o700)
    with HubProcess(tmp_path / "f" / "hub", 0, *GENEROUS) as hub:
        proxy = ToxicProxy(hub.port, Toxics())
        try:
            with a_fleet_behind(tmp_path / "f", hub, proxy.url) as fleet:
                yield fleet, proxy
        finally:
            proxy.close()


def test_each_order_ends_one_way_and_is_done_once(
    link: tuple[Fleet, ToxicProxy], tmp_path: Path
) -> None:
    fleet, proxy = link
    notes = [tmp_path / f"told-{number}" for number in range(ORDERS)]
    victims = [fleet.children.start(COUNTS, str(path)) for path in notes]
    neighbour = fleet.children.start()
    fleet.shows([*victims, neighbour])
    time.sleep(YOUNGEST_S)
    proxy.change(Toxics(
        most_bytes=48, most_delay_s=0.002, cut_after_s=(0.5, 3.0), most_cuts=3))
    ids = {}
    for victim in victims:
        preview = wait_for(partial(try_preview, fleet, victim), why="a preview")
        ids[victim.pid] = fleet.order(preview)["id"]
    wait_for(lambda: proxy.cuts > 0, why="a cut, with orders on their way or done")
    proxy.change(Toxics())
    outcomes = {pid: fleet.outcome(command_id, 90) for pid, command_id in ids.items()}
    states = Counter(outcome["state"] for outcome in outcomes.values())
    print(f"{ORDERS} orders, {proxy.connections} connections, {proxy.cuts} cuts: {dict(states)}")
    assert set(states) <= {"done", "expired", "refused"}
    for victim, path in zip(victims, notes, strict=True):
        terms = len(path.read_text()) if path.exists() else 0
        is_done = outcomes[victim.pid]["state"] == "done"
        assert terms == is_done, (terms, outcomes[victim.pid])
        assert victim.is_alive() is not is_done
    assert neighbour.is_alive()
    assert verify(fleet.journal().audit.links()) is None


def try_preview(fleet: Fleet, victim: Child) -> object:
    """Return a preview, or None while the node is away."""
    try:
        return fleet.preview(victim, grace_s=1.0)
    except (AssertionError, OSError):
        return None

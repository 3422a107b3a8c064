"""GPUs that two nodes report: a machine that was installed again is another node."""

import random

import pytest

from dashboard.fleet import views
from dashboard.fleet.fleet import SILENT_AFTER_S, Fleet, Node
from dashboard.fleet.node_health import health, successor
from dashboard.fleet.visibility import EVERYTHING_SEEN, focus
from gpudeck.contract.wire import Inventory, Tasks
from tests.unit import fleets
from tests.unit.fleets import NOW, Row

BOARDS = tuple(fleets.facts("board", at) for at in range(4))
IDLE: Row = {"util_pct": 0.0, "util_max_pct": 0.0, "mem_used_bytes": 4e8}


class TwoNodes:
    """A fleet whose nodes speak, or do not, as time goes on."""

    def __init__(self) -> None:
        self.fleet, self.mono, self.seq = Fleet(1), 0.0, 0

    def join(self, node_id: str, boards: tuple[int, ...] = (0, 1, 2, 3)) -> Node:
        node = self.fleet.hello(fleets.hello(node_id, host="gpu1"), NOW + self.mono, self.mono)
        node.clock_offset_s, node.clock.minus_mono_s = 0.0, NOW
        self.fleet.inventory(node, Inventory(1, tuple(BOARDS[at] for at in boards)))
        return node

    def go(self, seconds: float, *speakers: Node) -> None:
        for _ in range(int(seconds / 5)):
            self.mono, self.seq = self.mono + 5, self.seq + 1
            for node in speakers:
                node.hear(NOW + self.mono, self.mono)
                assert node.listing is not None
                rows = [IDLE] * len(node.listing.order)
                self.fleet.frame(node, fleets.frame(rows, self.seq, NOW + self.mono,
                                                    tasks=Tasks(True, (), ())),
                                 NOW + self.mono, self.mono)
            self.fleet.tick(self.mono)

    def counts(self) -> tuple[int, int, int]:
        gpus = views.totals(self.fleet, focus(self.fleet, EVERYTHING_SEEN), NOW + self.mono,
                            self.mono)["gpus"]
        return gpus["total"], gpus["offline"], gpus["free"]


@pytest.mark.parametrize("waits_s", [5, 300])
def test_a_machine_that_was_installed_again_is_counted_once(waits_s: int) -> None:
    """GPUs were there twice until somebody revoked the former node."""
    two = TwoNodes()
    old = two.join("old")
    two.go(20, old)
    assert two.counts() == (4, 0, 4)
    two.go(waits_s)
    new = two.join("new")
    two.go(SILENT_AFTER_S + 10, new)
    assert two.counts() == (4, 0, 4)
    assert (old.state, successor(two.fleet, old), successor(two.fleet, new)) == (
        "silent", new, None)
    assert "another node called gpu1 reports its GPUs now" in health(
        two.fleet, old, two.mono).why
    two.go(SILENT_AFTER_S + 10)
    assert two.counts() == (4, 4, 0), "neither speaks, and its GPUs are not forgotten"


def test_whoever_speaks_again_is_seen_again() -> None:
    two = TwoNodes()
    old = two.join("old")
    two.go(SILENT_AFTER_S + 10)
    new = two.join("new")
    two.go(20, new)
    assert two.counts() == (4, 0, 4)
    first, second = random.sample([old, new], 2)
    two.go(20, old, new)
    assert two.counts() == (8, 0, 8), "two machines that say the same: nobody knows whose they are"
    two.go(SILENT_AFTER_S + 10, first)
    assert two.counts() == (4, 0, 4)
    two.go(SILENT_AFTER_S + 10, second)
    assert two.counts() == (4, 0, 4)


def test_a_board_that_moved_is_not_the_whole_machine() -> None:
    two = TwoNodes()
    old = two.join("old")
    two.go(SILENT_AFTER_S + 10)
    new = two.join("new", (1, 3))
    two.go(20, new)
    assert two.counts() == (4, 2, 2)
    assert successor(two.fleet, old) is None


def test_who_sees_one_group_reads_nothing_of_another() -> None:
    two = TwoNodes()
    old = two.join("old")
    two.go(SILENT_AFTER_S + 10)
    two.fleet.set_group("new", "secret")
    new = two.join("new")
    two.go(20, new)
    assert two.counts() == (4, 0, 4)
    assert (successor(two.fleet, old), health(two.fleet, old, two.mono).why) == (
        None, "Silent: current state unknown")

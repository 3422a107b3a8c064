"""MIG layouts as they are listed: the present one, the wanted one, and one that is not known."""

from dashboard.actions.mig_views import MigBoardView, MigInstanceView, mig_list
from dashboard.fleet.fleet import Fleet, Node
from dashboard.fleet.visibility import (
    EVERYTHING_SEEN,
    CommandLineVisibility,
    VisibilityScope,
    focus,
)
from gpudeck.contract.limits import LimitsNow, ManagedMigLayout
from gpudeck.contract.repairs import GpuRepair, RepairsNow
from gpudeck.contract.wire import GpuFacts, Inventory
from gpudeck.measures.metrics import Absence
from tests.unit.fleets import MONO, NOW, facts, frame, hello, tasks


def instance(board: int, number: int, profile: str | None, part: int = 0) -> GpuFacts:
    return GpuFacts(f"MIG-{board}-{number}-{part}", board, "H100 MIG", f"GPU-n1-{board}", profile,
                    number, part)


def node_of(fleet: Fleet, gpus: list[GpuFacts], modes: list[float | Absence]) -> Node:
    node = fleet.hello(hello("n1"), NOW, MONO)
    fleet.inventory(node, Inventory(1, tuple(gpus)))
    slow = [{"mig_on": mode} for mode in (*modes, *[Absence.UNSUPPORTED] * len(gpus))]
    fleet.frame(node, frame([{}] * len(gpus), slow=slow[:len(gpus)], tasks=tasks()), NOW, MONO)
    return node


def board_views(fleet: Fleet, mono: float = MONO) -> list[MigBoardView]:
    return mig_list(fleet, focus(fleet, EVERYTHING_SEEN), None, mono).items


def test_each_board_that_can_be_split_says_how_it_is() -> None:
    fleet = Fleet(1)
    parts = [instance(0, 1, "4g.40gb"), instance(0, 2, "1c.3g.40gb"),
             instance(0, 2, "1c.3g.40gb", 1)]
    node_of(fleet, [*(facts("n1", at) for at in range(5)), *parts],
            [1.0, 1.0, 0.0, Absence.UNSUPPORTED, Absence.DENIED])
    assert [(board.index, board.is_on, board.now) for board in board_views(fleet)] == [
        (0, True, "1x 3g.40gb + 1x 4g.40gb"), (1, True, "none"), (2, False, "off"),
        (4, None, None)]
    assert board_views(fleet)[0].instances[0] == MigInstanceView("MIG-0-1-0", "0/1", "4g.40gb")


def test_what_is_wanted_and_out_of_service_stands_beside_it() -> None:
    fleet = Fleet(1)
    node = node_of(fleet, [facts("n1", 0), facts("n1", 1)], [1.0, 1.0])
    layout = ManagedMigLayout("GPU-n1-1", "2x 3g.40gb", ((9, 0), (9, 4)), "none", "ada", "why",
                              NOW, "half_made", "how to go on")
    node.limits = LimitsNow(NOW, layouts=(layout,))
    fleet.take_repairs(node, RepairsNow(NOW, (
        GpuRepair("GPU-n1-1", "cordoned", "ada", "", NOW, NOW, "boot"),)))
    assert [(board.wanted, board.service) for board in board_views(fleet)] == [
        (None, "in_service"), (layout, "cordoned")]


def test_an_old_value_is_no_present_one() -> None:
    fleet = Fleet(1)
    node_of(fleet, [facts("n1", 0)], [0.0])
    [board] = board_views(fleet, MONO + 3_600)
    assert (board.is_on, board.now) == (None, None)


def test_an_instance_without_a_name_leaves_the_layout_unknown() -> None:
    fleet = Fleet(1)
    node_of(fleet, [facts("n1", 0), instance(0, 1, None)], [1.0])
    assert board_views(fleet)[0].now is None


def test_who_does_not_see_the_node_is_told_nothing() -> None:
    fleet = Fleet(1)
    node_of(fleet, [facts("n1", 0)], [1.0])
    nobody = focus(fleet, VisibilityScope(("other",), CommandLineVisibility(True)))
    assert mig_list(fleet, nobody, None, MONO).items == []
    assert mig_list(fleet, focus(fleet, EVERYTHING_SEEN), "n2", MONO).items == []

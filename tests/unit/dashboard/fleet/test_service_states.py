"""GPUs out of service in the hub's picture: what counts as free, and the brake on repairs."""

import random

from dashboard.fleet.available_gpus import available
from dashboard.fleet.fleet import Fleet, Node
from dashboard.fleet.service_states import repair_brake
from gpudeck.contract.pool_link import OfferedGpu, PoolReport
from gpudeck.contract.repairs import WHOLE_NODE, GpuRepair, RepairsNow, RepairState
from gpudeck.contract.wire import Inventory
from tests.unit.fleets import EMPTY, MONO, add_node, facts, frame, tasks


def report_states(fleet: Fleet, node: Node, *rows: tuple[str, RepairState]) -> None:
    fleet.take_repairs(node, RepairsNow(0.0, tuple(
        GpuRepair(uuid, state, "ada", "", 0.0, 0.0, "boot") for uuid, state in rows)))


def free_gpus(fleet: Fleet) -> list[bool]:
    return [bool(is_free) for is_free in available(fleet, fleet.statuses(MONO), MONO)]


def test_what_is_out_of_service_is_not_free() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, "n1", 3)
    fleet.frame(node, frame([EMPTY] * 3, tasks=tasks()), 1_000_000.0, 500.0)
    assert free_gpus(fleet) == [True] * 3
    report_states(fleet, node, ("GPU-n1-1", "cordoned"))
    assert free_gpus(fleet) == [True, False, True]
    # Also where its pool has not said so yet.
    fleet.take_pool(node, PoolReport(tuple(
        OfferedGpu(f"GPU-n1-{index}", "H100", index) for index in range(3)), (), ()))
    assert free_gpus(fleet) == [True, False, True]
    report_states(fleet, node, (WHOLE_NODE, "draining"))
    assert free_gpus(fleet) == [False] * 3
    report_states(fleet, node)
    assert free_gpus(fleet) == [True] * 3


def test_a_gpu_that_comes_later_is_out_of_service_with_its_node() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, "n1", 1)
    report_states(fleet, node, (WHOLE_NODE, "cordoned"))
    fleet.inventory(node, Inventory(2, (facts("n1", 0), facts("n1", 1))))
    assert fleet.service[:2].tolist() == [1, 1]


def test_one_in_twenty_at_most_is_repaired_at_a_time() -> None:
    fleet, boards = Fleet(1), random.choice((8, 19, 40, 100))
    nodes = [add_node(fleet, f"n{at}", 1) for at in range(boards)]
    most = max(1, boards // 20)
    states: tuple[RepairState, ...] = ("resetting", "diagnosing")
    for at in range(most):
        assert repair_brake(fleet) == "", at
        report_states(fleet, nodes[at], (f"GPU-n{at}-0", random.choice(states)))
    assert f"at most {most}" in repair_brake(fleet)
    report_states(fleet, nodes[0], ("GPU-n0-0", "drained"))
    assert repair_brake(fleet) == "", "what only waits disturbs nobody"

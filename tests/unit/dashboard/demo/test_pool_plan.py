"""The pool of a demo, whatever its size."""

import pytest

from agent.backends.simulation.jobs import USERS
from dashboard.demo.fleet import REAL_AGENTS, pool_numbers
from dashboard.demo.pool_plan import FORGETFUL, RESERVES, boards_of, reservation, runs


@pytest.mark.parametrize("nodes", range(1, 12))
def test_a_demo_of_any_size_has_a_pool(nodes: int) -> None:
    numbers = pool_numbers(nodes)
    assert numbers
    assert set(numbers) <= set(range(1, nodes + 1))
    outside = set(range(1, min(nodes, REAL_AGENTS) + 1)) - set(numbers)
    assert outside or nodes == 1, "somewhere there are tasks without a lease"


def test_no_nodes_no_pool() -> None:
    assert pool_numbers(0) == ()


@pytest.mark.parametrize("boards", [1, 2, 3, 4, 5, 8, 16, 64])
@pytest.mark.parametrize("nodes", [("n003",), ("n005", "n006")])
def test_people_hold_and_wait_for_what_there_is(boards: int, nodes: tuple[str, ...]) -> None:
    there = dict.fromkeys(nodes, boards)
    planned = list(runs(there))
    for node in nodes:
        holding = sum(run.gpus for run in planned if run.node == node and not run.waits)
        assert 1 <= holding <= boards
        assert any(run.waits and 1 <= run.gpus <= boards for run in planned
                   if run.node == node)
    node, gpus = reservation(there)
    assert node == nodes[0]
    assert 0 <= gpus <= boards - sum(run.gpus for run in planned
                                     if run.node == node and not run.waits)
    assert {run.user for run in planned} | {FORGETFUL, RESERVES} <= set(USERS)
    assert len({run.script for run in planned}) == len(planned)


def test_boards_that_others_use_and_parts_of_one_are_not_planned_with() -> None:
    assert boards_of([{"host": "n001", "gpus": [
        {"is_mig": False, "trouble": ""}, {"is_mig": True, "trouble": ""},
        {"is_mig": False, "trouble": "used by alice without a lease"}]}]) == {"n001": 1}
    [waits] = runs({"n001": 0})
    assert (waits.gpus, waits.waits) == (1, True)
    assert reservation({"n001": 0})[1] <= 0

"""A board that is split by MIG beside its instances: nothing of a fleet is counted twice."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from dashboard.fleet import views
from dashboard.fleet.filters import parse
from dashboard.fleet.fleet import Fleet, GpuStatus, Node
from dashboard.fleet.gpu_table import NO_TASK, SPLIT
from dashboard.fleet.visibility import (
    EVERYTHING_SEEN,
    CommandLineVisibility,
    VisibilityScope,
    VisibleFleet,
    focus,
)
from gpudeck.contract.wire import GpuFacts, Inventory, Tasks
from gpudeck.measures.metrics import Absence
from tests.unit.fleets import EMPTY, MONO, NOW, facts, frame, hello, tasks

GIB = 2.0**30
Row = Mapping[str, float | Absence]
UNSUPPORTED = Absence.UNSUPPORTED


def instance(node_id: str, board: int, number: int, part: int = 0) -> GpuFacts:
    return GpuFacts(
        f"MIG-{node_id}-{board}-{number}-{part}", board, "NVIDIA H100 MIG 3g.40gb",
        parent_uuid=f"GPU-{node_id}-{board}", mig_profile="3g.40gb", gpu_instance=number,
        compute_instance=part, mem_total_bytes=40 * GIB)


def add(fleet: Fleet, gpus: Sequence[GpuFacts], rows: Sequence[Row], on: Tasks | None = None,
        node_id: str = "n1") -> Node:
    node = fleet.hello(hello(node_id), NOW, MONO)
    fleet.inventory(node, Inventory(1, tuple(gpus)))
    fleet.frame(node, frame(rows, tasks=on or tasks()), NOW, MONO)
    return node


def whole(fleet: Fleet) -> VisibleFleet:
    return focus(fleet, EVERYTHING_SEEN)


def totals(fleet: Fleet) -> dict[str, Any]:
    return views.totals(fleet, whole(fleet), NOW, MONO)


def matches(fleet: Fleet, text: str) -> list[int]:
    picked = parse(text)
    assert picked is not None
    return np.flatnonzero(picked.matches(fleet, MONO, CommandLineVisibility(True))).tolist()


def two_boards(fleet: Fleet, on: Tasks | None = None) -> tuple[Node, dict[str, float]]:
    """Add a whole board and one that is split in two; return the memory in use, too."""
    memory = {key: random.uniform(1, 30) * GIB for key in ("whole", "one", "other")}
    rows: list[Row] = [
        {"util_pct": 40.0, "mem_used_bytes": memory["whole"], "power_w": 300.0, "temp_c": 50.0},
        {"util_pct": UNSUPPORTED, "mem_used_bytes": memory["one"] + memory["other"] + GIB,
         "power_w": 200.0, "temp_c": 90.0},
        {"mem_used_bytes": memory["one"], "power_w": UNSUPPORTED},
        {"mem_used_bytes": memory["other"], "power_w": UNSUPPORTED},
    ]
    gpus = [facts("n1", 0), facts("n1", 1), instance("n1", 1, 1), instance("n1", 1, 2)]
    return add(fleet, gpus, rows, on), memory


def test_a_split_board_is_counted_by_its_instances() -> None:
    fleet = Fleet(1)
    _, memory = two_boards(fleet, tasks(("t1", 2, "alice")))
    sums = totals(fleet)
    assert sums["gpus"] == {"total": 3, "ok": 3, "stale": 0, "lost": 0, "error": 0,
                            "offline": 0, "free": 0}, "memory that nobody claims"
    assert (sums["power_w"], sums["hot"], sums["util_mean_pct"]) == (500.0, 1, 40.0)
    assert sums["mem_used_bytes"] == pytest.approx(sum(memory.values()) + GIB)
    assert sums["mem_total_bytes"] == 2 * 80e9
    assert sums["tasks"] == 1


def test_memory_that_the_board_may_not_tell_is_that_of_its_instances_once() -> None:
    """Two compute instances of one GPU instance report the same memory."""
    fleet = Fleet(1)
    memory = [random.uniform(1, 30) * GIB for _ in range(2)]
    add(fleet, [facts("n1", 0), instance("n1", 0, 1), instance("n1", 0, 2, 0),
                instance("n1", 0, 2, 1)],
        [{"mem_used_bytes": Absence.DENIED}, {"mem_used_bytes": memory[0]},
         {"mem_used_bytes": memory[1]}, {"mem_used_bytes": memory[1]}])
    sums = totals(fleet)
    assert sums["mem_used_bytes"] == pytest.approx(sum(memory))
    assert sums["mem_total_bytes"] == 80 * GIB


def test_a_split_board_is_neither_free_nor_busy() -> None:
    fleet = Fleet(1)
    rows = [EMPTY, {"mem_used_bytes": 3 * GIB}, {"mem_used_bytes": 0.0}, {"mem_used_bytes": GIB}]
    add(fleet, [facts("n1", 0), facts("n1", 1), instance("n1", 1, 1), instance("n1", 1, 2)], rows,
        tasks(("t1", 3, "alice")))
    assert matches(fleet, "state:free") == [0, 2]
    assert matches(fleet, "state:busy") == [3]
    assert matches(fleet, "!state:free") == [3], "nor is it not free"
    assert matches(fleet, "!state:busy") == [0, 2]
    assert matches(fleet, "gpu:1") == [1, 2, 3]
    assert matches(fleet, "gpu:1/2") == [3]
    assert fleet.is_split().tolist() == [False, True, False, False]


def test_a_board_that_is_whole_again_is_given_out_again() -> None:
    fleet = Fleet(1)
    node, _ = two_boards(fleet)
    fleet.inventory(node, Inventory(2, (facts("n1", 0), facts("n1", 1))))
    fleet.frame(node, frame([EMPTY, EMPTY], seq=2, generation=2, tasks=tasks()), NOW, MONO)
    assert not fleet.is_split().any()
    assert matches(fleet, "state:free") == [0, 1]
    assert totals(fleet)["gpus"]["total"] == 2
    assert fleet.statuses(MONO).tolist() == [GpuStatus.OK, GpuStatus.OK, GpuStatus.RETIRED,
                                          GpuStatus.RETIRED]


def test_the_layout_names_each_instance_its_board_and_place() -> None:
    fleet = Fleet(1)
    add(fleet, [facts("n0", 0), instance("n0", 0, 5)], [{}, {}], node_id="n0")
    two_boards(fleet)
    layout = views.layout(fleet, whole(fleet))
    assert layout["instances"] == [[1, 0, "0/5", "3g.40gb"], [4, 3, "1/1", "3g.40gb"],
                                   [5, 3, "1/2", "3g.40gb"]]
    assert views.layout(fleet, whole(fleet), slot=5)["instances"] == [[5, 3, "1/2", "3g.40gb"]]
    fleet.set_group("n1", "east")
    narrow = focus(fleet, VisibilityScope(("east",), CommandLineVisibility(True)))
    assert [row[:2] for row in views.layout(fleet, narrow)["instances"]] == [[2, 1], [3, 1]]


def test_a_gpu_answer_says_what_it_is_a_part_of() -> None:
    fleet = Fleet(1)
    two_boards(fleet)
    view = views.gpu_view(fleet, 3, GpuStatus.OK, 0, [], MONO)
    assert (view.index, view.place) == (1, "1/2")
    assert (view.facts.parent_uuid, view.facts.mig_profile) == ("GPU-n1-1", "3g.40gb")
    assert instance("n1", 7, 2, 3).place == "7/2/3"
    assert facts("n1", 4).place == "4"


def test_a_board_with_mig_on_and_no_instance_is_not_given_out() -> None:
    fleet = Fleet(1)
    node = add(fleet, [facts("n1", 0), facts("n1", 1)], [{}, {}])
    fleet.frame(node, frame([EMPTY, EMPTY], seq=2, slow=[{"mig_on": 1.0}, {"mig_on": 0.0}],
                            tasks=tasks()), NOW, MONO)
    assert fleet.is_split().tolist() == [True, False]
    assert matches(fleet, "state:free") == [1]
    assert totals(fleet)["gpus"]["free"] == totals(fleet)["gpus"]["total"] == 1
    owners = np.frombuffer(views.owners(fleet, whole(fleet))["owner"], "<u2")
    assert owners.tolist() == [SPLIT, NO_TASK]

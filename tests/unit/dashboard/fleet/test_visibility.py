"""Scopes: GPUs and tasks outside of one are not shown, named, counted or found."""

import random
from typing import Any

import msgspec
import pytest

from dashboard.access.policy import Actor, Role, Scope
from dashboard.fleet import views
from dashboard.fleet.filters import parse
from dashboard.fleet.fleet import Fleet
from dashboard.fleet.visibility import (
    CommandLineVisibility,
    VisibilityScope,
    VisibleFleet,
    VisibleFleetCache,
    focus,
    program_of,
)
from gpudeck.contract.wire import Task, Tasks, Use
from tests.unit.fleets import MONO, NOW, add_node, frame, task_views

SECRET = "--token=hunter2"


def scope_of(*groups: str, role: str = "viewer", own: tuple[str, ...] = ()) -> VisibilityScope:
    return VisibilityScope.of(Actor("person", "x", Role(role), Scope(groups, own)))


def two_labs() -> Fleet:
    """Nodes a0 b0 a1 b1 … in groups a and b, each with its own model, owner and command."""
    fleet = Fleet(3)
    for at in range(6):
        group = "ab"[at % 2]
        node = add_node(fleet, f"{group}{at}", gpus=2, name=f"model-{group}")
        fleet.set_group(f"{group}{at}", group)
        task = Task(f"{group}{at}:task", 10 + at, 5, 0.0, f"owner-{group}",
                    f"/opt/{group}/python train.py {SECRET}-{group}")
        tasks = Tasks(True, (task,), (Use(task.id, 0, 1e9, 10.0, "running"),))
        fleet.frame(node, frame([{"util_pct": 50.0}] * 2, tasks=tasks), NOW, MONO)
    return fleet


def answers(fleet: Fleet, visible: VisibleFleet) -> list[dict[str, Any]]:
    return [views.layout(fleet, visible), views.owners(fleet, visible),
            views.totals(fleet, visible, NOW, MONO),
            views.cells(fleet, visible, "util_pct", parse("state:busy | user:owner-b"), NOW, MONO)]


def test_the_other_lab_is_in_nothing_that_is_sent() -> None:
    fleet = two_labs()
    visible = focus(fleet, scope_of("a"))
    layout, owners, totals, cells = answers(fleet, visible)
    payload = msgspec.json.encode([layout, owners["names"], totals])
    for word in (b"b1", b"b3", b"b5", b"owner-b", b"model-b"):
        assert word not in payload
    assert [node[1] for node in layout["nodes"]] == ["a0", "a2", "a4"]
    assert layout["node"] == [0, 0, 1, 1, 2, 2]
    assert layout["models"] == ["model-a"]
    assert owners["names"] == ["owner-a"]
    assert (totals["gpus"]["total"], totals["tasks"], sum(totals["nodes"].values())) == (6, 3, 3)
    assert (cells["n"], len(cells["cells"]), cells["matched"]) == (6, 6, 3)


def test_numbers_tell_nothing_of_the_rest() -> None:
    """The same lab in a larger fleet looks the same."""
    small = Fleet(3)
    for at in (0, 2, 4):
        add_node(small, f"a{at}", gpus=2, name="model-a")
        small.set_group(f"a{at}", "a")
    large = two_labs()
    alone, among = (views.layout(fleet, focus(fleet, scope_of("a"))) for fleet in (small, large))
    for key in ("nodes", "models", "uuid", "node", "index", "model", "from"):
        assert alone[key] == among[key]


def test_all_together_is_everything_and_scopes_do_not_overlap() -> None:
    fleet = two_labs()
    whole, a, b = (focus(fleet, scope_of(*groups)) for groups in (("*",), ("a",), ("b",)))
    assert sorted([*a.slots, *b.slots]) == list(whole.slots) == list(range(len(fleet)))
    assert whole.epoch not in (a.epoch, b.epoch)
    assert len(focus(fleet, scope_of())) == len(focus(fleet, scope_of("default"))) == 0
    assert focus(fleet, scope_of("a", "b")).node_ids == whole.node_ids


def test_slots_only_grow_within_an_epoch() -> None:
    chance, fleet = random.Random(random.random()), Fleet(1)
    visible_fleets: dict[str, VisibleFleet] = {}
    for at in range(40):
        add_node(fleet, f"n{at}", gpus=1)
        if chance.random() < 0.5:
            fleet.set_group(f"n{chance.randrange(at + 1)}", chance.choice("abc"))
        for group in "abc":
            visible = focus(fleet, scope_of(group))
            former = visible_fleets.get(group)
            if former is not None and former.epoch == visible.epoch:
                assert list(visible.slots[: len(former)]) == list(former.slots)
            visible_fleets[group] = visible


def test_a_lens_is_made_once_and_anew_when_the_fleet_changes() -> None:
    fleet = two_labs()
    visible_fleets = VisibleFleetCache(fleet)
    first = visible_fleets.of(scope_of("a"))
    assert visible_fleets.of(scope_of("a")) is first
    fleet.set_group("a0", "b")
    second = visible_fleets.of(scope_of("a"))
    assert second.node_ids == ["a2", "a4"]
    assert second.epoch != first.epoch
    add_node(fleet, "a9", gpus=1)
    fleet.set_group("a9", "a")
    assert visible_fleets.of(scope_of("a")).sees_node("a9")
    for at in range(600):
        visible_fleets.of(scope_of(f"g{at}"))
    assert len(visible_fleets._cache) <= VisibleFleetCache.MOST


# -- command lines


@pytest.mark.parametrize(("role", "own", "whole"), [
    ("viewer", (), False), ("user", (), False), ("operator", (), True), ("admin", (), True),
    ("viewer", ("al",), True), ("user", ("bo",), False), ("user", ("AL",), False)])
def test_who_reads_a_command_whole(role: str, own: tuple[str, ...], whole: bool) -> None:
    reads = scope_of("*", role=role, own=own).reads
    task = Task("t", 1, 1, None, "al", f"python train.py {SECRET}")
    assert reads.line(task.user, task.command) == (task.command if whole else "python")
    unowned = msgspec.structs.replace(task, user=None)
    assert reads.of_user(unowned.user) == (role in ("operator", "admin"))


@pytest.mark.parametrize(("command", "program"), [
    ("/usr/bin/python3.11 train.py", "python3.11"), ("nginx: worker process", "nginx"),
    ("ray::train(key=hunter2)", "ray"), ("./a.out", "a.out"), ("", None), ("   ", None),
    ("\x1b[31mred", None), ("key=hunter2", "key"), ("/", None), ("x" * 100, "x" * 64),
    ("C:\\x\\python.exe hunter2", "C")])
def test_a_programs_name(command: str, program: str | None) -> None:
    assert program_of(command) == program


def test_a_filter_answers_no_more_than_its_asker_may_read() -> None:
    fleet = two_labs()
    query, negation = parse(f"task:'{SECRET}'"), parse(f"!task:'{SECRET}'")
    assert query is not None
    assert negation is not None
    assert query.matches(fleet, MONO).sum() == 6
    for viewer in (scope_of("*"), scope_of("*", role="user", own=("someone",))):
        assert query.matches(fleet, MONO, viewer.reads).sum() == 0
        # Nor the other way round: of what one may not read, neither holds.
        assert negation.matches(fleet, MONO, viewer.reads).sum() == 6  # those without any task
        program_query = parse("task:python")
        assert program_query is not None
        assert program_query.matches(fleet, MONO, viewer.reads).sum() == 6
    own = scope_of("*", own=("owner-a",))
    assert query.matches(fleet, MONO, own.reads).sum() == 3


def test_task_views_are_cut_by_reader() -> None:
    fleet = two_labs()
    [task] = [task for task in task_views(fleet, CommandLineVisibility(False))
              if task.node == "a0"]
    assert (task.command, task.command_is) == ("python", "program")
    reads = CommandLineVisibility(False, frozenset({"owner-a"}))
    [task] = [task for task in task_views(fleet, reads) if task.node == "a0"]
    assert SECRET in (task.command or "")
    assert task.command_is == "whole"

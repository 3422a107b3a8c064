"""Answers of GET tasks: which are shared, and between whom."""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import msgspec
import pytest
from flask import Flask, request

from dashboard.access.policy import Actor, Role, Scope
from dashboard.fleet.api import FleetApi
from dashboard.fleet.fleet import Fleet
from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.fleet.task_list import TaskList
from dashboard.fleet.visibility import VisibleFleetCache
from dashboard.web.answers import ApiError
from dashboard.web.shared_answers import AGE_PER_COST, MOST_AGE_S, MOST_ANSWERS, SharedAnswers
from gpudeck.contract.wire import Tasks, Use
from tests.unit.fleets import EMPTY, MONO, NOW, add_node, frame, tasks

COST_S = 0.01
Ask = Callable[..., dict[str, Any]]


def actor(role: Role, *groups: str, own: tuple[str, ...] = ()) -> Actor:
    return Actor("person", "x", role, Scope(groups, own))


ALL, NORTH = actor(Role.OPERATOR, "*"), actor(Role.OPERATOR, "north")
ANN, BOB = (actor(Role.USER, "*", own=(name,)) for name in ("ann", "bob"))


class Clock:
    """Clock of which each look takes COST_S, so that an answer has a cost."""

    now = 100.0

    def __call__(self) -> float:
        self.now += COST_S
        return self.now


@pytest.fixture
def machine() -> FleetStateMachine:
    machine = FleetStateMachine("hub", 1, MONO)
    for node_id, group in (("n1", "north"), ("n2", "south")):
        node = add_node(machine.fleet, node_id)
        machine.fleet.set_group(node_id, group)
        machine.fleet.frame(node, frame([EMPTY] * 2, tasks=tasks(
            (f"{node_id}-a", 0, "ann"), (f"{node_id}-b", 1, "bob"))), NOW, MONO)
    return machine


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ask(machine: FleetStateMachine, clock: Clock) -> Ask:
    app = Flask("hub")
    names: Any = None  # only asked about nodes that nobody sees
    api = FleetApi(machine, VisibleFleetCache(machine.fleet), names, lambda _node, _task: None,
                   SharedAnswers(clock))

    def get(actor: Actor, query: str = "") -> dict[str, Any]:
        with app.test_request_context(f"/api/v1/tasks?{query}"):
            request.environ["gpudeck.actor"] = actor
            answer: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(api.tasks()))
            return answer

    return get


def ids(answer: dict[str, Any]) -> list[str]:
    return [task["id"] for task in answer["items"]]


def read_by(answer: dict[str, Any]) -> set[str]:
    return {task["user"] for task in answer["items"] if task["command_is"] == "whole"}


def test_nobody_is_answered_what_was_made_for_somebody_else(ask: Ask) -> None:
    """Test requests within the time in which an answer is shared."""
    for _ in range(2):
        assert ids(ask(ALL)) == ["n1-a", "n1-b", "n2-a", "n2-b"]
        assert ids(ask(NORTH)) == ["n1-a", "n1-b"]
        assert ids(ask(actor(Role.OPERATOR, "south"))) == ["n2-a", "n2-b"]
        assert ids(ask(actor(Role.OPERATOR))) == []
        assert [read_by(ask(actor)) for actor in (ALL, ANN, BOB, actor(Role.VIEWER, "*"))] == [
            {"ann", "bob"}, {"ann"}, {"bob"}, set()]


def test_a_node_that_leaves_a_scope_is_shown_there_no_more(ask: Ask, machine: FleetStateMachine
                                                            ) -> None:
    assert ids(ask(NORTH)) == ["n1-a", "n1-b"]
    machine.fleet.set_group("n1", "south")
    assert ids(ask(NORTH)) == []


def test_it_is_made_once_for_those_who_ask_for_the_same(ask: Ask, machine: FleetStateMachine,
                                                       clock: Clock) -> None:
    def memory(query: str = "") -> float:
        return float(ask(ANN, query)["items"][0]["mem_used_bytes"])

    assert memory() == memory("sort=pid") == 1e9
    use(machine.fleet, 2, 7e9)
    assert (memory(), memory("sort=pid"), memory("order=asc")) == (1e9, 1e9, 7e9)
    clock.now += AGE_PER_COST * COST_S
    assert memory() == 7e9, "as long as it would have cost ten times"


def test_no_answer_is_older_than_half_a_second() -> None:
    times = iter([0.0, 100.0, 100.0 + MOST_AGE_S - 0.01, 100.0 + MOST_AGE_S, 101.0])
    answers, numbers = SharedAnswers(times.__next__), iter(range(9))
    bodies = [answers.encoded("all", lambda: TaskList([], None, next(numbers))) for _ in range(3)]
    assert [msgspec.json.decode(body)["total"] for body in bodies] == [0, 0, 1]


def test_many_different_questions_do_not_fill_the_memory() -> None:
    answers = SharedAnswers(cycle([0.0, 100.0]).__next__)  # none of them is ever too old
    for number in range(2 * MOST_ANSWERS):
        answers.encoded(number, lambda: TaskList([], None, 0))
    assert len(answers) == MOST_ANSWERS


def test_a_mistake_is_answered_to_each(ask: Ask) -> None:
    for _ in range(2):
        with pytest.raises(ApiError, match="sort is one of"):
            ask(ALL, "sort=nothing")


def use(fleet: Fleet, seq: int, mem_bytes: float) -> None:
    for node_id, node in fleet.nodes.items():
        fleet.frame(node, frame([EMPTY] * 2, seq, tasks=Tasks(False, (), tuple(
            Use(f"{node_id}-{name}", gpu, mem_bytes, 10.0) for gpu, name in enumerate("ab")))),
            NOW, MONO)

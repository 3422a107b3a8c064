"""Owners are sent again when what is shown of them has changed, and only then."""

import random
from collections.abc import Callable
from typing import Literal

import pytest

from dashboard.fleet import effects, gpu_table, views
from dashboard.fleet.fleet import Fleet, Node
from dashboard.fleet.gpu_table import UNKNOWN_OWNER
from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.fleet.visibility import EVERYTHING_SEEN, focus
from gpudeck.contract.wire import Frame, Inventory, Task, Tasks, Use
from tests.unit.dashboard.fleet.test_sites import hub_viewing, layout, numbers
from tests.unit.fleets import MONO, NOW, add_node, facts, frame, tasks

GPUS = 3


def task_of(task_id: str, user: str | None, kind: Literal["compute", "mps_server"]) -> Task:
    return Task(task_id, 1, 2, None, user, "python", kind)


def user_names(fleet: Fleet) -> list[list[str | int] | None]:
    """Return who uses each GPU, with names in place of their numbers."""
    return [None if users is None else [
        fleet.owners[user] if user < len(fleet.owners) else user for user in users]
        for users in fleet.users]


def owners_view(fleet: Fleet) -> dict[str, object]:
    """Return what is shown, with names in place of their numbers, which may change."""
    view = views.owners(fleet, focus(fleet, EVERYTHING_SEEN))
    codes = memoryview(view["owner"]).cast("H").tolist()
    return {"paused": view["paused"], "owner": [
        view["names"][code] if code < len(view["names"]) else code for code in codes]}


def report(seq: int, reported: Tasks | None, mig: float | None = None) -> Frame:
    return frame([{}] * GPUS, seq=seq, tasks=reported,
                 slow=None if mig is None else [{"mig_on": mig}, {}, {}])


def changes(fleet: Fleet, act: Callable[[], object]) -> bool:
    """Return whether the version changed; it must if anything shown did."""
    version, before = fleet.owners_version, owners_view(fleet)
    act()
    is_new = fleet.owners_version != version
    assert is_new or owners_view(fleet) == before
    return is_new


def test_the_same_report_is_no_change() -> None:
    fleet = Fleet(1)
    node, pair = add_node(fleet, gpus=GPUS), tasks(("t", 0, "alice"), ("u", 1, "bob"))
    uses = pair.uses
    assert changes(fleet, lambda: fleet.frame(node, report(1, pair), NOW, MONO))
    for seq, more in enumerate((1e9, 5e9, 7e9), 2):
        reported = Tasks(False, (), tuple(Use(use.task_id, use.gpu, more, 20.0) for use in uses))
        assert not changes(fleet, lambda at=seq, message=reported: fleet.frame(  # type: ignore[misc]
            node, report(at, message), NOW, MONO))
    paused = Tasks(False, (), tuple(Use(use.task_id, use.gpu, 1e9, 0.0, "paused") for use in uses))
    assert changes(fleet, lambda: fleet.frame(node, report(7, paused), NOW, MONO))
    assert changes(fleet, lambda: fleet.frame(node, report(8, tasks()), NOW, MONO))
    assert not changes(fleet, lambda: fleet.frame(node, report(9, tasks()), NOW, MONO))


def test_a_board_that_is_split_is_a_change() -> None:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=GPUS)
    fleet.frame(node, report(1, tasks(), 0.0), NOW, MONO)
    assert changes(fleet, lambda: fleet.frame(node, report(2, None, 1.0), NOW, MONO))
    assert not changes(fleet, lambda: fleet.frame(node, report(3, None, 1.0), NOW, MONO))
    fewer = Inventory(2, (facts("n1", 0),))
    assert changes(fleet, lambda: fleet.inventory(node, fewer))


def test_whatever_is_reported_nothing_that_is_shown_is_missed() -> None:
    fleet, dice = Fleet(1), random.Random()
    nodes: list[Node] = [add_node(fleet, f"n{at}", gpus=GPUS) for at in range(3)]
    for seq in range(1, 300):
        node = dice.choice(nodes)
        if dice.random() < 0.05:
            changes(fleet, lambda at=node: fleet.dismiss(at.hello.node_id, NOW))  # type: ignore[misc]
            fleet.inventory(node, Inventory(seq, tuple(
                facts(node.hello.node_id, at) for at in range(GPUS))))
            continue
        uses = [(f"t{at}", dice.randrange(GPUS), dice.choice(["alice", "bob", None]))
               for at in range(dice.randrange(4))]
        generation = max(node.listings, default=1)
        report_now = frame([{}] * GPUS, seq=seq, tasks=tasks(*uses), generation=generation)
        changes(fleet, lambda at=node, message=report_now: fleet.frame(at, message, NOW, MONO))  # type: ignore[misc]


MARKED = ("task_count", "is_paused", "is_used", "are_users_known")


def report_of(dice: random.Random, former: tuple[Use, ...]) -> Tasks:
    """Return what a node may report: the same uses with other numbers, as a rule."""
    if not former or dice.random() < 0.2:
        began = tuple(
            task_of(f"t{dice.randrange(90)}", dice.choice(["alice", "bob", None]),
                    dice.choice(["compute", "mps_server"])) for _ in range(dice.randrange(4)))
        return Tasks(dice.random() < 0.5, began, tuple(
            Use(task.id, dice.randrange(GPUS), 9e9, 5.0) for task in began))
    return Tasks(False, (), tuple(
        Use(use.task_id, use.gpu, dice.choice([None, 1e6, 9e9]), dice.choice([None, 0.0, 5.0]),
            dice.choice(["running", "running", "paused"])) for use in former))


def test_marks_that_are_kept_are_those_that_would_be_made() -> None:
    """Numbers of uses change at every report, and what is shown of them seldom."""
    dice, fleets = random.Random(), (Fleet(1), Fleet(1))
    nodes = [(add_node(fleets[0], f"n{at}", gpus=GPUS), add_node(fleets[1], f"n{at}", gpus=GPUS))
             for at in range(3)]
    same = 0
    for seq in range(1, 600):
        pair = dice.choice(nodes)
        reported = report_of(dice, pair[0].uses)
        before = pair[0].marked
        pair[1].marked = None
        are_renumbered = dice.random() < 0.1
        for fleet, node in zip(fleets, pair, strict=True):
            if are_renumbered:
                fleet._owners_most = 1
            fleet.frame(node, report(seq, reported), NOW, MONO)
        same += pair[0].marked is before
        size = len(fleets[0])
        for name in MARKED:
            one, other = (getattr(fleet, name)[:size] for fleet in fleets)
            assert [*one] == [*other], name
        assert user_names(fleets[0]) == user_names(fleets[1])
        assert owners_view(fleets[0]) == owners_view(fleets[1])
    assert same > 20


def test_an_owner_for_whom_there_was_no_room_is_shown_when_there_is(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_table, "MAX_OWNERS", 1)
    fleet = Fleet(1)
    first, second = (add_node(fleet, name, gpus=1) for name in ("n1", "n2"))

    def say(node: Node, seq: int, reported: Tasks) -> None:
        fleet.frame(node, frame([{}], seq=seq, tasks=reported), NOW, MONO)

    say(first, 1, tasks(("t", 0, "alice")))
    say(second, 1, tasks(("u", 0, "bob")))
    assert user_names(fleet) == [["alice"], [UNKNOWN_OWNER]]
    say(first, 2, tasks())
    fleet._owners_most = 1  # as if the names of gone owners were many
    say(first, 3, tasks())
    say(second, 2, Tasks(False, (), second.uses))
    assert user_names(fleet) == [[], ["bob"]]


def test_owners_of_a_site_are_a_change() -> None:
    """A hub that only views others sent those of its start for ever."""
    machine: FleetStateMachine = hub_viewing("lyon")

    def news_of(*owners: str) -> effects.SiteHeard:
        names = tuple(dict.fromkeys(owners))
        codes = numbers(2).values[:, 0].astype("u2")
        codes[:] = [names.index(owner) for owner in owners]
        return effects.SiteHeard("lyon", layout("GPU-1", "GPU-2"), effects.SiteOwners(
            names, codes, codes > 9), numbers(2))

    machine.handle(news_of("alice", "bob"), NOW, MONO)
    assert changes(machine.fleet, lambda: machine.handle(news_of("bob", "bob"), NOW, MONO))
    assert owners_view(machine.fleet)["owner"] == ["bob", "bob"]

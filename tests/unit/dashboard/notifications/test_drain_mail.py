"""A drain is mailed to the owners of what runs there, and to nobody else."""

import random

import pytest
from msgspec.structs import replace

from dashboard.actions.lifecycle import CommandRecord, CommandStateChange
from dashboard.fleet.fleet import Fleet, Node
from dashboard.notifications.drain_mail import drain_notifications
from dashboard.notifications.owner_words import mail_of
from gpudeck.contract.actions import ActionParams, CommandActor, CommandState
from gpudeck.contract.limits import Cordon, Drain, ServiceSetting
from gpudeck.contract.repairs import WHOLE_NODE
from gpudeck.contract.wire import Inventory, Task, Tasks, Use
from tests.unit.fleets import facts, frame, hello

NOW = 1_000_000.0


@pytest.fixture
def node() -> Node:
    """Board 0 whole, board 1 split in two; ada on both, bob on an instance, and one of nobody."""
    fleet = Fleet(1)
    board = facts("n1", 1)
    gpus = (facts("n1", 0), board,
            *(replace(board, uuid=f"MIG-{at}", parent_uuid=board.uuid) for at in range(2)))
    busy_node = fleet.hello(hello(), NOW, 1.0)
    fleet.inventory(busy_node, Inventory(1, gpus))
    tasks = [Task(f"t{pid}", pid, 1, NOW, user, "python train.py") for pid, user in
             ((1, "ada"), (2, "ada"), (3, "bob"), (4, None))]
    uses = [Use(f"t{pid}", gpu, 1.0, None) for pid, gpu in ((1, 0), (2, 2), (3, 3), (4, 3))]
    fleet.frame(busy_node, frame([{}] * 4, tasks=Tasks(True, tuple(tasks), tuple(uses))), NOW, 1.0)
    return busy_node


def record(setting: ServiceSetting, *states: CommandState) -> CommandRecord:
    return CommandRecord(
        "c1", "drain", "n1", "host-n1", CommandActor("person", "ops"), "fan noise", NOW, NOW, NOW,
        ActionParams(setting=setting), states[-1],
        history=tuple(CommandStateChange(state, NOW) for state in states))


@pytest.mark.parametrize(("uuid", "task_ids"), [
    ("GPU-n1-0", {"ada": "t1"}), ("GPU-n1-1", {"ada": "t2", "bob": "t3"}),
    (WHOLE_NODE, {"ada": "t1, t2", "bob": "t3"}), ("GPU-elsewhere", {})])
def test_owners_of_what_runs_there_are_asked_once(node: Node, uuid: str,
                                                  task_ids: dict[str, str]) -> None:
    within_s = random.choice((3_600.0, 4 * 3_600.0))
    notifications = drain_notifications(record(Drain(uuid, within_s), "acting", "done"), node)
    assert {owner: one.task_id for owner, one in notifications} == task_ids
    for _, one in notifications:
        mail = mail_of("a@example.org", one, "https://deck")
        assert f"within {within_s / 3_600:.0f} h" in mail.text
        assert "fan noise" in mail.text
        assert "host-n1" in mail.subject
        assert "https://deck/work\n" in mail.text, "the page that a person with the role user has"


@pytest.mark.parametrize("states", [("acting",), ("acting", "refused"), ("done", "done")])
def test_what_came_to_nothing_or_was_told_is_not_mailed(node: Node,
                                                        states: tuple[CommandState, ...]) -> None:
    assert drain_notifications(record(Drain(WHOLE_NODE, 60.0), *states), node) == []


def test_a_cordon_asks_nobody(node: Node) -> None:
    assert drain_notifications(record(Cordon(WHOLE_NODE), "done"), node) == []
    assert drain_notifications(record(Drain(WHOLE_NODE, 60.0), "done"), None) == []

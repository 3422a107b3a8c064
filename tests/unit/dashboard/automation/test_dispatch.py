"""What is called back before it has left the hub never leaves it."""

import time
from pathlib import Path
from typing import Any

import pytest

from dashboard.actions.commander import Commander, new_id
from dashboard.actions.lifecycle import CommandRecord
from dashboard.audit.recorder import AuditRecorder
from dashboard.automation.dispatch import ActionDispatcher
from dashboard.fleet.epoch_fence import EpochFence
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from gpudeck.actions import CommandActor, Recall
from gpudeck.wire import FromHub, SignedCommand


class Wire:
    def __init__(self) -> None:
        self.here: set[str] = set()
        self.told: list[FromHub] = []

    def connected(self) -> set[str]:
        return self.here

    def send(self, node_id: str, message: FromHub) -> bool:
        if node_id in self.here:
            self.told.append(message)
        return node_id in self.here


class Signs:
    """All that it is shown."""

    epoch = 1

    def nonce(self) -> bytes:
        return bytes(32)

    def sign(self, command: Any) -> SignedCommand:
        return SignedCommand(command.command_id.encode(), bytes(64))


@pytest.mark.parametrize("is_recalled", [True, False])
@pytest.mark.parametrize("is_here", [True, False])
def test_what_waits_for_its_node_is_withdrawn_and_what_is_there_is_called_back(
    tmp_path: Path, is_recalled: bool, is_here: bool,
) -> None:
    state, wire = HubState.open(tmp_path), Wire()
    wire.here = {"n1"} if is_here else set()
    audit = AuditRecorder(state.audit, None, Dispatcher())
    commander = Commander(state.commands, audit, Signs(), EpochFence(1),  # type: ignore[arg-type]
                          wire, Dispatcher())
    hands = ActionDispatcher(None, None, commander, wire)  # type: ignore[arg-type]
    now = time.time()
    record = commander.order(CommandRecord(
        new_id(now), "end", "n1", "host", CommandActor("rule", "idle@1"), "", now, now, now + 30.0),
                             None, None, None)
    assert record.state == ("sent" if is_here else "queued")
    assert hands.busy_nodes() == {"n1"}
    if is_recalled:
        hands.recall("n1", record.id, "silenced by ada")
    wire.here.add("n1")
    commander.node_joined("n1")
    found = commander.find(record.id)
    assert found is not None
    sent = [each for each in wire.told if isinstance(each, SignedCommand)]
    recalls = [each for each in wire.told if isinstance(each, Recall)]
    assert len(sent) == (0 if is_recalled and not is_here else 1)
    assert len(recalls) == (1 if is_recalled and is_here else 0)
    if is_recalled and not is_here:
        assert found.refusal is not None
        assert (found.state, found.refusal.sentence) == ("refused", "silenced by ada")
        assert hands.busy_nodes() == set()
    state.close()

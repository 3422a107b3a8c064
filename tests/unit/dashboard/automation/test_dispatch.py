"""Commands that are called back before they have left the hub never leave it."""

import time
from pathlib import Path
from typing import Any

import pytest

from dashboard.actions.commander import Commander, new_id
from dashboard.actions.lifecycle import CommandRecord
from dashboard.actions.store import CommandsStore
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.store import AuditStore
from dashboard.automation.dispatch import ActionDispatcher
from dashboard.fleet.epoch_fence import EpochFence
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from gpudeck.contract.actions import CommandActor, Recall
from gpudeck.contract.wire import FromHub, SignedCommand


class Wire:
    def __init__(self) -> None:
        self.here: set[str] = set()
        self.messages: list[FromHub] = []

    def connected(self) -> set[str]:
        return self.here

    def send(self, node_id: str, message: FromHub) -> bool:
        if node_id in self.here:
            self.messages.append(message)
        return node_id in self.here


class WillingSigner:
    """Signer of all that it is shown."""

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
    audit = AuditRecorder(state.store(AuditStore), None, Dispatcher())
    commander = Commander(state.store(CommandsStore), audit, WillingSigner(), EpochFence(1),  # type: ignore[arg-type]
                          wire, Dispatcher())
    dispatcher = ActionDispatcher(None, None, commander, wire)  # type: ignore[arg-type]
    now = time.time()
    record = commander.order(CommandRecord(
        new_id(now), "end", "n1", "host", CommandActor("rule", "idle@1"), "", now, now, now + 30.0),
                             None, None, None)
    assert record.state == ("sent" if is_here else "queued")
    assert dispatcher.busy_nodes() == {"n1"}
    if is_recalled:
        dispatcher.recall("n1", record.id, "silenced by ada")
    wire.here.add("n1")
    commander.node_joined("n1")
    latest = commander.find(record.id)
    assert latest is not None
    commands = [message for message in wire.messages if isinstance(message, SignedCommand)]
    recalls = [message for message in wire.messages if isinstance(message, Recall)]
    assert len(commands) == (0 if is_recalled and not is_here else 1)
    assert len(recalls) == (1 if is_recalled and is_here else 0)
    if is_recalled and not is_here:
        assert latest.refusal is not None
        assert (latest.state, latest.refusal.sentence) == ("refused", "silenced by ada")
        assert dispatcher.busy_nodes() == set()
    state.close()

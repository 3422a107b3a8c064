import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.backends import SIMULATED
from agent.capability import Capability
from agent.journal.store import ActionStore
from agent.link.identity import NodeIdentity, node_key
from agent.link.outbox import Outbox
from agent.link.outbox_file import OutboxFile
from agent.node import NodeLoop, build_node
from agent.node_config import NodeConfig
from agent.reader.inbox import ReaderInbox
from agent.readings import OnDemandReading
from gpudeck.contract.actions import CommandState, Reply
from gpudeck.contract.wire import FromAgent


class Conversation:
    """Conversation that notes what is asked of it."""

    def __init__(self, calls: list[str], is_live: bool) -> None:
        self.is_live = is_live
        self._calls = calls

    def receive(self, now: float) -> None:
        self._calls.append("receive")

    def step(self, now: float) -> None:
        self._calls.append("connection")

    def send(self, message: FromAgent) -> None:
        self._calls.append(f"send {type(message).__name__}")

    def end_turn(self, now: float) -> None:
        self._calls.append("end of turn")

    def next_step_at(self, now: float) -> float:
        return now + 9.0

    def close(self) -> None:
        self._calls.append("close connection")


def a_loop(calls: list[str], is_live: bool, *capabilities: Capability) -> NodeLoop:
    conversation: Any = Conversation(calls, is_live)
    return NodeLoop(lambda now: calls.append("read"), conversation, capabilities)


def a_capability(calls: list[str], name: str, *messages: FromAgent, due_s: float = 99.0
                 ) -> Capability:
    return Capability(
        name=name, step=lambda now, is_live: calls.append(f"step {name}"),
        poll=lambda now: messages, note_outcome=lambda: calls.append(f"outcome {name}"),
        due_at=lambda: due_s, close=lambda: calls.append(f"close {name}"))


def a_reply(state: CommandState) -> Reply:
    return Reply("c" * 32, 1, state, time.time(), "")


def test_a_turn_receives_reads_steps_and_sends_in_order() -> None:
    calls: list[str] = []
    node = a_loop(calls, True, a_capability(calls, "acts", a_reply("accepted")),
                  a_capability(calls, "pool", a_reply("accepted")))
    node.step(1.0)
    assert calls == ["receive", "read", "connection", "step acts", "step pool", "send Reply",
                     "send Reply", "end of turn"]


def test_nothing_is_asked_for_messages_without_a_connection() -> None:
    calls: list[str] = []
    a_loop(calls, False, a_capability(calls, "acts", a_reply("done"))).step(1.0)
    assert calls == ["receive", "read", "connection", "step acts", "end of turn"]


@pytest.mark.parametrize(("state", "is_noted"), [("done", True), ("accepted", False)])
def test_all_learn_of_an_outcome_once_it_is_sent(state: CommandState, is_noted: bool) -> None:
    calls: list[str] = []
    a_loop(calls, True, a_capability(calls, "acts", a_reply(state)),
           a_capability(calls, "limits")).step(1.0)
    outcomes = ["outcome acts", "outcome limits"] if is_noted else []
    assert calls[calls.index("send Reply"):] == ["send Reply", *outcomes, "end of turn"]


def test_capabilities_close_in_the_order_of_the_list_and_the_connection_last() -> None:
    calls: list[str] = []
    a_loop(calls, True, *(a_capability(calls, name) for name in "abc")).close()
    assert calls == ["close a", "close b", "close c", "close connection"]


def test_the_wait_ends_when_a_capability_is_due_while_connected() -> None:
    calls: list[str] = []
    capabilities = a_capability(calls, "a", due_s=100.5), a_capability(calls, "b", due_s=101.0)
    assert a_loop(calls, True, *capabilities).wait_s(100.0) == 0.5
    assert a_loop(calls, False, *capabilities).wait_s(100.0) == 1.25
    assert a_loop(calls, True, *capabilities).wait_s(102.0) == 0.0


class SilentSource(ReaderInbox):
    """Source without any reading."""

    pids: frozenset[int] = frozenset()

    def readers_of(self, uuid: str) -> frozenset[int]:
        return self.pids

    def fresh(self, timeout_s: float) -> OnDemandReading | None:
        return None

    def close(self) -> None:
        """Do nothing: nothing is open."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeLoop]:
    with (closing(ActionStore(tmp_path / "acts.db")) as acts,
          closing(OutboxFile(tmp_path / "journal.db")) as journal):
        config = NodeConfig((), lambda _: None, NodeIdentity(node_key(tmp_path), ""), "host",
                            SIMULATED, "0" * 36, tmp_path, acts, own_hold_files=())
        yield build_node(config, SilentSource(), Outbox(journal), lambda: None)


def test_what_acts_is_closed_before_what_sets_limits_and_leases(node: NodeLoop) -> None:
    names = [capability.name for capability in node._capabilities]
    assert names[:5] == ["actions", "quotas", "limits", "memory limits", "pool"]
    assert len(names) == len({*names})
    node.close()


def test_a_node_alone_turns_without_a_hub(node: NodeLoop) -> None:
    node.step(time.monotonic())
    assert 0.0 < node.wait_s(time.monotonic()) <= 1.25
    node.close()

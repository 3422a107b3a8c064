"""A transport that doubles, reorders, delays, replays and delivers to the wrong node: each command
is carried out once, or refused for a reason that is documented."""

import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.actions import guard
from agent.actions.execute import ActionExecutor
from agent.actions.hub_record import HubRecord
from agent.actions.kinds.execution import ActionTimeouts
from agent.actions.preview import preview
from agent.actions.replies import ReplyOutbox
from agent.actions.service import CommandService
from agent.actions.wiring import command_handlers
from agent.journal.store import ActionJournal, ActionStore
from agent.runtime.action_lock import ActionLock
from agent.tasks.people import SystemPeople
from agent.tasks.terminals import TerminalReach
from gpudeck.audit.chain import verify
from gpudeck.contract.actions import FINAL, ActionParams, Command, CommandActor, Preview, Reply
from gpudeck.contract.wire import (
    Clock,
    Look,
    SignedCommand,
    Time,
    command_statement,
    encode_command,
    preview_statement,
)
from gpudeck.network.keys import SigningKey, fingerprint
from tests.fakes.children import Child, Children, a_ceiling
from tests.fakes.contexts import a_context
from tests.fakes.hub import wait_for

DELIVERIES = int(os.environ.get("GPUDECK_DELIVERIES")
                 or ("10000" if os.environ.get("CI") else "2000"))
SOAK_DELIVERIES = int(os.environ.get("GPUDECK_SOAK_DELIVERIES", "1000000"))
COMMANDS = 240
ENDS = 12  # of them, on real tasks; the others tell the owner of one
WAITING = 24  # the service lets 32 wait


@dataclass
class Node:
    """A CommandService as the agent has it, whose messages the test delivers."""

    folder: Path
    hub: SigningKey
    children: Children
    key: SigningKey = field(default_factory=lambda: SigningKey(secrets.token_bytes(32)))
    replies: dict[str, list[Reply]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o700)
        self.id = fingerprint(self.key.public)
        self.store = ActionStore(self.folder / "acts.db", durable=False)
        self.journal = ActionJournal(self.store)
        replies = ReplyOutbox(self.journal, lambda: None)
        hub = HubRecord(self.journal, fingerprint(self.hub.public), (), None, replies)
        self.context = a_context(
            self.children, self.journal, a_ceiling(self.folder, kills_per_hour=10**6), self.id,
            hub.holds)
        self.commands = CommandService(
            self.key, ActionLock(self.folder), self.context, self.journal, hub, replies,
            keeps_anchors=True, timeouts=ActionTimeouts(5.0, 1.0))
        self.handlers = command_handlers(self.commands)
        hub.accept_key(self.hub.public)
        self.commands.connected(1, time.monotonic())
        wait_for(self.knows_the_time)

    def knows_the_time(self) -> bool:
        self.pump()
        return self.commands._clock.at(time.monotonic()) is not None

    def pump(self) -> None:
        now = time.monotonic()
        for message in self.commands.say(now):
            if isinstance(message, Reply):
                self.replies.setdefault(message.command_id, []).append(message)
            elif isinstance(message, Clock):
                self.handlers[Time](Time(message.clock_id, time.time()), now)

    def receive(self, message: SignedCommand) -> None:
        self.handlers[SignedCommand](message, time.monotonic())

    def rest(self) -> None:
        """Wait until no command is judged or carried out any more."""
        wait_for(lambda: self.commands.is_idle, 120)
        self.pump()

    def show(self, child: Child, action: Any) -> Preview:
        draft = preview(self.context,
                        Look(secrets.token_hex(4), secrets.token_bytes(32), action,
                             ActionParams(grace_s=5.0), child.task_id))
        assert draft.refusals == ()
        draft = msgspec.structs.replace(draft, key=self.key.public)
        return msgspec.structs.replace(draft, signature=self.key.sign(preview_statement(draft)))

    def order(self, approved: Preview, lasts_s: float) -> Command:
        now = time.time()
        return Command(secrets.token_hex(16), self.id, 1, now, now + lasts_s, approved.nonce,
                       approved.action, CommandActor("person", "test"), "because of a test",
                       approved)


@dataclass
class Stage:
    hub: SigningKey
    children: Children
    nodes: list[Node]
    executed: Counter[str]
    neighbour: Child

    def signed(self, command: Command) -> SignedCommand:
        body = encode_command(command)
        return SignedCommand(body, self.hub.sign(command_statement(body)))


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    # Not at the terminals of people who run the tests.
    monkeypatch.setattr(SystemPeople, "notify", lambda *_: TerminalReach(terminals=1))
    executed: Counter[str] = Counter()
    real = ActionExecutor.act

    def count(self: ActionExecutor, command: Command, accepted: Reply) -> Reply:
        executed[command.command_id] += 1
        return real(self, command, accepted)

    monkeypatch.setattr(ActionExecutor, "act", count)
    hub, children = SigningKey(secrets.token_bytes(32)), Children()
    try:
        nodes = [Node(tmp_path / name, hub, children) for name in ("a", "b")]
        yield Stage(hub, children, nodes, executed, children.start())
        for node in nodes:
            node.commands.close()
            node.store.close()
    finally:
        children.close()


def scrambled(messages: list[SignedCommand], deliveries: int) -> list[SignedCommand]:
    """Repeat messages at random, each at least once, in any order."""
    repeats = random.choices(messages, k=deliveries - len(messages))
    random.shuffle(stream := messages + repeats)
    return stream


def deliver(stage: Stage, deliveries: int) -> Counter[str]:
    """Deliver commands to both nodes, whichever they are for. Return how the commands ended."""
    victims = [stage.children.start() for _ in range(ENDS)]
    commands: list[Command] = []
    batch = WAITING - WAITING % 2
    per_batch = max(deliveries * batch // COMMANDS, 2 * batch)
    for at in range(0, COMMANDS, batch):
        fresh = []
        for number in range(at, min(at + batch, COMMANDS)):
            node = stage.nodes[number % 2]
            is_end = number % (COMMANDS // ENDS) == 0
            child = victims[number // (COMMANDS // ENDS)] if is_end else stage.neighbour
            approved = node.show(child, "end" if is_end else "notify")
            # One in five is delayed until it is too late.
            lasts_s = 20.0 if is_end or random.random() < 0.8 else -1.0
            fresh.append(node.order(approved, lasts_s))
        commands += fresh
        old = random.sample(commands, min(len(commands), batch))  # of earlier batches: a replay
        stream = scrambled([stage.signed(command) for command in [*fresh, *old]], per_batch)
        for number, message in enumerate(stream):
            random.choice(stage.nodes).receive(message)
            if number % 100 == 99:  # a service with more than 256 to judge drops the rest
                for node in stage.nodes:
                    node.rest()
        for command in fresh:  # and once, to be sure, where it belongs
            own_node = stage.nodes[0 if command.node_id == stage.nodes[0].id else 1]
            own_node.receive(stage.signed(command))
        for node in stage.nodes:
            node.rest()
    return Counter(check_one(stage, command) for command in commands)


def check_one(stage: Stage, command: Command) -> str:
    """Check for one outcome, at the node that it was for, and only refusals at the other."""
    mine, other = stage.nodes if command.node_id == stage.nodes[0].id else stage.nodes[::-1]
    final = {(reply.number, reply.state) for reply in mine.replies[command.command_id]
             if reply.state in FINAL}
    assert len(final) == 1, final
    [(_, state)] = final
    assert stage.executed[command.command_id] == (state not in ("expired", "refused"))
    strays = {reply.refusal.code for reply in other.replies.get(command.command_id, [])
              if reply.refusal is not None}
    assert strays <= {"node"}, strays
    return state


def check(stage: Stage, deliveries: int) -> None:
    outcomes = deliver(stage, deliveries)
    print(f"{deliveries} deliveries of {COMMANDS} commands: {dict(outcomes)}")
    assert outcomes.total() == COMMANDS
    assert set(outcomes) == {"done", "expired"}
    assert outcomes["done"] >= ENDS
    assert outcomes["expired"] > COMMANDS / 20
    killed = [child for child in stage.children.all if not child.is_alive()]
    assert len(killed) == ENDS
    assert stage.neighbour.is_alive()
    for node in stage.nodes:
        assert verify(node.journal.audit.links()) is None
        intents = sum('"intent":true' in link.body for link in node.journal.audit.links())
        assert intents == sum(stage.executed[command_id] for command_id in node.replies if any(
            reply.state == "accepted" for reply in node.replies[command_id]))


def test_doubled_reordered_delayed_replayed_and_to_the_wrong_node(stage: Stage) -> None:
    check(stage, DELIVERIES)


@pytest.mark.soak
def test_a_million_deliveries(stage: Stage) -> None:
    check(stage, SOAK_DELIVERIES)


def test_without_a_journal_that_knows_them_they_would_be_done_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control arm: the guard is what the first test rests on."""
    monkeypatch.setattr(ActionJournal, "find_command", lambda *_: None)
    monkeypatch.setattr(ActionJournal, "is_spent", lambda *_: False)
    monkeypatch.setattr(ActionJournal, "record_first", lambda self, command, digest, reply: reply)
    node = stage.nodes[0]
    command = node.order(node.show(stage.neighbour, "notify"), 20.0)
    for _ in range(5):
        node.receive(stage.signed(command))
    node.rest()
    assert stage.executed[command.command_id] > 1

"""The life of a command against a transport that loses, doubles, reorders and delays, a disk that
fails and a hub that is killed: whatever happens, at most one execution and no false outcome."""

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dashboard.actions.lifecycle import (
    ASKED_FOR_S,
    REACHABLE,
    CommandLifecycle,
    CommandRecord,
    Effect,
    SaveCommandRecord,
    SendCommandMessage,
)
from gpudeck.contract.actions import (
    COMMAND_LASTS_S,
    FINAL,
    LIFE,
    ActionVerification,
    CommandActor,
    CommandState,
    Refusal,
    Reply,
)
from gpudeck.contract.wire import FromHub, Inquire, Noted, SignedCommand

NODE = "n1"
T0 = 1_700_000_000.0
OUTCOMES: tuple[CommandState, ...] = ("done", "not_effective", "unkillable", "unknown", "refused")


def record(command_id: str, now: float, node_id: str = NODE) -> CommandRecord:
    return CommandRecord(command_id, "end", node_id, "host", CommandActor("person", "ops"), "why",
                         now,
                         now, now + COMMAND_LASTS_S)


def signed(command_id: str) -> SignedCommand:
    return SignedCommand(command_id.encode(), bytes(64))


@dataclass
class Node:
    """Agent that keeps the promises: it runs each command once, repeats its newest Reply until that
    is noted, and never runs a command that it was asked about before it had it."""

    executed: dict[str, int] = field(default_factory=dict)
    replies: dict[str, Reply] = field(default_factory=dict)
    noted_numbers: dict[str, int] = field(default_factory=dict)
    history: dict[str, list[str]] = field(default_factory=dict)

    def receive(self, message: FromHub, now: float, expires_at: float) -> list[Reply]:
        match message:
            case SignedCommand():
                command_id = message.body.decode()
                if command_id in self.replies:
                    return [self.replies[command_id]]
                if now > expires_at:
                    return [self._reply(command_id, "expired", now)]
                self.executed[command_id] = self.executed.get(command_id, 0) + 1
                return [self._reply(command_id, "accepted", now)]
            case Inquire():
                return [self.replies.get(command_id) or self._reply(command_id, "expired", now)
                        for command_id in message.command_ids]
            case Noted():
                self.noted_numbers[message.command_id] = max(
                    message.number, self.noted_numbers.get(message.command_id, 0))
        return []

    def go_on(self, command_id: str, outcome: CommandState, now: float) -> Reply | None:
        last = self.replies[command_id]
        if last.state == "accepted":
            return self._reply(command_id, "acting", now)
        return self._reply(command_id, outcome, now) if last.state == "acting" else None

    def _reply(self, command_id: str, state: CommandState, now: float) -> Reply:
        before = self.replies.get(command_id)
        reply = Reply(command_id, 1 if before is None else before.number + 1, state, now)
        self.replies[command_id] = reply
        self.history.setdefault(command_id, []).append(state)
        return reply


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = T0
        self.hub = CommandLifecycle()
        self.disk: dict[str, CommandRecord] = {}
        self.node = Node()
        self.is_connected = True
        self.is_disk_full = False
        self.to_node: list[FromHub] = []
        self.to_hub: list[Reply] = []
        self.send_counts: dict[str, int] = {}
        self.command_count = 0

    # -- the edge, as dashboard/actions/commander.py is

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SaveCommandRecord():
                    if self.is_disk_full:
                        return
                    self.disk[effect.record.id] = effect.record
                    self.hub.record_saved(effect.record, self.now)
                case SendCommandMessage():
                    if isinstance(effect.message, SignedCommand):
                        command_id = effect.message.body.decode()
                        assert self.disk[command_id].state == "sent", "recorded before it is sent"
                        self.send_counts[command_id] = self.send_counts.get(command_id, 0) + 1
                    if self.is_connected:
                        self.to_node.append(effect.message)

    @initialize(seed=st.integers(0, 2**32))
    def seed(self, seed: int) -> None:
        self.random = random.Random(seed)

    @rule(is_refused=st.booleans())
    def order(self, is_refused: bool) -> None:
        self.command_count += 1
        command_id = f"c{self.command_count}"
        self.run(self.hub.request(record(command_id, self.now)))
        if command_id not in self.hub.records:
            return
        if is_refused:
            self.run(self.hub.refuse(command_id, Refusal("signer", "no"), self.now))
        else:
            self.run(self.hub.signed(command_id, signed(command_id), self.is_connected, self.now))

    @rule(seconds=st.sampled_from([0.1, 1.0, 7.0, 40.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.run(self.hub.tick(self.now, {NODE} if self.is_connected else ()))

    @precondition(lambda self: self.to_node)
    @rule(twice=st.booleans())
    def deliver_to_node(self, twice: bool) -> None:
        message = self.to_node.pop(self.random.randrange(len(self.to_node)))
        for _ in range(1 + twice):
            expires_at = T0
            if isinstance(message, SignedCommand):
                expires_at = self.disk[message.body.decode()].expires_at
            self.to_hub += self.node.receive(message, self.now, expires_at)

    @precondition(lambda self: self.to_hub)
    @rule(twice=st.booleans())
    def deliver_to_hub(self, twice: bool) -> None:
        reply = self.to_hub.pop(self.random.randrange(len(self.to_hub)))
        for _ in range(1 + twice):
            self.run(self.hub.replied(NODE, reply, self.now, self.disk.get(reply.command_id)))

    @rule(share=st.floats(0, 1))
    def lose(self, share: float) -> None:
        self.to_node = [message for message in self.to_node if self.random.random() > share]
        self.to_hub = [reply for reply in self.to_hub if self.random.random() > share]

    @precondition(lambda self: self.node.executed)
    @rule(outcome=st.sampled_from(OUTCOMES))
    def act(self, outcome: CommandState) -> None:
        command_id = self.random.choice(sorted(self.node.executed))
        reply = self.node.go_on(command_id, outcome, self.now)
        if reply is not None and self.is_connected:
            self.to_hub.append(reply)

    @rule()
    def repeat_replies(self) -> None:
        """Repeat the replies that the hub has not noted."""
        if self.is_connected:
            self.to_hub += [reply for command_id, reply in self.node.replies.items()
                            if self.node.noted_numbers.get(command_id, 0) < reply.number]

    @rule()
    def break_off(self) -> None:
        self.is_connected = False
        self.to_node.clear()
        self.to_hub.clear()

    @rule()
    def connect(self) -> None:
        self.is_connected = True
        self.run(self.hub.node_joined(NODE, self.now))

    @rule(full=st.booleans())
    def disk_state(self, full: bool) -> None:
        self.is_disk_full = full

    @precondition(lambda self: not self.is_disk_full)
    @rule()
    def kill_the_hub(self) -> None:
        self.break_off()
        self.hub = CommandLifecycle()
        self.run(self.hub.recovered(
            [saved for saved in self.disk.values() if saved.is_pending(self.now)], self.now))

    @invariant()
    def at_most_once(self) -> None:
        assert all(count == 1 for count in self.send_counts.values()), "notified twice"
        assert all(count == 1 for count in self.node.executed.values()), "done twice"

    @invariant()
    def nothing_is_made_up(self) -> None:
        for saved in self.disk.values():
            reported_states = self.node.history.get(saved.id, [])
            if saved.state in ("done", "not_effective", "unkillable", "accepted", "acting"):
                assert saved.state in reported_states, "nobody said so"
            if saved.state in ("refused", "expired") and saved.id in self.node.executed:
                assert saved.state in reported_states, "it ran, and was said not to have"
            states = [moment.state for moment in saved.history]
            assert states[0] == "requested"
            for before, after in pairwise(states):
                assert after in REACHABLE[before]

    @invariant()
    def what_is_noted_is_on_the_disk(self) -> None:
        for command_id, number in self.node.noted_numbers.items():
            assert self.disk[command_id].number >= number

    def teardown(self) -> None:
        """Once all is well again, every command gets its outcome, and it is the node's."""
        self.is_disk_full = False
        self.connect()
        for _ in range(60):
            self.wait(30.0)
            for command_id in self.node.executed:
                reply = self.node.go_on(command_id, "done", self.now)
                self.to_hub += [] if reply is None else [reply]
            self.repeat_replies()
            while self.to_node or self.to_hub:
                if self.to_node:
                    self.deliver_to_node(False)
                else:
                    self.deliver_to_hub(False)
        self.at_most_once()
        self.nothing_is_made_up()
        for saved in self.disk.values():
            assert saved.state in FINAL
            if saved.id in self.node.executed:
                assert saved.state == self.node.replies[saved.id].state, saved


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=60, deadline=None,
                             suppress_health_check=list(HealthCheck))


def test_outcomes_are_the_contract_s() -> None:
    assert {state for state, after in REACHABLE.items() if not after} | {"unknown"} == FINAL
    assert "done" in REACHABLE["sent"]
    assert "acting" not in REACHABLE["unknown"]
    assert all(set(after) <= REACHABLE[state] for state, after in LIFE.items())


class Edge:
    def __init__(self) -> None:
        self.hub, self.messages = CommandLifecycle(), list[FromHub]()

    def run(self, effects: list[Effect], now: float) -> None:
        for effect in effects:
            if isinstance(effect, SaveCommandRecord):
                self.hub.record_saved(effect.record, now)
            else:
                self.messages.append(effect.message)


def edge_with_sent_command() -> Edge:
    edge = Edge()
    edge.run(edge.hub.request(record("c1", T0)), T0)
    edge.run(edge.hub.signed("c1", signed("c1"), True, T0), T0)
    return edge


@pytest.mark.parametrize("state", [state for state in LIFE if state not in ("requested",)])
def test_another_node_s_word_changes_nothing(state: CommandState) -> None:
    edge = edge_with_sent_command()
    before = edge.hub.records["c1"]
    effects = edge.hub.replied("another", Reply("c1", 9, state, T0), T0)
    assert not [effect for effect in effects if isinstance(effect, SaveCommandRecord)]
    assert edge.hub.records["c1"] == before


def test_an_older_reply_counts_for_nothing() -> None:
    edge = edge_with_sent_command()
    edge.run(edge.hub.replied(NODE, Reply("c1", 2, "acting", T0), T0), T0)
    effects = edge.hub.replied(NODE, Reply("c1", 1, "accepted", T0), T0)
    assert effects == [SendCommandMessage(NODE, Noted("c1", 1))]


def test_what_was_seen_is_kept_also_when_the_outcome_is_known() -> None:
    edge = edge_with_sent_command()
    verification = ActionVerification(True, True, None)
    [save, _] = edge.hub.replied(NODE, Reply("c1", 3, "done", T0, verified=verification), T0)
    assert isinstance(save, SaveCommandRecord)
    assert (save.record.state, save.record.verified) == ("done", verification)


def test_who_was_away_when_it_was_signed_gets_it_once_and_in_time() -> None:
    edge = Edge()
    edge.run(edge.hub.request(record("c1", T0)), T0)
    edge.run(edge.hub.signed("c1", signed("c1"), False, T0), T0)
    assert edge.messages == []
    edge.run(edge.hub.node_joined(NODE, T0 + 5), T0 + 5)
    assert edge.messages == [signed("c1")]
    edge.run(edge.hub.node_joined(NODE, T0 + 6), T0 + 6)
    assert edge.messages[1:] == [Inquire(("c1",))]


def test_it_is_not_asked_for_ever() -> None:
    edge = edge_with_sent_command()
    late = T0 + COMMAND_LASTS_S + 10
    edge.run(edge.hub.tick(late, ()), late)
    assert edge.hub.records["c1"].state == "unknown"
    edge.hub.tick(T0 + ASKED_FOR_S + 100, (NODE,))
    assert edge.hub.records == {}

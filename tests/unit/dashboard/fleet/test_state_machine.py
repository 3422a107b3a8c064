"""State machine of the fleet: events in, effects out; and what it keeps over a restart."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from dashboard.fleet import views
from dashboard.fleet.effects import (
    CloseLink,
    Effect,
    LinkClosed,
    MessageReceived,
    RateExceeded,
    RecordsStored,
    SendMessage,
    StorageFailed,
    StreamRecord,
    Tick,
)
from dashboard.fleet.fleet import GpuStatus
from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.nodes.checkpoint import encode_nodes, restore
from gpudeck.contract.wire import (
    MAX_SPANS,
    Ack,
    Backfill,
    Beat,
    Echo,
    Event,
    FromAgent,
    Inventory,
    Probe,
    Refused,
    Span,
    Welcome,
    WireError,
    encode,
)
from gpudeck.measures.metrics import COLUMN
from tests.unit.fleets import MONO, NOW, facts, frame, hello, task_views, tasks


class AgentLink:
    """Connection of an agent to a hub's state machine, with a separate clock."""

    def __init__(self, machine: FleetStateMachine, link: str = "a", node_id: str = "n1",
                 stream: str = "s1", mono: float = MONO, **fields: Any) -> None:
        self.machine, self.link, self.mono = machine, link, mono
        self.effects = self.send(replace(hello(node_id, stream), **fields))
        if not any(isinstance(effect, CloseLink) and effect.link == link
                   for effect in self.effects):
            self.effects += self.send(Inventory(1, (facts(node_id, 0), facts(node_id, 1))))

    def send(self, message: FromAgent) -> list[Effect]:
        return self.machine.handle(MessageReceived(self.link, message, encode(message)),
                                NOW + self.mono - MONO,
                                self.mono)

    def tick(self, seq: int, util: float = 1.0) -> list[Effect]:
        return self.send(frame([{"util_pct": util}] * 2, seq=seq, taken_at=NOW + self.mono - MONO,
                               tasks=tasks(("t", 0, "alice"))))

    def messages(self, kind: type, effects: list[Effect] | None = None) -> list[object]:
        searched = self.effects if effects is None else effects
        return [effect.message for effect in searched
                if isinstance(effect, SendMessage) and isinstance(effect.message, kind)]


def records(effects: list[Effect]) -> tuple[StreamRecord, ...]:
    return tuple(effect for effect in effects if isinstance(effect, StreamRecord))


def acks(effects: list[Effect]) -> list[int]:
    return [effect.message.seq for effect in effects
            if isinstance(effect, SendMessage) and isinstance(effect.message, Ack)]


def ack_messages(effects: list[Effect]) -> list[Ack]:
    return [effect.message for effect in effects
            if isinstance(effect, SendMessage) and isinstance(effect.message, Ack)]


def test_a_hello_is_welcomed_and_probed() -> None:
    agent = AgentLink(FleetStateMachine("hub", 7))
    [welcome] = agent.messages(Welcome)
    assert isinstance(welcome, Welcome)
    assert (welcome.hub_id, welcome.epoch, welcome.acked_seq) == ("hub", 7, 0)
    [probe] = agent.messages(Probe)
    assert isinstance(probe, Probe)
    agent.mono += 0.2
    agent.send(Echo(probe.probe_id, NOW + 50.1))
    assert agent.machine.fleet.nodes["n1"].clock_offset_s == pytest.approx(50.0)
    agent.send(Echo(probe.probe_id, NOW + 9_999))  # the same answer again counts no more
    assert agent.machine.fleet.nodes["n1"].clock_offset_s == pytest.approx(50.0)


def test_only_what_is_new_is_recorded_and_told() -> None:
    agent = AgentLink(FleetStateMachine("hub", 1))
    for seq, is_new in ((1, True), (2, True), (2, False), (1, False), (3, True)):
        effects = agent.tick(seq)
        assert [record.seq for record in records(effects)] == ([seq] if is_new else [])
    assert agent.send(Event(3, NOW, "gpu_lost")) == []


def test_an_ack_goes_out_when_the_disk_has_it() -> None:
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    batches = [records(agent.tick(seq)) for seq in (1, 2, 3)]
    assert acks(machine.handle(RecordsStored(batches[0] + batches[1]), NOW, MONO)) == [2]
    assert acks(machine.handle(RecordsStored(batches[2]), NOW, MONO)) == [3]
    assert acks(machine.handle(RecordsStored(batches[2]), NOW, MONO)) == []


def test_a_reconnect_is_told_what_is_on_disk_not_what_was_heard() -> None:
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    batches = [records(agent.tick(seq)) for seq in (1, 2, 3)]
    machine.handle(RecordsStored(batches[0]), NOW, MONO)
    machine.handle(LinkClosed("a"), NOW, MONO)
    [welcome] = AgentLink(machine, "b").messages(Welcome)
    assert isinstance(welcome, Welcome)
    assert welcome.acked_seq == 1


def test_what_did_not_fit_is_asked_for_again_and_never_acked() -> None:
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    batches = [records(agent.tick(seq)) for seq in (1, 2, 3, 4)]
    machine.handle(StorageFailed("no space", batches[1]), NOW, MONO)
    assert machine.fleet.disk_error == "no space"
    effects = machine.handle(RecordsStored(batches[0] + batches[2] + batches[3]), NOW, MONO)
    assert acks(effects) == [1]
    assert [effect.link for effect in effects if isinstance(effect, CloseLink)] == ["a"]
    assert machine.fleet.disk_error is None
    machine.handle(LinkClosed("a"), NOW, MONO)
    second = AgentLink(machine, "b")
    [welcome] = second.messages(Welcome)
    assert isinstance(welcome, Welcome)
    assert welcome.acked_seq == 1
    resent = records(second.tick(2))
    assert len(resent) == 1
    assert records(second.tick(3)) == ()
    assert acks(machine.handle(RecordsStored(resent), NOW, MONO)) == [4]


def test_what_the_agent_has_lost_too_is_not_awaited() -> None:
    """The agent's Beat says that it has lost it; before that, it is awaited."""
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    batches = [records(agent.tick(seq)) for seq in (1, 2)]
    machine.handle(StorageFailed("no space", batches[1]), NOW, MONO)
    machine.handle(RecordsStored(batches[0]), NOW, MONO)
    later = records(agent.tick(9))
    [ack] = ack_messages(machine.handle(RecordsStored(later), NOW, MONO))
    assert (ack.seq, ack.spans) == (1, (Span(9, 9),))
    agent.send(Beat("ok", 0.0, 1, 6, first_seq=9))
    assert acks(machine.handle(RecordsStored(records(agent.tick(10))), NOW, MONO)) == [10]
    assert machine.streams.of("n1")["s1"].ledger.missing == 7


def backfill(*seqs: int) -> Backfill:
    return Backfill(tuple(encode(frame([{"util_pct": 99.0}] * 2, seq=seq, taken_at=NOW - 900 + seq))
                          for seq in seqs))


def test_what_is_made_up_for_is_history_and_nothing_else() -> None:
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    stored = records(agent.tick(40, util=12.0))
    effects = agent.send(backfill(1, 2, 3))
    assert [(record.seq, record.is_backfill) for record in records(effects)] == [
        (1, True), (2, True), (3, True)]
    assert machine.fleet.values[0, COLUMN["util_pct"]] == 12.0
    [ack] = ack_messages(machine.handle(RecordsStored(stored + records(effects)), NOW, MONO))
    assert (ack.seq, ack.spans) == (3, (Span(40, 40),))
    # The control: what is live is the picture.
    [live] = records(agent.tick(41, util=13.0))
    assert not live.is_backfill
    assert machine.fleet.values[0, COLUMN["util_pct"]] == 13.0


def test_a_backfill_that_comes_first_does_not_make_the_picture() -> None:
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    agent.send(backfill(1, 2, 3))
    assert machine.fleet.nodes["n1"].frame is None


def test_what_is_brought_again_is_acked_again() -> None:
    """The ack for it may have gone with the connection, and nothing new follows."""
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    machine.handle(RecordsStored(records(agent.send(backfill(1, 2, 3)))), NOW, MONO)
    effects = agent.send(backfill(2, 3))
    assert records(effects) == ()
    assert acks(effects) == [3]


def test_a_reconnect_is_told_of_the_gaps() -> None:
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    machine.handle(RecordsStored(records(agent.tick(5)) + records(agent.tick(6))), NOW, MONO)
    [welcome] = AgentLink(machine, "b").messages(Welcome)
    assert isinstance(welcome, Welcome)
    assert (welcome.acked_seq, welcome.spans) == (0, (Span(5, 6),))


def test_more_gaps_than_fit_into_an_ack() -> None:
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    for seq in range(2, 400, 2):
        batch = records(agent.send(backfill(seq)))
        [ack] = ack_messages(machine.handle(RecordsStored(batch), NOW, MONO))
    assert len(ack.spans) == MAX_SPANS
    assert ack.spans[-1] == Span(398, 398)


@pytest.mark.parametrize("step_s", [7_200.0, -7_200.0, 900.0, -30.0])
def test_a_node_whose_clock_steps_is_asked_and_fresh_again_at_once(step_s: float) -> None:
    """Frames of that node go to disk as measured, meanwhile too."""
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    [probe] = agent.messages(Probe)
    assert isinstance(probe, Probe)
    agent.send(Echo(probe.probe_id, NOW))
    agent.mono += 2
    assert agent.messages(Probe, agent.tick(1)) == []  # the control

    def send_stepped(seq: int) -> list[Effect]:
        return agent.send(frame([{"util_pct": 1.0}] * 2, seq=seq,
                                taken_at=NOW + agent.mono - MONO + step_s))

    agent.mono += 1
    effects = send_stepped(2)
    [new_probe] = agent.messages(Probe, effects)
    assert isinstance(new_probe, Probe)
    assert [record.seq for record in records(effects)] == [2]
    agent.send(Echo(new_probe.probe_id, NOW + agent.mono - MONO + step_s))
    agent.mono += 1
    effects = send_stepped(3)
    assert agent.messages(Probe, effects) == []
    assert machine.fleet.statuses(agent.mono)[0] == GpuStatus.OK
    assert machine.fleet.nodes["n1"].newest[1] == 3


@pytest.mark.parametrize("late_s", [-0.9, 0.9])
@pytest.mark.parametrize("phase", [0.05, 0.4, 0.9])
def test_a_probe_that_took_long_moves_no_sample_into_another_second(phase: float, late_s: float
                                                                    ) -> None:
    """`late_s`: the time that the answer took; negative: that the Probe took to get there."""
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)

    def answer(probe: object, taken_s: float) -> None:
        assert isinstance(probe, Probe)
        agent.send(Echo(probe.probe_id, NOW + agent.mono - MONO - max(0.0, taken_s)))

    answer(agent.messages(Probe)[0], 0.0)
    seconds = []
    for second in range(35):
        agent.mono = MONO + second + phase
        seconds += [record.second for record in records(agent.tick(second + 1))]
        is_slow = second == 10
        agent.mono += 0.01
        for probe in agent.messages(Probe, machine.probes(NOW + agent.mono - MONO, agent.mono)):
            agent.mono += abs(late_s) if is_slow else 0.001
            answer(probe, late_s if is_slow else 0.0005)
    assert seconds == [*range(seconds[0], seconds[0] + 35)]


def test_a_clock_that_steps_is_followed_though_its_answer_took_long() -> None:
    agent = AgentLink(FleetStateMachine("hub", 1))
    [probe] = agent.messages(Probe)
    for offset_s, taken_s in ((0.0, 0.01), (50.0, 2.0)):
        assert isinstance(probe, Probe)
        agent.mono += taken_s
        agent.send(Echo(probe.probe_id, NOW + agent.mono - MONO - taken_s / 2 + offset_s))
        node = agent.machine.fleet.nodes["n1"]
        assert node.clock_offset_s == pytest.approx(offset_s)
        agent.mono += 10.0
        [probe] = agent.messages(Probe, agent.machine.probes(NOW + agent.mono - MONO, agent.mono))


def test_the_newer_connection_wins() -> None:
    machine = FleetStateMachine("hub", 1)
    AgentLink(machine, "old")
    newer = AgentLink(machine, "new")
    assert [effect.link for effect in newer.effects if isinstance(effect, CloseLink)] == ["old"]
    assert machine.handle(LinkClosed("old"), NOW, MONO) == []
    assert machine.fleet.nodes["n1"].connected


def test_quarantine_doubles_and_ends() -> None:
    machine = FleetStateMachine("hub", 1)
    mono, waits = MONO, []
    for at in range(4):
        agent = AgentLink(machine, f"c{at}", mono=mono)
        effects = machine.handle(RateExceeded(f"c{at}", "messages", "20 a second"), NOW, mono)
        [refusal] = agent.messages(Refused, effects)
        assert isinstance(refusal, Refused)
        waits.append(refusal.retry_after_s)
        early = AgentLink(machine, f"early{at}", mono=mono + refusal.retry_after_s - 1)
        assert early.messages(Refused)
        assert not early.messages(Welcome)
        mono += refusal.retry_after_s
    assert waits == [30.0, 60.0, 120.0, 240.0]
    assert AgentLink(machine, "other", "n2").messages(Welcome)  # others are not concerned


def test_a_tick_after_a_pause_of_our_own_makes_nobody_silent() -> None:
    machine = FleetStateMachine("hub", 1)
    AgentLink(machine)
    machine.handle(Tick(), NOW, MONO)
    machine.handle(Tick(), NOW, MONO + 90)
    states = [machine.fleet.nodes["n1"].state]
    for second in range(91, 91 + 61):
        machine.handle(Tick(), NOW, MONO + second)
    states.append(machine.fleet.nodes["n1"].state)
    assert states == ["live", "silent"]


def test_hello_comes_first_and_once() -> None:
    machine = FleetStateMachine("hub", 1)
    with pytest.raises(WireError):
        machine.handle(MessageReceived("x", Inventory(1, ()), b""), NOW, MONO)
    agent = AgentLink(machine)
    with pytest.raises(WireError):
        agent.send(hello())


@pytest.mark.parametrize("through_checkpoint", [False, True])
def test_a_restart_shows_the_last_values_as_stale_and_doubles_nothing(
    through_checkpoint: bool
) -> None:
    """Through the log alone, and through a checkpoint that replaced an older part of it."""
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    util = random.uniform(0, 100)
    log = list(records(agent.effects))
    for seq in (1, 2, 5):
        log += records(agent.tick(seq, util))
    restarted = FleetStateMachine("hub", 2)
    if through_checkpoint:
        for _, data in encode_nodes(machine, NOW, MONO):
            restore(restarted, data)
        log = log[-2:]  # what is in both is there once
    newest = random.uniform(0, 100)
    log += records(agent.tick(6, newest))
    for record in log:
        restarted.recover(record)
    restarted.recovered(NOW + 1, MONO)
    assert restarted.streams.of("n1")["s1"].ledger.ranges == [(1, 2), (5, 6)]
    show = restarted.fleet.statuses(MONO)
    view = views.gpu_view(restarted.fleet, 0, GpuStatus(show[0]), 0, [], MONO)
    assert view.state == "stale"
    assert view.last_values is not None
    assert view.last_values["util_pct"] == pytest.approx(newest, abs=1e-3)
    assert [task.user for task in task_views(restarted.fleet)] == ["alice"]
    back = AgentLink(restarted, "b")
    [welcome] = back.messages(Welcome)
    assert isinstance(welcome, Welcome)
    assert welcome.acked_seq in (2, 6)  # never beyond what is there without a hole still open
    assert records(back.tick(6)) == ()
    assert len(records(back.tick(7))) == 1

"""The room: events in, effects out; and what it keeps over a restart."""

import random

import pytest

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
from gpudeck.metrics import COLUMN
from gpudeck.wire import (
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
from tests.unit.fleets import MONO, NOW, facts, frame, hello, tasks


class Talk:
    """One agent's connection to a room, with a clock of its own."""

    def __init__(self, machine: FleetStateMachine, link: str = "a", node_id: str = "n1",
                 stream: str = "s1",
                 mono: float = MONO) -> None:
        self.machine, self.link, self.mono = machine, link, mono
        self.effects = self.say(hello(node_id, stream))
        if not any(isinstance(effect, CloseLink) and effect.link == link
                   for effect in self.effects):
            self.effects += self.say(Inventory(1, (facts(node_id, 0), facts(node_id, 1))))

    def say(self, message: FromAgent) -> list[Effect]:
        return self.machine.handle(MessageReceived(self.link, message, encode(message)),
                                NOW + self.mono - MONO,
                                self.mono)

    def tick(self, seq: int, util: float = 1.0) -> list[Effect]:
        return self.say(frame([{"util_pct": util}] * 2, seq=seq, taken_at=NOW + self.mono - MONO,
                              tasks=tasks(("t", 0, "alice"))))

    def told(self, kind: type, effects: list[Effect] | None = None) -> list[object]:
        found = self.effects if effects is None else effects
        return [effect.message for effect in found
                if isinstance(effect, SendMessage) and isinstance(effect.message, kind)]


def records(effects: list[Effect]) -> tuple[StreamRecord, ...]:
    return tuple(effect for effect in effects if isinstance(effect, StreamRecord))


def acks(effects: list[Effect]) -> list[int]:
    return [effect.message.seq for effect in effects
            if isinstance(effect, SendMessage) and isinstance(effect.message, Ack)]


def told_acks(effects: list[Effect]) -> list[Ack]:
    return [effect.message for effect in effects
            if isinstance(effect, SendMessage) and isinstance(effect.message, Ack)]


def test_a_hello_is_welcomed_and_probed() -> None:
    talk = Talk(FleetStateMachine("hub", 7))
    [welcome] = talk.told(Welcome)
    assert isinstance(welcome, Welcome)
    assert (welcome.hub_id, welcome.epoch, welcome.acked_seq) == ("hub", 7, 0)
    [probe] = talk.told(Probe)
    assert isinstance(probe, Probe)
    talk.mono += 0.2
    talk.say(Echo(probe.probe_id, NOW + 50.1))
    assert talk.machine.fleet.nodes["n1"].clock_offset_s == pytest.approx(50.0)
    talk.say(Echo(probe.probe_id, NOW + 9_999))  # the same answer again counts no more
    assert talk.machine.fleet.nodes["n1"].clock_offset_s == pytest.approx(50.0)


def test_only_what_is_new_is_recorded_and_told() -> None:
    talk = Talk(FleetStateMachine("hub", 1))
    for seq, is_new in ((1, True), (2, True), (2, False), (1, False), (3, True)):
        effects = talk.tick(seq)
        assert [record.seq for record in records(effects)] == ([seq] if is_new else [])
    assert talk.say(Event(3, NOW, "gpu_lost")) == []


def test_an_ack_goes_out_when_the_disk_has_it() -> None:
    machine = FleetStateMachine("hub", 1)
    talk = Talk(machine)
    kept = [records(talk.tick(seq)) for seq in (1, 2, 3)]
    assert acks(machine.handle(RecordsStored(kept[0] + kept[1]), NOW, MONO)) == [2]
    assert acks(machine.handle(RecordsStored(kept[2]), NOW, MONO)) == [3]
    assert acks(machine.handle(RecordsStored(kept[2]), NOW, MONO)) == []


def test_a_reconnect_is_told_what_is_on_disk_not_what_was_heard() -> None:
    machine = FleetStateMachine("hub", 1)
    talk = Talk(machine)
    kept = [records(talk.tick(seq)) for seq in (1, 2, 3)]
    machine.handle(RecordsStored(kept[0]), NOW, MONO)
    machine.handle(LinkClosed("a"), NOW, MONO)
    [welcome] = Talk(machine, "b").told(Welcome)
    assert isinstance(welcome, Welcome)
    assert welcome.acked_seq == 1


def test_what_did_not_fit_is_asked_for_again_and_never_acked() -> None:
    machine = FleetStateMachine("hub", 1)
    talk = Talk(machine)
    kept = [records(talk.tick(seq)) for seq in (1, 2, 3, 4)]
    machine.handle(StorageFailed("no space", kept[1]), NOW, MONO)
    assert machine.fleet.disk_error == "no space"
    effects = machine.handle(RecordsStored(kept[0] + kept[2] + kept[3]), NOW, MONO)
    assert acks(effects) == [1]
    assert [effect.link for effect in effects if isinstance(effect, CloseLink)] == ["a"]
    assert machine.fleet.disk_error is None
    machine.handle(LinkClosed("a"), NOW, MONO)
    again = Talk(machine, "b")
    [welcome] = again.told(Welcome)
    assert isinstance(welcome, Welcome)
    assert welcome.acked_seq == 1
    brought = records(again.tick(2))
    assert len(brought) == 1
    assert records(again.tick(3)) == ()
    assert acks(machine.handle(RecordsStored(brought), NOW, MONO)) == [4]


def test_what_the_agent_has_lost_too_is_not_awaited() -> None:
    """Its Beat says so; before that, it is."""
    machine = FleetStateMachine("hub", 1)
    talk = Talk(machine)
    kept = [records(talk.tick(seq)) for seq in (1, 2)]
    machine.handle(StorageFailed("no space", kept[1]), NOW, MONO)
    machine.handle(RecordsStored(kept[0]), NOW, MONO)
    later = records(talk.tick(9))
    [ack] = told_acks(machine.handle(RecordsStored(later), NOW, MONO))
    assert (ack.seq, ack.spans) == (1, (Span(9, 9),))
    talk.say(Beat("ok", 0.0, 1, 6, first_seq=9))
    assert acks(machine.handle(RecordsStored(records(talk.tick(10))), NOW, MONO)) == [10]
    assert machine.streams.of("n1")["s1"].ledger.missing == 7


def backfill(*seqs: int) -> Backfill:
    return Backfill(tuple(encode(frame([{"util_pct": 99.0}] * 2, seq=seq, taken_at=NOW - 900 + seq))
                          for seq in seqs))


def test_what_is_made_up_for_is_history_and_nothing_else() -> None:
    machine = FleetStateMachine("hub", 1)
    talk = Talk(machine)
    stored = records(talk.tick(40, util=12.0))
    effects = talk.say(backfill(1, 2, 3))
    assert [(each.seq, each.is_backfill) for each in records(effects)] == [
        (1, True), (2, True), (3, True)]
    assert machine.fleet.values[0, COLUMN["util_pct"]] == 12.0
    [ack] = told_acks(machine.handle(RecordsStored(stored + records(effects)), NOW, MONO))
    assert (ack.seq, ack.spans) == (3, (Span(40, 40),))
    # The control: what is live is the picture.
    [live] = records(talk.tick(41, util=13.0))
    assert not live.is_backfill
    assert machine.fleet.values[0, COLUMN["util_pct"]] == 13.0


def test_a_backfill_that_comes_first_does_not_make_the_picture() -> None:
    machine = FleetStateMachine("hub", 1)
    talk = Talk(machine)
    talk.say(backfill(1, 2, 3))
    assert machine.fleet.nodes["n1"].frame is None


def test_what_is_brought_again_is_acked_again() -> None:
    """The ack for it may have gone with the connection, and nothing new follows."""
    machine = FleetStateMachine("hub", 1)
    talk = Talk(machine)
    machine.handle(RecordsStored(records(talk.say(backfill(1, 2, 3)))), NOW, MONO)
    effects = talk.say(backfill(2, 3))
    assert records(effects) == ()
    assert acks(effects) == [3]


def test_a_reconnect_is_told_of_the_gaps() -> None:
    machine = FleetStateMachine("hub", 1)
    talk = Talk(machine)
    machine.handle(RecordsStored(records(talk.tick(5)) + records(talk.tick(6))), NOW, MONO)
    [welcome] = Talk(machine, "b").told(Welcome)
    assert isinstance(welcome, Welcome)
    assert (welcome.acked_seq, welcome.spans) == (0, (Span(5, 6),))


def test_more_gaps_than_fit_into_an_ack() -> None:
    machine = FleetStateMachine("hub", 1)
    talk = Talk(machine)
    for seq in range(2, 400, 2):
        kept = records(talk.say(backfill(seq)))
        [ack] = told_acks(machine.handle(RecordsStored(kept), NOW, MONO))
    assert len(ack.spans) == MAX_SPANS
    assert ack.spans[-1] == Span(398, 398)


@pytest.mark.parametrize("step_s", [7_200.0, -7_200.0, 900.0, -30.0])
def test_a_node_whose_clock_steps_is_asked_and_fresh_again_at_once(step_s: float) -> None:
    """Its frames go to disk as measured, meanwhile too."""
    machine = FleetStateMachine("hub", 1)
    talk = Talk(machine)
    [probe] = talk.told(Probe)
    assert isinstance(probe, Probe)
    talk.say(Echo(probe.probe_id, NOW))
    talk.mono += 2
    assert talk.told(Probe, talk.tick(1)) == []  # the control

    def stepped(seq: int) -> list[Effect]:
        return talk.say(frame([{"util_pct": 1.0}] * 2, seq=seq,
                              taken_at=NOW + talk.mono - MONO + step_s))

    talk.mono += 1
    effects = stepped(2)
    [again] = talk.told(Probe, effects)
    assert isinstance(again, Probe)
    assert [record.seq for record in records(effects)] == [2]
    talk.say(Echo(again.probe_id, NOW + talk.mono - MONO + step_s))
    talk.mono += 1
    effects = stepped(3)
    assert talk.told(Probe, effects) == []
    assert machine.fleet.shown(talk.mono)[0] == GpuStatus.OK
    assert machine.fleet.nodes["n1"].newest[1] == 3


def test_the_newer_connection_wins() -> None:
    machine = FleetStateMachine("hub", 1)
    Talk(machine, "old")
    newer = Talk(machine, "new")
    assert [effect.link for effect in newer.effects if isinstance(effect, CloseLink)] == ["old"]
    assert machine.handle(LinkClosed("old"), NOW, MONO) == []
    assert machine.fleet.nodes["n1"].connected


def test_quarantine_doubles_and_ends() -> None:
    machine = FleetStateMachine("hub", 1)
    mono, waits = MONO, []
    for at in range(4):
        talk = Talk(machine, f"c{at}", mono=mono)
        effects = machine.handle(RateExceeded(f"c{at}", "messages", "20 a second"), NOW, mono)
        [refused] = talk.told(Refused, effects)
        assert isinstance(refused, Refused)
        waits.append(refused.retry_after_s)
        early = Talk(machine, f"early{at}", mono=mono + refused.retry_after_s - 1)
        assert early.told(Refused)
        assert not early.told(Welcome)
        mono += refused.retry_after_s
    assert waits == [30.0, 60.0, 120.0, 240.0]
    assert Talk(machine, "other", "n2").told(Welcome)  # others are not concerned


def test_a_tick_after_a_pause_of_our_own_makes_nobody_silent() -> None:
    machine = FleetStateMachine("hub", 1)
    Talk(machine)
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
    talk = Talk(machine)
    with pytest.raises(WireError):
        talk.say(hello())


@pytest.mark.parametrize("through_checkpoint", [False, True])
def test_a_restart_shows_the_last_values_as_stale_and_doubles_nothing(
    through_checkpoint: bool
) -> None:
    """Through the log alone, and through a checkpoint that replaced an older part of it."""
    machine = FleetStateMachine("hub", 1)
    talk = Talk(machine)
    util = random.uniform(0, 100)
    log = list(records(talk.effects))
    for seq in (1, 2, 5):
        log += records(talk.tick(seq, util))
    anew = FleetStateMachine("hub", 2)
    if through_checkpoint:
        for _, data in encode_nodes(machine, NOW, MONO):
            restore(anew, data)
        log = log[-2:]  # what is in both is there once
    newest = random.uniform(0, 100)
    log += records(talk.tick(6, newest))
    for record in log:
        anew.recover(record)
    anew.recovered(NOW + 1, MONO)
    node = anew.fleet.nodes["n1"]
    assert anew.streams.of("n1")["s1"].ledger.ranges == [(1, 2), (5, 6)]
    show = anew.fleet.shown(MONO)
    view = views.gpu_view(anew.fleet, 0, GpuStatus(show[0]), 0, [], MONO)
    assert view.state == "stale"
    assert view.last_values is not None
    assert view.last_values["util_pct"] == pytest.approx(newest, abs=1e-3)
    assert [task.user for task in views.task_views(anew.fleet, node)] == ["alice"]
    back = Talk(anew, "b")
    [welcome] = back.told(Welcome)
    assert isinstance(welcome, Welcome)
    assert welcome.acked_seq in (2, 6)  # never beyond what is there without a hole still open
    assert records(back.tick(6)) == ()
    assert len(records(back.tick(7))) == 1

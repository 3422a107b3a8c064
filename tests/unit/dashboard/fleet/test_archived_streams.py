"""The second watermark at the hub: what Acks and Welcomes say is archived, and a hub that has no
more than its archive."""

from msgspec import UNSET

from dashboard.fleet.effects import (
    ArchiveGrown,
    ArchiveJoined,
    CloseLink,
    LinkClosed,
    RecordsStored,
)
from dashboard.fleet.sample_seconds import SHIFT_MOST_S, SampleSecondAligner, SampleTick
from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.history.ingest.message_places import MessagePlaces, spans_of
from dashboard.history.storage.archive_mark import PlacesRecord
from dashboard.nodes.checkpoint import carried, encode_nodes, restore_all
from gpudeck.contract.sequence_ranges import SequenceRanges
from gpudeck.contract.wire import MAX_SPANS, Ack, Beat, Frame, Span, Welcome, decode_from_agent
from tests.unit.dashboard.fleet.test_state_machine import AgentLink, ack_messages, records
from tests.unit.fleets import MONO, NOW

KEY = ("n1", "s1")


def stored(agent: AgentLink, *seqs: int) -> list[Ack]:
    batch = sum((records(agent.tick(seq)) for seq in seqs), ())
    return ack_messages(agent.machine.handle(RecordsStored(batch), NOW, MONO))


def welcome_of(agent: AgentLink) -> Welcome:
    [welcome] = agent.messages(Welcome)
    assert isinstance(welcome, Welcome)
    return welcome


def test_a_hub_without_an_archive_of_seconds_says_nothing_of_one() -> None:
    agent = AgentLink(FleetStateMachine("hub", 1))
    assert welcome_of(agent).archived is UNSET
    assert stored(agent, 1, 2) == [Ack(2)]


def test_the_next_ack_says_what_is_archived_and_none_is_sent_for_that() -> None:
    machine = FleetStateMachine("hub", 1)
    machine.streams.begin_archive({})
    agent = AgentLink(machine)
    assert welcome_of(agent).archived == ()
    assert stored(agent, 1, 2, 3, 4, 5) == [Ack(5, (), ())]
    news = {KEY: SequenceRanges([(1, 2), (4, 4)]), ("n1", "other"): SequenceRanges([(1, 9)]),
            ("n9", "s1"): SequenceRanges([(1, 9)])}
    assert machine.handle(ArchiveGrown(news), NOW, MONO) == []
    assert stored(agent, 6) == [Ack(6, (), (Span(1, 2), Span(4, 4)))]
    machine.handle(LinkClosed("a"), NOW, MONO)
    assert welcome_of(AgentLink(machine, "b")).archived == (Span(1, 2), Span(4, 4))
    gaps = {KEY: SequenceRanges((2 * at, 2 * at) for at in range(1, 2 * MAX_SPANS))}
    machine.handle(ArchiveGrown(gaps), NOW, MONO)
    machine.handle(LinkClosed("b"), NOW, MONO)
    archived = welcome_of(AgentLink(machine, "c")).archived
    assert isinstance(archived, tuple)
    assert archived[-1] == Span(4 * MAX_SPANS - 2, 4 * MAX_SPANS - 2)
    assert len(archived) == MAX_SPANS


def test_a_hub_that_lost_its_disk_asks_for_all_that_is_not_archived() -> None:
    """Checkpoints in the state, a database elsewhere, know of more than there is."""
    machine = FleetStateMachine("hub", 1)
    agent = AgentLink(machine)
    stored(agent, *range(1, 9))
    checkpoints = encode_nodes(machine, NOW, MONO)

    archived = {KEY: SequenceRanges([(1, 3), (5, 6)])}
    for is_restored, acked in ((False, 8), (True, 3)):
        new = FleetStateMachine("hub", 2)
        restore_all(new, [data for _, data in checkpoints], MessagePlaces(
            PlacesRecord(spans_of(archived), is_restored=is_restored)))
        assert new.streams.of("n1")["s1"].acked == acked
    new.streams.begin_archive(archived)
    agent_back = AgentLink(new)
    assert welcome_of(agent_back).acked_seq == 3
    assert welcome_of(agent_back).spans == (Span(5, 6),)
    assert welcome_of(agent_back).archived == (Span(1, 3), Span(5, 6))
    assert [record.seq for seq in (3, 4, 5, 6, 7, 8)
            for record in records(agent_back.tick(seq))] == [4, 7, 8]


def test_a_frame_that_a_later_segment_carries_is_not_stored_there() -> None:
    """A hub that began too early has dropped the segment that has it, and its files are gone."""
    machine = FleetStateMachine("hub", 1)
    stored(AgentLink(machine), *range(1, 9))
    segment = carried(encode_nodes(machine, NOW, MONO))
    assert any(isinstance(decode_from_agent(entry.payload), Frame) for entry in segment)
    new = FleetStateMachine("hub", 2)
    new.begin_from_archive({KEY: SequenceRanges([(1, 3)])}, {})
    for entry in segment:
        new.recover(entry)
    welcome = welcome_of(AgentLink(new))
    assert (welcome.acked_seq, welcome.spans) == (3, ())


def waiting() -> FleetStateMachine:
    """Return the state machine of a hub that has just taken over; the database has checkpoints of
    the one before."""
    former = FleetStateMachine("hub", 1)
    stored(AgentLink(former), *range(1, 9))
    places = MessagePlaces(PlacesRecord(is_restored=True, joins=1))
    places.is_waiting = True
    machine = FleetStateMachine("hub", 2)
    restore_all(machine, [data for _, data in encode_nodes(former, NOW, MONO)], places)
    machine.streams.begin_archive(places.archived)
    return machine


def test_a_hub_that_took_over_claims_nothing_of_what_another_one_stored() -> None:
    machine = waiting()
    agent = AgentLink(machine)
    assert (welcome_of(agent).acked_seq, welcome_of(agent).spans) == (0, ())
    assert welcome_of(agent).archived == ()
    assert stored(agent, 9, 10) == [Ack(0, (Span(9, 10),), ())]
    agent.send(Beat("ok", 0.1, 0, 0, first_seq=4))  # 1 to 3 are archived, as this node knows
    assert stored(agent, 11) == [Ack(3, (Span(9, 11),), ())]
    stream = machine.streams.of("n1")["s1"]
    assert (stream.ledger.lost, stream.ledger.missing) == (0, 5)
    machine.handle(ArchiveJoined({KEY: SequenceRanges([(1, 6)])}), NOW, MONO)
    assert not machine.streams.is_waiting
    assert [record.seq for seq in (3, 4, 5, 6, 7, 8, 9)
            for record in records(agent.tick(seq))] == [7, 8]
    assert stored(agent, 12) == [Ack(6, (Span(9, 12),), (Span(1, 6),))]
    agent.send(Beat("ok", 0.1, 0, 0, first_seq=7))
    assert (stream.ledger.lost, stream.ledger.missing, stream.ledger.settled) == (0, 0, 12)


def test_streams_of_others_are_joined_and_new_ones_do_not_wait() -> None:
    machine = waiting()
    archived = {KEY: SequenceRanges(), ("n9", "s9"): SequenceRanges([(1, 4)])}
    machine.handle(ArchiveJoined(archived), NOW, MONO)
    assert machine.streams.of("n9")["s9"].acked == 4
    assert not machine.streams.open("n2", "s2").is_waiting


def test_an_earlier_message_that_comes_by_itself_waits_too() -> None:
    machine = waiting()
    agent = AgentLink(machine, last_seq=8)
    assert records(agent.tick(8)) == ()
    assert [record.seq for record in records(agent.tick(9))] == [9]
    [close] = machine.handle(ArchiveJoined({KEY: SequenceRanges([(1, 7)])}), NOW, MONO)
    assert isinstance(close, CloseLink)
    assert [record.seq for record in records(agent.tick(8))] == [8]


def test_a_checkpoint_says_how_seconds_were_cut() -> None:
    former = FleetStateMachine("hub", 1)
    stored(AgentLink(former), 1, 2)
    assert "n1" in former.ticks
    machine = FleetStateMachine("hub", 2)
    restore_all(machine, [data for _, data in encode_nodes(former, NOW, MONO)], None)
    assert machine.ticks == former.ticks


def test_what_lies_before_it_is_asked_for_until_the_node_says_that_it_has_none() -> None:
    machine = FleetStateMachine("hub", 1)
    machine.begin_from_archive({KEY: SequenceRanges([(50, 60)])}, {})
    agent = AgentLink(machine)
    assert (welcome_of(agent).acked_seq, welcome_of(agent).spans) == (0, (Span(50, 60),))
    assert [record.seq for record in records(agent.tick(49))] == [49]
    agent.send(Beat("ok", 0.1, 0, 0, first_seq=61))
    assert stored(agent, 61)[0].seq == 61


def test_seconds_are_cut_as_before_where_the_tick_lies_at_their_edge() -> None:
    for offset_s in (-0.01, 0.0, 0.01):
        for part in (0.0, 0.001, 0.25, 0.5, 0.999):
            before, after = SampleSecondAligner(), SampleSecondAligner()
            seconds = [before.of(1_000 + at + part) for at in range(10)]
            tick = SampleTick(7_000.0 + 9, seconds[-1])  # by another clock
            after.follow(tick, 7_000.0 + 10, 1_010 + part + offset_s)
            seconds += [after.of(1_000 + at + part + offset_s) for at in range(10, 20)]
            assert seconds == [*range(seconds[0], seconds[0] + 20)], (part, offset_s)


def test_a_clock_that_stepped_meanwhile_is_not_followed() -> None:
    seconds = SampleSecondAligner()
    seconds.follow(SampleTick(7_000.0, 1_000), 7_010.0, 1_010.5 + SHIFT_MOST_S + 0.1)
    assert seconds.of(1_050.0) == 1_050
    assert seconds.of(1_051.0) == 1_051

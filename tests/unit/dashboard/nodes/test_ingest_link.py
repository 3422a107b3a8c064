"""State of an agent's socket in the ingest process, and the frames between that and the hub."""

import os
import random
from collections import deque

import msgspec
import pytest

from dashboard.nodes.ingest.link import QUEUE_FRAMES, AgentSocketState
from dashboard.nodes.ingest.messages import (
    MOST_BYTES,
    Delivery,
    FrameBuffer,
    LinkEnded,
    Order,
    RateNews,
    Received,
    SocketGiven,
    decode_orders,
    framed,
    next_batch,
)
from gpudeck.contract.wire import EVENT, NAMESPACE, Backfill, Clock, Event, encode
from gpudeck.network.websocket import Opcode, frame

MASK = b"\1\2\3\4"
GIVEN = SocketGiven(7, 100_000, 50.0, 100.0, 25.0, 60.0, 0.0, 0.0, 0.0, 0, 0)


def state_of(order: SocketGiven = GIVEN) -> AgentSocketState:
    return AgentSocketState(order, 20, 2_000_000, 0.0)


def packet(payload: bytes) -> bytes:
    """Encode a message as an agent sends it."""
    return frame(msgspec.msgpack.encode({"type": 2, "nsp": NAMESPACE, "data": [EVENT, payload]}),
                 mask=MASK)


def feed(state: AgentSocketState, data: bytes, mono: float = 0.0) -> Received:
    received = Received([], [])
    state.feed(data, mono, received)
    return received


def test_messages_come_in_their_order_however_they_are_cut() -> None:
    messages = [encode(Event(seq, 1.0, "x", text="y" * random.randrange(300)))
                for seq in range(1, 30)]
    data = b"".join(map(packet, messages))
    state, received = state_of(), Received([], [])
    while data:
        size = random.randint(1, 400)
        state.feed(data[:size], 0.0, received)
        data = data[size:]
    assert received.messages == [(7, message) for message in messages]
    assert not state.is_closing


def test_what_comes_too_fast_is_not_passed_on_but_said_once() -> None:
    state = state_of()
    repeated = packet(encode(Clock(1)))
    received = Received([], [])
    for number in range(500):
        state.feed(repeated, number / 50, received)  # 20 a second, and 200 at once
    assert received.news == [RateNews(7, "messages", "20 messages a second")]
    assert len(received.messages) == pytest.approx(200 * 50 / 30, abs=2)


def test_what_makes_up_for_an_outage_rests() -> None:
    state = state_of(msgspec.structs.replace(GIVEN, backlog_to=10_000, messages_per_s=1e6,
                                             messages_burst=1e6))
    for seq in range(1, 1_001):
        feed(state, packet(encode(Event(seq, 1.0, "x"))), 1.0)
    assert state.rate.rest_s == pytest.approx(800 / 200)


def test_backfills_are_for_the_hub_to_count() -> None:
    state = state_of(msgspec.structs.replace(GIVEN, messages_per_s=1e6, messages_burst=1e6))
    backfill = encode(Backfill((encode(Event(1, 1.0, "x")),)))
    for _ in range(500):
        assert feed(state, packet(backfill)).news == []


def test_more_frames_than_it_may_send_at_all_end_it() -> None:
    state = state_of()
    for _ in range(101):
        feed(state, frame(b"3", Opcode.TEXT, MASK))
    assert state.end == LinkEnded(7, "more messages than allowed", "violations")
    assert feed(state, packet(encode(Clock(1)))).messages == []


def test_one_that_does_not_read_is_cut() -> None:
    state = state_of()
    for _ in range(QUEUE_FRAMES):
        state.push(b"frame", 0.0)
    assert not state.is_closing
    state.push(b"frame", 0.0)
    assert state.end == LinkEnded(7, "too_slow", "too_slow")
    assert not state.queue
    slow = state_of()
    slow.push(b"frame", 0.0)
    slow.tick(59.0)
    assert not slow.is_closing
    slow.tick(61.0)
    assert slow.end.offence == "too_slow"


def test_it_is_pinged_and_ended_without_an_answer() -> None:
    state = state_of()
    state.tick(24.0)
    assert not state.queue
    state.tick(26.0)
    assert state.queue.popleft() == frame(b"2", Opcode.TEXT)
    feed(state, frame(b"3", Opcode.TEXT, MASK), 30.0)
    state.tick(89.0)
    assert state.queue
    state.queue.clear()
    state.tick(91.0)
    assert state.end == LinkEnded(7, "does not answer", "overdue")


def test_it_is_pinged_when_the_hub_would_have_pinged_it() -> None:
    """Agents give a connection up 45 s after the last ping."""
    state = AgentSocketState(msgspec.structs.replace(GIVEN, pinged_mono=-24.0), 20, 2_000_000, 0.0)
    state.tick(0.5)
    assert not state.queue
    state.tick(1.0)
    assert state.queue


def test_why_it_ends_stays_when_the_other_side_goes_first() -> None:
    state = state_of()
    feed(state, frame(b"", Opcode.TEXT, MASK))
    state.cut("", 0.0)
    assert state.end == LinkEnded(7, "an empty packet", "violations")


def test_a_message_that_does_not_end_is_ended() -> None:
    state = state_of(msgspec.structs.replace(GIVEN, stall_s=1e9))
    feed(state, packet(encode(Clock(1)))[:20], 1.0)
    state.tick(30.0)
    assert not state.is_closing
    state.tick(32.0)
    assert state.end.reason == "a message that does not end"


def test_a_pause_of_ours_is_nobodys_fault() -> None:
    state = state_of()
    state.push(b"frame", 0.0)
    state.forgive(500.0)
    state.tick(510.0)
    assert not state.is_closing


def test_the_last_words_come_after_what_waits_and_nothing_after_them() -> None:
    state = state_of()
    state.push(b"one", 0.0)
    state.finish(b"last", state.end, 0.0)
    state.push(b"two", 0.0)
    state.finish(b"again", LinkEnded(7, "other"), 0.0)
    assert list(state.queue) == [b"one", b"last"]
    assert state.end.reason == "closed"
    state.tick(0.5)
    assert state.queue
    state.tick(1.5)  # it does not take them
    assert not state.queue


def test_frames_between_the_two_survive_any_cut() -> None:
    batches = [[Delivery(number, os.urandom(random.randrange(2_000))) for number in range(count)]
               for count in (0, 1, 20)]
    data = b"".join(framed([*batch]) for batch in batches)
    buffer, bodies = FrameBuffer(), []
    while data:
        size = random.randint(1, 900)
        bodies += [decode_orders(body) for body in buffer.feed(data[:size])]
        data = data[size:]
    assert bodies == batches


def test_orders_travel_together_as_far_as_the_other_end_takes_them() -> None:
    orders: deque[tuple[Order, int | None]] = deque(
        (Delivery(number, bytes(100_000)), None) for number in range(300))
    orders += [(Delivery(300, bytes(1_000_100)), None), (GIVEN, 3)]
    buffer = FrameBuffer()
    links: list[int] = []
    while batch := next_batch(orders):
        [body] = buffer.feed(framed(batch))
        links += [order.link for order in decode_orders(body)]
    assert links == list(range(301))
    assert [order for order, _ in orders] == [GIVEN]


def test_a_frame_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(ValueError, match="too many"):
        list(FrameBuffer().feed((MOST_BYTES + 1).to_bytes(4)))

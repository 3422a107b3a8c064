"""The link's protocol: tables of (second, what happened, what is sent). No sleep, no socket."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from agent.link.protocol import (
    BACK_OFF_MAX_S,
    BURST,
    GREETING_S,
    LIVE_MAX,
    QUICK_S,
    QUICK_WAIT_S,
    SILENCE_OF_ONE_S,
    SILENCE_S,
    STEADY_S,
    STEP_EVERY_S,
    STEP_MIN,
    STEP_SOON_S,
    WINDOW,
    Act,
    CloseConnection,
    HubIdentityError,
    LinkStateMachine,
    OpenConnection,
    SendToHub,
    back_off,
)
from gpudeck.contract.wire import (
    MAX_BACKFILL,
    Ack,
    ArchivedSpans,
    Backfill,
    Beat,
    Call,
    Challenge,
    Echo,
    Hello,
    Probe,
    Refused,
    Span,
    Welcome,
    decode_from_agent,
)

HELLO = Hello((1,), bytes(32), bytes(64), "node", "host", "boot", "stream", 0, "1", "nvml")
BEAT = Beat("ok", 0.5, 0, 0)
CALL = Call(bytes(32))
CHALLENGE = Challenge(bytes(32), "hub", bytes(32), 1, bytes(64))


class Backlog:
    """An Outbox of words; the real one is in test_outbox_file and tests/faults/test_outage."""

    def __init__(self, last_seq: int = 0) -> None:
        self.last_seq, self.generation, self.stream = last_seq, 1, "stream"
        self.acked: set[int] = set()
        self.out: set[int] = set()

    def welcomed(self, seq: int, spans: Sequence[Span], archived: ArchivedSpans) -> None:
        self.out.update(range(1, self.last_seq + 1))
        self.ack(seq, spans, archived)
        self.out.clear()

    def ack(self, seq: int, spans: Sequence[Span], archived: ArchivedSpans) -> None:
        for first, last in ((1, seq), *((span.first, span.last) for span in spans)):
            self.acked |= set(range(first, last + 1)) & self.out

    def mark_sent(self, first: int, last: int) -> None:
        self.out.update(range(first, last + 1))

    def broke(self) -> None:
        self.out.clear()

    def pending_in(self, first: int, last: int) -> int:
        return len(self._pending(first, last))

    def _pending(self, first: int, last: int) -> list[int]:
        return [seq for seq in range(max(first, 1), min(last, self.last_seq) + 1)
                if seq not in self.acked]

    def entries(self, after_seq: int, upto_seq: int, limit: int, max_bytes: int
                ) -> list[tuple[int, bytes]]:
        seqs = self._pending(after_seq + 1, upto_seq)[:limit]
        return [(seq, b"message %d" % seq) for seq in seqs]

    def inventories_after(self, generation: int) -> list[bytes]:
        return [b"inventory %d" % number for number in range(generation + 1, self.generation + 1)]


class Credentials:
    """Trusts one hub key."""

    def call(self) -> Call:
        return CALL

    def hello(self, call: Call, challenge: Challenge) -> Hello:
        assert call == CALL
        if challenge.hub_key != CHALLENGE.hub_key:
            raise HubIdentityError("another hub")
        return HELLO


def longest(low: float, high: float) -> float:
    return high


def new_link(
    backlog: Backlog, uniform: Callable[[float, float], float] = longest, urls: int = 1
) -> LinkStateMachine:
    return LinkStateMachine(backlog, Credentials(), uniform, urls)


def live(backlog: Backlog, acked: int = 0, now: float = 0.0, urls: int = 1) -> LinkStateMachine:
    link = new_link(backlog, urls=urls)
    assert link.step(now, lambda: BEAT) == [OpenConnection()]
    link.opened(now)
    link.receive(CHALLENGE, now, 0.0)
    link.step(now, lambda: BEAT)
    link.receive(Welcome(1, "hub", 1, 0.0, acked), now, 0.0)
    return link


def messages_of(acts: list[Act]) -> list[object]:
    """Return messages decoded, our stand-ins as their words."""
    words: list[object] = []
    for act in acts:
        if not isinstance(act, SendToHub):
            words.append(act)
        elif act.body.startswith((b"message", b"inventory")):
            words.append(act.body.decode())
        else:
            message = decode_from_agent(act.body)
            words.append(tuple(int(body.split()[1]) for body in message.messages)
                         if isinstance(message, Backfill) else message)
    return words


def step(link: LinkStateMachine, now: float) -> list[object]:
    return messages_of(link.step(now, lambda: BEAT))


def test_call_and_hello_come_first_and_nothing_before_the_welcome() -> None:
    link = new_link(Backlog(last_seq=3))
    assert step(link, 0.0) == [OpenConnection()]
    assert step(link, 1.0) == []
    link.opened(1.0)
    assert step(link, 1.0) == [CALL]
    assert step(link, 2.0) == []
    link.receive(CHALLENGE, 2.0, 0.0)
    assert step(link, 2.0) == [HELLO]
    assert step(link, 3.0) == []


def test_after_the_welcome_a_beat_then_what_is_live_then_what_was_before() -> None:
    backlog = Backlog(last_seq=4)
    link = live(backlog, acked=2)
    backlog.last_seq = 5
    assert step(link, 0.0) == [BEAT, "inventory 0", "inventory 1", "message 5"]
    assert step(link, STEP_EVERY_S) == [(3, 4)]
    assert step(link, 9.9 * STEP_EVERY_S - 0.5) == []


def test_each_message_once_and_new_inventories_before_them() -> None:
    backlog = Backlog()
    link = live(backlog)
    step(link, 0.0)
    backlog.last_seq, backlog.generation = 1, 2
    assert step(link, 0.5) == ["inventory 0", "inventory 1", "inventory 2", "message 1"]
    backlog.last_seq, backlog.generation = 2, 3
    assert step(link, 0.5) == ["inventory 3", "message 2"]
    assert step(link, 0.5) == []


def test_an_outage_is_made_up_for_one_acked_step_at_a_time() -> None:
    link = live(Backlog(last_seq=1_000))
    step(link, 0.0)
    first = step(link, 1.0)[-1]
    assert first == tuple(range(1, STEP_MIN + 1))
    assert step(link, 1.5) == []
    assert link.next_step_at(1.5) == 2.0  # a Beat; nothing to do until an ack
    link.receive(Ack(STEP_MIN - 1), 1.6, 0.0)
    assert step(link, 1.6) == []
    link.receive(Ack(STEP_MIN), 1.7, 0.0)
    assert step(link, 1.7) == [tuple(range(STEP_MIN + 1, 3 * STEP_MIN + 1))]


def test_a_disk_that_does_not_give_what_is_pending_is_asked_now_and_then() -> None:
    """The disk was asked again at once, by a whole core, for as long as it did not."""
    class Unread(Backlog):
        def entries(self, after_seq: int, upto_seq: int, limit: int, max_bytes: int
                    ) -> list[tuple[int, bytes]]:
            return []

    link, now, steps = live(Unread(last_seq=1_000)), 0.0, 0
    while now < 10:
        step(link, now)
        now = max(now, link.next_step_at(now))
        steps += 1
        assert steps < 100
    backlog = Backlog(last_seq=1_000)
    assert step(live(backlog), 1.0)[-1] == tuple(range(1, STEP_MIN + 1))  # the control


def test_what_comes_about_meanwhile_goes_first_and_at_once() -> None:
    backlog = Backlog(last_seq=1_000)
    link = live(backlog)
    step(link, 0.0)
    step(link, 1.0)
    backlog.last_seq = 1_002
    assert step(link, 1.1) == ["message 1001", "message 1002"]
    link.receive(Ack(STEP_MIN, (Span(1_001, 1_001),)), 1.4, 0.0)
    backlog.last_seq = 1_003
    assert step(link, 1.5) == ["message 1003", tuple(range(STEP_MIN + 1, 3 * STEP_MIN + 1))]


def test_no_step_while_what_is_live_is_not_acked() -> None:
    """The control: with the window free again, it goes."""
    backlog = Backlog(last_seq=1_000)
    link = live(backlog)
    step(link, 0.0)
    backlog.last_seq += WINDOW + 1
    words = [word for at in range(20) for word in step(link, 0.05 + at * 0.01)]
    assert words[-1] == f"message {1_000 + WINDOW + 1}"
    assert step(link, 1.0) == []
    link.receive(Ack(0, (Span(1_001, 1_001),)), 1.1, 0.0)
    assert step(link, 1.1) == [tuple(range(1, STEP_MIN + 1))]


@pytest.mark.parametrize(("ack_after_s", "grows"), [(0.5, True), (STEP_SOON_S + 1, False)])
def test_steps_grow_while_the_hub_is_fast_and_shrink_while_it_is_not(
    ack_after_s: float, grows: bool
) -> None:
    backlog, now, sizes = Backlog(last_seq=20_000), 0.0, []
    link = live(backlog)
    link._delivery._step_size = 128
    step(link, now)
    for _ in range(8):
        now += STEP_EVERY_S
        steps = [word for word in step(link, now) if isinstance(word, tuple)]
        sizes += [len(word) for word in steps]
        now += ack_after_s
        link.receive(Ack(steps[0][-1]), now, 0.0)
        link.receive(Ack(steps[0][-1]), now, 0.0)  # the same again counts once
    assert sizes == ([128, 256] + [MAX_BACKFILL] * 6 if grows
                     else [128, 64, 32] + [STEP_MIN] * 5)


def test_what_the_hub_has_in_spans_is_not_brought_again() -> None:
    backlog = Backlog(last_seq=12)
    link = new_link(backlog)
    step(link, 0.0)
    link.opened(0.0)
    link.receive(CHALLENGE, 0.0, 0.0)
    step(link, 0.0)
    link.receive(Welcome(1, "hub", 1, 0.0, 3, (Span(6, 10),)), 0.0, 0.0)
    step(link, 0.0)
    assert step(link, 1.0)[-1] == (4, 5, 11, 12)


def test_a_hub_that_takes_and_keeps_nothing_is_called_anew() -> None:
    backlog = Backlog()
    link = live(backlog)
    now = 0.0
    ends: list[object] = []
    while not ends and now < 2 * LIVE_MAX:
        now += 1.0
        backlog.last_seq += 1
        link.receive(Probe(1, 0.0), now, 0.0)
        ends = [act for act in step(link, now) if isinstance(act, CloseConnection)]
    assert LIVE_MAX <= backlog.last_seq <= LIVE_MAX + 1


def test_a_stream_that_changes_is_greeted_anew() -> None:
    backlog = Backlog(last_seq=5)
    link = live(backlog)
    step(link, 0.0)
    backlog.stream = "another"
    link.receive(Ack(5), 0.1, 0.0)
    assert backlog.acked == set()
    assert [type(act) for act in step(link, 0.1)] == [CloseConnection]
    assert step(link, 0.1) == [OpenConnection()]


def test_beats_keep_their_pace_whatever_is_pending() -> None:
    link = live(Backlog())
    beats = [now / 10 for now in range(100) if BEAT in step(link, now / 10)]
    assert beats == [0.0, 2.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize("phase", range(0, 10, 3))
def test_a_beat_goes_with_a_frame_while_they_flow(phase: int) -> None:
    """A Beat by itself would wake both ends once more."""
    backlog = Backlog()
    link = live(backlog)
    alone: list[int] = []
    along: list[int] = []
    for tenth in range(1, 200):
        if is_frame := tenth % 10 == phase and tenth < 150:
            backlog.last_seq += 1
            link.receive(Ack(backlog.last_seq - 1), tenth / 10, 0.0)
        if BEAT in step(link, tenth / 10):
            (along if is_frame else alone).append(tenth)
    settled = [tenth for tenth in along if tenth > 30]
    assert {later - sooner for sooner, later in pairwise(settled)} == {20}
    assert [tenth for tenth in alone if 30 < tenth < 150] == []
    frames_end = max(along)
    rest = [frames_end, *(tenth for tenth in alone if tenth > 150)]
    assert len(rest) > 2
    assert max(later - sooner for sooner, later in pairwise(rest)) <= 30


def test_echo() -> None:
    link = live(Backlog())
    link.receive(Probe(99, 5.0), 1.0, 1763640000.0)
    assert Echo(99, 1763640000.0) in step(link, 1.0)


def test_half_open_is_given_up_only_while_an_answer_is_due() -> None:
    backlog = Backlog()
    link = live(backlog)
    for second in range(100):
        assert CloseConnection not in {type(act) for act in step(link, float(second))}
    backlog.last_seq = 1
    step(link, 100.0)
    assert step(link, 100.0 + SILENCE_S) != []  # a beat
    [hung_up] = step(link, 100.1 + SILENCE_S)
    assert isinstance(hung_up, CloseConnection)
    assert link.phase == "resting"


def test_any_word_of_the_hub_keeps_the_connection() -> None:
    backlog = Backlog(last_seq=1)
    link = live(backlog)
    for second in range(0, 100, 10):
        link.receive(Probe(second, 0.0), float(second), 0.0)
        assert not any(isinstance(act, CloseConnection) for act in step(link, float(second)))


def test_a_hub_that_never_welcomes() -> None:
    link = new_link(Backlog())
    step(link, 0.0)
    link.opened(0.0)
    step(link, 0.0)
    assert step(link, GREETING_S) == []
    assert isinstance(step(link, GREETING_S + 0.1)[0], CloseConnection)


def test_back_off_doubles_to_its_maximum_and_starts_again_after_a_steady_connection() -> None:
    link, now, waits = new_link(Backlog()), 0.0, []
    for _ in range(9):
        assert step(link, now) == [OpenConnection()]
        link.closed(now, "refused")
        assert isinstance(step(link, now)[0], CloseConnection)
        waits.append(link.next_step_at(now) - now)
        now = link.next_step_at(now)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    step(link, now)
    link.opened(now)
    link.receive(CHALLENGE, now, 0.0)
    link.receive(Welcome(1, "hub", 1, 0.0, 0), now, 0.0)
    link.closed(now + STEADY_S, "gone")
    assert link.next_step_at(now) == now + STEADY_S + 1


@pytest.mark.parametrize("attempt", [0, 3, 10, 10_000])
def test_full_jitter(attempt: int) -> None:
    bounds: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        bounds.append((low, high))
        return low

    assert back_off(attempt, uniform) == 0.0
    assert bounds == [(0.0, min(BACK_OFF_MAX_S, 2.0**min(attempt, 10)))]


def test_a_refusal_is_waited_out() -> None:
    link = new_link(Backlog())
    step(link, 0.0)
    link.opened(0.0)
    link.receive(CHALLENGE, 0.0, 0.0)
    link.receive(Refused("too many at once", 40.0), 0.0, 0.0)
    assert link.trouble == "the hub refuses: too many at once"
    assert [type(act) for act in step(link, 0.0)] == [CloseConnection]
    assert link.next_step_at(0.0) == 50.0
    assert step(link, 49.0) == []
    assert step(link, 50.0) == [OpenConnection()]


def test_who_has_not_shown_our_hubs_key_cannot_send_us_away() -> None:
    link = new_link(Backlog())
    step(link, 0.0)
    link.opened(0.0)
    link.receive(Refused("go away", 86_400.0), 0.0, 0.0)
    assert link.next_step_at(0.0) <= 1.0


def test_what_asking_again_does_not_mend_is_not_tried_fast() -> None:
    link = new_link(Backlog(), lambda low, high: low)
    step(link, 0.0)
    link.closed(0.0, "the hub's certificate is refused", denied=True)
    assert link.next_step_at(0.0) >= 15.0


def test_a_strange_hub_is_told_nothing() -> None:
    link = new_link(Backlog(last_seq=3), lambda low, high: low)
    step(link, 0.0)
    link.opened(0.0)
    assert step(link, 0.0) == [CALL]
    link.receive(Challenge(bytes(32), "hub", b"k" * 32, 1, bytes(64)), 0.1, 0.0)
    assert link.trouble == "another hub"
    assert [type(act) for act in step(link, 0.1)] == [CloseConnection]
    assert link.next_step_at(0.1) >= 15.0


def test_a_welcome_without_a_challenge_is_none() -> None:
    """A hub that skips the proof is not ours."""
    link = new_link(Backlog(last_seq=3))
    step(link, 0.0)
    link.opened(0.0)
    step(link, 0.0)
    link.receive(Welcome(1, "hub", 1, 0.0, 0), 0.0, 0.0)
    link.receive(Ack(3), 0.0, 0.0)
    assert (link.phase, link.welcomes) == ("calling", 0)
    assert step(link, 0.0) == []


def test_a_hub_of_another_version() -> None:
    link = new_link(Backlog())
    step(link, 0.0)
    link.opened(0.0)
    link.receive(CHALLENGE, 0.0, 0.0)
    link.receive(Welcome(7, "hub", 1, 0.0, 0), 0.0, 0.0)
    assert link.phase == "resting"
    assert "wire version 7" in link.trouble


def test_an_ack_of_what_was_never_sent_deletes_nothing() -> None:
    backlog = Backlog(last_seq=500)
    link = live(backlog)
    step(link, 0.0)
    backlog.last_seq = 700
    step(link, 0.1)
    link.receive(Ack(400, (Span(600, 650),)), 0.2, 0.0)
    assert backlog.acked <= set(range(501, 501 + BURST))


def test_late_words_of_an_ended_connection_change_nothing() -> None:
    backlog = Backlog(last_seq=5)
    link = live(backlog)
    step(link, 0.0)
    link.closed(1.0, "gone")
    link.receive(Ack(5), 1.0, 0.0)
    link.receive(Probe(1, 0.0), 1.0, 0.0)
    assert (backlog.acked, link.phase) == (set(), "resting")


def test_with_several_urls_a_silent_hub_is_left_soon_and_the_next_ones_are_tried_at_once() -> None:
    link = live(Backlog(last_seq=3), now=100.0, urls=2)
    assert step(link, 100.5) != []
    assert step(link, 100.0 + SILENCE_OF_ONE_S) != []  # a beat
    now = 101.0 + SILENCE_OF_ONE_S
    assert [type(act) for act in step(link, now)] == [CloseConnection]
    left_at = now
    while now < left_at + QUICK_S:
        assert link.next_step_at(now) == now + QUICK_WAIT_S
        now += QUICK_WAIT_S
        assert step(link, now) == [OpenConnection()]
        link.closed(now, "a standby")
        step(link, now)
    waits = []
    for _ in range(4):
        waits.append(link.next_step_at(now) - now)
        now = link.next_step_at(now)
        assert step(link, now) == [OpenConnection()]
        link.closed(now, "a standby")
        step(link, now)
    assert waits == [1.0, 2.0, 4.0, 8.0], "then as after any cut"

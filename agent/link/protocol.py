"""State machine of the connection to the hub: when to dial, what to send, when to give up. Pure.

    resting -> dialing -> calling -> greeting -> live        and from each back to resting

Time is an argument: `now` is a monotonic clock. `step` returns what the link is to do.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from gpudeck.contract import wire
from gpudeck.contract.wire import BEAT_EVERY_S

SILENCE_S = 15.0  # with messages out and not a word back: the connection is half open
# The same where another hub may take its place, and how long and often the URLs are then tried in
# turn: the one that takes over is there within seconds.
SILENCE_OF_ONE_S = 5.0
QUICK_S, QUICK_WAIT_S = 30.0, 1.5
# New messages go out at once, so many in one burst.
BURST = 32
BURST_EVERY_S = 0.1
# A hub that acks none of so many messages is called again; an hour at 1 Hz.
LIVE_MAX = 3_600
# Earlier messages are made up for in steps, one at a time, and none while more than WINDOW live
# ones are not acked. Their size follows the hub: it grows while a step is acked soon.
WINDOW = 64
STEP_EVERY_S = 0.25
STEP_SOON_S = 3.0
STEP_MIN = 16
STEP_BYTES = 256_000
STEP_BYTES_EACH = 2_000  # a thousand nodes of many GPUs that come back at once begin small, too
ENVELOPE_BYTES = 64  # of a Backfill with one message
GREETING_S = 15.0  # from dialing to an open connection, and from there to the Welcome
BACK_OFF_MAX_S = 60.0
DENIED_S = (15.0, 60.0)  # a strange hub is not mended by asking fast
TOLD_MIN_S = 5.0  # a hub that says when to come back is believed from here on
STEADY_S = 30.0  # a connection that held this long was a good one
# While Frames flow a Beat goes with one of them, which may be this late: by itself it would wake
# both ends once more.
FRAME_WITHIN_S = 1.25
Phase = Literal["resting", "dialing", "calling", "greeting", "live"]


class MessageBacklog(Protocol):
    """The part of the Outbox that a connection uses."""

    @property
    def stream(self) -> str: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def generation(self) -> int: ...
    def welcomed(self, seq: int, spans: Sequence[wire.Span], archived: wire.ArchivedSpans
                 ) -> None: ...
    def ack(self, seq: int, spans: Sequence[wire.Span], archived: wire.ArchivedSpans
            ) -> None: ...
    def mark_sent(self, first: int, last: int) -> None: ...
    def broke(self) -> None: ...
    def pending_in(self, first: int, last: int) -> int: ...
    def entries(self, after_seq: int, upto_seq: int, limit: int, max_bytes: int
                ) -> list[tuple[int, bytes]]: ...
    def inventories_after(self, generation: int) -> list[bytes]: ...


def _pack(bodies: list[bytes]) -> bytes:
    if len(bodies) == 1 and len(bodies[0]) > wire.MAX_MESSAGE_BYTES - ENVELOPE_BYTES:
        return bodies[0]  # as itself it fits
    return wire.encode(wire.Backfill(tuple(bodies)))


class MessageDelivery:
    """Messages of the backlog on this connection: what was sent, and what may be sent next."""

    def __init__(self, backlog: MessageBacklog, silence_s: float) -> None:
        self._silence_s = silence_s
        self.silent_since = 0.0  # the last message of the hub, or when we began to wait for one
        self.burst_at = 0.0
        self._backlog = backlog
        self._live_from = 0  # what is numbered higher came about on this connection
        self._sent_seq = 0
        self._step_first = self._step_last = 0
        self._step_at = 0.0
        self._step_size = STEP_MIN
        self._is_step_timed = False
        self._sent_generation = -1

    def begin(self, now: float, burst_at: float) -> None:
        """Begin on a new connection."""
        self.burst_at = burst_at
        self._live_from = self._sent_seq = self._backlog.last_seq
        self._step_first = self._step_last = 0
        self._step_at, self._step_size, self._is_step_timed = now, STEP_MIN, False
        self._sent_generation = -1

    def ack(self, message: wire.Ack, now: float) -> None:
        self._backlog.ack(message.seq, message.spans, message.archived)
        self._step_done(now)

    @property
    def has_unsent(self) -> bool:
        return self._sent_seq < self._backlog.last_seq

    @property
    def is_filling(self) -> bool:
        """True while an Ack lets more go."""
        return self._step_out() > 0

    @property
    def next_step_at(self) -> float | None:
        """Time at which the next step of earlier messages may go; None: there is none."""
        if self._may_fill() and self._backlog.pending_in(self._step_last + 1, self._live_from):
            return self._step_at + STEP_EVERY_S
        return None

    def hopeless(self, now: float) -> str:
        """Return why this connection is of no use any more; "": it is."""
        live = self._live_out()
        if live == self._step_out() == 0:
            self.silent_since = now
        if now - self.silent_since > self._silence_s:
            return f"the hub has been silent for {self._silence_s:.0f} s"
        if live >= LIVE_MAX:
            return f"the hub has acknowledged none of {live} messages"
        return ""

    def burst(self, now: float) -> list[bytes]:
        """Return live messages, which go before all else."""
        if self._sent_seq >= self._backlog.last_seq:
            return []
        entries = self._backlog.entries(
            self._sent_seq, self._backlog.last_seq, BURST, wire.MAX_MESSAGE_BYTES)
        if not entries:
            return []
        self._mark_sent(entries, now)
        self._sent_seq, self.burst_at = entries[-1][0], now
        return [*self._unsent_inventories(), *(body for _, body in entries)]

    def backfill(self, now: float) -> list[bytes]:
        """Return one step of earlier messages."""
        if now < self._step_at + STEP_EVERY_S or not self._may_fill():
            return []
        entries = self._backlog.entries(self._step_last, self._live_from, self._step_size,
                                        min(STEP_BYTES, self._step_size * STEP_BYTES_EACH))
        self._step_at = now  # also of a disk that does not give what is there: not again at once
        if not entries:
            return []
        self._mark_sent(entries, now)
        self._step_first, self._step_last = entries[0][0], entries[-1][0]
        self._is_step_timed = True
        return [*self._unsent_inventories(), _pack([body for _, body in entries])]

    def _mark_sent(self, entries: list[tuple[int, bytes]], now: float) -> None:
        if self._live_out() == self._step_out() == 0:
            self.silent_since = now
        for seq, _ in entries:
            self._backlog.mark_sent(seq, seq)

    def _may_fill(self) -> bool:
        return (self._sent_seq >= self._backlog.last_seq and self._step_out() == 0
                and self._live_out() <= WINDOW)

    def _live_out(self) -> int:
        return self._backlog.pending_in(self._live_from + 1, self._sent_seq)

    def _step_out(self) -> int:
        return self._backlog.pending_in(self._step_first, self._step_last)

    def _step_done(self, now: float) -> None:
        """Adapt the step: the hub is as fast as it acks, and everyone's steps shrink while it is
        busy."""
        if self._is_step_timed and self._step_out() == 0:
            self._is_step_timed = False
            soon = now - self._step_at <= STEP_SOON_S
            size = self._step_size * 2 if soon else self._step_size // 2
            self._step_size = min(max(size, STEP_MIN), wire.MAX_BACKFILL)

    def _unsent_inventories(self) -> list[bytes]:
        if self._sent_generation == self._backlog.generation:
            return []
        bodies = self._backlog.inventories_after(self._sent_generation)
        self._sent_generation = self._backlog.generation
        return bodies


@dataclass(frozen=True, slots=True)
class OpenConnection:
    pass


@dataclass(frozen=True, slots=True)
class SendToHub:
    body: bytes


@dataclass(frozen=True, slots=True)
class CloseConnection:
    reason: str


Act = OpenConnection | SendToHub | CloseConnection


class HubIdentityError(Exception):
    """The peer is not our hub. The sentence is for people."""


class Credentials(Protocol):
    """Credentials of this node, and how it knows the hub."""

    def call(self) -> wire.Call: ...
    def hello(self, call: wire.Call, challenge: wire.Challenge) -> wire.Hello:
        """Raises HubIdentityError."""


def back_off(attempt: int, uniform: Callable[[float, float], float]) -> float:
    """Full jitter. The library's own reconnect brings 1,000 agents back within one second."""
    return uniform(0.0, min(BACK_OFF_MAX_S, 2.0 ** min(attempt, 10)))


class LinkStateMachine:
    def __init__(self, backlog: MessageBacklog, credentials: Credentials,
                 uniform: Callable[[float, float], float], urls: int = 1) -> None:
        """Begin at rest. `urls`: by how many the hub, or another that takes its place, is reached;
        0: there is none, and nobody is called."""
        self.phase: Phase = "resting"
        self.trouble = ""  # why there is no connection, for people
        self.welcomes = 0
        self._backlog = backlog
        self._has_hub, self._has_others = urls > 0, urls > 1
        self._quick_until = -math.inf
        self._delivery = MessageDelivery(
            backlog, SILENCE_OF_ONE_S if self._has_others else SILENCE_S)
        self._credentials = credentials
        self._call: wire.Call | None = None
        self._uniform = uniform
        self._attempt = 0
        self._call_at = 0.0
        self._dialed_at = 0.0
        self._live_since = 0.0
        self._beat_at = 0.0
        self._stream = ""  # that our Hello named
        self._hang_up = ""
        self._answers: list[bytes] = []

    # what happened

    def hold_until(self, now: float) -> None:
        """Do not call before: there is something to learn first that belongs in the Hello."""
        self._call_at = now

    def renew(self, now: float, why: str) -> None:
        """Connect again: what our Hello said has changed."""
        if self.phase == "live":
            self._rest(now, why, 0.0)

    def opened(self, now: float) -> None:
        if self.phase == "dialing":
            self.phase, self._dialed_at = "calling", now
            self._call = self._credentials.call()
            self._answers = [wire.encode(self._call)]

    def closed(self, now: float, why: str, denied: bool = False) -> None:
        """Note that no connection came about, or that it ended."""
        if self.phase == "resting":
            return
        if self.phase == "live" and now - self._live_since >= STEADY_S:
            self._attempt = 0
        if self.phase == "live" and now >= self._quick_until + QUICK_S:  # not of each one in a row
            self._quick_until = now + QUICK_S
        self._rest(now, why, self._uniform(*DENIED_S) if denied else self._next_back_off(now))

    def note_message(self, now: float) -> None:
        """Note that the hub is there, whatever it has sent."""
        self._delivery.silent_since = now

    def receive(self, message: wire.FromHub, now: float, wall: float) -> None:
        self.note_message(now)
        match message:
            case wire.Challenge() if self.phase == "calling" and self._call is not None:
                self._on_challenge(self._call, message, now)
            case wire.Welcome() if self.phase == "greeting":
                self._on_welcome(message, now)
            case wire.Refused():
                self._on_refused(message, now)
            case wire.Ack() if self.phase == "live" and self._stream == self._backlog.stream:
                self._delivery.ack(message, now)
            case wire.Probe() if self.phase == "live":
                self._answers.append(wire.encode(wire.Echo(message.probe_id, wall)))
            case _:
                pass

    # what to do

    def step(self, now: float, beat: Callable[[], wire.Beat]) -> list[Act]:
        if self.phase == "live" and self._stream != self._backlog.stream:
            self.renew(now, "the outbox was started afresh")
        elif reason := self._hopeless(now):
            self.closed(now, reason)
        if self.phase == "resting":
            return self._after_rest(now)
        actions: list[Act] = [SendToHub(body) for body in self._answers]
        self._answers = []
        if self.phase == "live":
            actions += self._beats(now, beat)
            actions += map(SendToHub, self._delivery.burst(now))
            actions += map(SendToHub, self._delivery.backfill(now))
        return actions

    def next_step_at(self, now: float) -> float:
        """Return when `step` is to be called again if nothing happens before."""
        if self.phase == "resting":
            return self._call_at if self._has_hub else math.inf
        if self.phase != "live":
            return now + 1.0
        if self._delivery.has_unsent:
            return now + BURST_EVERY_S
        step_at = self._delivery.next_step_at
        return self._beat_alone_at if step_at is None else min(self._beat_alone_at, step_at)

    def _after_rest(self, now: float) -> list[Act]:
        if self._hang_up:
            reason, self._hang_up = self._hang_up, ""
            return [CloseConnection(reason)]
        if now < self._call_at or not self._has_hub:
            return []
        self.phase, self._dialed_at = "dialing", now
        return [OpenConnection()]

    def _on_challenge(self, call: wire.Call, challenge: wire.Challenge, now: float) -> None:
        try:
            hello = self._credentials.hello(call, challenge)
        except HubIdentityError as stranger:
            self._rest(now, str(stranger), self._uniform(*DENIED_S))
            return
        self.phase, self._stream = "greeting", self._backlog.stream
        self._answers.append(wire.encode(hello))

    def _on_refused(self, message: wire.Refused, now: float) -> None:
        wait = self._next_back_off(now)
        if self.phase != "calling":  # only a hub that has shown its key may say how long
            retry_s = message.retry_after_s * self._uniform(1.0, 1.25)
            wait = retry_s if retry_s >= TOLD_MIN_S else max(retry_s, wait)
        self._rest(now, f"the hub refuses: {message.reason}", wait)

    def _on_welcome(self, welcome: wire.Welcome, now: float) -> None:
        if welcome.wire_version not in wire.SPOKEN_VERSIONS:
            self._rest(now, f"the hub speaks wire version {welcome.wire_version}, this agent "
                            f"{wire.SPOKEN_VERSIONS}; update the older one",
                       self._uniform(*DENIED_S))
            return
        if self._stream != self._backlog.stream:
            self._rest(now, "the outbox was started afresh", 0.0)
            return
        self._backlog.welcomed(welcome.acked_seq, welcome.spans, welcome.archived)
        self.phase, self.trouble = "live", ""
        self.welcomes += 1
        self._live_since = self._beat_at = now
        self._delivery.begin(now, now - FRAME_WITHIN_S)

    def _hopeless(self, now: float) -> str:
        if self.phase in ("dialing", "calling", "greeting") and now - self._dialed_at > GREETING_S:
            return f"the hub did not answer within {GREETING_S:.0f} s"
        if self.phase == "live":
            return self._delivery.hopeless(now)
        return ""

    def _beats(self, now: float, beat: Callable[[], wire.Beat]) -> list[Act]:
        goes_along = self._delivery.has_unsent
        if now < (self._beat_at - BEAT_EVERY_S / 8 if goes_along else self._beat_alone_at):
            return []
        self._beat_at = max(self._beat_at + BEAT_EVERY_S, now + BEAT_EVERY_S / 2)
        return [SendToHub(wire.encode(beat()))]

    @property
    def _beat_alone_at(self) -> float:
        return min(max(self._beat_at, self._delivery.burst_at + FRAME_WITHIN_S),
                   self._beat_at + BEAT_EVERY_S / 2)

    @property
    def is_filling(self) -> bool:
        """True while an Ack lets more go."""
        return self._delivery.is_filling

    def _next_back_off(self, now: float) -> float:
        if self._has_others and now < self._quick_until:
            return self._uniform(0.0, QUICK_WAIT_S)
        wait = back_off(self._attempt, self._uniform)
        self._attempt += 1
        return wait

    def _rest(self, now: float, why: str, wait: float) -> None:
        self._backlog.broke()
        self.phase, self.trouble, self._call_at = "resting", why, now + wait
        self._hang_up, self._answers = why, []

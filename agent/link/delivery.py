"""Which messages go to the hub when, on a connection that is up. Pure.

What happens while connected goes out at once; what was there before goes in steps beside it.
"""

from collections.abc import Sequence
from typing import Protocol

from gpudeck.wire import MAX_BACKFILL, MAX_MESSAGE_BYTES, Ack, Backfill, Span, encode

SILENCE_S = 15.0  # with messages out and not a word back: the connection is half open
# What comes about goes out at once, so many messages in one breath.
BURST = 32
BURST_EVERY_S = 0.1
# A hub that takes messages and keeps none for so many of them is called anew; an hour at 1 Hz.
LIVE_MAX = 3_600
# What was there before is made up for in steps, one at a time, and none while more than WINDOW of
# what is live is not acked. Their size follows the hub: it grows while a step is acked soon.
WINDOW = 64
STEP_EVERY_S = 0.25
STEP_SOON_S = 3.0
STEP_MIN = 16
STEP_BYTES = 256_000
STEP_BYTES_EACH = 2_000  # a thousand nodes of many Gpus that come back at once begin small, too
ENVELOPE_BYTES = 64  # of a Backfill with one message


class MessageBacklog(Protocol):
    """The Outbox, as far as a connection uses it."""

    @property
    def stream(self) -> str: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def generation(self) -> int: ...
    def welcomed(self, seq: int, spans: Sequence[Span]) -> None: ...
    def ack(self, seq: int, spans: Sequence[Span]) -> None: ...
    def said(self, first: int, last: int) -> None: ...
    def broke(self) -> None: ...
    def pending_in(self, first: int, last: int) -> int: ...
    def entries(self, after_seq: int, upto_seq: int, limit: int, max_bytes: int
                ) -> list[tuple[int, bytes]]: ...
    def inventories_after(self, generation: int) -> list[bytes]: ...


def _packed(bodies: list[bytes]) -> bytes:
    if len(bodies) == 1 and len(bodies[0]) > MAX_MESSAGE_BYTES - ENVELOPE_BYTES:
        return bodies[0]  # as itself it fits
    return encode(Backfill(tuple(bodies)))


class MessageDelivery:
    """What of the backlog was sent on this connection, and what may be sent next."""

    def __init__(self, backlog: MessageBacklog) -> None:
        self.silent_since = 0.0  # the last word of the hub, or when we began to wait for one
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
        """On a new connection."""
        self.burst_at = burst_at
        self._live_from = self._sent_seq = self._backlog.last_seq
        self._step_first = self._step_last = 0
        self._step_at, self._step_size, self._is_step_timed = now, STEP_MIN, False
        self._sent_generation = -1

    def ack(self, message: Ack, now: float) -> None:
        self._backlog.ack(message.seq, message.spans)
        self._step_done(now)

    @property
    def has_unsent(self) -> bool:
        return self._sent_seq < self._backlog.last_seq

    @property
    def is_filling(self) -> bool:
        """An Ack lets more go."""
        return self._step_out() > 0

    @property
    def next_step_at(self) -> float | None:
        """When the next step of what was there before may go; None: there is none."""
        if self._may_fill() and self._backlog.pending_in(self._step_last + 1, self._live_from):
            return self._step_at + STEP_EVERY_S
        return None

    def hopeless(self, now: float) -> str:
        """Why this connection serves for nothing any more; "": it does."""
        live = self._live_out()
        if live == self._step_out() == 0:
            self.silent_since = now
        if now - self.silent_since > SILENCE_S:
            return f"the hub has been silent for {SILENCE_S:.0f} s"
        if live >= LIVE_MAX:
            return f"the hub has kept none of {live} messages"
        return ""

    def burst(self, now: float) -> list[bytes]:
        """What is live, before all else."""
        if self._sent_seq >= self._backlog.last_seq:
            return []
        entries = self._backlog.entries(
            self._sent_seq, self._backlog.last_seq, BURST, MAX_MESSAGE_BYTES)
        if not entries:
            return []
        self._sent(entries, now)
        self._sent_seq, self.burst_at = entries[-1][0], now
        return [*self._unsent_inventories(), *(body for _, body in entries)]

    def backfill(self, now: float) -> list[bytes]:
        """One step of what was there before."""
        if now < self._step_at + STEP_EVERY_S or not self._may_fill():
            return []
        entries = self._backlog.entries(self._step_last, self._live_from, self._step_size,
                                        min(STEP_BYTES, self._step_size * STEP_BYTES_EACH))
        self._step_at = now  # also of a disk that does not give what is there: not again at once
        if not entries:
            return []
        self._sent(entries, now)
        self._step_first, self._step_last = entries[0][0], entries[-1][0]
        self._is_step_timed = True
        return [*self._unsent_inventories(), _packed([body for _, body in entries])]

    def _sent(self, entries: list[tuple[int, bytes]], now: float) -> None:
        if self._live_out() == self._step_out() == 0:
            self.silent_since = now
        for seq, _ in entries:
            self._backlog.said(seq, seq)

    def _may_fill(self) -> bool:
        return (self._sent_seq >= self._backlog.last_seq and self._step_out() == 0
                and self._live_out() <= WINDOW)

    def _live_out(self) -> int:
        return self._backlog.pending_in(self._live_from + 1, self._sent_seq)

    def _step_out(self) -> int:
        return self._backlog.pending_in(self._step_first, self._step_last)

    def _step_done(self, now: float) -> None:
        """The hub is as fast as it acks: everyone's steps shrink while it is busy."""
        if self._is_step_timed and self._step_out() == 0:
            self._is_step_timed = False
            soon = now - self._step_at <= STEP_SOON_S
            size = self._step_size * 2 if soon else self._step_size // 2
            self._step_size = min(max(size, STEP_MIN), MAX_BACKFILL)

    def _unsent_inventories(self) -> list[bytes]:
        if self._sent_generation == self._backlog.generation:
            return []
        bodies = self._backlog.inventories_after(self._sent_generation)
        self._sent_generation = self._backlog.generation
        return bodies

"""Rate at which one agent may send. Pure.

An outage is made up for at our pace and is no offence: what counts against an agent is that it
makes messages too fast, or repeats the same again and again.
"""

from dataclasses import dataclass

from gpudeck.contract import wire
from gpudeck.rate import TokenBucket

BURST_S = 10
PACE_PER_S = 200.0


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A kind of thing that an agent sent more of than it may, and how much it may."""

    what: str
    most: str


class AgentRate:
    """`backlog_to`: the last number that the agent had given out by its Hello. `rest_s`: how long
    to wait before reading on; the kernel slows the sender down."""

    __slots__ = ("_bytes", "_bytes_per_s", "_messages", "_messages_per_s", "_pace", "backlog_to",
                 "newest", "rest_s", "since_mono")

    def __init__(self, messages_per_s: int, bytes_per_s: int, since_mono: float, mono: float,
                 backlog_to: int = 0, newest: int = 0) -> None:
        self._messages_per_s, self._bytes_per_s = messages_per_s, bytes_per_s
        self._messages = TokenBucket(messages_per_s, messages_per_s * BURST_S, mono)
        self._bytes = TokenBucket(bytes_per_s, bytes_per_s * BURST_S, mono)
        self._pace = TokenBucket(PACE_PER_S, PACE_PER_S, mono)
        self.since_mono = since_mono
        self.backlog_to = backlog_to
        self.newest = newest
        self.rest_s = 0.0

    def excess(self, message: wire.FromAgent, size: int, mono: float) -> Exceeded | None:
        """Count a message, and return what there is too much of, if anything."""
        fits = self._bytes.take(size, mono)
        if isinstance(message, wire.Frame | wire.Event) and self._is_due(message.seq, mono):
            if not self._pace.take(1, mono):
                self.rest_s += 1 / PACE_PER_S
            if not fits:
                self.rest_s += size / self._bytes_per_s
            return None
        if not fits:
            return Exceeded("bytes", f"{self._bytes_per_s:,} bytes a second")
        if not self._messages.take(1, mono):
            return Exceeded("messages", f"{self._messages_per_s:,} messages a second")
        return None

    def _is_due(self, seq: int, mono: float) -> bool:
        """Return whether it is new on this link, and not numbered ahead of what time allows."""
        if seq <= self.newest:
            return False
        self.newest = seq
        age_s = BURST_S + mono - self.since_mono
        return seq <= self.backlog_to + age_s * self._messages_per_s

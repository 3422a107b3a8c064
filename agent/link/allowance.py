"""Limit of what a hub may send on one connection. Pure.

It has little to send: an Ack a second, now and then a question or an order. A hub's process
that was taken over cannot sign an order, but it can send."""

MESSAGES_PER_S, MESSAGES_AT_ONCE = 100.0, 3_000.0
BYTES_PER_S, BYTES_AT_ONCE = 500_000.0, 8_000_000.0


class HubAllowance:
    def __init__(self, now: float) -> None:
        self._at = now
        self._messages, self._bytes = MESSAGES_AT_ONCE, BYTES_AT_ONCE

    def take(self, size_bytes: int, now: float) -> bool:
        """Return whether one more message of this size fits."""
        passed_s, self._at = max(0.0, now - self._at), now
        self._messages = min(MESSAGES_AT_ONCE, self._messages + passed_s * MESSAGES_PER_S) - 1
        self._bytes = min(BYTES_AT_ONCE, self._bytes + passed_s * BYTES_PER_S) - size_bytes
        return self._messages >= 0 and self._bytes >= 0

"""Rates: how much one sender may send, and how often the same thing is reported. Pure."""

from collections.abc import Hashable

FORGET_BEYOND = 4_096
REFUSALS_AT_ONCE, REFUSALS_EVERY_S = 10, 60.0  # an endless stream of them must not fill the disk


class TokenBucket:
    """Allowance of `per_s` on average, and `burst` at once."""

    __slots__ = ("_burst", "_filled_mono", "_per_s", "_tokens")

    def __init__(self, per_s: float, burst: float, mono: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = burst
        self._filled_mono = mono

    def take(self, amount: float, mono: float) -> bool:
        """Take an amount; return False, and take nothing, if it exceeds the rate."""
        tokens = self._tokens + (mono - self._filled_mono) * self._per_s
        if tokens > self._burst:
            tokens = self._burst
        self._filled_mono = mono
        fits = tokens >= amount
        self._tokens = tokens - amount if fits else tokens
        return fits


class RateLimiter:
    """Limit per key: `burst` at once, then one every `every_s`; counts those that are left out."""

    def __init__(self, burst: int = 1, every_s: float = 60.0) -> None:
        self._burst = burst
        self._every_s = every_s
        self._used: dict[Hashable, tuple[float, int]] = {}  # until when, how many left out

    def due(self, key: Hashable, now: float) -> int | None:
        """Return how many were left out since the last one; None: this one is left out, too. A
        clock that is set back uses up the burst at most."""
        until, left_out = self._used.get(key, (now, 0))
        until = min(max(until, now), now + self._burst * self._every_s)
        if len(self._used) > FORGET_BEYOND:
            self._used.clear()
        if until - now > (self._burst - 1) * self._every_s:
            self._used[key] = until, left_out + 1
            return None
        self._used[key] = until + self._every_s, 0
        return left_out

    def may(self, key: Hashable, now: float) -> bool:
        return self.due(key, now) is not None

"""Limit how often an event is reported: a burst, then one per interval. Pure."""

from collections.abc import Hashable

FORGET_BEYOND = 4_096
REFUSALS_AT_ONCE, REFUSALS_EVERY_S = 10, 60.0


class RateLimiter:
    """A bucket of `burst` for each key; one more comes every `every_s`."""

    def __init__(self, burst: int, every_s: float) -> None:
        self._burst = burst
        self._every_s = every_s
        self._tokens: dict[Hashable, tuple[float, float]] = {}  # how many, at what time

    def may(self, key: Hashable, now: float) -> bool:
        tokens, at = self._tokens.get(key, (float(self._burst), now))
        tokens = min(self._burst, tokens + max(0.0, now - at) / self._every_s)
        if len(self._tokens) > FORGET_BEYOND:
            self._tokens.clear()
        self._tokens[key] = (tokens - 1.0 if tokens >= 1.0 else tokens, now)
        return tokens >= 1.0


class RefusalCounter:
    """Counts refusals, so that an endless stream of them does not fill the disk."""

    def __init__(self) -> None:
        self._limiter = RateLimiter(REFUSALS_AT_ONCE, REFUSALS_EVERY_S)
        self._unrecorded = 0

    def count(self, now: float) -> int:
        """Return how many to record as one now, with those that were not; 0: not yet."""
        self._unrecorded += 1
        if not self._limiter.may("refusal", now):
            return 0
        count, self._unrecorded = self._unrecorded, 0
        return count

"""Limit how often an event is reported: a burst, then one per interval. Pure."""

from collections.abc import Hashable

FORGET_BEYOND = 4_096
REFUSALS_AT_ONCE, REFUSALS_EVERY_S = 10, 60.0


class RateLimiter:
    """A bucket of `burst` for each key; one more comes every `every_s`."""

    def __init__(self, burst: int, every_s: float) -> None:
        self._burst = burst
        self._every_s = every_s
        self._left: dict[Hashable, tuple[float, float]] = {}  # how many, at what time

    def may(self, key: Hashable, now: float) -> bool:
        left, at = self._left.get(key, (float(self._burst), now))
        left = min(self._burst, left + max(0.0, now - at) / self._every_s)
        if len(self._left) > FORGET_BEYOND:
            self._left.clear()
        self._left[key] = (left - 1.0 if left >= 1.0 else left, now)
        return left >= 1.0


class RefusalCounter:
    """An endless stream of what is refused must not fill the disk."""

    def __init__(self) -> None:
        self._limiter = RateLimiter(REFUSALS_AT_ONCE, REFUSALS_EVERY_S)
        self._untold = 0

    def count(self, now: float) -> int:
        """How many are to be recorded as one now, with those that were not; 0: not yet."""
        self._untold += 1
        if not self._limiter.may("refusal", now):
            return 0
        told, self._untold = self._untold, 0
        return told

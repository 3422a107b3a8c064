"""Token bucket: how much one sender may send."""


class TokenBucket:
    """Allowance of `per_s` on average, and `burst` at once."""

    __slots__ = ("_burst", "_filled_mono", "_per_s", "_tokens")

    def __init__(self, per_s: float, burst: float, mono: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = burst
        self._filled_mono = mono

    def take(self, amount: float, mono: float) -> bool:
        """Take so much; False: that is over the rate, and nothing was taken."""
        self._tokens = min(self._burst, self._tokens + (mono - self._filled_mono) * self._per_s)
        self._filled_mono = mono
        if self._tokens < amount:
            return False
        self._tokens -= amount
        return True

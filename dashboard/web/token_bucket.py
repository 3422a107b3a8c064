"""How much one sender may send: a token bucket."""


class TokenBucket:
    """`per_s` on average, `burst` at once."""

    __slots__ = ("_burst", "_filled_mono", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float, mono: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._filled_mono = mono

    def take(self, amount: float, mono: float) -> bool:
        """False: over the rate; nothing was taken."""
        self._left = min(self._burst, self._left + (mono - self._filled_mono) * self._per_s)
        self._filled_mono = mono
        if self._left < amount:
            return False
        self._left -= amount
        return True

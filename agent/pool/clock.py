"""Two clocks: one that nobody can set, by which leases last, and the one that people read."""

from collections.abc import Callable
from dataclasses import dataclass, field

STEPPED_S = 2.0  # less is drift: what is reported does not change for it


@dataclass(slots=True)
class PoolClock:
    now: Callable[[], float]  # seconds since the machine started
    wall: Callable[[], float]
    _shift: float = field(init=False, default=0.0)

    def utc(self, at: float) -> float:
        shift = self.wall() - self.now()
        if abs(shift - self._shift) >= STEPPED_S:
            self._shift = shift
        return round(at + self._shift, 3)

    def local(self, utc: float) -> float:
        """What `utc` makes that of."""
        return utc - self.utc(0.0)

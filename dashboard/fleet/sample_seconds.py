"""Seconds of the hub's clock for samples, such that a steady tick has one in each."""

import math

from msgspec import Struct

EDGE = 0.15
# Further from the second's middle a tick is not: the node's clock or ours has stepped.
SHIFT_MOST_S = 0.5 + EDGE


class SampleTick(Struct, frozen=True, gc=False, array_like=True):
    """Time at which a sample was taken, by its node's clock, and the second that it was given."""

    taken_at: float
    second: int


class SampleSecondAligner:
    """Aligner for one Node. Its ticks come at the same part of each second, give or take some
    milliseconds: where that part lies near the second's edge, they would fall twice into one and
    not at all into the next. So seconds are cut halfway between ticks, until those have drifted."""

    __slots__ = ("_shift",)

    def __init__(self) -> None:
        self._shift: float | None = None

    def follow(self, tick: SampleTick, taken_at: float, t: float) -> None:
        """Cut seconds as those of an earlier sample were, of another connection or of another hub:
        so that none is left out or doubled between them. `t`: when the next one was taken, by our
        clock."""
        shift = t - (tick.second + round(taken_at - tick.taken_at)) - 0.5
        if abs(shift) <= SHIFT_MOST_S:
            self._shift = shift

    def of(self, t: float) -> int:
        if self._shift is None or not EDGE <= (t - self._shift) % 1.0 <= 1.0 - EDGE:
            self._shift = t % 1.0 - 0.5
        return math.floor(t - self._shift)

"""Seconds of the hub's clock for samples, such that a steady tick has one in each."""

import math

EDGE = 0.15


class SampleSecondAligner:
    """Aligner for one Node. Its ticks come at the same part of each second, give or take some
    milliseconds: where that part lies near the second's edge, they would fall twice into one and
    not at all into the next. So seconds are cut halfway between ticks, until those have drifted."""

    __slots__ = ("_shift",)

    def __init__(self) -> None:
        self._shift: float | None = None

    def of(self, t: float) -> int:
        if self._shift is None or not EDGE <= (t - self._shift) % 1.0 <= 1.0 - EDGE:
            self._shift = t % 1.0 - 0.5
        return math.floor(t - self._shift)

"""A row of metric values, and counters that rates are taken from. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from gpudeck.measures.metrics import COLUMNS, SLOW, UNKNOWN, Absence, Metric

# Two clocks take part in a share of time: a little over the whole is the whole.
SHARE_SLACK_PCT = 5.0
# Why clocks are low, of metrics.THROTTLE_REASONS.
POWER_CAP, SOFT_THERMAL, HARD_THERMAL = 0x4, 0x20, 0x40
_PRESENT, _UNKNOWN = int(Absence.PRESENT), int(Absence.UNKNOWN)


class _MetricLayout(NamedTuple):
    keys: tuple[str, ...]
    places: Mapping[str, tuple[int, float, float]]  # and what is in range
    unknown: bytes


def _shape(metrics: Sequence[Metric]) -> _MetricLayout:
    return _MetricLayout(
        tuple(metric.key for metric in metrics),
        {metric.key: (at, metric.low, metric.high) for at, metric in enumerate(metrics)},
        bytes([UNKNOWN]) * len(metrics))


_FAST, _SLOW = _shape(COLUMNS), _shape(SLOW)


class MetricRow:
    """The values of one GPU while they are being collected; absent until put. A number that
    cannot be is a sentinel of the driver or a lie, and unknown."""

    def __init__(self, shape: _MetricLayout = _FAST) -> None:
        self._keys, self._places = shape.keys, shape.places
        self.values = [0.0] * len(shape.keys)
        self.absent = bytearray(shape.unknown)

    @classmethod
    def slow(cls) -> "MetricRow":
        return cls(_SLOW)

    def put(self, key: str, value: "float | Absence", scale: float = 1.0) -> None:
        at, low, high = self._places[key]
        if type(value) is Absence:
            self.absent[at], self.values[at] = value, 0.0
        elif low <= (number := value * scale) <= high:
            self.absent[at], self.values[at] = _PRESENT, number
        else:
            self.absent[at], self.values[at] = _UNKNOWN, 0.0

    def missing(self) -> Mapping[str, str]:
        """Return what this GPU does not report, and why: by metric key. The same object while
        nothing changes."""
        return _missing(self._keys, bytes(self.absent))


@lru_cache(maxsize=256)
def _missing(keys: tuple[str, ...], absent: bytes) -> Mapping[str, str]:
    """Return one mapping for all boards of a kind: they lack the same, in every reading."""
    return MappingProxyType({key: Absence(why).word for key, why in zip(keys, absent, strict=True)
                             if why in (Absence.UNSUPPORTED, Absence.DENIED)})


@dataclass(slots=True)
class MonotonicCounter:
    """A number that only grows, unless it wraps or is reset (the driver was reloaded, the GPU
    reset). `hides_32`: one of 32 bits may come in a type of 64, as nvml.h says of PCIe's bytes
    (fields 197 and 198)."""

    hides_32: bool = False
    value: int | None = None
    at: float = 0.0

    def rate(self, value: int, bits: int, now: float) -> "float | Absence":
        before, elapsed_s = self.value, now - self.at
        self.value, self.at = value, now
        if before is None or elapsed_s <= 0:
            return UNKNOWN
        if value >= before:
            return (value - before) / elapsed_s
        wraps = bits <= 32 or (self.hides_32 and before < 2**32)
        # No counter of 64 bits wraps in our lifetime: it was reset, and how far it had come
        # nobody knows.
        return (value - before) % 2**32 / elapsed_s if wraps else UNKNOWN

    def share_pct(self, value: int, bits: int, now: float) -> "float | Absence":
        """Return the share of time, of a counter of nanoseconds."""
        rate = self.rate(value, bits, now)
        if type(rate) is Absence:
            return rate
        share_pct = rate * 1e-7
        return min(share_pct, 100.0) if share_pct <= 100.0 + SHARE_SLACK_PCT else UNKNOWN

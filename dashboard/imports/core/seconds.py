"""Aggregation of a recording's rows into the seconds that history keeps. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpudeck.measures.metrics import Absence
from gpudeck.measures.metrics import metric as metric_of

# A recording is ordered by time, except where threads wrote concurrently.
DISORDER_S = 60
PEAK_OF = {"util_max_pct": "util_pct", "power_max_w": "power_w"}
LOST = Absence.LOST

Value = float | Absence


@dataclass(slots=True)
class RecordedGpu:
    """A GPU of a recording. `key` is unique within its node in this recording."""

    host: str
    key: str
    index: int
    name: str | None = None
    serial: str | None = None
    pci: str | None = None
    mem_total_bytes: float | None = None


@dataclass(slots=True)
class RecordedRow:
    """Values of one GPU at one moment."""

    gpu: RecordedGpu
    at: float
    values: dict[str, Value]


@dataclass(slots=True)
class _Spread:
    """Numbers of one metric within a second."""

    last: float
    total: float
    most: float
    count: int = 1

    def add(self, value: float) -> None:
        self.last = value
        self.total += value
        self.most = max(self.most, value)
        self.count += 1

    def of(self, key: str) -> float:
        aggregate = metric_of(key).aggregate
        if aggregate == "mean":
            return self.total / self.count
        return self.most if aggregate == "max" else self.last


@dataclass(slots=True)
class ImportedSecond:
    gpu: RecordedGpu
    t: int
    values: dict[str, Value]

    @property
    def is_lost(self) -> bool:
        """Tell whether the GPU was lost: every value of the second says so."""
        return bool(self.values) and all(value is LOST for value in self.values.values())


@dataclass(slots=True)
class _GpuSeconds:
    gpu: RecordedGpu
    newest: int = 0
    open: dict[int, dict[str, _Spread | Absence]] = field(default_factory=dict)


class SecondsOfGpus:
    """Merges rows of one second: averages stay averages, maxima stay maxima, and of all else the
    last value counts."""

    def __init__(self) -> None:
        self._gpus: dict[tuple[str, str], _GpuSeconds] = {}
        self._closed_until: dict[tuple[str, str], int] = {}

    def add(self, row: RecordedRow) -> bool:
        """Add a row; False: it is too late, because its second is closed already."""
        key, t = (row.gpu.host, row.gpu.key), int(row.at)
        if t < self._closed_until.get(key, 0):
            return False
        seconds = self._gpus.get(key)
        if seconds is None:
            seconds = self._gpus[key] = _GpuSeconds(row.gpu)
        seconds.newest = max(seconds.newest, t)
        second = seconds.open.setdefault(t, {})
        for name, value in row.values.items():
            spread = second.get(name)
            if isinstance(value, Absence):
                second.setdefault(name, value)
            elif isinstance(spread, _Spread):
                spread.add(value)
            else:
                second[name] = _Spread(value, value, value)
        return True

    def closed(self) -> Iterator[ImportedSecond]:
        """Yield and remove the seconds to which no row is added any more."""
        for key, seconds in self._gpus.items():
            until = seconds.newest - DISORDER_S
            yield from self._pop_until(seconds, until)
            self._closed_until[key] = until

    def rest(self) -> Iterator[ImportedSecond]:
        for seconds in self._gpus.values():
            yield from self._pop_until(seconds, seconds.newest + 1)

    @staticmethod
    def _pop_until(seconds: _GpuSeconds, until: int) -> Iterator[ImportedSecond]:
        for t in sorted(t for t in seconds.open if t < until):
            second = seconds.open.pop(t)
            values: dict[str, Value] = {
                key: value.of(key) if isinstance(value, _Spread) else value
                for key, value in second.items()}
            for peak, metric in PEAK_OF.items():
                spread = second.get(metric)
                if isinstance(spread, _Spread) and spread.count > 1:
                    values.setdefault(peak, spread.most)
            yield ImportedSecond(seconds.gpu, t, values)

"""Rows of a recording, made into the seconds that history keeps. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpudeck.metrics import Absence
from gpudeck.metrics import metric as metric_of

# A recording is in the order of its times, but for threads that wrote side by side.
DISORDER_S = 60
PEAK_OF = {"util_max_pct": "util_pct", "power_max_w": "power_w"}
LOST = Absence.LOST

Value = float | Absence


@dataclass(slots=True)
class RecordedGpu:
    """`key`: what tells it from others of its node in this recording."""

    host: str
    key: str
    index: int
    name: str | None = None
    serial: str | None = None
    pci: str | None = None
    mem_total_bytes: float | None = None


@dataclass(slots=True)
class RecordedRow:
    """What a recording says of one GPU at one moment."""

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
        """Where nothing else is told of it."""
        return bool(self.values) and all(value is LOST for value in self.values.values())


@dataclass(slots=True)
class _GpuSeconds:
    gpu: RecordedGpu
    newest: int = 0
    open: dict[int, dict[str, _Spread | Absence]] = field(default_factory=dict)


class SecondsOfGpus:
    """Several rows of one second become one: means stay means, peaks stay peaks, of all else the
    last is told."""

    def __init__(self) -> None:
        self._gpus: dict[tuple[str, str], _GpuSeconds] = {}
        self._closed_until: dict[tuple[str, str], int] = {}

    def add(self, row: RecordedRow) -> bool:
        """False: it is too far behind its neighbours, whose seconds are closed."""
        key, t = (row.gpu.host, row.gpu.key), int(row.at)
        if t < self._closed_until.get(key, 0):
            return False
        of = self._gpus.get(key)
        if of is None:
            of = self._gpus[key] = _GpuSeconds(row.gpu)
        of.newest = max(of.newest, t)
        second = of.open.setdefault(t, {})
        for name, value in row.values.items():
            known = second.get(name)
            if isinstance(value, Absence):
                second.setdefault(name, value)
            elif isinstance(known, _Spread):
                known.add(value)
            else:
                second[name] = _Spread(value, value, value)
        return True

    def closed(self) -> Iterator[ImportedSecond]:
        """Those to which nothing is added any more."""
        for key, of in self._gpus.items():
            until = of.newest - DISORDER_S
            yield from self._taken(of, until)
            self._closed_until[key] = until

    def rest(self) -> Iterator[ImportedSecond]:
        for of in self._gpus.values():
            yield from self._taken(of, of.newest + 1)

    @staticmethod
    def _taken(of: _GpuSeconds, until: int) -> Iterator[ImportedSecond]:
        for t in sorted(t for t in of.open if t < until):
            second = of.open.pop(t)
            values: dict[str, Value] = {
                key: value.of(key) if isinstance(value, _Spread) else value
                for key, value in second.items()}
            for peak, of_what in PEAK_OF.items():
                spread = second.get(of_what)
                if isinstance(spread, _Spread) and spread.count > 1:
                    values.setdefault(peak, spread.most)
            yield ImportedSecond(of.gpu, t, values)

"""What the tuning of MPS shares looks at, out of readings, and what it would have done in those of
a recording, or in the minutes that a hub keeps. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpudeck.metrics import COLUMN, Absence

from ..readings import ProcessReading, Reading
from .autotune import TuneDecision, TuneInput, tune

UTIL = COLUMN["util_pct"]
OF_MPS = ("mps_server", "mps_client")
# Readings come each second: after a hole nothing is known of the time in it.
GAP_S = 30.0
MINUTE_S = 60.0


@dataclass(slots=True)
class MpsLoadMeter:
    """Of the boards that MPS is on, or of all while none is known to be; since the last `take`."""

    clients: int | None = None  # None: no list of processes yet
    _boards: frozenset[str] = frozenset()
    _loads: dict[str, list[float]] = field(default_factory=dict)

    def see(self, reading: Reading) -> None:
        if reading.processes is not None:
            self._count(reading.processes)
        for gpu in reading.gpus:
            if gpu.state == "ok" and gpu.absent[UTIL] == Absence.PRESENT:
                self.load(gpu.uuid, gpu.values[UTIL])

    def load(self, gpu_uuid: str, load_pct: float) -> None:
        self._loads.setdefault(gpu_uuid, []).append(load_pct)

    def listed(self, clients: int, boards: Iterable[str]) -> None:
        """`boards`: that MPS is on."""
        self.clients, self._boards = clients, frozenset(boards)

    def _count(self, processes: Iterable[ProcessReading]) -> None:
        theirs = [each for each in processes if each.kind in OF_MPS]
        self.listed(len({each.pid for each in theirs if each.kind == "mps_client"}),
                    (each.gpu_uuid for each in theirs))

    def take(self) -> float | None:
        """The mean load of the busiest, in %; None: not known."""
        loads, self._loads = self._loads, {}
        means = {uuid: sum(each) / len(each) for uuid, each in loads.items()}
        of_mps = [mean for uuid, mean in means.items() if uuid in self._boards]
        return max(of_mps or means.values(), default=None)


@dataclass(frozen=True, slots=True)
class TuneBacktestStep:
    """One look: at what, and what would have been done."""

    at: float
    seen: TuneInput
    tune: TuneDecision


def rehearse(readings: Iterable[Reading], every_s: float,
             begin_pct: int) -> Iterator[TuneBacktestStep]:
    """As in life, but for one thing: the past does not answer to the share."""
    watch, now_pct = MpsLoadMeter(), float(begin_pct)
    last_at = due_at = float("-inf")
    for reading in readings:
        at = reading.taken_at
        if not 0 <= at - last_at <= GAP_S:
            watch, due_at = MpsLoadMeter(), at + every_s
        last_at = at
        watch.see(reading)
        if at < due_at or watch.clients is None:
            continue
        due_at = at + every_s
        would = _look(at, watch, now_pct)
        now_pct = now_pct if would.tune.pct is None else float(would.tune.pct)
        yield would


@dataclass(frozen=True, slots=True)
class MpsMinute:
    """`clients` None: not known. `loads`: of each board that said; `boards`: that MPS was on."""

    ends_at: float
    clients: int | None
    loads: Mapping[str, float] = field(default_factory=dict)
    boards: frozenset[str] = frozenset()


def rehearse_minutes(minutes: Iterable[MpsMinute], every_s: float,
                     begin_pct: int) -> Iterator[TuneBacktestStep]:
    """The same, of what a hub has kept. Nothing is known behind a minute that is not: the next look
    is `every_s` after it."""
    watch, now_pct, due_at = MpsLoadMeter(), float(begin_pct), None
    for minute in minutes:
        if minute.clients is None:
            watch, due_at = MpsLoadMeter(), None
            continue
        due_at = minute.ends_at - MINUTE_S + every_s if due_at is None else due_at
        watch.listed(minute.clients, minute.boards)
        for uuid, load_pct in minute.loads.items():
            watch.load(uuid, load_pct)
        if minute.ends_at < due_at:
            continue
        due_at = minute.ends_at + every_s
        would = _look(minute.ends_at, watch, now_pct)
        now_pct = now_pct if would.tune.pct is None else float(would.tune.pct)
        yield would


def _look(at: float, watch: MpsLoadMeter, now_pct: float) -> TuneBacktestStep:
    assert watch.clients is not None
    seen = TuneInput(watch.clients, watch.take(), now_pct)
    return TuneBacktestStep(at, seen, tune(seen))

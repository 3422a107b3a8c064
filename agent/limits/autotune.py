"""What share of the threads new clients of MPS should get: near 100 / clients, more where the GPU
is idle, less where it is full, and never by much at once; and what that would have done in the
readings of a recording, or in the minutes that a hub keeps. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpudeck.metrics import COLUMN, Absence

from ..readings import ProcessReading, Reading

LOW_PCT, HIGH_PCT = 70.0, 90.0  # load
RAISE, LOWER = 1.5, 0.8
LEAST, MOST = 10, 100
STEP = 10  # points at once
STILL = 2  # closer than this is there
UTIL = COLUMN["util_pct"]
OF_MPS = ("mps_server", "mps_client")
# Readings come each second: after a hole nothing is known of the time in it.
GAP_S = 30.0
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class TuneInput:
    clients: int
    load_pct: float | None  # of the busiest GPU, mean since the last look; None: not known
    now_pct: float | None  # that new clients get


@dataclass(frozen=True, slots=True)
class TuneDecision:
    """`pct` None: nothing is changed, and why."""

    pct: int | None
    goal: int | None
    why: str


def tune(seen: TuneInput) -> TuneDecision:
    if seen.load_pct is None or seen.now_pct is None:
        return TuneDecision(None, None,
                            "the load or the present share is not known: nothing is changed")
    if seen.clients == 0:
        return TuneDecision(None, None, "no client runs: nothing is changed")
    goal, words = _goal(seen.clients, seen.load_pct)
    away = goal - seen.now_pct
    if abs(away) < STILL:
        return TuneDecision(None, goal, f"{words}; {seen.now_pct:g} % is close to {goal} %")
    pct = round(seen.now_pct + max(-STEP, min(STEP, away)))
    pct = max(LEAST, min(MOST, pct))
    return TuneDecision(pct, goal, f"{words}; from {seen.now_pct:g} % towards {goal} %, at most "
                                   f"{STEP} points at once")


def _goal(clients: int, load_pct: float) -> tuple[int, str]:
    share, words = 100 / clients, f"100 / {clients} client{'s' * (clients != 1)}"
    if load_pct < LOW_PCT:
        share, words = share * RAISE, f"{words}, x{RAISE:g} at {load_pct:.0f} % load"
    elif load_pct > HIGH_PCT:
        share, words = share * LOWER, f"{words}, x{LOWER:g} at {load_pct:.0f} % load"
    return max(LEAST, min(MOST, round(share))), words


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


@dataclass(frozen=True, slots=True)
class MpsMinute:
    """`clients` None: not known. `loads`: of each board that said; `boards`: that MPS was on."""

    ends_at: float
    clients: int | None
    loads: Mapping[str, float] = field(default_factory=dict)
    boards: frozenset[str] = frozenset()


def rehearse(readings: Iterable[Reading], every_s: float,
             begin_pct: int) -> Iterator[TuneBacktestStep]:
    """As in life, but for one thing: the past does not answer to the share."""
    return _looks(_due_readings(readings, every_s), begin_pct)


def rehearse_minutes(minutes: Iterable[MpsMinute], every_s: float,
                     begin_pct: int) -> Iterator[TuneBacktestStep]:
    """The same, of what a hub has kept. Nothing is known behind a minute that is not: the next look
    is `every_s` after it."""
    return _looks(_due_minutes(minutes, every_s), begin_pct)


def _due_readings(readings: Iterable[Reading], every_s: float
                  ) -> Iterator[tuple[float, int, float | None]]:
    """When to look, and how many clients and what load there are then."""
    watch, last_at, due_at = MpsLoadMeter(), float("-inf"), float("-inf")
    for reading in readings:
        at = reading.taken_at
        if not 0 <= at - last_at <= GAP_S:
            watch, due_at = MpsLoadMeter(), at + every_s
        last_at = at
        watch.see(reading)
        if at >= due_at and watch.clients is not None:
            due_at = at + every_s
            yield at, watch.clients, watch.take()


def _due_minutes(minutes: Iterable[MpsMinute], every_s: float
                 ) -> Iterator[tuple[float, int, float | None]]:
    watch, due_at = MpsLoadMeter(), None
    for minute in minutes:
        if minute.clients is None:
            watch, due_at = MpsLoadMeter(), None
            continue
        due_at = minute.ends_at - MINUTE_S + every_s if due_at is None else due_at
        watch.listed(minute.clients, minute.boards)
        for uuid, load_pct in minute.loads.items():
            watch.load(uuid, load_pct)
        if minute.ends_at >= due_at:
            due_at = minute.ends_at + every_s
            yield minute.ends_at, minute.clients, watch.take()


def _looks(due: Iterable[tuple[float, int, float | None]], begin_pct: int
           ) -> Iterator[TuneBacktestStep]:
    now_pct = float(begin_pct)
    for at, clients, load_pct in due:
        seen = TuneInput(clients, load_pct, now_pct)
        found = tune(seen)
        now_pct = now_pct if found.pct is None else float(found.pct)
        yield TuneBacktestStep(at, seen, found)

"""Tuning of the share of threads that new clients of MPS get: near 100 / clients, more where the
GPU is idle, less where it is full, and never by much at once; and what that would have done in the
minutes that a hub keeps. Pure."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpudeck.measures.metrics import COLUMN, Absence

from ..readings import ProcessReading, Reading

LOW_PCT, HIGH_PCT = 70.0, 90.0  # load
RAISE, LOWER = 1.5, 0.8
LEAST, MOST = 10, 100
LOAD_MARGIN_PCT = 5.0  # by which the load must leave a band, so that noise at its edge does not
STEP = 25  # points at once
DEAD_BAND = 10  # closer than this is there
UP_AFTER_S, DOWN_AFTER_S = 1_800.0, 7_200.0  # since the change before
DAY_S, CHANGES_A_DAY = 86_400.0, 6
UTIL = COLUMN["util_pct"]
OF_MPS = ("mps_server", "mps_client")
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class TuneInput:
    clients: int
    load_pct: float | None  # of the busiest GPU, mean since the last look; None: not known
    now_pct: float | None  # that new clients get


@dataclass(frozen=True, slots=True)
class TuneDecision:
    """Decision of the tuner. `pct` None: nothing is changed, and why."""

    pct: int | None
    goal: int | None
    why: str


Band = Literal["low", "middle", "high"]
FACTOR: dict[Band, float] = {"low": RAISE, "middle": 1.0, "high": LOWER}


@dataclass(slots=True)
class MpsTuner:
    """Tuner that knows what it has changed, so that it does not flap: a share that is near is left
    alone, a change is waited out, and a day has only so many."""

    band: Band | None = None  # of the load
    changed_at: deque[float] = field(default_factory=deque)  # within a day

    def decide(self, at: float, observed: TuneInput) -> TuneDecision:
        """Decide on a change; one that names a share counts as a change at that moment."""
        if observed.load_pct is None or observed.now_pct is None:
            return TuneDecision(None, None,
                                "the load or the present share is not known: nothing is changed")
        if observed.clients == 0:
            return TuneDecision(None, None, "no client runs: nothing is changed")
        self.band = band_of(observed.load_pct, self.band)
        goal, words = _goal(observed.clients, observed.load_pct, self.band)
        away = goal - observed.now_pct
        if abs(away) < DEAD_BAND:
            return TuneDecision(None, goal, f"{words}; {observed.now_pct:g} % is close to {goal} %")
        if why := self._rests(at, away > 0):
            return TuneDecision(None, goal, f"{words}; {why}")
        pct = round(observed.now_pct + max(-STEP, min(STEP, away)))
        pct = max(LEAST, min(MOST, pct))
        self.changed_at.append(at)
        return TuneDecision(pct, goal, f"{words}; from {observed.now_pct:g} % towards {goal} %, at "
                                       f"most {STEP} points at once")

    def _rests(self, at: float, is_up: bool) -> str:
        """Return why no change is due yet; "": one may be. A clock set back lets none begin
        earlier."""
        while self.changed_at and self.changed_at[0] <= at - DAY_S:
            self.changed_at.popleft()
        if not self.changed_at:
            return ""
        after_s = UP_AFTER_S if is_up else DOWN_AFTER_S
        if at - self.changed_at[-1] < after_s:
            return (f"it goes {'up' if is_up else 'down'} {after_s / 60:.0f} min after the change "
                    "before at the earliest")
        if len(self.changed_at) >= CHANGES_A_DAY:
            return f"{CHANGES_A_DAY} changes a day are the maximum"
        return ""


def band_of(load_pct: float, was: Band | None) -> Band:
    """Return the band of a load. It stays what it was until the load has left it by a margin."""
    margin = 0.0 if was is None else LOAD_MARGIN_PCT
    low = LOW_PCT + (margin if was == "low" else -margin)
    high = HIGH_PCT + (-margin if was == "high" else margin)
    return "low" if load_pct < low else "high" if load_pct > high else "middle"


def _goal(clients: int, load_pct: float, band: Band) -> tuple[int, str]:
    words = f"100 / {clients} client{'s' * (clients != 1)}"
    if band != "middle":
        words = f"{words}, x{FACTOR[band]:g} at {load_pct:.0f} % load"
    return max(LEAST, min(MOST, round(100 / clients * FACTOR[band]))), words


@dataclass(slots=True)
class MpsLoadMeter:
    """Load of the boards under MPS, or of all while none is known; since the last `take`."""

    clients: int | None = None  # None: no list of processes yet
    _boards: frozenset[str] = frozenset()
    _loads: dict[str, list[float]] = field(default_factory=dict)

    def observe(self, reading: Reading) -> None:
        if reading.processes is not None:
            self._count(reading.processes)
        for gpu in reading.gpus:
            if gpu.state == "ok" and gpu.absent[UTIL] == Absence.PRESENT:
                self.load(gpu.uuid, gpu.values[UTIL])

    def load(self, gpu_uuid: str, load_pct: float) -> None:
        self._loads.setdefault(gpu_uuid, []).append(load_pct)

    def listed(self, clients: int, boards: Iterable[str]) -> None:
        """Note how many clients there are, and the boards that MPS is on."""
        self.clients, self._boards = clients, frozenset(boards)

    def _count(self, processes: Iterable[ProcessReading]) -> None:
        mps_processes = [process for process in processes if process.kind in OF_MPS]
        self.listed(len({process.pid for process in mps_processes if process.kind == "mps_client"}),
                    (process.gpu_uuid for process in mps_processes))

    def take(self) -> float | None:
        """Return the mean load of the busiest board, in %, and start over; None: not known."""
        loads, self._loads = self._loads, {}
        means = {uuid: sum(loads_pct) / len(loads_pct) for uuid, loads_pct in loads.items()}
        of_mps = [mean for uuid, mean in means.items() if uuid in self._boards]
        return max(of_mps or means.values(), default=None)


@dataclass(frozen=True, slots=True)
class TuneBacktestStep:
    """Step of a backtest: what was observed, and what would have been done."""

    at: float
    observed: TuneInput
    tune: TuneDecision


@dataclass(frozen=True, slots=True)
class MpsMinute:
    """Minute that a hub has kept. `clients` None: not known. `loads`: of each board that said;
    `boards`: that MPS was on."""

    ends_at: float
    clients: int | None
    loads: Mapping[str, float] = field(default_factory=dict)
    boards: frozenset[str] = frozenset()


def rehearse_minutes(minutes: Iterable[MpsMinute], every_s: float,
                     begin_pct: int) -> Iterator[TuneBacktestStep]:
    """Backtest the tuner on minutes that a hub has kept, as live, except that the past does not
    react to the share. After one that is not known, the next look is `every_s` later."""
    now_pct, tuner = float(begin_pct), MpsTuner()
    for at, clients, load_pct in _due_minutes(minutes, every_s):
        observed = TuneInput(clients, load_pct, now_pct)
        decision = tuner.decide(at, observed)
        now_pct = now_pct if decision.pct is None else float(decision.pct)
        yield TuneBacktestStep(at, observed, decision)


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

"""What share of the threads new clients of MPS should get: near 100 / clients, more where the Gpu
is idle, less where it is full, and never by much at once. Pure."""

from dataclasses import dataclass

LOW_PCT, HIGH_PCT = 70.0, 90.0  # load
RAISE, LOWER = 1.5, 0.8
LEAST, MOST = 10, 100
STEP = 10  # points at once
STILL = 2  # closer than this is there


@dataclass(frozen=True, slots=True)
class TuneInput:
    clients: int
    load_pct: float | None  # of the busiest Gpu, mean since the last look; None: not known
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

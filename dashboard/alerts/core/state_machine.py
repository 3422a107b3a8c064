"""Phases of a rule's alerts, one row per target, all rows at once (docs/rules.md).

Each step takes one evaluation: which targets are present, when each was sampled last, and whether
its condition is met. Time is that of the samples; `now` only tells how long nothing came. The
result depends on the input alone, so that a rehearsal shows what would have been.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from .row_state import RowState

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

STALE_AT_LEAST_S = 600.0
LATE_MOST = 3.0  # periods


class AlertPhase(IntEnum):
    INACTIVE = 0
    PENDING = 1
    FIRING = 2
    RESOLVING = 3


class EvaluationHealth(IntEnum):
    OK = 0
    NO_DATA = 1
    CANNOT = 2  # what it needs is unsupported there, or denied
    ERROR = 3  # its evaluation failed


# Every rule needs these every second: before Python 3.12 an Enum is slow to return a member, and
# numpy probes each IntEnum for array interfaces.
INACTIVE, PENDING, FIRING, RESOLVING = AlertPhase
OK, NO_DATA, CANNOT = (int(health) for health in tuple(EvaluationHealth)[:3])

# From each phase: the reason of a change, and the next phase.
TABLE: dict[AlertPhase, dict[str, AlertPhase]] = {
    INACTIVE: {"breach": PENDING, "held": FIRING},
    PENDING: {"held": FIRING, "not so any more": INACTIVE,
                         "gap": INACTIVE, "no data": INACTIVE,
                         "gone": INACTIVE},
    FIRING: {"clear": RESOLVING, "resolved": INACTIVE,
                        "no data": INACTIVE, "gone": INACTIVE},
    RESOLVING: {"breach": FIRING, "resolved": INACTIVE,
                           "no data": INACTIVE, "gone": INACTIVE},
}


@dataclass(frozen=True, slots=True)
class AlertTiming:
    for_s: float
    keep_s: float
    gap_s: float
    period_s: float
    min_coverage: float
    has_ladder: bool

    @property
    def stale_s(self) -> float:
        return max(self.for_s, STALE_AT_LEAST_S)


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """Conditions by row. `evaluable`: the condition can be evaluated; only then `breach` and
    `clear` count."""

    there: Mask
    at: Floats  # of its newest sample
    evaluable: Mask
    breach: Mask
    clear: Mask
    cannot: Mask


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """Rows that went from one phase to another in one step, for one reason."""

    before: AlertPhase
    after: AlertPhase
    reason: str
    rows: Rows


class AlertStateMachine(RowState):
    def __init__(self, timing: AlertTiming, room: int = 0) -> None:
        self.timing = timing
        self._looked_at: float | None = None
        self._credit = 1.0  # in periods, of a sample that meets the condition at this step
        self.phase = np.full(1, INACTIVE, np.uint8)
        self.health = np.full(1, OK, np.uint8)
        self.seen_at = np.full(1, np.nan)  # time of the newest sample that could be evaluated
        self.since = np.full(1, np.nan)  # of this breach, or of this rest
        self.samples = np.zeros(1)  # of this breach
        self.has_rested = np.zeros(1, bool)  # the condition was not met once, or nobody knows
        self._begin(room)

    def resume(self, row: int, phase: AlertPhase, since: float, samples: float,
               stopped_at: float, now: float) -> None:
        """Resume a row from before a stop of the hub: that time counts neither for nor against
        it."""
        stopped_s = max(0.0, now - stopped_at)
        self.phase[row], self.seen_at[row], self.samples[row] = phase, now, samples
        self.since[row] = since + (0.0 if phase is FIRING else stopped_s)

    def shift_clock(self, by_s: float) -> None:
        """Shift all times by a step of the clock."""
        self.seen_at += by_s
        self.since += by_s
        if self._looked_at is not None:
            self._looked_at += by_s

    def leave(self, rows: Rows) -> list[PhaseChange]:
        """End the alerts of targets whose rows were taken over by others."""
        moves: list[PhaseChange] = []
        self._end(np.unique(rows), "gone", moves)
        return moves

    def step(self, look: ConditionResult, now: float) -> list[PhaseChange]:
        """Return the phase changes of one evaluation. No row changes twice, except after a gap that
        ends one breach and begins another."""
        moves: list[PhaseChange] = []
        self._credit = self._credited(now)
        self._end_departed(look, moves)
        # NaN: it was never sampled, or never before.
        fresh = look.there & look.evaluable & ~(look.at <= self.seen_at) & (look.at == look.at)
        phase = self.phase.copy()
        if is_busy := phase.any():
            self._gaps(fresh & (look.at - self.seen_at > self.timing.gap_s), look.at, moves)
            phase = self.phase.copy()
        self._inactive(fresh & (phase == int(INACTIVE)), look, moves)
        if is_busy:
            for before, step in ((PENDING, self._pending), (FIRING, self._firing),
                                 (RESOLVING, self._resolving)):
                rows = _rows(fresh & (phase == int(before)))
                if len(rows):
                    step(rows, look, moves)
        np.copyto(self.seen_at, look.at, where=fresh)
        self._healths(look, now, moves)
        return moves

    def _credited(self, now: float) -> float:
        """Return how many periods a sample counts for. A late step is no proof that samples were
        missing: its sample may stand for those in between, within reason. Not so for rules that
        act, nor for minutes."""
        last, self._looked_at = self._looked_at, now
        if last is None or self.timing.has_ladder or self.timing.period_s > 1:
            return 1.0
        return min(max(1.0, (now - last) / self.timing.period_s), LATE_MOST)

    def _move(self, rows: Rows, after: AlertPhase, reason: str, moves: list[PhaseChange]) -> None:
        if not len(rows):
            return
        phase = self.phase[rows]
        for before in np.unique(phase).tolist():
            assert TABLE[AlertPhase(before)][reason] is after, (before, reason, after)
            moves.append(PhaseChange(AlertPhase(before), after, reason, rows[phase == before]))
        self.phase[rows] = after
        if after is INACTIVE:
            self.has_rested[rows] = True
            self.since[rows] = np.nan
            self.samples[rows] = 0

    def _end(self, rows: Rows, reason: str, moves: list[PhaseChange]) -> None:
        self._move(rows[self.phase[rows] != INACTIVE], INACTIVE, reason,
                   moves)

    def _end_departed(self, look: ConditionResult, moves: list[PhaseChange]) -> None:
        if look.there.all():
            return
        departed = _rows(~look.there)
        self._end(departed, "gone", moves)
        self.seen_at[departed] = np.nan
        self.health[departed] = OK

    def _gaps(self, gap: Mask, at: Floats, moves: list[PhaseChange]) -> None:
        """Handle gaps, whose time is unknown: rules that act start over, others do not count it."""
        waiting = _rows(gap & (self.phase == PENDING))
        if self.timing.has_ladder:
            self._move(waiting, INACTIVE, "gap", moves)
        else:
            self.since[waiting] += at[waiting] - self.seen_at[waiting] - self.timing.period_s

    def _inactive(self, mask: Mask, look: ConditionResult, moves: list[PhaseChange]) -> None:
        self.has_rested |= mask & ~look.breach
        breaching = _rows(mask & look.breach)
        if not len(breaching):
            return
        self.since[breaching] = look.at[breaching]
        self.samples[breaching] = 1
        if self.timing.for_s == 0 and not self.timing.has_ladder:
            self._move(breaching, FIRING, "held", moves)
        else:
            self._move(breaching, PENDING, "breach", moves)

    def _pending(self, rows: Rows, look: ConditionResult, moves: list[PhaseChange]) -> None:
        breach = look.breach[rows]
        still = rows[breach]
        samples = self.samples[still] + self._credit
        self.samples[still] = samples
        held_s = look.at[still] - self.since[still]
        covered = samples * self.timing.period_s >= (
            self.timing.min_coverage * (held_s + self.timing.period_s))
        self._move(still[(held_s >= self.timing.for_s) & covered], FIRING, "held", moves)
        self._move(rows[~breach], INACTIVE, "not so any more", moves)

    def _firing(self, rows: Rows, look: ConditionResult, moves: list[PhaseChange]) -> None:
        rests = rows[look.clear[rows]]
        self.since[rests] = look.at[rests]
        if self.timing.keep_s == 0:
            self._move(rests, INACTIVE, "resolved", moves)
        else:
            self._move(rests, RESOLVING, "clear", moves)

    def _resolving(self, rows: Rows, look: ConditionResult, moves: list[PhaseChange]) -> None:
        breach, clear = look.breach[rows], look.clear[rows]
        self._move(rows[breach], FIRING, "breach", moves)
        between = rows[~breach & ~clear]
        self.since[between] = look.at[between]  # it is at rest from when it is clear again
        rested = rows[clear & (look.at[rows] - self.since[rows] >= self.timing.keep_s)]
        self._move(rested, INACTIVE, "resolved", moves)

    def _healths(self, look: ConditionResult, now: float, moves: list[PhaseChange]) -> None:
        unseen_s = now - self.seen_at
        self.health[:] = OK
        silent = _rows(look.there & ~(unseen_s <= self.timing.gap_s))
        if not len(silent):
            return
        self.health[silent] = np.where(look.cannot[silent], CANNOT,
                                       NO_DATA)
        self._end(silent[~(unseen_s[silent] <= self.timing.stale_s)], "no data", moves)


def _rows(mask: Mask) -> Rows:
    return mask.nonzero()[0]

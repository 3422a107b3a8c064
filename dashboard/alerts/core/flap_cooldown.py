"""Suspends the actions of a firing rule: its target flaps, or its last episode ended only
recently (docs/rules.md). One row per target, all rows at once."""

from typing import Self

import numpy as np

from .row_state import RowState
from .state_machine import AlertPhase, Floats, PhaseChange, Rows

STRETCHES = 21
STRETCH_AT_LEAST_S = 60.0
FLAPS_FROM, FLAPS_UNTIL = 0.30, 0.15
# As Nagios weighs them: the newest change counts half as much again as the oldest.
WEIGHTS = np.linspace(1.2, 0.8, STRETCHES) / STRETCHES

COOLDOWN_MOST_S = 4 * 3_600.0
DAY_S = 86_400.0

WITHIN = (AlertPhase.FIRING, AlertPhase.RESOLVING)


class FlapDetector(RowState):
    """Detects flapping by stretches as long as the rule's hold, a minute at least: one bit for each
    of the last 21 in which the rule began to fire, or cleared."""

    def __init__(self, for_s: float, room: int = 0) -> None:
        self._stretch_s = max(STRETCH_AT_LEAST_S, for_s)
        self.stretch: int | None = None
        self.bits = np.zeros(1, np.uint32)
        self.is_flapping = np.zeros(1, bool)
        # Before the hub was restarted: firing again afterwards is no change.
        self.was_firing = np.zeros(1, bool)
        self._begin(room)

    def take(self, moves: list[PhaseChange], now: float) -> None:
        changed = [self._changed_rows(move) for move in moves if _is_change(move)]
        if self._turn(int(now // self._stretch_s)) or changed:
            for rows in changed:
                self.bits[rows] |= 1
            self.judge()

    def _changed_rows(self, move: PhaseChange) -> Rows:
        """Return the rows that changed, without those that only go on after a restart."""
        rows = move.rows
        if move.after is AlertPhase.FIRING and self.was_firing[rows].any():
            rows = rows[~self.was_firing[rows]]
        self.was_firing[move.rows] = False
        return rows

    def restore(self, row: int, bits: int, stretch: int, is_flapping: bool, was_firing: bool
                ) -> None:
        """Restore a row as it was in that stretch."""
        self.was_firing[row] = was_firing
        if self.stretch is None:
            self.stretch = stretch
        turns = min(max(0, self.stretch - stretch), STRETCHES)
        self.bits[row] |= np.uint32((bits << turns) & ((1 << STRETCHES) - 1))
        self.is_flapping[row] |= is_flapping

    def shift_clock(self, by_s: float) -> None:
        """Shift the stretch by a step of the clock, so that none passes because of it."""
        if self.stretch is not None:
            self.stretch += int(by_s // self._stretch_s)

    def catch_up(self, other: "FlapDetector") -> None:
        """Advance to the stretch of another detector of the same rule."""
        if other.stretch is not None:
            self._turn(other.stretch)

    def _turn(self, stretch: int) -> bool:
        turns = 0 if self.stretch is None else max(0, stretch - self.stretch)
        self.stretch = stretch
        if turns:
            mask = np.uint32((1 << STRETCHES) - 1)
            self.bits = (self.bits << np.uint32(turns)) & mask if turns < STRETCHES else (
                np.zeros_like(self.bits))
        return turns > 0

    def judge(self) -> None:
        rows = np.flatnonzero(self.bits)
        share = self.shares(rows)
        was = self.is_flapping[rows]
        self.is_flapping[:] = False
        self.is_flapping[rows] = np.where(was, share > FLAPS_UNTIL, share >= FLAPS_FROM)

    def shares(self, rows: Rows) -> Floats:
        set_bits = (self.bits[rows, None] >> np.arange(STRETCHES, dtype=np.uint32)) & 1
        return np.asarray(set_bits @ WEIGHTS)

    def words(self, row: int) -> str:
        return (f"flapping: condition met in {int(self.bits[row]).bit_count()} of the last "
                f"{STRETCHES} stretches of {self._stretch_s / 60:g} min")


def _is_change(move: PhaseChange) -> bool:
    if move.after is AlertPhase.FIRING:
        return True
    return move.before is AlertPhase.FIRING and move.reason in ("clear", "resolved")


class CooldownTracker(RowState):
    """Cooldown after an episode of a rule that acts; doubled after each further episode within a
    day. Most rules have had none, and no rows."""

    def __init__(self, cooldown_s: float, room: int = 0) -> None:
        self._cooldown_s = cooldown_s
        self.until = np.full(1, -np.inf)
        self.ended_at = np.full(1, -np.inf)
        self.episodes = np.zeros(1, np.int32)
        self._wanted_room = room
        self._begin()

    def grow(self, room: int) -> None:
        self._wanted_room = max(self._wanted_room, room)
        if self._room:
            super().grow(room)

    def forget(self, rows: Rows) -> None:
        if self._room:
            super().forget(rows)

    def copy_rows(self, other: Self, to: Rows | slice, of: Rows | slice) -> None:
        if self._room or other._room:
            self._make_rows()
            other._make_rows()
            super().copy_rows(other, to, of)

    def _make_rows(self) -> None:
        super().grow(self._wanted_room)

    def left_s(self, row: int, now: float) -> float:
        """Return for how many seconds a row cools down; below 0: it does not."""
        return float(self.until[row]) - now if self._room else -np.inf

    def rows(self, now: float) -> Rows:
        """Return the rows that cool down, or whose next episode would count as a further one."""
        return np.flatnonzero((self.until > now) | (self.ended_at > now - DAY_S))

    def take(self, moves: list[PhaseChange], now: float) -> None:
        for move in moves:
            if move.before in WITHIN and move.after is AlertPhase.INACTIVE:
                self.end_episode(move.rows, now)

    def end_episode(self, rows: Rows, now: float) -> None:
        self._make_rows()
        is_first = now - self.ended_at[rows] > DAY_S
        self.episodes[rows] = np.where(is_first, 0, self.episodes[rows]) + 1
        doublings = np.minimum(self.episodes[rows] - 1, 16)
        most_s = max(COOLDOWN_MOST_S, self._cooldown_s)
        self.until[rows] = now + np.minimum(self._cooldown_s * 2.0**doublings, most_s)
        self.ended_at[rows] = now

    def restore(self, row: int, until: float, ended_at: float, episodes: int) -> None:
        self._make_rows()
        self.until[row] = max(self.until[row], until)
        self.ended_at[row] = max(self.ended_at[row], ended_at)
        self.episodes[row] += episodes

    def saved(self, row: int) -> tuple[float | None, float | None, int]:
        """Return until when a row cools down, when its last episode ended, and how many it had."""
        if not self._room:
            return None, None, 0
        return _finite(self.until[row]), _finite(self.ended_at[row]), int(self.episodes[row])

    def shift_clock(self, by_s: float) -> None:
        self.until += by_s
        self.ended_at += by_s


def _finite(at: float) -> float | None:
    return float(at) if np.isfinite(at) else None

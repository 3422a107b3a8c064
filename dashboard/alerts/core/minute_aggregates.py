"""Closed minutes for rules with a long hold: minimum, mean and maximum of each number, as history
keeps them, so that such a rule gives the same result in a rehearsal."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...fleet.filters import Filter
from .row_state import RowState
from .rule_signal import Floats, How, SignalTerm, end_of
from .rule_tracker import LATE_S, RuleTargets, TargetStability, TargetValues
from .state_machine import Mask, Rows

MINUTE_S = 60
ENOUGH = 0.8
WAIT_S = 5  # for samples under way when a minute ends


class OpenRuleMinute(RowState):
    """One number in a minute that is not closed yet."""

    def __init__(self, room: int = 0) -> None:
        self.n = np.zeros(1)
        self.total = np.zeros(1)
        self.low = np.full(1, np.inf)
        self.high = np.full(1, -np.inf)
        self._begin(room)

    def add(self, mask: Mask, values: Floats) -> None:
        self.n += mask
        self.total += np.where(mask, values, 0.0)
        self.low = np.where(mask, np.minimum(self.low, values), self.low)
        self.high = np.where(mask, np.maximum(self.high, values), self.high)

    def closed(self) -> "ClosedRuleMinute":
        return ClosedRuleMinute(self.n, self.low, self.total / np.maximum(self.n, 1), self.high)


@dataclass(frozen=True, slots=True)
class ClosedRuleMinute:
    """One number in a closed minute, for each row."""

    n: Floats  # seconds that had a value
    low: Floats
    mean: Floats
    high: Floats

    def values(self, how: How) -> Floats:
        """Return the values that a function reads; NaN for a row that lacks more than a fifth of
        the minute."""
        of = {"min": self.low, "mean": self.mean, "max": self.high}[end_of(how)]
        return np.where(self.n >= ENOUGH * MINUTE_S, of, np.nan)


def closed_minutes(seconds: Floats) -> ClosedRuleMinute:
    """Turn targets x seconds into targets x minutes, added up in order as a live rule does."""
    shape = len(seconds), seconds.shape[1] // MINUTE_S
    minutes = OpenRuleMinute(seconds.size // MINUTE_S)
    for values in np.ascontiguousarray(seconds.reshape(-1, MINUTE_S).T):
        minutes.add(~np.isnan(values), values)
    minute = minutes.closed()
    return ClosedRuleMinute(*(column.reshape(shape) for column in (
        minute.n, minute.low, minute.mean, minute.high)))


@dataclass(frozen=True, slots=True)
class MinuteTargets:
    of: RuleTargets
    ends_at: float
    closed: Mapping[str, ClosedRuleMinute]
    cannot: dict[str, Mask]
    fresh: Rows

    @property
    def there(self) -> Mask:
        return self.of.there

    def sampled_at(self, names: frozenset[str]) -> Floats:
        return np.full(len(self.of.there), self.ends_at)

    def numbers(self, term: SignalTerm) -> TargetValues:
        return TargetValues(self.closed[term.name].values(term.how), self.cannot[term.name])

    def in_scope(self, scope: Filter) -> Mask:
        return self.of.in_scope(scope)

    def standing(self) -> TargetStability | None:
        return self.of.standing()

    def prepare(self, names: frozenset[str], scope: Filter | None) -> Iterator[None]:
        return self.of.prepare(frozenset(), scope)


class RuleMinuteAggregator:
    """Closes minutes of the numbers that rules read by the minute, for targets of one kind.
    `recorded`: numbers whose closed minutes come from history."""

    def __init__(self, names: Iterable[str], recorded: Collection[str] = ()) -> None:
        self.names = frozenset(names)
        self.recorded = self.names & frozenset(recorded)
        self._minute: int | None = None
        # (name, 0 the open one or 1 the next)
        self._open: dict[tuple[str, int], OpenRuleMinute] = {}
        self._taken_at = {name: np.empty(0) for name in self.names - self.recorded}
        self._cannot: dict[str, Mask] = {}
        self._fresh: list[Rows] = []

    def closing(self, now: float) -> int | None:
        """Return the start of the minute that a step now would close."""
        minute = _minute_of(now)
        is_next = self._minute is not None and minute == self._minute + 1
        return (minute - 1) * MINUTE_S if is_next else None

    def add(self, targets: RuleTargets, now: float) -> Iterator[None]:
        """Add the samples of this step number by number, after `close`."""
        room = len(targets.there)
        if len(targets.fresh):
            self._fresh.append(targets.fresh)
        for name in self._taken_at:
            yield from targets.prepare(frozenset((name,)), None)
            self._add(name, targets, room, now)
            yield

    def _add(self, name: str, targets: RuleTargets, room: int, now: float) -> None:
        assert self._minute is not None
        at = targets.sampled_at(frozenset((name,)))
        before = self._taken_at[name]
        taken_at = np.concatenate([before, np.full(room - len(before), np.nan)])
        taken_at[targets.fresh] = np.nan
        numbers = targets.numbers(SignalTerm("last", name))
        is_new = targets.there & ~(at <= taken_at) & ~np.isnan(numbers.values)
        is_new &= ~(now - at > LATE_S)
        self._taken_at[name] = np.where(is_new, at, taken_at)
        self._cannot[name] = numbers.cannot
        with np.errstate(invalid="ignore"):
            minute = np.floor(at / MINUTE_S)
        for which in (0, 1):
            open_one = self._of(name, which, room)
            open_one.forget(targets.fresh)
            takes = is_new & (minute == self._minute + which)
            if takes.any():  # the next minute has none most of the time
                open_one.add(takes, numbers.values)

    def _of(self, name: str, which: int, room: int) -> OpenRuleMinute:
        open_minute = self._open.get((name, which))
        if open_minute is None:
            open_minute = self._open[name, which] = OpenRuleMinute()
        open_minute.grow(room)
        return open_minute

    def close(self, targets: RuleTargets, now: float, from_history: Mapping[str, ClosedRuleMinute]
              ) -> MinuteTargets | None:
        """Return the minute that has just ended, if one has. Minutes that no step saw are not
        filled in."""
        minute = _minute_of(now)
        if self._minute is None or minute < self._minute or minute > self._minute + 1:
            self._minute, self._open = minute, {}
            return None
        if minute == self._minute:
            return None
        room = len(targets.there)
        for name in self.recorded:
            self._cannot[name] = targets.numbers(SignalTerm("last", name)).cannot
        closed = {name: self._of(name, 0, room).closed() for name in self._taken_at}
        closed |= {name: from_history.get(name) or OpenRuleMinute(room).closed()
                   for name in self.recorded}
        closed_targets = MinuteTargets(
            targets, float((self._minute + 1) * MINUTE_S), closed,
            {name: _padded(self._cannot.get(name), room) for name in self.names},
            np.unique(np.concatenate([*self._fresh, targets.fresh])))
        self._open = {(name, 0): self._of(name, 1, room) for name in self._taken_at}
        self._minute, self._fresh = minute, []
        return closed_targets


def _minute_of(now: float) -> int:
    return int(now - WAIT_S) // MINUTE_S


def _padded(mask: Mask | None, room: int) -> Mask:
    padded = np.zeros(room, bool)
    if mask is not None:
        padded[: len(mask)] = mask
    return padded

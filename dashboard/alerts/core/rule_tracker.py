"""One Rule over all its targets, once a second: from what is measured to what moved."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ...fleet.filters import Filter
from .flap_cooldown import CooldownTracker, FlapDetector
from .minute_blocks import AnomalyWindow, GrowthWindow
from .rolling_windows import RollingWindow
from .row_state import RowState
from .rule import CompiledRule
from .rule_signal import Floats, How, SignalTerm
from .state_machine import (
    AlertStateMachine,
    AlertTiming,
    ConditionResult,
    EvaluationHealth,
    Mask,
    PhaseChange,
    Rows,
)

LATE_S = 10.0  # what is told later than this after it was so is history, on which nothing acts
WARM_AT_LEAST_S = 60.0
SKEW_S = 2.0
SLACK_S = 1.0  # on top of two periods: a look is no more punctual than that

Window = RollingWindow | GrowthWindow | AnomalyWindow
_WINDOWS: dict[How, Callable[[SignalTerm, int, float], Window]] = {
    "growth": GrowthWindow, "anomaly": AnomalyWindow}


@dataclass(frozen=True, slots=True)
class TargetValues:
    """One number of all targets. NaN: not there; `cannot`: and never will be, or is refused."""

    values: Floats
    cannot: Mask = field(default_factory=lambda: np.zeros(1, bool))  # of all the same


@dataclass(frozen=True, slots=True)
class TargetStability:
    """Of where each target is: for how long hub, agent and driver have been there without a break,
    and how far the clock there is from ours. NaN: not known."""

    steady_s: Floats
    skew_s: Floats


class RuleTargets(Protocol):
    """All targets of one kind at this moment. A row is one target for as long as it is there; one
    that is given to another is in `fresh` that once."""

    @property
    def there(self) -> Mask: ...

    @property
    def fresh(self) -> Rows: ...

    def sampled_at(self, names: frozenset[str]) -> Floats:
        """When these last reported, by our clock; that a node is silent is known now."""

    def numbers(self, term: SignalTerm) -> TargetValues: ...

    def in_scope(self, scope: Filter) -> Mask: ...

    def standing(self) -> TargetStability | None:
        """None: it is taken to be steady."""

    def prepare(self, names: frozenset[str], scope: Filter | None) -> Iterator[None]:
        """Of what is shared by rules, what these take and is not made yet, in parts."""


@dataclass(slots=True)
class RuleLastValues:
    """What the last look showed, for people."""

    values: Floats
    scope: Mask


class RuleTracker(RowState):
    """`former`: the same Rule, whose targets begin again at rest; that they came and went, and how
    long they cool down, stays."""

    def __init__(self, ready: CompiledRule, former: "RuleTracker | None" = None) -> None:
        self.ready = ready
        timing = AlertTiming(ready.for_s, ready.keep_s, ready.gap_s, ready.period_s,
                             ready.rule.min_coverage, ready.has_ladder)
        self.machine = AlertStateMachine(timing)
        self._windows = {term: _WINDOWS.get(term.how, RollingWindow)(
            term, ready.period_s, ready.rule.min_coverage)
            for term in ready.terms if term.how != "last"}
        self._names = ready.names
        self.seen = RuleLastValues(np.empty(0), np.empty(0, bool))
        self.flaps: FlapDetector = FlapDetector(ready.for_s) if former is None else former.flaps
        self.cooldowns: CooldownTracker = (
            CooldownTracker(ready.cooldown_s) if former is None else former.cooldowns)
        # Without windows, which look at all rows at any time.
        self.states: tuple[RowState, ...] = (self.machine, self.flaps, self.cooldowns)
        self._parts: tuple[RowState, ...] = (self, *self.states, *self._windows.values())
        self.failures = 0  # in a row
        self.trouble = ""
        self.looked_at = 0.0  # by the clock, where `now` may be the end of a minute
        self._taken_at = np.full(1, np.nan)
        self._begin()
        self._standing: TargetStability | None = None
        self._cannot_of: dict[str, Mask] = {}

    def step(self, targets: RuleTargets, now: float,
             looked_at: float | None = None) -> list[PhaseChange]:
        self.looked_at = now if looked_at is None else looked_at
        left = self._leave(targets)
        look = self.look(targets, now)
        moves = [*left, *self.machine.step(look, now)]
        self.flaps.take(moves, now)
        if self.ready.has_ladder:
            self.cooldowns.take(moves, now)
        self._standing = targets.standing()
        self.failures, self.trouble = 0, ""
        return moves

    def stepped(self, by_s: float) -> None:
        """The clock that all times here are of was set."""
        self._taken_at += by_s
        for part in (self.machine, self.flaps, self.cooldowns):
            part.stepped(by_s)

    def glance(self, targets: RuleTargets, now: float) -> ConditionResult:
        """Without any hold."""
        self.make_room(len(targets.there))
        return self.look(targets, now)

    def look(self, targets: RuleTargets, now: float) -> ConditionResult:
        room = len(targets.there)
        cannot = np.zeros(room, bool)
        at = targets.sampled_at(self._names)
        punctual = self._punctual(at, now)
        look_at = self._looker(targets, at, punctual, int(now), cannot)
        values = _of_each(self.ready.signal.values(look_at), room)
        known = punctual & ~np.isnan(values)
        so = np.ones(room, bool)
        for signal, limit in self.ready.where:
            beside = _of_each(signal.values(look_at), room)
            known = known & ~np.isnan(beside)
            so &= limit.holds(beside)
        meant = self.ready.scope
        scope = np.ones(room, bool) if meant is None else targets.in_scope(meant)
        self.seen = RuleLastValues(values, scope & targets.there)
        breach = known & scope & so & self.ready.fire.holds(values)
        # Who is not meant (any more), or of whom what stands beside is not so, is at rest.
        clear = self.ready.clear.holds(values) | (known & ~so) | ~scope
        return ConditionResult(targets.there, at, known | ~scope, breach, clear & ~breach, cannot)

    def _punctual(self, at: Floats, now: float) -> Mask:
        """Of a Rule that acts. Minutes are made of nothing else to begin with."""
        if self.ready.has_ladder and not self.ready.is_by_minutes:
            return ~(now - at > LATE_S)
        return np.ones(len(at), bool)

    def _leave(self, targets: RuleTargets) -> list[PhaseChange]:
        """Of rows that are another's from now on, who was there is gone."""
        self.make_room(len(targets.there))
        if not len(targets.fresh):
            return []
        left = self.machine.leave(targets.fresh)
        for part in self._parts:
            part.forget(targets.fresh)
        return left

    def make_room(self, room: int) -> None:
        for part in self._parts:
            part.grow(room)

    def _looker(self, targets: RuleTargets, at: Floats, punctual: Mask, second: int, cannot: Mask
                ) -> Callable[[SignalTerm], Floats]:
        """Each number is asked for once; a window takes only samples that are new."""
        is_new = targets.there & punctual & ~(at <= self._taken_at)
        self._taken_at = np.where(is_new, at, self._taken_at)
        found: dict[Hashable, Floats] = {}

        def look(term: SignalTerm) -> Floats:
            if term not in found:
                numbers = targets.numbers(term)
                np.logical_or(cannot, numbers.cannot, out=cannot)
                self._cannot_of[term.name] = numbers.cannot
                window = self._windows.get(term)
                if window is None:
                    found[term] = numbers.values
                else:
                    fresh = np.where(is_new, numbers.values, np.nan)
                    if isinstance(window, RollingWindow):
                        window.take(second, fresh, at)
                    else:
                        window.take(second, fresh)
                    found[term] = window.values()
            return found[term]

        return look

    # -- what is in the way

    def failed(self, error: Exception) -> None:
        """It could not be looked at: nothing moves until it can."""
        self.failures += 1
        self.trouble = f"it cannot be evaluated: {type(error).__name__}: {error}"[:400]
        self.machine.health[:] = EvaluationHealth.ERROR

    def holds(self, row: int, now: float | None = None) -> list[str]:
        """Why nothing may be done about this row, though its Rule fires; each in words. `now`: by
        the clock; without it, that of the last look."""
        return [*self._unknown(row, self.looked_at if now is None else now), *self._unsteady(row)]

    def _unknown(self, row: int, now: float) -> list[str]:
        if self.trouble:
            return [self.trouble]
        health = EvaluationHealth(self.machine.health[row])
        if health is not EvaluationHealth.OK:
            return [self.why(row)]
        age_s = now - float(self.machine.seen_at[row])
        if age_s < -2 * self.ready.period_s - SLACK_S:
            return [f"its newest sample is from a time that is still {-age_s:.0f} s ahead: a clock "
                    "was set"]
        if age_s <= 2 * self.ready.period_s + SLACK_S:
            return []
        return [f"its newest sample is {age_s:.0f} s old"]

    def why(self, row: int) -> str:
        """Of one whose health is not OK."""
        match EvaluationHealth(self.machine.health[row]):
            case EvaluationHealth.OK:
                return ""
            case EvaluationHealth.CANNOT:
                names = [name for name, cannot in sorted(self._cannot_of.items())
                         if row < len(cannot) and cannot[row]]
                return f"cannot evaluate: {' and '.join(names) or 'a number'} is not reported there"
            case EvaluationHealth.ERROR:
                return self.trouble
            case EvaluationHealth.NO_DATA:
                age_s = self.looked_at - float(self.machine.seen_at[row])
                return "no data: nothing was reported yet" if np.isnan(age_s) else (
                    f"no data: no usable sample for {age_s:.0f} s")

    def _unsteady(self, row: int) -> list[str]:
        found = []
        if self._standing is not None:
            steady_s, skew_s = self._standing.steady_s[row], self._standing.skew_s[row]
            warm_s = max(WARM_AT_LEAST_S, 2 * self.ready.period_s)
            if not steady_s >= warm_s:
                found.append(f"warming up: hub, agent and driver have been connected for "
                             f"{max(0.0, np.nan_to_num(steady_s)):.0f} s, and {warm_s:.0f} s are "
                             "waited for")
            if abs(skew_s) > SKEW_S:
                found.append(f"its node's clock is {abs(skew_s):.1f} s off; set it right (NTP)")
        if self.flaps.is_flapping[row]:
            found.append(self.flaps.words(row))
        left_s = float(self.cooldowns.until[row]) - self.looked_at
        if left_s > 0:
            found.append(f"cooling down after its last episode, for {left_s:.0f} s more")
        return found


def _of_each(values: Floats, room: int) -> Floats:
    """What a signal of constants says is so of each row."""
    return values if values.shape == (room,) else np.broadcast_to(values, (room,))

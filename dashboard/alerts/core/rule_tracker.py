"""One rule over all its targets, once a second: from measured numbers to phase changes."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ...fleet.filters import Filter
from .flap_cooldown import CooldownTracker, FlapDetector
from .minute_blocks import AnomalyWindow, GrowthWindow
from .rolling_windows import RollingWindow
from .row_state import RowState, SavedWindow
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

LATE_S = 10.0  # a sample older than this is history, on which nothing acts
WARM_AT_LEAST_S = 60.0
SKEW_S = 2.0
SLACK_S = 1.0  # on top of two periods: steps are no more punctual than that

Window = RollingWindow | GrowthWindow | AnomalyWindow
_WINDOWS: dict[How, Callable[[SignalTerm, int, float], Window]] = {
    "growth": GrowthWindow, "anomaly": AnomalyWindow}


@dataclass(frozen=True, slots=True)
class TargetValues:
    """One number of all targets. NaN: missing; `cannot`: it always will be, or is refused."""

    values: Floats
    cannot: Mask = field(default_factory=lambda: np.zeros(1, bool))  # the same for all


@dataclass(frozen=True, slots=True)
class TargetStability:
    """The stability of each target's node: for how long hub, agent and driver have been there
    without a break, and how far its clock is from the hub's. NaN: not known."""

    steady_s: Floats
    skew_s: Floats


class RuleTargets(Protocol):
    """All targets of one kind at this moment. A row stands for one target while that is present;
    when another one takes the row, it is in `fresh` for that one step."""

    @property
    def there(self) -> Mask: ...

    @property
    def fresh(self) -> Rows: ...

    def sampled_at(self, names: frozenset[str]) -> Floats:
        """Return when these were last reported, by the hub's clock; that a node is silent is known
        now."""

    def numbers(self, term: SignalTerm) -> TargetValues: ...

    def in_scope(self, scope: Filter) -> Mask: ...

    def standing(self) -> TargetStability | None:
        """Return the stability of the targets; None: they are taken to be steady."""

    def prepare(self, names: frozenset[str], scope: Filter | None) -> Iterator[None]:
        """Prepare, in parts, what these numbers need of the values shared by rules and is not made
        yet."""


@dataclass(slots=True)
class RuleLastValues:
    """Values of the last step, for people."""

    values: Floats
    scope: Mask


class RuleTracker(RowState):
    """Tracks a rule. `former`: the same rule, whose targets restart at rest; flapping and cooldowns
    are kept."""

    def __init__(self, ready: CompiledRule, former: "RuleTracker | None" = None) -> None:
        self.ready = ready
        timing = AlertTiming(ready.for_s, ready.keep_s, ready.gap_s, ready.period_s,
                             ready.rule.min_coverage, ready.has_ladder)
        self.machine = AlertStateMachine(timing)
        self._windows = {term: _WINDOWS.get(term.how, RollingWindow)(
            term, ready.period_s, ready.rule.min_coverage)
            for term in ready.terms if term.how != "last"}
        self._names = ready.names
        self.last_values = RuleLastValues(np.empty(0), np.empty(0, bool))
        self.flaps: FlapDetector = FlapDetector(ready.for_s) if former is None else former.flaps
        self.cooldowns: CooldownTracker = (
            CooldownTracker(ready.cooldown_s) if former is None else former.cooldowns)
        # Without windows, which read all rows at any time.
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
        departures = self._forget_departed(targets)
        look = self.look(targets, now)
        moves = [*departures, *self.machine.step(look, now)]
        self.flaps.take(moves, now)
        if self.ready.has_ladder:
            self.cooldowns.take(moves, now)
        self._standing = targets.standing()
        self.failures, self.trouble = 0, ""
        return moves

    def shift_clock(self, by_s: float) -> None:
        """Shift all times by a step of the clock they are from."""
        self._taken_at += by_s
        for part in (self.machine, self.flaps, self.cooldowns):
            part.shift_clock(by_s)

    def glance(self, targets: RuleTargets, now: float) -> ConditionResult:
        """Return the targets that meet the condition, without its hold."""
        self.make_room(len(targets.there))
        return self.look(targets, now)

    def look(self, targets: RuleTargets, now: float) -> ConditionResult:
        room = len(targets.there)
        cannot = np.zeros(room, bool)
        at = targets.sampled_at(self._names)
        punctual = self._punctual(at, now)
        look_at = self._looker(targets, at, punctual, int(now), cannot)
        values = _of_each(self.ready.signal.values(look_at), room)
        is_known = punctual & ~np.isnan(values)
        are_conditions_met = np.ones(room, bool)
        for signal, limit in self.ready.where:
            other = _of_each(signal.values(look_at), room)
            is_known = is_known & ~np.isnan(other)
            are_conditions_met &= limit.holds(other)
        filter_ = self.ready.scope
        scope = np.ones(room, bool) if filter_ is None else targets.in_scope(filter_)
        self.last_values = RuleLastValues(values, scope & targets.there)
        breach = is_known & scope & are_conditions_met & self.ready.fire.holds(values)
        # A target out of scope, or one that fails a further condition, is at rest.
        clear = self.ready.clear.holds(values) | (is_known & ~are_conditions_met) | ~scope
        return ConditionResult(targets.there, at, is_known | ~scope, breach, clear & ~breach,
                               cannot)

    def _punctual(self, at: Floats, now: float) -> Mask:
        """Return which samples are recent enough for a rule that acts. Minutes consist of nothing
        else to begin with."""
        if self.ready.has_ladder and not self.ready.is_by_minutes:
            return ~(now - at > LATE_S)
        return np.ones(len(at), bool)

    def _forget_departed(self, targets: RuleTargets) -> list[PhaseChange]:
        """End the alerts of rows that other targets take over."""
        self.make_room(len(targets.there))
        if not len(targets.fresh):
            return []
        departures = self.machine.leave(targets.fresh)
        for part in self._parts:
            part.forget(targets.fresh)
        return departures

    def make_room(self, room: int) -> None:
        for part in self._parts:
            part.grow(room)

    def saved_windows(self, row: int) -> dict[str, SavedWindow]:
        """Return what a row has seen of the spans that the rule looks back over, by term."""
        saved = ((str(term), window.saved(row)) for term, window in self._windows.items())
        return {term: window for term, window in saved if window is not None}

    def restore_windows(self, row: int, saved: Mapping[str, SavedWindow]) -> None:
        """Continue what a row had seen."""
        for term, window in self._windows.items():
            if (before := saved.get(str(term))) is not None:
                # Another version of the hub may have stored it in another form.
                with suppress(KeyError, IndexError, ValueError):
                    window.restore(row, before)

    def _looker(self, targets: RuleTargets, at: Floats, punctual: Mask, second: int, cannot: Mask
                ) -> Callable[[SignalTerm], Floats]:
        """Return a function that reads each number once; a window gets only new samples."""
        is_new = targets.there & punctual & ~(at <= self._taken_at)
        self._taken_at = np.where(is_new, at, self._taken_at)
        values: dict[Hashable, Floats] = {}

        def look(term: SignalTerm) -> Floats:
            if term not in values:
                numbers = targets.numbers(term)
                np.logical_or(cannot, numbers.cannot, out=cannot)
                self._cannot_of[term.name] = numbers.cannot
                window = self._windows.get(term)
                if window is None:
                    values[term] = numbers.values
                else:
                    fresh = np.where(is_new, numbers.values, np.nan)
                    if isinstance(window, RollingWindow):
                        window.add(second, fresh, at)
                    else:
                        window.add(second, fresh)
                    values[term] = window.values()
            return values[term]

        return look

    # -- reasons not to act

    def failed(self, error: Exception) -> None:
        """Record a failed evaluation: no phase changes until one succeeds."""
        self.failures += 1
        self.trouble = f"it cannot be evaluated: {type(error).__name__}: {error}"[:400]
        self.machine.health[:] = EvaluationHealth.ERROR

    def holds(self, row: int, now: float | None = None) -> list[str]:
        """Return why no action on this row is allowed although its rule fires. `now`: by the clock;
        without it, that of the last step."""
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
        """Return why the health of a row is not OK; empty if it is."""
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
        reasons = []
        if self._standing is not None:
            steady_s, skew_s = self._standing.steady_s[row], self._standing.skew_s[row]
            warm_s = max(WARM_AT_LEAST_S, 2 * self.ready.period_s)
            if not steady_s >= warm_s:
                reasons.append(f"warming up: hub, agent and driver have been connected for "
                               f"{max(0.0, np.nan_to_num(steady_s)):.0f} s, and {warm_s:.0f} s are "
                               "waited for")
            if abs(skew_s) > SKEW_S:
                reasons.append(f"its node's clock is {abs(skew_s):.1f} s off; set it right (NTP)")
        if self.flaps.is_flapping[row]:
            reasons.append(self.flaps.words(row))
        left_s = self.cooldowns.left_s(row, self.looked_at)
        if left_s > 0:
            reasons.append(f"cooling down after its last episode, for {left_s:.0f} s more")
        return reasons


def _of_each(values: Floats, room: int) -> Floats:
    """Return values by row, also for a signal that is the same for each row."""
    return values if values.shape == (room,) else np.broadcast_to(values, (room,))

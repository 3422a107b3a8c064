"""Evaluation of all rules over the whole fleet, once a second."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from .minute_aggregates import ClosedRuleMinute, MinuteTargets, RuleMinuteAggregator
from .rule import CompiledRule, Of
from .rule_signal import End, SignalTerm, end_of
from .rule_tracker import RuleTargets, RuleTracker
from .state_machine import PhaseChange


@dataclass(frozen=True, slots=True)
class RulePhaseChange:
    watch: RuleTracker
    moves: PhaseChange
    at: float  # the moment that was evaluated


@dataclass(frozen=True, slots=True)
class RuleMinutesRequest:
    start: int
    ends: dict[str, frozenset[End]]


def ends_by_number(terms: Iterable[SignalTerm], recorded: Collection[str]
                   ) -> dict[str, frozenset[End]]:
    """Return, for each number, which of its minimum, mean and maximum the terms read."""
    ends: dict[str, frozenset[End]] = {}
    for term in terms:
        if term.name in recorded:
            ends[term.name] = ends.get(term.name, frozenset()) | {end_of(term.how)}
    return ends


class RuleEvaluator:
    """Evaluates rules. `recorded`: numbers of GPUs that history keeps by the minute."""

    def __init__(self, recorded: Collection[str] = ()) -> None:
        self._recorded = frozenset(recorded)
        self.watches: dict[str, RuleTracker] = {}
        self._minutes: dict[Of, RuleMinuteAggregator] = {}

    def set_rules(self, rules: Mapping[str, CompiledRule]) -> list[str]:
        """Set the rules. An unchanged rule keeps its state, any other starts over; returns the ids
        of those."""
        restarted = [rule_id for rule_id, ready in rules.items()
                     if rule_id not in self.watches
                     or self.watches[rule_id].ready.version != ready.version]
        self.watches = {
            rule_id: RuleTracker(ready) if rule_id in restarted else self.watches[rule_id]
            for rule_id, ready in rules.items()}
        for rule_id, ready in rules.items():
            self.watches[rule_id].ready = ready
        self._set_minutes()
        return restarted

    def restart(self, rule_ids: Iterable[str]) -> list[str]:
        """Put these rules at rest whatever their state, and return the ids of those that exist."""
        existing = [rule_id for rule_id in rule_ids if rule_id in self.watches]
        for rule_id in existing:
            self.watches[rule_id] = RuleTracker(self.watches[rule_id].ready, self.watches[rule_id])
        return existing

    def shift_clock(self, by_s: float) -> None:
        """Shift all times by a step of the hub's clock, so that no time passes because of it and
        none is counted twice."""
        for watch in self.watches.values():
            watch.shift_clock(by_s)

    def _set_minutes(self) -> None:
        names_of: dict[Of, frozenset[str]] = {}
        for watch in self.watches.values():
            if watch.ready.is_by_minutes:
                of = watch.ready.rule.of
                names_of[of] = names_of.get(of, frozenset()) | watch.ready.names
        self._minutes = {
            of: minutes if (minutes := self._minutes.get(of)) and minutes.names == names
            else RuleMinuteAggregator(names, self._recorded if of == "gpu" else ())
            for of, names in names_of.items()}

    def is_of_history(self, watch: RuleTracker) -> bool:
        """Return whether a rule reads minutes that come from history."""
        ready = watch.ready
        return ready.is_by_minutes and ready.rule.of == "gpu" and bool(ready.names & self._recorded)

    def minutes_request(self, now: float) -> RuleMinutesRequest | None:
        """Return the minute that a step now would close, and which numbers of it to read from
        history."""
        minutes = self._minutes.get("gpu")
        start = None if minutes is None or not minutes.recorded else minutes.closing(now)
        if minutes is None or start is None:
            return None
        terms = [term for watch in self.watches.values() if watch.ready.is_by_minutes
                 and watch.ready.rule.of == "gpu" for term in watch.ready.terms]
        return RuleMinutesRequest(start, ends_by_number(terms, minutes.recorded))

    def step(self, all_targets: Mapping[Of, RuleTargets], now: float,
             from_history: Mapping[str, ClosedRuleMinute] | None = None
             ) -> Iterator[list[RulePhaseChange]]:
        """Evaluate number by number and rule by rule, so that other greenlets can run in between.
        `from_history`: what `minutes_request` named, by row."""
        watches = tuple(self.watches.values())  # the rules that these minutes are for
        closed: dict[Of, MinuteTargets | None] = {}
        for of, minutes in self._minutes.items():
            if of in all_targets:
                closed[of] = minutes.close(all_targets[of], now, from_history or {})
                for _ in minutes.add(all_targets[of], now):
                    yield []
        for watch in watches:
            targets = all_targets.get(watch.ready.rule.of)
            if watch.ready.is_by_minutes:
                targets = closed.get(watch.ready.rule.of)
            if targets is not None:
                for _ in targets.prepare(watch.ready.names, watch.ready.scope):
                    yield []
                at = targets.ends_at if isinstance(targets, MinuteTargets) else now
                yield [RulePhaseChange(watch, moves, at) for moves in _step_rule(watch, targets, at,
                                                                                 now)]


def _step_rule(watch: RuleTracker, targets: RuleTargets, at: float, now: float
               ) -> list[PhaseChange]:
    """Evaluate one rule. Its failure is recorded and does not affect other rules."""
    try:
        return watch.step(targets, at, now)
    except Exception as error:
        watch.failed(error)
        return []

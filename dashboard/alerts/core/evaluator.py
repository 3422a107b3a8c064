"""All Rules over the whole fleet, once a second."""

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
    at: float  # the moment that was looked at


@dataclass(frozen=True, slots=True)
class RuleMinutesRequest:
    start: int
    wanted: dict[str, frozenset[End]]


def wanted_of(terms: Iterable[SignalTerm], kept: Collection[str]) -> dict[str, frozenset[End]]:
    """Of each number, which of its three are looked at."""
    found: dict[str, frozenset[End]] = {}
    for term in terms:
        if term.name in kept:
            found[term.name] = found.get(term.name, frozenset()) | {end_of(term.how)}
    return found


class RuleEvaluator:
    """`kept`: numbers of GPUs that history keeps by the minute."""

    def __init__(self, kept: Collection[str] = ()) -> None:
        self._kept = frozenset(kept)
        self.watches: dict[str, RuleTracker] = {}
        self._minutes: dict[Of, RuleMinuteAggregator] = {}

    def set_rules(self, rules: Mapping[str, CompiledRule]) -> list[str]:
        """An unchanged Rule keeps its state, any other starts over. Returns those that did."""
        begun = [rule_id for rule_id, ready in rules.items()
                 if rule_id not in self.watches
                 or self.watches[rule_id].ready.version != ready.version]
        self.watches = {rule_id: RuleTracker(ready) if rule_id in begun else self.watches[rule_id]
                        for rule_id, ready in rules.items()}
        for rule_id, ready in rules.items():
            self.watches[rule_id].ready = ready
        self._ask_for_minutes()
        return begun

    def begin_anew(self, rule_ids: Iterable[str]) -> list[str]:
        """All of them at rest, whatever was so."""
        known = [rule_id for rule_id in rule_ids if rule_id in self.watches]
        for rule_id in known:
            self.watches[rule_id] = RuleTracker(self.watches[rule_id].ready, self.watches[rule_id])
        return known

    def stepped(self, by_s: float) -> None:
        """The hub's clock was set by so much: no time has gone by, and none is to come again."""
        for watch in self.watches.values():
            watch.stepped(by_s)

    def _ask_for_minutes(self) -> None:
        wanted: dict[Of, frozenset[str]] = {}
        for watch in self.watches.values():
            if watch.ready.is_by_minutes:
                of = watch.ready.rule.of
                wanted[of] = wanted.get(of, frozenset()) | watch.ready.names
        self._minutes = {
            of: known if (known := self._minutes.get(of)) and known.names == names
            else RuleMinuteAggregator(names, self._kept if of == "gpu" else ())
            for of, names in wanted.items()}

    def is_of_history(self, watch: RuleTracker) -> bool:
        """It looks at minutes that are brought from there."""
        ready = watch.ready
        return ready.is_by_minutes and ready.rule.of == "gpu" and bool(ready.names & self._kept)

    def asks(self, now: float) -> RuleMinutesRequest | None:
        """Which minute a step now would close, and what of it is to be brought from history."""
        minutes = self._minutes.get("gpu")
        start = None if minutes is None or not minutes.kept else minutes.closing(now)
        if minutes is None or start is None:
            return None
        terms = [term for watch in self.watches.values() if watch.ready.is_by_minutes
                 and watch.ready.rule.of == "gpu" for term in watch.ready.terms]
        return RuleMinutesRequest(start, wanted_of(terms, minutes.kept))

    def step(self, all_targets: Mapping[Of, RuleTargets], now: float,
             brought: Mapping[str, ClosedRuleMinute] | None = None
             ) -> Iterator[list[RulePhaseChange]]:
        """Number by number and Rule by Rule, so that others may have their turn in between.
        `brought`: what `asks` asked for, by row."""
        watches = tuple(self.watches.values())  # those that ask for these minutes
        closed: dict[Of, MinuteTargets | None] = {}
        for of, minutes in self._minutes.items():
            if of in all_targets:
                closed[of] = minutes.close(all_targets[of], now, brought or {})
                for _ in minutes.take(all_targets[of], now):
                    yield []
        for watch in watches:
            targets = all_targets.get(watch.ready.rule.of)
            if watch.ready.is_by_minutes:
                targets = closed.get(watch.ready.rule.of)
            if targets is not None:
                for _ in targets.prepare(watch.ready.names, watch.ready.scope):
                    yield []
                at = targets.ends_at if isinstance(targets, MinuteTargets) else now
                yield [RulePhaseChange(watch, moves, at) for moves in _stepped(watch, targets, at,
                                                                               now)]


def _stepped(watch: RuleTracker, targets: RuleTargets, at: float, now: float) -> list[PhaseChange]:
    """One Rule that fails does not take the others with it, and says so."""
    try:
        return watch.step(targets, at, now)
    except Exception as error:
        watch.failed(error)
        return []

"""What a Rule of Gpus looked at, out of history: stretch by stretch, for a rehearsal."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpudeck.metrics import COLUMN, SLOW_COLUMN

from ...fleet.fleet import Fleet
from ...history.columns import NO_MEAN
from ...history.grid import End, HistoryGrid, Name
from ...history.protocol import RuleHistory
from ..core.evaluator import RuleMinutesRequest, wanted_of
from ..core.firing_alerts import AlertTarget
from ..core.minute_aggregates import ENOUGH, MINUTE_S, ClosedRuleMinute
from ..core.numbers import FACTS, unrecorded
from ..core.rule import CompiledRule
from ..core.rule_signal import Floats, SignalTerm, end_of
from ..core.rule_tracker import RuleTracker
from ..core.state_machine import Mask, Rows
from .engine import AnyFloats, RehearsalChunk, pieces

ENDS: tuple[End, ...] = ("min", "mean", "max")
LIVE = frozenset(COLUMN) - NO_MEAN  # what a live rule by the minute looks at as history has it
MOST_CELLS = 16_000_000  # of one number in memory at once
MOST_SECONDS = 300_000_000  # Gpu-seconds of a Rule that looks at seconds
MOST_S = 92 * 86_400


class CannotRehearseError(ValueError):
    """Says why not, and what to ask instead."""


def closed_minute(grid: HistoryGrid, fleet: Fleet,
                  asks: RuleMinutesRequest) -> dict[str, ClosedRuleMinute]:
    """By slot."""
    slots = [fleet.slot_on(node, gpu) for gpu, node in grid.rows]
    known = np.array([at for at, slot in enumerate(slots) if slot is not None], np.intp)
    at = np.array([slot for slot in slots if slot is not None], np.intp)

    def by_slot(found: Any, nothing: float) -> Floats:
        values = np.full(len(fleet), nothing)
        if found is not None:
            values[at] = found[known, 0]
        return values

    return {key: ClosedRuleMinute(by_slot(grid.count(key), 0.0), *(
        by_slot(grid.of(key, end), np.nan) for end in ENDS)) for key in asks.wanted}


def refuse_unrecorded(ready: CompiledRule) -> None:
    of = ready.rule.of
    odd = " and ".join(unrecorded(of, RuleTracker(ready).names))
    if odd:
        whose = {"gpu": "", "owner": " of an owner", "fleet": " of the fleet"}
        raise CannotRehearseError(
            f"history does not keep {odd}{whose.get(of, f' of a {of}')}: this rule can only be "
            f"watched live{' (mode observe)' if of == 'gpu' else ''}")


def refuse_too_long(why: str, gpus: int, span_s: int) -> None:
    """Of a rule that looks at each second of all GPUs."""
    if gpus * span_s > MOST_SECONDS:
        raise CannotRehearseError(f"{why}: over {gpus:,} GPUs at most "
                                  f"{MOST_SECONDS // gpus // 3_600} hours at once")


class GpuRehearsalSource:
    def __init__(self, spans: RuleHistory, fleet: Fleet, ready: CompiledRule) -> None:
        self._spans = spans
        self._fleet = fleet
        self._ready = ready
        self.step_s = self.reads_s = MINUTE_S if ready.is_by_minutes else 1
        self.rows: dict[Name, int] = {}
        refuse_unrecorded(ready)

    def stretches(self, start: int, end: int) -> Iterator[RehearsalChunk]:
        many = max(1, len(self._fleet))
        if self.step_s == 1:
            refuse_too_long("a rule that holds less than 5 minutes looks at each second", many,
                            end - start)
        at_once_s = max(3_600, min(86_400, MOST_CELLS // many * self.step_s // 3_600 * 3_600))
        for first, last in pieces(start, end, at_once_s):
            yield self._stretch(first, last)

    def _stretch(self, first: int, last: int) -> RehearsalChunk:
        grid = HistoryGrid(first, self.step_s, (last - first) // self.step_s, self.rows)
        terms = RuleTracker(self._ready).terms
        if self.step_s == 1:  # a second has one value
            wanted: dict[str, frozenset[End]] = {
                term.name: frozenset(("mean",)) for term in terms
                if term.name in COLUMN or term.name in SLOW_COLUMN}
        else:
            wanted = wanted_of(terms, {*COLUMN, *SLOW_COLUMN})
        self._spans.past(wanted, grid)
        grid.blank(1 if self.step_s == 1 else ENOUGH * MINUTE_S)
        names = list(self.rows)

        def values(term: SignalTerm, rows: Rows | slice) -> AnyFloats:
            if term.name in FACTS:
                facts = self._facts(names, term.name)[rows]
                return np.broadcast_to(facts[:, None], (len(facts), grid.width))
            return _of(grid, term, rows)

        return RehearsalChunk(first, self.step_s, grid.width, len(names), values,
                              self._scope(names))

    def _facts(self, names: Sequence[Name], fact: str) -> Floats:
        """As the boards are now; of one that is gone, nobody knows any more."""
        return np.array([None if (slot := self._fleet.slot_on(node, gpu)) is None
                         else getattr(self._fleet.facts[slot], fact) for gpu, node in names], float)

    def _scope(self, names: Sequence[Name]) -> Mask:
        """As it would be answered now: where a Gpu is and what it is does not change much."""
        if self._ready.scope is None:
            return np.ones(len(names), bool)
        meant = self._ready.scope.matches(self._fleet, 0.0)
        slots = [self._fleet.slot_on(node, gpu) for gpu, node in names]
        return np.array([slot is not None and bool(meant[slot]) for slot in slots], bool)

    def name(self, row: int) -> AlertTarget:
        gpu, node_id = list(self.rows)[row]
        node, slot = self._fleet.nodes.get(node_id), self._fleet.slot_on(node_id, gpu)
        return AlertTarget(gpu, node_id, node_id if node is None else node.hello.host,
                           "" if slot is None else self._fleet.facts[slot].place)


def _of(grid: HistoryGrid, term: SignalTerm, rows: Rows | slice) -> AnyFloats:
    found: AnyFloats | None = grid.of(term.name, "mean" if grid.step_s == 1 else end_of(term.how))
    if found is None:
        found = np.broadcast_to(np.nan, (len(grid.rows), grid.width))
    return found[rows]

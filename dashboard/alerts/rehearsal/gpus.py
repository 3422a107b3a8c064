"""Rehearsal data for rules of GPUs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN

from ...fleet.fleet import Fleet
from ...history.columns.grid import End, HistoryGrid
from ...history.columns.layout import NO_MEAN
from ..core.evaluator import RuleMinutesRequest, ends_by_number
from ..core.firing_alerts import AlertTarget
from ..core.minute_aggregates import ENOUGH, MINUTE_S, ClosedRuleMinute
from ..core.numbers import FACTS, GPU, number_of_gpus
from ..core.rule_signal import Floats, SignalTerm, end_of
from ..core.state_machine import Mask, Rows
from .engine import AnyFloats, RehearsalChunk
from .source import CannotRehearseError, RehearsalSource

ENDS: tuple[End, ...] = ("min", "mean", "max")
MEAN: frozenset[End] = frozenset(("mean",))
LIVE = frozenset(COLUMN) - NO_MEAN  # what live rules by the minute read from history
WITNESSES = ("util_pct", "mem_used_bytes", "temp_c")  # a sampled GPU has at least one of these


def closed_minute(grid: HistoryGrid, fleet: Fleet,
                  minute_request: RuleMinutesRequest) -> dict[str, ClosedRuleMinute]:
    """Return the closed minute, by slot."""
    slots = [fleet.slot_on(node, gpu) for gpu, node in grid.rows]
    known_rows = np.array([at for at, slot in enumerate(slots) if slot is not None], np.intp)
    at = np.array([slot for slot in slots if slot is not None], np.intp)

    def by_slot(column: Any, nothing: float) -> Floats:
        values = np.full(len(fleet), nothing)
        if column is not None:
            values[at] = column[known_rows, 0]
        return values

    return {key: ClosedRuleMinute(by_slot(grid.count(key), 0.0), *(
        by_slot(grid.of(key, end), np.nan) for end in ENDS)) for key in minute_request.ends}


class GpuRehearsalSource(RehearsalSource):
    def _refuse(self) -> None:
        super()._refuse()
        derived = [name for name in self._names if name in GPU]
        if derived and self.ready.is_by_minutes:
            raise CannotRehearseError(f"{derived[0]} is of each second, which closed minutes do "
                                      "not tell: a rule that holds less than 5m rehearses it")

    def stretches(self, start: int, end: int) -> Iterator[RehearsalChunk]:
        if self.step_s == 1:
            self._refuse_too_long("a rule that holds less than 5 minutes reads every second",
                                  end - start)
        for first, last in self._by_hours(start, end):
            yield self._stretch(first, last)

    def _stretch(self, first: int, last: int) -> RehearsalChunk:
        grid = HistoryGrid(first, self.step_s, (last - first) // self.step_s, self._gpus)
        ends = ends_by_number(self._measured(), {*COLUMN, *SLOW_COLUMN})
        if self.step_s == 1:  # a second has one value
            ends = dict.fromkeys(ends, MEAN)
        seldom = ends.keys() & SLOW_COLUMN.keys()
        self.spans.past((dict.fromkeys(WITNESSES, MEAN) if seldom else {}) | ends, grid)
        for name in seldom:
            _count_sampled(grid, name)
        grid.blank(1 if self.step_s == 1 else ENOUGH * MINUTE_S)
        slots = self._slots(self._gpus)

        def values(term: SignalTerm, rows: Rows | slice) -> AnyFloats:
            if term.name in GPU:
                return number_of_gpus(term.name, lambda part: values(
                    SignalTerm("last", part), rows).astype(float))
            if term.name in FACTS:
                facts = self._facts(slots, term.name)[rows]
                return np.broadcast_to(facts[:, None], (len(facts), grid.width))
            numbers = grid.of(term.name, "mean" if self.step_s == 1 else end_of(term.how))
            if numbers is None:
                numbers = np.broadcast_to(np.nan, (len(slots), grid.width))
            return numbers[rows]

        return RehearsalChunk(first, self.step_s, grid.width, len(slots), values,
                              self._scope(slots))

    def _measured(self) -> list[SignalTerm]:
        """Return the terms to read from history for the rule's terms."""
        return [part for term in self.ready.terms for part in (
            [SignalTerm("last", name) for name in GPU[term.name].of] if term.name in GPU
            else [term])]

    def _facts(self, slots: list[int | None], fact: str) -> Floats:
        """Return a fact of each board; NaN for a board that is gone."""
        return np.array([None if slot is None else getattr(self.fleet.facts[slot], fact)
                         for slot in slots], float)

    def _scope(self, slots: list[int | None]) -> Mask:
        if self.ready.scope is None:
            return np.ones(len(slots), bool)
        in_scope = self.ready.scope.matches(self.fleet, 0.0)
        return np.array([slot is not None and bool(in_scope[slot]) for slot in slots], bool)

    def name(self, row: int) -> AlertTarget:
        gpu, node_id = list(self._gpus)[row]
        slot = self.fleet.slot_on(node_id, gpu)
        return AlertTarget(gpu, node_id, self._host(node_id),
                           "" if slot is None else self.fleet.facts[slot].place)


def _count_sampled(grid: HistoryGrid, name: str) -> None:
    """Limit the seconds of a slow metric to those in which its GPU was sampled. It holds until its
    next report, but a live rule reads it only while the GPU is sampled."""
    seconds = grid.n.get(name)
    if seconds is not None:
        mine = seconds[: len(grid.rows)]
        counts = [count[: len(mine)] for witness in WITNESSES
                  if (count := grid.count(witness)) is not None]
        np.minimum(mine, np.maximum.reduce(counts) if counts else 0, out=mine)

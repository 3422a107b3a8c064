"""A rule over the past: which alerts there would have been, and which targets its ladder would have
reached.

It is the same computation as in life, by the same RuleTracker. A row that never breaches in a chunk
is skipped in it: a row at rest to which nothing happens stays at rest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from gpudeck.contract.actions import Refusal
from gpudeck.contract.ladder import Do, goes_past

from ...fleet.filters import Filter
from ..core.minute_aggregates import closed_minutes
from ..core.rule import CompiledRule
from ..core.rule_signal import Floats, SignalTerm
from ..core.rule_tracker import RuleTracker, TargetStability, TargetValues
from ..core.state_machine import AlertPhase, Mask, PhaseChange, Rows

AnyFloats = npt.NDArray[np.floating[Any]]
ACTS: frozenset[Do] = frozenset(("limit", "pause", "end"))


@dataclass(slots=True)
class RehearsalChunk:
    """A part of the past that is in memory at once. `values`: a term's number, of these rows x
    columns. A row keeps its number from one chunk to the next; new ones are appended.
    """

    t0: int
    step_s: int
    width: int
    size: int
    values: Callable[[SignalTerm, Rows | slice], AnyFloats]
    scope: Mask  # of each row: whether it is in scope at any time
    # Rows x columns.
    there: Mask | None = None  # None: all are present at any time
    scope_at: Mask | None = None  # where it changes; else as `scope`

    def ends_at(self, column: int) -> float:
        """Return the time of a column: of a second, the sample's own time; of a minute, its end."""
        return float(self.t0 + column * self.step_s + (self.step_s if self.step_s > 1 else 0))


class RehearsedAlert(Struct, frozen=True):
    """An alert that there would have been. `acts`: what its ladder would have done, and when;
    `refusals`: what it would have tried, when, and why it could not have been done."""

    row: int
    since: float
    fired_at: float
    value: float | None
    ended_at: float | None = None
    why: str = ""
    comebacks: int = 0
    acts: tuple[tuple[Do, float], ...] = ()
    refusals: tuple[tuple[Do, float, str], ...] = ()

    @property
    def acted_at(self) -> float | None:
        return next((at for do, at in self.acts if do in ACTS), None)


@dataclass(slots=True)
class _RehearsedClimb:
    began_at: float
    step: int = 0


class _RehearsedTargets:
    """The rows of interest at one moment, as a RuleTracker reads them."""

    def __init__(self, chunk: RehearsalChunk, rows: Rows, windowed: Sequence[SignalTerm],
                 sampled_at: Floats) -> None:
        """`windowed`: terms whose windows keep a value while no sample comes. `sampled_at`: when
        the last sample of each row came; kept up to date."""
        self.chunk = chunk
        self.rows = rows
        self.column = 0
        self._windowed = windowed
        self._sampled_at = sampled_at
        self._all = np.ones(len(rows), bool)
        self._scope = chunk.scope[rows]
        self._values: dict[SignalTerm, AnyFloats] = {}
        self._next: dict[SignalTerm, tuple[int, Floats]] = {}  # from this column on, columns x rows

    @property
    def there(self) -> Mask:
        return self._all if self.chunk.there is None else (
            self.chunk.there[self.rows, self.column])

    @property
    def fresh(self) -> Rows:
        return NO_ROWS

    def sampled_at(self, names: frozenset[str]) -> Floats:
        at = self.chunk.ends_at(self.column)
        if not self._windowed:
            return np.full(len(self.rows), at)
        for term in self._windowed:
            self._sampled_at[~np.isnan(self.numbers(term).values)] = at
        return self._sampled_at.copy()

    def numbers(self, term: SignalTerm) -> TargetValues:
        """Return the numbers of this column. Data is read by column but stored by row: some columns
        at a time are transposed, or each number would be fetched from far away in memory."""
        first = self.column - self.column % AT_ONCE
        if self._next.get(term, (-1, None))[0] != first:
            if term not in self._values:
                rows = slice(None) if len(self.rows) == self.chunk.size else self.rows
                self._values[term] = self.chunk.values(term, rows)
            part = self._values[term][:, first : first + AT_ONCE]
            self._next[term] = first, np.ascontiguousarray(part.T, np.float64)
        return TargetValues(self._next[term][1][self.column - first])

    def in_scope(self, scope: Filter) -> Mask:
        scope_at = self.chunk.scope_at
        return self._scope if scope_at is None else scope_at[self.rows, self.column]

    def standing(self) -> TargetStability | None:
        return None

    def prepare(self, names: frozenset[str], scope: Filter | None) -> Iterator[None]:
        return iter(())


class RehearsalEngine:
    """Rehearses a rule chunk after chunk, in order of time."""

    def __init__(self, ready: CompiledRule, rest: Callable[[], None] = lambda: None,
                 refusal: Callable[[int, Do, float], Refusal | None] = lambda *_: None) -> None:
        """`rest`: called now and then, so that other threads can run. `refusal`: why a step could
        not have been done to a row at that time."""
        self._ready = ready
        self._rest = rest
        self._refusal = refusal
        self._dos = [do for do, _ in ready.steps]
        self._stopped: set[int] = set()  # rows whose ladder ended, until their alert is over
        self._whole = RuleTracker(ready)
        self._has_window = any(term.how != "last" for term in ready.terms)
        self._windowed = () if ready.is_by_minutes else tuple(
            term for term in ready.terms if term.how != "last")
        self._sampled_at = np.empty(0)  # of each row, for rules with windows
        self._open: dict[int, RehearsedAlert] = {}
        self._climbs: dict[int, _RehearsedClimb] = {}
        self._ended: list[RehearsedAlert] = []
        self.targets = 0  # those in scope at any time
        self.pending = 0  # how often a row became pending

    def take(self, chunk: RehearsalChunk) -> None:
        self._whole.make_room(chunk.size)
        self.targets = max(self.targets, int(chunk.scope.sum()))
        rows = self._of_interest(chunk)
        if not len(rows):
            return
        watch = self._part(rows)
        more = np.full(max(0, chunk.size - len(self._sampled_at)), np.nan)
        self._sampled_at = np.concatenate((self._sampled_at, more))
        targets = _RehearsedTargets(chunk, rows, self._windowed, self._sampled_at[:len(rows)])
        for column in range(chunk.width):
            targets.column = column
            if column % RESTS_EVERY == 0:
                self._rest()
            at = chunk.ends_at(column)
            for moves in watch.step(targets, at):
                self._note(moves, rows, watch, at)
            if self._climbs:
                self._climb(rows, watch, at)
        self._put_back(watch, rows)

    # -- which rows

    def _of_interest(self, chunk: RehearsalChunk) -> Rows:
        """Return the rows to evaluate: all where windows keep values; else those that breach at
        all, and those that are not at rest."""
        if self._has_window:
            return np.arange(chunk.size)
        busy = self._whole.machine.phase[: chunk.size] != AlertPhase.INACTIVE
        masks = [busy]
        for first in range(0, chunk.size, ROWS_AT_ONCE):
            breaches = self._breaches(chunk, slice(first, first + ROWS_AT_ONCE))
            masks.append(_at(breaches, first, chunk.size))
        return np.flatnonzero(np.logical_or.reduce(masks) & chunk.scope)

    def _breaches(self, chunk: RehearsalChunk, rows: slice) -> Mask:
        def look(term: SignalTerm) -> Floats:
            return chunk.values(term, rows).astype(np.float64)

        is_breach = self._ready.fire.holds(self._ready.signal.values(look))
        for signal, limit in self._ready.where:
            is_breach &= limit.holds(signal.values(look))
        return np.asarray(is_breach.any(axis=1))

    def _part(self, rows: Rows) -> RuleTracker:
        """Return a tracker of these rows only; with windows, always the same one."""
        if self._has_window:
            return self._whole
        part = RuleTracker(self._ready)
        part.make_room(len(rows))
        for part_state, whole in zip(part.states, self._whole.states, strict=True):
            part_state.copy_rows(whole, slice(None), rows)
        part.flaps.catch_up(self._whole.flaps)
        return part

    def _put_back(self, part: RuleTracker, rows: Rows) -> None:
        if part is self._whole:
            return
        self._whole.flaps.catch_up(part.flaps)
        for part_state, whole in zip(part.states, self._whole.states, strict=True):
            whole.copy_rows(part_state, rows, slice(None))

    # -- alerts and ladders

    def _note(self, moves: PhaseChange, rows: Rows, watch: RuleTracker, at: float) -> None:
        if moves.after is AlertPhase.PENDING:
            self.pending += len(moves.rows)
            return
        for place in moves.rows.tolist():
            row = int(rows[place])
            match moves.after:
                case AlertPhase.FIRING if row not in self._open:
                    value = float(watch.last_values.values[place])
                    self._open[row] = RehearsedAlert(row, float(watch.machine.since[place]), at,
                                                     None if np.isnan(value) else value)
                    self._begin_climb(row, at)
                case AlertPhase.FIRING:
                    was = self._open[row]
                    self._open[row] = replace(was, comebacks=was.comebacks + 1)
                    self._begin_climb(row, at)
                case AlertPhase.RESOLVING:
                    self._climbs.pop(row, None)
                case AlertPhase.INACTIVE if row in self._open:
                    self._climbs.pop(row, None)
                    self._stopped.discard(row)
                    self._ended.append(replace(self._open.pop(row), ended_at=at,
                                               why=moves.reason))

    def _begin_climb(self, row: int, at: float) -> None:
        """Start the ladder at its first step, also after a rest. A target that was acted on is not
        acted on again."""
        if self._dos and row not in self._stopped and self._open[row].acted_at is None:
            self._climbs[row] = _RehearsedClimb(at)

    def _climb(self, rows: Rows, watch: RuleTracker, at: float) -> None:
        for row, climb in list(self._climbs.items()):
            do, after_s = self._ready.steps[climb.step]
            place = int(np.searchsorted(rows, row))
            if at < climb.began_at + after_s or watch.holds(place):
                continue
            why = self._refusal(row, do, at)
            self._note_act(row, do, at, why)
            if why is not None and why.code == "hold":
                continue  # it waits for as long as that holds
            is_past = why is None or (
                self._ready.rule.when_refused == "skip" and goes_past(self._dos, climb.step))
            climb.began_at, climb.step = at, climb.step + 1
            if not is_past:
                self._stopped.add(row)
            if not is_past or climb.step == len(self._dos) or (do == "end" and why is None):
                del self._climbs[row]

    def _note_act(self, row: int, do: Do, at: float, why: Refusal | None) -> None:
        was = self._open[row]
        if why is None:
            self._open[row] = replace(was, acts=(*was.acts, (do, at)))
        elif (do, why.sentence) not in [(step, sentence) for step, _, sentence in was.refusals]:
            self._open[row] = replace(was, refusals=(*was.refusals, (do, at, why.sentence)))

    def alerts(self) -> list[RehearsedAlert]:
        """Return alerts that ended, and those that would still be open at the end."""
        return sorted([*self._ended, *self._open.values()],
                      key=lambda alert: (alert.fired_at, alert.row))


NO_ROWS = np.empty(0, np.intp)
ROWS_AT_ONCE, AT_ONCE = 1_024, 16  # columns
RESTS_EVERY = 60


def _at(part: Mask, first: int, size: int) -> Mask:
    mask = np.zeros(size, bool)
    mask[first : first + len(part)] = part
    return mask


def chunk_of_seconds(first: int, step_s: int, numbers: Mapping[str, Floats], scope: Mask
                     ) -> RehearsalChunk:
    """Make a chunk of targets x seconds; a rule that reads minutes gets closed minutes of them."""
    width = next(iter(numbers.values())).shape[1] // step_s
    minutes = {} if step_s == 1 else {
        name: closed_minutes(values) for name, values in numbers.items()}

    def values(term: SignalTerm, rows: Rows | slice) -> AnyFloats:
        return (minutes[term.name].values(term.how) if minutes else numbers[term.name])[rows]

    return RehearsalChunk(first, step_s, width, len(scope), values, scope)


def pieces(start: int, end: int, at_once_s: int) -> Sequence[tuple[int, int]]:
    """Return the pieces of a span, cut at whole multiples of `at_once_s`."""
    cuts = [start, *range(start - start % at_once_s + at_once_s, end, at_once_s), end]
    return list(pairwise(cuts))

"""One Rule over all its targets, once a second: from what is measured to what moved."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..filters import Filter
from .machine import Look, Machine, Mask, Moves, Rows, Timing
from .rule import Ready
from .signal import Floats, Term
from .windows import Window


@dataclass(frozen=True, slots=True)
class Numbers:
    """One number of all targets. NaN: not there; `cannot`: and never will be, or is refused."""

    values: Floats
    cannot: Mask


class Scene(Protocol):
    """All targets of one kind at this moment. A row is one target for as long as it is there; one
    that is given to another is in `fresh` that once."""

    @property
    def there(self) -> Mask: ...

    @property
    def fresh(self) -> Rows: ...

    def sampled_at(self, names: frozenset[str]) -> Floats:
        """When these were told last, by our clock; what is known of who is silent, is known now."""

    def numbers(self, term: Term) -> Numbers: ...

    def in_scope(self, scope: Filter) -> Mask: ...


@dataclass(slots=True)
class Seen:
    """What the last look showed, for people."""

    values: Floats
    scope: Mask


class Watch:
    def __init__(self, ready: Ready) -> None:
        self.ready = ready
        timing = Timing(ready.for_s, ready.keep_s, ready.gap_s, ready.period_s,
                        ready.rule.min_coverage, ready.has_ladder)
        self.machine = Machine(timing)
        terms = (*ready.signal.terms, *(term for signal, _ in ready.where for term in signal.terms))
        self._windows = {term: Window(term, ready.period_s, ready.rule.min_coverage)
                         for term in terms if term.how != "last"}
        self.names = frozenset(term.name for term in terms)
        self.seen = Seen(np.empty(0), np.empty(0, bool))
        self._taken_at = np.empty(0)

    def step(self, scene: Scene, now: float) -> list[Moves]:
        room = len(scene.there)
        self._grow(room)
        self._forget(scene.fresh)
        cannot = np.zeros(room, bool)
        at = scene.sampled_at(self.names)
        look_at = self._looker(scene, at, int(now), cannot)
        values = self.ready.signal.values(look_at)
        values = np.broadcast_to(values, (room,))
        known = ~np.isnan(values)
        so = np.ones(room, bool)
        for signal, limit in self.ready.where:
            beside = np.broadcast_to(signal.values(look_at), (room,))
            known = known & ~np.isnan(beside)
            so &= limit.holds(beside)
        scope = self._scope(scene, room)
        self.seen = Seen(values, scope)
        breach = known & scope & so & self.ready.fire.holds(values)
        # Who is not meant (any more), or of whom what stands beside is not so, is at rest.
        clear = self.ready.clear.holds(values) | (known & ~so) | ~scope
        return self.machine.step(
            Look(scene.there, at, known | ~scope, breach, clear & ~breach, cannot), now)

    def _grow(self, room: int) -> None:
        if room > len(self._taken_at):
            self._taken_at = np.concatenate(
                [self._taken_at, np.full(room - len(self._taken_at), np.nan)])
        self.machine.grow(room)
        for window in self._windows.values():
            window.grow(room)

    def _forget(self, rows: Rows) -> None:
        if len(rows):
            self._taken_at[rows] = np.nan
            self.machine.forget(rows)
            for window in self._windows.values():
                window.forget(rows)

    def _looker(self, scene: Scene, at: Floats, second: int, cannot: Mask
                ) -> Callable[[Term], Floats]:
        """Each number is asked for once; a window takes only samples that are new."""
        is_new = scene.there & ~(at <= self._taken_at)
        self._taken_at = np.where(is_new, at, self._taken_at)
        found: dict[Hashable, Floats] = {}

        def look(term: Term) -> Floats:
            if term not in found:
                numbers = scene.numbers(term)
                np.logical_or(cannot, numbers.cannot, out=cannot)
                window = self._windows.get(term)
                if window is None:
                    found[term] = numbers.values
                else:
                    window.take(second, np.where(is_new, numbers.values, np.nan))
                    found[term] = window.values()
            return found[term]

        return look

    def _scope(self, scene: Scene, room: int) -> Mask:
        if self.ready.scope is None:
            return np.ones(room, bool)
        return scene.in_scope(self.ready.scope)

"""The fleet's Gpus as what Rules look at: one row per slot."""

from dataclasses import dataclass, field

import numpy as np

from gpudeck.metrics import COLUMN, SLOW_COLUMN, Absence

from ..filters import Filter
from ..fleet import Fleet, Show
from .machine import Mask, Rows
from .signal import Floats, Term
from .watch import Numbers

NEVER = (Absence.UNSUPPORTED, Absence.DENIED)
TOLD_OF_THE_SILENT = frozenset(("lost", "sample_age_s"))


@dataclass(slots=True)
class GpuScene:
    """`lost` and `sample_age_s` are known of a Gpu that gives no sample: rules about silence must
    not be silent. All else is of its newest sample, and of no older one."""

    fleet: Fleet
    now: float
    mono: float
    there: Mask = field(init=False)
    fresh: Rows = field(init=False)
    _scopes: dict[str, Mask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = len(self.fleet)
        self.there = ~self.fleet.retired[:size]
        self.fresh = np.empty(0, np.intp)  # a slot never changes its Gpu

    def sampled_at(self, names: frozenset[str]) -> Floats:
        size = len(self.fleet)
        if names <= TOLD_OF_THE_SILENT:
            return np.full(size, self.now)
        return self.fleet.sampled_at[:size].copy()

    def numbers(self, term: Term) -> Numbers:
        name = term.name
        fleet, size = self.fleet, len(self.fleet)
        if name in COLUMN or name in SLOW_COLUMN:
            column = fleet.column(name, self.mono)
            is_live = fleet.reported[:size] == 0
            values = np.where(is_live & (column.absent == Absence.PRESENT), column.values, np.nan)
            return Numbers(values, np.isin(column.absent, NEVER))
        none = np.zeros(size, bool)
        match name:
            case "lost":
                return Numbers((fleet.shown(self.mono) == Show.LOST).astype(np.float64), none)
            case "sample_age_s":
                return Numbers(self.mono - fleet.sampled_mono[:size], none)
            case "tasks":
                told = np.fromiter((users is not None for users in fleet.users), bool, size)
                return Numbers(np.where(told, fleet.task_count[:size], np.nan), none)
        facts = np.array([getattr(each, name) for each in fleet.facts], float)
        return Numbers(facts, np.isnan(facts))

    def in_scope(self, scope: Filter) -> Mask:
        """The same for all rules that say the same."""
        if scope.text not in self._scopes:
            self._scopes[scope.text] = scope.matches(self.fleet, self.mono)
        return self._scopes[scope.text]

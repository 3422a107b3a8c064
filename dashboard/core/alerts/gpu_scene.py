"""The fleet's Gpus as what Rules look at: one row per slot."""

from dataclasses import dataclass, field

import numpy as np

from gpudeck.metrics import COLUMN, SLOW_COLUMN, Absence

from ..filters import Filter
from ..fleet import Fleet, Show
from .alerts import Named
from .machine import Mask, Rows
from .signal import Floats, Term
from .watch import Numbers

NEVER = (Absence.UNSUPPORTED, Absence.DENIED)
TOLD_OF_THE_SILENT = frozenset(("lost", "sample_age_s"))


@dataclass(slots=True)
class GpuScene:
    """`lost` and `sample_age_s` are known of a Gpu that gives no sample: rules about silence must
    not be silent. All else is of its newest sample, and of no older one. Gpus that come while it
    is looked at are there at the next look."""

    fleet: Fleet
    now: float
    mono: float
    listens_since: float  # monotonic: silence before is not theirs
    size: int = field(init=False)
    there: Mask = field(init=False)
    fresh: Rows = field(init=False)
    _scopes: dict[str, Mask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.size = len(self.fleet)
        self.there = ~self.fleet.retired[: self.size]
        self.fresh = np.empty(0, np.intp)  # a slot never changes its Gpu

    def sampled_at(self, names: frozenset[str]) -> Floats:
        if names <= TOLD_OF_THE_SILENT:
            return np.full(self.size, self.now)
        return self.fleet.sampled_at[: self.size].copy()

    def numbers(self, term: Term) -> Numbers:
        name = term.name
        if name in COLUMN or name in SLOW_COLUMN:
            return self._measured(name)
        none = np.zeros(self.size, bool)
        if name == "lost":
            shown = self.fleet.shown(self.mono)[: self.size]
            return Numbers((shown == Show.LOST).astype(np.float64), none)
        if name == "sample_age_s":
            sampled = np.maximum(self.fleet.sampled_mono[: self.size], self.listens_since)
            return Numbers(self.mono - sampled, none)
        if name == "tasks":
            told = np.fromiter((users is not None for users in self.fleet.users[: self.size]), bool,
                               self.size)
            return Numbers(np.where(told, self.fleet.task_count[: self.size], np.nan), none)
        facts = np.array([getattr(each, name) for each in self.fleet.facts[: self.size]], float)
        return Numbers(facts, np.isnan(facts))

    def _measured(self, name: str) -> Numbers:
        column = self.fleet.column(name, self.mono)
        absent = column.absent[: self.size]
        is_live = self.fleet.reported[: self.size] == 0
        values = np.where(is_live & (absent == Absence.PRESENT), column.values[: self.size], np.nan)
        return Numbers(values, np.isin(absent, NEVER))

    def in_scope(self, scope: Filter) -> Mask:
        """The same for all rules that say the same."""
        if scope.text not in self._scopes:
            self._scopes[scope.text] = scope.matches(self.fleet, self.mono)[: self.size]
        return self._scopes[scope.text]

    def name(self, row: int) -> Named:
        fleet, node = self.fleet, self.fleet.node_of(row)
        users = tuple(sorted(fleet.owners[number] for number in fleet.users[row] or ()
                             if number < len(fleet.owners)))
        return Named(fleet.uuids[row], node.hello.node_id, node.hello.host,
                     fleet.facts[row].place, users)

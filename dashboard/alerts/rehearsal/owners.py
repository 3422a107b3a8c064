"""Rehearsal data for rules of owners: how many GPUs, tasks and jobs each held to the second, and
what their GPUs did in each minute."""

from collections.abc import Callable, Iterator

import numpy as np

from gpudeck.xid import UNKNOWN_CODE, explain

from ...fleet.fleet import STALE_AFTER_S
from ..core.firing_alerts import AlertTarget
from ..core.minute_aggregates import ENOUGH, MINUTE_S, WAIT_S, ClosedRuleMinute, closed_minutes
from ..core.numbers import USES
from ..core.rule_signal import End, Floats, SignalTerm
from ..core.state_machine import Mask, Rows
from ..core.workload_targets import KnownUses, slot_rows
from ..core.xid_counts import RECENT_S, is_of_task
from .engine import AnyFloats, RehearsalChunk, pieces
from .holdings import HoldingChunk, HoldingHistory
from .intervals import (
    NO_SPELLS,
    TargetIntervals,
    TargetPresence,
    count_by_second,
    covers,
    in_minutes,
    intersect,
    looked_at,
    mean_by_second,
    merge,
)
from .source import MOST_CELLS, CannotRehearseError, RehearsalSource
from .task_keys import past_task

SECONDS_AT_ONCE = 3_600
MOST_LOOKS = 7 * 86_400  # of a Rule that looks at seconds
OF_GPUS: dict[str, frozenset[End]] = {"util_pct": frozenset(("mean",))}

Values = Callable[[SignalTerm, Rows | slice], AnyFloats]


class OwnerRehearsalSource(RehearsalSource):
    """Owners in the past. A minute ends when a live rule evaluates it: some seconds later, by the
    owners that are present then."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._holdings = HoldingHistory(self.spans, self._names)
        self._ever_in_scope = np.zeros(0, bool)  # owners that were in scope at any time

    def _refuse(self) -> None:
        super()._refuse()
        means = [name for name in self._names if USES[name].join != "distinct"]
        if means and not self.ready.is_by_minutes:
            raise CannotRehearseError(f"history keeps {' and '.join(means)} of an owner by the "
                                      "minute: a rule that holds less than 5m can only be watched "
                                      "live")
        peaks = [term for term in self.ready.terms
                 if term.name in means and term.how not in ("last", "avg")]
        if peaks:
            raise CannotRehearseError(
                f"history keeps the mean of {peaks[0].name} of an owner's GPUs together, and not "
                f"its {peaks[0].how} within a minute: write avg({peaks[0].name}, …), or watch it "
                "live")

    def stretches(self, start: int, end: int) -> Iterator[RehearsalChunk]:
        if self.step_s == 1 and end - start > MOST_LOOKS:
            raise CannotRehearseError("a rule that holds less than 5 minutes reads every "
                                      f"second: at most {MOST_LOOKS // 86_400} days at once")
        # By seconds a minute before is read too: owners in it did not arrive in the first one.
        begin = (start // MINUTE_S - (self.step_s == 1)) * MINUTE_S
        for first, last in self._by_hours(begin, -(-end // MINUTE_S) * MINUTE_S):
            piece = self._holdings.piece(first, last)
            if len(self._holdings.owners) * piece.minutes > MOST_CELLS:
                raise CannotRehearseError("too many owners for such a span: ask for a shorter one")
            parts = _OwnerHoldings(piece, len(self._holdings.owners), self._in_scope(piece),
                                   self._faulty(piece), self._utils(piece))
            if self.step_s == MINUTE_S:
                yield self._minutes(parts)
            else:
                yield from self._seconds(parts, max(start, first), min(end, last))

    def _in_scope(self, piece: HoldingChunk) -> Mask:
        """Return which rows are in scope, by what is known of that GPU and owner now."""
        rows, slots = piece.rows, self._slots(self._holdings.pairs)
        if self.ready.scope is None:
            return np.ones(len(rows), bool)
        uses = KnownUses.of(slot_rows(slots)[rows.pair], [
            past_task(f"{piece.tasks[task][1]}", self._holdings.owners.keys[owner][0])
            for task, owner in zip(rows.task.tolist(), rows.owner.tolist(), strict=True)])
        return uses.in_scope(self.ready.scope, self.fleet, 0.0)

    def _faulty(self, piece: HoldingChunk) -> TargetIntervals:
        """Return when a task had failed on each pair by its own fault a short time before."""
        if "gpus_faulty" not in self._names:
            return NO_SPELLS
        end_s, faults = piece.minutes * MINUTE_S, []
        for at, node, gpu, numbers in self.spans.xids(piece.t0 - RECENT_S, piece.t0 + end_s):
            pair = self._holdings.pairs.get((gpu, node))
            if pair is not None and is_of_task(explain(int(numbers.get("xid", UNKNOWN_CODE)))):
                since = int(at) - piece.t0
                faults.append((pair, max(0, since), min(end_s, since + int(RECENT_S))))
        return merge(TargetIntervals(*np.array(faults, np.intp).reshape(-1, 3).T))

    # -- by the minute

    def _minutes(self, parts: "_OwnerHoldings") -> RehearsalChunk:
        piece, width = parts.piece, parts.piece.minutes - 1
        presence = TargetPresence(parts.runs, parts.size, width, WAIT_S)
        from_s = np.where(presence.there, presence.from_s, MINUTE_S)
        n = np.minimum(MINUTE_S - from_s, piece.looked_s[:width])
        closed = {name: parts.closed(name, from_s, n) for name in self._names}
        in_scope = ~covers(parts.outside, parts.size, looked_at(width, WAIT_S))

        def values(term: SignalTerm, rows: Rows | slice) -> AnyFloats:
            return closed[term.name].values(term.how)[rows]

        return self._chunk(piece.t0, values, presence.there, in_scope, presence.came)

    def _utils(self, piece: HoldingChunk) -> Floats:
        """Return the utilization of each GPU in each minute. A minute that lacks no more than the
        time until a GPU is called stale counts as known."""
        missed_s = MINUTE_S - piece.seen_s
        if "util_pct" in self._names:
            self.spans.past(OF_GPUS, piece.grid)
        mean, told_s = piece.grid.of("util_pct", "mean"), piece.grid.count("util_pct")
        if mean is None or told_s is None:
            return np.full(missed_s.shape, np.nan)
        known_s = told_s[: len(missed_s)] + np.where(missed_s <= STALE_AFTER_S, missed_s, 0)
        return np.where(known_s >= ENOUGH * MINUTE_S, mean[: len(missed_s)].astype(float), np.nan)

    # -- by the second

    def _seconds(self, parts: "_OwnerHoldings", start: int, end: int) -> Iterator[RehearsalChunk]:
        """Yield chunks of seconds. An owner present in the first second of a chunk counts as
        present before it."""
        piece, size = parts.piece, parts.size
        for first, last in pieces(start - piece.t0, end - piece.t0, parts.at_once_s):
            width, blind = last - first, piece.looked_s[np.arange(first, last) // MINUTE_S] == 0
            numbers = {name: np.where(blind, np.nan, parts.seconds(name, first, last))
                       for name in self._names}
            there, outside = (count_by_second(spells.later(first), size, width) > 0
                              for spells in (parts.uses, parts.outside))
            came = np.zeros((size, width), bool)
            arrivals = parts.runs.take((parts.runs.start >= max(1, first))
                                       & (parts.runs.start < last))
            came[arrivals.of, arrivals.start - first] = True

            def values(term: SignalTerm, rows: Rows | slice, numbers: dict[str, Floats] = numbers
                       ) -> AnyFloats:
                return numbers[term.name][rows]

            yield self._chunk(piece.t0 + first, values, there, ~outside, came)

    def _chunk(self, t0: int, values: Values, there: Mask, in_scope: Mask, came: Mask
               ) -> RehearsalChunk:
        """Make a chunk of owners x columns: whether each is present, is in scope, and arrived."""
        more = len(there) - len(self._ever_in_scope)
        self._ever_in_scope = np.pad(self._ever_in_scope, (0, more))
        self._ever_in_scope |= (there & in_scope).any(axis=1)
        return RehearsalChunk(t0, self.step_s, there.shape[1], len(there), values,
                              self._ever_in_scope.copy(), there, in_scope, came)

    def name(self, row: int) -> AlertTarget:
        user = self._holdings.owners.keys[row][0] or ""
        return AlertTarget(user, "", "", "", (user,))


class _OwnerHoldings:
    """The holdings of a piece by owner. `runs`: separate wherever nothing carried them over.
    `utils`: of each pair in each minute."""

    def __init__(self, piece: HoldingChunk, size: int, in_scope: Mask, faulty: TargetIntervals,
                 utils: Floats) -> None:
        self.piece = piece
        self.size = size
        self._faulty = faulty
        self._utils = utils
        self.uses = piece.by(piece.rows.owner)
        self.runs = merge(self.uses, touching=False)
        self.outside = merge(self.uses.take(~in_scope))
        self.at_once_s = min(SECONDS_AT_ONCE, max(
            1, MOST_CELLS // max(1, size) // MINUTE_S) * MINUTE_S)
        self._spells: dict[str, tuple[TargetIntervals, Rows]] = {}

    def _apart(self, column: str) -> tuple[TargetIntervals, Rows]:
        """Return when each of its GPUs, tasks or jobs belonged to an owner, and which one."""
        if column not in self._spells:
            rows = self.piece.rows
            what = {"task": rows.task, "job": rows.job}.get(column, rows.pair)
            many = int(what.max(initial=0)) + 1
            spells = merge(self.piece.by(rows.owner * many + what))
            apart, which = TargetIntervals(spells.of // many, spells.start, spells.end), (
                spells.of % many)
            self._spells[column] = (intersect(apart, which, self._faulty) if column == "faulty_gpu"
                                    else apart), which
        return self._spells[column]

    def seconds(self, name: str, first: int, last: int) -> Floats:
        """Return owners x seconds."""
        spells, which = self._apart(USES[name].column)
        if USES[name].join == "distinct":
            return count_by_second(spells.later(first), self.size, last - first)
        return mean_by_second(spells.later(first), which,
                     self._utils[:, first // MINUTE_S : last // MINUTE_S], self.size)

    def closed(self, name: str, from_s: Rows, n: Rows) -> ClosedRuleMinute:
        """Close each minute; it counts from second `from_s` on, and at most `n` of its seconds."""
        if USES[name].join == "total":
            mean = self._memory()
            return ClosedRuleMinute(n.astype(float), mean, mean, mean)
        parts = [closed_minutes(self.seconds(name, first, last),
                                from_s[:, first // MINUTE_S : last // MINUTE_S])
                 for first, last in pieces(0, from_s.shape[1] * MINUTE_S, self.at_once_s)]
        known_s, low, mean, high = (np.concatenate(of_all, axis=1) for of_all in zip(
            *((part.n, part.low, part.mean, part.high) for part in parts), strict=True))
        return ClosedRuleMinute(np.minimum(n, known_s), low, mean, high)

    def _memory(self) -> Floats:
        """Return the mean memory over the seconds in which the owner held anything."""
        width = self.piece.minutes - 1
        rows = in_minutes(merge(self.uses), width)
        there_s = np.bincount(rows.of * width + rows.minute, rows.until_s - rows.from_s,
                              self.size * width).reshape(self.size, width)
        total = np.zeros((self.size, width))
        for owner, byte_s in self.piece.byte_s.items():
            total[owner] = byte_s[:width]
        return np.asarray(total / np.maximum(there_s, 1))

"""What a Rule of Owners looked at, out of history, for a rehearsal: how many GPUs, Tasks and Jobs
each held to the second, and what their GPUs did in each minute."""

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
    are_so,
    common,
    counted,
    in_minutes,
    joined,
    looked_at,
    mean_by_second,
)
from .source import MOST_CELLS, CannotRehearseError, RehearsalSource
from .task_keys import past_task

SECONDS_AT_ONCE = 3_600
MOST_LOOKS = 7 * 86_400  # of a Rule that looks at seconds
OF_GPUS: dict[str, frozenset[End]] = {"util_pct": frozenset(("mean",))}

Values = Callable[[SignalTerm, Rows | slice], AnyFloats]


class OwnerRehearsalSource(RehearsalSource):
    """A minute of a Rule that looks at minutes ends when it is looked at in life: some seconds
    later, by who is there then."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._held = HoldingHistory(self.spans, self._names)
        self._once = np.zeros(0, bool)  # who was meant at any time

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
        # By seconds a minute before is read too: who was there then did not come in the first one.
        begin = (start // MINUTE_S - (self.step_s == 1)) * MINUTE_S
        for first, last in self._by_hours(begin, -(-end // MINUTE_S) * MINUTE_S):
            piece = self._held.piece(first, last)
            if len(self._held.owners) * piece.minutes > MOST_CELLS:
                raise CannotRehearseError("too many owners for such a span: ask for a shorter one")
            parts = _OwnerHoldings(piece, len(self._held.owners), self._meant(piece),
                                   self._faulty(piece), self._utils(piece))
            if self.step_s == MINUTE_S:
                yield self._minutes(parts)
            else:
                yield from self._seconds(parts, max(start, first), min(end, last))

    def _meant(self, piece: HoldingChunk) -> Mask:
        """Of each row, by what is known of that GPU and Owner now."""
        rows, slots = piece.rows, self._slots(self._held.pairs)
        if self.ready.scope is None:
            return np.ones(len(rows), bool)
        uses = KnownUses.of(slot_rows(slots)[rows.pair], [
            past_task(f"{piece.tasks[task][1]}", self._held.owners.keys[owner][0])
            for task, owner in zip(rows.task.tolist(), rows.owner.tolist(), strict=True)])
        return uses.in_scope(self.ready.scope, self.fleet, 0.0)

    def _faulty(self, piece: HoldingChunk) -> TargetIntervals:
        """Pairs on which a Task failed through its own fault a short time ago."""
        if "gpus_faulty" not in self._names:
            return NO_SPELLS
        end_s, found = piece.minutes * MINUTE_S, []
        for at, node, gpu, numbers in self.spans.xids(piece.t0 - RECENT_S, piece.t0 + end_s):
            pair = self._held.pairs.get((gpu, node))
            if pair is not None and is_of_task(explain(int(numbers.get("xid", UNKNOWN_CODE)))):
                since = int(at) - piece.t0
                found.append((pair, max(0, since), min(end_s, since + int(RECENT_S))))
        return joined(TargetIntervals(*np.array(found, np.intp).reshape(-1, 3).T))

    # -- by the minute

    def _minutes(self, parts: "_OwnerHoldings") -> RehearsalChunk:
        piece, width = parts.piece, parts.piece.minutes - 1
        presence = TargetPresence(parts.runs, parts.size, width, WAIT_S)
        from_s = np.where(presence.there, presence.from_s, MINUTE_S)
        n = np.minimum(MINUTE_S - from_s, piece.looked_s[:width])
        closed = {name: parts.closed(name, from_s, n) for name in self._names}
        meant = ~are_so(parts.outside, parts.size, looked_at(width, WAIT_S))

        def values(term: SignalTerm, rows: Rows | slice) -> AnyFloats:
            return closed[term.name].values(term.how)[rows]

        return self._chunk(piece.t0, values, presence.there, meant, presence.came)

    def _utils(self, piece: HoldingChunk) -> Floats:
        """Of each GPU in each minute. Of one that misses no more of it than goes by before it is
        called stale, all of it is known."""
        missed_s = MINUTE_S - piece.seen_s
        if "util_pct" in self._names:
            self.spans.past(OF_GPUS, piece.grid)
        told, told_s = piece.grid.of("util_pct", "mean"), piece.grid.count("util_pct")
        if told is None or told_s is None:
            return np.full(missed_s.shape, np.nan)
        known_s = told_s[: len(missed_s)] + np.where(missed_s <= STALE_AFTER_S, missed_s, 0)
        return np.where(known_s >= ENOUGH * MINUTE_S, told[: len(missed_s)].astype(float), np.nan)

    # -- by the second

    def _seconds(self, parts: "_OwnerHoldings", start: int, end: int) -> Iterator[RehearsalChunk]:
        """An owner present in a chunk's first second counts as present before it."""
        piece, size = parts.piece, parts.size
        for first, last in pieces(start - piece.t0, end - piece.t0, parts.at_once_s):
            width, blind = last - first, piece.looked_s[np.arange(first, last) // MINUTE_S] == 0
            found = {name: np.where(blind, np.nan, parts.seconds(name, first, last))
                     for name in self._names}
            there, outside = (counted(spells.later(first), size, width) > 0
                              for spells in (parts.uses, parts.outside))
            came = np.zeros((size, width), bool)
            begun = parts.runs.take((parts.runs.start >= max(1, first))
                                    & (parts.runs.start < last))
            came[begun.of, begun.start - first] = True

            def values(term: SignalTerm, rows: Rows | slice, found: dict[str, Floats] = found
                       ) -> AnyFloats:
                return found[term.name][rows]

            yield self._chunk(piece.t0 + first, values, there, ~outside, came)

    def _chunk(self, t0: int, values: Values, there: Mask, meant: Mask, came: Mask
               ) -> RehearsalChunk:
        """Owners x columns: who is there, is meant, and came."""
        self._once = np.pad(self._once, (0, len(there) - len(self._once)))
        self._once |= (there & meant).any(axis=1)
        return RehearsalChunk(t0, self.step_s, there.shape[1], len(there), values,
                              self._once.copy(), there, meant, came)

    def name(self, row: int) -> AlertTarget:
        user = self._held.owners.keys[row][0] or ""
        return AlertTarget(user, "", "", "", (user,))


class _OwnerHoldings:
    """What a piece says of its Owners. `runs`: apart wherever nobody carried them over. `utils`: of
    each pair in each minute."""

    def __init__(self, piece: HoldingChunk, size: int, meant: Mask, faulty: TargetIntervals,
                 utils: Floats) -> None:
        self.piece = piece
        self.size = size
        self._faulty = faulty
        self._utils = utils
        self.uses = piece.by(piece.rows.owner)
        self.runs = joined(self.uses, touching=False)
        self.outside = joined(self.uses.take(~meant))
        self.at_once_s = min(SECONDS_AT_ONCE, max(
            1, MOST_CELLS // max(1, size) // MINUTE_S) * MINUTE_S)
        self._made: dict[str, tuple[TargetIntervals, Rows]] = {}

    def _apart(self, column: str) -> tuple[TargetIntervals, Rows]:
        """When each of its GPUs, tasks or jobs was an owner's, and which."""
        if column not in self._made:
            rows = self.piece.rows
            what = {"task": rows.task, "job": rows.job}.get(column, rows.pair)
            many = int(what.max(initial=0)) + 1
            found = joined(self.piece.by(rows.owner * many + what))
            apart, which = TargetIntervals(found.of // many, found.start, found.end), (
                found.of % many)
            self._made[column] = (common(apart, which, self._faulty) if column == "faulty_gpu"
                                  else apart), which
        return self._made[column]

    def seconds(self, name: str, first: int, last: int) -> Floats:
        """Owners x seconds."""
        spells, which = self._apart(USES[name].column)
        if USES[name].join == "distinct":
            return counted(spells.later(first), self.size, last - first)
        return mean_by_second(spells.later(first), which,
                     self._utils[:, first // MINUTE_S : last // MINUTE_S], self.size)

    def closed(self, name: str, from_s: Rows, n: Rows) -> ClosedRuleMinute:
        """Each minute from a second of it on, and at most so many of its seconds."""
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
        """Of the seconds in which the Owner held anything."""
        width = self.piece.minutes - 1
        rows = in_minutes(joined(self.uses), width)
        there_s = np.bincount(rows.of * width + rows.minute, rows.until_s - rows.from_s,
                              self.size * width).reshape(self.size, width)
        total = np.zeros((self.size, width))
        for owner, byte_s in self.piece.byte_s.items():
            total[owner] = byte_s[:width]
        return np.asarray(total / np.maximum(there_s, 1))

"""What a Rule of Owners looked at, out of history, for a rehearsal: how many Gpus, Tasks and Jobs
each held to the second, and what their Gpus did in each minute."""

from collections.abc import Callable, Iterator

import numpy as np

from gpudeck.xid import UNKNOWN_CODE, explain

from ...fleet.fleet import STALE_AFTER_S, Fleet
from ...history.protocol import RuleHistory
from ..core.firing_alerts import AlertTarget
from ..core.minute_aggregates import ENOUGH, MINUTE_S, WAIT_S, ClosedRuleMinute
from ..core.numbers import USES
from ..core.rule import CompiledRule
from ..core.rule_signal import End, Floats, SignalTerm
from ..core.rule_tracker import RuleTracker
from ..core.state_machine import Mask, Rows
from ..core.workload_targets import uses_in_scope
from ..core.xid_counts import RECENT_S, is_of_task
from .engine import AnyFloats, RehearsalChunk, pieces
from .gpus import MOST_CELLS, CannotRehearseError, refuse_unrecorded
from .holdings import HoldingChunk, HoldingHistory
from .intervals import (
    NO_SPELLS,
    IntervalMinuteStats,
    TargetIntervals,
    TargetPresence,
    are_so,
    common,
    counted,
    in_minutes,
    joined,
    looked_at,
)
from .task_keys import past_task

SECONDS_AT_ONCE = 3_600
MOST_LOOKS = 7 * 86_400  # of a Rule that looks at seconds
OF_GPUS: dict[str, frozenset[End]] = {"util_pct": frozenset(("mean",))}

Values = Callable[[SignalTerm, Rows | slice], AnyFloats]


class OwnerRehearsalSource:
    """A minute of a Rule that looks at minutes ends when it is looked at in life: some seconds
    later, by who is there then."""

    def __init__(self, spans: RuleHistory, fleet: Fleet, ready: CompiledRule) -> None:
        self._spans = spans
        self._fleet = fleet
        self._ready = ready
        self.step_s, self.reads_s = ready.period_s, MINUTE_S
        self._terms = RuleTracker(ready).terms
        self._names = {term.name for term in self._terms}
        self._held = HoldingHistory(spans, self._names)
        self._once = np.zeros(0, bool)  # who was meant at any time
        self._refuse_what_is_not_kept()

    def _refuse_what_is_not_kept(self) -> None:
        refuse_unrecorded(self._ready)
        means = sorted(name for name in self._names if not _is_counted(name))
        if means and not self._ready.is_by_minutes:
            raise CannotRehearseError(f"history keeps {' and '.join(means)} of an owner by the "
                                      "minute: a rule that holds less than 5m can only be watched "
                                      "live")
        peaks = [term for term in self._terms
                 if term.name in means and term.how not in ("last", "avg")]
        if peaks:
            raise CannotRehearseError(
                f"history keeps the mean of {peaks[0].name} of an owner's Gpus together, and not "
                f"its {peaks[0].how} within a minute: write avg({peaks[0].name}, …), or watch it "
                "live")

    def stretches(self, start: int, end: int) -> Iterator[RehearsalChunk]:
        if self.step_s == 1 and end - start > MOST_LOOKS:
            raise CannotRehearseError("a rule that holds less than 5 minutes looks at each "
                                      f"second: at most {MOST_LOOKS // 86_400} days at once")
        many = max(1, len(self._fleet))
        at_once_s = max(3_600, min(86_400, MOST_CELLS // many * MINUTE_S // 3_600 * 3_600))
        # By seconds a minute before is read too: who was there then did not come in the first one.
        begin = (start // MINUTE_S - (self.step_s == 1)) * MINUTE_S
        whole = begin, -(-end // MINUTE_S) * MINUTE_S
        for first, last in pieces(*whole, at_once_s):
            piece = self._held.piece(first, last)
            if len(self._held.owners) * piece.minutes > MOST_CELLS:
                raise CannotRehearseError("too many owners for such a span: ask for a shorter one")
            self._parts = _OwnerHoldings(piece, len(self._held.owners), self._meant(piece),
                                         self._faulty(piece))
            if self.step_s == MINUTE_S:
                yield self._minutes(piece)
            else:
                yield from self._seconds(piece, max(start, first), min(end, last))

    def _meant(self, piece: HoldingChunk) -> Mask:
        """Of each row, by what is known of that Gpu and Owner now."""
        rows, names = piece.rows, list(self._held.pairs)
        if self._ready.scope is None:
            return np.ones(len(rows), bool)
        return uses_in_scope(
            self._ready.scope, self._fleet, 0.0,
            [self._fleet.slot_on(names[at][1], names[at][0]) for at in rows.pair.tolist()],
            [past_task(f"{piece.tasks[task][1]}", self._held.owners.keys[owner][0])
             for task, owner in zip(rows.task.tolist(), rows.owner.tolist(), strict=True)])

    def _faulty(self, piece: HoldingChunk) -> TargetIntervals:
        """Pairs on which a Task failed by its own doing a short time ago."""
        if "gpus_faulty" not in self._names:
            return NO_SPELLS
        end_s, found = piece.minutes * MINUTE_S, []
        for at, node, gpu, numbers in self._spans.xids(piece.t0 - RECENT_S, piece.t0 + end_s):
            pair = self._held.pairs.get((gpu, node))
            if pair is not None and is_of_task(explain(int(numbers.get("xid", UNKNOWN_CODE)))):
                since = int(at) - piece.t0
                found.append((pair, max(0, since), min(end_s, since + int(RECENT_S))))
        return joined(TargetIntervals(*np.array(found, np.intp).reshape(-1, 3).T))

    # -- by the minute

    def _minutes(self, piece: HoldingChunk) -> RehearsalChunk:
        parts, width = self._parts, piece.minutes - 1
        presence = TargetPresence(parts.runs, parts.size, width, WAIT_S)
        n = np.where(presence.there, MINUTE_S - presence.from_s, 0)
        n = np.minimum(n, piece.looked_s[:width]).astype(np.float64)
        closed = {name: self._closed(name, piece, presence.from_s, n) for name in self._names}
        meant = ~are_so(parts.outside, parts.size, looked_at(width, WAIT_S))

        def values(term: SignalTerm, rows: Rows | slice) -> AnyFloats:
            return closed[term.name].values(term.how)[rows]

        return self._stretch(piece.t0, width, values, (presence.there, meant, presence.came))

    def _closed(self, name: str, piece: HoldingChunk, from_s: Rows, n: Floats) -> ClosedRuleMinute:
        match USES[name].join:
            case "distinct":
                spells = self._parts.of(name)
                return self._by_minute(piece, spells).closed(spells, from_s, n)
            case "total":
                mean = self._memory(piece)
            case _:
                mean, n = self._util(piece, from_s, n)
        return ClosedRuleMinute(n, mean, mean, mean)

    def _by_minute(self, piece: HoldingChunk, *changes: TargetIntervals) -> IntervalMinuteStats:
        parts = self._parts
        return IntervalMinuteStats(parts.size, piece.minutes - 1, (parts.uses, *changes))

    def _memory(self, piece: HoldingChunk) -> Floats:
        """Of the seconds in which the Owner held anything."""
        parts, width = self._parts, piece.minutes - 1
        rows = in_minutes(joined(parts.uses), width)
        there_s = np.bincount(rows.of * width + rows.minute, rows.until_s - rows.from_s,
                              parts.size * width).reshape(parts.size, width)
        total = np.zeros((parts.size, width))
        for owner, byte_s in piece.byte_s.items():
            total[owner] = byte_s[:width]
        return np.asarray(total / np.maximum(there_s, 1))

    def _util(self, piece: HoldingChunk, from_s: Rows, n: Floats) -> tuple[Floats, Floats]:
        """The mean of all its Gpus. Of one that misses no more of a minute than goes by before it
        is called stale, all of it is known."""
        self._spans.past(OF_GPUS, piece.grid)
        told, told_s = piece.grid.of("util_pct", "mean"), piece.grid.count("util_pct")
        if told is None or told_s is None:
            return np.full(n.shape, np.nan), n
        missed_s = MINUTE_S - piece.seen_s
        known_s = told_s[: len(missed_s)] + np.where(missed_s <= STALE_AFTER_S, missed_s, 0)
        values = np.where(known_s >= ENOUGH * MINUTE_S, told[: len(missed_s)], np.nan)
        gpus, pair = self._parts.apart("gpu")
        return self._by_minute(piece).means(gpus, pair, values, from_s, n)

    # -- by the second

    def _seconds(self, piece: HoldingChunk, start: int, end: int) -> Iterator[RehearsalChunk]:
        """Whoever came with the piece's first second came before it, as far as is known."""
        parts = self._parts
        at_once_s = min(SECONDS_AT_ONCE, max(MINUTE_S, MOST_CELLS // max(1, parts.size)))
        for first, last in pieces(start - piece.t0, end - piece.t0, at_once_s):
            width, blind = last - first, piece.looked_s[np.arange(first, last) // MINUTE_S] == 0
            found = {name: np.where(blind, np.nan, counted(
                parts.of(name).later(first), parts.size, width)) for name in self._names}
            there, outside = (counted(spells.later(first), parts.size, width) > 0
                              for spells in (parts.uses, parts.outside))
            came = np.zeros((parts.size, width), bool)
            begun = parts.runs.take((parts.runs.start >= max(1, first))
                                    & (parts.runs.start < last))
            came[begun.of, begun.start - first] = True

            def values(term: SignalTerm, rows: Rows | slice, found: dict[str, Floats] = found
                       ) -> AnyFloats:
                return found[term.name][rows]

            yield self._stretch(piece.t0 + first, width, values, (there, ~outside, came))

    def _stretch(self, t0: int, width: int, values: Values, who: tuple[Mask, Mask, Mask]
                 ) -> RehearsalChunk:
        """`who`: is there, is meant, and came; Owners x columns."""
        there, meant, came = who
        once = np.zeros(len(there), bool)
        once[: len(self._once)] = self._once
        self._once = once | (there & meant).any(axis=1)
        return RehearsalChunk(t0, self.step_s, width, len(there), values, self._once,
                              lambda column: there[:, column], lambda column: meant[:, column],
                              lambda column: came[:, column])

    def name(self, row: int) -> AlertTarget:
        user = self._held.owners.keys[row][0] or ""
        return AlertTarget(user, "", "", "", (user,))


class _OwnerHoldings:
    """What a piece says of its Owners. `runs`: apart wherever nobody carried them over."""

    def __init__(self, piece: HoldingChunk, size: int, meant: Mask,
                 faulty: TargetIntervals) -> None:
        self._rows = piece.rows
        self._piece = piece
        self._faulty = faulty
        self.size = size
        self.uses = piece.by(piece.rows.owner)
        self.runs = joined(self.uses, touching=False)
        self.outside = joined(self.uses.take(~meant))

    def of(self, name: str) -> TargetIntervals:
        """When each of what is counted was an owner's."""
        column = USES[name].column
        found, pair = self.apart(column)
        return common(found, pair, self._faulty) if column == "faulty_gpu" else found

    def apart(self, column: str) -> tuple[TargetIntervals, Rows]:
        """When each of its GPUs, tasks or jobs was an owner's, and which."""
        rows = self._rows
        what = {"task": rows.task, "job": rows.job}.get(column, rows.pair)
        many = int(what.max(initial=0)) + 1
        found = joined(self._piece.by(rows.owner * many + what))
        return TargetIntervals(found.of // many, found.start, found.end), found.of % many


def _is_counted(name: str) -> bool:
    return USES[name].join == "distinct"

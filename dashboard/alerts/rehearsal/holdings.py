"""History of which owner held which GPUs: piece by piece, in order of time."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...history.grid import SEEN, HistoryGrid, Name, TaskRows
from ...history.protocol import RuleHistory
from ..core.minute_aggregates import ENOUGH, MINUTE_S
from ..core.rule_signal import Floats
from ..core.state_machine import Rows
from .intervals import TargetIntervals, in_minutes
from .task_keys import Key, KeyNumbering, uses_in
from .task_runs import BEFORE, Seconds, TaskMinuteRuns, TaskRunChains, chain_runs, merge_runs

MEMORY = ("mem_byte_s", "mem_s")


@dataclass(slots=True)
class HoldingChunk:
    """`rows`: one for each uninterrupted time that a task held a GPU, and `spells` when, in seconds
    from `t0` on. The last minute is the first one of the next piece: it shows which tasks stay."""

    t0: int
    minutes: int
    grid: HistoryGrid
    seen_s: Seconds  # of each pair in each minute
    rows: TaskMinuteRuns
    spells: TargetIntervals
    tasks: list[Key]
    byte_s: dict[int, Floats]  # of each Owner in each minute

    @property
    def looked_s(self) -> Rows:
        """Return, for each minute, for how many seconds anything was heard of: in the others the
        hub may have been down."""
        return np.asarray(self.seen_s.max(axis=0, initial=0))

    def by(self, which: Rows) -> TargetIntervals:
        return TargetIntervals(which, self.spells.start, self.spells.end)


class HoldingHistory:
    """Reads holdings piece by piece. `owners` are numbered in order of appearance, for all pieces;
    all else belongs to one piece. `names`: the numbers that are needed."""

    def __init__(self, spans: RuleHistory, names: Collection[str]) -> None:
        self._spans = spans
        self._with_memory = "mem_used_bytes" in names
        self._with_jobs = "jobs" in names
        self.owners = KeyNumbering()
        self.pairs: dict[Name, int] = {}
        self._uses, self._tasks, self._jobs = KeyNumbering(), KeyNumbering(), KeyNumbering()
        # What continues in the next piece: uses, jobs, and their last runs.
        self._continuing: tuple[list[Key], list[Key], TaskMinuteRuns | None] = ([], [], None)
        self._byte_s: dict[int, Floats] = {}

    def piece(self, first: int, last: int) -> HoldingChunk:
        grid = HistoryGrid(first, MINUTE_S, (last - first) // MINUTE_S + 1, self.pairs)
        self._spans.seen(grid)
        self._uses, self._tasks, self._jobs = KeyNumbering(), KeyNumbering(), KeyNumbering()
        self._byte_s = defaultdict(lambda: np.zeros(grid.width))
        columns = ("task", "user", "seconds", *(("job", "launch") if self._with_jobs else ()),
                   *(MEMORY if self._with_memory else ()))
        runs = merge_runs([*self._carried(), *(
            self._runs(part, grid) for part in self._spans.held(first, grid.ends_at, columns))])
        seen_s = _heard_s(grid, runs)
        chains = chain_runs(runs, seen_s)
        if self._with_memory:
            self._fill(runs, chains, seen_s)
        self._set_continuing(runs, chains, last - first)
        return HoldingChunk(first, grid.width, grid, seen_s, runs.take(chains.heads), chains.spells,
                            self._tasks.keys, self._byte_s)

    def _carried(self) -> Iterator[TaskMinuteRuns]:
        """Yield the holders of a GPU at the end of the previous chunk."""
        uses, jobs, runs = self._continuing
        if runs is not None:
            runs.use[:] = [self._uses.of(use) for use in uses]
            runs.task[:] = [self._tasks.of(use[1:]) for use in uses]
            runs.job[:] = [self._jobs.of(job) for job in jobs]
            runs.first[:] = runs.last[:] = BEFORE
            runs.last_s[:] = MINUTE_S
            yield runs

    def _set_continuing(self, runs: TaskMinuteRuns, chains: TaskRunChains, at: int) -> None:
        tails = chains.tails[(chains.spells.start < at) & (chains.spells.end > at)]
        self._continuing = ([self._uses.keys[use] for use in runs.use[tails].tolist()],
                            [self._jobs.keys[job] for job in runs.job[tails].tolist()],
                            runs.take(tails))

    def _runs(self, part: TaskRows, grid: HistoryGrid) -> TaskMinuteRuns:
        """Return the runs in these rows, without rows of unknown owners."""
        task, words = part.words["task"]
        key = part.name_at * np.int64(len(words)) + task
        rows = np.flatnonzero(part.words["user"][0] >= 0)
        rows = rows[np.argsort(key[rows], kind="stable")]
        minute = ((part.t[rows] - grid.t0) // MINUTE_S).astype(np.intp)
        apart = (np.diff(key[rows]) != 0) | (np.diff(minute) != 1)
        starts = np.flatnonzero(np.append(True, apart)[: len(rows)])
        ends = np.flatnonzero(np.append(apart, True)[: len(rows)])
        seconds = part.numbers["seconds"][rows].astype(np.intp)
        bytes_ = _mean_bytes(part)[rows] if self._with_memory else np.zeros(len(rows))
        use, owner, at_pair, of_task, job = self._identities(part, rows[starts], grid)
        runs = TaskMinuteRuns(use, owner, at_pair, of_task, job, minute[starts], minute[ends],
                              seconds[starts], seconds[ends], bytes_[starts], bytes_[ends])
        if self._with_memory:
            self._add_runs(runs, grid, seconds, bytes_)
        return runs

    def _identities(self, part: TaskRows, rows: Rows, grid: HistoryGrid) -> tuple[Rows, ...]:
        """Return the use, owner, pair, task and job of each row."""
        uses, which = uses_in(part, rows)
        table = np.array([
            (self._uses.of((use.gpu, use.node, use.task_id)), self.owners.of((use.user,)),
             grid.rows.setdefault((use.gpu, use.node), len(grid.rows)),
             self._tasks.of((use.node, use.task_id)), self._jobs.of(use.job)) for use in uses],
            np.intp).reshape(-1, 5)[which]
        return tuple(table.T)

    # -- memory

    def _add_runs(self, runs: TaskMinuteRuns, grid: HistoryGrid, seconds: Rows,
                  bytes_: Floats) -> None:
        """Add the memory of runs; `seconds` and `bytes_` of their minutes lie one run after the
        other."""
        told_s, at = grid.count(SEEN), 0
        for owner, pair, first, last in zip(runs.owner.tolist(), runs.pair.tolist(),
                                            runs.first.tolist(), runs.last.tolist(), strict=True):
            mine, there = slice(at, at + last + 1 - first), slice(first, last + 1)
            seen_s = seconds[mine] if told_s is None else told_s[pair, there]
            self._byte_s[owner][there] += bytes_[mine] * _lasted_s(seconds[mine], seen_s)
            at = mine.stop

    def _add_up(self, owner: Rows, minute: Rows, byte_s: Floats, width: int) -> None:
        owners, at = np.unique(owner, return_inverse=True)
        table = np.bincount(at * width + minute, byte_s, len(owners) * width).reshape(-1, width)
        for owner_number, sums in zip(owners.tolist(), table, strict=True):
            self._byte_s[owner_number] += sums

    def _fill(self, runs: TaskMinuteRuns, chains: TaskRunChains, seen_s: Seconds) -> None:
        """Fill gaps. While nothing is reported, a task holds what it held last; and the length of
        its first and last minute is known better by now."""
        heads, tails, spells, width = chains.heads, chains.tails, chains.spells, seen_s.shape[1]
        inner = np.setdiff1d(np.arange(len(runs)), tails)
        over = (runs.last + 1) * MINUTE_S
        for at, start, end in ((inner, over[inner], runs.first[inner + 1] * MINUTE_S),
                               (tails, over[tails], spells.end)):
            rows = in_minutes(TargetIntervals(at, start, np.maximum(start, end)), width)
            self._add_up(runs.owner[rows.of], rows.minute,
                         runs.last_bytes[rows.of] * (rows.until_s - rows.from_s), width)
        for at, minute, listed_s, bytes_ in (
            (heads, runs.first[heads], runs.first_s[heads], runs.first_bytes[heads]),
            (tails, np.where(runs.last[tails] == runs.first[heads], BEFORE, runs.last[tails]),
             runs.last_s[tails], runs.last_bytes[tails]),
        ):
            is_here = minute != BEFORE
            lasted_s = np.minimum(spells.end, (minute + 1) * MINUTE_S) - np.maximum(
                spells.start, minute * MINUTE_S)
            more_s = lasted_s - _lasted_s(listed_s, seen_s[runs.pair[at], minute])
            self._add_up(runs.owner[at][is_here], minute[is_here], (bytes_ * more_s)[is_here],
                         width)


def _lasted_s(listed_s: Rows, seen_s: npt.NDArray[np.integer[Any]]) -> Floats:
    """Return for how long a task held in a minute. One that is in every list of that time was there
    throughout."""
    heard_s = np.minimum(np.maximum(seen_s, listed_s), MINUTE_S)
    return np.asarray(MINUTE_S * listed_s / np.maximum(heard_s, 1))


def _heard_s(grid: HistoryGrid, runs: TaskMinuteRuns) -> Seconds:
    """Return for how many seconds each pair was heard of; at least as long as anything on it was
    listed."""
    told_s = grid.count(SEEN)
    heard_s = np.zeros((len(grid.rows), grid.width), np.int32)
    if told_s is not None:
        np.minimum(told_s, MINUTE_S, out=heard_s)
    for minute, listed_s in ((runs.first, runs.first_s), (runs.last, runs.last_s)):
        inside = minute != BEFORE
        np.maximum.at(heard_s, (runs.pair[inside], minute[inside]), listed_s[inside])
    return heard_s


def _mean_bytes(part: TaskRows) -> Floats:
    """Return the mean of each row; NaN where too little of the minute is known."""
    known_s, seconds = part.numbers["mem_s"], part.numbers["seconds"]
    mean = part.numbers["mem_byte_s"] / np.maximum(known_s, 1)
    return np.where(known_s >= ENOUGH * seconds, mean, np.nan)

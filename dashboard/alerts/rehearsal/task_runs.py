"""When each task held its GPUs, to the second, from rows that say for how many seconds of a minute
it was listed.

A task listed in the next minute too was there at the end of this one, and one listed in the minute
before was there at its beginning. Minutes in which nothing was heard of the GPU do not count: tasks
of a silent node still hold what they held.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from ..core.minute_aggregates import MINUTE_S
from ..core.rule_signal import Floats
from ..core.state_machine import Rows
from .intervals import ArrayRows, TargetIntervals

Seconds = npt.NDArray[np.int32]
BEFORE = -1  # the minute before the first: what was there then goes on


@dataclass(frozen=True, slots=True)
class TaskMinuteRuns(ArrayRows):
    """One row for each task on a GPU that is listed in minute after minute; sorted by use and
    `first`. `first_s`, `last_s`: for how many seconds of these two minutes."""

    use: Rows
    owner: Rows
    pair: Rows
    task: Rows
    job: Rows
    first: Rows
    last: Rows
    first_s: Rows
    last_s: Rows
    first_bytes: Floats
    last_bytes: Floats


def merge_runs(parts: Sequence[TaskMinuteRuns]) -> TaskMinuteRuns:
    """Merge runs. A part that arrived late for a minute is a run apart: its seconds are added."""
    runs = TaskMinuteRuns(*(np.concatenate([getattr(part, column.name) for part in parts])
                            for column in fields(TaskMinuteRuns)))
    runs = runs.take(np.lexsort((runs.first, runs.use)))
    if not len(runs):
        return runs
    far = int(runs.last.max()) + 2
    until = np.maximum.accumulate(runs.use * far + runs.last)
    starts = np.flatnonzero(np.append(True, (runs.use * far + runs.first)[1:] > until[:-1]))
    return runs if len(starts) == len(runs) else _merge_overlapping(runs, starts)


def _merge_overlapping(runs: TaskMinuteRuns, starts: Rows) -> TaskMinuteRuns:
    many = np.diff(np.append(starts, len(runs)))
    merged = runs.take(starts)
    last = np.maximum.reduceat(runs.last, starts)
    is_first = runs.first == np.repeat(merged.first, many)
    is_last = runs.last == np.repeat(last, many)
    first_s, last_s = (
        np.minimum(np.add.reduceat(np.where(which, seconds, 0), starts), MINUTE_S)
        for which, seconds in ((is_first, runs.first_s), (is_last, runs.last_s)))
    last_bytes = np.maximum.reduceat(np.where(is_last, runs.last_bytes, -np.inf), starts)
    return replace(merged, last=last, first_s=first_s, last_s=last_s, last_bytes=last_bytes)


@dataclass(frozen=True, slots=True)
class TaskRunChains:
    """Runs that follow one another, as one: its first, its last, and its interval."""

    heads: Rows
    tails: Rows
    spells: TargetIntervals  # of each use


def chain_runs(runs: TaskMinuteRuns, seen_s: Seconds) -> TaskRunChains:
    """Chain runs. `seen_s`: for how many seconds each pair was heard of in each minute."""
    same, next_one = np.diff(runs.use) == 0, runs.last[:-1] + 1
    goes_on = same & (runs.first[1:] <= next_one)
    for at in np.flatnonzero(same & ~goes_on).tolist():
        goes_on[at] = not seen_s[runs.pair[at], next_one[at] : runs.first[at + 1]].any()
    heads = np.flatnonzero(np.append(True, ~goes_on)[: len(runs)])
    tails = np.flatnonzero(np.append(~goes_on, True)[: len(runs)])
    began = _over(seen_s, runs.pair[heads], runs.first[heads]) - runs.first_s[heads]
    starts = np.where(runs.first[heads] == BEFORE, 0, began)
    return TaskRunChains(heads, tails, TargetIntervals(runs.use[heads], starts,
                                                       _ends(runs, heads, tails, seen_s)))


def _over(seen_s: Seconds, pair: Rows, minute: Rows) -> Rows:
    """Return until when it was heard of in these minutes. A silence that goes on began at the end
    of a minute; any other came before. In the last minute it may be too early to have heard the
    rest."""
    last = seen_s.shape[1] - 1
    heard_s, before_s = seen_s[pair, minute], seen_s[pair, np.maximum(minute - 1, 0)]
    is_last = (minute == last) & (before_s > 0)
    after_s = seen_s[pair, np.minimum(minute + 1, last)]
    goes_silent = (minute < last) & (heard_s > 0) & (after_s == 0)
    most_s = int(seen_s[:, last].max(initial=0)) or MINUTE_S
    return minute * MINUTE_S + np.where(goes_silent, heard_s,
                                        np.where(is_last, most_s, MINUTE_S))


def _ends(runs: TaskMinuteRuns, heads: Rows, tails: Rows, seen_s: Seconds) -> Rows:
    """Return the ends: within its last minute, or with the first list of the next known minute."""
    pair, last, listed_s = runs.pair[tails], runs.last[tails], runs.last_s[tails]
    missed_s = np.where(last == BEFORE, 0, seen_s[pair, last] - listed_s)
    came_then = (heads == tails) & (runs.first[tails] == last) & (last != BEFORE)
    ends = _over(seen_s, pair, last) - missed_s
    stays = np.flatnonzero((missed_s == 0) | came_then)
    next_one = np.array([_next(seen_s[pair[at]], int(last[at])) for at in stays.tolist()], np.intp)
    is_known = next_one < seen_s.shape[1]
    ends[stays] = next_one * MINUTE_S
    with_next = stays[is_known]
    ends[with_next] = _over(seen_s, pair[with_next], next_one[is_known]) - (
        seen_s[pair[with_next], next_one[is_known]])
    return ends


def _next(seen_s: Seconds, minute: int) -> int:
    """Return the next minute that is known."""
    after = minute + 1
    while after < len(seen_s) and seen_s[after] == 0:
        after += 1
    return after

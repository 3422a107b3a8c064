"""When each Task held its GPUs, to the second, out of rows that say for how many seconds of a
minute it was listed.

Whoever is listed in the next minute too was there at the end of this one, and whoever was in the
one before at its beginning. Minutes in which nobody heard of the GPU are none of these: who is
silent holds what they held.
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
BEFORE = -1  # the minute before the first: who was there then goes on


@dataclass(frozen=True, slots=True)
class TaskMinuteRuns(ArrayRows):
    """One for each Task on a GPU that is listed in minute after minute; sorted by use and `first`.
    `first_s`, `last_s`: for how many seconds of these two."""

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


def joined_runs(parts: Sequence[TaskMinuteRuns]) -> TaskMinuteRuns:
    """What came late for a minute lies apart from it: its seconds are more of the same."""
    found = TaskMinuteRuns(*(np.concatenate([getattr(part, column.name) for part in parts])
                             for column in fields(TaskMinuteRuns)))
    found = found.take(np.lexsort((found.first, found.use)))
    if not len(found):
        return found
    far = int(found.last.max()) + 2
    until = np.maximum.accumulate(found.use * far + found.last)
    starts = np.flatnonzero(np.append(True, (found.use * far + found.first)[1:] > until[:-1]))
    return found if len(starts) == len(found) else _merged(found, starts)


def _merged(runs: TaskMinuteRuns, starts: Rows) -> TaskMinuteRuns:
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
    """Runs that follow one another are one: its first, its last, and when it was."""

    heads: Rows
    tails: Rows
    spells: TargetIntervals  # of the use


def chained(runs: TaskMinuteRuns, seen_s: Seconds) -> TaskRunChains:
    """`seen_s`: of each pair and minute, for how many seconds it was heard of."""
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
    """Until when it was heard of in these minutes. A silence that goes on began at the end of one;
    any other came before. Of the last minute it may be too early to hear the rest."""
    last = seen_s.shape[1] - 1
    heard_s, before_s = seen_s[pair, minute], seen_s[pair, np.maximum(minute - 1, 0)]
    is_last = (minute == last) & (before_s > 0)
    after_s = seen_s[pair, np.minimum(minute + 1, last)]
    goes_silent = (minute < last) & (heard_s > 0) & (after_s == 0)
    most_s = int(seen_s[:, last].max(initial=0)) or MINUTE_S
    return minute * MINUTE_S + np.where(goes_silent, heard_s,
                                        np.where(is_last, most_s, MINUTE_S))


def _ends(runs: TaskMinuteRuns, heads: Rows, tails: Rows, seen_s: Seconds) -> Rows:
    """Within its last minute, or with the first list of the next minute that is known."""
    pair, last, listed_s = runs.pair[tails], runs.last[tails], runs.last_s[tails]
    missed_s = np.where(last == BEFORE, 0, seen_s[pair, last] - listed_s)
    came_then = (heads == tails) & (runs.first[tails] == last) & (last != BEFORE)
    found = _over(seen_s, pair, last) - missed_s
    stays = np.flatnonzero((missed_s == 0) | came_then)
    next_one = np.array([_next(seen_s[pair[at]], int(last[at])) for at in stays.tolist()], np.intp)
    is_known = next_one < seen_s.shape[1]
    found[stays] = next_one * MINUTE_S
    told = stays[is_known]
    found[told] = _over(seen_s, pair[told], next_one[is_known]) - (
        seen_s[pair[told], next_one[is_known]])
    return found


def _next(seen_s: Seconds, minute: int) -> int:
    """The next minute that is known."""
    after = minute + 1
    while after < len(seen_s) and seen_s[after] == 0:
        after += 1
    return after

"""Which Owner held which Gpus in the past, out of history: piece by piece, in the order of time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .core.alerts.held_runs import BEFORE, Chains, Runs, chained, joined_runs
from .core.alerts.machine import Rows
from .core.alerts.minutes import ENOUGH, MINUTE_S
from .core.alerts.signal import Floats
from .core.alerts.spells import Spells, in_minutes
from .history.grid import SEEN, Grid, Name, TaskRows
from .history.spans import Spans

Key = tuple[str, ...]
MEMORY = ("mem_byte_s", "mem_s")


class Numbered:
    """Whoever comes gets the next number."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._number: dict[Key, int] = {}

    def of(self, key: Key) -> int:
        found = self._number.setdefault(key, len(self.keys))
        if found == len(self.keys):
            self.keys.append(key)
        return found

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(slots=True)
class Piece:
    """`rows`: one for each unbroken time that a Task held a Gpu, and `spells` when, in seconds from
    `t0` on. The last minute is the next piece's first: whether somebody stays is seen in it."""

    t0: int
    minutes: int
    grid: Grid
    seen_s: Rows  # of each pair in each minute
    rows: Runs
    spells: Spells
    tasks: list[Key]
    byte_s: dict[int, Floats]  # of each Owner in each minute

    @property
    def looked_s(self) -> Rows:
        """Of each minute, for how many seconds somebody was heard of: in the others nobody may have
        listened."""
        return np.asarray(self.seen_s.max(axis=0, initial=0))

    def by(self, which: Rows) -> Spells:
        return Spells(which, self.spells.start, self.spells.end)


class HeldPast:
    """`owners` are numbered as they come, for all pieces; all else is of one."""

    def __init__(self, spans: Spans, with_memory: bool) -> None:
        self._spans = spans
        self._with_memory = with_memory
        self.owners = Numbered()
        self.pairs: dict[Name, int] = {}
        self._uses, self._tasks, self._jobs = Numbered(), Numbered(), Numbered()
        self._left: list[tuple[Key, Key, Runs]] = []  # use and Job of who goes on, and the last run
        self._byte_s: dict[int, Floats] = {}

    def piece(self, first: int, last: int) -> Piece:
        grid = Grid(first, MINUTE_S, (last - first) // MINUTE_S + 1, self.pairs)
        self._spans.seen(grid)
        self._uses, self._tasks, self._jobs = Numbered(), Numbered(), Numbered()
        self._byte_s = {}
        wanted = ("seconds", *(MEMORY if self._with_memory else ()))
        runs = joined_runs([*self._carried(), *(
            self._runs(part, grid) for part in self._spans.held(first, grid.ends_at, wanted))])
        seen_s = _seen_s(grid, runs)
        chains = chained(runs, seen_s)
        if self._with_memory:
            self._fill(runs, chains, grid.width)
        self._leave(runs, chains, last - first)
        return Piece(first, grid.width, grid, seen_s, runs.take(chains.heads), chains.spells,
                     self._tasks.keys, self._byte_s)

    def _carried(self) -> Iterator[Runs]:
        """Whoever held a Gpu when the piece before ended."""
        for use, job, run in self._left:
            run.use[:], run.task[:] = self._uses.of(use), self._tasks.of(use[1:])
            run.job[:], run.first[:], run.last[:] = self._jobs.of(job), BEFORE, BEFORE
            run.last_s[:] = MINUTE_S
            yield run

    def _runs(self, part: TaskRows, grid: Grid) -> Runs:
        """Nobody's are left out."""
        task, words = part.words["task"]
        key = part.name_at * np.int64(len(words)) + task
        rows = np.flatnonzero(part.words["user"][0] >= 0)
        rows = rows[np.argsort(key[rows], kind="stable")]
        minute = ((part.t[rows] - grid.t0) // MINUTE_S).astype(np.intp)
        apart = (np.diff(key[rows]) != 0) | (np.diff(minute) != 1)
        starts = np.flatnonzero(np.append(True, apart)[: len(rows)])
        ends = np.flatnonzero(np.append(apart, True)[: len(rows)])
        seconds = part.numbers["seconds"][rows].astype(np.intp)
        held = _mean_bytes(part)[rows] if self._with_memory else np.zeros(len(rows))
        who = self._who(part, rows[starts], grid)
        if self._with_memory:
            of_row = np.repeat(who[:, 1], ends - starts + 1)
            self._add_up(of_row, minute, held * MINUTE_S, grid.width)
        use, owner, pair, task, job = who.T
        return Runs(use, owner, pair, task, job, minute[starts], minute[ends], seconds[starts],
                    seconds[ends], held[starts], held[ends])

    def _who(self, part: TaskRows, rows: Rows, grid: Grid) -> Rows:
        """Use, Owner, pair, Task and Job of each: distinct words first, of which there are few."""
        words = [part.words[name] for name in ("task", "user", "job", "launch")]
        combined = np.stack([part.name_at[rows], *(at[rows].astype(np.intp) for at, _ in words)])
        used, inverse = np.unique(combined, axis=1, return_inverse=True)
        found = []
        for name, *at in used.T.tolist():
            task, user, job, launch = ("" if each < 0 else of[each]
                                       for each, (_, of) in zip(at, words, strict=True))
            gpu, node = part.names[name]
            found.append((self._uses.of((gpu, node, task)), self.owners.of((user,)),
                          grid.rows.setdefault((gpu, node), len(grid.rows)),
                          self._tasks.of((node, task)),
                          self._jobs.of((user, launch) if launch else (node, job or task, ""))))
        return np.array(found, np.intp).reshape(-1, 5)[inverse.reshape(-1)]

    def _leave(self, runs: Runs, chains: Chains, at: int) -> None:
        spells, uses, jobs = chains.spells, self._uses.keys, self._jobs.keys
        goes_on = (spells.start < at) & (spells.end > at)
        tails = chains.tails[goes_on]
        self._left = [(uses[runs.use[tail]], jobs[runs.job[tail]], runs.take(np.array([tail])))
                      for tail in tails.tolist()]

    # -- memory

    def _add_up(self, owner: Rows, minute: Rows, byte_s: Floats, width: int) -> None:
        used, at = np.unique(owner, return_inverse=True)
        found = np.bincount(at * width + minute, byte_s, len(used) * width).reshape(-1, width)
        for one, sums in zip(used.tolist(), found, strict=True):
            self._byte_s[one] = self._byte_s.get(one, np.zeros(width)) + sums

    def _fill(self, runs: Runs, chains: Chains, width: int) -> None:
        """What is listed was added up as if for whole minutes; while nobody tells, they hold what
        they held last."""
        heads, tails, spells = chains.heads, chains.tails, chains.spells
        inner = np.setdiff1d(np.arange(len(runs)), tails)
        ends = (runs.last + 1) * MINUTE_S
        for at, start, end, held in (
            (inner, ends[inner], runs.first[inner + 1] * MINUTE_S, runs.last_bytes[inner]),
            (tails, ends[tails], spells.end, runs.last_bytes[tails]),
            (tails, spells.end, ends[tails], -runs.last_bytes[tails]),
            (heads, np.maximum(runs.first[heads], 0) * MINUTE_S, spells.start,
             -runs.first_bytes[heads]),
        ):
            rows = in_minutes(Spells(at, start, np.maximum(start, end)), width)
            self._add_up(runs.owner[rows.of], rows.minute,
                         held[rows.which] * (rows.until_s - rows.from_s), width)


def _seen_s(grid: Grid, runs: Runs) -> Rows:
    """Of who was listed, something was heard."""
    told = grid.count(SEEN)
    found = np.zeros((len(grid.rows), grid.width), np.intp)
    if told is not None:
        found[:] = np.minimum(told, MINUTE_S)
    for minute, listed_s in ((runs.first, runs.first_s), (runs.last, runs.last_s)):
        inside = minute != BEFORE
        np.maximum.at(found, (runs.pair[inside], minute[inside]), listed_s[inside])
    return found


def _mean_bytes(part: TaskRows) -> Floats:
    """NaN where too little of the minute is known."""
    known_s, seconds = part.numbers["mem_s"], part.numbers["seconds"]
    mean = part.numbers["mem_byte_s"] / np.maximum(known_s, 1)
    return np.where(known_s >= ENOUGH * seconds, mean, np.nan)

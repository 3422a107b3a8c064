"""What a Rule of Tasks or Jobs looked at, out of history, for a rehearsal: who held what in each
minute, and what their Gpus did in it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from gpudeck.wire import Task

from ...fleet.filters import TaskGpuPairs
from ...fleet.fleet import Fleet
from ...history.grid import HistoryGrid, TaskRows
from ...history.protocol import RuleHistory
from ..core.evaluator import End
from ..core.firing_alerts import AlertTarget
from ..core.minute_aggregates import ENOUGH, MINUTE_S, WAIT_S
from ..core.rule import CompiledRule
from ..core.rule_signal import Floats, SignalTerm
from ..core.rule_tracker import RuleTracker
from ..core.state_machine import Mask, Rows
from .engine import AnyFloats, RehearsalChunk, RehearsedAlert, pieces
from .gpus import CannotRehearseError

AT_ONCE_S = 7_200
MOST_TARGETS = 100_000
OF_GPUS: dict[str, frozenset[End]] = {
    name: frozenset(("mean", "max")) for name in ("util_pct", "util_max_pct", "mem_used_bytes")}

Key = tuple[str, ...]


@dataclass(slots=True)
class _TaskUseRows:
    """Of one stretch, a row per Task on a Gpu in a minute. `of`: the target's row within it."""

    width: int
    keys: list[Key]
    of: Rows
    column: Rows
    pair: Rows
    task: Rows
    job: Rows
    numbers: dict[str, Floats]
    grid: HistoryGrid
    total_bytes: Floats  # of each pair's board
    made: dict[tuple[str, bool], Floats] = field(default_factory=dict)

    def values(self, name: str, is_max: bool) -> Floats:
        """Targets x minutes."""
        if (name, is_max) not in self.made:
            self.made[name, is_max] = NUMBERS[name](self, is_max)
        return self.made[name, is_max]

    def _flat(self) -> Rows:
        return self.of * self.width + self.column

    def total(self, values: Floats) -> Floats:
        size = len(self.keys) * self.width
        found = np.bincount(self._flat(), values, size).astype(float)
        return np.asarray(found.reshape(-1, self.width))

    def most(self, values: Floats) -> Floats:
        found = np.full(len(self.keys) * self.width, -np.inf)
        with np.errstate(invalid="ignore"):
            np.maximum.at(found, self._flat(), values)
        return np.where(np.isinf(found), np.nan, found).reshape(-1, self.width)

    def distinct(self, what: Rows) -> Floats:
        base = int(what.max(initial=0)) + 1
        pairs = np.unique(self._flat() * base + what)
        return np.bincount(pairs // base, minlength=len(self.keys) * self.width).astype(
            float).reshape(-1, self.width)

    def held(self, name: str, is_max: bool) -> Floats:
        """Memory or share of one use, in its minute."""
        top, total, n = {"mem": ("mem_max_bytes", "mem_byte_s", "mem_s"),
                         "sm": ("sm_max_pct", "sm_pct_s", "sm_s")}[name]
        if is_max:
            return self.numbers[top]
        seconds = self.numbers[n]
        return np.where(seconds > 0, self.numbers[total] / np.maximum(seconds, 1), np.nan)

    def on_gpu(self, name: str, is_max: bool) -> Floats:
        found, n = self.grid.of(name, "max" if is_max else "mean"), self.grid.count(name)
        if found is None or n is None:
            return np.full(len(self.of), np.nan)
        enough = n[self.pair, self.column] >= ENOUGH * MINUTE_S
        return np.where(enough, found[self.pair, self.column].astype(float), np.nan)

    def sampled_s(self) -> Floats:
        """For how long of each minute one of its Gpus was sampled; targets x minutes."""
        found = np.zeros((len(self.keys), self.width))
        pairs = np.unique(np.stack([self.of, self.pair]), axis=1) if len(self.of) else (
            np.zeros((2, 0), np.intp))
        for name in OF_GPUS:
            n = self.grid.count(name)
            if n is not None:
                np.maximum.at(found, pairs[0], n[pairs[1]].astype(float))
        return found

    def jobs(self) -> Floats:
        """How many are on the Gpu of each use."""
        base = int(self.job.max(initial=0)) + 1
        place = self.pair * self.width + self.column
        pairs = np.unique(place * base + self.job)
        found = np.bincount(pairs // base, minlength=len(self.total_bytes) * self.width)
        return np.asarray(found[place], float)


def _busy(uses: _TaskUseRows, is_max: bool) -> Floats:
    alone = uses.jobs() == 1
    peak = np.where(alone, uses.on_gpu("util_max_pct", is_max), np.nan)
    peak = np.where(alone & np.isnan(peak), uses.on_gpu("util_pct", is_max), peak)
    return uses.most(np.fmax(uses.held("sm", is_max), peak))


NUMBERS: dict[str, Callable[[_TaskUseRows, bool], Floats]] = {
    "mem_used_bytes": lambda uses, is_max: uses.total(uses.held("mem", is_max)),
    "sm_pct": lambda uses, is_max: uses.total(uses.held("sm", is_max)),
    "util_pct": lambda uses, is_max: uses.total(uses.on_gpu("util_pct", is_max)) / np.maximum(
        uses.distinct(uses.pair), 1),
    "util_max_pct": lambda uses, is_max: uses.most(uses.on_gpu("util_max_pct", is_max)),
    "busy_pct": _busy,
    "mem_share": lambda uses, is_max: uses.most(
        uses.held("mem", is_max) / uses.total_bytes[uses.pair]),
    "gpu_mem_share": lambda uses, is_max: uses.most(
        uses.on_gpu("mem_used_bytes", is_max) / uses.total_bytes[uses.pair]),
    "gpu_jobs": lambda uses, _: uses.most(uses.jobs()),
    "gpus": lambda uses, _: uses.distinct(uses.pair),
    "tasks": lambda uses, _: uses.distinct(uses.task),
}


class TaskRehearsalSource:
    """`hours`: GPU-hours that a target had held within the span, by row and moment of an act."""

    step_s = reads_s = MINUTE_S

    def __init__(self, spans: RuleHistory, fleet: Fleet, ready: CompiledRule) -> None:
        self._spans = spans
        self._fleet = fleet
        self._ready = ready
        self.rows: dict[Key, int] = {}
        self._keys: list[Key] = []
        self._named: dict[Key, tuple[str, set[str], set[str]]] = {}  # node, users, places
        self._left_out: set[Key] = set()
        self._was_there = np.zeros(0, bool)
        self._held_s: dict[int, float] = {}
        self._seconds: tuple[int, list[int], Floats] = (0, [], np.zeros((0, 0)))
        self.hours: dict[tuple[int, float], float] = {}
        odd = sorted(name for name in RuleTracker(ready).names if name not in NUMBERS)
        if odd:
            raise CannotRehearseError(f"history does not keep {' and '.join(odd)} of a "
                                      f"{ready.rule.of}: this rule can only be watched live")
        if not ready.is_by_minutes:
            raise CannotRehearseError("history keeps tasks by the minute: a rule that holds less "
                                      "than "
                                      "5m can only be watched live")

    def stretches(self, start: int, end: int) -> Iterator[RehearsalChunk]:
        for first, last in pieces(start, end, AT_ONCE_S):
            # A minute more: whether a task had ended by the end of one is seen in the next.
            uses = self._uses(first, last + MINUTE_S)
            yield self._stretch(first, uses)
            self._add_up()

    def _uses(self, first: int, last: int) -> _TaskUseRows:
        grid = HistoryGrid(first, MINUTE_S, (last - first) // MINUTE_S)
        self._spans.past(OF_GPUS, grid)
        parts = [part for part in self._spans.held(first, last) if len(part.t)]
        keys: dict[Key, int] = {}
        tasks: dict[Key, int] = {}
        jobs: dict[Key, int] = {}
        columns: list[tuple[Rows, ...]] = []
        for part in parts:
            columns.append(self._placed(part, grid, (keys, tasks, jobs)))
        of, column, pair, task, job = (
            np.concatenate([each[at] for each in columns]) if columns else np.zeros(0, np.intp)
            for at in range(5))
        numbers = {name: np.concatenate([part.numbers[name] for part in parts]) if parts
                   else np.zeros(0) for name in (
                       "seconds", "mem_byte_s", "mem_s", "sm_pct_s", "sm_s", "mem_max_bytes",
                       "sm_max_pct")}
        slots = [self._fleet.slot_on(node, gpu) for gpu, node in grid.rows]
        total = np.array([None if slot is None else self._fleet.facts[slot].mem_total_bytes
                          for slot in slots], float)
        found = _TaskUseRows(grid.width, list(keys), of, column, pair, task, job, numbers, grid,
                             total)
        return self._meant(found, slots, list(tasks))

    def _placed(self, part: TaskRows, grid: HistoryGrid, dicts: tuple[dict[Key, int], ...]
                ) -> tuple[Rows, ...]:
        """Who each row is about: distinct words first, of which there are few."""
        words, at = part.words, part.name_at
        combined = np.stack([words[name][0].astype(np.intp) for name in ("task", "user", "job",
                                                                         "launch")] + [at])
        used, inverse = np.unique(combined, axis=1, return_inverse=True)
        keys, tasks, jobs = dicts
        rows = []
        for task, user, job, launch, name in used.T.tolist():
            gpu, node = part.names[name]
            task_key = (node, words["task"][1][task])
            user_word = None if user < 0 else words["user"][1][user]
            job_key: Key = (node, words["job"][1][job] if job >= 0 else task_key[1], "")
            if launch >= 0:
                job_key = (user_word or "", words["launch"][1][launch])
            key = task_key if self._ready.rule.of == "task" else job_key
            slot = self._fleet.slot_on(node, gpu)
            _, users, places = self._named.setdefault(key, (node, set(), set()))
            users |= set() if user_word is None else {user_word}
            places |= set() if slot is None else {self._fleet.facts[slot].place}
            rows.append((keys.setdefault(key, len(keys)), grid.rows.setdefault(
                (gpu, node), len(grid.rows)), tasks.setdefault(task_key, len(tasks)),
                jobs.setdefault(job_key, len(jobs))))
        table = np.array(rows, np.intp).reshape(-1, 4)[inverse.reshape(-1)]
        return (table[:, 0], ((part.t - grid.t0) // MINUTE_S).astype(np.intp), table[:, 1],
                table[:, 2], table[:, 3])

    def _meant(self, uses: _TaskUseRows, slots: list[int | None], tasks: list[Key]) -> _TaskUseRows:
        """Jobs on a Gpu are counted with those who are not meant, who then are left out."""
        uses.made["gpu_jobs", True] = uses.made["gpu_jobs", False] = uses.values("gpu_jobs", False)
        if self._ready.scope is None or not len(uses.of):
            return uses
        seen, inverse = np.unique(np.stack([uses.pair, uses.task, uses.of]), axis=1,
                                  return_inverse=True)
        known = [(at, slots[pair], task, of) for at, (pair, task, of) in enumerate(seen.T.tolist())
                 if slots[pair] is not None]
        meant = np.zeros(seen.shape[1], bool)
        if known:
            meant[[each[0] for each in known]] = self._ready.scope.matches_uses(
                self._fleet, 0.0, TaskGpuPairs(
                    np.array([each[1] for each in known], np.intp),
                    [Task(tasks[task][1], 1, 0, None, self._user(uses.keys[of]), None)
                     for _, _, task, of in known]))
        out = set(uses.of[~meant[inverse.reshape(-1)]].tolist())
        self._left_out = {uses.keys[of] for of in out}
        return uses

    def _user(self, key: Key) -> str | None:
        users = self._named[key][1]
        return next(iter(users)) if len(users) == 1 else None

    def _stretch(self, first: int, uses: _TaskUseRows) -> RehearsalChunk:
        for key in uses.keys:
            if key not in self.rows and key not in self._left_out:
                self.rows[key] = len(self.rows)
                self._keys.append(key)
        if len(self.rows) > MOST_TARGETS:
            raise CannotRehearseError(f"more than {MOST_TARGETS:,} targets: ask for a shorter "
                                      "span, or "
                                      "narrow the scope")
        mine = {key: at for at, key in enumerate(uses.keys)}
        here = np.array([mine.get(key, -1) for key in self._keys], np.intp)
        seconds = _rows(np.nan_to_num(uses.most(uses.numbers["seconds"])), here, 0.0)
        enough = seconds >= ENOUGH * MINUTE_S
        there = self._there(seconds, _rows(uses.sampled_s(), here, 0.0))
        self._seconds = (first, here.tolist(), uses.total(uses.numbers["seconds"])[:, :-1])

        def values(term: SignalTerm, rows: Rows | slice) -> AnyFloats:
            is_max = term.how not in ("last", "avg", "min")
            found = _rows(uses.values(term.name, is_max), here[rows], np.nan)
            return np.where(enough[rows], found, np.nan)

        return RehearsalChunk(first, MINUTE_S, uses.width - 1, len(self.rows), values,
                              np.ones(len(self.rows), bool), lambda column: there[:, column])

    def _there(self, seconds: Floats, sampled_s: Floats) -> Mask:
        """Who is not listed while the Gpus are sampled is gone, as a live look sees it some seconds
        after the minute; while nobody hears of the Gpus, nobody knows otherwise."""
        was = np.zeros(len(seconds), bool)
        was[: len(self._was_there)] = self._was_there
        listed, is_away = seconds > 0, (seconds == 0) & (sampled_s > 0)
        known = listed | is_away
        columns = np.arange(seconds.shape[1])
        last = np.maximum.accumulate(np.where(known, columns, -1), axis=1)
        there = np.where(last >= 0, np.take_along_axis(listed, np.maximum(last, 0), axis=1),
                         was[:, None])
        self._was_there = there[:, -2].copy()
        ended = (seconds[:, 1:] <= WAIT_S) & (sampled_s[:, 1:] > seconds[:, 1:] + WAIT_S)
        there[:, :-1] &= ~ended
        return np.asarray(there)

    def settle(self, alerts: Iterable[RehearsedAlert]) -> None:
        """After a stretch was rehearsed: what each had held when it would have been reached."""
        first, here, seconds = self._seconds
        end = first + seconds.shape[1] * MINUTE_S
        for alert in alerts:
            at = alert.acted_at
            if at is not None and first < at <= end and (alert.row, at) not in self.hours:
                mine = here[alert.row]
                until = int(at - first) // MINUTE_S
                held_s = self._held_s.get(alert.row, 0.0) + (
                    float(seconds[mine, :until].sum()) if mine >= 0 else 0.0)
                self.hours[alert.row, at] = held_s / 3_600

    def _add_up(self) -> None:
        _, here, seconds = self._seconds
        for row, mine in enumerate(here):
            if mine >= 0:
                self._held_s[row] = self._held_s.get(row, 0.0) + float(seconds[mine].sum())

    def name(self, row: int) -> AlertTarget:
        key = self._keys[row]
        node_id, users, places = self._named[key]
        node = self._fleet.nodes.get(node_id)
        word = key[1] if self._ready.rule.of == "task" else (
            f"{key[0]}/{key[1]}" if len(key) > 2 else f"{key[1]} of {key[0]}")
        return AlertTarget(word, node_id, node_id if node is None else node.hello.host,
                           ", ".join(sorted(places)[:8]), tuple(sorted(users)))


def _rows(found: Floats, here: Rows, nothing: float) -> Floats:
    """Rows of it by number; -1: there is none."""
    if not len(found):
        return np.full((len(here), found.shape[1]), nothing)
    return np.where((here >= 0)[:, None], found[np.maximum(here, 0)], nothing)


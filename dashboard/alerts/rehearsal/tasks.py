"""Rehearsal data for rules of tasks, jobs or owners: what each held in each minute, and what their
GPUs did in it."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from gpudeck.contract.actions import Refusal
from gpudeck.contract.ladder import Do
from gpudeck.contract.wire import Task
from gpudeck.measures.xid import UNKNOWN_CODE, explain

from ...history.columns.grid import HistoryGrid, TaskRows
from ..core.firing_alerts import AlertTarget
from ..core.minute_aggregates import ENOUGH, MINUTE_S, WAIT_S
from ..core.numbers import NONE, distinct_on_gpus, number_of_uses
from ..core.rule import CLOSED_FROM_S
from ..core.rule_signal import End, Floats, SignalTerm, end_of
from ..core.state_machine import Mask, Rows
from ..core.workload_targets import KnownUses, slot_rows
from ..core.xid_counts import RECENT_S, is_of_task
from .engine import ACTS, AnyFloats, RehearsalChunk, RehearsedAlert
from .owner_minutes import OwnerMinutes, present_s
from .source import MOST_CELLS, CannotRehearseError, RehearsalSource
from .task_keys import WORDS, Key, KeyNumbering, UseKey, past_task, run_starts, uses_in
from .task_refusals import TaskPresence

MOST_ROWS = 4_000_000  # of history in memory at once, beyond two hours
AT_ONCE_LEAST_S, AT_ONCE_S, AT_ONCE_MOST_S = 600, 7_200, 86_400
MOST_TARGETS = 100_000
SUMS = ("seconds", "mem_byte_s", "mem_s", "sm_pct_s", "sm_s", "mem_max_bytes", "sm_max_pct",
        "host_cpu_pct_s", "host_cpu_s", "host_cpu_max_pct")
BOTH_ENDS: frozenset[End] = frozenset(("mean", "max"))
OF_GPUS = ("util_pct", "util_max_pct", "mem_used_bytes", "power_w")
# Metrics that few rules need are not read for all of them.
OF_SOME = {"gpus_stuck": ("mem_util_pct",), "busy_pct": ("sm_active_pct",)}
FACTS = ("mem_total_bytes", "power_limit_max_w")
T = TypeVar("T")
# An owner has many tasks and few numbers.
SUMS_OF_OWNERS = ("seconds", "mem_byte_s", "mem_s", "mem_max_bytes")
OF_GPUS_OF_OWNERS = ("util_pct",)


@dataclass(slots=True)
class TaskMinuteUses:
    """Uses of GPUs by tasks in each minute of a chunk, as columns of numbers. `is_max`: the highest
    value of each minute instead of its mean."""

    width: int
    targets: list[Key]
    cell: Rows
    gpu: Rows
    task: Rows
    job: Rows
    numbers: dict[str, Floats]
    grid: HistoryGrid
    facts: dict[str, Floats]  # of each pair's board
    nodes: Rows  # of each pair, the number of its node
    faulty: Mask  # of each pair and minute: whether a task had failed by its own fault lately
    of_owners: bool
    is_max: bool = False
    cache: dict[str, Floats] = field(init=False, default_factory=dict)

    def values(self, name: str) -> Floats:
        """Return targets x minutes."""
        if name not in self.cache:
            self.cache[name] = number_of_uses(name, self) if not self.of_owners else OwnerMinutes(
                self, self.numbers["seconds"], self.there_s().reshape(-1)).values(name)
        return self.cache[name].reshape(-1, self.width)

    def seconds(self, join: np.ufunc) -> Floats:
        """Return targets x minutes."""
        seconds = np.zeros(self.size)
        join.at(seconds, self.cell, self.numbers["seconds"])
        return seconds.reshape(-1, self.width)

    def there_s(self) -> Floats:
        """Return for how long each target held anything; targets x minutes."""
        if "there_s" not in self.cache:
            longest_s = self.seconds(np.maximum)
            self.cache["there_s"] = longest_s if not self.of_owners else present_s(
                longest_s, self.seconds(np.add), self.sampled_s())
        return self.cache["there_s"]

    @property
    def size(self) -> int:
        return len(self.targets) * self.width

    def keys(self, what: str) -> Rows:
        """Return keys by use; GPUs are numbered for all minutes together."""
        pair = self.gpu // self.width
        if what == "node":
            return np.asarray(self.nodes[pair])
        if what == "faulty_gpu":
            return np.where(self.faulty.reshape(-1)[self.gpu], pair, NONE)
        return {"task": self.task, "job": self.job}.get(what, pair)

    def reuse(self, key: Hashable, make: Callable[[], T]) -> T:
        return make()  # each number is read once

    def of_uses(self, name: str) -> Floats:
        top, total, n = {"mem_used_bytes": ("mem_max_bytes", "mem_byte_s", "mem_s"),
                         "sm_pct": ("sm_max_pct", "sm_pct_s", "sm_s"),
                         "host_cpu_pct": ("host_cpu_max_pct", "host_cpu_pct_s", "host_cpu_s"),
                         }[name]
        if self.is_max:
            return self.numbers[top]
        seconds = self.numbers[n]
        return np.where(seconds > 0, self.numbers[total] / np.maximum(seconds, 1), np.nan)

    def of_gpus(self, name: str) -> Floats:
        gpus = len(self.nodes) * self.width
        if name == "jobs":
            return distinct_on_gpus(self.gpu, self.job, gpus)
        if name in self.facts:
            return np.repeat(self.facts[name], self.width)
        values, n = self.grid.of(name, "max" if self.is_max else "mean"), self.grid.count(name)
        if values is None or n is None:
            return np.full(gpus, np.nan)
        return np.where(n >= ENOUGH * MINUTE_S, values.astype(float), np.nan).reshape(-1)

    def pairs_of_targets(self) -> tuple[Rows, Rows]:
        """Return each target, by number, with each GPU that it uses at any time."""
        pairs = max(1, len(self.nodes))
        each = self.cell // self.width * pairs + self.gpu // self.width
        target, pair = np.divmod(np.unique(each[run_starts([each])]), pairs)
        return target, pair

    def sampled_s(self) -> Floats:
        """Return for how long of each minute one of its GPUs was sampled; targets x minutes."""
        sampled_s, (target, pair) = np.zeros((len(self.targets), self.width)), (
            self.pairs_of_targets())
        first = run_starts([target])
        for name in OF_GPUS:
            n = self.grid.count(name)
            if n is not None and len(first):
                np.maximum(sampled_s, np.maximum.reduceat(n[pair], first, axis=0), out=sampled_s)
        return sampled_s


class TaskRehearsalSource(RehearsalSource):
    def __post_init__(self) -> None:
        # A rule that acts is rehearsed exactly as it runs live, or not at all.
        self._is_short = (self.ready.for_s >= MINUTE_S and not self.ready.is_by_minutes
                          and not self.ready.has_ladder)
        if self._is_short:  # its first minute already counts as met
            self.ready = replace(self.ready, for_s=self.ready.for_s - MINUTE_S, closed_from_s=0)
        super().__post_init__()
        self._is_owner = is_owner = self.ready.rule.of == "owner"
        self._sums: Sequence[str] = SUMS_OF_OWNERS if is_owner else SUMS
        self._of_gpus: Sequence[str] = OF_GPUS_OF_OWNERS if is_owner else OF_GPUS
        self._rows = KeyNumbering()
        self._descriptions: dict[Key, tuple[str, set[str], set[str]]] = {}  # node, users, places
        self._acts = any(do in ACTS for do, _ in self.ready.steps)
        self._past_tasks: dict[Key, tuple[str, Task]] = {}  # of the current chunk
        self._targets: dict[Key, int] = {}
        self._presence: TaskPresence | None = None
        self._was_there = np.zeros(0, bool)
        self._held_s = np.zeros(0)  # of each row, until the current chunk
        self._seconds = (0, np.zeros((0, 0)))  # of that chunk: its start, rows x minutes

    def _refuse(self) -> None:
        super()._refuse()
        if not self.ready.is_by_minutes:
            least = f"and acts, less than {CLOSED_FROM_S // MINUTE_S}m" if (
                self.ready.has_ladder) else "less than 1m"
            raise CannotRehearseError(f"history keeps {self.ready.rule.of}s by the minute: a rule "
                                      f"that holds {least} can only be watched live")

    @property
    def off_by_s(self) -> int:
        """Return by how much life may differ: a live rule with a short hold reads each second, and
        history does not keep when in a minute the tasks of an owner began and ended."""
        return MINUTE_S if self._is_short or self._is_owner else super().off_by_s

    def stretches(self, start: int, end: int) -> Iterator[RehearsalChunk]:
        at_once_s = AT_ONCE_S
        while start < end:
            last = min(end, start - start % at_once_s + at_once_s)
            # A minute more: the next minute shows whether a task had ended by the end of one.
            uses, outside = self._uses(start, last + MINUTE_S)
            most_s = self._most_s(uses)
            if last - start > most_s:  # tasks come faster than they did
                at_once_s = most_s
                continue
            yield self._stretch(start, uses, outside)
            start, at_once_s = last, min(2 * at_once_s, most_s)

    def _most_s(self, uses: TaskMinuteUses) -> int:
        """Return how long a piece may be, by what there is in this one: its largest arrays have a
        row for each target until its end, or for each GPU of each target."""
        fresh = sum(key not in self._rows for key in uses.targets)
        height = max(self._size, len(self._rows) + fresh, len(uses.pairs_of_targets()[0]))
        rows = max(self._size, -(-len(uses.cell) // uses.width))  # of history, in each minute
        # Less one: the minute more.
        most_s = MINUTE_S * min(MOST_CELLS // height - 1, max(AT_ONCE_S // MINUTE_S,
                                                              MOST_ROWS // rows))
        step_s = 3_600 if most_s >= 3_600 else AT_ONCE_LEAST_S
        return max(AT_ONCE_LEAST_S, min(AT_ONCE_MOST_S, most_s // step_s * step_s))

    def _uses(self, first: int, last: int) -> tuple[TaskMinuteUses, Mask]:
        """Return the uses, and when each target is out of scope."""
        grid = HistoryGrid(first, MINUTE_S, (last - first) // MINUTE_S)
        more = {metric for name, metrics in OF_SOME.items() if name in self._names
                for metric in metrics}
        self.spans.past(dict.fromkeys((*self._of_gpus, *sorted(more)), BOTH_ENDS), grid)
        columns = (*WORDS[: None if self._acts else 4], *self._sums)
        parts = [part for part in self.spans.held(first, last, columns) if len(part.t)]
        targets, tasks, jobs = KeyNumbering(), KeyNumbering(), KeyNumbering()
        self._past_tasks.clear()
        tables = [self._numbered(part, grid, (targets, tasks, jobs)) for part in parts]
        table = np.concatenate([np.zeros((0, 5), np.intp), *tables])
        somebodys = table[:, 1] != NONE
        is_known: Mask | slice = slice(None) if somebodys.all() else somebodys
        minute, target, pair, task, job = table[is_known].T
        if self._acts:
            self._presence = TaskPresence(first, minute, target, task,
                                          [self._past_tasks[key] for key in tasks.keys])
            self._targets = {key: at for at, key in enumerate(targets.keys)}
        numbers = {name: np.concatenate([
            np.zeros(0), *(part.numbers[name] for part in parts)])[is_known]
                   for name in self._sums}
        slots = self._slots(grid.rows)
        facts = {name: np.array([None if slot is None else getattr(self.fleet.facts[slot], name)
                                 for slot in slots], float) for name in FACTS}
        node_of = KeyNumbering()
        nodes = np.array([node_of.of((node,)) for _, node in grid.rows], np.intp)
        uses = TaskMinuteUses(grid.width, targets.keys, target * grid.width + minute,
                              pair * grid.width + minute, task, job, numbers, grid, facts, nodes,
                              self._faulty(grid), self._is_owner)
        return uses, self._outside(uses, slots, tasks.keys)

    def _faulty(self, grid: HistoryGrid) -> Mask:
        """Return the minutes of each pair, to the nearest, in which a failed task counts."""
        faulty = np.zeros((len(grid.rows), grid.width), bool)
        if "gpus_faulty" in self._names:
            for at, node, gpu, numbers in self.spans.xids(grid.t0 - RECENT_S, grid.ends_at):
                pair = grid.rows.get((gpu, node))
                if pair is not None and is_of_task(explain(int(numbers.get("xid", UNKNOWN_CODE)))):
                    begin, end = (max(0, round((moment - grid.t0) / MINUTE_S))
                                  for moment in (at, at + RECENT_S))
                    faulty[pair, begin:end] = True
        return faulty

    def _numbered(self, part: TaskRows, grid: HistoryGrid, numbering: tuple[KeyNumbering, ...]
                  ) -> Rows:
        """Return the minute, target, pair, task and job of each row. A task whose owner is unknown
        is nobody's."""
        targets, tasks, jobs = numbering
        uses, which = uses_in(part)
        rows = []
        for use in uses:
            task = (use.node, use.task_id)
            if use.task is not None:
                self._past_tasks[task] = use.node, use.task
            key = self._key(use, task)
            slot = self.fleet.slot_on(use.node, use.gpu)
            if key is not None:
                _, users, places = self._descriptions.setdefault(key, (use.node, set(), set()))
                users |= set() if use.user is None else {use.user}
                places |= set() if slot is None else {self.fleet.facts[slot].place}
            rows.append((NONE if key is None else targets.of(key),
                         grid.rows.setdefault((use.gpu, use.node), len(grid.rows)),
                         tasks.of(task), jobs.of(use.job)))
        minute = ((part.t - grid.t0) // MINUTE_S).astype(np.intp)
        return np.column_stack([minute, np.array(rows, np.intp).reshape(-1, 4)[which]])

    def _key(self, use: UseKey, task: Key) -> Key | None:
        match self.ready.rule.of:
            case "task":
                return task
            case "owner":
                return None if use.user is None else (use.user,)
        return use.job

    def _outside(self, uses: TaskMinuteUses, slots: list[int | None], tasks: list[Key]) -> Mask:
        """Return when a target has any use out of scope; targets x minutes. It still counts for
        others, as on shared GPUs."""
        outside = np.zeros(uses.size, bool)
        if self.ready.scope is not None and len(uses.cell):
            combinations, which = np.unique(np.stack(
                [uses.keys("gpu"), uses.task, uses.cell // uses.width]), axis=1,
                return_inverse=True)
            _, task, target = combinations.tolist()
            in_scope = KnownUses.of(slot_rows(slots)[combinations[0]], [
                past_task(tasks[at][1], self._user(uses.targets[of]))
                for at, of in zip(task, target, strict=True)]).in_scope(
                    self.ready.scope, self.fleet, 0.0)
            outside[uses.cell[~in_scope[which.reshape(-1)]]] = True
        return outside.reshape(-1, uses.width)

    def _user(self, key: Key) -> str | None:
        users = self._descriptions[key][1]
        return next(iter(users)) if len(users) == 1 else None

    def _stretch(self, first: int, uses: TaskMinuteUses, outside: Mask) -> RehearsalChunk:
        held_s = uses.there_s()
        for at in np.flatnonzero(((held_s > 0) & ~outside).any(axis=1)).tolist():
            self._rows.of(uses.targets[at])
        if len(self._rows) > MOST_TARGETS:
            raise CannotRehearseError(f"more than {MOST_TARGETS:,} targets: ask for a shorter "
                                      "span, or narrow the scope")
        most = replace(uses, is_max=True)
        index_of = {key: at for at, key in enumerate(uses.targets)}
        here = np.array([index_of.get(key, -1) for key in self._rows.keys], np.intp)
        seconds = _rows(held_s, here, 0.0)
        enough = seconds >= ENOUGH * MINUTE_S
        there = self._there(seconds, _rows(uses.sampled_s(), here, 0.0))
        in_scope = _rows(outside.astype(float), here, 0.0) == 0.0
        self._seconds = first, _rows(uses.seconds(np.add)[:, :-1], here, 0.0)

        def values(term: SignalTerm, rows: Rows | slice) -> AnyFloats:
            end = most if end_of(term.how) == "max" else uses
            numbers = _rows(end.values(term.name), here[rows], np.nan)
            return np.where(enough[rows], numbers, np.nan)

        return RehearsalChunk(first, MINUTE_S, uses.width - 1, len(here), values,
                              np.ones(len(here), bool), there, in_scope)

    def _there(self, seconds: Floats, sampled_s: Floats) -> Mask:
        """Return which targets are present. A target that is not listed while its GPUs are sampled
        is gone, as a live step sees it some seconds after the minute; while nothing is heard of the
        GPUs, it stays."""
        was_there = np.pad(self._was_there, (0, len(seconds) - len(self._was_there)))
        listed, is_away = seconds > 0, (seconds == 0) & (sampled_s > 0)
        is_known = listed | is_away
        columns = np.arange(seconds.shape[1])
        last = np.maximum.accumulate(np.where(is_known, columns, -1), axis=1)
        there = np.where(last >= 0, np.take_along_axis(listed, np.maximum(last, 0), axis=1),
                         was_there[:, None])
        self._was_there = there[:, -2].copy()
        has_ended = (seconds[:, 1:] <= WAIT_S) & (sampled_s[:, 1:] > seconds[:, 1:] + WAIT_S)
        there[:, :-1] &= ~has_ended
        return np.asarray(there)

    def settle(self, alerts: Iterable[RehearsedAlert]) -> None:
        """Note, after a chunk was rehearsed, what each target had held when it would have been
        reached."""
        first, seconds = self._seconds
        held_s = np.pad(self._held_s, (0, len(seconds) - len(self._held_s)))
        for row, at in ((alert.row, at) for alert in alerts for do, at in alert.acts if do in ACTS):
            if first < at <= first + seconds.shape[1] * MINUTE_S:
                here_s = seconds[row, : int(at - first) // MINUTE_S].sum()
                self.hours[row, at] = float(held_s[row] + here_s) / 3_600
        self._held_s = held_s + seconds.sum(axis=1)

    def refusal(self, row: int, do: Do, at: float) -> Refusal | None:
        key = self._rows.keys[row]
        return None if self._presence is None else self._presence.refusal(
            self.fleet, self._descriptions[key][0], self._targets.get(key, -1), do, at)

    def name(self, row: int) -> AlertTarget:
        key = self._rows.keys[row]
        node_id, users, places = self._descriptions[key]
        if self.ready.rule.of == "owner":
            return AlertTarget(f"{key[0]}", "", "", "", tuple(users))
        word = f"{key[1]}" if self.ready.rule.of == "task" else (
            f"{key[0]}/{key[1]}" if len(key) > 2 else f"{key[1]} of {key[0] or ''}")
        return AlertTarget(word, node_id, self._host(node_id), ", ".join(sorted(places)[:8]),
                           tuple(sorted(users)))


def _rows(values: Floats, here: Rows, nothing: float) -> Floats:
    """Return rows by number; -1: there is none."""
    if not len(values):
        return np.full((len(here), values.shape[1]), nothing)
    return np.where((here >= 0)[:, None], values[np.maximum(here, 0)], nothing)


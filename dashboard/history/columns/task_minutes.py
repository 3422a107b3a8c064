"""Use of GPUs by Tasks, from Frames, added up per minute.

A Frame says what changed, so each Node has a state of what its Tasks are: one of the live
Frames, and one of those that are brought later, which goes on where the live one broke off.
Numbers wait and are added up for many Nodes at once: one by one they would cost as much as all
else together.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpudeck.contract.hosts import HostSample
from gpudeck.contract.wire import Frame, Task, Tasks

from .arrays import Floats, Ints, Slots, concat_rows, runs, take_rows
from .rows import HistoryMessage, HistorySlots

MINUTE_S = 60
TASK_SUMS = ("seconds", "mem_byte_s", "mem_s", "sm_pct_s", "sm_s", "host_cpu_pct_s", "host_cpu_s")
TASK_TOPS = ("mem_max_bytes", "sm_max_pct", "host_cpu_max_pct")
NOWHERE = 0  # the lane of what a Frame with fewer GPUs than its Tasks knew was used on


class TaskMinutes:
    """Minutes of one block: a lane per Task on a GPU, and what was held in each of them."""

    def __init__(self, start: int, block_s: int) -> None:
        self.start = start
        self.minutes = block_s // MINUTE_S
        self._lane_of: dict[tuple[int, str], int] = {}
        self.slots = [-1]
        self.ids = [""]
        self.tasks: list[Task | None] = [None]
        self.numbers = _blank(self.minutes, 64)

    @property
    def end(self) -> int:
        return self.start + self.minutes * MINUTE_S

    def __len__(self) -> int:
        """Count the lanes in use."""
        return len(self.ids) - 1

    def lane(self, slot: int, task_id: str, task: Task | None) -> int:
        lane = self._lane_of.get((slot, task_id))
        if lane is None:
            lane = self._lane_of[slot, task_id] = len(self.ids)
            self.slots.append(slot)
            self.ids.append(task_id)
            self.tasks.append(task)
            self._grow()
        elif task is not None:
            self.tasks[lane] = task  # it may have been used before it was described
        return lane

    def _grow(self) -> None:
        room = self.room
        if len(self.ids) > room:
            former, self.numbers = self.numbers, _blank(self.minutes, 2 * room)
            for name, values in former.items():
                self.numbers[name][:, :room] = values

    @property
    def room(self) -> int:
        return len(self.numbers["seconds"][0])

    def add(self, minute: Slots, lane: Slots, seconds: Floats, mem: Floats, sm: Floats,
            cpu: Floats) -> None:
        """Add up rows. A lane may come more than once."""
        at = minute * self.room + lane
        numbers = {name: values.reshape(-1) for name, values in self.numbers.items()}
        np.add.at(numbers["seconds"], at, seconds)
        for value, names in ((mem, ("mem_byte_s", "mem_s", "mem_max_bytes")),
                             (sm, ("sm_pct_s", "sm_s", "sm_max_pct")),
                             (cpu, ("host_cpu_pct_s", "host_cpu_s", "host_cpu_max_pct"))):
            total, count, top = (numbers[name] for name in names)
            there = ~np.isnan(value)
            which = at[there]
            np.add.at(total, which, value[there] * seconds[there])
            np.add.at(count, which, seconds[there])
            np.fmax.at(top, which, value[there])


def _blank(minutes: int, room: int) -> dict[str, Floats]:
    """Minute by minute; of memory, SM and host CPU, sums, of how many seconds, and the highest."""
    shape = (minutes, room)
    return ({name: np.zeros(shape) for name in TASK_SUMS}
            | {name: np.full(shape, np.nan) for name in TASK_TOPS})


_NONE = np.zeros(0, np.intp)


@dataclass(slots=True)
class NodeTaskState:
    slots: list[int] = field(default_factory=list)
    tasks: dict[str, Task] = field(default_factory=dict)
    pending: Tasks | None = None  # that came, until it is settled
    ids: list[str] = field(default_factory=list)  # Task and GPU of each use
    gpus: list[int] = field(default_factory=list)
    places: Slots = field(default_factory=lambda: _NONE)  # where their numbers are
    room: Slots = field(default_factory=lambda: _NONE)  # all places it ever needed
    minute: int = 0
    seconds: int = 0  # of this minute, not added up yet
    lanes: Slots = field(default_factory=lambda: _NONE)
    of: TaskMinutes | None = None  # whose lanes
    host: HostSample | None = None  # that came, until it is settled
    cpu: dict[str, float | None] = field(default_factory=dict)  # of each task on the host

    def take(self, tasks: Tasks, ids: list[str], gpus: list[int]) -> None:
        self.ids, self.gpus, self.of = ids, gpus, None
        began = {task.id: task for task in tasks.began}
        described = began if tasks.snapshot else self.tasks | began
        self.tasks = {task_id: described[task_id] for task_id in ids if task_id in described}

    def lanes_in(self, minutes: TaskMinutes) -> Slots:
        if self.of is not minutes:
            slots, tasks = self.slots, self.tasks
            self.lanes = np.array([
                minutes.lane(slots[gpu], task_id, tasks.get(task_id)) if gpu < len(slots)
                else NOWHERE for task_id, gpu in zip(self.ids, self.gpus, strict=True)], np.intp)
            self.of = minutes
        return self.lanes


class LatestUseValues:
    """Latest values of each use; a NodeTaskState keeps its places while they suffice."""

    def __init__(self) -> None:
        self.mem, self.sm, self.cpu = np.zeros(64), np.zeros(64), np.zeros(64)
        self._end = 0
        self._free = _NONE

    def room(self, places: Slots, many: int) -> Slots:
        """Return places for so many, those that are held already among them."""
        more = many - len(places)
        if more <= 0:
            return places
        reused, self._free = self._free[:more], self._free[more:]
        first, self._end = self._end, self._end + more - len(reused)
        if self._end > len(self.mem):
            self.mem, self.sm, self.cpu = (np.concatenate([old, np.zeros(self._end)])
                                           for old in (self.mem, self.sm, self.cpu))
        return np.concatenate([places, reused, np.arange(first, self._end)])

    def give_back(self, places: Slots) -> None:
        """Free places, where nothing that is due is left."""
        self._free = np.concatenate([self._free, places])


@dataclass(slots=True)
class PendingUseSums:
    """Sums of one block that wait: uses that were so for some seconds of a minute. Side by side: a
    tuple for each would wake the garbage collector."""

    minutes: list[int] = field(default_factory=list)
    seconds: list[int] = field(default_factory=list)
    lanes: list[Slots] = field(default_factory=list)
    places: list[Slots] = field(default_factory=list)

    def add_to(self, minutes: TaskMinutes, numbers: LatestUseValues) -> None:
        counts = list(map(len, self.lanes))
        places = np.concatenate(self.places)
        minutes.add(np.repeat(np.array(self.minutes, np.intp), counts), np.concatenate(self.lanes),
                    np.repeat(np.array(self.seconds, np.float64), counts),
                    numbers.mem[places], numbers.sm[places], numbers.cpu[places])


def _floats(numbers: list[Any]) -> Floats:
    """Return an array, NaN for None; where there is none, the way that is twice as fast."""
    try:
        return np.frombuffer(array("d", numbers))
    except TypeError:
        return np.array(numbers, np.float64)


class TaskMinuteAccumulator:
    def __init__(self, block_s: int) -> None:
        self._block_s = block_s
        self._live: dict[str, NodeTaskState] = {}
        self._back: dict[str, NodeTaskState] = {}
        self.blocks: dict[int, TaskMinutes] = {}  # by the start of the block
        self._numbers = LatestUseValues()
        self._fresh: list[NodeTaskState] = []
        self._fresh_hosts: list[NodeTaskState] = []
        self._due: dict[int, PendingUseSums] = {}  # by the start of the block

    def hello(self, node_id: str) -> None:
        """Note a new connection: what was not acked comes later, and begins where it broke off."""
        former = self._live.pop(node_id, None)
        if former is not None:
            self._queue(former)
            replaced = self._back.get(node_id)
            if replaced is not None:
                self._queue(replaced)
                self.settle()
                self._numbers.give_back(replaced.room)
            self._back[node_id] = former

    def take(self, entries: Sequence[HistoryMessage], frames: Sequence[Frame],
             listings: Sequence[HistorySlots], seconds: Sequence[int], new: Sequence[bool]
             ) -> None:
        """Take Frames, side by side: from whom, whose GPUs, in which second, and whether that
        second was new."""
        live, back = self._live, self._back
        last = minute = -1
        for entry, frame, listing, second, is_new in zip(entries, frames, listings, seconds, new,
                                                         strict=True):
            threads = back if entry.is_backfill else live
            thread = threads.get(entry.node_id)
            if thread is None:
                thread = threads[entry.node_id] = NodeTaskState()
            if second != last:
                last, minute = second, second - second % MINUTE_S
            tasks, host = frame.tasks, frame.host
            if (tasks is not None or host or minute != thread.minute
                    or thread.slots is not listing.slots):
                self._turn(thread, listing.slots, minute, tasks, host or None)
            thread.seconds += is_new
        self.settle()

    def carried(self, node_id: str, slots: list[int], tasks: Tasks | None) -> None:
        """Restore what a Node's Tasks were when a segment of the log began."""
        self._turn(self._live.setdefault(node_id, NodeTaskState()), slots, 0, tasks)

    def _turn(self, thread: NodeTaskState, slots: list[int], minute: int,
              tasks: Tasks | None, host: HostSample | None = None) -> None:
        if thread.pending is not None or thread.host is not None:
            self.settle()
        if thread.seconds:
            self._queue(thread)
        thread.minute = minute
        if thread.slots is not slots:
            thread.slots, thread.of = slots, None
        if tasks is not None:
            thread.pending = tasks
            self._fresh.append(thread)
        if host is not None:
            thread.host = host
            self._fresh_hosts.append(thread)

    def _queue(self, thread: NodeTaskState) -> None:
        """Queue what it held so far, to be added up."""
        if thread.pending is not None or thread.host is not None:
            self.settle()
        seconds, thread.seconds = thread.seconds, 0
        if not seconds or not thread.ids:
            return
        start = thread.minute - thread.minute % self._block_s
        minutes = self.blocks.get(start)
        if minutes is None:
            minutes = self.blocks[start] = TaskMinutes(start, self._block_s)
        due = self._due.get(start)
        if due is None:
            due = self._due[start] = PendingUseSums()
        due.minutes.append((thread.minute - start) // MINUTE_S)
        due.seconds.append(seconds)
        due.lanes.append(thread.lanes if thread.of is minutes else thread.lanes_in(minutes))
        due.places.append(thread.places)

    def settle(self) -> None:
        """Add up what is due; then put what came in its place."""
        due, self._due = self._due, {}
        for start, sums in due.items():
            sums.add_to(self.blocks[start], self._numbers)
        fresh, self._fresh = self._fresh, []
        if fresh:
            self._renew(fresh)
        hosts, self._fresh_hosts = self._fresh_hosts, []
        for thread in hosts:
            if thread.host is not None:
                thread.cpu = {task.task_id: task.cpu_pct for task in thread.host.tasks}
                thread.host = None
            self._place_cpu(thread)

    def _place_cpu(self, thread: NodeTaskState) -> None:
        self._numbers.cpu[thread.places] = _floats([thread.cpu.get(task) for task in thread.ids])

    def _renew(self, fresh: list[NodeTaskState]) -> None:
        tasks = [thread.pending for thread in fresh if thread.pending is not None]
        uses = [use for report in tasks for use in report.uses]
        ids, gpus = [use.task_id for use in uses], [use.gpu for use in uses]
        at = 0
        for thread, report in zip(fresh, tasks, strict=True):
            at, first = at + len(report.uses), at
            thread.pending = None
            if (report.began or report.snapshot or thread.ids != ids[first:at]
                    or thread.gpus != gpus[first:at]):
                thread.take(report, ids[first:at], gpus[first:at])
                thread.room = self._numbers.room(thread.room, at - first)
                thread.places = thread.room[: at - first]
                self._place_cpu(thread)
        places = np.concatenate([thread.places for thread in fresh])
        self._numbers.mem[places] = _floats([use.mem_used_bytes for use in uses])
        self._numbers.sm[places] = _floats([use.sm_pct for use in uses])

    def add_up(self) -> None:
        """Add up all that waits, before the blocks are read."""
        for threads in (self._live, self._back):
            for thread in threads.values():
                self._queue(thread)
        self.settle()

    def pop(self, start: int) -> TaskMinutes | None:
        """Remove a block; what is added from now on is apart from it."""
        self.add_up()
        return self.blocks.pop(start, None)


@dataclass(slots=True)
class TaskMinuteRows:
    """Rows: one Task on one GPU within one minute. `lane` is an index into `tasks` and `ids`."""

    slot: Ints
    t: Ints
    lane: Slots
    ids: list[str]
    tasks: list[Task | None]
    numbers: dict[str, Floats]  # NaN: of a maximum that nobody saw

    def __len__(self) -> int:
        return len(self.slot)


def held_in(parts: Iterable[TaskMinutes]) -> TaskMinuteRows:
    """Return these blocks, each minute of a Task on a GPU once; by slot, then by time."""
    tasks: dict[str, Task | None] = {}
    row_parts = [_rows(TaskMinutes(0, 0), tasks), *(_rows(part, tasks) for part in parts)]
    rows = replace(concat_rows(row_parts), ids=list(tasks), tasks=list(tasks.values()))
    return _once_each(take_rows(rows, np.lexsort((rows.lane, rows.t, rows.slot))))


def _rows(part: TaskMinutes, tasks: dict[str, Task | None]) -> TaskMinuteRows:
    """`tasks`: by their ids, in the order of their lanes; those of this part are added."""
    for task_id, task in zip(part.ids, part.tasks, strict=True):
        tasks[task_id] = tasks.get(task_id) or task
    lane_of = {task_id: lane for lane, task_id in enumerate(tasks)}
    there = part.numbers["seconds"] > 0
    there[:, NOWHERE] = False
    minute, lane = np.nonzero(there)
    of_part = np.array([lane_of[task_id] for task_id in part.ids], np.intp)
    return TaskMinuteRows(np.array(part.slots, np.int64)[lane], part.start + minute * MINUTE_S,
                          of_part[lane], [], [],
                          {name: values[there] for name, values in part.numbers.items()})


def _once_each(rows: TaskMinuteRows) -> TaskMinuteRows:
    """Combine rows: what came late for a minute on its way into a file lies apart from it."""
    starts = runs(rows.slot, rows.t, rows.lane)
    if len(starts) == len(rows):
        return rows
    combined = take_rows(rows, starts)
    for names, join in ((TASK_SUMS, np.add), (TASK_TOPS, np.fmax)):
        for name in names:
            combined.numbers[name] = join.reduceat(rows.numbers[name], starts)
    return combined

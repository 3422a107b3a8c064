"""Readings, tasks and the clock in; Inventory, Frames and Events out. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import le

from msgspec import UNSET, Struct
from msgspec.structs import replace

from gpudeck.contract import wire
from gpudeck.contract.wire import Event, Frame, GpuFacts, Inventory, Slow, Task, Tasks
from gpudeck.measures.metrics import COLUMNS, SLOW, SLOW_COLUMN, SLOW_WIDTH, WIDTH, Absence, Metric

from ..readings import GpuReading, Reading
from ..tasks.seen import GpuTask

# The hub may have lost what it knew; at least this often everything is sent to it.
SNAPSHOT_EVERY_S = 60.0
# The message limit is 1 MB: all command lines of one Frame together, and all else about tasks.
# The values of 256 GPUs, slow metrics and all, take 150 kB.
COMMANDS_BYTES = 300_000
TASKS_BYTES = 500_000
FEW_TASKS = 24  # of which each may be as long as the wire takes

Bounds = tuple[tuple[float, ...], tuple[float, ...]]  # the lowest and the highest of each metric


def _bounds(metrics: Sequence[Metric]) -> Bounds:
    return tuple(metric.low for metric in metrics), tuple(metric.high for metric in metrics)


_BOUNDS, _SLOW_BOUNDS = _bounds(COLUMNS), _bounds(SLOW)
_STALE = wire.GPU_STATES.index("stale")
_PRESENT, _UNKNOWN, _LOST = int(Absence.PRESENT), int(Absence.UNKNOWN), int(Absence.LOST)


Values = tuple[tuple[float, ...], bytes]  # and why which are absent


class SamplerState(Struct, frozen=True):
    """State that the next message is compared with. `generation` outlives a restart, because
    Frames that still wait on disk refer to it."""

    generation: int = 0
    facts: tuple[GpuFacts, ...] | None = None
    links: tuple[wire.GpuLink, ...] = ()
    states: Mapping[str, wire.GpuState] = {}
    # None: no process list yet, so nothing has "begun"
    gpu_tasks: tuple[GpuTask, ...] | None = None
    described: frozenset[str] = frozenset()
    snapshot_at: float | None = None
    # By GPU, what the backend said last; and what was sent last, when.
    slow: Mapping[str, Values] = {}
    slow_sent: Slow | None = None
    slow_at: float | None = None
    reader: wire.ReaderState = "starting"


@dataclass(frozen=True, slots=True)
class SamplerStep:
    memory: SamplerState
    inventory: Inventory | None  # new, to be kept before the messages
    messages: tuple[wire.Sequenced, ...]


def snapshot_wanted(memory: SamplerState) -> SamplerState:
    """Send all again after each Welcome: this hub may know none of our tasks, nor what changes
    seldom."""
    return replace(memory, snapshot_at=None, slow_at=None)


def sample(
    memory: SamplerState, reading: Reading, gpu_tasks: Sequence[GpuTask] | None, next_seq: int,
    now: float,
    events: Iterable[Event] = (),
) -> SamplerStep:
    """Make a Frame, and before it the Events that explain it (see events.py). `gpu_tasks` None: the
    process list was not asked this time. `now` is any steady clock in seconds."""
    gpus, facts = reading.gpus[:wire.MAX_GPUS], reading.facts[:wire.MAX_GPUS]
    memory, inventory = _with_facts(memory, facts, reading.links)
    if gpu_tasks is not None:
        memory = replace(memory, gpu_tasks=tuple(gpu_tasks))
    messages = _number_events(events, next_seq)
    memory, tasks = _tasks(memory, facts, gpu_tasks is not None, inventory is not None, now)
    memory, slow = _slow(memory, gpus, inventory is not None, now)
    values, absent = _columns([_row(gpu) for gpu in gpus], _BOUNDS)
    messages.append(Frame(
        seq=next_seq + len(messages), taken_at=reading.taken_at,
        interval_s=min(max(reading.interval_s, 0.001), 86_400.0),
        generation=memory.generation, values=values, absent=absent,
        states=bytes(wire.GPU_STATES.index(gpu.state) for gpu in gpus), tasks=tasks,
        slow=slow, host=UNSET if reading.host is None else reading.host,
    ))
    states = {gpu.uuid: gpu.state for gpu in gpus}
    return SamplerStep(replace(memory, states=states), inventory, tuple(messages))


def reader_changed(
    memory: SamplerState, state: wire.ReaderState, next_seq: int, taken_at: float,
    events: Iterable[Event] = (),
) -> SamplerStep:
    """Report the watchdog's news. When readings end, one Frame says that the last are stale now."""
    was, memory = memory.reader, replace(memory, reader=state)
    messages = _number_events(events, next_seq)
    ends = state != "ok" and (was in ("ok", "starting") or state == "hung")
    if ends and memory.facts:
        messages.append(_stale_frame(memory, next_seq + len(messages), taken_at))
        memory = replace(memory, states={facts.uuid: "stale" for facts in memory.facts})
    return SamplerStep(memory, None, tuple(messages))


def events_only(memory: SamplerState, events: Iterable[Event], next_seq: int) -> SamplerStep:
    """Number Events that come without a Frame."""
    return SamplerStep(memory, None, tuple(_number_events(events, next_seq)))


def _stale_frame(memory: SamplerState, seq: int, taken_at: float) -> Frame:
    gpus = len(memory.facts or ())
    return Frame(
        seq=seq, taken_at=taken_at, interval_s=1.0, generation=memory.generation,
        values=bytes(gpus * WIDTH * 8), absent=bytes([Absence.STALE]) * (gpus * WIDTH),
        states=bytes([_STALE]) * gpus,
    )


def _number_events(events: Iterable[Event], next_seq: int) -> list[wire.Sequenced]:
    return [replace(event, seq=seq) for seq, event in enumerate(events, next_seq)]


def _with_facts(
    memory: SamplerState, facts: tuple[GpuFacts, ...], links: tuple[wire.GpuLink, ...]
) -> tuple[SamplerState, Inventory | None]:
    if facts == memory.facts and links == memory.links:
        return memory, None
    generation = memory.generation + 1
    return (
        replace(memory, generation=generation, facts=facts, links=links),
        Inventory(generation=generation, gpus=facts, links=links),
    )


def _slow(
    memory: SamplerState, gpus: Sequence[GpuReading], reordered: bool, now: float
) -> tuple[SamplerState, Slow | None]:
    """Return slow values that are to be sent: the backend reads them every 15 s; they are sent when
    they differ from what was sent."""
    due = memory.slow_at is None or now - memory.slow_at >= SNAPSHOT_EVERY_S
    if not due and not reordered and not any(
        gpu.slow or memory.states.get(gpu.uuid) != gpu.state for gpu in gpus
    ):
        return memory, None
    rows = {gpu.uuid: _slow_row(gpu, memory.slow.get(gpu.uuid)) for gpu in gpus}
    values, absent = _columns(list(rows.values()), _SLOW_BOUNDS)
    slow = Slow(values, absent)
    memory = replace(memory, slow=rows)
    if not due and not reordered and slow == memory.slow_sent:
        return memory, None
    return replace(memory, slow_sent=slow, slow_at=now), slow


def _slow_row(gpu: GpuReading, before: Values | None) -> Values:
    if gpu.state == "lost":
        return (0.0,) * SLOW_WIDTH, bytes([_LOST]) * SLOW_WIDTH
    if len(gpu.slow) == len(gpu.slow_absent) == SLOW_WIDTH:
        return gpu.slow, gpu.slow_absent
    if before is None or (before[1] and before[1][0] == _LOST):
        return (0.0,) * SLOW_WIDTH, bytes([_UNKNOWN]) * SLOW_WIDTH
    return before


def slow_number(memory: SamplerState, uuid: str, key: str) -> float | None:
    """Return what the backend reported last; None: it is not there."""
    values, absent = memory.slow.get(uuid, ((), b""))
    at = SLOW_COLUMN[key]
    return values[at] if at < len(absent) and absent[at] == Absence.PRESENT else None


def _row(gpu: GpuReading) -> Values:
    if len(gpu.values) == len(gpu.absent) == WIDTH:
        return gpu.values, gpu.absent
    return (0.0,) * WIDTH, bytes([_LOST if gpu.state == "lost" else _UNKNOWN]) * WIDTH


def _columns(rows: Sequence[Values], bounds: Bounds) -> tuple[bytes, bytes]:
    """A driver's sentinel or lie (out of range, NaN) becomes unknown; never a number."""
    values: list[float] = []
    absent = bytearray()
    for row in rows:
        numbers, why = row if _is_clean(row, bounds) else _clean(row, bounds)
        values += numbers
        absent += why
    return wire.pack(values), bytes(absent)


def _is_clean(row: Values, bounds: Bounds) -> bool:
    """Return whether all is in range. Nearly every row is: no step of Python for each number."""
    (numbers, why), (low, high) = row, bounds
    return (len(numbers) == len(why) == len(low) and max(why) <= _UNKNOWN
            and all(map(le, low, numbers)) and all(map(le, numbers, high))
            and not any(compress(numbers, why)))


def _clean(row: Values, bounds: Bounds) -> Values:
    values: list[float] = []
    absent = bytearray()
    for value, why, low, high in zip(*row, *bounds, strict=True):
        if why == _PRESENT and low <= value <= high:
            values.append(value)
            absent.append(_PRESENT)
        else:
            values.append(0.0)
            absent.append(min(why, _UNKNOWN) or _UNKNOWN)
    return tuple(values), bytes(absent)


def _tasks(
    memory: SamplerState, facts: tuple[GpuFacts, ...], is_new: bool, reordered: bool, now: float
) -> tuple[SamplerState, Tasks | None]:
    """Uses name a GPU by its place in the Frame: another order makes all of them wrong."""
    if memory.gpu_tasks is None:
        return memory, None
    due = memory.snapshot_at is None or now - memory.snapshot_at >= SNAPSHOT_EVERY_S
    snapshot = due or reordered
    if not snapshot and not is_new:
        return memory, None
    place = {gpu.uuid: at for at, gpu in enumerate(facts)}
    gpu_tasks = _as_many_as_fit([entry for entry in memory.gpu_tasks if entry.gpu_uuid in place])
    present = {entry.task.id: entry.task for entry in gpu_tasks}
    described = frozenset() if snapshot else memory.described
    began = _cut_to_fit([task for task_id, task in present.items() if task_id not in described])
    uses = tuple(_use(entry, place[entry.gpu_uuid]) for entry in gpu_tasks)
    memory = replace(
        memory, described=frozenset(present), snapshot_at=now if snapshot else memory.snapshot_at
    )
    suspended = tuple({entry.task.id: None for entry in gpu_tasks if entry.is_suspended})
    return memory, Tasks(snapshot=snapshot, began=began, uses=uses, suspended=suspended or UNSET)


def _use(entry: GpuTask, gpu: int) -> wire.Use:
    return wire.Use(
        task_id=entry.task.id, gpu=gpu,
        mem_used_bytes=_within(entry.mem_used_bytes, 1e18), sm_pct=_within(entry.sm_pct, 100.0),
        state=entry.state,  # type: ignore[arg-type]
    )


def _within(value: float | None, high: float) -> float | None:
    return value if value is not None and 0 <= value <= high else None


def _as_many_as_fit(gpu_tasks: list[GpuTask]) -> list[GpuTask]:
    """Thousands of tasks with long names would make a message that the hub must refuse."""
    if len(gpu_tasks) <= FEW_TASKS:
        return gpu_tasks
    room = TASKS_BYTES
    for at, entry in enumerate(gpu_tasks[:wire.MAX_TASKS]):
        room -= _size(entry.task)
        if room < 0:
            return gpu_tasks[:at]
    return gpu_tasks[:wire.MAX_TASKS]


def _size(task: Task) -> int:
    """Return its size on the wire but for the command; the names of its fields alone are some 200
    bytes."""
    texts = (task.user, task.manager, task.job_id, task.container, task.container_name, task.pod,
             task.namespace, task.slurm_job, task.unit, task.notebook, task.launch)
    return 320 + 2 * len(task.id) + sum(len(text.encode()) for text in texts if text is not None)


def _cut_to_fit(tasks: list[Task]) -> tuple[Task, ...]:
    if sum(len((task.command or "").encode()) for task in tasks) <= COMMANDS_BYTES:
        return tuple(tasks)
    room = COMMANDS_BYTES // len(tasks) // 4  # a character has at most four bytes
    return tuple(
        replace(task, command=task.command and task.command[:room]) for task in tasks
    )

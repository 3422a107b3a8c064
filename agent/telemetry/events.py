"""Readings, tasks and clocks in; Events out, each once. Pure.

`NodeEventState` must outlive the agent so that nothing is reported twice: it goes to disk with
the Events that it represents (link/outbox.py).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct, field

from gpudeck.contract.wire import Event, GpuFacts, ReaderState
from gpudeck.measures import xid
from gpudeck.measures.events import READER_TROUBLE
from gpudeck.rate import RateLimiter

from ..readings import BackendEvent, Reading
from ..tasks.seen import GpuTask
from .event_text import TEXT_MAX, duration, event_of
from .gpu_events import GpuEventDetector, GpuEventState
from .task_totals import TaskTotals, began_event, ended_event, totals_of

CLOCK_STEP_S = 2.0
# An agent that floods is cut off by the hub: more wait for the next Frame, and too many are lost.
TASKS_PER_READING = 32
TASKS_WAITING_MAX = 2_048
KEEP_EVERY_S = 60.0
GPUS_MAX = 1_024
XIDS_MAX = 256


class XidBurst(Struct):
    """Xids of one number on one GPU, waiting to be reported together."""

    count: int
    at: float
    words: str
    numbers: dict[str, float]


class NodeEventState(Struct):
    boot_id: str = ""
    seen_at: float = 0.0  # UTC; when the agent last lived
    driver: str | None = None
    trouble: str = ""  # the kind of Event that reported it
    gpus: dict[str, GpuEventState] | None = None  # None: no reading ever
    tasks: dict[str, TaskTotals] | None = None  # None: no process list ever
    xids: dict[str, XidBurst] = field(default_factory=dict)


class NodeEventDetector:
    def __init__(self, stored: bytes | None = None) -> None:
        self._state = _decode(stored)
        self._is_new = self._state.boot_id == ""
        self._pace = RateLimiter(burst=4, every_s=300.0)
        self._errors = RateLimiter(burst=1,
                                   every_s=60.0)  # a storm is one Event a minute, with a count
        self._gpus = {uuid: self._watch(uuid, gpu)
                      for uuid, gpu in (self._state.gpus or {}).items()}
        self._tasks_wait: deque[Event] = deque(maxlen=TASKS_WAITING_MAX)
        self._listed_at: float | None = None
        self._clock: tuple[float, float] | None = None
        self._stored_at = float("-inf")

    def state_to_store(self, now: float, is_due: bool) -> bytes | None:
        """Return the state to store, with the Events or every minute; None: nothing to store
        now."""
        if not is_due and now - self._stored_at < KEEP_EVERY_S:
            return None
        self._stored_at = now
        return msgspec.msgpack.encode(self._state)

    def began(self, boot_id: str, version: str, at: float) -> list[Event]:
        """Report that the agent is there. After its first time it knows since when it was not."""
        was, self._state.boot_id = self._state.boot_id, boot_id
        if self._is_new:
            return [event_of("agent_began", at, f"agent {version} started for the first time here")]
        away_s = max(0.0, at - self._state.seen_at)
        away = {"away_s": away_s}
        text = f"agent {version} started after {duration(away_s)}"
        events = [event_of("agent_began", at, text, away)]
        if was != boot_id:
            events.insert(0, event_of("node_began", at, "the node was restarted; its agent was "
                                    f"away for {duration(away_s)}", away))
        return events

    def clock(self, wall: float, steady: float) -> list[Event]:
        """`steady` goes on while the machine sleeps, so that a sleep is no step."""
        was, self._clock = self._clock, (wall, steady)
        self._state.seen_at = wall
        if was is None:
            return []
        step_s = (wall - was[0]) - (steady - was[1])
        if abs(step_s) <= CLOCK_STEP_S:
            return []
        where = "forward" if step_s > 0 else "back"
        return [event_of("clock_stepped", wall, f"the clock was set {where} by "
                       f"{duration(abs(step_s))}", {"step_s": step_s})]

    def reader(self, state: ReaderState, detail: str, at: float) -> list[Event]:
        """Report the watchdog's news."""
        events = []
        if self._state.trouble == "driver_released" and state != "released":
            events, self._state.trouble = [event_of("driver_taken", at, "the agent opens the "
                                                    "driver again")], ""
        return events + self._trouble(state, detail, at)

    def _trouble(self, state: ReaderState, detail: str, at: float) -> list[Event]:
        if state == "starting":
            return []
        trouble, self._state.trouble = self._state.trouble, READER_TROUBLE.get(state, "")
        if self._state.trouble == trouble:
            return []
        if self._state.trouble:
            return [Event(0, at, self._state.trouble, text=detail[:TEXT_MAX])]
        if trouble == "driver_gone":
            return [event_of("driver_back", at, "the driver answers")]
        return [event_of("reader_back", at, "the driver answers again")]

    def reading(
        self, reading: Reading, happened: Iterable[BackendEvent],
        gpu_tasks: Sequence[GpuTask] | None, now: float, own_ends: int = 0,
    ) -> list[Event]:
        """Return the Events of a reading. `gpu_tasks` None: the process list was not asked this
        time. `own_ends`: how many tasks were ended by us just now."""
        events = self._driver(reading) + self.beside(happened, reading.facts, now, own_ends)
        events += self._read_gpus(reading, now)
        if gpu_tasks is not None:
            lost_gpus = {gpu.uuid for gpu in reading.gpus if gpu.state == "lost"}
            self._tasks_wait.extend(self._read_tasks(gpu_tasks, lost_gpus, reading, now))
        return events + [self._tasks_wait.popleft()
                         for _ in range(min(TASKS_PER_READING, len(self._tasks_wait)))]

    def beside(
        self, happened: Iterable[BackendEvent], facts: Sequence[GpuFacts], now: float,
        own_ends: int = 0,
    ) -> list[Event]:
        """Return Events while there are no readings: an Xid comes just before a driver hangs."""
        events = [event for happening in happened
                  for event in self._happened(happening, facts, now, own_ends)]
        return events + self._due_xids(now)

    def _driver(self, reading: Reading) -> list[Event]:
        was, version = self._state.driver, reading.driver_version
        if version is None or version == was:
            return []
        self._state.driver = version
        if was is None:
            return []
        return [event_of("driver_changed", reading.taken_at, f"the driver is {version} now, it was "
                       f"{was}")]

    def _happened(
        self, event: BackendEvent, facts: Sequence[GpuFacts], now: float, own_ends: int
    ) -> list[Event]:
        if event.kind == "xid":
            self._gather_xid(event, facts, own_ends)
            return []
        if event.kind in ("ecc_corrected", "ecc_uncorrected") and event.gpu_uuid in self._gpus:
            if not self._errors.may((event.gpu_uuid, event.kind, "ahead"), now):
                return []  # its counter reports the rest of a storm
            watch = self._gpus[event.gpu_uuid]
            watch.note_ahead(event.kind, 1, now)
            return [watch.error(event.kind, 1.0, event.at)]
        return [Event(0, event.at, event.kind, gpu_uuid=event.gpu_uuid, text=event.text[:TEXT_MAX],
                      numbers=dict(event.numbers))]

    def _gather_xid(self, event: BackendEvent, facts: Sequence[GpuFacts], own_ends: int) -> None:
        code = int(event.numbers.get("xid", xid.UNKNOWN_CODE))
        uuid = event.part_uuid or event.gpu_uuid
        indices = {gpu.uuid: gpu.index for gpu in facts}
        where = "" if uuid is None else f"GPU {indices[uuid]}: " if uuid in indices else f"{uuid}: "
        words = where + (event.echo if own_ends and event.echo else event.text)
        key = f"{uuid or ''}/{code}"
        if key in self._state.xids:
            burst = self._state.xids[key]
            burst.count, burst.at, burst.words = burst.count + 1, event.at, words
        elif len(self._state.xids) < XIDS_MAX:
            self._state.xids[key] = XidBurst(1, event.at, words, dict(event.numbers))

    def _due_xids(self, now: float) -> list[Event]:
        events = []
        for key in [key for key in self._state.xids if self._errors.may(key, now)]:
            burst = self._state.xids.pop(key)
            times = "" if burst.count == 1 else f" ({burst.count} times since the last report)"
            events.append(Event(
                0, burst.at, "xid", gpu_uuid=key.rpartition("/")[0] or None,
                text=(burst.words + times)[:TEXT_MAX],
                numbers={**burst.numbers, "count": float(burst.count)}))
        return events

    def _watch(self, uuid: str, state: GpuEventState) -> GpuEventDetector:
        return GpuEventDetector(uuid, state, self._pace, self._errors)

    def _read_gpus(self, reading: Reading, now: float) -> list[Event]:
        at, events = reading.taken_at, []
        is_first = self._state.gpus is None
        states = self._state.gpus = self._state.gpus or {}
        lost_gpus = {gpu.uuid for gpu in reading.gpus if gpu.state == "lost"}
        for gpu, facts in zip(reading.gpus, reading.facts, strict=False):
            if gpu.uuid not in self._gpus and len(states) < GPUS_MAX:
                states[gpu.uuid] = GpuEventState()
                self._gpus[gpu.uuid] = self._watch(gpu.uuid, states[gpu.uuid])
                if not is_first:
                    events.append(_added(facts, at))
            if gpu.uuid in states:
                states[gpu.uuid].is_instance = facts.parent_uuid is not None
            if gpu.uuid in self._gpus and not (gpu.state == "lost"
                                               and facts.parent_uuid in lost_gpus):
                events += self._gpus[gpu.uuid].read(gpu, facts, at, now)
        here = {gpu.uuid for gpu in reading.gpus}
        for uuid in self._gpus.keys() - here:
            events += self._disappeared(uuid, at)
        return events

    def _disappeared(self, uuid: str, at: float) -> Sequence[Event]:
        """Report a GPU that is listed no more. A board does not leave by itself; a MIG instance
        does, when somebody deletes it."""
        if not self._gpus[uuid].state.is_instance:
            return self._gpus[uuid].disappeared(at)
        del self._gpus[uuid]
        (self._state.gpus or {}).pop(uuid, None)
        return [event_of("gpu_removed", at, f"MIG instance {uuid} was removed", gpu_uuid=uuid)]

    def _read_tasks(
        self, gpu_tasks: Sequence[GpuTask], lost_gpus: set[str], reading: Reading, now: float
    ) -> Iterator[Event]:
        was, at, seconds = self._state.tasks, reading.taken_at, 0.0
        first_list = self._listed_at is None
        if self._listed_at is not None:
            seconds = now - self._listed_at
        self._listed_at = now
        totals = totals_of(was or {}, gpu_tasks, at, seconds)
        self._state.tasks = totals
        if was is None:
            return
        for task_id, total in was.items():
            if task_id in totals:
                continue
            if lost_gpus.intersection(total.gpus):
                totals[task_id] = total  # nobody can say: the driver lists nothing there
            else:
                yield ended_event(task_id, total, at, first_list, [
                    row for row in reading.accounted if row.pid == total.pid])
        for task_id, total in totals.items():
            if task_id not in was:
                yield began_event(task_id, total, at)


def _decode(stored: bytes | None) -> NodeEventState:
    """Decode what an older agent wrote, or a newer one; empty where that is not possible."""
    try:
        return NodeEventState() if stored is None else msgspec.msgpack.decode(stored,
                                                                              type=NodeEventState)
    except msgspec.MsgspecError:
        return NodeEventState()


def _added(facts: GpuFacts, at: float) -> Event:
    what = f"GPU {facts.index}: {facts.mig_profile or facts.name} is there now"
    return event_of("gpu_added", at, what, gpu_uuid=facts.uuid)

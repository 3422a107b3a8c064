"""Sampler of one node: takes readings from their source, and puts frames and events into the
outbox."""

import time
from collections.abc import Callable, Iterable, Sequence

from msgspec import UNSET

from gpudeck import __version__
from gpudeck.contract import wire
from gpudeck.contract.action_table import KILLS

from ..capability import NodeCore, NodeObservation
from ..journal.store import JournalError
from ..readings import BackendEvent, Reading
from ..tasks.seen import GpuTask
from ..tasks.task_table import TaskTable
from . import sampler
from .events import NodeEventDetector
from .latest_sample import LatestSample
from .recent_tasks import RecentTasks

# An Xid 45 this soon after an end of ours is its echo.
ECHO_S = 30.0

HostSampling = Callable[[Reading, Iterable[GpuTask], float], Reading]


class NodeSampler:
    def __init__(self, core: NodeCore, latest: LatestSample, recent: RecentTasks, tasks: TaskTable,
                 with_host: HostSampling, observers: Sequence[Callable[[NodeObservation], None]]
                 ) -> None:
        """`with_host`: adds the host's sample to a reading. `observers`: are given each reading
        before it is put into the outbox."""
        self._core = core
        self._source = core.source
        self._outbox = core.outbox
        self._latest = latest
        self._recent = recent
        self._tasks = tasks
        self._with_host = with_host
        self._observers = observers
        self._events = NodeEventDetector(core.outbox.state())
        self._record_events(self._events.began(core.boot_id, __version__, time.time()),
                            time.monotonic())

    def step(self, now: float) -> None:
        self._record_events(self._events.clock(
            time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)), now)
        self._read(now)

    def send_all_again(self) -> None:
        """Send tasks and slow values again with the next frame: this hub may know none of them."""
        self._latest.state = sampler.snapshot_wanted(self._latest.state)

    def _read(self, now: float) -> None:
        # The state first: no reading is then newer than a state that ended readings.
        state, detail = self._source.state, self._source.detail
        reading = self._source.latest()
        backend_events = self._source.take_events()
        if state != self._latest.state.reader:
            at = time.time()
            self._keep(sampler.reader_changed(
                self._latest.state, state, self._outbox.last_seq + 1, at,
                self._events.reader(state, detail, at)), now)
        own_ends = self._own_ends(backend_events)
        if reading is None:
            self._show(NodeObservation(None, backend_events, None))
            self._record_events(
                self._events.beside(backend_events, self._latest.facts, now, own_ends), now)
            return
        self._note_driver(reading)
        gpu_tasks = None if reading.processes is None else self._tasks.describe(reading.processes)
        reading = self._completed(reading, gpu_tasks, now)
        self._show(NodeObservation(reading, backend_events, gpu_tasks))
        events = self._events.reading(reading, backend_events, gpu_tasks, now, own_ends)
        self._keep(sampler.sample(
            self._latest.state, reading, gpu_tasks, self._outbox.last_seq + 1, now, events), now)

    def _completed(self, reading: Reading, gpu_tasks: tuple[GpuTask, ...] | None, now: float
                   ) -> Reading:
        """Return the reading with the host's sample and the checkpoints of its tasks."""
        if gpu_tasks is not None:
            self._latest.gpu_tasks, self._latest.listed_at = gpu_tasks, now
            self._recent.observe(gpu_tasks, reading)
        self._recent.set_facts(reading.facts)
        reading = self._with_host(reading, self._latest.gpu_tasks or (), now)
        return self._recent.checkpoints.with_checkpoints(reading)

    def _show(self, observation: NodeObservation) -> None:
        for observe in self._observers:
            observe(observation)

    def _own_ends(self, backend_events: Sequence[BackendEvent]) -> int:
        if not any(event.echo for event in backend_events):
            return 0
        try:
            return self._core.journal.begun_since(KILLS, time.time() - ECHO_S)
        except JournalError:
            return 0  # it explains an Xid, and permits nothing

    def _record_events(self, events: Sequence[wire.Event], now: float) -> None:
        if events:
            self._keep(sampler.events_only(self._latest.state, events, self._outbox.last_seq + 1),
                       now)

    def _note_driver(self, reading: Reading) -> None:
        self._latest.cuda_version = reading.cuda_version or UNSET
        self._latest.driver_version = reading.driver_version

    def _keep(self, step: sampler.SamplerStep, now: float) -> None:
        self._latest.state = step.memory
        if step.inventory is not None:
            self._outbox.keep_inventory(step.inventory)
        if step.messages:
            has_events = any(isinstance(message, wire.Event) for message in step.messages)
            if (state := self._events.state_to_store(now, is_due=has_events)) is not None:
                self._outbox.keep_state(state)
            self._outbox.append(step.messages, now)

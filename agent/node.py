"""Agent loop of one node: readings in, messages to the hub out. One thread, writes no files.

Many nodes may run in one process (the simulator), also under gevent: only threading primitives.
"""

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from msgspec import UNSET, UnsetType

from gpudeck import __version__, wire
from gpudeck.action_table import KILLS
from gpudeck.actions import FINAL, Reply
from gpudeck.desired_state import SignedDesired
from gpudeck.limits import ORDINALS
from gpudeck.pool.link import PoolPlan

from .actions.context import ActionGuards, ProcessListSource, open_context
from .actions.hold_files import hold_files
from .actions.hub_record import HubRecord
from .actions.kinds.execution import ActionTimeouts
from .actions.replies import ReplyOutbox
from .actions.service import CommandService
from .actions.standalone import OfflineExecutor
from .backends import Backend
from .hosts.collector import HostCollector
from .hosts.serving_watch import ServingWatch
from .journal.store import ActionJournal, ActionStore, JournalError
from .limits.mps import LocalMpsDaemons, MpsClientCache
from .limits.mps_doctor import whole_boards
from .limits.mps_simulated import open_mps
from .limits.reconciler import DriverFacts, LimitReconciler
from .limits.repairs import RepairKeeper
from .link.admission import ConnectLimiter
from .link.identity import NodeIdentity, new_call
from .link.outbox import Outbox
from .link.protocol import CloseConnection, LinkStateMachine, OpenConnection, SendToHub
from .link.socket import ConnectionClosed, ConnectionOpened, HubLink, MessageReceived, TlsOf
from .pool.lock import UNUSED_TELL_S
from .pool.node_pool import open_exclusive, open_pool
from .quotas.service import QuotaSample, QuotaService
from .reader.recording import RecordingWriter
from .readings import BackendEvent, Reading
from .runtime.action_lock import ActionLock
from .schedulers import SchedulerReadings, Schedulers
from .tasks.name_cache import WorkloadNameCache
from .tasks.processes import namespace_trouble
from .tasks.task_table import TaskTable
from .telemetry import sampler
from .telemetry.events import NodeEventDetector
from .telemetry.prometheus import MetricsPage
from .telemetry.recent_tasks import RecentTasks
from .telemetry.self_cost import ProcessCostMeter, outbox_files, size_of

log = logging.getLogger("gpudeck.agent.node")

WARN_EVERY_S = 60.0
# A Hello names the driver's version, so a first reading is awaited this long.
FIRST_CALL_WITHIN_S = 3.0
TURN_S = (0.1, 0.5)  # between attempts, with many nodes in one process
# Also how late a stop is noticed. Longer than a Reading's period, else it would wake twice in one.
WAIT_MAX_S = 1.25
CLOSE_ROUND_S = 0.02
# An Xid 45 this soon after an end of ours is its echo.
ECHO_S = 30.0


class ReadingSource(ProcessListSource, Protocol):
    """Source of Readings: ReaderProcess, or the simulator's in-process one."""

    @property
    def state(self) -> wire.ReaderState: ...
    @property
    def age_s(self) -> float | None: ...
    @property
    def read_s(self) -> float | None:
        """Seconds that the last read of the driver took."""

    def latest(self) -> Reading | None:
        """Return the newest Reading not handed out yet, or None; never blocks."""

    def take_events(self) -> tuple[BackendEvent, ...]:
        """Return events not handed out yet, also of Readings never fetched; never blocks."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class NodeConfig:
    hubs: Sequence[str]  # URLs of one hub, in the order in which they are tried; (): alone
    tls_of: TlsOf
    identity: NodeIdentity
    host: str
    backend: Backend
    boot_id: str
    data: Path
    acts: ActionStore
    platform: str = ""
    options: str = ""  # of the backend
    ceiling: Path | None = None
    is_made_up: bool = False  # one of a simulator's many
    recording: RecordingWriter | None = None
    metrics: MetricsPage | None = None
    connect_limiter: ConnectLimiter | None = None  # of the nodes of one process
    alive: Callable[[float], None] = lambda _: None  # called at each turn of the loop
    timeouts: ActionTimeouts = field(default_factory=ActionTimeouts)
    pool_socket: Path | None = None
    managed_by: str = ""  # a scheduler
    local_claims: bool = False
    exclusive_leases: bool = False
    asks_serving: bool = False  # engines that serve models for their metrics
    schedulers: Schedulers = field(default_factory=Schedulers)
    pool_unused_s: float = UNUSED_TELL_S
    own_hold_files: tuple[Path, ...] | None = None  # a test's, not those of its machine

    @property
    def hold_files(self) -> tuple[Path, ...]:
        return hold_files(self.data) if self.own_hold_files is None else self.own_hold_files

    @property
    def store_name(self) -> str:
        return self.host if self.is_made_up else ""


class WakeSignal(Protocol):
    """Signal that the node's own thread waits for."""

    def ring(self) -> None:
        """End a `wait`, the current or the next one. Cheap, from any thread."""

    def wait(self, seconds: float) -> None: ...


class ThreadWakeSignal:
    def __init__(self) -> None:
        self._event = threading.Event()
        self.ring = self._event.set

    def wait(self, seconds: float) -> None:
        self._event.wait(seconds)
        self._event.clear()


def run_node(config: NodeConfig, source: ReadingSource, outbox: Outbox, stop: threading.Event,
             wake_signal: WakeSignal) -> None:
    """Run the node until `stop` is set, noticed within WAIT_MAX_S. Close neither source nor outbox.
    `wake_signal`: `source` rings it whenever there is a Reading or its state changed. It may be the
    source itself, which works while somebody waits on it and so needs no thread."""
    node = _AgentLoop(config, source, outbox, wake_signal.ring)
    while not stop.is_set():
        node.step(time.monotonic())
        config.alive(time.monotonic())
        wake_signal.wait(node.wait_s(time.monotonic()))
    source_object: object = source
    if wake_signal is source_object:
        _close_while_reading(node, wake_signal)
    else:
        node.close()


def _close_while_reading(node: "_AgentLoop", wake_signal: WakeSignal) -> None:
    """Close the node; an action in flight may still need an on-demand list from the source."""
    closing = threading.Thread(target=node.close, daemon=True)
    closing.start()
    while closing.is_alive():
        wake_signal.wait(CLOSE_ROUND_S)


class _AgentLoop:
    def __init__(self, config: NodeConfig, source: ReadingSource, outbox: Outbox,
                 wake: Callable[[], None]) -> None:
        self._config = config
        self._source = source
        self._outbox = outbox
        mps = _mps(config)
        self._tasks = TaskTable(config.boot_id, names=WorkloadNameCache(),
                                clients=MpsClientCache(mps))
        lists_host_pids = config.backend.capabilities.pids == "host"
        self._unseen = namespace_trouble() if lists_host_pids else ""
        is_real = lists_host_pids and not config.is_made_up
        self._host = HostCollector(
            serving=ServingWatch() if config.asks_serving else None) if is_real else None
        self._memory = _restored_state(outbox)
        self._events = NodeEventDetector(outbox.state())
        self._driver_version: str | None = None
        self._cuda_version: str | UnsetType = UNSET
        self._link = HubLink(config.hubs, config.tls_of, wake)
        self._link_state = LinkStateMachine(outbox, self, random.uniform, len(config.hubs))
        self._link_state.hold_until(time.monotonic() + FIRST_CALL_WITHIN_S)
        self._journal = journal = ActionJournal(config.acts, config.store_name)
        replies = ReplyOutbox(journal, wake)
        self._hub = HubRecord(journal, config.identity.hub, config.hold_files, replies)
        self._recent = RecentTasks()
        self._context = context = open_context(
            node_id=config.identity.node_id, boot_id=config.boot_id, backend=config.backend,
            options=config.options, data=config.data, source=source, recent=self._recent, mps=mps,
            journal=journal, is_shared=not config.is_made_up,
            driver=lambda: self._driver_version, schedulers=config.schedulers,
            guards=ActionGuards(config.ceiling, self._hub.holds, journal.begun_at_most))
        self._commands = CommandService(
            config.identity.key, ActionLock(config.data), self._context, journal, self._hub,
            replies, keeps_anchors=not config.is_made_up, timeouts=config.timeouts)
        self._limits = LimitReconciler(self._context.limits, config.boot_id, self._hub.holds,
                                       ActionLock(config.data), self._machine, wake)
        self._repairs = RepairKeeper(self._context.limits.repairs, config.boot_id,
                                     ActionLock(config.data), wake)
        self._recent.set_facts(self._memory.facts or ())
        self._quotas = QuotaService(
            OfflineExecutor(self._context, journal, ActionLock(config.data)), config.identity.hub,
            config.host, config.is_made_up, wake, self._commands.hub_time)
        self._pool = None if config.pool_socket is None else open_pool(
            config.pool_socket, config.identity.node_id, config.host, config.boot_id, journal, mps,
            context.people, config.managed_by, config.local_claims, config.pool_unused_s, wake,
            context.guards.why_rules_end_nothing, context.limits.repairs.all_or_closed,
            None if not config.exclusive_leases else open_exclusive(
                journal, self._context.limits, self._hub.holds))
        self._schedulers = SchedulerReadings(config.schedulers, wake)
        self._sample: QuotaSample | None = None
        # With a simulator's many nodes in one process, costs cannot be told apart.
        self._meter = None if config.is_made_up else ProcessCostMeter()
        self._welcomes = 0
        self._warned_of, self._warned_at = "", 0.0
        self._logged_unknown: set[str] = set()  # on this connection
        self._record_events(self._events.began(config.boot_id, __version__, time.time()),
                            time.monotonic())

    def step(self, now: float) -> None:
        self._process_link_events(now)
        self._record_events(self._events.clock(
            time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)), now)
        self._read(now)
        if self._link_state.phase == "live":
            self._record_drops(now)
        self._limit_connects(now)
        for act in self._link_state.step(now, self._heartbeat):
            match act:
                case SendToHub(body):
                    self._link.say(body)
                case OpenConnection():
                    self._link.dial()
                case CloseConnection():
                    self._link.hang_up()
        self._limits.step(now, self._source.state == "ok")
        self._repairs.step(now)
        if self._link_state.phase == "live":
            for message in (*self._commands.say(now), *self._limits.poll(), *self._repairs.poll()):
                self._link.say(wire.encode(message))
                if isinstance(message, Reply) and message.state in FINAL:
                    self._limits.changed()
                    self._repairs.changed()
                    self._schedulers.changed()
        if self._pool is not None:
            for report in self._pool.poll(now, self._link_state.phase == "live"):
                self._link.say(wire.encode(report))
        for scheduler_report in self._schedulers.step(now, self._link_state.phase == "live"):
            self._link.say(wire.encode(scheduler_report))
        self._step_quotas(now)
        self._link.acks_wake = self._link_state.is_filling
        self._warn_disconnected(now)

    def _step_quotas(self, now: float) -> None:
        is_live = self._link_state.phase == "live"
        self._quotas.step(now, self._sample, is_live, self._driver_version,
                          self._memory.facts or (), self._limits.daemons)
        if is_live:
            for message in self._quotas.poll():
                self._link.say(wire.encode(message))

    def _limit_connects(self, now: float) -> None:
        limiter, name = self._config.connect_limiter, self._config.host
        if limiter is None:
            return
        if self._link_state.phase == "live" or (
                self._link_state.phase == "resting" and self._link_state.trouble):
            limiter.leave(name)
        is_due = self._link_state.phase == "resting" and self._link_state.next_step_at(now) <= now
        if is_due and not limiter.admits(name):
            self._link_state.hold_until(now + random.uniform(*TURN_S))

    def wait_s(self, now: float) -> float:
        at = self._link_state.next_step_at(now)
        if self._link_state.phase == "live":
            at = min(at, self._commands.next_at())
        return min(max(at - now, 0.0), WAIT_MAX_S)

    def _machine(self) -> DriverFacts:
        """Runs on the reconciler's thread: what is replaced as a whole is read once."""
        facts = (memory := self._memory).facts or ()
        boards = sum(gpu.parent_uuid is None for gpu in facts)
        return DriverFacts(min(boards, ORDINALS), self._driver_version, {
            uuid: int(mode) for uuid in whole_boards(facts)
            if (mode := sampler.slow_number(memory, uuid, "compute_mode")) is not None})

    def close(self) -> None:
        self._commands.close()
        self._quotas.close()
        self._limits.close()
        self._repairs.close()
        if self._pool is not None:
            self._pool.close()
        if self._host is not None:
            self._host.close()
        self._schedulers.close()
        closing = self._link.hang_up()
        if closing is not None:
            closing.join(timeout=0.5)

    def _process_link_events(self, now: float) -> None:
        for event in self._link.events():
            match event:
                case ConnectionOpened():
                    self._link_state.opened(now)
                case ConnectionClosed(why, denied):
                    self._link_state.closed(now, why, denied)
                case MessageReceived(message):
                    self._receive(message, now)
        if self._link_state.welcomes != self._welcomes:
            self._welcomes = self._link_state.welcomes
            self._memory = sampler.snapshot_wanted(self._memory)
            self._warned_of = ""
            self._logged_unknown.clear()
            log.info("connected hub=%s pending=%d", self._link.url, self._outbox.pending)

    def _receive(self, message: wire.FromHub, now: float) -> None:
        self._link_state.receive(message, now, time.time())
        if self._link_state.phase != "live":
            return
        if isinstance(message, wire.Welcome):
            self._commands.connected(message.epoch, now)
            self._limits.connected()
            self._repairs.connected()
            self._quotas.connected()
            if self._pool is not None:
                self._pool.connected()
            self._schedulers.changed()
        if isinstance(message, PoolPlan) and self._pool is not None:
            self._pool.receive(message)
        if isinstance(message, SignedDesired):
            self._quotas.receive(message)
        if isinstance(message, wire.UnknownMessage | wire.Ignored):
            _log_unknown(message, self._logged_unknown)
        self._commands.hear(message, now)

    def _read(self, now: float) -> None:
        # The state first: no reading is then newer than a state that ended readings.
        state, detail = self._source.state, self._source.detail
        reading = self._source.latest()
        backend_events = self._source.take_events()
        if self._memory.reader == "starting" and state != "starting":
            self._link_state.hold_until(now)
        if state != self._memory.reader:
            at = time.time()
            self._keep(sampler.reader_changed(self._memory, state, self._outbox.last_seq + 1, at,
                                              self._events.reader(state, detail, at)), now)
        own_ends = self._own_ends(backend_events)
        recording = self._config.recording
        if reading is None:
            if recording is not None:
                recording.put_events(backend_events)
            if self._config.metrics is not None:
                self._config.metrics.beside(backend_events)
            self._record_events(self._events.beside(
                backend_events, self._memory.facts or (), now, own_ends), now)
            return
        self._note_driver(reading, now)
        gpu_tasks = None if reading.processes is None else self._tasks.describe(reading.processes)
        if gpu_tasks is not None:
            self._sample = QuotaSample(gpu_tasks, now)
            self._recent.observe(gpu_tasks, reading)
            self._repairs.observe(gpu_tasks, reading.facts)
        self._recent.set_facts(reading.facts)
        if self._host is not None:
            reading = self._host.with_host(
                reading, () if self._sample is None else self._sample.gpu_tasks, now)
        if self._pool is not None:
            self._pool.put(reading, gpu_tasks)
        reading = self._recent.checkpoints.with_checkpoints(reading)
        if recording is not None:
            recording.put(reading, backend_events, gpu_tasks)
        if self._config.metrics is not None:
            self._config.metrics.put(reading, backend_events, gpu_tasks,
                                     (self._outbox.pending, self._outbox.dropped))
        events = self._events.reading(reading, backend_events, gpu_tasks, now, own_ends)
        self._keep(sampler.sample(
            self._memory, reading, gpu_tasks, self._outbox.last_seq + 1, now, events), now)

    def _own_ends(self, backend_events: Sequence[BackendEvent]) -> int:
        if not any(event.echo for event in backend_events):
            return 0
        try:
            return self._journal.begun_since(KILLS, time.time() - ECHO_S)
        except JournalError:
            return 0  # it explains an Xid, and permits nothing

    def _record_events(self, events: Sequence[wire.Event], now: float) -> None:
        if events:
            self._keep(sampler.events_only(self._memory, events, self._outbox.last_seq + 1), now)

    def _note_driver(self, reading: Reading, now: float) -> None:
        self._cuda_version = reading.cuda_version or UNSET
        if reading.driver_version != self._driver_version:
            self._driver_version = reading.driver_version
            self._link_state.renew(now, "the driver's version changed")

    def _keep(self, step: sampler.SamplerStep, now: float) -> None:
        self._memory = step.memory
        if step.inventory is not None:
            self._outbox.keep_inventory(step.inventory)
        if step.messages:
            has_events = any(isinstance(message, wire.Event) for message in step.messages)
            if (state := self._events.state_to_store(now, is_due=has_events)) is not None:
                self._outbox.keep_state(state)
            self._outbox.append(step.messages, now)

    def _record_drops(self, now: float) -> None:
        event = self._outbox.drop_event(now, time.time())
        if event is not None:
            log.warning("outbox_dropped %s", event.text)
            self._outbox.append([event], now)

    # Credentials of the conversation

    def call(self) -> wire.Call:
        return new_call()

    def hello(self, call: wire.Call, challenge: wire.Challenge) -> wire.Hello:
        identity, ceiling = self._config.identity, self._context.guards.ceiling()
        hello = identity.prove(call, challenge, wire.Hello(
            wire_versions=wire.SPOKEN_VERSIONS, key=identity.key.public, signature=b"",
            node_id=identity.node_id, host=self._config.host, boot_id=self._config.boot_id,
            stream=self._outbox.stream, last_seq=self._outbox.last_seq, agent_version=__version__,
            backend=self._config.backend.name, platform=self._config.platform[:1_024],
            driver_version=self._driver_version, cuda_version=self._cuda_version,
            epoch_seen=self._hub.epoch, actions=(*ceiling.permitted_actions, "hold", "release"),
            rules=ceiling.rules, anchor_seq=self._hub.anchor.audit_seq,
            anchor_head=self._hub.anchor.audit_head))
        self._hub.accept_key(challenge.hub_key)
        self._quotas.set_hub_key(challenge.hub_key)
        return hello

    def _heartbeat(self) -> wire.Beat:
        seq, head = self._journal.audit.head
        detail = "; ".join(filter(None, (
            self._outbox.trouble, self._source.detail, self._hub.trouble, self._unseen,
            "" if self._config.recording is None else self._config.recording.trouble)))
        return wire.Beat(
            reader=self._source.state, reading_age_s=self._source.age_s,
            pending=self._outbox.pending, dropped=self._outbox.dropped, detail=detail[:1_024],
            holds=tuple(hold[:1_024] for hold in self._hub.holds()[:8]), audit_seq=seq,
            audit_head=head, first_seq=self._outbox.first_seq, cost=self._cost(),
            is_in_memory=bool(self._outbox.trouble))

    def _cost(self) -> wire.Cost | None:
        if self._meter is None:
            return None
        return self._meter.take(self._source.pids | {os.getpid()}, self._source.read_s,
                                size_of(outbox_files(self._config.data)))

    def _warn_disconnected(self, now: float) -> None:
        """Log why there is no connection: one line per reason and minute, not one per attempt."""
        trouble = self._link_state.trouble
        if not trouble:
            return
        if trouble != self._warned_of or now - self._warned_at >= WARN_EVERY_S:
            self._warned_of, self._warned_at = trouble, now
            log.warning("no_connection hub=%s why=%r pending=%d dropped=%d; trying again",
                        self._link.url, trouble, self._outbox.pending, self._outbox.dropped)


def _log_unknown(message: wire.UnknownMessage | wire.Ignored, logged: set[str]) -> None:
    """Log once per type and connection: a hub that was taken over must not fill this node's log."""
    line = (f"hub_older ignores={message.what!r} why='the hub is older than this agent; upgrade "
            "the hub'" if isinstance(message, wire.Ignored) else
            f"hub_newer ignored={message.type!r} why='this agent is older than the hub'")
    if line not in logged and len(logged) < wire.MAX_UNKNOWN_TYPES:
        logged.add(line)
        log.warning("%s", line)


def _mps(config: NodeConfig) -> LocalMpsDaemons:
    if config.is_made_up:
        return LocalMpsDaemons("")
    simulated = open_mps(config.options) if config.backend.capabilities.simulates_mps else None
    return simulated or LocalMpsDaemons()


def _restored_state(outbox: Outbox) -> sampler.SamplerState:
    """Return the sampler's state to go on from. Frames on disk refer to generations: the stored one
    is continued, and stays the same if nothing has changed."""
    inventory = outbox.latest_inventory
    if inventory is None:
        return sampler.SamplerState()
    return sampler.SamplerState(generation=inventory.generation, facts=inventory.gpus)

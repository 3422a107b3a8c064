"""One node: readings in, messages to the hub out. One thread, nothing of its own on disk.

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

COMPLAIN_EVERY_S = 60.0
# A Hello names the driver's version; a first reading is waited for this long.
FIRST_CALL_WITHIN_S = 3.0
TURN_S = (0.1, 0.5)  # of many nodes in one process
# Also how late a stop may be noticed. Longer than from one Reading to the next: a wait that ends a
# moment before it would wake us twice a second.
WAIT_MAX_S = 1.25
LEAVE_ROUND_S = 0.02
# An Xid 45 this soon after an end of ours is its echo.
ECHO_S = 30.0


class ReadingSource(ProcessListSource, Protocol):
    """Where Readings come from: ReaderProcess, or the simulator's in-process one."""

    @property
    def state(self) -> wire.ReaderState: ...
    @property
    def age_s(self) -> float | None: ...
    @property
    def read_s(self) -> float | None:
        """That the last read of the driver took."""

    def latest(self) -> Reading | None:
        """The newest Reading not handed out yet; never blocks."""

    def happenings(self) -> tuple[BackendEvent, ...]:
        """Those not handed out yet, of Readings that were never fetched too; never blocks."""

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
    turnstile: ConnectLimiter | None = None  # of the nodes of one process
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
    """What the node's own thread sleeps on."""

    def ring(self) -> None:
        """Ends a `wait`, of now or the next one. Cheap, from any thread."""

    def wait(self, seconds: float) -> None: ...


class ThreadWakeSignal:
    def __init__(self) -> None:
        self._event = threading.Event()
        self.ring = self._event.set

    def wait(self, seconds: float) -> None:
        self._event.wait(seconds)
        self._event.clear()


def run_node(config: NodeConfig, source: ReadingSource, outbox: Outbox, stop: threading.Event,
             bell: WakeSignal) -> None:
    """Until `stop` is set, noticed within WAIT_MAX_S. Closes neither source nor outbox. `bell`:
    what `source` rings whenever there is a Reading or its state changed. It may be the source,
    which goes on while somebody waits there and is spared a thread."""
    node = _AgentLoop(config, source, outbox, bell.ring)
    while not stop.is_set():
        node.step(time.monotonic())
        config.alive(time.monotonic())
        bell.wait(node.wait_s(time.monotonic()))
    watched: object = source
    if bell is watched:
        _leave(node, bell)
    else:
        node.leave()


def _leave(node: "_AgentLoop", bell: WakeSignal) -> None:
    """An act in flight may want a Fresh list still."""
    leaving = threading.Thread(target=node.leave, daemon=True)
    leaving.start()
    while leaving.is_alive():
        bell.wait(LEAVE_ROUND_S)


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
        self._memory = _remembered(outbox)
        self._happenings = NodeEventDetector(outbox.state())
        self._driver_version: str | None = None
        self._cuda_version: str | UnsetType = UNSET
        self._link = HubLink(config.hubs, config.tls_of, wake)
        self._talk = LinkStateMachine(outbox, self, random.uniform, len(config.hubs))
        self._talk.hold_until(time.monotonic() + FIRST_CALL_WITHIN_S)
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
        self._recent.knows(self._memory.facts or ())
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
        # Of a simulator's many nodes in one process nobody can say which takes what.
        self._meter = None if config.is_made_up else ProcessCostMeter()
        self._welcomes = 0
        self._complained_of, self._complained_at = "", 0.0
        self._told_unknown: set[str] = set()  # on this connection
        self._tell(self._happenings.began(config.boot_id, __version__, time.time()),
                   time.monotonic())

    def step(self, now: float) -> None:
        self._listen(now)
        self._tell(self._happenings.clock(
            time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)), now)
        self._read(now)
        if self._talk.phase == "live":
            self._tell_drops(now)
        self._wait_for_a_turn(now)
        for act in self._talk.step(now, self._beat):
            match act:
                case SendToHub(body):
                    self._link.say(body)
                case OpenConnection():
                    self._link.dial()
                case CloseConnection():
                    self._link.hang_up()
        self._limits.step(now, self._source.state == "ok")
        self._repairs.step(now)
        if self._talk.phase == "live":
            for message in (*self._commands.say(now), *self._limits.poll(), *self._repairs.poll()):
                self._link.say(wire.encode(message))
                if isinstance(message, Reply) and message.state in FINAL:
                    self._limits.changed()
                    self._repairs.changed()
                    self._schedulers.changed()
        if self._pool is not None:
            for report in self._pool.poll(now, self._talk.phase == "live"):
                self._link.say(wire.encode(report))
        for told in self._schedulers.step(now, self._talk.phase == "live"):
            self._link.say(wire.encode(told))
        self._step_quotas(now)
        self._link.acks_wake = self._talk.is_filling
        self._complain(now)

    def _step_quotas(self, now: float) -> None:
        is_live = self._talk.phase == "live"
        self._quotas.step(now, self._sample, is_live, self._driver_version,
                          self._memory.facts or (), self._limits.daemons)
        if is_live:
            for message in self._quotas.poll():
                self._link.say(wire.encode(message))

    def _wait_for_a_turn(self, now: float) -> None:
        turnstile, name = self._config.turnstile, self._config.host
        if turnstile is None:
            return
        if self._talk.phase == "live" or (self._talk.phase == "resting" and self._talk.trouble):
            turnstile.leave(name)
        is_due = self._talk.phase == "resting" and self._talk.next_step_at(now) <= now
        if is_due and not turnstile.admits(name):
            self._talk.hold_until(now + random.uniform(*TURN_S))

    def wait_s(self, now: float) -> float:
        at = self._talk.next_step_at(now)
        if self._talk.phase == "live":
            at = min(at, self._commands.next_at())
        return min(max(at - now, 0.0), WAIT_MAX_S)

    def _machine(self) -> DriverFacts:
        """On the reconciler's thread: what is replaced as a whole is read once."""
        memory, facts = self._memory, self._memory.facts or ()
        boards = sum(each.parent_uuid is None for each in facts)
        return DriverFacts(min(boards, ORDINALS), self._driver_version, {
            uuid: int(mode) for uuid in whole_boards(facts)
            if (mode := sampler.slow_number(memory, uuid, "compute_mode")) is not None})

    def leave(self) -> None:
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

    def _listen(self, now: float) -> None:
        for happening in self._link.happenings():
            match happening:
                case ConnectionOpened():
                    self._talk.opened(now)
                case ConnectionClosed(why, denied):
                    self._talk.closed(now, why, denied)
                case MessageReceived(message):
                    self._hear(message, now)
        if self._talk.welcomes != self._welcomes:
            self._welcomes = self._talk.welcomes
            self._memory = sampler.snapshot_wanted(self._memory)
            self._complained_of = ""
            self._told_unknown.clear()
            log.info("connected hub=%s pending=%d", self._link.url, self._outbox.pending)

    def _hear(self, message: wire.FromHub, now: float) -> None:
        self._talk.heard(message, now, time.time())
        if self._talk.phase != "live":
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
            _log_unknown(message, self._told_unknown)
        self._commands.hear(message, now)

    def _read(self, now: float) -> None:
        # The state first: what is read under it is never newer than a state that ended readings.
        state, detail = self._source.state, self._source.detail
        reading = self._source.latest()
        happened = self._source.happenings()
        if self._memory.reader == "starting" and state != "starting":
            self._talk.hold_until(now)
        if state != self._memory.reader:
            at = time.time()
            self._keep(sampler.reader_changed(self._memory, state, self._outbox.last_seq + 1, at,
                                              self._happenings.reader(state, detail, at)), now)
        own_ends = self._own_ends(happened)
        recording = self._config.recording
        if reading is None:
            if recording is not None:
                recording.beside(happened)
            if self._config.metrics is not None:
                self._config.metrics.beside(happened)
            self._tell(self._happenings.beside(
                happened, self._memory.facts or (), now, own_ends), now)
            return
        self._note_driver(reading, now)
        seen = None if reading.processes is None else self._tasks.describe(reading.processes)
        if seen is not None:
            self._sample = QuotaSample(seen, now)
            self._recent.saw(seen, reading)
            self._repairs.observe(seen, reading.facts)
        self._recent.knows(reading.facts)
        if self._host is not None:
            reading = self._host.with_host(
                reading, () if self._sample is None else self._sample.gpu_tasks, now)
        if self._pool is not None:
            self._pool.put(reading, seen)
        reading = self._recent.checkpoints.with_checkpoints(reading)
        if recording is not None:
            recording.put(reading, happened, seen)
        if self._config.metrics is not None:
            self._config.metrics.put(reading, happened, seen,
                                     (self._outbox.pending, self._outbox.dropped))
        events = self._happenings.reading(reading, happened, seen, now, own_ends)
        self._keep(sampler.sample(
            self._memory, reading, seen, self._outbox.last_seq + 1, now, events), now)

    def _own_ends(self, happened: Sequence[BackendEvent]) -> int:
        if not any(each.echo for each in happened):
            return 0
        try:
            return self._journal.begun_since(KILLS, time.time() - ECHO_S)
        except JournalError:
            return 0  # it explains an Xid, and permits nothing

    def _tell(self, events: Sequence[wire.Event], now: float) -> None:
        if events:
            self._keep(sampler.told(self._memory, events, self._outbox.last_seq + 1), now)

    def _note_driver(self, reading: Reading, now: float) -> None:
        self._cuda_version = reading.cuda_version or UNSET
        if reading.driver_version != self._driver_version:
            self._driver_version = reading.driver_version
            self._talk.renew(now, "the driver's version changed")

    def _keep(self, step: sampler.SamplerStep, now: float) -> None:
        self._memory = step.memory
        if step.inventory is not None:
            self._outbox.keep_inventory(step.inventory)
        if step.messages:
            told = any(isinstance(each, wire.Event) for each in step.messages)
            if (state := self._happenings.kept(now, is_due=told)) is not None:
                self._outbox.keep_state(state)
            self._outbox.append(step.messages, now)

    def _tell_drops(self, now: float) -> None:
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
            epoch_seen=self._hub.epoch, actions=(*ceiling.allowed, "hold", "release"),
            rules=ceiling.rules, anchor_seq=self._hub.anchor.audit_seq,
            anchor_head=self._hub.anchor.audit_head))
        self._hub.greeted(challenge.hub_key)
        self._quotas.set_hub_key(challenge.hub_key)
        return hello

    def _beat(self) -> wire.Beat:
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

    def _complain(self, now: float) -> None:
        """No connection: one clear line per reason and minute, not one per attempt."""
        trouble = self._talk.trouble
        if not trouble:
            return
        if trouble != self._complained_of or now - self._complained_at >= COMPLAIN_EVERY_S:
            self._complained_of, self._complained_at = trouble, now
            log.warning("no_connection hub=%s why=%r pending=%d dropped=%d; trying again",
                        self._link.url, trouble, self._outbox.pending, self._outbox.dropped)


def _log_unknown(message: wire.UnknownMessage | wire.Ignored, told: set[str]) -> None:
    """Once per type and connection: a hub that was taken over must not fill this node's log."""
    line = (f"hub_older ignores={message.what!r} why='the hub is older than this agent; upgrade "
            "the hub'" if isinstance(message, wire.Ignored) else
            f"hub_newer ignored={message.type!r} why='this agent is older than the hub'")
    if line not in told and len(told) < wire.MAX_UNKNOWN_TYPES:
        told.add(line)
        log.warning("%s", line)


def _mps(config: NodeConfig) -> LocalMpsDaemons:
    if config.is_made_up:
        return LocalMpsDaemons("")
    found = open_mps(config.options) if config.backend.capabilities.simulates_mps else None
    return found or LocalMpsDaemons()


def _remembered(outbox: Outbox) -> sampler.SamplerState:
    """Frames on disk refer to generations: go on from there, with the same one if nothing
    changed."""
    inventory = outbox.latest_inventory
    if inventory is None:
        return sampler.SamplerState()
    return sampler.SamplerState(generation=inventory.generation, facts=inventory.gpus)

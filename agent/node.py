"""The agent of one node: a list of its capabilities, and the loop that drives them. One thread,
writes no files.

Many nodes may run in one process (the simulator), also under gevent: only threading primitives.
"""

import threading
import time
from collections.abc import Callable, Sequence

from gpudeck.contract.actions import FINAL, Reply

from .actions import wiring as actions_wiring
from .capability import Capability, NodeCore
from .conversation import wiring as conversation_wiring
from .conversation.conversation import HubConversation
from .hosts import wiring as hosts_wiring
from .journal.store import ActionJournal
from .limits import wiring as limits_wiring
from .link.outbox import Outbox
from .node_config import NodeConfig
from .pool import wiring as pool_wiring
from .quotas import wiring as quotas_wiring
from .reader import wiring as recording_wiring
from .readings import ReadingSource
from .runtime.wake import WakeSignal
from .schedulers import wiring as schedulers_wiring
from .telemetry import wiring as telemetry_wiring
from .telemetry.latest_sample import LatestSample
from .telemetry.recent_tasks import RecentTasks

# Also how late a stop is noticed. Longer than a Reading's period, else it would wake twice in one.
WAIT_MAX_S = 1.25
CLOSE_ROUND_S = 0.02


def run_node(config: NodeConfig, source: ReadingSource, outbox: Outbox, stop: threading.Event,
             wake_signal: WakeSignal) -> None:
    """Run the node until `stop` is set, noticed within WAIT_MAX_S. Close neither source nor outbox.
    `wake_signal`: `source` rings it whenever there is a Reading or its state changed. It may be the
    source itself, which works while somebody waits on it and so needs no thread."""
    node = build_node(config, source, outbox, wake_signal.ring)
    while not stop.is_set():
        node.step(time.monotonic())
        config.alive(time.monotonic(), node.status)
        wake_signal.wait(node.wait_s(time.monotonic()))
    source_object: object = source
    if wake_signal is source_object:
        _close_while_reading(node, wake_signal)
    else:
        node.close()


def _close_while_reading(node: "NodeLoop", wake_signal: WakeSignal) -> None:
    """Close the node; an action in flight may still need an on-demand list from the source."""
    closing = threading.Thread(target=node.close, daemon=True)
    closing.start()
    while closing.is_alive():
        wake_signal.wait(CLOSE_ROUND_S)


def build_node(config: NodeConfig, source: ReadingSource, outbox: Outbox,
               wake: Callable[[], None]) -> "NodeLoop":
    """Build each capability from those before it. The order of the list is that in which they take
    their turns and are closed: what acts comes first, so that nothing begins while others close."""
    core = NodeCore(
        identity=config.identity, host=config.host, boot_id=config.boot_id, data=config.data,
        backend=config.backend, options=config.options, is_made_up=config.is_made_up,
        source=source, outbox=outbox, journal=ActionJournal(config.acts, config.store_name),
        wake=wake)
    latest, recent = LatestSample(outbox), RecentTasks()
    recent.set_facts(latest.facts)
    mps = limits_wiring.open_daemons(core)

    actions = actions_wiring.build(core, config.action_options, mps, recent, latest.driver)
    limits = limits_wiring.build(core, actions.context.limits, actions.hub.holds,
                                 latest.driver_facts)
    quotas = quotas_wiring.build(core, actions.context, latest, limits.daemons,
                                 config.limits_memory)
    pool = pool_wiring.build(core, config.pool_options, actions.context, mps, actions.hub.holds)
    memory = limits_wiring.build_memory(
        core, actions.context.limits, actions.hub.holds,
        (quotas.memory_targets, pool.memory_targets) if config.limits_memory else (),
        limits.refresh)
    hosts = hosts_wiring.build(core, config.asks_serving, config.asks_nccl)
    schedulers = schedulers_wiring.build(core, config.schedulers)
    recording = recording_wiring.build(config.recording)
    page = telemetry_wiring.build_page(core, config.metrics)
    sampling = telemetry_wiring.build(
        core, latest, recent, mps, hosts.with_host,
        [capability.observe for capability in (limits, pool, recording, page)],
        limits.suspended)

    capabilities = (actions, quotas, limits, memory, pool, hosts, schedulers, sampling, recording,
                    page)
    conversation = conversation_wiring.build(
        core, config.conversation_options, latest, actions.hub, actions.context.guards,
        capabilities, sampling.send_all_again)
    return NodeLoop(sampling.read, conversation, capabilities)


class NodeLoop:
    def __init__(self, read: Callable[[float], None], conversation: HubConversation,
                 capabilities: Sequence[Capability]) -> None:
        """`read`: takes what the source has, before anything is sent."""
        self._read = read
        self._conversation = conversation
        self._capabilities = capabilities

    @property
    def status(self) -> str:
        return self._conversation.status

    def step(self, now: float) -> None:
        self._conversation.receive(now)
        self._read(now)
        self._conversation.step(now)
        is_live = self._conversation.is_live
        for capability in self._capabilities:
            capability.step(now, is_live)
        if is_live:
            self._send(now)
        self._conversation.end_turn(now)

    def wait_s(self, now: float) -> float:
        at = self._conversation.next_step_at(now)
        if self._conversation.is_live:
            at = min(at, *(capability.due_at() for capability in self._capabilities))
        return min(max(at - now, 0.0), WAIT_MAX_S)

    def close(self) -> None:
        for capability in self._capabilities:
            capability.close()
        self._conversation.close()

    def _send(self, now: float) -> None:
        for capability in self._capabilities:
            for message in capability.poll(now):
                self._conversation.send(message)
                if isinstance(message, Reply) and message.state in FINAL:
                    self._note_outcome()

    def _note_outcome(self) -> None:
        for capability in self._capabilities:
            capability.note_outcome()

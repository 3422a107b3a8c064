"""Inbox of connected agents: what each of their messages means for the fleet and for history,
within what a node may cause."""

from collections.abc import Callable, Mapping, MutableMapping

from gpudeck.contract import wire
from gpudeck.contract.actions import Preview, Reply
from gpudeck.contract.desired_state import InForce
from gpudeck.contract.kubernetes import KubernetesNow, PodGpusNow
from gpudeck.contract.limits import LimitsNow
from gpudeck.contract.pool_link import PoolReport, reported_ids
from gpudeck.contract.repairs import RepairsNow
from gpudeck.contract.slurm import SlurmNow

from ..history.columns.rows import BACKFILL_MOST_S
from . import effects
from .agent_messages import (
    AgentLinkState,
    Effects,
    MessageHandler,
    answer_clock,
    pass_on,
    refuse,
    take_beat,
    take_echo,
    take_kubernetes,
    take_limits,
    take_pod_gpus,
    take_slurm,
)
from .events import FleetEvent, RecentEvents
from .fleet import FUTURE_S, Fleet, FrameOutcome, Node
from .node_budget import Excess, NodeAllowances
from .sample_seconds import SampleSecondAligner, SampleTick

PROBE_SOON_S = 1.0


class AgentInbox:
    """Handlers of agents' messages. `over_rate`: answers a node that exceeds an allowance."""

    def __init__(self, fleet: Fleet, allowances: NodeAllowances, events: RecentEvents,
                 counts: MutableMapping[str, int],
                 over_rate: Callable[[effects.RateExceeded, float, float], Effects]) -> None:
        self._fleet = fleet
        self._allowances = allowances
        self._events = events
        self._counts = counts
        self._over_rate = over_rate
        # By node id; of what is live, and of what is made up for.
        self._seconds: tuple[dict[str, SampleSecondAligner], ...] = {}, {}
        self.ticks: dict[str, SampleTick] = {}  # of the last Frame, by node id

    @property
    def handlers(self) -> Mapping[type, MessageHandler]:
        return {
            wire.Frame: self._frame, wire.Event: self._event,
            wire.Backfill: self._backfill, wire.Inventory: self._inventory,
            wire.UnknownMessage: self._unknown,
            wire.Beat: take_beat, wire.Echo: take_echo, wire.Clock: answer_clock,
            wire.Call: refuse, wire.Hello: refuse,
            LimitsNow: take_limits, RepairsNow: self._repairs, SlurmNow: take_slurm,
            KubernetesNow: take_kubernetes, PodGpusNow: take_pod_gpus,
            PoolReport: self._pool_report,
            Preview: pass_on, Reply: pass_on, InForce: pass_on,
        }

    def _inventory(self, link: AgentLinkState, message: wire.Inventory, payload: bytes, now: float,
                   mono: float) -> Effects:
        new = self._fleet.new_names(link.node_id, message.gpus)
        if excess := self._allowances.names(link.node_id, "GPUs", new, mono):
            return self._over_rate(effects.RateExceeded(link.at, *excess), now, mono)
        self._fleet.inventory(link.node, message)
        return [effects.StreamRecord(link.node_id, link.stream, 0, now, payload, message=message)]

    def _repairs(self, link: AgentLinkState, message: RepairsNow, _: bytes, now: float, mono: float
                 ) -> Effects:
        self._fleet.take_repairs(link.node, message)
        return []

    def _pool_report(self, link: AgentLinkState, message: PoolReport, payload: bytes, now: float,
                     mono: float) -> Effects:
        new = len(reported_ids(message) - reported_ids(link.node.pool))
        if excess := self._allowances.pool(link.node_id, len(payload), new, mono):
            return self._over_rate(effects.RateExceeded(link.at, *excess), now, mono)
        self._fleet.take_pool(link.node, message)
        return [effects.NodeReport(link.node_id, message)]

    def _unknown(self, link: AgentLinkState, message: wire.UnknownMessage, _: bytes, now: float,
                 mono: float) -> Effects:
        self._counts["unknown"] += 1
        return link.take_unknown(message)

    def _event(self, link: AgentLinkState, event: wire.Event, payload: bytes, now: float,
               mono: float) -> Effects:
        if must_wait(link, event):
            return []
        if is_of_others(self._fleet, link.node, event):
            self._counts["of_others"] += 1
            return _settle_one(link, event.seq)
        record = self._record(link, event, payload, now, mono)
        return [] if record is None else [record]

    def _frame(self, link: AgentLinkState, frame: wire.Frame, payload: bytes, now: float,
               mono: float) -> Effects:
        if must_wait(link, frame):
            return []
        if excess := excess_of_tasks(self._allowances, self._fleet, link.node, frame, mono):
            return self._over_rate(effects.RateExceeded(link.at, *excess), now, mono)
        node = link.node
        age_s = node.age_s(frame.taken_at, now, mono)
        record: effects.StreamRecord | None = None
        if age_s > BACKFILL_MOST_S:
            self._counts["too_old"] += 1
            answer = _settle_one(link, frame.seq)
        elif (record := self._record(link, frame, payload, now, mono)) is None:
            return []
        else:
            answer = [record]
        outcome = self._fleet.frame(node, frame, now, mono)
        if outcome is FrameOutcome.APPLIED and record is not None:
            link.received.applied += 1
            node.frame_at = float(record.second)  # as history knows it, so that past and live join
        # What is live is fresh: where it seems not to be, the node's clock has stepped.
        if abs(age_s) > FUTURE_S and mono - link.probed_mono > PROBE_SOON_S:
            answer.append(link.probe(now, mono))
        return answer

    def _backfill(self, link: AgentLinkState, backfill: wire.Backfill, _: bytes, now: float,
                  mono: float) -> Effects:
        """Record messages of an outage; they do not change the live picture."""
        answer: Effects = []
        is_ack_due = False
        if excess := self._allowances.past(link.node_id, len(backfill.messages), mono):
            return self._over_rate(effects.RateExceeded(link.at, *excess), now, mono)
        for payload in backfill.messages:
            message = wire.decode_from_agent(payload)
            if isinstance(message, wire.UnknownMessage):
                self._counts["unknown"] += 1
                answer += link.take_unknown(message)
                continue
            if not isinstance(message, wire.Frame | wire.Event):
                raise wire.WireError("a Backfill holds Frames and Events")
            is_old = now - message.taken_at > BACKFILL_MOST_S
            if is_old or is_of_others(self._fleet, link.node, message):
                self._counts["too_old" if is_old else "of_others"] += 1
                link.received.settle_one(message.seq)
                is_ack_due = True
                continue
            if excess := excess_of_tasks(self._allowances, self._fleet, link.node, message, mono):
                return [*answer, *self._over_rate(
                    effects.RateExceeded(link.at, *excess), now, mono)]
            record = self._record(link, message, payload, now, mono, is_backfill=True)
            if record is None:
                is_ack_due = True
                continue
            answer.append(record)
        if is_ack_due:  # what was dropped is not stored, so no later acknowledgement covers it
            answer.append(effects.SendMessage(link.at, link.received.ack()))
        return answer

    def _record(self, link: AgentLinkState, message: wire.Sequenced, payload: bytes, now: float,
                mono: float, is_backfill: bool = False) -> effects.StreamRecord | None:
        """Record a message; None: it was there already."""
        if not link.received.ledger.note(message.seq):
            return None
        if isinstance(message, wire.Frame):
            second = self._second(link.node, message, now, mono, is_backfill)
        else:
            second = 0  # events come at any moment, and would shift where seconds begin
            self.keep(link.node, link.stream, message, now, mono)
        return effects.StreamRecord(link.node_id, link.stream, message.seq, now, payload,
                                    is_backfill, message, second)

    def keep(self, node: Node, stream: str, event: wire.Event, now: float, mono: float) -> None:
        """Keep an event. An agent whose clock is ahead does not stay on top of the list."""
        at = now - max(0.0, node.age_s(event.taken_at, now, mono))
        task = None if event.task_id is None else node.tasks.get(event.task_id)
        self._events.add(FleetEvent(node.hello.node_id, stream, at,
                                   None if task is None else task.user, event))

    def _second(self, node: Node, frame: wire.Frame, now: float, mono: float, is_backfill: bool
                ) -> int:
        """Return the second of a Frame by our clock, never ahead of it."""
        age_s = max(0.0, node.age_s(frame.taken_at, now, mono))
        node_id, t = node.hello.node_id, now - age_s
        seconds = self._seconds[is_backfill].get(node_id)
        if seconds is None:
            seconds = self._seconds[is_backfill][node_id] = SampleSecondAligner()
            if (tick := self.ticks.get(node_id)) is not None:
                seconds.follow(tick, frame.taken_at, t)
        second = max(1, min(int(now), seconds.of(t)))
        self.ticks[node_id] = SampleTick(frame.taken_at, second)
        return second

    def note_tick(self, node_id: str, tick: SampleTick) -> None:
        """Note the second that was given to a Frame, also before this hub started."""
        self.ticks[node_id] = tick


def must_wait(link: AgentLinkState, message: wire.Sequenced) -> bool:
    """Return whether a message is earlier than its connection, and too long for a Backfill, which
    would wait: it is brought again once it is known what another hub has archived."""
    if link.received.is_waiting and message.seq <= link.node.hello.last_seq:
        link.received.must_bring = True
        return True
    return False


def _settle_one(link: AgentLinkState, seq: int) -> Effects:
    """Settle a message that is accepted and not kept, and acknowledge it: it is never stored."""
    link.received.settle_one(seq)
    return [effects.SendMessage(link.at, link.received.ack())]


def is_of_others(fleet: Fleet, node: Node, message: wire.Sequenced) -> bool:
    """Return whether it is an Event about a GPU of other nodes that this one never had: a node may
    not report on it."""
    if not isinstance(message, wire.Event) or message.gpu_uuid is None:
        return False
    return (fleet.slot_on(node.hello.node_id, message.gpu_uuid) is None
            and bool(fleet.slots_of_uuid(message.gpu_uuid)))


def excess_of_tasks(allowances: NodeAllowances, fleet: Fleet, node: Node, message: wire.Sequenced,
                    mono: float) -> Excess | None:
    if not isinstance(message, wire.Frame) or (tasks := message.tasks) is None:
        return None
    since = node.used_since
    new = {key for use in tasks.uses if (key := (use.task_id, use.gpu)) not in since}
    if not new and not tasks.began:  # as of most
        return None
    node_id = node.hello.node_id
    owners = fleet.new_owners(tasks.began) if tasks.began else 0
    return allowances.names(node_id, "owners", owners, mono) or allowances.uses(node_id, new, mono)

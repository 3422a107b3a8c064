"""The one owner of the hub's state: events in, pure core, effects out.

It runs inside the hub's one gevent thread and never yields, so that no event sees another half
done. Time comes in with the event: `now` UTC seconds, `mono` monotonic seconds.
"""

from collections import defaultdict
from dataclasses import dataclass

from gpudeck.actions import Preview, Reply
from gpudeck.desired_state import InForce
from gpudeck.limits import LimitsNow
from gpudeck.wire import (
    SPOKEN_VERSIONS,
    Backfill,
    Beat,
    Call,
    Clock,
    Echo,
    Event,
    Frame,
    FromAgent,
    Hello,
    Inventory,
    Probe,
    Refused,
    Sequenced,
    Time,
    Welcome,
    WireError,
    decode_from_agent,
)

from .agent_streams import AgentStream, AgentStreams
from .effects import (
    CloseLink,
    Effect,
    EpochRaised,
    HubEvent,
    LinkClosed,
    LogMessage,
    MessageApplied,
    MessageReceived,
    NodeJoined,
    NodeReport,
    RateExceeded,
    RecordsStored,
    RevokeNode,
    SendMessage,
    StorageFailed,
    StreamRecord,
    Tick,
)
from .epoch_fence import EpochFence
from .events import FleetEvent, RecentEvents
from .fleet import FUTURE_S, Fleet, FrameOutcome, Node, NodeState
from .members import REVOKED, REVOKED_RETRY_S
from .quarantine import NodeQuarantines
from .sample_seconds import SampleSecondAligner

PROBE_EVERY_S = 10.0
PROBE_SOON_S = 1.0
MAX_NODES = 5_000
FULL_RETRY_S = 300.0
VERSION_RETRY_S = 3_600.0
TAKEN_RETRY_S = 30.0
OWN_PAUSE_S = 5.0


@dataclass(slots=True)
class AgentLinkState:
    """One agent's connection."""

    node_id: str
    stream: str
    received: AgentStream
    probe_id: int = 0
    probed_mono: float = -1e9
    is_probing: bool = False

    def probe(self, now: float, mono: float) -> Probe:
        self.probe_id += 1
        self.probed_mono = mono
        self.is_probing = True
        return Probe(self.probe_id, now)

    def is_answer(self, echo: Echo) -> bool:
        """To the newest Probe, and the first one."""
        is_first = self.is_probing and echo.probe_id == self.probe_id
        self.is_probing = self.is_probing and not is_first
        return is_first


@dataclass(slots=True)
class TakeoverCounter:
    """How often a connection with a node's key ended another that was still open."""

    count: int = 0
    last_at: float | None = None


class FleetStateMachine:
    def __init__(self, hub_id: str, epoch: int, mono: float = 0.0) -> None:
        self.hub_id = hub_id
        self.fleet = Fleet(epoch)
        self.fence = EpochFence(epoch, mono)
        self.streams = AgentStreams()
        self.links: dict[str, AgentLinkState] = {}
        self.link_of: dict[str, str] = {}  # node id -> link
        self.takeovers: dict[str, TakeoverCounter] = {}
        self.counts: dict[str, int] = defaultdict(int)
        self.events = RecentEvents()
        self.disk_error: str | None = None
        self._quarantines = NodeQuarantines()
        self._seconds: dict[tuple[str, bool], SampleSecondAligner] = {}
        self._ticked_mono: float | None = None

    def handle(self, event: HubEvent, now: float, mono: float) -> list[Effect]:
        match event:
            case MessageReceived():
                return self._said(event, now, mono)
            case Tick():
                return self._tick(mono)
            case LinkClosed():
                return self._left(event.link)
            case RevokeNode():
                return self._revoked(event.node_id)
            case RateExceeded():
                return self._over_rate(event, mono)
            case RecordsStored():
                return self._stored(event.records)
            case StorageFailed():
                return self._not_stored(event)

    # -- agents

    def _said(self, said: MessageReceived, now: float, mono: float) -> list[Effect]:
        link = self.links.get(said.link)
        if link is None:
            if not isinstance(said.message, Hello):
                raise WireError("the first message must be Hello")
            return self._hello(said.link, said.message, said.payload, now, mono)
        node = self.fleet.nodes[link.node_id]
        node.hear(now, mono)
        match said.message:
            case Frame() | Event():
                return self._sequenced(said.link, link, node, said.message, said.payload, now, mono)
            case Backfill():
                return self._backfill(said.link, link, node, said.message, now, mono)
            case Beat():
                node.take_beat(said.message, mono)
                link.received.settle(said.message.first_seq - 1)
                return [NodeReport(link.node_id, said.message)]
            case Echo():
                if link.is_answer(said.message):
                    node.set_clock(said.message.agent_at, link.probed_mono, now, mono)
                return []
            case Inventory():
                self.fleet.inventory(node, said.message)
                return [StreamRecord(link.node_id, link.stream, 0, now, said.payload, False,
                                     said.message)]
            case Clock():
                return [SendMessage(said.link, Time(said.message.clock_id, now))]
            case LimitsNow():
                node.limits = said.message
                return []
            case Preview() | Reply() | InForce():
                return [NodeReport(link.node_id, said.message)]
            case Call() | Hello():
                raise WireError("Call and Hello are said once")

    def _hello(self, at: str, hello: Hello, payload: bytes, now: float, mono: float
               ) -> list[Effect]:
        refused = self._refusal(hello, mono)
        if refused is not None:
            self.counts["refused"] += 1
            return [SendMessage(at, refused), CloseLink(at, refused.reason),
                    LogMessage("agent refused", {"node": hello.node_id, "why": refused.reason})]
        effects: list[Effect] = []
        former = self.link_of.get(hello.node_id)
        if former is not None:
            effects += self._taken_over(former, hello.node_id, now)
        risen = self.fence.hello(hello.node_id, hello.epoch_seen, mono)
        if risen is not None:
            effects.append(EpochRaised(risen))
        self.fleet.hello(hello, now, mono)
        stream = self.streams.open(hello.node_id, hello.stream)
        stream.must_bring, ack = False, stream.ack()
        stream.last_ack = ack
        link = AgentLinkState(hello.node_id, hello.stream, stream)
        self.links[at] = link
        self.link_of[hello.node_id] = at
        welcome = Welcome(max(set(hello.wire_versions) & set(SPOKEN_VERSIONS)), self.hub_id,
                          self.fence.epoch, now, ack.seq, ack.spans)
        return [*effects, SendMessage(at, welcome), SendMessage(at, link.probe(now, mono)),
                StreamRecord(hello.node_id, hello.stream, 0, now, payload, False, hello),
                LogMessage("agent connected", {"node": hello.node_id, "host": hello.host,
                                               "acked": welcome.acked_seq}),
                NodeJoined(hello.node_id)]

    def _taken_over(self, former: str, node_id: str, now: float) -> list[Effect]:
        """A node that comes back before we saw it go; or two that have the same key."""
        self.counts["taken_over"] += 1
        taken = self.takeovers.setdefault(node_id, TakeoverCounter())
        taken.count, taken.last_at = taken.count + 1, now
        refused = Refused("another agent has this node's key and took over; if there are two, its "
                          "data folder was copied: delete agent.key in one and enrol that one anew",
                          TAKEN_RETRY_S)
        return [SendMessage(former, refused),
                CloseLink(former, "another connection of this node took over"),
                LogMessage("agent taken over", {"node": node_id, "times": taken.count}),
                *self._left(former)]

    def _revoked(self, node_id: str) -> list[Effect]:
        at = self.link_of.get(node_id)
        if at is None:
            return []
        told = Refused(REVOKED, REVOKED_RETRY_S)
        return [SendMessage(at, told), CloseLink(at, told.reason), *self._left(at)]

    def _refusal(self, hello: Hello, mono: float) -> Refused | None:
        wait_s = self._quarantines.left_s(hello.node_id, mono)
        if wait_s > 0:
            return Refused("this node sent more than it may; try again later", wait_s)
        if not set(hello.wire_versions) & set(SPOKEN_VERSIONS):
            spoken = ", ".join(map(str, SPOKEN_VERSIONS))
            return Refused(f"this hub speaks wire version {spoken}; update the older side",
                           VERSION_RETRY_S)
        if hello.node_id not in self.fleet.nodes and len(self.fleet.nodes) >= MAX_NODES:
            return Refused(f"this hub holds {MAX_NODES} nodes and takes no more", FULL_RETRY_S)
        return None

    def _sequenced(self, at: str, link: AgentLinkState, node: Node, message: Sequenced,
                   payload: bytes,
                   now: float, mono: float) -> list[Effect]:
        stream = link.received
        if not stream.ledger.note(message.seq):
            return []
        second = self._second(node, message, now, mono, False)
        effects: list[Effect] = [
            StreamRecord(link.node_id, link.stream, message.seq, now, payload, False, message,
                         second),
            MessageApplied(link.node_id, link.stream, message.seq, now),
        ]
        if isinstance(message, Event):
            self._keep(node, link.stream, message, now, mono)
            return effects
        outcome = self.fleet.frame(node, message, now, mono)
        if outcome is FrameOutcome.APPLIED:
            stream.applied += 1
            node.frame_at = float(second)  # as history knows it, so that past and live join
        # What is live is fresh: where it seems not to be, the node's clock has stepped.
        age_s = node.age_s(message.taken_at, now, mono)
        if abs(age_s) > FUTURE_S and mono - link.probed_mono > PROBE_SOON_S:
            effects.append(SendMessage(at, link.probe(now, mono)))
        return effects

    def _keep(self, node: Node, stream: str, event: Event, now: float, mono: float) -> None:
        """An agent whose clock is ahead does not stay on top of the list."""
        at = now - max(0.0, node.age_s(event.taken_at, now, mono))
        task = None if event.task_id is None else node.tasks.get(event.task_id)
        self.events.add(FleetEvent(node.hello.node_id, stream, at,
                                   None if task is None else task.user, event))

    def _backfill(self, at: str, link: AgentLinkState, node: Node, backfill: Backfill, now: float,
                  mono: float) -> list[Effect]:
        """Of a time without us: to disk, and past the picture."""
        stream = link.received
        effects: list[Effect] = []
        is_told_again = False
        for payload in backfill.messages:
            message = decode_from_agent(payload)
            if not isinstance(message, Frame | Event):
                raise WireError("a Backfill holds Frames and Events")
            if not stream.ledger.note(message.seq):
                is_told_again = True
                continue
            effects += (StreamRecord(link.node_id, link.stream, message.seq, now, payload, True,
                                     message,
                                     self._second(node, message, now, mono, True)),
                        MessageApplied(link.node_id, link.stream, message.seq, now, True))
            if isinstance(message, Event):
                self._keep(self.fleet.nodes[link.node_id], link.stream, message, now, mono)
        if is_told_again:  # no store of it will follow that an ack could
            effects.append(SendMessage(at, stream.ack()))
        return effects

    def _second(self, node: Node, message: Sequenced, now: float, mono: float, is_backfill: bool
                ) -> int:
        """Of a Frame, by our clock, and never ahead of it."""
        if isinstance(message, Event):
            return 0  # it comes at any moment, and would unsettle where seconds are cut
        age_s = max(0.0, node.age_s(message.taken_at, now, mono))
        seconds = self._seconds.setdefault((node.hello.node_id, is_backfill), SampleSecondAligner())
        return max(1, min(int(now), seconds.of(now - age_s)))

    def _left(self, at: str) -> list[Effect]:
        link = self.links.pop(at, None)
        if link is None:
            return []
        if self.link_of.get(link.node_id) == at:
            del self.link_of[link.node_id]
            self.fleet.nodes[link.node_id].disconnect()
        return [LogMessage("agent gone", {"node": link.node_id})]

    def _over_rate(self, event: RateExceeded, mono: float) -> list[Effect]:
        self.counts["over_rate"] += 1
        link = self.links.get(event.link)
        if link is None:
            return [CloseLink(event.link, f"more {event.what} than allowed")]
        wait_s = self._quarantines.add(link.node_id, mono)
        reason = f"this node sent more {event.what} than it may"
        return [SendMessage(event.link, Refused(reason, wait_s)), CloseLink(event.link, reason),
                LogMessage("agent quarantined", {"node": link.node_id, "why": event.what,
                                                 "seconds": wait_s}),
                *self._left(event.link)]

    # -- disk

    def _stored(self, records: tuple[StreamRecord, ...]) -> list[Effect]:
        recovered = self.disk_error is not None
        self.disk_error = None
        effects: list[Effect] = []
        for (node_id, name), stream in self.streams.stored(records).items():
            at = self.link_of.get(node_id)
            if at is not None and self.links[at].stream == name:
                ack = stream.new_ack()
                effects += [] if ack is None else [SendMessage(at, ack)]
        if recovered:
            effects += self._ask_again()
        return effects

    def _not_stored(self, event: StorageFailed) -> list[Effect]:
        first = self.disk_error is None
        self.disk_error = event.reason
        self.streams.dropped(event.dropped)
        return [LogMessage("disk refuses", {"why": event.reason})] if first else []

    def _ask_again(self) -> list[Effect]:
        """The disk is back: those whose messages were dropped connect anew and bring them again."""
        closes = [CloseLink(at, "the disk was full; bring again what was not acked")
                  for node_id, at in self.link_of.items()
                  if self.streams.must_bring(node_id)]
        return [LogMessage("disk is back", {}), *closes]

    # -- time

    def _tick(self, mono: float) -> list[Effect]:
        gap_s = 0.0 if self._ticked_mono is None else mono - self._ticked_mono
        self._ticked_mono = mono
        effects: list[Effect] = []
        if gap_s > OWN_PAUSE_S:
            self.counts["own_pauses"] += 1
            self.fleet.forgive(gap_s)
            effects.append(LogMessage("the hub itself stood still", {"seconds": round(gap_s, 1)}))
        effects += [_node_note(node_id, state) for node_id, state in self.fleet.tick(mono)]
        return effects

    def probes(self, now: float, mono: float) -> list[Effect]:
        return [SendMessage(at, link.probe(now, mono)) for at, link in self.links.items()
                if mono - link.probed_mono >= PROBE_EVERY_S]

    # -- start

    def recover(self, record: StreamRecord) -> FromAgent:
        """One message from disk, in the order in which it had come; it may be there twice."""
        message = decode_from_agent(record.payload)
        node = self.fleet.nodes.get(record.node_id)
        if isinstance(message, Hello):
            self.fleet.hello(message, record.received_at, 0.0)
            self.streams.open(message.node_id, message.stream)
        elif isinstance(message, Inventory) and node is not None:
            self.fleet.inventory(node, message)
        elif isinstance(message, Frame | Event) and node is not None:
            stream = self.streams.open(record.node_id, record.stream)
            stream.stored.note(message.seq)
            if not stream.ledger.note(message.seq):
                return message
            node.heard_at = record.received_at
            if isinstance(message, Event):
                self._keep(node, record.stream, message, record.received_at, 0.0)
            elif node.hello.stream == record.stream and not record.is_backfill:
                self.fleet.frame(node, message, record.received_at, 0.0)
        return message

    def recovered(self, now: float, mono: float) -> None:
        self.fleet.recovered(now, mono)
        self.streams.begin_counts()


def _node_note(node_id: str, state: NodeState) -> LogMessage:
    return LogMessage("node is " + state, {"node": node_id})

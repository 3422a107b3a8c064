"""The one owner of the hub's state: events in, pure core, effects out.

It runs inside the hub's one gevent thread and never yields, so that no event sees another half
done. Time comes in with the event: `now` UTC seconds, `mono` monotonic seconds.
"""

from dataclasses import dataclass, field

from gpudeck.actions import Preview, Reply
from gpudeck.desired_state import InForce
from gpudeck.limits import LimitsNow
from gpudeck.wire import (
    MAX_SPANS,
    SPOKEN_VERSIONS,
    Ack,
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
    Span,
    Time,
    Welcome,
    WireError,
    decode_from_agent,
)

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
from .sample_seconds import SampleSecondAligner
from .sequence_ledger import SequenceLedger

PROBE_EVERY_S = 10.0
PROBE_SOON_S = 1.0
MAX_NODES = 5_000
MAX_STREAMS = 8
FULL_RETRY_S = 300.0
VERSION_RETRY_S = 3_600.0
QUARANTINE_S = 30.0
QUARANTINE_MOST_S = 600.0
TAKEN_RETRY_S = 30.0
OWN_PAUSE_S = 5.0


@dataclass(slots=True)
class AgentStream:
    """What came of one stream, and what of it is on disk."""

    ledger: SequenceLedger = field(default_factory=SequenceLedger)
    stored: SequenceLedger = field(default_factory=SequenceLedger)
    must_bring: bool = False  # something did not fit; the agent must bring it again
    applied: int = 0
    told: Ack | None = None  # on the connection that there is

    @property
    def acked(self) -> int:
        return self.stored.settled

    def settle(self, upto: int) -> None:
        self.ledger.settle(upto)
        self.stored.settle(upto)

    def ack(self) -> Ack:
        """Were there more gaps than fit, the agent would bring again what lies between older ones:
        that costs a little, and nothing is taken twice."""
        spans = tuple(Span(*each) for each in self.stored.spans(MAX_SPANS))
        return Ack(self.stored.settled, spans)


@dataclass(slots=True)
class AgentLinkState:
    """One agent's connection."""

    node_id: str
    stream: str
    probe_id: int = 0
    probed_mono: float = -1e9
    is_probing: bool = False


@dataclass(slots=True)
class NodeQuarantine:
    until_mono: float
    times: int


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
        self.streams: dict[str, dict[str, AgentStream]] = {}  # node id -> stream -> what came of it
        self.links: dict[str, AgentLinkState] = {}
        self.link_of: dict[str, str] = {}  # node id -> link
        self.quarantined: dict[str, NodeQuarantine] = {}
        self.takeovers: dict[str, TakeoverCounter] = {}
        self.counts: dict[str, int] = {}
        self.events = RecentEvents()
        self.disk_error: str | None = None
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

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- agents

    def _said(self, said: MessageReceived, now: float, mono: float) -> list[Effect]:
        link = self.links.get(said.link)
        if link is None:
            if not isinstance(said.message, Hello):
                raise WireError("the first message must be Hello")
            return self._hello(said.link, said.message, said.payload, now, mono)
        node = self.fleet.nodes[link.node_id]
        self.fleet.heard(node, now, mono)
        match said.message:
            case Frame() | Event():
                return self._sequenced(said.link, link, node, said.message, said.payload, now, mono)
            case Backfill():
                return self._backfill(said.link, link, node, said.message, now, mono)
            case Beat():
                self.fleet.beat(node, said.message, mono)
                self.streams[link.node_id][link.stream].settle(said.message.first_seq - 1)
                return [NodeReport(link.node_id, said.message)]
            case Echo():
                return self._echo(link, node, said.message, now, mono)
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
            self.count("refused")
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
        stream = self._stream(hello.node_id, hello.stream)
        stream.must_bring, stream.told = False, stream.ack()
        link = AgentLinkState(hello.node_id, hello.stream)
        self.links[at] = link
        self.link_of[hello.node_id] = at
        welcome = Welcome(max(set(hello.wire_versions) & set(SPOKEN_VERSIONS)), self.hub_id,
                          self.fence.epoch, now, stream.told.seq, stream.told.spans)
        return [*effects, SendMessage(at, welcome), self._probe(at, link, now, mono),
                StreamRecord(hello.node_id, hello.stream, 0, now, payload, False, hello),
                LogMessage("agent connected", {"node": hello.node_id, "host": hello.host,
                                               "acked": welcome.acked_seq}),
                NodeJoined(hello.node_id)]

    def _taken_over(self, former: str, node_id: str, now: float) -> list[Effect]:
        """A node that comes back before we saw it go; or two that have the same key."""
        self.count("taken_over")
        taken = self.takeovers.setdefault(node_id, TakeoverCounter())
        taken.count, taken.last_at = taken.count + 1, now
        told = Refused("another agent has this node's key and took over; if there are two, its "
                       "data folder was copied: delete agent.key in one and enrol that one anew",
                       TAKEN_RETRY_S)
        return [SendMessage(former, told),
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
        held = self.quarantined.get(hello.node_id)
        if held is not None and mono < held.until_mono:
            return Refused("this node sent more than it may; try again later",
                           held.until_mono - mono)
        if not set(hello.wire_versions) & set(SPOKEN_VERSIONS):
            spoken = ", ".join(map(str, SPOKEN_VERSIONS))
            return Refused(f"this hub speaks wire version {spoken}; update the older side",
                           VERSION_RETRY_S)
        if hello.node_id not in self.fleet.nodes and len(self.fleet.nodes) >= MAX_NODES:
            return Refused(f"this hub holds {MAX_NODES} nodes and takes no more", FULL_RETRY_S)
        return None

    def _stream(self, node_id: str, name: str) -> AgentStream:
        streams = self.streams.setdefault(node_id, {})
        stream = streams.pop(name, None) or AgentStream()
        streams[name] = stream  # last: the one in use
        while len(streams) > MAX_STREAMS:
            del streams[next(iter(streams))]
        return stream

    def _sequenced(self, at: str, link: AgentLinkState, node: Node, message: Sequenced,
                   payload: bytes,
                   now: float, mono: float) -> list[Effect]:
        stream = self.streams[link.node_id][link.stream]
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
        age_s = self.fleet.age_s(node, message.taken_at, now, mono)
        if abs(age_s) > FUTURE_S and mono - link.probed_mono > PROBE_SOON_S:
            effects.append(self._probe(at, link, now, mono))
        return effects

    def _keep(self, node: Node, stream: str, event: Event, now: float, mono: float) -> None:
        """An agent whose clock is ahead does not stay on top of the list."""
        at = now - max(0.0, self.fleet.age_s(node, event.taken_at, now, mono))
        task = None if event.task_id is None else node.tasks.get(event.task_id)
        self.events.add(FleetEvent(node.hello.node_id, stream, at,
                                   None if task is None else task.user, event))

    def _backfill(self, at: str, link: AgentLinkState, node: Node, backfill: Backfill, now: float,
                  mono: float) -> list[Effect]:
        """Of a time without us: to disk, and past the picture."""
        stream = self.streams[link.node_id][link.stream]
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
        age_s = max(0.0, self.fleet.age_s(node, message.taken_at, now, mono))
        seconds = self._seconds.setdefault((node.hello.node_id, is_backfill), SampleSecondAligner())
        return max(1, min(int(now), seconds.of(now - age_s)))

    def _echo(self, link: AgentLinkState, node: Node, echo: Echo, now: float,
              mono: float) -> list[Effect]:
        if link.is_probing and echo.probe_id == link.probe_id:
            link.is_probing = False
            self.fleet.clock(node, echo.agent_at, link.probed_mono, now, mono)
        return []

    def _probe(self, at: str, link: AgentLinkState, now: float, mono: float) -> SendMessage:
        link.probe_id += 1
        link.probed_mono = mono
        link.is_probing = True
        return SendMessage(at, Probe(link.probe_id, now))

    def _left(self, at: str) -> list[Effect]:
        link = self.links.pop(at, None)
        if link is None:
            return []
        if self.link_of.get(link.node_id) == at:
            del self.link_of[link.node_id]
            self.fleet.disconnected(self.fleet.nodes[link.node_id])
        return [LogMessage("agent gone", {"node": link.node_id})]

    def _over_rate(self, event: RateExceeded, mono: float) -> list[Effect]:
        self.count("over_rate")
        link = self.links.get(event.link)
        if link is None:
            return [CloseLink(event.link, f"more {event.what} than allowed")]
        held = self.quarantined.get(link.node_id)
        times = 1 if held is None else held.times + 1
        wait_s = min(QUARANTINE_MOST_S, QUARANTINE_S * 2 ** min(times - 1, 8))
        self.quarantined[link.node_id] = NodeQuarantine(mono + wait_s, times)
        reason = f"this node sent more {event.what} than it may"
        return [SendMessage(event.link, Refused(reason, wait_s)), CloseLink(event.link, reason),
                LogMessage("agent quarantined", {"node": link.node_id, "why": event.what,
                                                 "seconds": wait_s}),
                *self._left(event.link)]

    # -- disk

    def _stored(self, records: tuple[StreamRecord, ...]) -> list[Effect]:
        recovered = self.disk_error is not None
        self.disk_error = None
        touched: dict[tuple[str, str], AgentStream] = {}
        for record in records:
            stream = self.streams.get(record.node_id, {}).get(record.stream)
            if record.seq and stream is not None:
                stream.stored.note(record.seq)
                touched[record.node_id, record.stream] = stream
        effects: list[Effect] = []
        for (node_id, name), stream in touched.items():
            effects += self._ack(node_id, name, stream)
        if recovered:
            effects += self._ask_again()
        return effects

    def _ack(self, node_id: str, name: str, stream: AgentStream) -> list[Effect]:
        at = self.link_of.get(node_id)
        if at is None or self.links[at].stream != name:
            return []
        ack = stream.ack()
        if ack == stream.told:
            return []
        stream.told = ack
        return [SendMessage(at, ack)]

    def _not_stored(self, event: StorageFailed) -> list[Effect]:
        first = self.disk_error is None
        self.disk_error = event.reason
        for record in event.dropped:
            stream = self.streams.get(record.node_id, {}).get(record.stream)
            if record.seq and stream is not None:
                stream.must_bring = True
                stream.ledger.forget(record.seq)
        return [LogMessage("disk refuses", {"why": event.reason})] if first else []

    def _ask_again(self) -> list[Effect]:
        """The disk is back: those whose messages were dropped connect anew and bring them again."""
        closes = [CloseLink(at, "the disk was full; bring again what was not acked")
                  for node_id, at in self.link_of.items()
                  if any(stream.must_bring for stream in self.streams[node_id].values())]
        return [LogMessage("disk is back", {}), *closes]

    # -- time

    def _tick(self, mono: float) -> list[Effect]:
        gap_s = 0.0 if self._ticked_mono is None else mono - self._ticked_mono
        self._ticked_mono = mono
        effects: list[Effect] = []
        if gap_s > OWN_PAUSE_S:
            self.count("own_pauses")
            self.fleet.forgive(gap_s)
            effects.append(LogMessage("the hub itself stood still", {"seconds": round(gap_s, 1)}))
        effects += [_node_note(node_id, state) for node_id, state in self.fleet.tick(mono)]
        return effects

    def probes(self, now: float, mono: float) -> list[Effect]:
        return [self._probe(at, link, now, mono) for at, link in self.links.items()
                if mono - link.probed_mono >= PROBE_EVERY_S]

    # -- start

    def recover(self, record: StreamRecord) -> FromAgent:
        """One message from disk, in the order in which it had come; it may be there twice."""
        message = decode_from_agent(record.payload)
        self._recover(record, message)
        return message

    def _recover(self, record: StreamRecord, message: FromAgent) -> None:
        if isinstance(message, Hello):
            self.fleet.hello(message, record.received_at, 0.0)
            self._stream(message.node_id, message.stream)
            return
        node = self.fleet.nodes.get(record.node_id)
        if node is None:
            return
        if isinstance(message, Inventory):
            self.fleet.inventory(node, message)
        elif isinstance(message, Frame | Event):
            stream = self._stream(record.node_id, record.stream)
            stream.stored.note(message.seq)
            if not stream.ledger.note(message.seq):
                return
            node.heard_at = record.received_at
            if isinstance(message, Event):
                self._keep(node, record.stream, message, record.received_at, 0.0)
            elif node.hello.stream == record.stream and not record.is_backfill:
                self.fleet.frame(node, message, record.received_at, 0.0)

    def recovered(self, now: float, mono: float) -> None:
        self.fleet.recovered(now, mono)
        for streams in self.streams.values():
            for stream in streams.values():
                stream.ledger.duplicates = 0
                stream.applied = 0


def _node_note(node_id: str, state: NodeState) -> LogMessage:
    return LogMessage("node is " + state, {"node": node_id})

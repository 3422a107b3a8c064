"""The one owner of the hub's state: events in, pure core, effects out.

It runs inside the hub's one gevent thread and never yields, so that no event sees another half
done. Time comes in with the event: `now` UTC seconds, `mono` monotonic seconds.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from gpudeck.contract import wire

from ..history.ingest.headlog import CARRIED, HeadLogEntry
from . import effects, imported, sites
from .agent_inbox import AgentInbox, excess_of_tasks
from .agent_messages import AgentLinkState, Effects
from .agent_streams import AgentStreams, Streams
from .epoch_fence import EpochFence
from .events import FleetEvent, RecentEvents
from .fleet import Fleet, Node
from .members import REVOKED, REVOKED_RETRY_S, TakeoversView
from .node_budget import NodeAllowances
from .quarantine import QUARANTINE_MOST_S, NodeQuarantines, NodeRefusal
from .sample_seconds import SampleTick

PROBE_EVERY_S = 10.0
MAX_NODES = 5_000
FULL_RETRY_S = 300.0
VERSION_RETRY_S = 3_600.0
TAKEN_RETRY_S = 30.0
OWN_PAUSE_S = 5.0
OWN_STREAM = "hub"  # of Events that the hub itself tells of a node

EventHandler = Callable[[Any, float, float], Effects]


class FleetStateMachine:
    def __init__(self, hub_id: str, epoch: int, mono: float = 0.0) -> None:
        self.hub_id = hub_id
        self.fleet = Fleet(epoch)
        self.fence = EpochFence(epoch, mono)
        self.streams = AgentStreams()
        self.links: dict[str, AgentLinkState] = {}
        self.link_of: dict[str, str] = {}  # node id -> link
        self.takeovers: dict[str, TakeoversView] = {}
        self.counts: dict[str, int] = defaultdict(int)
        self.events = RecentEvents()
        self._quarantines = NodeQuarantines()
        self.allowances = NodeAllowances()
        self._inbox = AgentInbox(self.fleet, self.allowances, self.events, self.counts,
                                 self._over_rate)
        self._ticked_mono: float | None = None
        self._events = self._event_table()
        self._messages = self._inbox.handlers
        self.ticks = self._inbox.ticks  # by which the next hub cuts seconds as this one

    def handle(self, event: effects.HubEvent, now: float, mono: float) -> Effects:
        return self._events[type(event)](event, now, mono)

    def _event_table(self) -> Mapping[type, EventHandler]:
        return {
            effects.MessageReceived: self._receive,
            effects.Tick: lambda event, now, mono: self._tick(mono),
            effects.LinkClosed: lambda event, now, mono: self._link_closed(event.link),
            effects.RevokeNode: lambda event, now, mono: self._revoke(event.node_id, now),
            effects.RateExceeded: self._over_rate,
            effects.RecordsStored: lambda event, now, mono: self._stored(event.records),
            effects.StorageFailed: lambda event, now, mono: self._not_stored(event),
            effects.ArchiveGrown: lambda event, now, mono: self._archived(event),
            effects.ArchiveJoined: lambda event, now, mono: self._join_archive(event),
            effects.RecordingImported: lambda event, now, mono: imported.import_recording(
                self.fleet, self.streams, event, now, mono),
            effects.SitesViewed: lambda event, now, mono: sites.open_sites(self.fleet, event, now),
            effects.SiteHeard: lambda event, now, mono: sites.apply_news(
                self.fleet, event, now, mono),
            effects.SiteAway: lambda event, now, mono: sites.away(self.fleet, event, now),
        }

    def _revoke(self, node_id: str, now: float) -> Effects:
        at = self.link_of.get(node_id)
        self.fleet.dismiss(node_id, now)
        self.allowances.forget(node_id)
        return [] if at is None else self._turn_out(at, wire.Refused(REVOKED, REVOKED_RETRY_S))

    # -- agents

    def _receive(self, event: effects.MessageReceived, now: float, mono: float) -> Effects:
        link, message = self.links.get(event.link), event.message
        if link is None:
            if not isinstance(message, wire.Hello):
                raise wire.WireError("the first message must be Hello")
            return self._hello(event.link, message, event.payload, now, mono)
        link.node.hear(now, mono)
        return self._messages[type(message)](link, message, event.payload, now, mono)

    def _hello(self, at: str, hello: wire.Hello, payload: bytes, now: float, mono: float
               ) -> Effects:
        refusal = self._refusal(hello, mono)
        if refusal is not None:
            self.counts["refused"] += 1
            note = effects.LogMessage("agent refused",
                                      {"node": hello.node_id, "why": refusal.reason})
            # The log says already that it is in quarantine: it may knock as often as it likes.
            is_logged = self._quarantines.left_s(hello.node_id, mono) > 0
            return self._turn_out(at, refusal, *([] if is_logged else [note]))
        answer: Effects = []
        former = self.link_of.get(hello.node_id)
        if former is not None:
            answer += self._taken_over(former, hello.node_id, now)
        risen = self.fence.hello(hello.node_id, hello.epoch_seen, mono)
        if risen is not None:
            answer.append(effects.EpochRaised(risen))
        node = self.fleet.hello(hello, now, mono)
        stream = self.streams.open(hello.node_id, hello.stream)
        stream.must_bring, ack = False, stream.ack()
        stream.last_ack = ack
        link = self.links[at] = AgentLinkState(at, node, hello.stream, stream)
        self.link_of[hello.node_id] = at
        if excess := self.allowances.hellos(hello.node_id, mono):
            return [*answer, *self._over_rate(effects.RateExceeded(at, *excess), now, mono)]
        version = max(set(hello.wire_versions) & set(wire.SPOKEN_VERSIONS))
        welcome = wire.Welcome(version, self.hub_id, self.fence.epoch, now, ack.seq, ack.spans,
                               ack.archived)
        return [*answer, effects.SendMessage(at, welcome), link.probe(now, mono),
                effects.StreamRecord(hello.node_id, hello.stream, 0, now, payload, False, hello),
                effects.LogMessage("agent connected", {"node": hello.node_id, "host": hello.host,
                                                       "acked": welcome.acked_seq}),
                effects.NodeJoined(hello.node_id)]

    def _taken_over(self, former: str, node_id: str, now: float) -> Effects:
        """End the former link. The node came back before we saw it go; or two have the same key."""
        self.counts["taken_over"] += 1
        takeovers = self.takeovers.setdefault(node_id, TakeoversView(0, None))
        takeovers.count, takeovers.last_at = takeovers.count + 1, now
        refusal = wire.Refused(
            "another agent with this node's key took over; if there are two, the data folder "
            "was copied: delete agent.key in one and enrol that one again", TAKEN_RETRY_S)
        return [effects.SendMessage(former, refusal),
                effects.CloseLink(former, "another connection of this node took over"),
                effects.LogMessage("agent taken over", {"node": node_id, "times": takeovers.count}),
                *self._link_closed(former)]

    def _turn_out(self, at: str, refusal: wire.Refused, *notes: effects.LogMessage) -> Effects:
        return [effects.SendMessage(at, refusal), effects.CloseLink(at, refusal.reason), *notes,
                *self._link_closed(at)]

    def _refusal(self, hello: wire.Hello, mono: float) -> wire.Refused | None:
        wait_s = self._quarantines.left_s(hello.node_id, mono)
        if wait_s > 0:
            return wire.Refused("this node sent more than allowed; try again later", wait_s)
        if not set(hello.wire_versions) & set(wire.SPOKEN_VERSIONS):
            versions = ", ".join(map(str, wire.SPOKEN_VERSIONS))
            return wire.Refused(f"this hub speaks wire version {versions}; update the older side",
                           VERSION_RETRY_S)
        if hello.node_id not in self.fleet.nodes and len(self.fleet.nodes) >= MAX_NODES:
            return wire.Refused(f"this hub has the maximum of {MAX_NODES} nodes", FULL_RETRY_S)
        return None

    def _link_closed(self, at: str) -> Effects:
        link = self.links.pop(at, None)
        if link is None:
            return []
        if self.link_of.get(link.node_id) == at:
            del self.link_of[link.node_id]
            link.node.disconnect()
        return [effects.LogMessage("agent gone", {"node": link.node_id})]

    def _over_rate(self, event: effects.RateExceeded, now: float, mono: float) -> Effects:
        self.counts["over_rate"] += 1
        link = self.links.get(event.link)
        if link is None:
            return [effects.CloseLink(event.link, f"more {event.what} than allowed")]
        node, node_id, what = link.node, link.node_id, event.what
        why = f"it sent more than {event.bound}"
        wait_s = self._quarantines.add(node_id, mono)
        node.refusal = NodeRefusal(now + wait_s, mono + wait_s, why)
        refusal = wire.Refused(f"this node sent more {what} than allowed", wait_s)
        # Numbered by our clock: no number comes twice, also over a restart.
        note = wire.Event(int(now * 1_000), now, "node_refused", numbers={"seconds": wait_s},
                          text=f"refused for {wait_s:.0f} s: {why}")
        self._inbox.keep(node, OWN_STREAM, note, now, mono)
        return [effects.StreamRecord(node_id, OWN_STREAM, note.seq, now, wire.encode(note),
                                     False, note),
                *self._turn_out(link.at, refusal, effects.LogMessage(
                    "agent quarantined", {"node": node_id, "why": what, "seconds": wait_s}))]

    # -- disk

    def _stored(self, records: tuple[effects.StreamRecord, ...]) -> Effects:
        recovered = self.fleet.disk_error is not None
        self.fleet.disk_error = None
        answer: Effects = []
        for (node_id, name), stream in self.streams.stored(records).items():
            at = self.link_of.get(node_id)
            if (at is not None and self.links[at].stream == name
                    and (ack := stream.new_ack()) is not None):
                answer.append(effects.SendMessage(at, ack))
        if recovered:
            # Those whose messages were dropped reconnect and bring them again.
            answer += [effects.LogMessage("disk is writable again", {}), *(
                effects.CloseLink(at, "the disk was full; send unacknowledged messages again")
                for node_id, at in self.link_of.items() if self.streams.must_bring(node_id))]
        return answer

    def _archived(self, event: effects.ArchiveGrown) -> Effects:
        self.streams.note_archived(event.streams)
        return []

    def _join_archive(self, event: effects.ArchiveJoined) -> Effects:
        self.streams.join(event.streams)
        return [effects.CloseLink(at, "earlier messages can be sent now")
                for node_id, at in self.link_of.items() if self.streams.must_bring(node_id)]

    def _not_stored(self, event: effects.StorageFailed) -> Effects:
        first = self.fleet.disk_error is None
        self.fleet.disk_error = event.reason
        self.streams.dropped(event.dropped)
        return [effects.LogMessage("disk refuses", {"why": event.reason})] if first else []

    # -- time

    def _tick(self, mono: float) -> Effects:
        gap_s = 0.0 if self._ticked_mono is None else mono - self._ticked_mono
        self._ticked_mono = mono
        answer: Effects = []
        if gap_s > OWN_PAUSE_S:
            self.counts["own_pauses"] += 1
            self.fleet.forgive(gap_s)
            answer.append(effects.LogMessage("the hub itself was suspended",
                                             {"seconds": round(gap_s, 1)}))
        answer += [effects.LogMessage(f"node is {state}", {"node": node_id})
                   for node_id, state in self.fleet.tick(mono)]
        return answer

    def probes(self, now: float, mono: float) -> Effects:
        return [link.probe(now, mono) for link in self.links.values()
                if mono - link.probed_mono >= PROBE_EVERY_S]

    # -- start

    def recover(self, record: HeadLogEntry | effects.StreamRecord) -> wire.FromAgent:
        """Apply a message from disk, in the order of arrival; it may be there twice."""
        message = wire.decode_from_agent(record.payload)
        node = self.fleet.nodes.get(record.node_id)
        is_news = record.received_at > self.allowances.known_until
        if isinstance(message, wire.Hello):
            self.fleet.hello(message, record.received_at, 0.0)
            self.streams.open(message.node_id, message.stream)
            if is_news:
                self.allowances.hellos(record.node_id, record.received_at)
        elif isinstance(message, wire.Inventory) and node is not None:
            new = self.fleet.new_names(record.node_id, message.gpus) if is_news else 0
            self.allowances.names(record.node_id, "GPUs", new, record.received_at)
            self.fleet.inventory(node, message)
        elif isinstance(message, wire.Frame | wire.Event) and node is not None:
            stream = self.streams.open(record.node_id, record.stream)
            if record.second == CARRIED:  # what an earlier segment had, which may be lost
                return message
            stream.stored.note(message.seq)
            if not stream.ledger.note(message.seq):
                return message
            node.heard_at = record.received_at
            if isinstance(message, wire.Frame) and record.second > 0:
                self._inbox.note_tick(record.node_id, SampleTick(message.taken_at, record.second))
            if is_news:
                excess_of_tasks(self.allowances, self.fleet, node, message, record.received_at)
                self.allowances.past(record.node_id, int(record.is_backfill), record.received_at)
            if isinstance(message, wire.Event):
                self._inbox.keep(node, record.stream, message, record.received_at, 0.0)
            elif node.hello.stream == record.stream and not record.is_backfill:
                self.fleet.frame(node, message, record.received_at, 0.0)
        return message

    def begin_from_archive(self, streams: Streams, ticks: Mapping[str, tuple[float, int]]) -> None:
        """Begin with what is archived alone, before `recover`: all that came later is lost here,
        whatever checkpoints say."""
        self.streams.begin_from_archive(streams)
        for node_id, tick in ticks.items():
            self._inbox.note_tick(node_id, SampleTick(*tick))

    def recovered(self, now: float, mono: float) -> None:
        self.fleet.recovered(now, mono)
        self.streams.begin_counts()
        self.allowances.shift(mono - now, mono)
        for entry in self.events:
            if entry.stream == OWN_STREAM and entry.event.kind == "node_refused":
                _refused_before(entry, self._quarantines, self.fleet.nodes.get(entry.node_id), now,
                                mono)


def _refused_before(entry: FleetEvent, quarantines: NodeQuarantines, node: Node | None, now: float,
                    mono: float) -> None:
    """Restore a refusal: a restart of the hub lets in nobody early."""
    event = entry.event
    wait_s = event.numbers.get("seconds", 0.0)
    if not 0.0 < wait_s <= QUARANTINE_MOST_S:
        return  # not the hub's own word: a node chooses the name of its stream
    left_s = min(event.taken_at - now, 0.0) + wait_s
    quarantines.restore(entry.node_id, mono + left_s)
    if left_s > 0 and node is not None and node.refused_s(mono) < left_s:
        node.refusal = NodeRefusal(now + left_s, mono + left_s, event.text.partition(": ")[2])

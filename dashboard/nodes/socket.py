"""The socket endpoint for agents: decode once, ask for the proof, take identity from the
connection alone, hand to the fleet's state machine."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gevent

from gpudeck.contract import wire
from gpudeck.network.websocket import CloseCode, WebSocketViolationError
from gpudeck.rate import RateLimiter, TokenBucket

from ..access.policy import may
from ..errors import SignerUnavailableError
from ..fleet.effects import HubEvent, LinkClosed, MessageReceived, RateExceeded
from ..runtime.state_store import StateUnavailableError
from ..settings import HubSettings
from ..web.bounded_socket import BoundedServer, BoundedSocket, bytes_of_event, event_frame
from ..web.http_server import ClientConnection
from .backfills import PER_LINK, BackfillQueue
from .enrolment import EnrolmentService, KeyProofError

log = logging.getLogger("gpudeck.nodes")

BURST_S = 10
PACE_PER_S = 200.0
BAD_MESSAGE_RETRY_S = 30.0
TOO_MUCH_RETRY_S = 30.0
SEQUENCED = (wire.Frame, wire.Event)
CLOSED_WITHIN_S = 0.5  # whether or not the other side reads on


@dataclass(slots=True)
class AgentLink:
    peer: BoundedSocket
    connection: ClientConnection
    messages: TokenBucket
    size: TokenBucket
    pace: TokenBucket
    since_mono: float
    address: str
    challenge: wire.Challenge | None = None  # sent, and not answered yet
    is_proven: bool = False
    backlog_to: int = 0  # the last number that the agent had given out by its Hello
    newest: int = 0


class AgentEndpoint:
    """`challenge`: how the hub proves itself to a node; raises SignerUnavailableError."""

    def __init__(self, server: BoundedServer, settings: HubSettings, nodes: EnrolmentService,
                 challenge: Callable[[wire.Call], wire.Challenge],
                 submit: Callable[[HubEvent], None], is_disk_well: Callable[[], bool]) -> None:
        self.backfills = BackfillQueue(self._take_backfill, is_disk_well)
        self._settings = settings
        self._nodes = nodes
        self._challenge = challenge
        self._submit = submit
        self._links: dict[str, AgentLink] = {}
        self._refusals = RateLimiter()
        # On the server itself: Flask-SocketIO's decorator makes a request context per event and
        # costs 3 to 4 times as much.
        server.on("connect", self._connect, namespace=wire.NAMESPACE)
        server.on(wire.EVENT, self._wire, namespace=wire.NAMESPACE)
        server.on("disconnect", self._disconnect, namespace=wire.NAMESPACE)
        server.on("*", _unknown_event, namespace=wire.NAMESPACE)

    def _connect(self, sid: str, environ: dict[str, Any], _auth: Any = None) -> bool:
        if may(environ.get("gpudeck.actor"), f"{wire.NAMESPACE} connect", None,
               time.time()) is not None:
            return False
        mono = time.monotonic()
        per_s, bytes_per_s = self._settings.agent_messages_per_s, self._settings.agent_bytes_per_s
        self._links[sid] = AgentLink(
            environ["gpudeck.socket"], environ["gpudeck.connection"],
            TokenBucket(per_s, per_s * BURST_S, mono),
            TokenBucket(bytes_per_s, bytes_per_s * BURST_S, mono),
            TokenBucket(PACE_PER_S, PACE_PER_S, mono),
            mono, environ["gpudeck.address"])
        return True

    def _disconnect(self, sid: str, _reason: str = "") -> None:
        self.backfills.drop_link(sid)
        if self._links.pop(sid, None) is not None:
            self._submit(LinkClosed(sid))

    def _wire(self, sid: str, *arguments: Any) -> None:
        if len(arguments) != 1 or type(arguments[0]) is not bytes:
            raise WebSocketViolationError(CloseCode.INVALID_DATA,
                                          "one message in bytes is expected")
        self._take(sid, self._links[sid], arguments[0])

    def _take_directly(self, sid: str, packet: bytes) -> bool:
        """Take a message without the layers of Socket.IO, which cost more than all its checks."""
        link, payload = self._links.get(sid), bytes_of_event(packet, wire.EVENT, wire.NAMESPACE)
        if link is None or payload is None:
            return False
        self._take(sid, link, payload)
        return True

    def _take(self, sid: str, link: AgentLink, payload: bytes) -> None:
        try:
            message = wire.decode_from_agent(payload)
            if link.is_proven and isinstance(message, wire.Backfill):
                self._queue_backfill(sid, message, len(payload))
            elif link.is_proven:
                if self._is_within_rate(sid, link, message, len(payload)):
                    self._submit(MessageReceived(sid, message, payload))
            else:
                self._handshake(sid, link, message, payload)
        except wire.WireError as error:
            self.send(sid, wire.Refused(str(error)[:1024], BAD_MESSAGE_RETRY_S))
            raise WebSocketViolationError(CloseCode.INVALID_DATA, str(error)) from error

    def _queue_backfill(self, sid: str, message: wire.Backfill, size: int) -> None:
        """Queue it, to be taken at our pace when its turn comes."""
        if self.backfills.is_full:
            self._refuse(sid, "too many messages at once", TOO_MUCH_RETRY_S)
        elif not self.backfills.put(sid, message, size):
            self._submit(RateExceeded(sid, "backfills",
                                      f"{PER_LINK} backfills that wait for their receipt"))

    def _take_backfill(self, sid: str, part: wire.Backfill) -> None:
        if sid not in self._links:
            return
        try:
            self._submit(MessageReceived(sid, part, b""))
        except wire.WireError as error:
            log.warning("bad_backfill why=%r", str(error))
            self._refuse(sid, str(error), BAD_MESSAGE_RETRY_S)

    def _refuse(self, sid: str, why: str, retry_s: float) -> None:
        self.send(sid, wire.Refused(why[:1024], retry_s))
        self.close(sid, why[:120])

    def _handshake(self, sid: str, link: AgentLink, message: wire.FromAgent, payload: bytes
                   ) -> None:
        """Accept Call and Hello, each once, and nothing else before the proof."""
        match message:
            case wire.Call() if link.challenge is None:
                try:
                    link.challenge = self._challenge(message)
                except SignerUnavailableError as error:
                    raise WebSocketViolationError(CloseCode.TRY_AGAIN,
                                                  "the hub cannot prove itself now"
                                                  ) from error
                self.send(sid, link.challenge)
            case wire.Hello() if link.challenge is not None:
                self._prove(sid, link, link.challenge, message)
                if link.is_proven:
                    self._submit(MessageReceived(sid, message, payload))
            case _:
                raise wire.WireError("the first messages are Call and Hello, each once")

    def _prove(self, sid: str, link: AgentLink, challenge: wire.Challenge,
               hello: wire.Hello) -> None:
        try:
            refusal = self._nodes.admit(challenge, hello, link.address)
        except KeyProofError as error:
            raise WebSocketViolationError(CloseCode.POLICY, str(error)) from error
        except StateUnavailableError as error:
            raise WebSocketViolationError(CloseCode.TRY_AGAIN,
                                          "the hub cannot look up enrolments now") from error
        if refusal is not None:
            left_out = self._refusals.due(hello.node_id, time.monotonic())
            if left_out is not None:
                log.info("agent_refused node=%s host=%r why=%r left_out=%d", hello.node_id,
                         hello.host, refusal.reason, left_out)
            self.send(sid, refusal)
            self.close(sid, refusal.reason)
            return
        link.is_proven = True
        link.backlog_to = hello.last_seq
        link.connection.trust()
        link.peer.admit()
        link.peer.take_directly = partial(self._take_directly, sid)

    def _is_within_rate(self, sid: str, link: AgentLink, message: Any, size: int) -> bool:
        """An outage is made up for at our pace and is no offence: what counts against an agent is
        that it makes messages too fast, or repeats the same again and again."""
        mono = time.monotonic()
        fits = link.size.take(size, mono)
        if type(message) in SEQUENCED and self._is_due(link, message.seq, mono):
            if not link.pace.take(1, mono):
                link.peer.rest_s += 1 / PACE_PER_S
            if not fits:
                link.peer.rest_s += size / self._settings.agent_bytes_per_s
            return True
        if fits and link.messages.take(1, mono):
            return True
        what, most = (("messages", self._settings.agent_messages_per_s) if fits
                      else ("bytes", self._settings.agent_bytes_per_s))
        self._submit(RateExceeded(sid, what, f"{most:,} {what} a second"))
        return False

    def _is_due(self, link: AgentLink, seq: int, mono: float) -> bool:
        """Return whether it is new on this link, and not numbered ahead of what time allows."""
        if seq <= link.newest:
            return False
        link.newest = seq
        age_s = BURST_S + mono - link.since_mono
        return seq <= link.backlog_to + age_s * self._settings.agent_messages_per_s

    # -- effects

    def send(self, sid: str, message: wire.FromHub) -> None:
        link = self._links.get(sid)
        if link is not None:
            link.peer.push(event_frame(wire.EVENT, wire.encode(message), wire.NAMESPACE))

    def close(self, sid: str, reason: str) -> None:
        link = self._links.get(sid)
        if link is not None:
            link.peer.finish(CloseCode.POLICY, reason)
            gevent.spawn_later(CLOSED_WITHIN_S, link.peer.abort)

    @property
    def count(self) -> int:
        return len(self._links)


def _unknown_event(event: str, *_arguments: Any) -> None:
    raise WebSocketViolationError(CloseCode.POLICY, f"no event {event[:40]!r} here")

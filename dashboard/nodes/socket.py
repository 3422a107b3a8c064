"""The socket endpoint for agents: decode once, ask for the proof, take identity from the
connection alone, hand to the fleet's state machine."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gevent

from gpudeck.contract import wire
from gpudeck.network.websocket import CloseCode, WebSocketViolationError
from gpudeck.rate import RateLimiter

from ..access.policy import may
from ..errors import SignerUnavailableError
from ..fleet.effects import HubEvent, LinkClosed, MessageReceived, RateExceeded
from ..runtime.state_store import StateUnavailableError
from ..settings import HubSettings
from ..web.bounded_socket import BoundedServer, BoundedSocket, is_plain
from ..web.envelopes import event_frame
from ..web.http_server import ClientConnection, ServerCounters
from .agent_rate import AgentRate, Exceeded
from .backfills import PER_LINK, BackfillQueue
from .enrolment import EnrolmentService, KeyProofError
from .ingest.client import IngestClient

log = logging.getLogger("gpudeck.nodes")

BAD_MESSAGE_RETRY_S = 30.0
TOO_MUCH_RETRY_S = 30.0
CLOSED_WITHIN_S = 0.5  # whether or not the other side reads on


@dataclass(slots=True)
class AgentLink:
    peer: BoundedSocket
    connection: ClientConnection
    rate: AgentRate
    address: str
    challenge: wire.Challenge | None = None  # sent, and not answered yet
    is_proven: bool = False


class AgentEndpoint:
    """`challenge`: how the hub proves itself to a node; raises SignerUnavailableError."""

    def __init__(self, server: BoundedServer, settings: HubSettings, nodes: EnrolmentService,
                 challenge: Callable[[wire.Call], wire.Challenge],
                 submit: Callable[[HubEvent], None], is_disk_well: Callable[[], bool],
                 is_waiting: Callable[[], bool], counters: ServerCounters) -> None:
        """`is_waiting`: whether earlier messages wait, because the archive may have them."""
        self._ingest = IngestClient(settings, self, counters.add)
        self._counters = counters
        self.backfills = BackfillQueue(self._take_backfill,
                                       lambda: is_disk_well() and not is_waiting())
        self._is_waiting = is_waiting
        self._left_out: set[str] = set()  # links whose backfill had no room while it waited
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
        rate = AgentRate(self._settings.agent_messages_per_s, self._settings.agent_bytes_per_s,
                         mono, mono)
        self._links[sid] = AgentLink(environ["gpudeck.socket"], environ["gpudeck.connection"],
                                     rate, environ["gpudeck.address"])
        return True

    def _disconnect(self, sid: str, _reason: str = "") -> None:
        self.backfills.drop_link(sid)
        if self._links.pop(sid, None) is not None:
            self._submit(LinkClosed(sid))

    def _wire(self, sid: str, *arguments: Any) -> None:
        link = self._links[sid]
        if link.peer.is_ending:
            return
        if len(arguments) != 1 or type(arguments[0]) is not bytes:
            raise WebSocketViolationError(CloseCode.INVALID_DATA,
                                          "one message in bytes is expected")
        payload = arguments[0]
        try:
            message = wire.decode_from_agent(payload)
            if link.is_proven:
                self._take_live(sid, link, message, payload)
            else:
                self._handshake(sid, link, message, payload)
        except wire.WireError as error:
            self.send(sid, wire.Refused(str(error)[:1024], BAD_MESSAGE_RETRY_S))
            raise WebSocketViolationError(CloseCode.INVALID_DATA, str(error)) from error

    def _take_live(self, sid: str, link: AgentLink, message: wire.FromAgent, payload: bytes
                   ) -> None:
        if not isinstance(message, wire.Backfill) and (
                excess := link.rate.excess(message, len(payload), time.monotonic())):
            self._submit(RateExceeded(sid, excess.what, excess.most))
        else:
            self._take(sid, message, payload)
        link.peer.rest_s += link.rate.rest_s
        link.rate.rest_s = 0.0

    # -- from the ingest process

    def take_passed(self, sid: str, payload: bytes) -> None:
        """Take a message that the ingest process has decoded and found within the rate."""
        if is_open(self._links.get(sid)):
            try:
                self._take(sid, wire.decode_passed(payload), payload)
            except Exception as error:
                self._end_for(sid, error)

    def take_excess(self, sid: str, excess: Exceeded) -> None:
        if is_open(self._links.get(sid)):
            try:
                self._submit(RateExceeded(sid, excess.what, excess.most))
            except Exception as error:
                self._end_for(sid, error)

    def _end_for(self, sid: str, error: Exception) -> None:
        """End the one connection whose message failed."""
        if isinstance(error, wire.WireError):
            self._counters.add("violations")
            log.warning("closed peer=%s reason=%r", sid, str(error))
            self.send(sid, wire.Refused(str(error)[:1024], BAD_MESSAGE_RETRY_S))
            self.close(sid, str(error)[:120], CloseCode.INVALID_DATA)
        else:
            # A bug of ours, shown whole: this connection's end, not the hub's.
            log.error("handler failed peer=%s", sid, exc_info=error)
            self._counters.add("handler_failures")
            self.close(sid, "the hub failed on this message", CloseCode.GOING_AWAY)

    def _take(self, sid: str, message: wire.FromAgent, payload: bytes) -> None:
        if type(message) is wire.Call or type(message) is wire.Hello:
            # The state machine takes a Hello for proved, once it has ended the connection itself.
            raise wire.WireError("Call and Hello are said once")
        if type(message) is wire.Backfill:
            self._queue_backfill(sid, message, len(payload))
        else:
            self._submit(MessageReceived(sid, message, payload))

    def _queue_backfill(self, sid: str, message: wire.Backfill, size: int) -> None:
        """Queue it, to be taken at our pace when its turn comes."""
        if self.backfills.is_full and self._is_waiting():
            self._left_out.add(sid)  # what is live comes all the same
        elif self.backfills.is_full:
            self._refuse(sid, "too many messages at once", TOO_MUCH_RETRY_S)
        elif not self.backfills.put(sid, message, size):
            self._submit(RateExceeded(sid, "backfills",
                                      f"{PER_LINK} backfills that wait for their receipt"))

    def take_waiting(self) -> None:
        """Take what has waited; who found no room for it connects again and brings it."""
        left_out, self._left_out = self._left_out, set()
        for sid in left_out & self._links.keys():
            self.close(sid, "earlier messages can be sent now")
        self.backfills.wake.set()

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
        link.rate.backlog_to = hello.last_seq
        link.connection.trust()
        link.peer.admit()
        if is_plain(link.peer.sock):
            link.peer.hand_over = lambda: self._ingest.hand_over(sid, link.peer, link.rate)

    # -- effects

    def send(self, sid: str, message: wire.FromHub) -> None:
        link = self._links.get(sid)
        if link is not None:
            link.peer.push(event_frame(wire.EVENT, wire.encode(message), wire.NAMESPACE))

    def close(self, sid: str, reason: str, code: CloseCode = CloseCode.POLICY) -> None:
        link = self._links.get(sid)
        if link is not None:
            link.peer.finish(code, reason)
            gevent.spawn_later(CLOSED_WITHIN_S, link.peer.abort)

    # -- the ingest process

    def step(self, _now: float, mono: float) -> None:
        self._ingest.step(mono, len(self._links))

    def end_ingest(self) -> None:
        self._ingest.close()

    @property
    def count(self) -> int:
        return len(self._links)


def is_open(link: AgentLink | None) -> bool:
    """Return whether a connection goes on; of one that is about to end many messages are on their
    way then."""
    return not (link is None or link.peer.is_ending)


def _unknown_event(event: str, *_arguments: Any) -> None:
    raise WebSocketViolationError(CloseCode.POLICY, f"no event {event[:40]!r} here")

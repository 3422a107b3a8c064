"""State of a proven agent's socket, with the bounds that web/bounded_socket.py and nodes/socket.py
have for those that the hub serves itself. Pure: bytes in; messages, and frames to send, out."""

from collections import deque

from gpudeck.contract import wire
from gpudeck.network.websocket import (
    CloseCode,
    Message,
    Opcode,
    WebSocketReader,
    WebSocketViolationError,
    close_frame,
    frame,
)
from gpudeck.rate import TokenBucket

from ...web.envelopes import (
    DISCONNECT,
    EVENT,
    decode_envelope,
    event_frame,
    one_argument,
)
from ..agent_rate import AgentRate
from .messages import LinkEnded, RateNews, Received, SocketGiven

QUEUE_FRAMES = 256
FINISH_WITHIN_S = 30.0
CLOSED_WITHIN_S = 1.0  # whether or not the other side reads on
BAD_MESSAGE_RETRY_S = 30.0
PING = frame(b"2", Opcode.TEXT)
PONG, CLOSE = "3", "1"


class AgentSocketState:
    """State of one agent's socket."""

    __slots__ = ("_bucket", "_has_exceeded", "_inside_since_mono", "_most_unanswered_s",
                 "_ping_every_s", "_pinged_mono", "_reader", "closing_mono", "end", "heard_mono",
                 "link", "queue", "queued_mono", "rate")

    def __init__(self, order: SocketGiven, messages_per_s: int, bytes_per_s: int, mono: float
                 ) -> None:
        self.link = order.link
        self.rate = AgentRate(messages_per_s, bytes_per_s, order.since_mono, mono,
                              order.backlog_to, order.newest)
        self.queue: deque[bytes] = deque()
        self.queued_mono = mono  # since when the first frame of the queue waits
        # Since when nothing is read any more; it ends when the queue is sent, or soon.
        self.closing_mono: float | None = None
        self.end = LinkEnded(order.link, "closed")
        self.heard_mono = order.heard_mono
        self._reader = WebSocketReader(order.most_bytes)
        self._bucket = TokenBucket(order.messages_per_s, order.messages_burst, mono)
        self._ping_every_s, self._most_unanswered_s = order.ping_every_s, order.stall_s
        self._pinged_mono, self._inside_since_mono = order.pinged_mono, mono
        self._has_exceeded = False  # the hub ends it for that

    @property
    def is_closing(self) -> bool:
        return self.closing_mono is not None

    # -- reading

    def feed(self, data: bytes, mono: float, received: Received) -> None:
        """Take what came, and add what of it is for the hub to `received`."""
        was_inside = self._reader.is_inside
        try:
            for message in self._reader.feed(data):
                was_inside = False
                if isinstance(message, tuple):
                    self._control(*message, mono)
                else:
                    self._take(message, mono, received)
                if self.is_closing:
                    return
        except WebSocketViolationError as violation:
            self.finish(close_frame(violation.code, violation.reason),
                        LinkEnded(self.link, violation.reason, "violations"), mono)
        if not was_inside:
            self._inside_since_mono = mono

    def _control(self, opcode: Opcode, payload: bytes, mono: float) -> None:
        self._spend(mono)
        if opcode == Opcode.PING:
            self.push(frame(payload, Opcode.PONG), mono)
        elif opcode == Opcode.CLOSE:
            self.finish(close_frame(CloseCode.NORMAL, ""), self.end, mono)

    def _spend(self, mono: float) -> None:
        if not self._bucket.take(1, mono):
            raise WebSocketViolationError(CloseCode.POLICY, "more messages than allowed")

    def _take(self, message: Message, mono: float, received: Received) -> None:
        self._spend(mono)
        if not message:
            raise WebSocketViolationError(CloseCode.INVALID_DATA, "an empty packet")
        if isinstance(message, bytes):
            self._take_packet(message, mono, received)
        elif message == PONG:
            self.heard_mono = mono
        elif message == CLOSE:
            self.finish(close_frame(CloseCode.NORMAL, ""), self.end, mono)
        else:
            raise WebSocketViolationError(CloseCode.POLICY,
                                          "not an engine.io packet that is accepted here")

    def _take_packet(self, packet: bytes, mono: float, received: Received) -> None:
        if (payload := one_argument(packet, wire.EVENT, wire.NAMESPACE)) is not None:
            self._take_payload(payload, mono, received)
            return
        envelope = decode_envelope(packet)
        if envelope.type == DISCONNECT:
            self.finish(close_frame(CloseCode.NORMAL, ""), self.end, mono)
            return
        if envelope.type != EVENT or envelope.nsp != wire.NAMESPACE:
            raise WebSocketViolationError(CloseCode.POLICY, "it is connected already")
        event, *arguments = envelope.data
        if event != wire.EVENT:
            raise WebSocketViolationError(CloseCode.POLICY, f"no event {event[:40]!r} here")
        if len(arguments) != 1 or type(arguments[0]) is not bytes:
            raise WebSocketViolationError(CloseCode.INVALID_DATA,
                                          "one message in bytes is expected")
        self._take_payload(arguments[0], mono, received)

    def _take_payload(self, payload: bytes, mono: float, received: Received) -> None:
        try:
            message = wire.decode_from_agent(payload)
        except wire.WireError as error:
            self.push(event_frame(wire.EVENT, wire.encode(
                wire.Refused(str(error)[:1024], BAD_MESSAGE_RETRY_S)), wire.NAMESPACE), mono)
            raise WebSocketViolationError(CloseCode.INVALID_DATA, str(error)) from error
        if self._has_exceeded:
            return
        # How many Backfills may wait is for the hub to know, which has them.
        if not isinstance(message, wire.Backfill) and (
                excess := self.rate.excess(message, len(payload), mono)):
            self._has_exceeded = True
            received.news.append(RateNews(self.link, excess.what, excess.most))
        else:
            received.messages.append((self.link, payload))

    # -- sending

    def push(self, encoded: bytes, mono: float) -> None:
        if self.is_closing:
            return
        if not self.queue:
            self.queued_mono = mono
        self.queue.append(encoded)
        if len(self.queue) > QUEUE_FRAMES:
            self.cut("too_slow", mono)

    def finish(self, farewell: bytes, end: LinkEnded, mono: float) -> None:
        """Send what is queued, say why, close."""
        if not self.is_closing:
            self.push(farewell, mono)
            self.end, self.closing_mono = end, mono

    def cut(self, offence: str, mono: float) -> None:
        """Close without a word: the other side takes none. Why it is closing already stays."""
        self.queue.clear()
        if not self.is_closing:
            self.end, self.closing_mono = LinkEnded(self.link, offence, offence), mono

    # -- time

    def tick(self, mono: float) -> None:
        """Ping it when that is due; close it where it does not answer, or does not read."""
        if self.closing_mono is not None:
            if mono - self.closing_mono > CLOSED_WITHIN_S:
                self.queue.clear()
        elif self.queue and mono - self.queued_mono > self._most_unanswered_s:
            self.cut("too_slow", mono)
        elif why := self._overdue(mono):
            self.finish(close_frame(CloseCode.POLICY, why),
                        LinkEnded(self.link, why, "overdue"), mono)
        elif mono - self._pinged_mono >= self._ping_every_s:
            self._pinged_mono = mono
            self.push(PING, mono)

    def _overdue(self, mono: float) -> str | None:
        if mono - self.heard_mono > self._most_unanswered_s:
            return "does not answer"
        if self._reader.is_inside and mono - self._inside_since_mono > FINISH_WITHIN_S:
            return "a message that does not end"
        return None

    def forgive(self, gap_s: float) -> None:
        """Give back a silence that was ours, as this process itself stood still."""
        self.heard_mono += gap_s
        self.queued_mono += gap_s
        self._inside_since_mono += gap_s

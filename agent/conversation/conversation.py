"""Conversation with the hub: the link's events in, messages to their handlers, and out what the
link's state machine and the capabilities send."""

import logging
import random
import time
from collections.abc import Callable

from gpudeck.contract import wire

from ..capability import Handlers, NodeCore
from ..link.admission import ConnectLimiter
from ..link.protocol import CloseConnection, LinkStateMachine, OpenConnection, SendToHub
from ..link.socket import ConnectionClosed, ConnectionOpened, HubLink, MessageReceived
from ..telemetry.latest_sample import LatestSample

log = logging.getLogger("gpudeck.agent.conversation")

WARN_EVERY_S = 60.0
# A Hello names the driver's version, so a first reading is awaited this long.
FIRST_CALL_WITHIN_S = 3.0
TURN_S = (0.1, 0.5)  # between attempts, with many nodes in one process
# Messages by which a connection comes about. All others count over a live one alone.
BEFORE_LIVE = (wire.Challenge, wire.Welcome, wire.Refused)


class HubConversation:
    def __init__(self, core: NodeCore, link: HubLink, machine: LinkStateMachine,
                 handlers: Handlers, unknown: "UnknownMessageLog", latest: LatestSample,
                 beat: Callable[[], wire.Beat], welcomed: Callable[[], None],
                 limiter: ConnectLimiter | None) -> None:
        """`welcomed`: called for each connection that has come about. `limiter`: of the nodes of
        one process."""
        self._core = core
        self._link = link
        self._machine = machine
        self._handlers = handlers
        self._unknown = unknown
        self._latest = latest
        self._beat = beat
        self._welcomed = welcomed
        self._limiter = limiter
        self._reader = latest.state.reader
        self._driver_version = latest.driver_version
        self._welcomes = machine.welcomes
        self._warned_of, self._warned_at = "", 0.0
        machine.hold_until(time.monotonic() + FIRST_CALL_WITHIN_S)

    @property
    def is_live(self) -> bool:
        return self._machine.phase == "live"

    @property
    def status(self) -> str:
        """Return the state of the connection, as `systemctl status` shows it."""
        url, trouble = self._link.url, self._machine.trouble
        if not url:
            return "without a hub"
        if self.is_live:
            return f"connected to {url}"
        return f"no connection to {url}: {trouble}" if trouble else f"connecting to {url}"

    def next_step_at(self, now: float) -> float:
        """Return when `step` is to be called again if nothing happens before."""
        return self._machine.next_step_at(now)

    def receive(self, now: float) -> None:
        """Take what has happened on the link since the last turn."""
        for event in self._link.events():
            match event:
                case ConnectionOpened():
                    self._machine.opened(now)
                case ConnectionClosed(why, denied):
                    self._machine.closed(now, why, denied)
                case MessageReceived(message):
                    self._dispatch(message, now)
        if self._machine.welcomes != self._welcomes:
            self._welcomes = self._machine.welcomes
            self._welcomed()
            self._warned_of = ""
            self._unknown.clear()
            log.info("connected hub=%s pending=%d", self._link.url, self._core.outbox.pending)

    def step(self, now: float) -> None:
        """Go on with the connection, once the readings of this turn are in the outbox."""
        self._note_readings(now)
        if self.is_live:
            self._record_drops(now)
        self._limit_connects(now)
        for act in self._machine.step(now, self._beat):
            match act:
                case SendToHub(body):
                    self._link.say(body)
                case OpenConnection():
                    self._link.dial()
                case CloseConnection():
                    self._link.hang_up()

    def send(self, message: wire.FromAgent) -> None:
        self._link.say(wire.encode(message))

    def end_turn(self, now: float) -> None:
        self._link.acks_wake = self._machine.is_filling
        self._warn_disconnected(now)

    def close(self) -> None:
        closing = self._link.hang_up()
        if closing is not None:
            closing.join(timeout=0.5)

    def _dispatch(self, message: wire.FromHub, now: float) -> None:
        self._machine.note_message(now)
        if self.is_live or isinstance(message, BEFORE_LIVE):
            self._handlers[type(message)](message, now)

    def _note_readings(self, now: float) -> None:
        """Call, or call again, when there is something new that belongs in the Hello."""
        before, self._reader = self._reader, self._latest.state.reader
        if before == "starting" and self._reader != "starting":
            self._machine.hold_until(now)
        if self._latest.driver_version != self._driver_version:
            self._driver_version = self._latest.driver_version
            self._machine.renew(now, "the driver's version changed")

    def _record_drops(self, now: float) -> None:
        event = self._core.outbox.drop_event(now, time.time())
        if event is not None:
            log.warning("outbox_dropped %s", event.text)
            self._core.outbox.append([event], now)

    def _limit_connects(self, now: float) -> None:
        limiter, name, machine = self._limiter, self._core.host, self._machine
        if limiter is None:
            return
        if self.is_live or (machine.phase == "resting" and machine.trouble):
            limiter.leave(name)
        is_due = machine.phase == "resting" and machine.next_step_at(now) <= now
        if is_due and not limiter.admits(name):
            machine.hold_until(now + random.uniform(*TURN_S))

    def _warn_disconnected(self, now: float) -> None:
        """Log why there is no connection: one line per reason and minute, not one per attempt."""
        trouble, outbox = self._machine.trouble, self._core.outbox
        if not trouble:
            return
        if trouble != self._warned_of or now - self._warned_at >= WARN_EVERY_S:
            self._warned_of, self._warned_at = trouble, now
            log.warning("no_connection hub=%s why=%r pending=%d dropped=%d; trying again",
                        self._link.url, trouble, outbox.pending, outbox.dropped)


class UnknownMessageLog:
    """Logs once per type and connection: a hub that was taken over must not fill this node's
    log."""

    def __init__(self) -> None:
        self._lines: set[str] = set()

    def clear(self) -> None:
        """Begin again, on a new connection."""
        self._lines.clear()

    def log_newer(self, message: wire.UnknownMessage, now: float) -> None:
        self._log(f"hub_newer ignored={message.type!r} why='this agent is older than the hub'")

    def log_older(self, message: wire.Ignored, now: float) -> None:
        self._log(f"hub_older ignores={message.what!r} why='the hub is older than this agent; "
                  "upgrade the hub'")

    def _log(self, line: str) -> None:
        if line not in self._lines and len(self._lines) < wire.MAX_UNKNOWN_TYPES:
            self._lines.add(line)
            log.warning("%s", line)

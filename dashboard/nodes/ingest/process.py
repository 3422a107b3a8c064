"""The ingest process: serves the sockets of proven agents, so that the hub is woken a hundred times
a second at most, however many agents send.

It speaks with the hub that started it, on the one socket that it inherited, and ends with it. It
decides nothing: it bounds, decodes and passes on. Who an agent is, what its messages mean, and what
is acknowledged, is the hub's.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable

import msgspec

from gpudeck.network.websocket import CloseCode, close_frame

from .link import AgentSocketState
from .messages import (
    Delivery,
    Farewell,
    FrameBuffer,
    LinkEnded,
    Order,
    Received,
    SocketGiven,
    decode_orders,
    framed,
)

READABLE = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR
RECEIVE_BYTES = 65_536
DESCRIPTORS_AT_ONCE = 16
TICK_S = 0.5
# Between two looks at the agents' sockets: longer than their messages need to come together, and
# shorter than a person notices. What the hub sends does not wait for it.
REST_S = 0.01
OWN_PAUSE_S = 2.0
FLUSH_BYTES = 1_000_000
# The hub reads no more: neither do we, so that the agents wait with what they have.
MOST_WAITING_BYTES = 16_000_000
FAILED = close_frame(CloseCode.GOING_AWAY, "the hub failed on this message")


class HubGoneError(Exception):
    """The hub closed its end, or never spoke this protocol."""


class HubLink:
    """The socket to the hub."""

    def __init__(self, hub: socket.socket) -> None:
        hub.setblocking(False)
        self._socket = hub
        self._orders = FrameBuffer()
        self._descriptors: list[int] = []
        self._waiting = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def orders(self) -> list[Order]:
        """Return what the hub has sent since the last time."""
        orders: list[Order] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                data, descriptors, _, _ = socket.recv_fds(self._socket, RECEIVE_BYTES,
                                                          DESCRIPTORS_AT_ONCE)
                self._descriptors += descriptors
                if not data:
                    raise HubGoneError
                for body in self._orders.feed(data):
                    orders += decode_orders(body)
        return orders

    def next_descriptor(self) -> int:
        """Return the descriptor that came with the next SocketGiven: they come in one order."""
        if not self._descriptors:
            raise HubGoneError
        return self._descriptors.pop(0)

    def send(self, received: Received) -> None:
        self._waiting += framed(received)
        self.flush()

    def flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._waiting:
                sent_bytes = self._socket.send(memoryview(self._waiting)[:RECEIVE_BYTES * 4])
                del self._waiting[:sent_bytes]

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        return len(self._waiting) > MOST_WAITING_BYTES


class AgentSocket:
    """An agent's socket, its state, and what the loop asks the kernel about it."""

    __slots__ = ("events", "resting_until_mono", "socket", "state")

    def __init__(self, descriptor: int, state: AgentSocketState) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self.socket.setblocking(False)
        self.state = state
        self.resting_until_mono = 0.0
        self.events = select.EPOLLIN

    @property
    def is_due(self) -> bool:
        """Return whether there is more to do than to wait for its next message, as after most."""
        state = self.state
        return bool(state.queue or state.is_closing or self.resting_until_mono
                    or self.events != select.EPOLLIN)

    def wanted_events(self) -> int:
        reads = not (self.state.is_closing or self.resting_until_mono)
        return (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if self.state.queue else 0)


class IngestLoop:
    """`clock` is monotonic."""

    def __init__(self, hub: HubLink, messages_per_s: int, bytes_per_s: int,
                 clock: Callable[[], float]) -> None:
        self._hub = hub
        self._messages_per_s, self._bytes_per_s = messages_per_s, bytes_per_s
        self._clock = clock
        self._agents: dict[int, AgentSocket] = {}  # by descriptor
        self._descriptors: dict[int, int] = {}  # by link
        self._resting: set[int] = set()
        self._received, self._received_bytes = Received([], []), 0
        self._epoll = select.epoll()
        self._epoll.register(hub, select.EPOLLIN)
        self._hub_alone = select.poll()
        self._ticked_mono = clock()

    def run(self) -> None:
        while True:
            events = self._epoll.poll(REST_S if self._resting else TICK_S)
            mono = self._clock()
            self._forgive(mono)
            for descriptor, event in events:
                if (agent := self._agents.get(descriptor)) is not None:
                    self._serve(agent, event, mono)
                elif descriptor == self._hub.fileno():
                    self._take_orders(mono)
            self._tick(mono)
            self._pass_on()
            self._wait_for_hub()

    def _wait_for_hub(self) -> None:
        """Leave the agents alone for a moment, so that one look finds many messages; and for as
        long as the hub reads nothing."""
        while True:
            self._hub_alone.register(self._hub, select.POLLIN | (
                select.POLLOUT if self._hub.waits else 0))
            if self._hub_alone.poll(TICK_S * 1e3 if self._hub.is_full else REST_S * 1e3):
                self._hub.flush()
                self._take_orders(self._clock())
            if not self._hub.is_full:
                return

    def _forgive(self, mono: float) -> None:
        if (gap_s := mono - self._ticked_mono) > OWN_PAUSE_S:
            for agent in self._agents.values():
                agent.state.forgive(gap_s)

    # -- the hub

    def _take_orders(self, mono: float) -> None:
        for order in self._hub.orders():
            match order:
                case SocketGiven():
                    self._add(order, mono)
                case Delivery(link, frame):
                    if agent := self._agent(link):
                        agent.state.push(frame, mono)
                        self._send(agent, mono)
                case Farewell(link, frame):
                    if agent := self._agent(link):
                        agent.state.finish(frame, agent.state.end, mono)
                        self._send(agent, mono)

    def _agent(self, link: int) -> AgentSocket | None:
        return self._agents.get(self._descriptors.get(link, -1))

    def _add(self, order: SocketGiven, mono: float) -> None:
        descriptor = self._hub.next_descriptor()
        state = AgentSocketState(order, self._messages_per_s, self._bytes_per_s, mono)
        agent = self._agents[descriptor] = AgentSocket(descriptor, state)
        self._descriptors[order.link] = descriptor
        self._epoll.register(descriptor, agent.events)

    def _pass_on(self) -> None:
        if self._received.messages or self._received.news:
            self._hub.send(self._received)
            self._received = Received([], [])
        self._received_bytes = 0

    # -- the agents

    def _serve(self, agent: AgentSocket, event: int, mono: float) -> None:
        if event & READABLE:
            self._read(agent, mono)
        if agent.is_due:
            self._send(agent, mono)

    def _read(self, agent: AgentSocket, mono: float) -> None:
        try:
            data = agent.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            agent.state.cut("", mono)
            return
        if agent.state.is_closing:
            return
        try:
            agent.state.feed(data, mono, self._received)
        except Exception:
            # A bug of ours, shown whole: this connection's end, not that of all agents.
            traceback.print_exc()
            agent.state.finish(FAILED, LinkEnded(agent.state.link, "failed", "handler_failures"),
                               mono)
        self._received_bytes += len(data)
        if agent.state.rate.rest_s:
            agent.resting_until_mono = mono + agent.state.rate.rest_s
            agent.state.rate.rest_s = 0.0
            self._resting.add(agent.socket.fileno())
        if self._received_bytes > FLUSH_BYTES:
            self._pass_on()

    def _send(self, agent: AgentSocket, mono: float) -> None:
        """Send what waits, as far as the kernel takes it, and watch for what is still to do."""
        state = agent.state
        try:
            while state.queue:
                frame = state.queue[0]
                sent_bytes = agent.socket.send(frame)
                state.queued_mono = mono
                if sent_bytes < len(frame):
                    state.queue[0] = frame[sent_bytes:]
                else:
                    state.queue.popleft()
        except BlockingIOError:
            pass
        except OSError:
            state.cut("", mono)
        if state.is_closing and not state.queue:
            self._close(agent)
        elif (events := agent.wanted_events()) != agent.events:
            agent.events = events
            self._epoll.modify(agent.socket, events)

    def _close(self, agent: AgentSocket) -> None:
        descriptor = agent.socket.fileno()
        del self._agents[descriptor], self._descriptors[agent.state.link]
        self._resting.discard(descriptor)
        self._epoll.unregister(descriptor)
        with contextlib.suppress(OSError):  # the hub has a descriptor of it, too
            agent.socket.shutdown(socket.SHUT_RDWR)
        agent.socket.close()
        self._received.news.append(agent.state.end)

    def _tick(self, mono: float) -> None:
        for descriptor in [descriptor for descriptor in self._resting
                           if self._agents[descriptor].resting_until_mono <= mono]:
            self._resting.discard(descriptor)
            self._agents[descriptor].resting_until_mono = 0.0
            self._send(self._agents[descriptor], mono)
        if mono - self._ticked_mono < TICK_S:
            return
        self._ticked_mono = mono
        for agent in list(self._agents.values()):
            agent.state.tick(mono)
            if agent.is_due:
                self._send(agent, mono)
        self._hub.send(Received([], []))  # so that the hub sees that we are there


def main(words: list[str]) -> int:
    descriptor, messages_per_s, bytes_per_s = map(int, words)
    # Ctrl-C is for the hub; this process ends after it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as hub:
        try:
            IngestLoop(HubLink(hub), messages_per_s, bytes_per_s, time.monotonic).run()
        except (HubGoneError, ConnectionError):
            return 0
        except (ValueError, msgspec.MsgspecError) as error:
            print(f"gpudeck ingest: ended by an invalid message: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    # Nothing of it is worth the time that an orderly end of the interpreter takes.
    os._exit(main(sys.argv[1:]))

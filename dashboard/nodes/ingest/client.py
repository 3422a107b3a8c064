"""The hub's end of the ingest process: starts it, hands sockets over, takes what agents sent."""

import logging
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import gevent
import msgspec
from gevent import socket as gsocket
from gevent.event import Event

from gpudeck.system.child_processes import importable

from ...settings import HubSettings
from ...web.bounded_socket import BoundedSocket, RemoteEnd
from ..agent_rate import AgentRate, Exceeded
from .messages import (
    Delivery,
    Farewell,
    FrameBuffer,
    LinkEnded,
    Order,
    RateNews,
    SocketGiven,
    decode_received,
    framed,
    next_batch,
)

log = logging.getLogger("gpudeck.nodes")

MODULE = f"{__package__}.process"
RECEIVE_BYTES = 262_144
BUSY_S = 0.005
MOST_WAITING = 100_000  # orders that it does not take: it hangs
SILENT_STEPS = 8  # of a second each, without a sign of life
AGAIN_AFTER_S, AGAIN_MOST_S = 1.0, 60.0
STEADY_S = 60.0


class AgentReceiver(Protocol):
    """Receiver of what agents send."""

    def take_passed(self, sid: str, payload: bytes) -> None: ...

    def take_excess(self, sid: str, excess: Exceeded) -> None: ...


class IngestClient:
    """Client of the ingest process, which runs while at least `settings.ingest_process_from` agents
    are connected. Without it the hub serves the sockets itself."""

    def __init__(self, settings: HubSettings, receiver: AgentReceiver,
                 count: Callable[[str], None]) -> None:
        self._settings = settings
        self._receiver = receiver
        self._count = count
        self._process: subprocess.Popen[bytes] | None = None
        self._link: gsocket.socket | None = None
        self._agents: dict[int, tuple[str, BoundedSocket]] = {}  # their session ids
        self._orders: deque[tuple[Order, int | None]] = deque()
        self._wake = Event()
        self._last_link = 0
        self._silent_steps = 0
        self._started_mono = self._start_mono = -1e9
        self._wait_s = AGAIN_AFTER_S

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def count(self) -> int:
        return len(self._agents)

    # -- the process

    def step(self, mono: float, agents: int) -> None:
        """Start it where there are agents enough, and end it where it hangs."""
        if self._process is not None:
            self._silent_steps += 1
            if self._process.poll() is not None:
                self._lose(f"status {self._process.returncode}", mono)
            elif self._silent_steps > SILENT_STEPS or len(self._orders) > MOST_WAITING:
                self._lose("it does not answer", mono)
        if (self._process is None and 0 < self._settings.ingest_process_from <= agents
                and mono >= self._start_mono):
            self._start(mono)

    def _start(self, mono: float) -> None:
        try:
            own_end = self._start_process()
        except OSError as error:  # no memory, no descriptor, no process left
            log.warning("ingest_not_started why=%r", str(error))
            self._start_later(mono, is_steady=False)
            return
        self._link, self._started_mono, self._silent_steps = own_end, mono, -SILENT_STEPS
        gevent.spawn(self._read, own_end)
        gevent.spawn(self._write, own_end)
        log.info("ingest_started pid=%s", self.pid)

    def _start_process(self) -> gsocket.socket:
        own_end, other_end = gsocket.socketpair()
        with other_end:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", MODULE, str(other_end.fileno()),
                     str(self._settings.agent_messages_per_s),
                     str(self._settings.agent_bytes_per_s)],
                    pass_fds=[other_end.fileno()], env=_environment(), stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL)
            except OSError:
                own_end.close()
                raise
        return own_end

    def _start_later(self, mono: float, is_steady: bool) -> None:
        self._wait_s = AGAIN_AFTER_S if is_steady else min(self._wait_s * 2, AGAIN_MOST_S)
        self._start_mono = mono + self._wait_s

    def _lose(self, why: str, mono: float) -> None:
        """Go on without it: the agents whose sockets it had come again by themselves."""
        if self._process is None:
            return
        self._count("ingest_ended")
        log.warning("ingest_ended why=%r agents=%d", why, len(self._agents))
        self.close()
        self._start_later(mono, is_steady=mono - self._started_mono > STEADY_S)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._link is not None:
            self._link.close()
        self._process = self._link = None
        for _, descriptor in self._orders:
            if descriptor is not None:
                os.close(descriptor)
        self._orders.clear()
        self._wake.set()
        agents, self._agents = self._agents, {}
        for _, peer in agents.values():
            _end_of(peer, "its socket's process ended")

    # -- sockets

    def hand_over(self, sid: str, peer: BoundedSocket, rate: AgentRate) -> RemoteEnd | None:
        """Hand over a socket on which nothing is under way; None: the hub goes on serving it."""
        if self._link is None:
            return None
        try:
            descriptor = os.dup(peer.sock.fileno())
        except OSError:  # as many as this process may have; each comes back when it is sent
            return None
        self._last_link += 1
        allowance = peer.allowance
        self._order(SocketGiven(
            self._last_link, allowance.max_bytes, allowance.messages_per_s,
            allowance.messages_burst, allowance.ping_every_s, allowance.stall_s, peer.heard_mono,
            peer.pinged_mono, rate.since_mono, rate.backlog_to, rate.newest), descriptor)
        self._agents[self._last_link] = sid, peer
        return HandedSocket(self, self._last_link)

    def order(self, order: Delivery | Farewell) -> None:
        if order.link in self._agents:
            self._order(order, None)

    def forget(self, link: int) -> None:
        self._agents.pop(link, None)

    def _order(self, order: Order, descriptor: int | None) -> None:
        self._orders.append((order, descriptor))
        self._wake.set()

    def _write(self, link: gsocket.socket) -> None:
        why = ""
        try:
            while self._link is link:
                self._wake.wait()
                self._wake.clear()
                while self._orders and self._link is link:
                    self._write_some(link)
        except OSError as error:
            why = str(error)
        if self._link is link:
            self._lose(why, time.monotonic())

    def _write_some(self, link: gsocket.socket) -> None:
        """Write orders up to the next that comes with a descriptor, or that one."""
        order, descriptor = self._orders[0]
        if descriptor is not None:
            self._orders.popleft()
            try:
                body = framed([order])
                sent_bytes = socket.send_fds(link, [body], [descriptor])
                link.sendall(body[sent_bytes:])
            finally:
                os.close(descriptor)
            return
        link.sendall(framed(next_batch(self._orders)))

    # -- what comes

    def _read(self, link: gsocket.socket) -> None:
        buffer = FrameBuffer()
        why = "it closed its end"
        try:
            while self._link is link and (data := link.recv(RECEIVE_BYTES)):
                for body in buffer.feed(data):
                    self._take(body)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            why = str(error)
        if self._link is link:
            self._lose(why, time.monotonic())

    def _take(self, body: bytes) -> None:
        received = decode_received(body)
        self._silent_steps = 0
        busy_until_mono = time.monotonic() + BUSY_S
        for link, payload in received.messages:
            if (agent := self._agents.get(link)) is not None:
                self._receiver.take_passed(agent[0], payload)
            if time.monotonic() > busy_until_mono:
                gevent.sleep(0)
                busy_until_mono = time.monotonic() + BUSY_S
        for news in received.news:
            if (agent := self._agents.get(news.link)) is None:
                continue
            sid, peer = agent
            if isinstance(news, RateNews):
                self._receiver.take_excess(sid, Exceeded(news.what, news.most))
            else:
                self._end(peer, news)

    def _end(self, peer: BoundedSocket, end: LinkEnded) -> None:
        if end.offence:
            self._count(end.offence)
            log.warning("closed peer=%s reason=%r", peer.sid, end.reason)
        self._agents.pop(end.link, None)
        _end_of(peer, end.reason)


class HandedSocket:
    """A socket that the ingest process serves."""

    def __init__(self, client: IngestClient, link: int) -> None:
        self._client = client
        self._link = link

    def send(self, encoded: bytes) -> None:
        self._client.order(Delivery(self._link, encoded))

    def finish(self, farewell: bytes) -> None:
        self._client.order(Farewell(self._link, farewell))

    def forget(self) -> None:
        self._client.forget(self._link)


def _end_of(peer: BoundedSocket, reason: str) -> None:
    if peer.handover is not None:
        peer.handover.end(reason)


def _environment() -> dict[str, str]:
    """Return only the variables that it needs to find its own code."""
    variables = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG")
                 if name in os.environ}
    return importable(__package__, variables)

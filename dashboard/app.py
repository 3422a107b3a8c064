"""Puts the hub together: the room in the middle, the edges around it. No logic of its own."""

import gc
import logging
import time
from dataclasses import dataclass
from typing import Any

import gevent
from flask import Flask, Response

from .api import add_api
from .auth import Auth, Gate, Site, policy
from .checkpoint import restore
from .compress import add_compression
from .http_server import Tally
from .hub import AGENT_BYTES, AgentEdge
from .live import LiveEdge
from .pages import build_pages
from .recorder import Recorder
from .room import Applied, Close, HubEvent, Note, Record, Room, Tell, Tick
from .settings import HubSettings
from .sign_in import add_sign_in
from .sockets import Allowance, BoundedSocketIO
from .state import State, secret

log = logging.getLogger("gpudeck.app")

TICK_S = 1.0
LAG_LIMIT_S = 2.0
COUNTS_EVERY_S = 60.0
VIEWER_BYTES = 4_096
# Its own Beat is what tells that an agent lives; this is for the library at its end.
AGENT_PING_S, AGENT_STALL_S = 25.0, 60.0


@dataclass(slots=True)
class Tokens:
    agent: str
    api: str


class Hub:
    """All parts of one running hub."""

    def __init__(self, settings: HubSettings, state: State, port: int) -> None:
        self.settings = settings
        self.state = state
        self.tally = Tally()
        self.tokens = Tokens(secret(settings.data / "agent.token"),
                             secret(settings.data / "api.token"))
        self.room = Room(state.hub_id(), state.next_epoch())
        self.recorder = Recorder(settings.data, state, self.room, self.submit)
        self._recover()
        self.auth = Auth(state, self.tokens.agent, self.tokens.api, f"gpudeck_session_{port}")
        self.site = Site.at(settings.bind[0], port)
        self.server = Flask("gpudeck", static_folder=None)
        self.socketio = BoundedSocketIO()
        self._ticked_mono = time.monotonic()
        self._build()

    def _recover(self) -> None:
        for checkpoint in self.state.nodes():
            restore(self.room, checkpoint)
        self.recorder.recover()
        self.room.recovered(time.time(), time.monotonic())

    def _build(self) -> None:
        add_sign_in(self.server, self.auth)
        add_api(self.server, self.room)
        self._add_health()
        add_compression(self.server)
        pages = build_pages(self.server)
        self.socketio.init_app(self.server, allowances=self._allowances(), tally=self.tally)
        content_policy = policy(pages.csp_hashes())
        self.agents = AgentEdge(self.socketio.server, self.settings, self.submit)
        self.live = LiveEdge(self.socketio.server, self.room, self.auth.holds)
        self.auth.on_end.append(self.live.end_session)
        self.wsgi = Gate(self.server.wsgi_app, self.auth, lambda: self.site,
                         lambda: content_policy)

    def _allowances(self) -> dict[str, Allowance]:
        stall_s = float(self.settings.viewer_stall_s)
        viewer = Allowance(VIEWER_BYTES, 20, 100, stall_s / 3, stall_s)
        # The agent edge counts what an agent says; this bounds what never gets that far.
        agent = Allowance(AGENT_BYTES, 2_000, 20_000, AGENT_PING_S, AGENT_STALL_S)
        return {"agent": agent, "person": viewer, "program": viewer}

    def _add_health(self) -> None:
        @self.server.get("/healthz")
        def healthz() -> Response:
            return Response("ok\n", mimetype="text/plain")

        @self.server.get("/readyz")
        def readyz() -> Response:
            why = self.unready()
            return Response("ok\n" if why is None else why + "\n", 200 if why is None else 503,
                            mimetype="text/plain")

    def unready(self) -> str | None:
        lag_s = time.monotonic() - self._ticked_mono - TICK_S
        if lag_s > LAG_LIMIT_S:
            return f"the loop lags by {lag_s:.1f} s"
        if self.room.disk_error is not None:
            return f"the disk takes nothing ({self.room.disk_error}); live goes on, acks wait"
        return None

    # -- events in, effects out

    def submit(self, event: HubEvent) -> None:
        for effect in self.room.handle(event, time.time(), time.monotonic()):
            self.perform(effect)

    def perform(self, effect: Any) -> None:
        match effect:
            case Record():
                self.recorder.put(effect)
            case Applied():
                self.live.applied(effect)
            case Tell():
                self.agents.tell(effect)
            case Close():
                self.agents.close(effect)
            case Note():
                log.info("%s %s", effect.what.replace(" ", "_"), fields(effect.fields))

    def run_tick(self) -> None:
        told: dict[str, int] = {}
        told_mono = self._ticked_mono
        while True:
            gevent.sleep(TICK_S)
            mono = time.monotonic()
            gap_s = mono - self._ticked_mono
            self._ticked_mono = mono
            if gap_s > 5 * TICK_S:
                self.socketio.engine.forgive(gap_s)
            self.submit(Tick())
            for effect in self.room.probes(time.time(), mono):
                self.perform(effect)
            self.socketio.engine.tick(mono)
            if mono - told_mono >= COUNTS_EVERY_S and (counts := self.counts()) != told:
                log.info("counts %s", fields(counts))
                told, told_mono = counts, mono

    def counts(self) -> dict[str, int]:
        """What was refused, cut or lost so far."""
        return self.tally.counts | self.room.counts

    def start(self) -> "list[gevent.Greenlet[..., Any]]":
        self._ticked_mono = time.monotonic()
        running = [gevent.spawn(self.run_tick), gevent.spawn(self.live.run),
                   gevent.spawn(self.recorder.run)]
        # What is here now stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        return running


def fields(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={_shown(value)}" for name, value in values.items())


def _shown(value: Any) -> str:
    """Text from nodes is hostile: no newline or control character reaches the log."""
    return repr(value) if isinstance(value, str) else str(value)

"""The hub's side of gpudeck/contract/wire.py over a real Socket.IO server; it stores, acks and
breaks."""

import contextlib
import random
import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec
import socketio
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from gpudeck.contract.action_table import TaskAction
from gpudeck.contract.actions import FINAL, ActionParams, Command, CommandActor, Preview, Reply
from gpudeck.contract.desired_state import (
    DesiredState,
    InForce,
    SignedDesired,
    desired_statement,
    encode_desired,
)
from gpudeck.contract.limits import LimitsNow
from gpudeck.contract.quota import Quota
from gpudeck.contract.wire import (
    EVENT,
    NAMESPACE,
    Ack,
    Backfill,
    Beat,
    Call,
    Challenge,
    Clock,
    Echo,
    Event,
    Frame,
    FromAgent,
    FromHub,
    Hello,
    Inventory,
    Look,
    Noted,
    Probe,
    Refused,
    SignedCommand,
    Span,
    Time,
    Welcome,
    command_statement,
    decode_from_agent,
    encode,
    encode_command,
    enrolment_statement,
    hub_statement,
    node_statement,
    preview_statement,
)
from gpudeck.network.keys import EnrolmentToken, SigningKey, fingerprint, is_signed
from tests.patience import GIVE_UP_S, pause_s


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class FakeHub:
    """Hub whose acked messages survive `crash`; those only received do not, as with a real one."""

    def __init__(self, ack_every: int = 1) -> None:
        self.key = SigningKey(secrets.token_bytes(32))
        self.tokens: dict[str, SigningKey] = {}  # given out, not used
        self.known_nodes: set[str] = set()
        self.strangers: list[Hello] = []  # proved their key, but are not known here
        self.ack_every = ack_every
        self.refuse: Refused | None = None
        self.silent = False  # a half-open connection: takes everything, says nothing
        self.messages: dict[str, dict[int, Frame | Event]] = defaultdict(dict)
        self.safe: dict[str, set[int]] = defaultdict(set)  # seqs that were acked
        self.below: dict[str, int] = defaultdict(int)  # what the agent has no more
        self.backfilled: list[int] = []
        self.arrived: list[tuple[str, int]] = []
        self.inventories: dict[int, Inventory] = {}
        self.hellos: list[Hello] = []
        self.beats: list[tuple[float, Beat]] = []
        self.echoes: list[Echo] = []
        self.limits: list[LimitsNow] = []
        self.attempts = 0
        self.epoch = 1
        self.ahead_s = 0.0  # of our clock
        self.tells_time = self.notes = True
        self.previews: dict[str, Preview] = {}
        self.replies: dict[str, list[Reply]] = defaultdict(list)
        self.in_force: list[InForce] = []
        self.broken: list[str] = []  # what the agent did against the contract
        self.break_after: Callable[[], int] | None = None
        self._countdown = 0
        self._sockets: set[socket.socket] = set()
        self._lock = threading.RLock()
        self._streams: dict[str, str] = {}
        self._challenges: dict[str, Challenge] = {}
        self._server: BaseWSGIServer | None = None
        self.port = 0
        self.start()

    def token(self) -> EnrolmentToken:
        token = EnrolmentToken.new(fingerprint(self.key.public))
        self.tokens[token.id] = SigningKey(token.seed)
        return token

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._sio = socketio.Server(
            async_mode="threading", serializer="msgpack", async_handlers=False,
            cors_allowed_origins=[], logger=False,
        )
        self._sio.on("connect", self._connected, namespace=NAMESPACE)
        self._sio.on(EVENT, self._received, namespace=NAMESPACE)
        app = socketio.WSGIApp(self._sio)
        self._server = make_server(
            "127.0.0.1", self.port, self._guard(app), threaded=True, request_handler=_Quiet
        )
        self._server.daemon_threads = True  # type: ignore[attr-defined]
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def crash(self) -> None:
        """End now, and forget what was not acked."""
        assert self._server is not None
        with self._lock:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
            self.drop_all()
            for stream, messages in self.messages.items():
                for seq in [seq for seq in messages if seq not in self.safe[stream]]:
                    del messages[seq]
        self._thread.join()

    def close(self) -> None:
        if self._server is not None:
            self.crash()

    def drop_all(self) -> None:
        """Cut every connection, whatever it is doing."""
        self._streams.clear()
        with contextlib.suppress(KeyError):  # none is left: a test and a connection may both pop
            while True:
                with contextlib.suppress(OSError):
                    self._sockets.pop().shutdown(socket.SHUT_RDWR)

    def probe(self, probe_id: int) -> None:
        for sid in list(self._streams):
            self._say(sid, Probe(probe_id, time.time()))

    # acts

    def look(self, task_id: str, action: TaskAction = "end", **params: Any) -> Preview:
        """Return the node's preview of what the action would hit."""
        ask_id = secrets.token_hex(8)
        self.tell(Look(ask_id, secrets.token_bytes(32), action, ActionParams(**params), task_id))
        preview: Preview = wait_for(lambda: self.previews.get(ask_id))
        return preview

    def order(self, preview: Preview | None, **changed: Any) -> Command:
        """Make a command as our signer would, with `changed` where a test wants it wrong."""
        now = time.time() + self.ahead_s
        command = Command(
            command_id=secrets.token_hex(16), node_id=self.hellos[-1].node_id, epoch=self.epoch,
            issued_at=now, expires_at=now + 25,
            nonce=secrets.token_bytes(32) if preview is None else preview.nonce,
            action="hold" if preview is None else preview.action,
            asker=CommandActor("person", "test"), reason="because of a test", preview=preview)
        return msgspec.structs.replace(command, **changed)

    def signed(self, command: Command) -> SignedCommand:
        body = encode_command(command)
        return SignedCommand(body, self.key.sign(command_statement(body)))

    def send(self, command: Command) -> str:
        self.tell(self.signed(command))
        return command.command_id

    def desired(self, generation: int, *quotas: Quota, **changed: Any) -> SignedDesired:
        """Sign a desired state as our signer would, with `changed` where a test wants it wrong."""
        desired = msgspec.structs.replace(
            DesiredState(self.hellos[-1].node_id, self.epoch, generation,
                         time.time() + self.ahead_s,
                         "default", quotas), **changed)
        body = encode_desired(desired)
        return SignedDesired(body, self.key.sign(desired_statement(body)))

    def reply(self, command_id: str, timeout_s: float = GIVE_UP_S) -> Reply:
        """Wait for the outcome: the newest reply to a command, once it is final."""
        def outcome() -> Reply | None:
            replies = sorted(self.replies[command_id], key=lambda reply: reply.number)
            return replies[-1] if replies and replies[-1].state in FINAL else None

        reply: Reply = wait_for(outcome, timeout_s)
        return reply

    def acting(self, command_id: str, words: str, timeout_s: float = GIVE_UP_S) -> None:
        wait_for(lambda: [reply for reply in self.replies[command_id] if words in reply.step],
                 timeout_s)

    def tell(self, message: FromHub) -> None:
        for sid in list(self._streams):
            self._say(sid, message)

    def seqs(self, stream: str) -> list[int]:
        return sorted(self.messages[stream])

    @property
    def stream(self) -> str:
        return self.hellos[-1].stream

    def _guard(self, app: Any) -> Any:
        def guarded(environ: dict[str, Any], start_response: Any) -> Any:
            self.attempts += environ["PATH_INFO"] != "/healthz"
            for header in ("HTTP_ORIGIN", "HTTP_AUTHORIZATION", "HTTP_COOKIE"):
                if header in environ:
                    self.broken.append(f"an agent sent {header}")
            if environ["PATH_INFO"] == "/healthz":  # werkzeug says the time
                start_response("200 OK", [("Content-Type", "text/plain")])
                return [b"ok\n"]
            self._sockets.add(environ["werkzeug.socket"])
            return app(environ, start_response)

        return guarded

    def _connected(self, sid: str, environ: dict[str, Any]) -> None:
        with self._lock:
            break_after = self.break_after  # a test may take it away at this very moment
            self._countdown = break_after() if break_after else -1

    def _received(self, sid: str, data: bytes) -> None:
        with self._lock:
            if self._server is not None:
                self._take(sid, decode_from_agent(data))

    def _take(self, sid: str, message: FromAgent) -> None:
        match message:
            case Call():
                self._challenge(sid, message)
            case Hello():
                self._meet(sid, message)
            case Inventory():
                self.inventories[message.generation] = message
            case Beat():
                self.beats.append((time.monotonic(), message))
                if sid in self._streams:
                    self.below[self._streams[sid]] = message.first_seq
            case LimitsNow():
                self.limits.append(message)
            case Echo():
                self.echoes.append(message)
            case Frame() | Event():
                self._keep(sid, message)
            case Backfill():
                self._keep_all(sid, message)
            case Clock() if self.tells_time:
                self._say(sid, Time(message.clock_id, time.time() + self.ahead_s))
            case InForce():
                self.in_force.append(message)
            case Preview():
                self.check_preview(message)
                self.previews[message.ask_id] = message
            case Reply():
                self.replies[message.command_id].append(message)
                if self.notes:
                    self._say(sid, Noted(message.command_id, message.number))

    def check_preview(self, preview: Preview) -> None:
        if fingerprint(preview.key) != preview.node_id or not is_signed(
                preview.key, preview_statement(preview), preview.signature):
            self.broken.append("a preview is not signed by its node")

    def _challenge(self, sid: str, call: Call) -> None:
        challenge = Challenge(secrets.token_bytes(32), "fake", self.key.public, self.epoch, b"")
        signature = self.key.sign(hub_statement(call, challenge))
        self._challenges[sid] = msgspec.structs.replace(challenge, signature=signature)
        self._say(sid, self._challenges[sid])

    def _meet(self, sid: str, hello: Hello) -> None:
        challenge = self._challenges.pop(sid)
        if not is_signed(hello.key, node_statement(challenge, hello), hello.signature) or (
                hello.node_id != fingerprint(hello.key)):
            self.broken.append("an agent did not prove its key")
        proof = hello.enrolment
        token = None if proof is None else self.tokens.get(proof.token_id)
        if hello.node_id not in self.known_nodes and proof is not None and token is not None and (
                is_signed(token.public, enrolment_statement(challenge, hello), proof.signature)):
            del self.tokens[proof.token_id]
            self.known_nodes.add(hello.node_id)
        if hello.node_id not in self.known_nodes:
            self.strangers.append(hello)
            self._say(sid, Refused("this hub does not know this node", 0.3))
            return
        self.hellos.append(hello)
        self._welcome(sid, hello.stream)

    def _welcome(self, sid: str, stream: str) -> None:
        if self.refuse is not None:
            self._say(sid, self.refuse)
            self._sio.disconnect(sid, namespace=NAMESPACE)
            return
        self._streams[sid] = stream
        self._say(sid, Welcome(1, "fake", self.epoch, time.time(), *self.has(stream)))

    def has(self, stream: str) -> tuple[int, tuple[Span, ...]]:
        """Return the fields of an Ack: the floor, and the spans above it."""
        floor = max(self.below[stream] - 1, 0)
        spans: list[Span] = []
        for seq in sorted(self.safe[stream]):
            if seq <= floor + 1:
                floor = max(floor, seq)
            elif spans and spans[-1].last == seq - 1:
                spans[-1] = Span(spans[-1].first, seq)
            else:
                spans.append(Span(seq, seq))
        return floor, tuple(spans[-64:])

    @property
    def acked(self) -> dict[str, int]:
        return {stream: self.has(stream)[0] for stream in list(self.safe)}

    def _keep_all(self, sid: str, backfill: Backfill) -> None:
        seqs = []
        for body in backfill.messages:
            message = decode_from_agent(body)
            assert isinstance(message, Frame | Event)
            seqs.append(message.seq)
            self._keep(sid, message)
        if seqs != sorted(set(seqs)):
            self.broken.append("a Backfill is not in order")
        self.backfilled += seqs

    def _keep(self, sid: str, message: Frame | Event) -> None:
        if sid not in self._streams:
            return
        stream = self._streams[sid]
        self.arrived.append((stream, message.seq))
        first = self.messages[stream].setdefault(message.seq, message)
        if first != message:
            self.broken.append(f"seq {message.seq} was given out twice")
        if isinstance(message, Frame) and message.generation not in self.inventories:
            self.broken.append(f"frame {message.seq} came before its inventory")
        self._countdown -= 1
        if self._countdown == 0:
            self.drop_all()
        elif len(self.arrived) % self.ack_every == 0:
            self.safe[stream] |= self.messages[stream].keys()
            self._say(sid, Ack(*self.has(stream)))

    def _say(self, sid: str, message: FromHub) -> None:
        if not self.silent:
            self._sio.emit(EVENT, encode(message), to=sid, namespace=NAMESPACE)


def wait_for(condition: Callable[[], Any], timeout_s: float = GIVE_UP_S) -> Any:
    """Return the first true answer; fail the test if there is none in time."""
    began = now = time.monotonic()
    while not (answer := condition()):
        assert now < began + timeout_s, "waited in vain"
        time.sleep(random.uniform(0.5, 1.0) * pause_s(now - began, time.monotonic() - now))
        now = time.monotonic()
    return answer

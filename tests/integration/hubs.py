"""A real hub process, and clients that speak to it over real sockets."""

import contextlib
import json
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
import socketio
import websocket

from dashboard.actions.hub_key import HubKey
from dashboard.fleet.members import NewEnrolment
from dashboard.nodes.enrolment import create
from dashboard.nodes.store import NodeStore
from dashboard.runtime.data_folder import secret
from dashboard.state import HubState
from gpudeck.contract.wire import (
    EVENT,
    NAMESPACE,
    Ack,
    Call,
    Challenge,
    Echo,
    Enrolment,
    Frame,
    FromAgent,
    FromHub,
    GpuFacts,
    Hello,
    Ignored,
    Inventory,
    Probe,
    Refused,
    Task,
    Tasks,
    Use,
    Welcome,
    decode_from_hub,
    encode,
    enrolment_statement,
    hub_statement,
    node_statement,
    pack,
)
from gpudeck.measures.metrics import WIDTH
from gpudeck.network.keys import EnrolmentToken, SigningKey, derived_seed, fingerprint, is_signed
from tests.forks import ForkedProcess, hubs
from tests.patience import GIVE_UP_S, pause_s

REPOSITORY = Path(__file__).resolve().parents[2]


def wait_for(condition: Callable[[], Any], within_s: float = GIVE_UP_S, why: str = "") -> Any:
    began = time.monotonic()
    while (now := time.monotonic()) < began + within_s:
        value = condition()
        if value:
            return value
        time.sleep(pause_s(now - began, time.monotonic() - now))
    raise AssertionError(f"not within {within_s} s: {why}")


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


class HubProcess:
    """A hub forked from a process that has imported it (tests/forks.py), for every test that does
    not want `StartedHub`."""

    constants: Mapping[str, object] = {}
    answers_within_s = GIVE_UP_S

    def __init__(self, folder: Path, port: int = 0, *flags: str,
                 constants: Mapping[str, object] | None = None) -> None:
        self.constants = self.constants if constants is None else constants
        self.folder = folder
        self.flags = flags
        self.port = port
        self.log = folder.parent / f"{folder.name}.log"
        self.peers: list[RawSocket | WireAgent] = []
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process and close its sockets, so that nothing outlives its test."""
        for peer in self.peers:
            peer.close()
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.kill()

    def start(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        # As `demo` and `up` do: an admin among programs.
        secret(self.folder / "api.token")
        (self.folder / "hub.json").unlink(missing_ok=True)
        self.process = self._begin(("hub", "--bind", f"127.0.0.1:{self.port}", "--data",
                                    str(self.folder), *self.flags))
        try:
            wait_for(self._ready, why="hub.json")
        except BaseException:
            self.kill()
            raise
        description = json.loads((self.folder / "hub.json").read_text())
        self.url: str = description["url"]
        self.sign_in_url: str = description["sign_in_url"]
        self.port = urlsplit(self.url).port or self.port  # a public URL may have none

    def _begin(self, arguments: tuple[str, ...]) -> "ForkedProcess | subprocess.Popen[bytes]":
        return ForkedProcess(hubs(), arguments, self.log, self.constants)

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return (self.folder / "hub.json").exists()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(10)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def children(self, word: str) -> list[int]:
        """Return the pids of its child processes with this word in their command line."""
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in pids.split()
                if word in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")]

    def token(self, **enrolment: Any) -> EnrolmentToken:
        """Create an enrolment token as `gpudeck token create agent` does."""
        [token] = self.tokens(1, **enrolment)
        return token

    def tokens(self, nodes: int, **enrolment: Any) -> list[EnrolmentToken]:
        state = HubState.open(self.folder)
        created = create(state.store(NodeStore), HubKey(self.folder).fingerprint,
                         [NewEnrolment(**enrolment)] * nodes, "the tests")
        state.close()
        return [token for token, _ in created]

    @property
    def api_token(self) -> str:
        return (self.folder / "api.token").read_text().strip()

    def ask(self, path: str, method: str = "GET", token: str | None = "api",
            body: bytes | None = None, **headers: str) -> Answer:
        words = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            words["Authorization"] = "Bearer " + (self.api_token if token == "api" else token)
        request = urllib.request.Request(self.url + path, body, words, method=method)
        try:
            with _opener.open(request, timeout=self.answers_within_s) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), error.read())

    def get(self, path: str) -> Any:
        answer = self.ask(path)
        assert answer.status == 200, (answer.status, answer.body)
        return answer.json

    def pss_bytes(self) -> int:
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return next(int(line.split()[1]) * 1024 for line in text.splitlines()
                    if line.startswith("Pss:"))

    def cpu_s(self) -> float:
        parts = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


class StartedHub(HubProcess):
    """A hub started by `python -m dashboard`, to measure the process or its start itself."""

    def _begin(self, arguments: tuple[str, ...]) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as log:
            return subprocess.Popen([sys.executable, "-m", "dashboard", *arguments],
                                    cwd=REPOSITORY, stdout=log, stderr=log)


def _csrf_in(cookies: str) -> str:
    """Return the token that a page reads from its cookies and sends again when it connects."""
    match = re.search(r"gpudeck_csrf_\w+=([^;]*)", cookies)
    return "" if match is None else match[1]


class RawSocket:
    """engine.io and Socket.IO by hand over a plain websocket: sends exactly what it is given."""

    def __init__(self, hub: HubProcess, namespace: str, token: str | None = None,
                 origin: str | None = None, cookie: str | None = None, host: str | None = None,
                 csrf: str | None = None) -> None:
        header = [] if token is None else [f"Authorization: Bearer {token}"]
        self.namespace = namespace
        self.ws = websocket.create_connection(
            f"ws://127.0.0.1:{hub.port}/socket.io/?EIO=4&transport=websocket",
            timeout=GIVE_UP_S, header=header, cookie=cookie, origin=origin,
            suppress_origin=origin is None, host=host)
        assert self.ws.sock is not None
        self.socket = self.ws.sock
        hub.peers.append(self)
        self.opened = json.loads(self.ws.recv()[1:])
        csrf = csrf if csrf is not None else _csrf_in(cookie or "")
        self.send({"type": 0, "nsp": namespace} | ({"data": {"csrf": csrf}} if csrf else {}))
        self.joined = self.receive()

    def send(self, packet: Any) -> None:
        self.ws.send_binary(msgspec.msgpack.encode(packet))

    def send_bytes(self, data: bytes) -> None:
        """Send these bytes past the websocket."""
        self.socket.sendall(data)

    def emit(self, event: str, *arguments: Any) -> None:
        self.send({"type": 2, "nsp": self.namespace, "data": [event, *arguments]})

    def receive(self, timeout_s: float = GIVE_UP_S) -> Any:
        """Return the next packet, decoded; None when the connection is closed."""
        self.ws.settimeout(timeout_s)
        while True:
            opcode, data = self.ws.recv_data(control_frame=True)
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                self.close_code = int.from_bytes(data[:2], "big")
                self.close_reason = data[2:].decode()
                return None
            if opcode == websocket.ABNF.OPCODE_BINARY:
                return msgspec.msgpack.decode(data)
            if data == b"2":
                self.ws.send("3")

    def event(self, name: str, within_s: float = GIVE_UP_S) -> Any:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            packet = self.receive(max(0.05, deadline - time.monotonic()))
            assert packet is not None, f"closed ({self.close_reason}) while waiting for {name}"
            if packet["type"] == 2 and packet["data"][0] == name:
                return packet["data"][1]
        raise AssertionError(f"no {name} within {within_s} s")

    def closed(self, within_s: float = GIVE_UP_S) -> tuple[int, str]:
        while self.receive(within_s) is not None:
            pass
        return self.close_code, self.close_reason

    def close(self) -> None:
        self.socket.close()


class Caller:
    """A node that identifies itself to the hub: its key, its Hello and its proof."""

    def __init__(self, name: str, **fields: Any) -> None:
        self.key = SigningKey(derived_seed(b"tests", name))
        self.node_id = fingerprint(self.key.public)
        self.call = Call(secrets.token_bytes(32))
        self.said = Hello((1,), self.key.public, b"", self.node_id, f"host-{name}", "boot-1",
                          f"{name}-stream", 0, "0.1", "simulated")
        self.said = msgspec.structs.replace(self.said, **fields)

    def hello(self, challenge: Challenge, token: EnrolmentToken | None = None) -> Hello:
        assert is_signed(challenge.hub_key, hub_statement(self.call, challenge),
                         challenge.signature)
        enrolment = None if token is None else Enrolment(
            token.id, SigningKey(token.seed).sign(enrolment_statement(challenge, self.said)))
        return msgspec.structs.replace(
            self.said, signature=self.key.sign(node_statement(challenge, self.said)),
            enrolment=enrolment)


def greet(raw: RawSocket, caller: Caller, token: EnrolmentToken | None = None) -> FromHub:
    """Identify a node by Call, Challenge and Hello; return the hub's answer."""
    raw.emit(EVENT, encode(caller.call))
    challenge = decode_from_hub(raw.event(EVENT))
    assert isinstance(challenge, Challenge)
    raw.emit(EVENT, encode(caller.hello(challenge, token)))
    return decode_from_hub(raw.event(EVENT))


def raw_agent(hub: HubProcess, name: str = "raw") -> RawSocket:
    """Return the socket of a node that the hub has welcomed."""
    raw = RawSocket(hub, NAMESPACE)
    answer = greet(raw, Caller(name), hub.token())
    assert isinstance(answer, Welcome), answer
    return raw


class WireAgent:
    """An agent as the contract describes it, with the outbox in the test's hand. python-socketio's
    own client carries it, as in the real agent."""

    def __init__(self, name: str, gpus: int = 2, seed: int | None = None) -> None:
        self.caller = Caller(name)
        self.node_id = self.caller.node_id
        self.stream = f"{name}-stream"
        self.random = random.Random(seed)
        self.facts = tuple(GpuFacts(f"GPU-{name}-{at}", at, "NVIDIA H100 80GB HBM3",
                                    mem_total_bytes=80e9, power_limit_w=700.0)
                           for at in range(gpus))
        self.seq = 0
        self.outbox: dict[int, bytes] = {}
        self.acked = 0
        self.welcomes: list[Welcome] = []
        self.rejections: list[Refused] = []
        self.ignored: list[Ignored] = []
        self.connects = 0
        self.util = [0.0] * gpus
        self._client: socketio.Client | None = None
        self._sockets: list[Any] = []

    def connect(self, hub: HubProcess) -> None:
        self._client = client = socketio.Client(
            serializer="msgpack", reconnection=False,
            websocket_extra_options={"suppress_origin": True})
        client.on(EVENT, self._on_message, namespace=NAMESPACE)
        hub.peers.append(self)
        before = len(self.welcomes)
        client.connect(hub.url, namespaces=[NAMESPACE], transports=["websocket"])
        self._sockets.append(client.eio.ws.sock)
        self._token = hub.token()
        self.say(self.caller.call)
        wait_for(lambda: len(self.welcomes) > before or self.rejections, why="Welcome")

    def _on_message(self, data: bytes) -> None:
        with contextlib.suppress(socketio.exceptions.BadNamespaceError):  # closed meanwhile
            self._receive(decode_from_hub(data))

    def _receive(self, message: FromHub) -> None:
        match message:
            case Challenge():
                self.caller.said = msgspec.structs.replace(
                    self.caller.said, last_seq=self.seq)
                self.say(self.caller.hello(message, self._token))
            case Welcome():
                self._forget(message.acked_seq)
                self.say(Inventory(1, self.facts))
                for payload in list(self.outbox.values()):
                    self._emit(payload)
                self.welcomes.append(message)
            case Ack():
                self._forget(message.seq)
            case Probe():
                self.say(Echo(message.probe_id, time.time()))
            case Refused():
                self.rejections.append(message)
            case Ignored():
                self.ignored.append(message)

    def _forget(self, seq: int) -> None:
        self.acked = max(self.acked, seq)
        for old in [n for n in list(self.outbox) if n <= seq]:  # a tick adds meanwhile
            self.outbox.pop(old, None)

    def say(self, message: FromAgent) -> None:
        self._emit(encode(message))

    def _emit(self, payload: bytes) -> None:
        assert self._client is not None
        self._client.emit(EVENT, payload, namespace=NAMESPACE)

    def tick(self, tasks: Tasks | None = None, taken_at: float | None = None) -> int:
        """Put one Frame into the outbox and, where there is a connection, onto the wire."""
        self.seq += 1
        gpus = len(self.facts)
        self.util = [self.random.uniform(0, 100) for _ in range(gpus)]
        rows = [[util] + [1.0] * (WIDTH - 1) for util in self.util]
        frame = Frame(self.seq, time.time() if taken_at is None else taken_at, 1.0, 1,
                      pack([value for row in rows for value in row]), bytes(gpus * WIDTH),
                      bytes(gpus), tasks)
        self.outbox[self.seq] = encode(frame)
        if self.is_connected:
            with contextlib.suppress(socketio.exceptions.SocketIOError):  # it stays in the outbox
                self._emit(self.outbox[self.seq])
        return self.seq

    @property
    def is_connected(self) -> bool:
        return self._client is not None and NAMESPACE in self._client.namespaces

    def close(self) -> None:
        if self._client is not None:
            self._client.disconnect()  # stays: an answer on its way finds it closed
        for sock in self._sockets:
            sock.close()  # the library lets go of it unclosed when the hub hangs up


def one_task(task_id: str = "boot-1:100:5", user: str | None = "alice", gpu: int = 0) -> Tasks:
    return Tasks(True, (Task(task_id, 100, 5, 1_000.0, user, "python train.py"),),
                 (Use(task_id, gpu, 1e9, 50.0, "running"),))

"""Thousands of nodes in one process, over real sockets, at little cost: `Swarm` starts it and talks
to it by lines of JSON. Each node sends a Frame a second at its own moment, with what a real one
sends: 8 GPUs, their tasks every other second, a Beat every other second.

It talks to the hub, or to a server that only receives (`tests/receivers.py`): the same messages.
"""

import contextlib
import json
import random
import secrets
import select
import socket
import statistics
import subprocess
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import websocket

from dashboard.actions.hub_key import HubKey
from dashboard.fleet.members import NewEnrolment
from dashboard.history.columns.layout import AT
from dashboard.nodes.enrolment import create
from dashboard.nodes.store import NodeStore
from dashboard.state import HubState
from gpudeck.contract.wire import (
    BEAT_EVERY_S,
    EVENT,
    NAMESPACE,
    Beat,
    Frame,
    FromAgent,
    GpuFacts,
    Inventory,
    Task,
    Tasks,
    Use,
    Welcome,
    encode,
)
from gpudeck.measures.metrics import WIDTH
from tests.integration.hubs import Caller, RawSocket, greet

ROOT = Path(__file__).resolve().parents[1]
GPUS = 8
MODEL = "NVIDIA H100 80GB HBM3"
NOISES = 256
RECV_BYTES = 65_536
PING, PONG = b"\x81\x012", b"\x81\x81\x00\x00\x00\x003"  # engine.io's, as websocket frames
_pack = msgspec.msgpack.Encoder().encode


# -- in the process of the nodes


def on_wire(message: FromAgent) -> bytes:
    """Encode a message for the wire. The mask is zero, so that masking costs us nothing; the
    server's work is the same."""
    body = _pack({"type": 2, "nsp": NAMESPACE, "data": [EVENT, encode(message)]})
    size = len(body)
    head = (bytes((0x82, 0x80 | size)) if size < 126
            else b"\x82\xfe" + size.to_bytes(2) if size < 65_536
            else b"\x82\xff" + size.to_bytes(8))
    return head + b"\0\0\0\0" + body


class Noise:
    """Noise that is drawn once: a thousand nodes cannot each draw theirs every second."""

    def __init__(self) -> None:
        rng = np.random.default_rng(random.getrandbits(32))
        self.rows = np.zeros((NOISES, GPUS, WIDTH))
        for key, spread in (("util_pct", 3.0), ("power_w", 15.0), ("temp_c", 0.6),
                            ("sm_active_pct", 3.0), ("mem_util_pct", 1.0)):
            self.rows[:, :, AT[key]] = rng.normal(0.0, spread, (NOISES, GPUS)).clip(-9, 9)


def base(rng: "np.random.Generator") -> "np.ndarray[Any, Any]":
    """Values of the GPUs of a node, of which a good half work."""
    busy = rng.random(GPUS) < 0.6
    rows = np.zeros((GPUS, WIDTH))
    for key, works, rests in (
            ("util_pct", rng.uniform(30, 90, GPUS), 10.0), ("mem_used_bytes", 60e9, 2e9),
            ("temp_c", 66.0, 35.0), ("mem_temp_c", 74.0, 40.0), ("power_w", 560.0, 80.0),
            ("sm_clock_mhz", 1_905.0, 345.0), ("mem_clock_mhz", 2_619.0, 2_619.0),
            ("energy_j", 7e8, 3e8), ("sm_active_pct", 50.0, 10.0), ("mem_util_pct", 40.0, 10.0),
            ("util_max_pct", 100.0, 30.0), ("power_max_w", 610.0, 130.0),
            ("pcie_tx_bytes_per_s", 2e8, 0.0), ("pcie_rx_bytes_per_s", 3e8, 0.0)):
        rows[:, AT[key]] = np.where(busy, works, rests)
    return rows


@dataclass(slots=True)
class Member:
    number: int
    sock: socket.socket
    stream: str
    rows: "np.ndarray[Any, Any]"
    tasks: Tasks
    due: float
    beat_due: float
    seq: int = 0
    sent_at: "array[float]" = field(default_factory=lambda: array("d"))  # by seq - 1
    sent_all_at: "array[float]" = field(default_factory=lambda: array("d"))  # Beats are in it too
    unsent: deque[bytes] = field(default_factory=deque)  # what the kernel did not take yet


class Hive:
    """The nodes, their sockets and one loop."""

    def __init__(self, connect: "Callable[[Hive, int, int], list[Member]]") -> None:
        self.rng = np.random.default_rng(random.getrandbits(32))
        self.noise = Noise()
        self.members: list[Member] = []
        self.messages = self.bytes = self.stalls = 0
        self.every_s = 1.0
        self.beacons = 0  # so many of the first nodes: GPU 0 shows 1 + seq % 99
        self.watchers: dict[int, Callable[[], None]] = {}
        self._connect = connect
        self._poll = select.epoll()
        self._by_fd: dict[int, Member] = {}
        self._order: deque[Member] = deque()

    def grow(self, total: int) -> None:
        while len(self.members) < total:
            first = len(self.members)
            for member in self._connect(self, first, min(total, first + 50)):
                member.sock.setblocking(False)
                self.members.append(member)
                self._by_fd[member.sock.fileno()] = member
                self._poll.register(member.sock, select.EPOLLIN)
                member.due = time.time() + 1.0 * random.random()
                self._order.append(member)
            self._order = deque(sorted(self._order, key=lambda member: member.due))
            self.go_on(0.02)
        now = time.time()
        for at, member in enumerate(self.members):
            member.due = now + 1.0 * at / total
        self._order = deque(self.members)

    def watch(self, fd: int, call: Callable[[], None]) -> None:
        self.watchers[fd] = call
        self._poll.register(fd, select.EPOLLIN)

    def go_on(self, seconds: float) -> None:
        end = time.time() + seconds
        while True:
            now = time.time()
            while self._order and self._order[0].due <= now:
                member = self._order.popleft()
                self.tick(member, time.time())
                # A machine that was too slow for all is not made up for in one breath.
                member.due = max(member.due + self.every_s, now + self.every_s / 2)
                self._order.append(member)
            if now >= end:
                return
            wait_s = min(end - now, self._order[0].due - now if self._order else 1.0)
            for fd, _ in self._poll.poll(max(0.0, wait_s)):
                self._on_readable(fd)

    def tick(self, member: Member, now: float) -> None:
        member.seq += 1
        rows = member.rows + self.noise.rows[random.randrange(NOISES)]
        if member.number < self.beacons:
            rows[0, AT["util_pct"]] = 1.0 + member.seq % 99
        rows[:, AT["energy_j"]] += 300.0 * member.seq
        tasks = (member.tasks if member.seq == 1 else None if member.seq % 2
                 else Tasks(False, (), member.tasks.uses))
        data = on_wire(Frame(member.seq, now, 1.0, 1, rows.tobytes(), ABSENT, bytes(GPUS), tasks))
        member.sent_at.append(time.time())
        self.send(member, data)
        if now >= member.beat_due:
            member.beat_due = now + BEAT_EVERY_S
            self.send(member, on_wire(Beat("ok", 0.1, 0, 0, first_seq=1)))

    def send(self, member: Member, data: bytes) -> None:
        self.messages += 1
        self.bytes += len(data)
        member.sent_all_at.append(time.time())
        self._write(member, data)

    def _write(self, member: Member, data: bytes) -> None:
        member.unsent.append(data)
        while member.unsent:
            try:
                count = member.sock.send(member.unsent[0])
            except BlockingIOError:
                count = 0
            if count < len(member.unsent[0]):
                member.unsent[0] = member.unsent[0][count:]
                self.stalls += 1
                return
            member.unsent.popleft()

    def _on_readable(self, fd: int) -> None:
        if fd in self.watchers:
            self.watchers[fd]()
            return
        member = self._by_fd[fd]
        with contextlib.suppress(BlockingIOError):
            data = member.sock.recv(RECV_BYTES)
            if not data:
                raise ConnectionError(f"node {member.number} was hung up on")
            # Words of an Ack may look like a ping: one answer too many is no offence.
            if PING in data:
                self._write(member, PONG)


ABSENT = bytes([key == "fan_pct" for key in AT]) * GPUS


def _member(hive: Hive, number: int, sock: socket.socket, stream: str) -> Member:
    rows = base(hive.rng)
    busy = np.flatnonzero(rows[:, AT["mem_used_bytes"]] > 3e9).tolist()
    ids = [f"{stream}:{4_000 + at}:7" for at in busy]
    user = f"user{number % 40}"
    tasks = Tasks(True, tuple(Task(task_id, 4_000 + at, 7, 1.7e9, user,
                                   f"python train.py --shard {at}")
                              for task_id, at in zip(ids, busy, strict=True)),
                  tuple(Use(task_id, at, 58e9, 50.0, "running")
                        for task_id, at in zip(ids, busy, strict=True)))
    return Member(number, sock, stream, rows, tasks, 0.0, 0.0)


@dataclass
class HubAddress:
    """Part of a hub process that a raw socket needs."""

    port: int
    peers: list[Any] = field(default_factory=list)


def at_hub(folder: Path, port: int) -> Callable[[Hive, int, int], list[Member]]:
    def connect(hive: Hive, first: int, end: int) -> list[Member]:
        names = [f"n{number + 1:04}" for number in range(first, end)]
        with contextlib.closing(HubState.open(folder)) as state:
            tokens = create(state.store(NodeStore), HubKey(folder).fingerprint,
                            [NewEnrolment() for _ in names], "the tests")
        with ThreadPoolExecutor(8) as together:
            return list(together.map(
                lambda at: _join(hive, HubAddress(port), first + at, names[at], tokens[at][0]),
                range(len(names))))

    return connect


def _join(hive: Hive, door: Any, number: int, name: str, token: Any) -> Member:
    caller = Caller(name, host=name, stream=f"{name}-stream", backend="nvml")
    raw = _open_session(door, caller, token)
    member = _member(hive, number, raw.socket, f"{name}-stream")
    raw.socket.sendall(on_wire(Inventory(1, tuple(
        GpuFacts(f"GPU-{name}-{at}", at, MODEL, mem_total_bytes=80e9, power_limit_w=700.0)
        for at in range(GPUS)))))
    return member


def _open_session(door: Any, caller: Caller, token: Any) -> RawSocket:
    """Greet the hub, up to three times: on a busy machine the hub may get no proof in time and
    close the connection."""
    tries = 0
    while True:
        raw, tries = RawSocket(door, NAMESPACE), tries + 1
        try:
            answer = greet(raw, caller, token)
        except (OSError, websocket.WebSocketException, AssertionError):
            raw.close()
            if tries == 3:
                raise
            continue
        assert isinstance(answer, Welcome), answer
        return raw


def at_receiver(port: int) -> Callable[[Hive, int, int], list[Member]]:
    """`?n=` tells the server which node it is, for the times of arrival."""
    def connect(hive: Hive, first: int, end: int) -> list[Member]:
        members = []
        for number in range(first, end):
            ws = websocket.create_connection(
                f"ws://127.0.0.1:{port}/socket.io/?EIO=4&transport=websocket&n={number}",
                timeout=10, suppress_origin=True)
            ws.send_binary(_pack({"type": 0, "nsp": NAMESPACE}))
            ws.recv()
            assert ws.sock is not None
            members.append(_member(hive, number, ws.sock, f"n{number}"))
        return members

    return connect


class Tap:
    """Delays from when a Frame was sent until when, by its own word, the hub applied it."""

    def __init__(self, hive: Hive, door: Any, token: str) -> None:
        raw = RawSocket(door, "/live", token)
        raw.emit("tap", True)
        self._sock = raw.socket
        self._sock.setblocking(False)
        self._buffer = bytearray()
        self._sent_at = {member.stream: member.sent_at for member in hive.members}
        self.late_ms: list[float] = []
        hive.watch(self._sock.fileno(), self._read)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := self._sock.recv(RECV_BYTES):
                self._buffer += data
        while (body := self._frame()) is not None:
            if body == b"2":
                self._sock.send(PONG)
                continue
            packet = msgspec.msgpack.decode(body)
            if packet["type"] == 2 and packet["data"][0] == "applied":
                self._note(packet["data"][1]["frames"])

    def _frame(self) -> bytes | None:
        """The next websocket frame; a server's are whole and not masked."""
        buffer = self._buffer
        if len(buffer) < 10:
            return self._cut(2, buffer[1]) if len(buffer) > 1 and buffer[1] < 126 else None
        wide = {126: 2, 127: 8}.get(buffer[1], 0)
        return self._cut(2 + wide, int.from_bytes(buffer[2 : 2 + wide]) if wide else buffer[1])

    def _cut(self, head: int, size: int) -> bytes | None:
        if len(self._buffer) < head + size:
            return None
        body = bytes(self._buffer[head : head + size])
        del self._buffer[: head + size]
        return body

    def _note(self, frames: list[Any]) -> None:
        for _, stream, seq, received_at in frames:
            sent_at = self._sent_at.get(stream, ())  # others may be there, too
            if seq <= len(sent_at):
                self.late_ms.append((received_at - sent_at[seq - 1]) * 1e3)


def arrivals_ms(hive: Hive, file: Path) -> list[float]:
    """`file`: when each message of each node arrived at a server that only receives."""
    delays_ms = []
    times = json.loads(file.read_text())
    for member in hive.members:
        arrived = times[str(member.number)]
        sent_at = member.sent_all_at
        delays_ms += [(at - start) * 1e3 for at, start in zip(arrived, sent_at, strict=False)]
    return delays_ms


def spread(values: list[float]) -> dict[str, float]:
    if len(values) < 2:
        return {"count": len(values)}
    parts = statistics.quantiles(values, n=1_000, method="inclusive")
    return {"count": len(values), "p50": parts[499], "p95": parts[949], "p99": parts[989],
            "p999": parts[998], "max": max(values)}


class Answers:
    def __init__(self, hive: Hive, door: Any, token: str | None) -> None:
        self.hive, self._door, self._token = hive, door, token
        self._tap: Tap | None = None

    def grow(self, total: int) -> dict[str, Any]:
        self.hive.grow(total)
        return {"nodes": len(self.hive.members)}

    def count(self) -> dict[str, Any]:
        cpu_s = time.process_time()
        hive = self.hive
        return {"messages": hive.messages, "bytes": hive.bytes, "stalls": hive.stalls,
                "cpu_s": cpu_s, "frames": sum(member.seq for member in hive.members)}

    def tap(self) -> dict[str, Any]:
        """Measure delays from now on; the next `late` returns them."""
        assert self._token is not None
        self._tap = Tap(self.hive, self._door, self._token)
        return {}

    def late(self) -> dict[str, Any]:
        assert self._tap is not None
        late_ms, self._tap.late_ms = self._tap.late_ms, []
        return spread(late_ms)

    def arrivals(self, file: str) -> dict[str, Any]:
        return spread(arrivals_ms(self.hive, Path(file)))

    def pace(self, every_s: float) -> dict[str, Any]:
        """Set the seconds between two Frames of a node, from its next one on."""
        self.hive.every_s = every_s
        return {}

    def beacons(self, many: int) -> dict[str, Any]:
        self.hive.beacons = many
        return {}

    def beacon_times(self) -> dict[str, Any]:
        """Values that were sent for GPU 0 of each beacon, and when."""
        return {f"GPU-n{member.number + 1:04}-0": [
            [1.0 + (at + 1) % 99, when] for at, when in enumerate(member.sent_at)]
            for member in self.hive.members[:self.hive.beacons]}

    def skip(self, number: int) -> dict[str, Any]:
        """Skip the next Frame of this node, for tests of what must notice."""
        member = self.hive.members[number]
        member.seq += 1
        member.sent_at.append(time.time())
        return {"stream": member.stream}

    def seqs(self) -> dict[str, Any]:
        return {member.stream: member.seq for member in self.hive.members}


def main(argv: list[str]) -> int:
    kind, port, folder, token = argv[0], int(argv[1]), argv[2], argv[3] or None
    connect = at_hub(Path(folder), port) if kind == "hub" else at_receiver(port)
    hive = Hive(connect)
    answers = Answers(hive, HubAddress(port), token)
    lines: list[bytes] = []
    hive.watch(sys.stdin.fileno(), lambda: lines.append(sys.stdin.buffer.readline()))
    print(json.dumps({}), flush=True)
    while True:
        hive.go_on(0.05)
        while lines:
            line = lines.pop(0)
            if not line:
                return 0
            name, arguments = json.loads(line)
            print(json.dumps(getattr(answers, name)(*arguments)), flush=True)


# -- in the test


class Swarm:
    def __init__(self, port: int, hub: Any = None, token: str = "") -> None:
        """`hub` None: the nodes connect to a server that only receives."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.swarm", "receiver" if hub is None else "hub", str(port),
             "" if hub is None else str(hub.folder), token or secrets.token_hex(4)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._listen()

    def __enter__(self) -> "Swarm":
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe(self.process.stdin).close()
        self.process.wait(10)
        self._pipe(self.process.stdout).close()

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        def ask(*arguments: Any) -> dict[str, Any]:
            pipe = self._pipe(self.process.stdin)
            pipe.write(json.dumps([name, arguments]) + "\n")
            pipe.flush()
            return self._listen()

        return ask

    def _listen(self) -> dict[str, Any]:
        line = self._pipe(self.process.stdout).readline()
        if not line:
            raise RuntimeError(f"the nodes ended with {self.process.wait(10)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

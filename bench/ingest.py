"""Cost to the hub of one agent message, beside a Flask-SocketIO handler that only receives it.

Both servers are processes of their own; the same frames come from this one, over real sockets.
"""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import socketio

from bench.figure import Figure
from gpudeck.contract.wire import EVENT, NAMESPACE
from tests.integration.hubs import StartedHub, WireAgent

GPUS = 8
PER_AGENT_PER_S = 10.0


class IngestSizes(NamedTuple):
    agents: int
    seconds: float


WHOLE, QUICK = IngestSizes(40, 12.0), IngestSizes(4, 3.0)

# Flask-SocketIO as its documentation sets it up under gevent, with what measurements
# found cheapest: no thread per event, MessagePack, the handler on the library's own server.
RECEIVE_ONLY = """
import sys
from flask import Flask
from flask_socketio import SocketIO
app = Flask("receiver")
io = SocketIO(app, async_mode="gevent", async_handlers=False, serializer="msgpack")
io.server.on("wire", lambda sid, data: None, namespace="/agent")
io.server.on("connect", lambda sid, environ: None, namespace="/agent")
io.run(app, "127.0.0.1", int(sys.argv[1]))
"""


def figures(sizes: IngestSizes = WHOLE) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        hub_ms, bare_ms, hub_pss_mb = _hub(Path(folder), sizes)
    floor_ms = _receive_only(sizes)
    share = (f"{sizes.agents} agents x {GPUS} GPUs, "
             f"{sizes.agents * PER_AGENT_PER_S:.0f} messages/s")
    yield Figure(f"hub CPU per agent message ({share})", hub_ms, "ms")
    yield Figure("  without rules, which look at all of it each second", bare_ms, "ms")
    yield Figure("  a handler that only receives it", floor_ms, "ms")
    yield Figure("  decode, validate, apply, store / receive-only", bare_ms / floor_ms, "x", 2.0)
    yield Figure("    with the rules", hub_ms / floor_ms, "x")
    yield Figure(f"hub PSS with {sizes.agents * GPUS} GPUs", hub_pss_mb, "MB", 400.0)


def _hub(folder: Path, sizes: IngestSizes) -> tuple[float, float, float]:
    """Return CPU per message with everything on, the same without rules, and PSS in MB."""
    with StartedHub(folder / "hub", 0, "--agent-messages-per-s", "100") as hub:
        agents = [WireAgent(f"bench{at}", gpus=GPUS) for at in range(sizes.agents)]
        for agent in agents:
            agent.connect(hub)
        cost = _cost(hub.process.pid, [agent.tick for agent in agents], sizes.seconds)
        pss_mb = hub.pss_bytes() / 1e6
        drop_rules(hub)
        bare = _cost(hub.process.pid, [agent.tick for agent in agents], sizes.seconds)
        acked = time.monotonic() + 10
        while any(agent.acked < agent.seq for agent in agents):
            assert time.monotonic() < acked, "the hub did not take all that was sent"
            time.sleep(0.1)
        return cost, bare, pss_mb


def drop_rules(hub: StartedHub) -> None:
    for rule in hub.get("/api/v1/rules")["items"]:
        assert hub.ask(f"/api/v1/rules/{rule['rule']['id']}", "DELETE").status == 204


def _receive_only(sizes: IngestSizes) -> float:
    with _receiver() as (pid, port):
        return _cost(pid, [_sender(port) for _ in range(sizes.agents)], sizes.seconds)


@contextmanager
def _receiver() -> Iterator[tuple[int, int]]:
    port = 18_431
    server = subprocess.Popen([sys.executable, "-c", RECEIVE_ONLY, str(port)])
    try:
        time.sleep(2.0)
        yield server.pid, port
    finally:
        server.terminate()
        server.wait(10)


def _sender(port: int) -> Callable[[], object]:
    writer = WireAgent("receive-only", gpus=GPUS)
    client = socketio.Client(serializer="msgpack", reconnection=False)
    client.connect(f"http://127.0.0.1:{port}", namespaces=[NAMESPACE], transports=["websocket"])

    def send() -> None:
        seq = writer.tick()
        client.emit(EVENT, writer.outbox.pop(seq), namespace=NAMESPACE)

    return send


def _cost(pid: int, senders: list[Callable[[], object]], seconds: float) -> float:
    """CPU milliseconds of the process per message, its idle cost included."""
    process = psutil.Process(pid)
    before = process.cpu_times()
    counts = [0] * len(senders)
    threads = [threading.Thread(target=_send, args=(at, senders[at], counts, seconds))
               for at in range(len(senders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(0.5)
    after = process.cpu_times()
    spent_s = after.user + after.system - before.user - before.system
    return 1_000 * spent_s / sum(counts)


def _send(at: int, send: Callable[[], object], counts: list[int], seconds: float) -> None:
    began = time.monotonic()
    while (passed_s := time.monotonic() - began) < seconds:
        send()
        counts[at] += 1
        time.sleep(max(0.0, counts[at] / PER_AGENT_PER_S - passed_s))

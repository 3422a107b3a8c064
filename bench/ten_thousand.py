"""Cost to the hub of 1,250 agents of 8 GPUs at a Frame a second, beside a Flask-SocketIO handler
that only receives the same messages, and picows as the floor. The hub is what serves: itself and
its ingest process, which has the agents' sockets."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.figure import Figure, children, cpu_s
from bench.ingest import drop_rules
from tests.integration.hubs import StartedHub, wait_for
from tests.receivers import receiver
from tests.swarm import GPUS, Swarm


class SwarmSizes(NamedTuple):
    nodes: int
    settle_s: float
    seconds: float
    late_s: float


WHOLE, QUICK = SwarmSizes(1_250, 5.0, 20.0, 10.0), SwarmSizes(125, 1.0, 4.0, 3.0)


def figures(sizes: SwarmSizes = WHOLE) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        floor = _received("picows", Path(folder), sizes)
        plain = _received("flask", Path(folder), sizes)
        hub, bare, pss_mb = _applied(Path(folder), sizes)
    yield Figure(f"hub, {sizes.nodes * GPUS:,} GPUs at 1 Hz: of one core", hub["core_pct"],
                 "%", 35.0)
    yield Figure("  of that its ingest process", hub["ingest_pct"], "%")
    yield Figure("  a Flask-SocketIO handler that only receives", plain["core_pct"], "%")
    yield Figure("  picows that only receives", floor["core_pct"], "%")
    yield Figure("  CPU per message, all in", hub["message_ms"], "ms")
    yield Figure("    without rules, which look at all of it each second", bare["message_ms"], "ms")
    yield Figure("  decode, validate, apply, store / receive-only, per message",
                 bare["message_ms"] / plain["message_ms"], "x", 2.0)
    yield Figure("    with the rules", hub["message_ms"] / plain["message_ms"], "x")
    yield Figure("  hub / picows, per message", hub["message_ms"] / floor["message_ms"], "x")
    yield Figure("  sent to applied, p50", hub["p50"], "ms")
    yield Figure("    p99", hub["p99"], "ms", 50.0)
    yield Figure("    p99 at the receive-only handler", plain["p99"], "ms")
    yield Figure("    p99 at picows", floor["p99"], "ms")
    yield Figure(f"  hub PSS with {sizes.nodes * GPUS:,} GPUs", pss_mb, "MB", 1_000.0)


def cost(swarm: Swarm, pid: int, seconds: float) -> dict[str, Any]:
    ingest = children(pid, "ingest.process")
    before, began = swarm.count(), time.monotonic()
    hub_s, ingest_s = cpu_s(pid), sum(map(cpu_s, ingest))
    time.sleep(seconds)
    after, passed_s = swarm.count(), time.monotonic() - began
    hub_s, ingest_s = cpu_s(pid) - hub_s, sum(map(cpu_s, ingest)) - ingest_s
    messages, spent_s = after["messages"] - before["messages"], hub_s + ingest_s
    return {"core_pct": 100 * spent_s / passed_s, "ingest_pct": 100 * ingest_s / passed_s,
            "message_ms": 1e3 * spent_s / messages,
            "messages_per_s": messages / passed_s}


def _received(kind: str, folder: Path, sizes: SwarmSizes) -> dict[str, Any]:
    times_file = folder / f"{kind}.json"
    with receiver(kind, times_file) as (pid, port), Swarm(port) as swarm:
        swarm.grow(sizes.nodes)
        time.sleep(sizes.settle_s)
        costs = cost(swarm, pid, sizes.seconds)
        os.kill(pid, signal.SIGUSR1)
        wait_for(times_file.exists, 20, "the times of arrival")
        return costs | swarm.arrivals(str(times_file))


def _applied(folder: Path, sizes: SwarmSizes) -> tuple[dict[str, Any], dict[str, Any], float]:
    """Return the costs with everything on, those without rules, and PSS in MB."""
    with StartedHub(folder / "hub") as hub, Swarm(hub.port, hub, hub.api_token) as swarm:
        swarm.grow(sizes.nodes)
        time.sleep(sizes.settle_s)
        costs = cost(swarm, hub.process.pid, sizes.seconds)
        pss_mb = hub.pss_bytes() / 1e6
        swarm.tap()
        time.sleep(sizes.late_s)
        late = swarm.late()
        assert late["count"] > sizes.nodes, f"the hub told of {late['count']} Frames only"
        drop_rules(hub)
        time.sleep(sizes.settle_s)
        return costs | late, cost(swarm, hub.process.pid, sizes.seconds), pss_mb

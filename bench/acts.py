"""Time from the click to the end of a process, and the cost of proving the audit log."""

import os
import select
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bench.figure import Figure
from gpudeck.audit.chain import chain, verify
from gpudeck.contract.actions import YOUNGEST_S
from tests.faults.decision import decided_ms
from tests.faults.fleet import Fleet, a_fleet


class ActSizes(NamedTuple):
    ends: int
    records: int


WHOLE, QUICK = ActSizes(40, 1_000_000), ActSizes(4, 10_000)


def figures(sizes: ActSizes = WHOLE) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, a_fleet(Path(folder)) as fleet:
        gone_ms = _gone_ms(fleet, sizes.ends)
    with tempfile.TemporaryDirectory() as folder:
        decision_ms = decided_ms(Path(folder), sizes.ends)
    yield Figure("command: click to process gone, loopback, p50", _part(gone_ms, 0.5), "ms", 80.0)
    yield Figure("  p99", _part(gone_ms, 0.99), "ms")
    yield Figure("  the agent's decision, from its first pidfd to the signal, p50",
                 _part(decision_ms, 0.5), "ms")
    yield Figure("    p99", _part(decision_ms, 0.99), "ms", 50.0)
    yield Figure(f"verify an Audit of {sizes.records:,} records", _verify_s(sizes.records),
                 "s", 30.0)


def _gone_ms(fleet: Fleet, ends: int) -> list[float]:
    victims = [fleet.children.start() for _ in range(ends)]
    neighbour = fleet.children.start()
    fleet.shows([*victims, neighbour], 60)
    time.sleep(YOUNGEST_S)
    gone_ms = []
    for victim in victims:
        preview = fleet.preview(victim)
        pidfd = os.pidfd_open(victim.pid)
        began = time.perf_counter()
        command = fleet.order(preview)
        assert select.select([pidfd], [], [], 20)[0], "it did not end"
        gone_ms.append((time.perf_counter() - began) * 1e3)
        os.close(pidfd)
        outcome = fleet.outcome(command["id"], 60)
        assert outcome["state"] == "done", outcome
    assert neighbour.is_alive()
    return gone_ms


def _part(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]


def _verify_s(count: int) -> float:
    records = ({"at": float(at), "kind": "command", "action": "end", "outcome": "done",
                "command_id": f"{at:032x}", "sentence": "Ended: its processes are gone."}
               for at in range(count))
    took_s = 0.0
    links, start = chain(records), None
    while block := list(islice(links, 10_000)):
        began = time.perf_counter()
        assert verify(block, start=start) is None
        took_s += time.perf_counter() - began
        start = block[-1]
    return took_s

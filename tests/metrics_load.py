"""A fleet of any size with all its numbers, to measure the cost of a scrape."""

import random
import time
from dataclasses import dataclass

from dashboard.fleet.fleet import Fleet
from dashboard.fleet.visibility import EVERYTHING_SEEN, VisibleFleet, focus
from dashboard.prometheus.families import pages, snapshot
from dashboard.prometheus.page import packed
from gpudeck.contract.wire import GpuFacts, Inventory
from gpudeck.measures.metrics import COLUMNS, SLOW
from tests.unit.fleets import MONO, NOW, frame, hello, tasks

PER_NODE = 8


def whole_fleet(gpus: int) -> tuple[Fleet, VisibleFleet]:
    """Build a fleet in which every GPU has every metric, as a new board has them."""
    fleet, chance = Fleet(1), random.Random(1)
    for at in range(gpus // PER_NODE):
        name = f"n{at:04}"
        node = fleet.hello(hello(name), NOW, MONO)
        fleet.inventory(node, Inventory(1, tuple(
            GpuFacts(f"GPU-{chance.getrandbits(128):032x}", index, "NVIDIA H100 80GB HBM3",
                     minor=index, pci_bus_id=f"00000000:{index:02X}:00.0", mem_total_bytes=85e9)
            for index in range(PER_NODE))))
        rows = [{metric.key: chance.uniform(max(metric.low, 0), min(metric.high, 1e6))
                 for metric in COLUMNS} for _ in range(PER_NODE)]
        slow = [{metric.key: float(int(chance.uniform(max(metric.low, 0), min(metric.high, 1e4))))
                 for metric in SLOW} for _ in range(PER_NODE)]
        running = tasks(*((f"{name}-{index}", index, f"user{index}") for index in range(PER_NODE)))
        fleet.frame(node, frame(rows, tasks=running, slow=slow), NOW, MONO)
    return fleet, focus(fleet, EVERYTHING_SEEN)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds and bytes of a scrape."""

    loop_s: float
    whole_s: float
    body_bytes: int


def scrape_costs(gpus: int, rounds: int = 3) -> Cost:
    fleet, visible = whole_fleet(gpus)
    return min((_scrape(fleet, visible) for _ in range(rounds)), key=lambda cost: cost.whole_s)


def _scrape(fleet: Fleet, visible: VisibleFleet) -> Cost:
    began = time.process_time()
    look = snapshot(fleet, visible, {}, MONO)
    loop_s = time.process_time() - began
    body = packed(pages(look), None)
    return Cost(loop_s, time.process_time() - began, len(body))

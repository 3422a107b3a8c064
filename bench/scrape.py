"""What a scrape of /metrics costs the hub: a fleet in which every Gpu tells every metric."""

import time
from collections.abc import Iterator

from bench.figure import Figure
from dashboard.metrics_page import packed
from dashboard.metrics_views import look, pages
from tests.metrics_load import whole_fleet
from tests.unit.fleets import MONO

SIZES = (1_000, 10_000)
GOAL_S = 3.0
ROUNDS = 3


def figures() -> Iterator[Figure]:
    for gpus in SIZES:
        fleet, lens = whole_fleet(gpus)
        loop_s, whole_s, size = [], [], 0
        for _ in range(ROUNDS):
            began = time.process_time()
            found = look(fleet, lens, {}, MONO)
            looked = time.process_time()
            size = len(packed(pages(found), None))
            loop_s.append(looked - began)
            whole_s.append(time.process_time() - began)
        goal = GOAL_S if gpus == SIZES[-1] else None
        yield Figure(f"scrape of {gpus:,} Gpus with every metric, CPU", min(whole_s), "s", goal)
        yield Figure("  of it on the hub's loop", min(loop_s) * 1e3, "ms", 50.0)
        yield Figure("  sent, packed", size / 1e6, "MB")

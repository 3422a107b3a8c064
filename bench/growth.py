"""Cost of one hub whose fleet grows from 8 to 10,000 GPUs, at each size, and how it grows.

An exponent of 1 is linear: ten times the GPUs for ten times the cost. It is fitted to all sizes on
logarithms, so that what the hub costs with next to no GPUs makes it smaller, never larger.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from playwright.sync_api import Page

from bench.browser import chromium, open_page, signed_in
from bench.figure import Figure
from bench.ten_thousand import cost
from tests.integration.hubs import RawSocket, StartedHub
from tests.swarm import GPUS, Swarm

SETTLE_S = 3.0


class GrowthSizes(NamedTuple):
    nodes: tuple[int, ...]
    seconds: float
    redraws: int


WHOLE, QUICK = GrowthSizes((1, 8, 64, 125, 500, 1_250), 10.0, 12), GrowthSizes((1, 8), 2.0, 3)
LINEAR = 1.0
# Each column of the curve, and its unit.
COLUMNS = {"hub CPU per message": "ms", "hub CPU per GPU and second": "us",
           "hub CPU": "% of a core", "hub PSS": "MB",
           "layout, once per page": "kB", "cells, each push": "kB",
           "heatmap redraw": "ms"}
FITTED = ("hub CPU", "hub PSS", "layout, once per page", "cells, each push", "heatmap redraw")


def figures(sizes: GrowthSizes = WHOLE) -> Iterator[Figure]:
    curve: list[tuple[int, dict[str, float]]] = []
    with (tempfile.TemporaryDirectory() as folder, chromium() as browser,
          StartedHub(Path(folder) / "hub") as hub,
          Swarm(hub.port, hub, hub.api_token) as swarm):
        swarm.grow(sizes.nodes[0])  # a page of an empty fleet has nothing that could be live
        context, page = open_page(browser, signed_in(hub, browser), hub.url)
        for nodes in sizes.nodes:
            swarm.grow(nodes)
            time.sleep(SETTLE_S)
            curve.append((nodes * GPUS, _size(hub, swarm, page, nodes * GPUS, sizes)))
        context.close()
    for gpus, costs in curve:
        for what, unit in COLUMNS.items():
            yield Figure(f"growth, {gpus:,} GPUs: {what}", costs[what], unit)
    for what in FITTED:
        yield Figure(f"growth of {what}: exponent (1 is linear)",
                     exponent([gpus for gpus, _ in curve], [costs[what] for _, costs in curve]),
                     "", LINEAR)


def _size(hub: StartedHub, swarm: Swarm, page: Page, gpus: int, sizes: GrowthSizes
          ) -> dict[str, float]:
    costs = cost(swarm, hub.process.pid, sizes.seconds)
    redraws = []
    for _ in range(sizes.redraws):
        redraws.append(page.evaluate("gpudeck.stats.redraw_ms"))
        time.sleep(0.25)
    layout, cells = _payload(hub)
    return {"hub CPU per message": costs["message_ms"],
            "hub CPU per GPU and second": 1e4 * costs["core_pct"] / gpus,
            "hub CPU": costs["core_pct"], "hub PSS": hub.pss_bytes() / 1e6,
            "layout, once per page": layout / 1e3, "cells, each push": cells / 1e3,
            "heatmap redraw": statistics.median(redraws)}


def _payload(hub: StartedHub) -> tuple[int, int]:
    raw = RawSocket(hub, "/live", hub.api_token)
    raw.emit("watch", {"metric": "util_pct", "filter": ""})
    layout, cells = (_bytes(raw.event(name)) for name in ("layout", "cells"))
    raw.close()
    return layout, cells


def _bytes(message: Any) -> int:
    return len(msgspec.msgpack.encode(message))


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of the line through the logarithms."""
    slope, _ = np.polyfit(np.log(sizes), np.log(np.maximum(costs, 1e-3)), 1)
    return float(slope)

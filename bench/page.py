"""The Fleet page with 10,000 GPUs in real Chromium: how old a sample is when its pixel is there,
what a redraw costs, how soon the page is there after signing in, and how much comes for it; the
page of a node beside it, and Fleet of fewer GPUs."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page

from bench.browser import (
    CELLS_DRAWN,
    CHARTS_DRAWN,
    PATIENCE_MS,
    WATCH,
    chromium,
    open_page,
    signed_in,
    wait_live,
)
from bench.figure import Figure, cpu_s
from tests.integration.hubs import StartedHub
from tests.swarm import GPUS, Swarm


class PageSizes(NamedTuple):
    some: int  # nodes; the map is there soon
    many: int  # nodes; nothing holds the browser up
    nodes: int
    tabs: int
    beacons: int
    seconds: float
    redraws: int


WHOLE = PageSizes(8, 125, 1_250, 5, 40, 20.0, 60)
QUICK = PageSizes(2, 4, 8, 1, 8, 4.0, 6)
PAINTED = """() => performance.getEntriesByName('first-contentful-paint')[0].startTime"""


def figures(sizes: PageSizes = WHOLE) -> Iterator[Figure]:
    with (tempfile.TemporaryDirectory() as folder, chromium() as browser,
          StartedHub(Path(folder) / "hub") as hub,
          Swarm(hub.port, hub, hub.api_token) as swarm):
        state = signed_in(hub, browser)
        swarm.beacons(sizes.beacons)
        some, many, opened = (_at(browser, state, hub, swarm, nodes) for nodes in (
            sizes.some, sizes.many, sizes.nodes))
        node_url = f"{hub.url}/node/{hub.get('/api/v1/nodes?limit=1')['items'][0]['id']}"
        of_node = _opened(browser, state, node_url, CHARTS_DRAWN)
        live = _live(browser, state, hub, swarm, sizes)
    gpus = f"{sizes.nodes * GPUS:,} GPUs"
    yield Figure(f"sample to pixel, {gpus}, {sizes.tabs} browsers, p50", live["p50"], "ms", 60.0)
    yield Figure("  p99", live["p99"], "ms", 250.0)
    yield Figure("  the hub meanwhile, of one core", live["core_pct"], "%")
    yield Figure(f"heatmap redraw, {gpus}, median while live", live["redraw_ms"], "ms", 2.0)
    yield Figure(f"  long tasks in {sizes.seconds:.0f} s of {sizes.tabs} pages",
                 live["long_tasks"], "", 0.0)
    yield Figure(f"page: first paint of Fleet after sign-in, {gpus}", opened["paint_s"], "s", 1.5)
    yield Figure("  all cells drawn", opened["drawn_s"], "s")
    yield Figure("  compressed, everything that comes over HTTP", opened["mb"], "MB", 0.4)
    yield Figure("  requests for it", opened["requests"], "", 25.0)
    yield Figure("  longest task at load", opened["longest_ms"], "ms", 200.0)
    yield Figure(f"page: all cells drawn after its address was opened, {sizes.some * GPUS:,} GPUs",
                 some["drawn_s"], "s", 1.2)
    yield Figure(f"page: longest task at load, {sizes.many * GPUS:,} GPUs", many["longest_ms"],
                 "ms", 200.0)
    yield Figure("page of a node: charts drawn", of_node["drawn_s"], "s")
    yield Figure("  compressed, everything that comes over HTTP", of_node["mb"], "MB", 0.5)
    yield Figure("  requests for it", of_node["requests"], "")
    yield Figure("  longest task at load", of_node["longest_ms"], "ms", 200.0)


def _at(browser: Browser, state: Any, hub: StartedHub, swarm: Swarm, nodes: int
        ) -> dict[str, float]:
    """Measure Fleet with so many nodes, once all of them report."""
    swarm.grow(nodes)
    time.sleep(3.0)
    return _opened(browser, state, hub.url, CELLS_DRAWN)


def _opened(browser: Browser, state: Any, url: str, is_drawn: str) -> dict[str, float]:
    """Open the page with an empty cache, on a hub that has answered before."""
    open_page(browser, state, url, is_drawn)[0].close()
    context = browser.new_context(storage_state=state, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    tools = context.new_cdp_session(page)
    tools.send("Network.enable")
    sizes: list[float] = []
    requests: set[str] = set()  # that reached the hub

    def add_request(event: Any) -> None:
        if not event["request"]["url"].startswith("data:"):
            requests.add(event["requestId"])

    tools.on("Network.requestWillBeSent", add_request)
    tools.on("Network.requestServedFromCache",
             lambda event: requests.discard(event["requestId"]))
    tools.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(url, timeout=PATIENCE_MS)
    drawn_s = wait_live(page, is_drawn)
    page.wait_for_load_state("networkidle", timeout=PATIENCE_MS)  # all that comes for it
    paint_s = page.evaluate(PAINTED) / 1e3
    longest_ms = page.evaluate("gpudeck.stats.longest_task_ms ?? 0")
    context.close()
    return {"paint_s": paint_s, "drawn_s": drawn_s, "mb": sum(sizes) / 1e6,
            "requests": len(requests), "longest_ms": longest_ms}


def _live(browser: Browser, state: Any, hub: StartedHub, swarm: Swarm, sizes: PageSizes
          ) -> dict[str, float]:
    tabs = [open_page(browser, state, hub.url) for _ in range(sizes.tabs)]
    times = swarm.beacon_times()
    for _, page in tabs:
        page.evaluate(WATCH, list(times))
    time.sleep(2.0)  # opening pages makes a burst of load
    before = [page.evaluate("gpudeck.stats.long_tasks") for _, page in tabs]
    began, cpu_before = time.time(), cpu_s(hub.process.pid)
    redraws: list[float] = []
    while time.time() < began + sizes.seconds:
        redraws += [page.evaluate("gpudeck.stats.redraw_ms") for _, page in tabs]
        time.sleep(sizes.seconds / sizes.redraws)
    core_pct = 100 * (cpu_s(hub.process.pid) - cpu_before) / (time.time() - began)
    long_tasks = sum(page.evaluate("gpudeck.stats.long_tasks") for _, page in tabs) - sum(before)
    ages_ms = [age for _, page in tabs for age in _ages_ms(page, swarm.beacon_times(), began)]
    for context, _ in tabs:
        context.close()
    parts = statistics.quantiles(ages_ms, n=100, method="inclusive")
    return {"p50": parts[49], "p99": parts[98], "core_pct": core_pct, "long_tasks": long_tasks,
            "redraw_ms": statistics.median(redraws)}


def _ages_ms(page: Page, times: dict[str, Any], since: float) -> Iterator[float]:
    """Yield the age of each beacon's value when the page drew it, from the moment it was sent; the
    hub has it a fraction of a millisecond after that."""
    for uuid, level, seen_at in page.evaluate("globalThis.seen"):
        sent_at = [at for value, at in times[uuid] if round(value * 2.39) == level and at < seen_at]
        if seen_at > since and sent_at:
            yield (seen_at - sent_at[-1]) * 1e3

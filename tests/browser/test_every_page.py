"""Checks of every page in both themes: accessible, steady while it loads, usable by keyboard, and
no wider than its window."""

import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, Route

from tests.demos import Demo, soon

from .conftest import Fleet
from .test_look import axe_source

pytestmark = pytest.mark.browser
PAGES = ("/", "/work", "/tasks", "/pool", "/alerts", "/quotas", "/history", "/reports",
         "/forecasts", "/advice", "/qos", "/estimate", "/audit", "/settings", "/node/{host}",
         "/gpu/{host}/0", "/job/{job}", "/compare?gpu={uuid}", "/nothing/here")
SHIFTS = """
    globalThis.shifts = [];
    new PerformanceObserver(list => list.getEntries().forEach(entry => shifts.push([entry.value,
        ...entry.sources.map(({node}) => (node?.outerHTML ?? node?.textContent ?? '').slice(0, 90))
    ]))).observe({type: "layout-shift", buffered: true});"""
ROWS = "document.querySelectorAll('main tbody tr').length"
LEAST_SHIFT = 0.00005  # a digit that is a pixel wider, in a column of its own
# What is seen on a button must be in what is read aloud; to axe that is an experiment.
AXE = """axe.run(document, {resultTypes: ['violations'], rules: {'label-content-name-mismatch':
    {enabled: true}}}).then(({violations}) => violations.flatMap(
    ({id, nodes}) => nodes.map(({html, failureSummary}) => [id, html.slice(0, 140),
                                                            failureSummary])))"""


@pytest.fixture(name="steady", scope="module")
def _steady(demo: Demo, browser: Browser, signed_in: Any) -> Iterator[Fleet]:
    """Yield one window for all pages."""
    context = browser.new_context(storage_state=signed_in, color_scheme="dark",
                                  viewport={"width": 1440, "height": 900})
    context.add_init_script(SHIFTS)
    fleet = Fleet(context, demo.url)
    yield fleet
    context.close()


def places(demo: Demo) -> dict[str, str]:
    gpu = random.choice(demo.get("/api/v1/gpus?limit=1000")["items"])
    assert soon(lambda: demo.get("/api/v1/jobs?limit=50")["items"])
    job = random.choice(demo.get("/api/v1/jobs?limit=50")["items"])
    return {"host": gpu["host"], "uuid": gpu["uuid"], "job": quote(job["id"], safe="")}


def came(demo: Demo, steady: Fleet, path: str) -> Any:
    """The shifts of a page that comes. Once more where a row of a list came or went meanwhile, as
    when a job of the demo ends just then."""
    page = steady.page
    for _ in range(3):
        page.goto(demo.url + path.format(**places(demo)))
        page.wait_for_selector("main > :not([hidden], [data-unsettled], [aria-busy=true])")
        rows = page.evaluate(ROWS)
        assert soon(lambda: steady.stats().get("link") == "live")
        page.wait_for_timeout(1_500)
        if page.evaluate(ROWS) == rows:
            break
    return page.evaluate("shifts")


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_steady_and_works_by_keyboard(demo: Demo, steady: Fleet, path: str
                                                           ) -> None:
    page, steady.trouble[:] = steady.page, []
    shifts = came(demo, steady, path)
    assert sum(amount for amount, *_ in shifts) < LEAST_SHIFT, shifts
    page.evaluate(axe_source())
    themes = set()
    for key in ("", "t"):
        if key:
            page.keyboard.press(key)
        assert page.evaluate(AXE) == [], (path, key)
        themes.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(themes) == 2
    page.keyboard.press("?")
    page.wait_for_selector("#help-dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#help-dialog:not([open])", state="attached")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") != "BODY"
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
    # An address of nothing is answered with a 404, which the browser logs; it also logs that axe
    # has read a canvas.
    assert [line for line in steady.trouble
            if "404" not in line and "willReadFrequently" not in line] == []


@pytest.mark.parametrize("path", [
    "/?group=owner", "/?view=table", "/gpu/{host}/0", "/compare?gpu={uuid}"])
def test_on_a_phone_nothing_moves_while_a_page_comes(demo: Demo, browser: Browser, signed_in: Any,
                                                     path: str) -> None:
    context = browser.new_context(storage_state=signed_in,
                                  viewport={"width": 390, "height": 844})
    context.add_init_script(SHIFTS)
    shifts = came(demo, Fleet(context, demo.url), path)
    context.close()
    assert sum(amount for amount, *_ in shifts) < LEAST_SHIFT, shifts


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("late", ["slurm", "kubernetes"])
def test_a_link_that_comes_late_moves_nothing(demo: Demo, browser: Browser, signed_in: Any,
                                              late: str, width: int) -> None:
    context = browser.new_context(storage_state=signed_in,
                                  viewport={"width": width, "height": 900})
    context.add_init_script(SHIFTS)
    page = context.new_page()
    waiting: list[Route] = []
    for name in ("slurm", "kubernetes"):
        page.route(f"**/api/v1/{name}", lambda route: waiting.append(route))
    page.goto(f"{demo.url}/tasks")
    page.wait_for_selector("main > :not([hidden], [data-unsettled], [aria-busy=true])")
    assert soon(lambda: page.evaluate("gpudeck.stats.link") == "live" and len(waiting) == 2)
    waiting.sort(key=lambda route: route.request.url.endswith(late))
    for route in waiting:
        route.fulfill(json={"items": [], "ignored": ["n1"]})
        page.locator(f"#tasks-{route.request.url.rpartition('/')[2]}").wait_for()
        page.wait_for_timeout(500)
    shifts = page.evaluate("shifts")
    context.close()
    assert sum(amount for amount, *_ in shifts) < LEAST_SHIFT, shifts


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize(("late", "part"), [
    (("nodes/*/quotas*", "tasks?*"), "#lines-side:not([data-unsettled])"),
    (("hold",), "#lines-acts:not([aria-busy])")])
def test_a_part_of_a_node_that_comes_late_moves_nothing(
        demo: Demo, browser: Browser, signed_in: Any, width: int, late: tuple[str, ...],
        part: str) -> None:
    """Later than a page waits for what is missing (SETTLE_MS in assets/charts/timelines.mjs)."""
    context = browser.new_context(storage_state=signed_in,
                                  viewport={"width": width, "height": 900})
    context.add_init_script(SHIFTS)
    page = context.new_page()
    waiting: list[Route] = []
    for name in late:
        page.route(f"**/api/v1/{name}", lambda route: waiting.append(route))
    page.goto(demo.url + "/node/{host}".format(**places(demo)))
    page.wait_for_selector("#lines:not([data-unsettled])")
    page.wait_for_timeout(500)
    assert waiting
    page.unroute_all()  # lets them go
    page.wait_for_selector(part)
    page.wait_for_timeout(500)
    shifts = page.evaluate("shifts")
    context.close()
    assert sum(amount for amount, *_ in shifts) < LEAST_SHIFT, shifts


HELD_MS = 3_000  # longer than any page waits before it is seen (SETTLE_MS in assets/charts)
STEPS = 4  # what an answer leads to is asked for then, such as its figure
SLOW_PAGES = ("/pool", "/alerts", "/reports", "/audit", "/audit?actor=nobody-at-all",
              "/node/{host}")


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("path", SLOW_PAGES)
def test_answers_that_come_late_move_nothing(demo: Demo, browser: Browser, signed_in: Any,
                                             path: str, width: int) -> None:
    """Answers come later than a page waits for them, as from a busy hub: they pushed away what
    stood below, on a phone's Node page by 0.035."""
    context = browser.new_context(storage_state=signed_in,
                                  viewport={"width": width, "height": 900})
    context.add_init_script(SHIFTS)
    shifts = come_late(context.new_page(), demo.url + path.format(**places(demo)))
    context.close()
    assert sum(amount for amount, *_ in shifts) < LEAST_SHIFT, shifts


def come_late(page: Page, address: str) -> Any:
    """Return the shifts of a page of which each answer is late. Once more where a row of a list
    came or went meanwhile."""
    waiting: list[Route] = []

    def hold(route: Route) -> None:
        if '"pathname"' in (route.request.post_data or ""):  # which page it is
            route.continue_()
        else:
            waiting.append(route)

    for pattern in ("**/_dash-update-component*", "**/api/v1/**"):
        page.route(pattern, hold)
    for _ in range(3):
        page.goto(address)
        page.wait_for_selector("main > :not([hidden])", state="attached")
        rows = set[int]()
        for late_ms in (HELD_MS, *[1_000] * STEPS):
            page.wait_for_timeout(late_ms)
            rows.add(page.evaluate(ROWS))
            for route in waiting:
                route.continue_()
            waiting.clear()
        page.wait_for_timeout(1_000)
        if len({*rows, page.evaluate(ROWS)} - {0}) <= 1:
            break
    page.unroute_all(behavior="ignoreErrors")
    return page.evaluate("shifts")


def test_the_sign_in_page_is_accessible(demo: Demo, browser: Browser) -> None:
    for theme in ("dark", "light"):
        scheme: Any = theme
        context = browser.new_context(color_scheme=scheme)
        context.add_init_script(SHIFTS)
        page = context.new_page()
        page.goto(f"{demo.url}/sign-in")
        assert page.evaluate("shifts") == []
        page.evaluate(axe_source())
        assert page.evaluate(AXE) == []
        context.close()

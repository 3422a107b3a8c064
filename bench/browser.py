"""Chromium in front of a hub that a swarm of nodes talks to."""

from collections.abc import Iterator
from contextlib import contextmanager
from shutil import which
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.chromium import FLAGS
from tests.integration.hubs import StartedHub

PATIENCE_MS = 90_000.0  # of a machine with other work; how long it took is a figure
PASSWORD = "a long word for the bench"
# After the frame in which a beacon's cell changed has been painted: what it shows, and when.
WATCH = """
uuids => {
    globalThis.seen = []; const last = new Map(); const after = new MessageChannel(); let due = [];
    after.port1.onmessage = () => {
        const at = (performance.timeOrigin + performance.now()) / 1e3;
        due.splice(0).forEach(([uuid, level]) => seen.push([uuid, level, at]));
    };
    const look = () => {
        for (const uuid of uuids) {
            const level = gpudeck.cell(uuid)?.level;
            if (level === last.get(uuid)) continue;
            if (last.has(uuid)) due.push([uuid, level]);
            last.set(uuid, level);
        }
        if (due.length) after.port2.postMessage(0);
        requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
}"""

WAIT = """async isDrawn => {
    for (;;) {
        const stats = globalThis.gpudeck?.stats ?? {};
        if (stats.link === 'live' && isDrawn(stats)) return performance.now();
        if (performance.now() > 90_000) throw new Error(`not live within 90 s: ${stats.link}`);
        await new Promise(requestAnimationFrame);
    }
}"""
# Functions of the page's stats.
CELLS_DRAWN = "({ frames }) => frames > 0"
CHARTS_DRAWN = """() => document.querySelector('.chart canvas') !== null
    && document.querySelector('main [aria-busy=true], main [data-unsettled]') === null"""


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=which("chromium-headless-shell"),
                                             args=FLAGS)
        yield running
        running.close()


def signed_in(hub: StartedHub, browser: Browser) -> Any:
    """The first admin, made by the link: the cookies of all pages that follow."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(hub.sign_in_url)
    page.get_by_label("Name").fill("bench")
    for label in ("Password", "Repeat the password"):
        page.get_by_label(label, exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Become the admin").click()
    page.wait_for_url(f"{hub.url}/")
    state = context.storage_state()
    context.close()
    return state


def open_page(browser: Browser, state: Any, url: str, is_drawn: str = CELLS_DRAWN
              ) -> tuple[BrowserContext, Page]:
    context = browser.new_context(storage_state=state, viewport={"width": 1440, "height": 900},
                                  color_scheme="dark")
    page = context.new_page()
    page.goto(url, timeout=PATIENCE_MS)
    wait_live(page, is_drawn)
    return context, page


def wait_live(page: Page, is_drawn: str = CELLS_DRAWN) -> float:
    """Return the seconds from the start of loading until the page was live and drawn. Uses
    `evaluate`, since the page's policy forbids what Playwright's own waiting does."""
    drawn_ms: float = page.evaluate(f"({WAIT})({is_drawn})")
    return drawn_ms / 1e3

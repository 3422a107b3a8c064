"""Use of every visible control of every page once, as an admin: nothing breaks, nothing is sent
to a machine, and dialogs close by Esc."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, Route, expect

from tests.demos import Demo, soon

from .conftest import Fleet
from .test_every_page import PAGES, places

pytestmark = pytest.mark.browser
# Asks the hub to look, and changes nothing.
LOOKS = ("previews", "rule-checks", "quota-checks", "estimates", "backtests", "pool/simulations")
LEFT_OUT = ("Sign out", "Sign out everywhere")
LEAST_CONTROLS = 200  # of all pages together: a crawl that finds less has seen no page
ENOUGH = 90  # of one page: its rows repeat

# Goes on until something opens or nothing is left: [controls used, is one open]. Rows repeat: of
# those with the same class and words one is used.
CRAWL = """async ([used, leftOut, most]) => {
    const known = new Set(used), found = [];
    const nameOf = one => [one.tagName, one.id || one.className, one.dataset.act ?? '',
        (one.getAttribute('aria-label') ?? one.textContent).replaceAll(/[\\d.,]+/g, '#').trim()
            .slice(0, 24)].join('|');
    const isOpen = () => document.querySelector('dialog[open]') !== null;
    const next = () => [...document.querySelectorAll(
        'button, select, summary, input[type=checkbox], input[type=radio], [role=tab]')].find(one =>
        !one.disabled && one.checkVisibility({visibilityProperty: true})
        && !leftOut.includes(one.textContent.trim()) && !known.has(nameOf(one)));
    for (let one = next(); one && found.length < most; one = next()) {
        const name = nameOf(one);
        known.add(name);
        sessionStorage.crawled = JSON.stringify([...known]);  // for one that leads elsewhere
        found.push(name);
        if (one.tagName === 'SELECT') {
            one.selectedIndex = (one.selectedIndex + 1) % one.options.length;
            for (const kind of ['input', 'change'])
                one.dispatchEvent(new Event(kind, {bubbles: true}));
        } else one.click();
        await new Promise(done => setTimeout(done, 40));
        if (isOpen()) return [found, true];
    }
    return [found, false];
}"""


@pytest.fixture(name="changes_sent")
def _changes_sent() -> list[str]:
    return []


@pytest.fixture(name="visitor")
def _visitor(
        demo: Demo, browser: Browser, signed_in: Any, changes_sent: list[str]) -> Iterator[Fleet]:
    context = browser.new_context(storage_state=signed_in,
                                  viewport={"width": 1440, "height": 900})

    def guard(route: Route) -> None:
        """Answer changing requests here, since other tests use this demo."""
        request = route.request
        what = request.url.split("/api/v1/")[1]
        if request.method == "GET" or what.startswith(LOOKS):
            route.continue_()
            return
        changes_sent.append(f"{request.method} {what}")
        route.fulfill(json={})

    context.route("**/api/v1/**", guard)
    yield Fleet(context, demo.url)
    context.close()


def crawl(page: Page, reopen: Callable[[], None], used_controls: set[str]) -> int:
    """Use the controls and return their number. `reopen` comes back from one that leads away."""
    count = 0
    while count < ENOUGH:
        try:
            controls, is_open = page.evaluate(
                CRAWL, [[*used_controls], [*LEFT_OUT], ENOUGH - count])
        except Error:  # it has led to another page
            used_controls |= set(page.evaluate("JSON.parse(sessionStorage.crawled ?? '[]')"))
            reopen()
            continue
        used_controls |= set(controls)
        count += len(controls)
        if not is_open:
            return count
        # One that holds what was typed asks first. No expression is waited for: it would be
        # evaluated anew in each frame, which the page's policy refuses, and its console says so.
        def is_closed() -> bool:
            page.keyboard.press("Escape")
            with suppress(AssertionError):
                expect(page.locator("dialog[open]")).to_have_count(0, timeout=1_000)
            return page.locator("dialog[open]").count() == 0

        assert soon(is_closed), ("not closed by Esc", controls[-1])
    return count


def test_every_control_of_every_page_works_once(demo: Demo, visitor: Fleet, changes_sent: list[str]
                                                ) -> None:
    page, all_used, where = visitor.page, 0, places(demo)
    used_controls: set[str] = set()
    for path in PAGES:
        address = demo.url + path.format(**where)

        def reopen(address: str = address) -> None:
            page.goto(address)
            page.wait_for_selector("main > :not([hidden], [data-unsettled], [aria-busy=true])")
            assert soon(lambda: visitor.stats().get("link") == "live")

        reopen()
        visitor.trouble[:] = [line for line in visitor.trouble if "404" not in line]  # /nothing
        all_used += crawl(page, reopen, used_controls)
        assert (visitor.trouble, changes_sent) == ([], []), path
    assert all_used > LEAST_CONTROLS, used_controls

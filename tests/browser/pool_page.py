"""Helpers that read and press parts of the Pool page."""

from itertools import pairwise

from playwright.sync_api import Locator, Page

from tests.demos import soon


def text(page: Page, selector: str) -> str:
    return " ".join(" ".join(page.locator(selector).all_inner_texts()).split())


def field(page: Page, name: str) -> Locator:
    return page.locator(f"dialog [name={name}]")


def is_refused(page: Page, words: str) -> bool:
    page.locator("dialog .dialog-foot .first").click()
    return soon(lambda: words in text(page, "dialog .problem"))


def is_shut(page: Page) -> bool:
    """Wait until no dialog is open: keys go to it, whatever the page beneath shows already."""
    return soon(lambda: page.locator("dialog[open]").count() == 0)


def request_times_ms(page: Page) -> list[float]:
    """Return when the page asked for its next answer, in ms."""
    times_ms: list[float] = page.evaluate(
        "performance.getEntriesByType('resource').filter(one => "
        "one.name.includes('/_dash-update-component')).map(one => one.startTime)")
    return times_ms


def reloads_at_once(page: Page, before: list[float]) -> bool:
    """Check that the page asked sooner than by itself, which is 5 s after an answer."""
    return any(later - earlier < 5_000 for earlier, later in
               pairwise(request_times_ms(page)[len(before) - 1:]))

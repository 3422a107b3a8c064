"""What a test reads and presses on the Pool page."""

from itertools import pairwise

from playwright.sync_api import Locator, Page

from tests.demos import soon


def text(page: Page, selector: str) -> str:
    return " ".join(" ".join(page.locator(selector).all_inner_texts()).split())


def field(page: Page, name: str) -> Locator:
    return page.locator(f"dialog [name={name}]")


def refused(page: Page, words: str) -> bool:
    page.locator("dialog .dialog-foot .first").click()
    return soon(lambda: words in text(page, "dialog .problem"))


def is_shut(page: Page) -> bool:
    """Until then keys are for the dialog, whatever the page beneath shows already."""
    return soon(lambda: page.locator("dialog[open]").count() == 0)


def looks(page: Page) -> list[float]:
    """When the page asked, in ms."""
    found: list[float] = page.evaluate(
        "performance.getEntriesByType('resource').filter(one => one.name.endsWith('/api/v1/pool'))"
        ".map(one => one.startTime)")
    return found


def looked_when_told(page: Page, before: list[float]) -> bool:
    """Sooner than by itself, which is 5 s after an answer."""
    return any(later - earlier < 5_000 for earlier, later in
               pairwise(looks(page)[len(before) - 1:]))

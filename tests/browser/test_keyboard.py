"""A walk over every page with Tab, Enter and Escape alone: each stop is seen and marked, nothing
holds the focus, and dialogs close."""

from typing import Any

import pytest

from tests.demos import Demo, soon

from .conftest import Fleet
from .test_crawl import LEFT_OUT, _changes_sent, _visitor  # noqa: F401  # fixtures
from .test_every_page import PAGES, places

pytestmark = pytest.mark.browser
MOST_STOPS = 400  # of one page
LEAST_STOPS = 12  # the bar alone has as many
LEAST_DIALOGS = 10  # of all pages
# The element that has the focus; None: the browser's own bar has it, or it was lost.
STOP = """leftOut => {
    const one = document.activeElement;
    if (one === null || one === document.body) return null;
    globalThis.stops ??= new Map();
    if (!stops.has(one)) stops.set(one, stops.size);
    const box = one.getBoundingClientRect();
    const [x, y] = [(Math.max(0, box.left) + Math.min(innerWidth, box.right)) / 2,
                    (Math.max(0, box.top) + Math.min(innerHeight, box.bottom)) / 2];
    const above = document.elementFromPoint(x, y);
    const label = one.labels?.[0] ?? one.closest('label');
    const words = (one.getAttribute('aria-label') ?? one.textContent).trim();
    return {
        at: stops.get(one),
        name: [one.tagName, one.id || one.className, one.dataset.act ?? '',
               words.replaceAll(/[\\d.,]+/g, '#').slice(0, 24)].join('|'),
        isSeen: box.width > 0 && box.height > 0 && above !== null
            && (one.contains(above) || above.contains(one) || label?.contains(above) === true),
        isMarked: one.matches(':focus-visible') && [one, ...one.querySelectorAll('canvas')].some(
            part => getComputedStyle(part).outlineStyle !== 'none'
                && parseFloat(getComputedStyle(part).outlineWidth) > 0),
        isInOrder: one.tabIndex <= 0,
        isButton: one.tagName === 'BUTTON' && !leftOut.includes(words),
    };
}"""
DIALOG = """[document.querySelector('dialog[open]') !== null,
             document.activeElement?.closest('dialog[open]') !== null]"""


def stop(page: Any) -> Any:
    return page.evaluate(STOP, [*LEFT_OUT])


@pytest.mark.parametrize("path", PAGES)
def test_each_stop_is_seen_and_none_holds_the_focus(demo: Demo, visitor: Fleet, path: str) -> None:
    page, visited = visitor.page, []
    open_page(demo, visitor, path)
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        here = stop(page)
        if here is None:
            break
        visited.append(here)
    assert LEAST_STOPS <= len(visited) < MOST_STOPS, "held, or lost on the way"
    assert "skip" in visited[0]["name"]
    assert [one["name"] for one in visited if not one["isSeen"]] == []
    assert [one["name"] for one in visited if not one["isMarked"]] == []
    assert all(one["isInOrder"] for one in visited)
    assert len({one["at"] for one in visited}) == len(visited), "once each"


def open_page(demo: Demo, visitor: Fleet, path: str) -> None:
    visitor.page.goto(demo.url + path.format(**places(demo)))
    visitor.page.wait_for_selector("main > :not([hidden], [data-unsettled], [aria-busy=true])")
    assert soon(lambda: visitor.stats().get("link") == "live")


def test_dialogs_open_by_enter_with_the_focus_and_close_by_escape(
        demo: Demo, visitor: Fleet, changes_sent: list[str]) -> None:
    pressed: set[str] = set()
    dialogs = sum(walk(demo, visitor, path, pressed) for path in PAGES)
    assert changes_sent == []
    assert dialogs >= LEAST_DIALOGS


def walk(demo: Demo, visitor: Fleet, path: str, pressed: set[str]) -> int:
    """Press Enter on each button that is new; return how many dialogs opened."""
    page, dialogs = visitor.page, 0
    open_page(demo, visitor, path)
    address = page.url
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        here = stop(page)
        if here is None:
            break
        if not here["isButton"] or here["name"] in pressed:
            continue
        pressed.add(here["name"])
        page.keyboard.press("Enter")
        page.wait_for_timeout(60)
        is_open, has_focus = page.evaluate(DIALOG)
        if not is_open:
            if page.url.partition("?")[0] != address.partition("?")[0]:
                break
            continue
        dialogs += 1
        assert has_focus, here["name"]
        close(page, here["name"])
    return dialogs


def close(page: Any, name: str) -> None:
    """Press Escape as often as layers, and what was typed, ask for it."""
    for _ in range(3):
        page.keyboard.press("Escape")
        if soon(lambda: not page.evaluate(DIALOG)[0], 1.0):
            return
    raise AssertionError(f"{name}: not closed by Escape")

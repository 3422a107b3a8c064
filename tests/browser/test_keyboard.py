"""A walk over every page with Tab, Enter and Escape alone: each stop is seen and marked, nothing
holds the focus, and dialogs close and give it back."""

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
# Closes by a button, as a person does who looks for one.
CANCEL = """() => {
    const quits = [...document.querySelectorAll('dialog[open] button')].filter(one =>
        one.checkVisibility() && /^(Cancel|Close|Done)\\b/.test(
            one.getAttribute('aria-label') ?? one.textContent.trim()));
    quits.at(-1).click();
}"""
FOCUS_OPENER = """words => {
    globalThis.opener = [...document.querySelectorAll(`main ${words}`)].find(
        one => one.checkVisibility() && !one.disabled);
    globalThis.opener?.focus({focusVisible: true});
    return document.activeElement === globalThis.opener;
}"""
# What a live page does to the row of a button: draws it again, or takes it away.
REDRAWN = """isGone => {
    const row = opener.parentElement.closest('[data-key]');
    globalThis.place = row.parentElement;
    if (isGone) row.remove();
    else row.replaceWith(row.cloneNode(true));
}"""
IS_BUSY = "document.querySelector('main > [aria-busy=true]') !== null"
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


def test_dialogs_open_by_enter_with_the_focus_and_give_it_back(
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
        if open_dialog(page, here["name"]):
            dialogs += 1
            close(page, here["name"])
            gives_back(page, here["name"], "Escape")
            # A page that is read takes note of the close first, and asks the hub.
            page.wait_for_timeout(100)
            assert soon(lambda: not page.evaluate(IS_BUSY))
            page.keyboard.press("Enter")
            assert soon(lambda: page.evaluate(DIALOG)[0]), f"{here['name']}: opens once only"
            page.evaluate(CANCEL)
            gives_back(page, here["name"], "Cancel")
        elif page.url.partition("?")[0] != address.partition("?")[0]:
            break
    return dialogs


def open_dialog(page: Any, name: str) -> bool:
    """Press Enter; return whether a dialog opened, at once or with the hub's answer."""
    page.keyboard.press("Enter")
    page.wait_for_timeout(60)
    soon(lambda: page.evaluate(DIALOG)[0] or not page.evaluate(IS_BUSY))
    is_open, has_focus = page.evaluate(DIALOG)
    assert has_focus or not is_open, name
    return bool(is_open)


def gives_back(page: Any, opener: str, way: str) -> None:
    """A page may draw again just then: what counts is where the focus is in the end."""
    def name() -> str | None:
        here = stop(page)
        return None if here is None else str(here["name"])

    assert soon(lambda: name() == opener, 2.0), f"{opener}: after {way} the focus is at {name()}"


def close(page: Any, name: str) -> None:
    """Press Escape as often as layers, and what was typed, ask for it."""
    for _ in range(3):
        page.keyboard.press("Escape")
        if soon(lambda: not page.evaluate(DIALOG)[0], 1.0):
            return
    raise AssertionError(f"{name}: not closed by Escape")


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize(("path", "opener"), [
    ("/settings", "[data-key] [aria-label^='Edit ']"),
    ("/alerts#rules", "[data-key] [data-key=edit]"),
    ("/node/{host}", "[data-key] [data-act][data-targets]")])
def test_an_opener_that_is_drawn_again_meanwhile_has_the_focus_afterwards(
        demo: Demo, visitor: Fleet, path: str, opener: str, is_gone: bool) -> None:
    """Found by visitors: a row of My work came again while its dialog was open, and the focus fell
    to the page's beginning."""
    page = visitor.page
    open_page(demo, visitor, path)
    assert soon(lambda: page.evaluate(FOCUS_OPENER, opener))
    name = stop(page)["name"]
    page.keyboard.press("Enter")
    assert soon(lambda: page.evaluate(DIALOG)[0])
    page.evaluate(REDRAWN, is_gone)
    close(page, name)
    if is_gone:
        assert soon(lambda: page.evaluate("place.contains(document.activeElement)"))
    else:
        gives_back(page, name, "Escape")
        assert page.evaluate("document.activeElement !== opener")

"""A page on paper: light, dated, without what is pressed, and whole."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.demos import soon

from .tellers import Node
from .test_lines_page import line

pytestmark = pytest.mark.browser
A4_WIDTH = 703  # in CSS pixels, within margins of 12 mm
PRESSED = ".bar, .tools, .switch, .icon-button, .row-act, .row-actions, #record-verify, #tray"
LOOK = """() => ({
    theme: document.documentElement.dataset.theme,
    wide: document.documentElement.scrollWidth - innerWidth,
    pressed: [...document.querySelectorAll(PRESSED)].filter(one => one.checkVisibility())
        .map(one => one.outerHTML.slice(0, 90)),
    cut: [...document.querySelectorAll("main, main *")].filter(one => one.checkVisibility()
        && one.scrollHeight > one.clientHeight + 2 && one.clientHeight > 60
        && getComputedStyle(one).overflowY !== "visible").map(one => one.className),
    head: document.querySelector(".print-head").innerText,
    title: document.title,
})""".replace("PRESSED", repr(PRESSED))


@pytest.mark.parametrize("path", ["/", "/?gpu=GPU", "/gpu/GPU", "/node/NODE", "/compare?gpu=GPU",
                                  "/tasks", "/record", "/settings"])
def test_paper(node: Node, come: Callable[..., Page], path: str) -> None:
    page = come(path.replace("GPU", node.uuid(0)).replace("NODE", node.teller.node_id))
    assert soon(lambda: page.locator("main > :not([hidden])").count() == 1, 10)
    lines = page.locator("#lines").is_visible()
    if lines:
        assert soon(lambda: len(line(page, node.uuid(0), "util_pct")) > 2, 15)
    if path == "/":
        assert soon(lambda: page.evaluate("gpudeck.stats.arrange_ms") is not None, 10)
    width = page.evaluate("document.querySelector('canvas')?.width ?? 0")
    page.set_viewport_size({"width": A4_WIDTH, "height": 1000})
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    look = page.evaluate(LOOK)
    assert look["theme"] == "light"
    assert look["wide"] <= 0
    assert look["pressed"] == []
    assert look["cut"] == []
    assert look["head"].startswith(look["title"])
    assert page.url in look["head"]
    if path == "/":
        corner = page.evaluate("""() => [...document.querySelector("#cells").getContext("2d")
            .getImageData(0, 0, 1, 1).data].slice(0, 3)""")
        assert min(corner) > 200, "the map is drawn anew, light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen", color_scheme="dark")
    page.set_viewport_size({"width": 1440, "height": 900})
    assert page.evaluate("document.documentElement.dataset.theme ?? null") is None
    assert soon(lambda: page.evaluate("document.querySelector('canvas')?.width ?? 0") == width, 5)
    assert page.pdf(format="A4")[:5] == b"%PDF-"

"""A page on paper: light, dated, without what is pressed, and whole."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.demos import soon
from tests.integration.hubs import HubProcess

from .full_agents import Node, is_live
from .test_charts_page import line

pytestmark = pytest.mark.browser
WIDTH = "document.querySelector('canvas')?.width ?? 0"
CORNER = """() => [...document.querySelector("#heatmap canvas").getContext("2d")
    .getImageData(0, 0, 1, 1).data].slice(0, 3)"""
A4_WIDTH = 703  # in CSS pixels, within margins of 12 mm
PRESSED = ".bar, .tools, .switch, .icon-button, .row-act, .row-actions, #audit-verify, #tray"
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


def test_paper(hub: HubProcess, node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    paths = ("/", "/?gpu=GPU", "/gpu/GPU", "/node/NODE", "/compare?gpu=GPU", "/tasks", "/audit",
             "/settings")
    for path in paths:
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(hub.url + path.replace("GPU", node.uuid(0)).replace(
            "NODE", node.teller.node_id))
        page.locator("main > :not([hidden])").wait_for()
        wait_until_drawn(page, node)
        check(page, path)


def wait_until_drawn(page: Page, node: Node) -> None:
    assert soon(lambda: is_live(page))
    if page.locator("#lines").is_visible():
        assert soon(lambda: len(line(page, node.uuid(0), "util_pct")) > 2)
    if page.locator("#fleet").is_visible():
        assert soon(lambda: page.evaluate("gpudeck.stats.arrange_ms") is not None)


def check(page: Page, path: str) -> None:
    width = page.evaluate(WIDTH)
    page.set_viewport_size({"width": A4_WIDTH, "height": 1000})
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    look = page.evaluate(LOOK)
    assert look["theme"] == "light", path
    assert look["wide"] <= 0, path
    assert look["pressed"] == [], path
    assert look["cut"] == [], path
    assert look["head"].startswith(look["title"]), path
    assert page.url in look["head"]
    if page.locator("#heatmap canvas").is_visible():
        assert min(page.evaluate(CORNER)) > 200, "the map is drawn anew, light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1440, "height": 900})
    assert page.evaluate("document.documentElement.dataset.theme ?? null") is None
    assert soon(lambda: page.evaluate(WIDTH) == width), path
    if path.startswith("/gpu/"):
        assert page.pdf(format="A4")[:5] == b"%PDF-"

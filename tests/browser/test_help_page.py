"""Help on the pages: the meaning of every metric, and the keys of every page."""

import random
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page

from dashboard.pages import PAGES, job, missing
from dashboard.pages.help import everywhere
from dashboard.pages.sections import ALL
from gpudeck.measures.metrics import metric
from tests.demos import soon
from tests.integration.hubs import HubProcess

from .full_agents import Node, is_live

pytestmark = pytest.mark.browser


def tip(page: Page) -> str:
    """Return the text of the open tip, or an empty one."""
    card = page.locator("#tip")
    return card.inner_text() if card.is_visible() else ""


def drawer(node: Node, page: Page) -> Locator:
    body = page.locator("#drawer-body")
    assert soon(lambda: body.locator("[data-metric]").count() >= len(ALL))
    # "Health, links and limits": what comes each minute has come as well.
    assert soon(lambda: body.locator(".slow-age").is_visible())
    return body


def test_every_metric_says_what_it_means_to_the_keyboard(node: Node, open_page: Callable[..., Page]
                                                         ) -> None:
    page = open_page(f"/?gpu={node.uuid(0)}")
    body = drawer(node, page)
    stops = body.locator("[data-metric][tabindex='0']")
    assert stops.count() == 1, "the Tab key stops once"
    page.keyboard.press("Tab")
    stops.focus()
    page.keyboard.press("Home")
    tips: dict[str, str] = {}
    for _ in range(2 * len(ALL)):
        key = page.evaluate("document.activeElement.dataset.metric ?? ''")
        if key in tips:
            break
        tips[key] = tip(page)
        page.keyboard.press("ArrowDown")
    assert tips.keys() == {one.key for one in ALL}
    for one in ALL:
        assert tips[one.key].startswith(one.meaning), one.key
    described = page.evaluate("document.activeElement.getAttribute('aria-describedby')")
    assert described == "tip"
    page.keyboard.press("Escape")
    assert tip(page) == ""
    assert page.locator("#drawer").is_visible(), "Esc closes what it says first"
    page.keyboard.press("Escape")
    assert page.locator("#drawer").is_hidden()


def test_the_colours_and_the_switch_say_it(node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    assert soon(lambda: page.locator("#metric option").count() >= 4)
    choices = [option.get_attribute("value") or "" for option in
               page.locator("#metric option").all()]
    for key in random.sample(choices, 4):
        page.select_option("#metric", key)
        assert soon(lambda key=key: page.locator("#scale-name").inner_text() ==  # type: ignore[misc]
                    metric(key).label)
        for place in ("#scale-name", "#metric", "#scale"):
            page.mouse.move(2, 2)
            page.locator(place).hover()
            assert soon(lambda key=key: tip(page) == metric(key).meaning)  # type: ignore[misc]
    page.keyboard.press("v")
    page.locator("#table-view thead th.number").hover()
    assert soon(lambda: tip(page) == metric(key).meaning)


def test_timelines_say_it_under_a_finger_too(node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page(f"/node/{node.teller.node_id}", has_touch=True, width=390, height=844)
    head = page.locator(".chart h2").first
    head.wait_for()
    head_text = head.inner_text()
    [one] = [one for one in ALL if head_text.startswith(one.label) and one.key == "util_pct"]
    head.tap()
    assert soon(lambda: tip(page) == one.meaning)
    head.tap()
    assert soon(lambda: tip(page) == "")
    for heading in page.locator(".chart h2").all():
        labels = [one for one in ALL if (heading.text_content() or "").startswith(one.label)]
        assert heading.get_attribute("data-tip") in [one.meaning for one in labels]


def test_help_names_the_keys_of_each_page(
        hub: HubProcess, node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    for one in PAGES:
        if one in (missing.PAGE, job.PAGE):
            continue  # their 404 is an error in the browser's log
        page.goto(hub.url + {"fleet": "/", "lines": f"/gpu/{node.uuid(0)}", "my-work": "/work"}.get(
            one.key, f"/{one.key}"))
        page.locator(f"#{one.key}:visible").wait_for()
        assert soon(lambda: is_live(page))
        page.locator("#help").click()
        key_words = [line.text_content() for line in page.locator("#help-dialog dd:visible").all()]
        assert key_words == [what for _, what in (*one.keys, *everywhere(PAGES))]
        words = page.locator("#help-dialog").inner_text()
        assert [other.key for other in PAGES if other.about in words] == [one.key]

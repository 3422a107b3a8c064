"""The week on the Pool page: a finger that drags, and names of short bars."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.demos import soon
from tests.integration.hubs import HubProcess, wait_for
from tests.integration.pools import PoolBed

from .pool_page import field
from .test_pool_page import ME, _bed, _hub, ask_for, nothing_held, visit  # noqa: F401  # fixtures

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("rests_s", [0.6, 0.0])
def test_a_finger_that_rests_drags_over_the_hours_and_one_that_does_not_scrolls(
        hub: HubProcess, bed: PoolBed, open_page: Callable[..., Page], rests_s: float) -> None:
    page = open_page("/pool", width=390, height=844, has_touch=True)
    track = page.locator(".calendar-track")
    assert soon(lambda: track.count() == 1, 20)
    track.scroll_into_view_if_needed()
    box: Any = track.bounding_box()
    touch = page.context.new_cdp_session(page)

    def finger(kind: str, days: float) -> None:
        points = [{"x": box["x"] + days * box["width"] / 7, "y": box["y"] + 20}]
        touch.send("Input.dispatchTouchEvent", {
            "type": kind, "touchPoints": [] if kind == "touchEnd" else points})

    finger("touchStart", 1.51)
    time.sleep(rests_s)
    if rests_s:
        assert soon(lambda: page.locator(".calendar-drag").count() == 1, 5)
    for step in range(1, 6):
        finger("touchMove", 1.51 + step * 0.12)
    finger("touchEnd", 0.0)
    if not rests_s:
        assert soon(lambda: page.locator(".calendar").evaluate("one => one.scrollLeft") > 0
                    or page.locator("dialog[open]").count() == 0, 5)
        assert page.locator("dialog[open]").count() == 0
        return
    assert soon(lambda: field(page, "at").count() == 1, 10)
    assert field(page, "at").input_value().endswith(" 12:00")
    assert field(page, "term_s").input_value() == "15h", "from 12:14 to 02:38 the next day"
    assert page.locator("dialog[open]").count() == 1, "the click after it asks for nothing else"


@pytest.mark.usefixtures("nothing_held")
def test_a_bar_has_a_name_also_where_it_is_short(hub: HubProcess, bed: PoolBed, browser: Browser
                                                 ) -> None:
    """A GPU for an hour is a few pixels of a week."""
    ask_for(hub, 1, term_s=3_600)
    wait_for(lambda: hub.get("/api/v1/leases")["items"], 30)
    with visit(browser, hub, "root") as page:
        bar = page.locator(".calendar-bar.lease")
        assert soon(lambda: bar.count() == 1, 20)
        box: Any = bar.bounding_box()
        assert box["width"] < 20
        assert box["height"] >= 12
        name: Any = bar.locator("span").bounding_box()
        assert bar.locator("span").inner_text() == ME
        assert name["x"] >= box["x"] + box["width"], "beside it"
        assert name["width"] > 10

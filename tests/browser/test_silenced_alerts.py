"""Silenced alerts on every page in a real browser: marked as such, and counted nowhere."""

import json
import time
from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.demos import soon
from tests.integration.hubs import HubProcess

from .full_agents import Node
from .test_alerts_page import NAMES, _fresh, corners, forget, put  # noqa: F401  # a fixture

pytestmark = pytest.mark.browser


def test_what_is_silenced_is_marked_so_everywhere_and_counted_nowhere(
        hub: HubProcess, fresh: Node, open_page: Callable[..., Page]) -> None:
    """The map, its strip and list, the drawer, a lane, the side panel and the past."""
    forget(hub)
    node, uuid = fresh, fresh.uuid(0)
    rule = put(hub, node)
    page = open_page("/")
    cell = "([uuid, rule]) => gpudeck.cell(uuid)?.alerts.includes(rule)"
    assert soon(lambda: page.evaluate(cell, [uuid, rule["id"]]) is False)
    card = page.locator("#card-attention")
    calm, card_text = corners(page), card.inner_text()
    assert rule["title"] not in card_text
    node.slow(0, temp_margin_c=1.0)
    assert soon(lambda: corners(page) > calm)
    assert soon(lambda: rule["title"] in card.inner_text())
    silence = {"until": time.time() + 600, "because": "a fan is on its way", "rule": rule["id"]}
    answer = hub.ask("/api/v1/silences", "POST", body=json.dumps(silence).encode(),
                     Content_Type="application/json")
    assert answer.status == 201, answer.body
    for theme in ("dark", "light"):
        page = open_page(f"/?gpu={uuid}", theme)
        words = f"{rule['title']} · silenced"
        drawer = page.locator("#drawer .alert-lines")
        assert soon(lambda: words in drawer.inner_text())  # noqa: B023
        assert drawer.locator("li", has_text=words).locator(".pill.lost").count() == 0
        # What one asks of a cell comes by the socket, the drawer's by another request.
        assert soon(lambda: page.evaluate(cell, [uuid, rule["id"]]) is True)  # noqa: B023
        card = page.locator("#card-attention")
        assert soon(lambda: card.inner_text() == card_text)  # noqa: B023
        if theme == "dark":
            assert corners(page) == calm
        card.click()
        last = page.locator("#attention-list li").last
        assert soon(lambda: f"{rule['title']}: " in last.inner_text())  # noqa: B023
        assert last.inner_text().startswith("Silenced")
        page.goto(f"{hub.url}/node/{node.teller.node_id}")
        strip = page.locator(f".lane-rules li[data-rule='{rule['id']}']")
        assert soon(lambda: strip.locator("i.silenced").count() == 1)  # noqa: B023
        assert strip.locator("i.crit").count() == 0
        assert strip.text_content() == f"{rule['title']} · GPU 0 · silenced"
        assert soon(lambda: words in page.locator(  # noqa: B023
            "#lines-side .alert-lines").inner_text())
        page.goto(f"{hub.url}/history?gpu={uuid}&last=15m")
        assert soon(lambda: f"{rule['title']} · GPU 0 · silenced" in page.evaluate(NAMES))  # noqa: B023
    assert hub.ask(f"/api/v1/rules/{rule['id']}", "DELETE").status == 204

"""The Alerts page in a real browser, before a hub whose agents are told what to say."""

import json
import secrets
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.demos import soon
from tests.integration.hubs import HubProcess

from .tellers import Node
from .test_look import axe_source

pytestmark = pytest.mark.browser


def put(hub: HubProcess, node: Node) -> dict[str, Any]:
    rule = {"id": f"hot-{secrets.token_hex(3)}", "title": f"Hot {secrets.token_hex(3)}",
            "scope": f"node:{node.teller.caller.said.host}", "signal": "temp_margin_c",
            "fire": "<= 5", "clear": ">= 10", "for": "1s", "severity": "crit"}
    for gpu in (0, 1):
        node.slow(gpu, temp_margin_c=30.0)
    answer = hub.ask(f"/api/v1/rules/{rule['id']}", "PUT", body=json.dumps(rule).encode(),
                     Content_Type="application/json")
    assert answer.status == 200, answer.body
    return rule


def rows(page: Page, section: str, title: str) -> list[str]:
    found = page.locator(f"#alerts-{section} tbody tr").filter(has_text=title)
    return [" ".join(text.split()) for text in found.all_inner_texts()]


def test_it_fires_is_silenced_and_ends(hub: HubProcess, node: Node, come: Callable[..., Page]
                                       ) -> None:
    rule = put(hub, node)
    title = rule["title"]
    node.slow(0, temp_margin_c=3.0)
    page = come("/alerts")
    assert soon(lambda: rows(page, "firing", title), 20)
    [row] = rows(page, "firing", title)
    assert "3 °C" in row
    assert "GPU 0" in row
    assert "(1) Alerts" in page.title()
    assert any("1 firing" in each for each in rows(page, "rules", title))
    page.get_by_role("button", name=f"Silence {title} at").click()
    page.get_by_label("Because").fill("moving racks")
    page.locator("dialog").get_by_role("button", name="Silence", exact=True).click()
    assert soon(lambda: "moving racks" in "".join(rows(page, "firing", title)), 10)
    page.get_by_role("button", name="End the silence of").click()
    page.locator("dialog").get_by_role("button", name="End it", exact=True).click()
    assert soon(lambda: "moving racks" not in "".join(rows(page, "firing", title)), 10)
    node.slow(0, temp_margin_c=30.0)
    assert soon(lambda: rows(page, "ended", title) and not rows(page, "firing", title), 20)
    assert "it is over" in rows(page, "ended", title)[0]


def test_a_rule_is_written_with_a_look_at_whom_it_means(
    hub: HubProcess, node: Node, come: Callable[..., Page]
) -> None:
    node.slow(0, temp_margin_c=20.0)
    node.slow(1, temp_margin_c=-7.0)
    page = come("/alerts")
    page.get_by_role("button", name="New rule").click()
    fill = {name: page.locator(f"dialog [name={name}]") for name in
            ("id", "title", "signal", "fire", "for", "scope")}
    name = f"mine-{secrets.token_hex(3)}"
    fill["id"].fill(name)
    fill["title"].fill(name)
    fill["signal"].fill("temp_margn_c")
    fill["fire"].fill("<= -5")
    fill["scope"].fill(f"node:{node.teller.caller.said.host}")
    check = page.locator("dialog .rule-check")
    assert soon(lambda: "did you mean 'temp_margin_c'" in check.inner_text(), 10)
    fill["signal"].fill("temp_margin_c")
    assert soon(lambda: "True of 1 of 2 Gpus" in check.inner_text(), 10)
    page.locator("dialog").get_by_role("button", name="Keep it").click()
    assert soon(lambda: rows(page, "rules", name), 10)
    kept = hub.get(f"/api/v1/rules/{name}")["rule"]
    assert (kept["signal"], kept["fire"], kept["for"]) == ("temp_margin_c", "<= -5", "2m")


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_and_width(hub: HubProcess, node: Node, come: Callable[..., Page], theme: str) -> None:
    rule = put(hub, node)
    node.slow(0, temp_margin_c=1.0)
    page = come("/alerts", theme=theme)
    assert soon(lambda: rows(page, "firing", rule["title"]), 20)
    page.evaluate(axe_source())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then("
                          "({violations}) => violations.map(({id, nodes}) => [id, nodes[0].html]))")
    assert found == []
    for width in (320, 390, 1024):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0

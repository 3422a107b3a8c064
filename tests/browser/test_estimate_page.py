"""The Estimate page in a real browser: what a model needs, and the fleet's GPUs that fit it."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from gpudeck.client import Client
from gpudeck.errors import CommandError
from tests.demos import soon
from tests.integration.hubs import HubProcess

from .full_agents import Node, is_live
from .test_look import axe_source

pytestmark = pytest.mark.browser


def text(page: Page, place: str) -> str:
    return " ".join(page.locator(place).inner_text().split())


def test_a_model_its_parts_and_where_it_fits(hub: HubProcess, node: Node,
                                             open_page: Callable[..., Page]) -> None:
    client = Client(hub.url, hub.api_token)
    assert soon(client.gpus)
    page = open_page("/estimate")
    assert soon(lambda: "on one GPU" in text(page, "#estimate-sum"))
    assert "14.96" in text(page, "#estimate-parts")
    model = client.gpus()[0]["name"]
    assert model in text(page, "#estimate-fits")
    page.get_by_role("button", name="Training").click()
    page.get_by_label("Method").select_option("lora")
    assert soon(lambda: "adapters" in text(page, "#estimate-parts"))
    assert "kind=training&method=lora" in page.url
    page.get_by_label("config.json of the model").fill("{")
    assert soon(lambda: "JSON object" in text(page, "#estimate-problem"))
    assert text(page, "#estimate-parts") == ""
    assert soon(lambda: is_live(page))


def test_it_is_reached_by_keyboard_and_readable(hub: HubProcess, node: Node,
                                                open_page: Callable[..., Page]) -> None:
    page = open_page("/estimate", theme="light", width=390)
    assert soon(lambda: "on one GPU" in text(page, "#estimate-sum"))
    page.evaluate(axe_source())
    results = page.evaluate("axe.run(document.querySelector('#estimate'))")
    assert results["violations"] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert soon(lambda: is_live(page))


def test_rest_refuses_in_a_sentence(hub: HubProcess) -> None:
    client = Client(hub.url, hub.api_token)
    with pytest.raises(CommandError, match="either inference or training"):
        client.estimate({"config": {}})
    with pytest.raises(CommandError, match="jamba"):
        client.estimate({"config": {"model_type": "jamba"}, "inference": {}})


def test_advice_says_what_it_waits_for(hub: HubProcess, node: Node,
                                       open_page: Callable[..., Page]) -> None:
    page = open_page("/advice")
    assert soon(lambda: "of 168 hours are measured" in text(page, "#advice-none"))
    advice = Client(hub.url, hub.api_token).advice()
    assert (advice["least_hours"], advice["items"]) == (168, [])
    assert soon(lambda: is_live(page))

"""The Estimate page in a real browser: what a model needs, and the fleet's GPUs that fit it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from gpudeck.client.hub import Client
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


def test_a_file_becomes_the_config_and_stays_on_the_way_back(
        node: Node, open_page: Callable[..., Page], tmp_path: Path) -> None:
    small, large = tmp_path / "small.json", tmp_path / "large.json"
    small.write_text('{"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, '
                     '"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": '
                     '8192, "vocab_size": 128256}')
    large.write_text(" " * (2**20 + 1))
    page = open_page("/estimate")
    config = page.get_by_label("config.json of the model")
    expect(page.locator("#estimate-parts")).to_contain_text("14.96")
    open_file(page, small)
    expect(config).to_have_value(small.read_text())
    expect(page.locator("#estimate-parts")).not_to_contain_text("14.96")
    page.get_by_role("button", name="Training").click()
    expect(page.get_by_label("Method")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("Engine")).to_be_visible()
    expect(config).to_have_value(small.read_text())
    assert "llama" not in page.url
    open_file(page, large)
    expect(page.locator("#estimate-problem")).to_contain_text("larger than 1 MiB")
    assert soon(lambda: is_live(page))


def open_file(page: Page, file: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="open a file").click()
    chooser.value.set_files(file)


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

"""The Quotas page in a real browser: use against limit, whether it is in force, and the editor."""

import secrets
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page

from gpudeck.client import Client
from gpudeck.desired import InForce, QuotaMark
from tests.demos import soon
from tests.integration.hubs import HubProcess

from .tellers import Node
from .test_look import axe_source

pytestmark = pytest.mark.browser


@pytest.fixture(name="client")
def _client(hub: HubProcess) -> Iterator[Client]:
    client = Client(hub.url, hub.api_token)
    yield client
    for each in client.quotas():
        client.remove_quota(each["quota"]["id"])


def card(page: Page, quota_id: str) -> str:
    found = page.locator(".quota").filter(has=page.get_by_role(
        "heading", name=quota_id, exact=True))
    return " ".join(" ".join(found.all_inner_texts()).split())


def user_of(client: Client) -> str:
    assert soon(client.tasks, 10)
    return str(client.tasks()[0]["user"])


def test_who_is_over_stands_first_and_what_is_in_force_is_said(
        client: Client, node: Node, come: Callable[..., Page]) -> None:
    user = user_of(client)
    name = f"none-{secrets.token_hex(3)}"
    client.put_quota(name, {"subject": f"user:{user}", "gpus": 0, "because": "shared"})
    client.put_quota(f"a-{name}", {"subject": "*", "gpus": 9})
    page = come("/quotas")
    assert soon(lambda: "over" in card(page, name), 20), card(page, name)
    first = page.locator(".quota h2").first
    assert first.inner_text() == name
    assert f"{user} may hold 0 Gpus on the whole fleet" in card(page, name)
    assert "Would go first" in card(page, name)
    assert "Wanted on 1 node, applied on 0, in force on 0" in card(page, name)
    meter = page.locator(".quota").first.get_by_role("meter")
    assert meter.get_attribute("aria-valuetext") == next(
        each for each in client.quotas() if each["quota"]["id"] == name)["balances"][0]["sentence"]
    assert "(1) Quotas" in page.title()
    generation = client._told("GET", "quotas")["generation"]
    node.teller.say(InForce(generation, 1.0, 1.0, (
        QuotaMark(name, True, "ladder", "1 task of it seen here"),)))
    assert soon(lambda: "In force on its node" in card(page, name), 20), card(page, name)
    page.locator(".quota").first.locator("summary").click()
    assert "1 task of it seen here" in card(page, name)
    task = client.tasks()[0]["id"]
    [of_task] = client._told("GET", f"tasks/{task}/quotas")["items"]
    assert (of_task["quota"], of_task["is_over"], of_task["goes"]) == (name, True, True)
    assert f"more specific than a-{name}" in of_task["why"]
    drawer = come(f"/tasks?task={task}").locator("#task-body")
    assert soon(lambda: "over: this one would go" in drawer.inner_text(), 20), drawer.inner_text()
    assert of_task["sentence"] in drawer.inner_text()
    page.evaluate(axe_source())
    for width in (1440, 320, 390, 1024):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        if width >= 1024:
            page.keyboard.press("t")  # once dark, once light
            found = page.evaluate(
                "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => "
                "violations.map(({id, nodes}) => [id, nodes[0].html]))")
            assert found == []


def test_it_is_written_changed_looked_back_at_and_removed_by_keys(
        client: Client, node: Node, come: Callable[..., Page]) -> None:
    user = user_of(client)
    page = come("/quotas")
    name = f"mine-{secrets.token_hex(3)}"
    page.get_by_role("button", name="New quota").focus()
    page.keyboard.press("Enter")
    fields = {field: page.locator(f"dialog [name={field}]")
              for field in ("id", "subject", "gpus", "mem_bytes")}
    fields["id"].fill(name)
    fields["subject"].fill(f"user:{user}")
    fields["mem_bytes"].fill("2.5G")
    check = page.locator("dialog .quota-check")
    assert soon(lambda: "is no size" in check.inner_text(), 10), check.inner_text()
    fields["mem_bytes"].fill("")
    fields["gpus"].fill("0")
    assert soon(lambda: "1 would be over it now" in check.inner_text(), 10), check.inner_text()
    assert client.quota(name) is None
    page.locator("dialog").get_by_role("button", name="Set it").click()
    assert soon(lambda: "over" in card(page, name), 20)
    page.get_by_role("button", name=f"Edit {name}").click()
    page.locator("dialog [name=gpus]").fill("7")
    page.locator("dialog").get_by_role("button", name="Keep the change").click()
    assert soon(lambda: "may hold 7 Gpus" in card(page, name), 10)
    page.get_by_role("button", name=f"History {name}").click()
    versions = page.locator("dialog .quota-versions")
    assert soon(lambda: versions.locator("li").count() == 2, 10)
    assert "may hold 0 Gpus" in versions.inner_text()
    page.keyboard.press("Escape")
    page.get_by_role("button", name=f"Remove {name}").click()
    page.locator("dialog").get_by_role("button", name="Remove", exact=True).click()
    assert soon(lambda: card(page, name) == "", 10)
    assert "There is no quota" in page.locator("#quotas-none").inner_text()

"""The Quotas page in a real browser: use against limit, whether it is in force, and the editor."""

import re
import secrets
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page

from gpudeck.client.hub import Client
from gpudeck.contract.desired_state import InForce, QuotaEnforcement
from tests.demos import soon
from tests.integration.hubs import HubProcess

from .full_agents import Node
from .test_look import axe_source

pytestmark = pytest.mark.browser


@pytest.fixture(name="client")
def _client(hub: HubProcess) -> Iterator[Client]:
    client = Client(hub.url, hub.api_token)
    yield client
    for item in client.quotas():
        client.remove_quota(item["quota"]["id"])


def card(page: Page, quota_id: str) -> str:
    cards = page.locator(".quota").filter(has=page.get_by_role(
        "heading", name=quota_id, exact=True))
    return " ".join(" ".join(cards.all_inner_texts()).split())


def user_of(client: Client) -> str:
    assert soon(client.tasks)
    return str(client.tasks()[0]["user"])


def test_who_is_over_stands_first_and_what_is_in_force_is_said(
        client: Client, node: Node, open_page: Callable[..., Page]) -> None:
    user = user_of(client)
    name = f"none-{secrets.token_hex(3)}"
    client.put_quota(name, {"subject": f"user:{user}", "gpus": 0, "because": "shared"})
    client.put_quota(f"a-{name}", {"subject": "*", "gpus": 9})
    page = open_page("/quotas")
    assert soon(lambda: "over" in card(page, name)), card(page, name)
    first = page.locator(".quota h2").first
    assert first.inner_text() == name
    assert f"{user} may hold 0 GPUs on the whole fleet" in card(page, name)
    assert "First to be ended" in card(page, name)
    assert "Wanted on 1 node, applied on 0, in force on 0" in card(page, name)
    meter = page.locator(".quota").first.get_by_role("meter")
    assert meter.get_attribute("aria-valuetext") == next(
        item for item in client.quotas() if item["quota"]["id"] == name)["balances"][0]["sentence"]
    assert "(1) Quotas" in page.title()
    generation = client.hub.ask_for("GET", "quotas")["generation"]
    node.teller.say(InForce(generation, 1.0, 1.0, (
        QuotaEnforcement(name, True, "ladder", "1 task of it seen here"),)))
    assert soon(lambda: "In force on the node" in card(page, name)), card(page, name)
    page.locator(".quota").first.locator("summary").click()
    assert "1 task of it seen here" in card(page, name)
    task = client.tasks()[0]["id"]
    [of_task] = client.hub.ask_for("GET", f"tasks/{task}/quotas")["items"]
    assert (of_task["quota"], of_task["is_over"], of_task["goes"]) == (name, True, True)
    assert f"more specific than a-{name}" in of_task["why"]
    drawer = open_page(f"/tasks?task={task}").locator("#task-body")
    goes = "over: this task would be ended"
    assert soon(lambda: goes in drawer.inner_text()), drawer.inner_text()
    assert of_task["sentence"] in drawer.inner_text()
    page.evaluate(axe_source())
    for width in (1440, 320, 390, 1024):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        if width >= 1024:
            page.keyboard.press("t")  # once dark, once light
            violations = page.evaluate(
                "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => "
                "violations.map(({id, nodes}) => [id, nodes[0].html]))")
            assert violations == []


def test_it_is_written_changed_and_looked_back_at_by_keys(
        client: Client, node: Node, open_page: Callable[..., Page]) -> None:
    user = user_of(client)
    page = open_page("/quotas")
    name = f"mine-{secrets.token_hex(3)}"
    page.get_by_role("button", name="New quota").focus()
    page.keyboard.press("Enter")
    fields = {field: page.locator(f"dialog [name={field}]")
              for field in ("id", "subject", "gpus", "mem_bytes")}
    fields["id"].fill(name)
    fields["subject"].fill(f"user:{user}")
    fields["mem_bytes"].fill("2.5X")
    check = page.locator("dialog .quota-check")
    assert soon(lambda: "is not a size" in check.inner_text()), check.inner_text()
    assert fields["mem_bytes"].get_attribute("aria-invalid") == "true"
    fields["gpus"].fill("two")
    page.locator("dialog").get_by_role("button", name="Save quota").click()
    problem = page.locator("dialog .problem")
    assert soon(lambda: "Max. memory: '2.5X' is not a size" in problem.inner_text())
    assert "Max. GPUs: a whole number" in problem.inner_text()
    assert client.quota(name) is None
    fields["mem_bytes"].fill("")
    fields["gpus"].fill("0")
    assert soon(lambda: "1 would be over now" in check.inner_text()), check.inner_text()
    assert client.quota(name) is None
    page.locator("dialog").get_by_role("button", name="Save quota").click()
    assert soon(lambda: "over" in card(page, name))
    page.get_by_role("button", name=f"Edit {name}").click()
    page.locator("dialog [name=gpus]").fill("7")
    page.locator("dialog").get_by_role("button", name="Save changes").click()
    assert soon(lambda: "may hold 7 GPUs" in card(page, name))
    page.get_by_role("button", name=f"History {name}").click()
    versions = page.locator("dialog .quota-versions")
    assert soon(lambda: versions.locator("li").count() == 2)
    assert "may hold 0 GPUs" in versions.inner_text()


def test_what_is_removed_can_be_put_back_and_nothing_goes_unasked(
        client: Client, node: Node, open_page: Callable[..., Page]) -> None:
    name = f"out-{secrets.token_hex(3)}"
    client.put_quota(name, {"subject": "*", "gpus": 3, "max_age_s": "12h", "mode": "warn",
                            "ladder": [{"do": "tell"}, {"do": "tell", "after_s": "7m"}],
                            "because": "shared"})
    before = client.quota(name)
    page = open_page("/quotas")
    page.get_by_role("button", name=f"Remove {name}").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=f"Remove {name}?")
    assert "limit ends within seconds" in dialog.inner_text()
    page.keyboard.press("Enter")  # what has the focus puts it aside
    assert soon(lambda: dialog.count() == 0)
    assert client.quota(name) is not None
    page.keyboard.press("Enter")  # back on the button that was pressed
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert soon(lambda: card(page, name) == "")
    assert client.quota(name) is None
    assert "No quotas yet" in page.locator("#quotas-none").inner_text()
    page.locator(".toast").get_by_role("button", name="Undo").click()
    assert soon(lambda: "may hold 3 GPUs" in card(page, name))
    restored = client.quota(name)
    assert before is not None
    assert restored is not None
    assert restored["quota"] == before["quota"]
    assert restored["generation"] > before["generation"]


def test_what_a_holder_had_before_is_one_click_away(
        client: Client, node: Node, open_page: Callable[..., Page]) -> None:
    user, name = user_of(client), f"past-{secrets.token_hex(3)}"
    client.put_quota(name, {"subject": "*", "gpus": 1})
    page = open_page("/quotas")
    holder = page.get_by_role("button", name=user, exact=True)
    assert soon(lambda: holder.count() == 1)
    holder.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=f"{user}: GPUs of {name}")
    assert soon(lambda: dialog.locator(".js-plotly-plot").count() == 1), dialog.inner_text()
    assert soon(lambda: re.search("Most: |No data for this time", dialog.inner_text()))
    for span in ("3 hours", "7 days", "24 hours"):
        dialog.get_by_role("button", name=span).click()
        pressed = dialog.locator("[aria-pressed=true]")
        assert pressed.all_inner_texts() == [span]
    assert dialog.get_by_role("link").get_attribute("href") == (
        f"/history?owner=user%3A{user}&last=24h")
    page.keyboard.press("Escape")
    assert soon(lambda: dialog.count() == 0)
    assert soon(lambda: page.locator("#quota-past-words").text_content() == "Loading …")
    page.keyboard.press("Enter")  # the same holder and span: it is asked for again
    assert soon(lambda: re.search("Most: |No data for this time", dialog.inner_text()))
    page.keyboard.press("Escape")
    assert soon(lambda: dialog.count() == 0)
    client.put_quota(name, {"subject": "*", "gpus": 1, "count": "together"})
    sum_of_all = page.get_by_role("button", name="everyone together", exact=True)
    assert soon(lambda: sum_of_all.count() == 1)
    sum_of_all.click()
    why = page.locator("dialog[open] .quota-past")
    assert soon(lambda: "there is no past of this" in why.inner_text()), why.inner_text()


def test_a_node_and_a_gpu_say_who_of_theirs_is_how_near(
        client: Client, node: Node, open_page: Callable[..., Page]) -> None:
    user, name = user_of(client), f"near-{secrets.token_hex(3)}"
    client.put_quota(name, {"subject": f"user:{user}", "gpus": 0})
    client.put_quota("elsewhere", {"subject": "*", "scope": "node:another", "gpus": 0})
    task = client.tasks()[0]
    for path in (f"/node/{task['node']}", f"/gpu/{task['gpus'][0]['uuid']}"):
        panel = open_page(path).locator(".quota-panel")
        assert soon(lambda: "of 0 GPUs" in panel.inner_text()), panel.inner_text()  # noqa: B023
        panel_text = panel.inner_text()
        assert user in panel_text
        assert "over" in panel_text
        assert "would be ended" in panel_text
        assert "not applied" in panel_text
        assert "elsewhere" not in panel_text
        link = panel.get_by_role("link", name=name)
        assert link.get_attribute("href") == f"/quotas#{name}"
    client.remove_quota(name)
    assert soon(lambda: "No quota applies to this GPU" in panel.inner_text())

"""The Audit log page in a real browser: filters in the address, details, older entries, verify."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.demos import soon
from tests.integration.hubs import HubProcess

from .full_agents import Node

pytestmark = pytest.mark.browser
ROWS = "table.audit tbody tr[data-seq]"


def kinds(page: Page) -> set[str]:
    return {text.strip() for text in page.locator(".audit-action").all_inner_texts()}


def test_filters_and_open_entries_stand_in_the_address(
        hub: HubProcess, node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page("/audit")
    expect(page.locator(ROWS).first).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#audit-actor")).to_be_focused()
    page.locator("#audit-kind").select_option("node")
    page.wait_for_url("**/audit?kind=node")
    assert soon(lambda: "enrol" in kinds(page) <= {"enrol", "approve", "group", "revoke"}), kinds(
        page)
    page.locator("#audit-node").fill(node.teller.caller.said.host)
    page.wait_for_url("**node=**")
    seq = page.locator(ROWS).first.get_attribute("data-seq")
    more = page.get_by_role("button", name=f"More about entry {seq}")
    more.focus()
    page.keyboard.press("Enter")
    less = page.get_by_role("button", name=f"Less about entry {seq}")
    expect(less).to_be_focused()
    expect(page.locator(".audit-more")).to_contain_text("Hash")
    assert f"open={seq}" in page.url
    page.reload()
    expect(page.locator(".audit-more")).to_contain_text("Hash")
    expect(page.locator("#audit-node")).to_have_value(node.teller.caller.said.host)
    page.locator("#audit-node").fill("no such node")
    expect(page.locator("#audit-place .none")).to_have_text("No entry matches.")
    assert sum(page.evaluate("shifts")) < 0.1


def test_the_systems_lines_are_behind_a_switch_and_the_verdict_stays(
        hub: HubProcess, node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page("/audit")
    expect(page.locator(ROWS).first).to_be_visible()
    page.locator("#audit-verify").click()
    expect(page.locator("#audit-verdict")).to_have_class("verdict good")
    assert "start" not in kinds(page)
    page.locator("#audit-system").select_option("all")
    page.wait_for_url("**/audit?system=all")
    assert soon(lambda: "start" in kinds(page)), kinds(page)
    expect(page.locator("#audit-verdict")).to_contain_text("are intact; the newest is")
    expect(page.locator("#audit-words")).to_contain_text("entries")
    assert "verify" not in page.url
    page.go_back()
    assert soon(lambda: "start" not in kinds(page))

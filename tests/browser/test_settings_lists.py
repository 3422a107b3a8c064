"""Settings: addresses, teams and passwords, each by its dialogs in a real browser."""

import secrets
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from tests.demos import soon
from tests.integration.hubs import HubProcess
from tests.integration.visitors import add_person

pytestmark = pytest.mark.browser


def fill(page: Page, verb: str, **values: str) -> None:
    """Fill the open dialog and confirm it."""
    dialog = page.locator("dialog[open]")
    for name, value in values.items():
        dialog.locator(f"[name={name}]").fill(value)
    dialog.get_by_role("button", name=verb, exact=True).click()


def row(page: Page, text: str) -> Locator:
    return page.locator("tbody tr:visible", has_text=text)


def items(hub: HubProcess, path: str, key: str) -> dict[str, Any]:
    return {item[key]: item for item in hub.get(f"/api/v1/{path}")["items"]}


def test_an_address_is_added_changed_and_removed(
        hub: HubProcess, open_page: Callable[..., Page]) -> None:
    name = f"u{secrets.token_hex(3)}"
    page = open_page("/settings#addresses")
    page.get_by_role("button", name="Add an address").click()
    fill(page, "Save", unix_name=name, address=f"{name}@example.org")
    row(page, name).get_by_role("button", name="Edit").click()
    fill(page, "Save", address="other@example.org")
    assert soon(lambda: "other@example.org" in row(page, name).inner_text())
    assert items(hub, "addresses", "unix_name")[name]["address"] == "other@example.org"
    row(page, name).get_by_role("button", name="Remove").click()
    fill(page, "Remove")
    row(page, name).wait_for(state="detached")
    assert name not in items(hub, "addresses", "unix_name")


def test_a_team_is_added_changed_and_removed(
        hub: HubProcess, open_page: Callable[..., Page]) -> None:
    name = f"$users/{secrets.token_hex(3)}"
    page = open_page("/settings#teams")
    page.get_by_role("button", name="Add a team").click()
    fill(page, "Save", name=name, users="ann, bob ann", patterns="lab3-*", price="2.5")
    assert soon(lambda: "ann, bob, lab3-*" in row(page, name).inner_text())
    row(page, name).get_by_role("button", name="Edit").click()
    fill(page, "Save", users="ann", price="")
    assert soon(lambda: "that of the report" in row(page, name).inner_text())
    team = items(hub, "teams", "name")[name]
    assert (team["users"], team["patterns"]) == (["ann"], ["lab3-*"])
    row(page, name).get_by_role("button", name="Remove").click()
    fill(page, "Remove")
    row(page, name).wait_for(state="detached")
    assert name not in items(hub, "teams", "name")


def test_a_password_is_set_or_left_to_a_link_that_is_shown_once(
        hub: HubProcess, open_page: Callable[..., Page]) -> None:
    name = f"u{secrets.token_hex(3)}"
    add_person(hub, name, "viewer")
    page = open_page("/settings#users")
    row(page, name).get_by_role("button", name=f"Set the password of {name}").click()
    fill(page, "Save", password="correct horse battery", again="another horse battery")
    assert soon(lambda: "do not match" in page.locator("dialog[open]").inner_text())
    fill(page, "Save", again="correct horse battery")
    page.locator("dialog[open]").wait_for(state="detached")
    row(page, name).get_by_role("button", name=f"Set the password of {name}").click()
    page.get_by_role("button", name="create a link").click()
    fill(page, "Create link")
    link = page.get_by_role("dialog", name=f"A link for {name}").locator("code")
    assert soon(lambda: link.count() == 1)
    assert link.inner_text().startswith("http")
    secret = link.inner_text().rpartition("/")[2]
    fill(page, "Done")
    assert soon(lambda: secret not in page.content())
    assert soon(lambda: "not set yet" in row(page, name).inner_text())

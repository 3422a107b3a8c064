"""Settings, Notices: receivers are added, tried out and removed in a real browser."""

import secrets
from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.demos import soon
from tests.fakes.webhook import HttpSink

from .test_look import axe_source

pytestmark = pytest.mark.browser


def state(page: Page, name: str) -> str:
    """Read the row at one moment, as it may go meanwhile."""
    rows = page.locator("#section-notices tbody tr").filter(has_text=name)
    return " ".join(" ".join(rows.all_inner_texts()).split())


def test_a_receiver_is_added_tried_out_and_removed(open_page: Callable[..., Page]) -> None:
    with HttpSink() as sink:
        name, path = f"chat {secrets.token_hex(3)}", secrets.token_hex(8)
        page = open_page("/settings#notices")
        page.get_by_role("button", name="Add a receiver").click()
        dialog = page.locator("dialog[open]")
        dialog.get_by_label("Name", exact=True).fill(name)
        dialog.get_by_label("URL").fill(f"{sink.url}/{path}")
        dialog.get_by_role("button", name="Add", exact=True).click()
        assert soon(lambda: "idle" in state(page, name))
        page.get_by_role("button", name=f"Test {name}").click()
        assert soon(lambda: "Test delivered: it answered 200 OK" in state(page, name))
        assert [notice["status"] for notice in sink.got] == ["test"]
        assert path not in page.content()
        sink.status = 503
        page.get_by_role("button", name=f"Test {name}").click()
        assert soon(lambda: "Test not delivered: it answered 503" in state(page, name))
        page.get_by_role("button", name=f"Edit {name}").click()
        dialog.get_by_label("On", exact=False).last.uncheck()
        dialog.get_by_role("button", name="Save").click()
        assert soon(lambda: " off " in state(page, name))
        page.get_by_role("button", name=f"Remove {name}").click()
        page.locator("dialog[open]").get_by_role("button", name="Remove").click()
        assert soon(lambda: state(page, name) == "")


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_and_width(open_page: Callable[..., Page], theme: str) -> None:
    page = open_page("/settings#notices", theme=theme)
    page.get_by_role("button", name="Add a receiver").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Kind").select_option("owners")
    assert dialog.get_by_label("URL").is_hidden()
    assert "Mail is not set up" in dialog.inner_text()
    page.evaluate(axe_source())
    violations = page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then("
        "({violations}) => violations.map(({id, nodes}) => [id, nodes[0].html]))")
    assert violations == []
    for width in (320, 390, 1024):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0

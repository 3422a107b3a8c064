"""Rules that act, in a real browser with a real hub and agent: a person lets one act happen, and
modes go up through their gates and down at once."""

import secrets
import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page

from tests.demos import soon
from tests.integration.hubs import wait_for
from tests.integration.test_rules_act import DAYS_S, Bed, a_bed  # noqa: F401  # a fixture
from tests.integration.visitors import add_person, signed_in

from .full_agents import GIVEN_UP
from .test_look import axe_source

pytestmark = pytest.mark.browser
Open = Callable[..., Page]


@pytest.fixture(name="person")
def _person(bed: Bed, browser: Browser) -> Iterator[Open]:
    """The Alerts page of somebody of this role, who has just signed in."""
    trouble: list[str] = []
    opened = []

    def person(role: str) -> Page:
        name = f"{role}-{secrets.token_hex(3)}"
        add_person(bed.hub, name, role, ["*"])
        visitor = signed_in(bed.hub, name)
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        context.add_cookies([
            {"name": key, "value": value, "domain": "127.0.0.1", "path": "/"}
            for key, value in visitor.cookies.items()])
        opened.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: trouble.append(f"{error}"))
        page.on("console", lambda message: trouble.append(message.text) if message.type in (
            "error", "warning") and GIVEN_UP not in message.text and (
            "Failed to load resource" not in message.text) else None)
        page.goto(f"{bed.hub.url}/alerts")
        return page

    yield person
    for context in opened:
        context.close()
    assert trouble == [], trouble


def rule_row(page: Page, rule_id: str) -> Locator:
    return page.locator("#alerts-rules tbody tr").filter(has_text=rule_id)


def firing(page: Page, rule_id: str) -> Locator:
    return page.locator("#alerts-firing tbody tr").filter(has_text=rule_id)


def dialog(page: Page) -> Locator:
    return page.locator("dialog[open]").last


def test_a_person_lets_it_happen_and_nothing_else(bed: Bed, person: Open) -> None:
    hog = bed.hog()
    rule = bed.put("confirm")
    wait_for(lambda: bed.ladder(hog).get("confirm"), why="it waits for somebody")
    watching, page = person("viewer"), person("operator")
    row = firing(page, rule)
    assert soon(lambda: "end, waiting for approval" in row.inner_text())
    assert firing(watching, rule).count() == 1
    assert watching.get_by_role("button", name="Approve:").count() == 0
    button = row.get_by_role("button", name="Approve: end at")
    button.focus()
    page.keyboard.press("Enter")
    preview = dialog(page)
    preview.locator(".act-item").first.wait_for()
    assert str(hog.pid) in preview.inner_text(), "exactly whom it would hit"
    assert "Idle with memory held" in preview.inner_text(), "and by which rule"
    page.evaluate(axe_source())
    assert page.evaluate("axe.run('dialog[open]', {resultTypes: ['violations']}).then("
                         "({violations}) => violations.map(({id, nodes}) => [id, nodes[0].html]))"
                         ) == []
    page.keyboard.press("Escape")
    assert hog.is_alive()
    assert bed.ending(hog) is None
    button.click()
    dialog(page).locator(".act-item").first.wait_for()
    because = f"I asked {secrets.token_hex(3)}"
    dialog(page).locator("[name=reason]").fill(because)
    dialog(page).locator(".act-foot .button").last.click()
    wait_for(lambda: not hog.is_alive(), why="it ends")
    assert because in bed.ending(hog)["reason"]
    assert bed.ending(hog)["by"]["name"].startswith("operator-")
    assert soon(lambda: row.count() == 0)
    bed.check()


def test_a_rule_is_approved_in_at_most_six_clicks(bed: Bed, person: Open) -> None:
    """Clicks from another page: to Alerts, the rule's mode, the rehearsal's approval, auto."""
    bed.is_clear()
    rule = bed.put("dry_run", **{"for": "5m"})
    rehearsal = wait_for(lambda: bed.ask("POST", "rules/backtests", {
        "rule": bed.hub.get(f"/api/v1/rules/{rule}")["rule"],
        "start": time.time() - 3_600, "end": time.time()}).json.get("id"), why="a minute")
    assert soon(lambda: bed.hub.get(f"/api/v1/rules/backtests/{rehearsal}")["state"] == "done")
    page, clicks = person("admin"), 0
    page.goto(f"{bed.hub.url}/")
    finds: tuple[Callable[[], Locator], ...] = (
        lambda: page.get_by_role("link", name="Alerts", exact=True),
        lambda: rule_row(page, rule).get_by_role("button", name="Mode of"),
        lambda: dialog(page).get_by_role("button", name="Approve").first)
    for find in finds:
        find().click()
        clicks += 1
    assert soon(lambda: bed.hub.get(f"/api/v1/rules/backtests/{rehearsal}")["approved_by"])
    until = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 30 * DAYS_S))
    set_mode(page, "auto", until)
    clicks += 3  # the list of modes, the mode, Save
    assert soon(lambda: mode_of(page, rule) == "auto")
    assert clicks <= 6


def set_mode(page: Page, mode: str, until: str | None = None) -> Locator:
    """Returns the dialog, which is still there when the hub says no."""
    mode_dialog = dialog(page)
    mode_dialog.locator("[name=mode]").select_option(mode)
    if until is not None:
        mode_dialog.locator("[name=expires]").fill(until)
    mode_dialog.get_by_role("button", name="Save", exact=True).click()
    return mode_dialog


def mode_of(page: Page, rule_id: str) -> str:
    return rule_row(page, rule_id).locator("td").nth(3).inner_text()


def problem_in(dialog: Locator) -> Locator:
    return dialog.locator(".problem:not([hidden])")


def test_modes_go_up_through_gates_and_down_at_once(bed: Bed, person: Open) -> None:
    bed.is_clear()
    rule = bed.put("dry_run")  # another admin's, for eight days
    until = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 30 * DAYS_S))
    admin, ops = person("admin"), person("operator")
    is_now = {mode: lambda mode=mode: mode_of(admin, rule) == mode
              for mode in ("dry run", "confirm", "auto", "observe")}
    rule_row(admin, rule).get_by_role("button", name="Mode of").click()
    mode_dialog = set_mode(admin, "auto")
    assert soon(lambda: "must expire" in problem_in(mode_dialog).inner_text())
    set_mode(admin, "auto", until)
    assert soon(is_now["auto"])
    assert bed.hub.get(f"/api/v1/rules/{rule}")["rule"]["expires"] == until
    rule_row(ops, rule).get_by_role("button", name="Mode of").click()
    set_mode(ops, "confirm")
    assert soon(is_now["confirm"]), "down is an operator's too"
    rule_row(ops, rule).get_by_role("button", name="Mode of").click()
    mode_dialog = set_mode(ops, "auto")
    assert soon(lambda: problem_in(mode_dialog).is_visible()), "up is not"
    ops.keyboard.press("Escape")
    rule_row(admin, rule).get_by_role("button", name="Edit").click()
    dialog(admin).locator("[name=fire]").fill("<= 2")
    dialog(admin).get_by_role("button", name="Save changes").click()
    assert soon(is_now["dry run"]), "an edit takes it back"
    rule_row(admin, rule).get_by_role("button", name="Mode of").click()
    mode_dialog = set_mode(admin, "auto", until)
    assert soon(lambda: "nother admin" in problem_in(mode_dialog).inner_text())
    admin.keyboard.press("Escape")
    rule_row(ops, rule).get_by_role("button", name="Mode of").click()
    set_mode(ops, "observe")
    assert soon(is_now["observe"])
    rule_row(admin, rule).get_by_role("button", name="Mode of").click()
    mode_dialog = set_mode(admin, "confirm")
    assert soon(lambda: "from observe to dry_run" in problem_in(mode_dialog).inner_text())
    bed.check()

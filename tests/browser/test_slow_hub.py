"""Pages in front of a hub that does not answer, or not yet: their requests do not pile up, and
nothing moves when it does."""

from collections import Counter
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Request, Route

from dashboard.alerts.api import RECOVERING
from tests.demos import soon
from tests.integration.hubs import HubProcess

from .full_agents import Node, is_live
from .test_alerts_page import put, rows
from .test_every_page import SHIFTS

pytestmark = pytest.mark.browser
HELD_MS = 7_000  # three times as long as the pause after which a panel asks again
UNSEEN_MOST_MS = 3_000  # a page that comes in pieces is seen after 2.5 s
SHIFTS_REPORTED_MS = 500  # a browser reports what moved a moment later
# How many rows there ever were at once. An alert that comes and goes moves what is below it.
COUNT_ROWS = """globalThis.rowCounts = new Set();
    new MutationObserver(() => rowCounts.add(document.querySelectorAll('#alerts tbody tr').length)
    ).observe(document, {childList: true, subtree: true});"""
MOVING = ("start", "end")  # in what is asked up to now


def question(request: Request) -> tuple[str, ...]:
    """Return what a request asks for, whenever it does."""
    parts = urlsplit(request.url)
    query = [f"{name}={values}" for name, values in sorted(parse_qs(parts.query).items())
             if name not in MOVING]
    inputs = (request.post_data_json or {}).get("inputs") if request.method == "POST" else None
    page = [str(entry["value"]["page"]) for entry in inputs or []]
    return (request.method, parts.path, *query, *page)


@pytest.mark.parametrize("path", ["/node/{host}", "/gpu/{uuid}", "/?gpu={uuid}", "/tasks",
                                  "/alerts"])
def test_a_page_asks_nothing_again_before_it_has_been_answered(
        hub: HubProcess, node: Node, open_page: Callable[..., Page], path: str) -> None:
    host, routes = node.teller.caller.said.host, list[Route]()
    page = open_page(path.format(host=host, uuid=node.uuid(0)))
    assert soon(lambda: is_live(page))
    page.wait_for_selector("main > :not([hidden], [data-unsettled], [aria-busy=true])")
    for pattern in ("**/api/v1/**", "**/_dash-update-component*"):
        page.route(pattern, lambda route: routes.append(route))
    page.wait_for_timeout(HELD_MS)
    counts = Counter(question(route.request) for route in routes)
    assert counts
    assert max(counts.values()) == 1, counts
    # Once it answers, they go on.
    with page.expect_request("**/_dash-*" if path == "/alerts" else "**/api/v1/**"):
        page.unroute_all()


@pytest.mark.parametrize("width", [1440, 390])
def test_alerts_that_come_after_a_restart_of_the_hub_move_nothing(
        hub: HubProcess, node: Node, open_page: Callable[..., Page], width: int) -> None:
    """The lists came below titles without any, and the sentence about the hub above both: 0.78."""
    rule, page, problems = put(hub, node), open_page("/tasks", width=width), [RECOVERING]
    for gpu in (0, 1):
        node.slow(gpu, temp_margin_c=3.0)
    # A line that is of one GPU first and then of both has another height.
    alerts = f"/api/v1/alerts?rule={rule['id']}"
    assert soon(lambda: len(hub.get(alerts)["items"]) == 2)
    page.route("**/_dash-update-component*", lambda route: answer_page(route, problems))
    page.add_init_script(SHIFTS.replace("shifts", "moved") + COUNT_ROWS)
    for _ in range(6):  # once more where another alert came or went meanwhile
        page.goto(f"{hub.url}/alerts")
        shifts = measure(page, problems, rule["title"])
        if page.evaluate("[...rowCounts].filter(count => count > 0).length") == 1:
            break
        problems[:] = [RECOVERING]
    assert sum(shifts) <= 0.02, page.evaluate("[moved, [...rowCounts]]")
    for gpu in (0, 1):
        node.slow(gpu, temp_margin_c=30.0)


def measure(page: Page, problems: list[str], title: str) -> list[float]:
    """Let the hub answer after a while, twice; return what moved."""
    problem = page.locator("#alerts-problem")
    for times in range(2):  # before the first answer, and on a page that stands
        assert soon(problem.is_visible)
        assert bool(rows(page, "firing", title)) is bool(times)
        page.wait_for_timeout(UNSEEN_MOST_MS)
        problems.clear()
        assert soon(lambda: rows(page, "firing", title) and problem.is_hidden())
        problems.append(RECOVERING)
    assert soon(problem.is_visible)
    page.wait_for_timeout(SHIFTS_REPORTED_MS)
    shifts: list[float] = page.evaluate("shifts")
    return shifts


def answer_page(route: Route, problems: list[str]) -> None:
    """Answer a page that is read as the hub does, or with a problem as long as there is one."""
    response = route.fetch()
    body = response.json()
    answer = body["response"]["page-answer"]["answer"]
    if problems:
        answer = {"number": answer["number"], "problem": problems[0]}
    route.fulfill(response=response, json={
        **body, "response": {"page-answer": {"answer": answer}}})

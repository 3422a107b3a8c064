"""Pages in front of a hub that does not answer: their requests do not pile up."""

from collections import Counter
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Request, Route

from tests.demos import soon
from tests.integration.hubs import HubProcess

from .full_agents import Node, is_live

pytestmark = pytest.mark.browser
HELD_MS = 7_000  # three times as long as the pause after which a panel asks again
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

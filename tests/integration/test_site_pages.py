"""Pages of a site before a real hub: whose they are, what they may, and that nothing of theirs
stops or slows it."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException

import pytest

from dashboard.access.policy import CALLBACKS
from dashboard.pages.site_hub import LONG_QUERIES
from tests.integration.hubs import Answer, HubProcess, WireAgent, one_task, wait_for
from tests.integration.visitors import Visitor, add_person, signed_in

PAGES = {
    "ops": """
import logging
import time
from dash import Input, Output, html
from gpudeck.pages import SitePage

page = SitePage("ops", "For operators", role="operator")

@page.layout
def layout(hub):
    return html.P(f"{len(hub.gpus())} GPUs to be seen", id="count")

@page.callback(Output("count", "title"), Input("count", "n_clicks"))
def answer(hub, clicks):
    if clicks == 13:
        time.sleep(3)
    if clicks == 15:
        logging.getLogger("gpudeck.site").error("asleep")
        time.sleep(600)
    if clicks == 14:
        hub.client.hold(None, "a page of the site holds the fleet")
    return f"{len(hub.gpus())} of {clicks}"
""",
    "broken": "raise RuntimeError('broken on purpose')\n",
    "leaves": "import sys\nsys.exit('no page here')\n",
    "loose": """
from dash import Input, Output, clientside_callback, html
from gpudeck.pages import SitePage

page = SitePage("loose", "Loose")
page.layout(lambda hub: html.P("x", id="x"))
clientside_callback("function (x) { return eval(x) }", Output("x", "title"), Input("x", "children"))
""",
    "raises": """
from gpudeck.pages import SitePage

page = SitePage("raises", "Raises")

@page.layout
def layout(hub):
    raise ValueError("secret words")
""",
}
PEOPLE = {"eve": ("viewer", "*"), "otto": ("operator", "*"), "ada": ("admin", "*"),
          "far": ("operator", "elsewhere")}
BUSY_S = 3


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    folder = tmp_path_factory.mktemp("hub") / "data"
    (folder / "pages").mkdir(parents=True)
    folder.chmod(0o700)
    for name, text in PAGES.items():
        (folder / "pages" / f"{name}.py").write_text(text)
    with HubProcess(folder) as hub:
        for name, (role, group) in PEOPLE.items():
            add_person(hub, name, role, [group])
        agent = WireAgent("n1")
        agent.connect(hub)
        agent.tick(one_task())
        wait_for(lambda: hub.get("/api/v1/gpus")["items"], why="the GPUs")
        yield hub


def layout(person: Visitor, page: str) -> str:
    answer = person.ask("/_dash-layout", Referer=f"{person.hub.url}{page}")
    assert answer.status == 200
    return answer.body.decode()


def call(person: Visitor, output: str, value: object, **how: str) -> Answer:
    ident, _, prop = output.partition(".")
    entry = {"main": "pathname", "page-answer": "asked"}.get(ident, "n_clicks")
    return person.send("/_dash-update-component", {
        "output": output, "outputs": {"id": ident, "property": prop}, "changedPropIds": [],
        "inputs": [{"id": ident, "property": entry, "value": value}]}, **how)


def test_a_page_is_for_its_role_and_so_are_its_callbacks(hub: HubProcess) -> None:
    eve, otto = signed_in(hub, "eve"), signed_in(hub, "otto")
    assert "GPUs to be seen" in layout(otto, "/site/ops")
    assert "this needs the role operator; yours is viewer" in layout(eve, "/site/ops")
    assert "to be seen" not in layout(eve, "/site/ops")
    # The same by the router's callback, whatever page the browser says that it is on.
    assert b"to be seen" in call(otto, "main.children", "/site/ops").body
    assert b"this needs the role operator" in call(eve, "main.children", "/site/ops").body
    for nonsense in (None, 7, ["/site/ops"], {"a": "/site/ops"}):
        assert call(eve, "main.children", nonsense).json["response"]["main"]["children"] == []
    assert call(otto, "count.title", 1).status == 200
    assert call(eve, "count.title", 1).status == 403
    assert call(otto, "count.title", 1, X_CSRFToken="x").status == 403
    assert "For operators" in layout(otto, "/")
    for text in (layout(eve, "/"), eve.ask("/").body.decode()):
        assert "For operators" not in text
    # Who is there all the same needs the bar around the sentence, and so the page's row.
    index = eve.ask("/site/ops").body.decode()
    assert '"site-ops"' in index
    assert "For operators" not in index + layout(eve, "/site/ops")


def test_its_numbers_are_those_that_the_viewer_may_see(hub: HubProcess) -> None:
    count = len(hub.get("/api/v1/gpus")["items"])
    assert f"{count} GPUs to be seen" in layout(signed_in(hub, "otto"), "/site/ops")
    assert "0 GPUs to be seen" in layout(signed_in(hub, "far"), "/site/ops")


def test_a_page_that_fails_says_so_and_the_hub_stands(hub: HubProcess) -> None:
    ada, otto = signed_in(hub, "ada"), signed_in(hub, "otto")
    log = hub.log.read_text()
    for name, words in {"broken": "RuntimeError: broken on purpose",
                        "leaves": "SystemExit: no page here",
                        "loose": "ValueError: declare callbacks with page.callback"}.items():
        assert f"The page {name} is left out: {words}" in log
        assert words in layout(ada, f"/site/{name}")
        assert words not in layout(otto, f"/site/{name}")
    page = layout(otto, "/site/raises")
    assert "This page failed: ValueError" in page
    assert "secret words" not in page
    assert "secret words" in hub.log.read_text()


def test_no_page_loosens_what_guards_the_hub(hub: HubProcess) -> None:
    otto = signed_in(hub, "otto")
    policies = {otto.ask(path).headers["Content-Security-Policy"]
                for path in ("/", "/site/ops", "/site/loose")}
    assert len(policies) == 1
    assert "eval" not in policies.pop()
    dependencies = otto.ask("/_dash-dependencies").json
    assert {dependency["output"] for dependency in dependencies} == {"count.title", *(
        row.verb.removeprefix("callback ") for row in CALLBACKS)}
    stranger = Visitor(hub)
    assert stranger.ask("/site/ops").status == 303
    assert call(stranger, "count.title", 1).status == 401
    assert call(otto, "count.title", 14).status == 500, "a page reads only"
    assert hub.get("/api/v1/hold")["fleet"] is None


def test_queries_too_long_for_an_address_are_the_only_ones_that_are_posted(hub: HubProcess) -> None:
    """The callback sends the CSRF token of the page's own request: the gate asks for it as ever."""
    answer = call(signed_in(hub, "eve"), "page-answer.answer",
                  {"page": "estimate", "number": 1, "view": {"kind": "training"}})
    parts = json.loads(answer.body)["response"]["page-answer"]["answer"]["parts"]
    assert parts["estimate-problem"] is None
    assert " on one GPU" in json.dumps(parts["estimate-sum"])
    assert {("POST", name) for name in (
        "estimates", "pool/simulations", "quota-checks", "rule-checks")} == LONG_QUERIES


def test_a_slow_page_makes_nobody_else_wait(hub: HubProcess) -> None:
    otto = signed_in(hub, "otto")
    answers: list[Answer] = []
    slow = threading.Thread(target=lambda: answers.append(call(otto, "count.title", 13)))
    began = time.monotonic()
    slow.start()
    took = []
    while slow.is_alive():
        asked_at = time.monotonic()
        assert hub.ask("/healthz").status == 200
        took.append(time.monotonic() - asked_at)
    slow.join()
    assert time.monotonic() - began >= BUSY_S
    assert max(took) < BUSY_S / 2
    assert len(took) > BUSY_S
    assert " of 13" in json.loads(answers[0].body)["response"]["count"]["title"]


def test_a_page_that_never_returns_does_not_keep_the_hub_from_ending(hub: HubProcess) -> None:
    otto = signed_in(hub, "otto")

    def wait() -> None:
        with contextlib.suppress(OSError, HTTPException):
            call(otto, "count.title", 15)

    stuck = threading.Thread(target=wait, daemon=True)
    stuck.start()
    wait_for(lambda: "said=asleep" in hub.log.read_text())
    assert hub.stop() == 0

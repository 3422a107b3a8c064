"""The page of docs/extend.md, as it stands there, in a hub and a browser."""

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.demos import soon
from tests.integration.hubs import HubProcess
from tests.integration.visitors import add_person

from .full_agents import Node, is_live

pytestmark = pytest.mark.browser
DOCS = Path(__file__).resolve().parents[2] / "docs"
FOUND = re.search(r"```python\n(.*?)```", (DOCS / "extend.md").read_text(), re.S)
MORE = """
import plotly.express
from dash import Input, Output, dcc, html
from gpudeck.pages import AlertLane, AttentionStrip, LiveTable, LiveTimeline, SitePage, TimeBar

ops = SitePage("ops", "Ops")


@ops.layout
def whole(hub):
    return [AttentionStrip("strip-of-ops"), AlertLane(minutes=30), TimeBar(),
            LiveTimeline(gpus=hub.gpus()["uuid"][:1], metric=None), html.P(id="moment")]


@ops.callback(Output("moment", "children"), Input("time-bar", "at"))
def chosen(hub, at):
    return "live" if at is None else f"at {at}"


lines = SitePage("lines", "Lines")


@lines.layout
def layout(hub):
    return [LiveTimeline(gpus=hub.gpus()["uuid"], metric="temp_c"), LiveTable(metric="temp_c"),
            dcc.Dropdown(["temp_c", "power_w"], "temp_c", id="lines-metric"),
            dcc.Graph(id="lines-now")]


@lines.callback(Output("lines-now", "figure"), Input("lines-metric", "value"))
def bars(hub, metric):
    gpus = hub.gpus()
    return plotly.express.bar(gpus, x="gpu", y=metric, color="host")
"""


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    folder = tmp_path_factory.mktemp("hub") / "data"
    (folder / "pages").mkdir(parents=True)
    folder.chmod(0o700)
    assert FOUND is not None
    (folder / "pages" / "heat.py").write_text(FOUND[1])
    (folder / "pages" / "lines.py").write_text(MORE)
    with HubProcess(folder) as hub:
        add_person(hub, "root", "admin")
        yield hub



def test_the_page_of_the_docs_lives(hub: HubProcess, node: Node, open_page: Callable[..., Page]
                                    ) -> None:
    assert FOUND is not None
    assert FOUND[1].count("\n") < 40
    page = open_page("/site/heat")
    assert soon(lambda: page.locator("#map canvas").count() == 1 and is_live(page))
    assert soon(lambda: "GPUs are above 60 °C" in page.locator("#words").inner_text())
    assert soon(lambda: page.locator("#spread .bars .point").count() > 0)
    page.locator("#limit [role=slider]").focus()
    for _ in range(random.randrange(1, 4)):
        page.keyboard.press("ArrowLeft")
    degrees = int(page.locator("#limit [role=slider]").get_attribute("aria-valuenow") or "")
    assert degrees < 60
    assert soon(lambda: f"above {degrees} °C" in page.locator("#words").inner_text())
    page.locator("#map .heatmap").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    [host] = {gpu["host"] for gpu in hub.get("/api/v1/gpus")["items"]}
    assert soon(lambda: page.locator("#which").inner_text() == f"{host}, GPU 0")
    assert page.locator(".bar nav a[aria-current]").inner_text() == "Heat"
    free = page.locator(".site-figure b")
    assert soon(lambda: free.inner_text().isdigit())


def test_a_browser_that_does_not_say_where_it_is_gets_the_page(
        node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    assert soon(lambda: is_live(page))
    page.route("**/_dash-layout", lambda route: route.continue_(headers={
        name: value for name, value in route.request.headers.items() if name != "referer"}))
    page.goto(page.url + "tasks")
    assert soon(lambda: page.locator("#tasks").is_visible() and is_live(page))


def test_lines_and_rows_are_drawn_from_the_socket(
        node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page("/site/lines")
    assert soon(lambda: page.locator(".chart-legend b").count() == 2)
    assert soon(lambda: all(entry.inner_text().endswith("°C")
                            for entry in page.locator(".chart-legend b").all()))
    rows = page.locator(".site-rows tbody tr")
    assert soon(lambda: rows.count() == 2 and "°C" in rows.first.inner_text())
    # At one moment: both are drawn anew each second.
    temps = [float(line.split("\t")[-1].split()[0]) for line in rows.all_inner_texts()]
    assert temps == sorted(temps, reverse=True)
    assert soon(lambda: page.locator("#lines-now .bars .point").count() == 2)
    assert soon(lambda: is_live(page))


def test_what_our_pages_are_made_of_stands_on_a_sites_page(
        node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page("/site/ops")
    assert soon(lambda: "1 of 1 node healthy" in page.inner_text("#summary"))
    assert soon(lambda: "no one waiting" in page.inner_text("#card-queue"))
    assert soon(lambda: page.inner_text(".alert-lane .lane-none") == "No alert in this time")
    assert soon(lambda: page.locator(".live-timeline .chart").count() > 3)
    page.click("#card-free")
    lists = page.locator("#attention-panel")
    assert soon(lambda: lists.is_visible() and "free" in lists.inner_text())
    page.keyboard.press("Escape")
    assert soon(lambda: not lists.is_visible())
    assert page.inner_text("#moment") == "live"
    page.locator("#time-slider").focus()
    page.keyboard.press("ArrowLeft")
    assert soon(lambda: page.inner_text("#moment").startswith("at 1"))
    page.click("#time-live")
    assert soon(lambda: page.inner_text("#moment") == "live")

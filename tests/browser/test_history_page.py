"""The past in a real browser: what is drawn is what the hub says, past and live without a seam;
one zooms, takes it away as a file, and hostile names stay text."""

import csv
import io
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page

from gpudeck.contract.wire import Beat
from tests.demos import soon
from tests.integration.hubs import HubProcess, one_task
from tests.integration.visitors import add_person
from tests.pasts import HOUR_S, OWNERS, Past

from .full_agents import is_live
from .test_look import axe_source

pytestmark = pytest.mark.browser
# What is shown: the lines of GPUs, or the sums that the hub draws.
SHOWN = """[...document.querySelectorAll('#past-place .js-plotly-plot')]
           .find(({ offsetParent }) => offsetParent !== null)"""
# What stands in the empty place of the figure, in each frame in which it is seen.
EMPTY = """globalThis.emptySays = new Set();
    (function look() {
        const place = document.getElementById('past-graph');
        if (place?.checkVisibility() && place.childElementCount === 0)
            emptySays.add(getComputedStyle(place, '::after').content);
        requestAnimationFrame(look);
    })();"""
Band = list[tuple[int, float | None, float | None, float | None]]


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("past") / "data"


@pytest.fixture(name="past", scope="module")
def _past(folder: Path) -> Past:
    now = int(time.time())
    return Past(now - 2 * HOUR_S, now - 60).write(folder)


@pytest.fixture(name="hub", scope="module")
def _hub(folder: Path, past: Past) -> Iterator[HubProcess]:
    """Yield a hub with agents that go on reporting, a second at a time."""
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.wait(1.0):
            for agent in past.agents:
                agent.tick(one_task())

    with HubProcess(folder) as hub:
        add_person(hub, "root", "admin")
        for agent in past.agents:
            agent.connect(hub)
        voice = threading.Thread(target=go_on, daemon=True)
        voice.start()
        yield hub
        is_over.set()
        voice.join(20)


def line(page: Page, uuid: str, key: str) -> Band:
    """Return what is drawn of a metric, from Plotly's trace: second, mean, minimum, maximum."""
    band: Band = page.evaluate(f"""([uuid, key]) => {{
        const {{ x0, dx, y = [], customdata = [] }} = ({SHOWN})?.data.find(({{ meta }}) =>
            meta?.gpu === uuid && meta.metric === key) ?? {{}};
        const start = (x0 - dx / 2) / 1000;
        return y.map((mean, at) => [Math.round(start + (at * dx) / 1000), mean,
                                    ...(customdata[at] ?? [mean, mean])]);
    }}""", [uuid, key])
    return [(t, mean, low, high) for t, mean, low, high in band]


def opened(page: Page) -> Page:
    page.wait_for_selector("#past-place .main-svg >> visible=true")
    page.wait_for_selector("#past-place:not([aria-busy])")
    return page


def hub_band(hub: HubProcess, uuid: str, key: str, band: Band, step: int) -> Band:
    series = hub.get(f"/api/v1/series?gpu={uuid}&metric={key}&start={band[0][0]}"
                     f"&end={band[-1][0] + step}&step={step}")
    rows = zip(series["t"], series["mean"], series["min"], series["max"], strict=True)
    return [(t, *(None if value is None else round(value, 3) for value in values))
            for t, *values in rows]


def test_what_is_drawn_is_what_the_hub_says_and_goes_on_without_a_seam(
        hub: HubProcess, past: Past, open_page: Callable[..., Page]) -> None:
    node, gpu = random.randrange(2), random.randrange(2)
    uuid, key = past.uuid(node, gpu), random.choice(["util_pct", "power_w"])
    page = opened(open_page(f"/history?node={past.agents[node].node_id}&last=15m"))
    first = line(page, uuid, key)
    assert soon(lambda: line(page, uuid, key)[-1][0] > first[-1][0] + 6)
    drawn_band = line(page, uuid, key)
    # The newest seconds may have come since; all others are there once, and as the hub has them.
    assert drawn_band[:-4] == hub_band(hub, uuid, key, drawn_band, 1)[:-4]
    assert [row[0] for row in drawn_band] == list(range(drawn_band[0][0], drawn_band[-1][0] + 1))
    values = [row[1] for row in drawn_band[:-4]]
    assert None in values  # between what was seeded and what came
    assert values[-1] is not None
    assert 890 <= len(drawn_band) <= 906
    assert page.locator("#past-live").get_attribute("href") == f"/node/{past.agents[node].node_id}"


def test_who_looks_closer_gets_finer_steps_and_comes_back(
        hub: HubProcess, past: Past, open_page: Callable[..., Page]) -> None:
    uuid = past.uuid(0, 0)
    end = past.end - past.end % 60
    page = opened(open_page(f"/history?gpu={uuid}&gpu={past.uuid(1, 1)}&metric=util_pct"
                            f"&metric=temp_c&start={end - 5_400}&end={end}"))
    whole = line(page, uuid, "util_pct")
    assert whole == hub_band(hub, uuid, "util_pct", whole, whole[1][0] - whole[0][0])
    assert whole[1][0] - whole[0][0] == 10
    assert page.inner_text("#past-title") == "2 GPUs"
    marks: Any = page.evaluate(f"({SHOWN}).data.at(-1).text")
    assert marks
    assert all("&lt;b&gt;" in text and "<b>" not in text for text in marks)
    drag(page, 0.4, 0.55)
    assert soon(lambda: (finer := line(page, uuid, "util_pct"))[1][0] - finer[0][0] == 1)
    finer = line(page, uuid, "util_pct")
    span = 5_400 * 0.15
    assert finer[0][0] == pytest.approx(end - 5_400 + 5_400 * 0.4, abs=span / 10)
    assert finer[-1][0] - finer[0][0] == pytest.approx(span, rel=0.1)
    assert finer == hub_band(hub, uuid, "util_pct", finer, 1)
    assert "start=" in page.url
    assert page.locator("#past-csv").get_attribute("href") is not None
    page.locator("#past-back").click()
    assert soon(lambda: line(page, uuid, "util_pct") == whole)
    assert not page.locator("#past-back").is_visible()


def drag(page: Page, start: float, end: float) -> None:
    """Drag in the figure between two shares of its width."""
    box: Any = page.locator("#past-graph .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * start, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, box["y"] + 45, steps=5)
    page.mouse.up()


def test_a_drag_is_of_the_viewers_zone(past: Past, open_page: Callable[..., Page]) -> None:
    end = past.end - past.end % 60
    page = opened(open_page(f"/history?gpu={past.uuid(0, 0)}&start={end - 3_600}&end={end}",
                            zone="Asia/Kathmandu"))
    assert "UTC+5:45" in page.inner_text("#past-zone")
    assert page.input_value("#past-to") == datetime.fromtimestamp(
        end, ZoneInfo("Asia/Kathmandu")).strftime("%Y-%m-%d %H:%M:%S")
    for _ in range(3):  # Plotly forgets a drag if the figure takes its size meanwhile
        drag(page, 0.25, 0.75)
        if soon(lambda: "whole=" in address(page), 5.0):
            break
    query = dict(parse_qsl(urlsplit(address(page)).query))
    assert int(query["start"]) == pytest.approx(end - 2_700, abs=60)
    assert int(query["end"]) == pytest.approx(end - 900, abs=60)
    page.go_back()
    assert soon(lambda: "whole=" not in address(page))
    assert soon(lambda: not page.locator("#past-back").is_visible())


def local(t: int) -> datetime:
    """Convert to the time zone of this machine, which its browser has too."""
    return datetime.fromtimestamp(t, UTC).astimezone()


def test_it_is_taken_away_as_csv_and_as_a_picture(
        hub: HubProcess, past: Past, open_page: Callable[..., Page]) -> None:
    uuid = past.uuid(0, 1)
    end = past.end - past.end % 60
    page = opened(open_page(f"/history?gpu={uuid}&metric=power_w&start={end - 3_600}&end={end}"))
    drawn_band = line(page, uuid, "power_w")
    # Alerts have the lane above; nothing but data lies on the data.
    assert page.inner_text("#past-lane") == "No alert in this time"
    assert page.evaluate(f"({SHOWN}).layout.shapes ?? []") == []
    # The zone is named next to the fields, and they have 24 hours wherever the browser comes from.
    end_text = page.input_value("#past-to")
    assert end_text == local(end).strftime("%Y-%m-%d %H:%M:%S")
    assert page.inner_text("#past-zone") != ""
    with page.expect_download() as download:
        page.locator("#past-csv").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert [(int(row["t"]), row["power_w_mean"]) for row in rows if row["power_w_mean"]] == [
        (t, f"{mean:g}") for t, mean, _, _ in drawn_band if mean is not None]
    with page.expect_download() as download:
        page.locator("#past-png").click()
    assert Path(download.value.path()).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert download.value.suggested_filename.endswith(".png")
    page.fill("#past-from", "soon")
    page.press("#past-from", "Enter")
    assert page.get_attribute("#past-from", "aria-invalid") == "true"
    page.fill("#past-from", local(end - 1_800).strftime("%Y-%m-%d %H:%M"))
    page.press("#past-from", "Enter")
    assert soon(lambda: f"start={end - 1_800}" in address(page))


def test_an_owner_has_a_past_and_the_look_holds(
        hub: HubProcess, past: Past, open_page: Callable[..., Page]) -> None:
    owner, theme = OWNERS[-1], random.choice(["dark", "light"])
    page = open_page("/reports", theme)
    page.add_init_script(EMPTY)
    page.goto(f"{hub.url}/history?owner=user%3A{owner.replace('=', '%3D')}&last=6h")
    opened(page)
    assert page.evaluate("[...emptySays]") == ['"Loading …"'], "an empty figure says that it comes"
    assert page.inner_text("#past-title") == owner
    assert soon(lambda: "GPU-hours" in page.inner_text("#past-words"))
    assert page.locator("#past-graph .barlayer .point").count() > 100
    page.evaluate(axe_source())
    violations: list[Any] = page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations)")
    assert violations == []


def address(page: Page) -> str:
    """Return the address as it is now: `page.url` hears of it only while Playwright is called."""
    return str(page.evaluate("location.href"))


def length_of(page: Page) -> int:
    query = dict(parse_qsl(urlsplit(address(page)).query))
    return int(query.get("end", 0)) - int(query.get("start", 0))


def test_the_busiest_hour_of_the_fleet_is_two_clicks_away(
        hub: HubProcess, past: Past, open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    page.get_by_role("link", name="History", exact=True).click()
    opened(page)
    # It opens on the two hours that there are, not on an empty day with a button to zoom in.
    assert soon(lambda: "steps of" in page.inner_text("#past-words"))
    assert not page.locator("#past-fit").is_visible()
    assert "=" not in page.url.partition("?")[2]
    page.get_by_role("button", name="Busiest hour").click()
    page.wait_for_url("**/history?start=*")
    assert soon(lambda: "steps of 1 min" in page.inner_text("#past-words"))
    query = dict(parse_qsl(urlsplit(address(page)).query))
    start, end = (int(query[name]) for name in ("start", "end"))
    assert end - start == HOUR_S
    now = int(time.time())
    day = hub.get(f"/api/v1/load?start={now - 86_400}&end={now}&step=120")
    hour = hub.get(f"/api/v1/load?start={start}&end={end}&step=60")
    # Steps of another length, and what came since: another hour may have as much GPU time, by a
    # higher mean of fewer GPUs.
    assert abs(hour["busiest"]["util_mean_pct"] - day["busiest"]["util_mean_pct"]) < 5.0
    loads = [value for value in hour["util_mean_pct"] if value is not None]
    # The words may be there already for what was drawn before: two hours come in such steps, too.
    drawn_loads_js = f"({SHOWN}).data[0].y.filter(Number)"
    assert soon(lambda: page.evaluate(drawn_loads_js)[5:50] == loads[5:50])
    page.keyboard.press("Escape")
    assert soon(lambda: "start=" not in address(page))
    page.keyboard.press("f")
    assert soon(lambda: "start=" in address(page))
    # However close one looks: of less than whole minutes there are no sums to be asked for.
    for _ in range(12):
        page.keyboard.press("+")
    assert soon(lambda: length_of(page) == 120), address(page)
    page.wait_for_selector("#history:not([aria-busy])")
    assert page.locator("#history-problem").is_hidden()
    (model,) = day["models"]
    page.fill("#past-what", f"model:{model}")
    page.press("#past-what", "Enter")
    assert soon(lambda: page.inner_text("#past-title") == model)
    page.evaluate(axe_source())
    violations: list[Any] = page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations)")
    assert violations == []


def test_plotly_comes_only_where_it_is_needed(
        hub: HubProcess, open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    page.wait_for_selector("#heatmap")
    names = page.evaluate("performance.getEntriesByType('resource').map(({name}) => name)")
    assert names
    assert not [name for name in names if "plotly" in name]
    assert page.evaluate("globalThis.Plotly") is None


# The colours of the list's names, and those of the bars beside it, as the browser writes them.
COLOURS = """() => {
    const bars = document.querySelector('#reports-graph .js-plotly-plot')?.data ?? [];
    const probe = document.body.appendChild(document.createElement('i'));
    const written = (colour) => {
        probe.style.color = colour;
        return getComputedStyle(probe).color;
    };
    const colours = [[...document.querySelectorAll('.top-swatch')].map(
        (one) => getComputedStyle(one).backgroundColor), bars.map(
        ({marker}) => written(marker.color))];
    probe.remove();
    return colours;
}"""


def same_colours(page: Page) -> bool:
    swatches, bars = page.evaluate(COLOURS)
    return len(swatches) == len(OWNERS) and swatches == bars


def test_a_report_is_sorted_priced_and_sent_by_its_address(
        hub: HubProcess, past: Past, open_page: Callable[..., Page]) -> None:
    """A report of whole hours that are over: the current one's numbers would grow meanwhile."""
    past.agents[0].say(Beat("ok", 0.4, 5_000, 0))
    price = f"{random.uniform(1, 9):.2f}"
    path = f"start={past.begin}&end={past.end - past.end % HOUR_S}"
    page = open_page(f"/reports?{path}&price_gpu_hour={price}&currency=EUR", width=320, height=844)
    page.wait_for_selector("table.report tbody tr")
    report = hub.get(f"/api/v1/reports?{path}&price_gpu_hour={price}")
    by_idle = sorted(report["items"], key=lambda item: -item["idle_hours"])
    owners = [item["of"] for item in by_idle]
    assert set(owners) == {*OWNERS}
    # What was wasted comes first: in words with its money, in the pictures, in the table.
    assert page.locator(".report tbody th").all_inner_texts() == owners
    assert page.locator(".top-name").all_inner_texts() == owners
    lead = page.inner_text("#reports-lead")
    assert f"{report['total']['idle_cost']:.2f} EUR" in lead
    assert owners[0] in lead
    assert page.inner_text("#reports-time-title") == "Idle GPU-hours over time"
    assert report["backfilling"] == 1
    assert re.search(r"This span is being filled: [\d.]+ of [\d.]+ min",
                     page.inner_text("#reports-coverage"))
    boxes: Any = [page.locator(of).bounding_box() for of in ("#reports-coverage", "table.report")]
    assert boxes[0]["y"] < boxes[1]["y"], "said before the numbers"
    past.agents[0].say(Beat("ok", 0.4, 0, 0))
    costs = page.locator(".report tbody td:last-child").all_inner_texts()
    assert [words.split()[-2:] for words in costs] == [
        [f"{item['cost']:.2f}", "EUR"] for item in by_idle]
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_role("button", name="All GPU-hours").click()
    assert soon(lambda: page.locator(".top-name").all_inner_texts() == [
        item["of"] for item in report["items"]])
    assert "show=held" in page.url
    assert soon(lambda: same_colours(page))
    page.locator('[data-sort="name"]').click()
    assert soon(lambda: page.locator(".report tbody th").all_inner_texts() == sorted(
        owners, key=str.lower))
    assert "sort=name" in page.url
    assert page.evaluate("document.activeElement.dataset.sort") == "name", "its focus stays"
    cell = page.locator("th:has([data-sort=gpu_hours])")
    cell.click(position={"x": 4, "y": 4})  # its words stand at the right: the rest sorts as well
    assert soon(lambda: cell.get_attribute("aria-sort") == "descending")
    assert soon(lambda: "sort=gpu_hours" in address(page))
    page.go_back()
    assert soon(lambda: page.locator(".report tbody th").all_inner_texts() == sorted(
        owners, key=str.lower))
    page.go_forward()
    assert soon(lambda: cell.get_attribute("aria-sort") == "descending")
    page.locator("#reports-by").select_option("node")
    hosts = {agent.caller.said.host for agent in past.agents}
    assert soon(lambda: set(page.locator(".report tbody th").all_inner_texts()) == hosts)
    with page.expect_download() as download:
        page.locator("#reports-csv").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert {row["name"] for row in rows} == hosts
    page.evaluate(axe_source())
    violations: list[Any] = page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations)")
    assert violations == []


def test_the_timelines_lead_to_the_past(hub: HubProcess, past: Past, open_page: Callable[..., Page]
                                        ) -> None:
    page = open_page(f"/gpu/{past.uuid(0, 0)}")
    assert soon(lambda: past.uuid(0, 0) in (
        page.locator("#lines-past").get_attribute("href") or ""))
    page.keyboard.press("h")
    page.wait_for_url("**/history?gpu=*")
    opened(page)


def test_what_is_not_there_is_said_where_it_would_be(past: Past, open_page: Callable[..., Page]
                                                     ) -> None:
    end = past.begin - HOUR_S
    page = opened(open_page(f"/history?gpu={past.uuid(0, 0)}&metric=fan_pct&metric=util_pct"
                            f"&start={end - 900}&end={end}"))
    notes = f"(({SHOWN})?.layout.annotations ?? []).map(({{ text }}) => text)"
    assert page.evaluate(notes)[2:] == ["No data"] * 2
    page.goto(page.url.partition("/history")[0] + "/history?owner=user:nobody")
    opened(page)
    assert page.evaluate(notes)[4:] == ["No GPU held, or no data"] * 4
    # The clock is below all titles, though Plotly draws no row that is empty.
    # It may still take its size.
    assert soon(lambda: page.evaluate("""() => {
        const edges = (at) => [...document.querySelectorAll(at)].filter(({offsetParent,
            ownerSVGElement}) => ownerSVGElement.parentNode.offsetParent !== null).map(
            one => one.getBoundingClientRect());
        return Math.min(...edges('.xtick text').map(({top}) => top))
            > Math.max(...edges('.annotation').map(({bottom}) => bottom));
    }"""))
    page.fill("#past-what", "user:" + OWNERS[0])
    page.press("#past-what", "Enter")
    assert soon(lambda: len(page.evaluate(notes)) == 4)


@pytest.mark.parametrize(("width", "paths"), [
    (1440, ("/history?node={node}", "/node/{node}")),
    (390, ("/gpu/{gpu}", "/reports", "/quotas", "/settings", "/history"))])
def test_nothing_jumps_while_a_page_comes(past: Past, open_page: Callable[..., Page], width: int,
                                          paths: tuple[str, ...]) -> None:
    for path in paths:
        page = open_page(path.format(node=past.agents[0].node_id, gpu=past.uuid(0, 0)), width=width)
        page.wait_for_selector("main > :not([hidden], [data-unsettled])")
        assert soon(lambda page=page: is_live(page))  # type: ignore[misc]
        page.wait_for_timeout(700)
        assert page.evaluate("shifts.reduce((sum, one) => sum + one, 0)") < 0.005, path

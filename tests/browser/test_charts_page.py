"""Timelines in a real browser: what they draw is what agents told, and a hole is a hole."""

import random
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from gpudeck.contract.wire import Welcome
from tests.demos import soon
from tests.integration.hubs import Caller, HubProcess, RawSocket, greet
from tests.integration.visitors import signed_in

from .full_agents import EVERY_S, Node
from .test_every_page import LEAST_SHIFT
from .test_look import axe_source

pytestmark = pytest.mark.browser
KEYS = ("util_pct", "mem_used_bytes", "power_w", "temp_c")


def line(page: Page, uuid: str, key: str) -> list[tuple[float, float | None]]:
    pairs = page.evaluate("([uuid, key]) => globalThis.gpudeck?.line(uuid, key) ?? []", [uuid, key])
    return [(at, value) for at, value in pairs]


def ready(page: Page, uuid: str, points: int = 3) -> None:
    assert soon(lambda: len(line(page, uuid, "util_pct")) >= points), page.inner_text("#lines")


def test_the_line_is_what_was_told(node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page(f"/gpu/{node.uuid(0)}")
    ready(page, node.uuid(0))
    key = random.choice(KEYS)
    rows_by_time = {round(at, 3): row for at, row in node.readings(0)}
    drawn_points = [(at, value) for at, value in line(page, node.uuid(0), key) if value is not None]
    last = drawn_points[-3:]
    values = [row[key] for row in rows_by_time.values() if key in row]
    assert last
    for _, value in last:
        assert any(value == pytest.approx(other) for other in values), (value, values[-5:])
    assert page.title().endswith(" · GPU 0 · gpudeck")
    charts = page.locator(".chart h2").all_inner_texts()
    assert any(name.startswith("Memory used") for name in charts)
    assert not any(name.startswith("Fan") for name in charts)
    assert "Fan" in page.inner_text("#lines-never")


def test_the_line_equals_the_api_also_of_before(
        hub: HubProcess, node: Node, open_page: Callable[..., Page]) -> None:
    node.every_s = 1.0  # of one second history keeps the first Sample, a page may see the last
    began = time.time() + 2
    assert soon(lambda: sum(at > began for at, _ in node.readings(0)) > 4)
    page = open_page(f"/gpu/{node.uuid(0)}")
    ready(page, node.uuid(0))
    opened = time.time()
    key = random.choice(KEYS)
    step = {"power_w": 1.0, "util_pct": 0.5}.get(key, 1.0)  # history's, docs/history.md
    assert soon(lambda: any(began < at < opened - 3 for at, _ in line(page, node.uuid(0), key)))

    def values_of_both() -> list[tuple[float, float]]:
        drawn_values = {int(at): value for at, value in line(page, node.uuid(0), key)
                        if value is not None and at > began}
        series = hub.get(f"/api/v1/series?gpu={node.uuid(0)}&metric={key}"
                         f"&start={min(drawn_values)}&end={max(drawn_values) + 1}&step=1")
        kept_values = zip(series["t"], series["mean"], strict=True)
        return [(drawn_values[second], value) for second, value in kept_values
                if value is not None and second in drawn_values][-20:]

    assert soon(lambda: len(values_of_both()) > 3)  # the page draws and history keeps when they can
    pairs = values_of_both()
    node.every_s = EVERY_S
    for drawn, kept in pairs:
        assert drawn == pytest.approx(kept, abs=step)


def test_a_hole_is_a_hole(node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page(f"/gpu/{node.uuid(1)}")
    ready(page, node.uuid(1))
    node.is_silent = True
    time.sleep(4)  # what is not read is not there: nothing to wait for
    node.is_silent = False
    before = len(line(page, node.uuid(1), "power_w"))
    assert soon(lambda: len(line(page, node.uuid(1), "power_w")) > before + 2)
    assert None in [value for _, value in line(page, node.uuid(1), "power_w")]


def test_a_node_has_a_line_for_each_gpu_and_says_who_works_there(
        node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page(f"/node/{node.teller.node_id}")
    ready(page, node.uuid(0))
    ready(page, node.uuid(1))
    assert page.locator(".lines-gpu").count() == 2
    assert soon(lambda: "alice" in page.inner_text("#lines-side"))
    assert soon(lambda: "NV18" in page.inner_text("#lines-side .topology"))
    # Its state and what one can do about it come before the charts; the tiles are their legend.
    chart = page.locator(".chart").first
    now, charts = page.locator("#lines-now").bounding_box(), chart.bounding_box()
    assert now is not None
    assert charts is not None
    assert now["y"] < charts["y"]
    assert page.inner_text("#lines-state") != ""
    assert page.locator("#lines-acts").get_by_role("button", name="Drain").is_visible()
    assert re.fullmatch(r"average \d+ %", chart.locator(".chart-sum").inner_text())
    legend = "one => getComputedStyle(one.querySelector('.chart-legend')).opacity"
    assert chart.evaluate(legend) == "0"
    chart.locator(".u-over").hover()
    assert soon(lambda: chart.evaluate(legend) == "1")
    page.locator(".lines-gpu").nth(1).hover()
    weights = "one => one.entry.chart.plot.series.slice(1).map(({ alpha }) => alpha)"
    assert chart.evaluate(weights) == [0.25, 1]
    page.locator(".lines-gpu").first.click()
    page.wait_for_url("**/gpu/*/0")
    ready(page, node.uuid(0))


def test_a_node_names_its_jobs_its_boards_and_what_runs_them(
        node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page(f"/node/{node.teller.node_id}")
    job = page.locator(".jobs-here > li")
    job.wait_for()
    assert job.locator(":scope > .job-head > :not(.job-load), :scope > a").all_inner_texts() == [
        "alice", "GPU 0", "train.py"]
    assert re.fullmatch(r"\d+ %", job.locator(".job-load").inner_text())
    # Its tasks stand inside, named by what they are there, with what one may do to them.
    assert job.locator("details > ul").is_hidden()
    job.locator("summary").click()
    task = job.locator("details li")
    assert task.locator("strong").inner_text() == "process \N{MIDDLE DOT} GPU 0"
    expect(task.get_by_role("button", name=re.compile("End task"))).to_be_visible()
    tile = page.locator(".lines-gpu").first
    assert soon(lambda: tile.locator(".tile-owner").inner_text() == "alice")
    facts = node.teller.caller.said
    words = page.inner_text("#lines-subtitle")
    assert words.startswith("2 \N{MULTIPLICATION SIGN} ")
    assert words.endswith(f"driver 550.54.15 · CUDA 12.4 · agent {facts.agent_version}")
    assert page.locator("#lines-side").inner_text().index("Jobs on this node") < 60
    job.locator("> a").click()
    page.wait_for_url("**/job/*")


SHORT = """async () => {
    const {jobsOn} = await import('/assets/charts/jobs_here.mjs');
    const gpu = (uuid, util, idle) => ({uuid, values: util === null ? {} : {util_pct: util},
        ...(idle === undefined ? {} : {wasted_s: idle})});
    const task = (id, job, user, state, ...uuids) => ({id, job_id: job, node: 'n', user, state,
        command: `python ${id}.py`, owner: {}, gpus: uuids.map(uuid => ({uuid}))});
    const gpus = [gpu('a', 90), gpu('b', 70), gpu('c', null), gpu('d', 0, 7200), gpu('e', 0, 600)];
    const tasks = [task('t1', 'j1', 'ana', 'running', 'a'), task('t2', 'j1', 'ana', 'running', 'b'),
        task('t3', null, 'li', 'running', 'c'), task('t4', 'j2', 'bo', 'running', 'd', 'e'),
        task('t5', 'j3', 'jo', 'paused', 'b'), task('t6', 'j4', 'mi', 'running', 'a', 'e'),
        task('t7', 'j5', 'su', 'suspended', 'c')];
    const ranked = [3, 10, 0].map(rank => ({...task(`r${rank}`, null, 'zoe', 'running'),
        pid: 90 - rank, owner: {launch: 'run', rank}}));
    const ranks = jobsOn(ranked, gpus).map(({tasks}) => tasks.map(({owner}) => owner.rank));
    return [ranks, jobsOn(tasks, gpus).map(({user, places, idleS, load, standstill}) =>
        [user, places.join(', '), idleS, load, standstill])];
}"""


def test_a_jobs_line_says_what_its_own_gpus_do(node: Node, open_page: Callable[..., Page]) -> None:
    """Idle only where all of them are; a load only of those that say one; ranks are one job."""
    page = open_page(f"/gpu/{node.uuid(0)}")
    ready(page, node.uuid(0))
    ranks, lines = page.evaluate(SHORT)
    assert ranks == [[0, 3, 10]]
    assert lines == [["bo", "3, 4", 7200, 0, ""], ["ana", "0, 1", None, 80, ""],
                     ["mi", "0, 4", None, 45, ""], ["jo", "1", None, 70, "paused"],
                     ["su", "2", None, None, "suspended"], ["li", "2", None, None, ""]]


def test_on_a_wide_screen_charts_and_their_text_grow(
        node: Node, open_page: Callable[..., Page]) -> None:
    sizes_js = """() => [document.querySelector('.uplot').clientHeight, parseFloat(getComputedStyle(
        document.querySelector('.lane-none, .lane-rules strong')).fontSize),
        parseFloat(document.querySelector('.chart').entry.chart.plot
            .axes[0].font[0].split('px')[0].split(' ').at(-1)) / devicePixelRatio]"""
    sizes = []
    for width, height in ((1440, 900), (2560, 1440)):
        page = open_page(f"/node/{node.teller.node_id}", width=width, height=height)
        ready(page, node.uuid(0))
        sizes.append(page.evaluate(sizes_js))
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert all(wide > narrow * 1.15 for narrow, wide in zip(*sizes, strict=True)), sizes


TROUBLE = """async () => {
    const {troubleOf} = await import('/assets/charts/gpu_trouble.mjs');
    const {strokeAmong} = await import('/assets/parts/page_colours.mjs');
    const gpu = (uuid, state = 'ok', more = {}) => ({uuid, state, ...more});
    const alert = (severity, from, to, uuids, isSilenced = false) =>
        ({title: 'T', severity, from, to, uuids, isSilenced});
    const gpus = [gpu('fine'), gpu('idle', 'ok', {wasted_s: 600}), gpu('lost', 'lost'),
        gpu('error', 'error'), gpu('stale', 'stale'), gpu('fires'), gpu('warned'), gpu('over'),
        gpu('silenced'), gpu('later'), gpu('both', 'ok', {wasted_s: 600})];
    const alerts = [alert('crit', 10, null, ['fires', 'both']), alert('warn', 10, null, ['warned']),
        alert('crit', 10, 90, ['over']), alert('crit', 10, null, ['silenced'], true),
        alert('crit', 101, null, ['later']), alert('crit', 10, null, [])];
    const at = time => Object.fromEntries([...troubleOf(gpus, alerts, time)].map(
        ([uuid, {tone, note}]) => [uuid, `${tone} ${note}`]));
    const colours = {waste: 'amber', critical: 'red'};
    const strokes = [...Array(8).keys()].map(row => strokeAmong(
        'dark', row, {5: 'waste', 7: 'critical'}[row], colours, true).stroke);
    return [at(100), Object.keys(at(50)), strokes];
}"""


def test_what_is_idle_or_faulty_stands_out_of_grey(
        node: Node, open_page: Callable[..., Page]) -> None:
    """Lost, an error or a critical alert: red; idle with memory held: amber; all others one grey.
    Silenced, ended, of another severity or of another moment: no colour."""
    page = open_page(f"/node/{node.teller.node_id}")
    ready(page, node.uuid(0))
    now, then, strokes = page.evaluate(TROUBLE)
    assert now == {"idle": "waste idle", "lost": "critical lost", "error": "critical error",
                   "fires": "critical critical", "both": "critical critical"}
    assert set(then) == {"idle", "lost", "error", "fires", "both", "over"}
    assert (strokes[5], strokes[7]) == ("amber", "red")
    assert len({*strokes[:5], strokes[6]}) == 1
    # As drawn: nothing is wrong with these, so their lines are of one colour and tiles of none.
    strokes_js = "one => one.entry.chart.plot.series.slice(1).map(({ stroke }) => stroke())"
    assert len(set(page.locator(".chart").first.evaluate(strokes_js))) == 1
    assert page.locator(".lines-gpu .swatch:visible").count() == 0
    assert page.locator(".lines-gpu:is(.waste, .critical)").count() == 0


def test_the_page_at_a_moment_that_is_over(node: Node, open_page: Callable[..., Page]) -> None:
    """Read from history, said to be past, kept in the address, and left again."""
    node.every_s = 1.0  # of one second history keeps the first Sample
    began = time.time() + 2
    assert soon(lambda: sum(at > began for at, _ in node.readings(0)) > 12)
    at = int(began) + 6
    page = open_page(f"/node/{node.teller.node_id}?at={at}")
    assert soon(lambda: page.evaluate("gpudeck.stats.at") == at)
    # A busy machine skips a second now and then; the page shows the newest one until then.
    watts = [row["power_w"] for when, row in node.readings(0) if at - 5 < when < at + 2]
    tile = page.locator(".lines-gpu").first
    assert soon(lambda: any(f"{watt:.0f} W" in tile.inner_text() for watt in watts)), (
        watts, tile.inner_text())
    assert "PAST" in page.inner_text("#time-words").upper()
    # In the bar, too, nothing calls a past moment live.
    assert soon(lambda: page.inner_text("#link-words") == "Connected")
    assert "then" in (page.get_attribute("#lines", "class") or "").split()
    # Nothing acts on what is shown beside it.
    buttons = page.locator("#lines-acts button")
    buttons.first.wait_for(state="attached")
    assert [button.is_visible() for button in buttons.all()] == [False] * buttons.count()
    page.evaluate("shifts.length = 0")
    page.locator("#time-slider").press("ArrowLeft")
    page.wait_for_url(f"**at={at // 5 * 5 - (5 if at % 5 == 0 else 0)}")
    page.locator("#time-slider").press("End")
    assert soon(lambda: "Now" in page.inner_text("#time-words"))
    assert soon(lambda: "at=" not in page.evaluate("location.search"))
    assert soon(lambda: page.inner_text("#link-words") == "Live")
    assert "then" not in (page.get_attribute("#lines", "class") or "").split()
    assert buttons.first.is_visible()
    node.every_s = EVERY_S
    assert sum(page.evaluate("shifts")) < LEAST_SHIFT
    box = page.locator("#time-load").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 9, box["y"] + box["height"] / 2)
    words = r"\d\d:\d\d:\d\d · (average utilization \d+ %|load unknown)"
    assert soon(lambda: re.fullmatch(words, page.inner_text("#time-hover")))
    page.mouse.move(9, 9)
    assert page.locator("#time-hover").is_hidden()


def test_host_name_and_index_are_the_address(hub: HubProcess, node: Node,
                                             open_page: Callable[..., Page]) -> None:
    """Old addresses lead to the same page, under the new one."""
    host = node.teller.caller.said.host
    page = open_page(f"/node/{host}")
    for old, new in ((f"/node/{node.teller.node_id}", f"/node/{host}"),
                     (f"/gpu/{node.uuid(1)}", f"/gpu/{host}/1"),
                     (f"/gpu/{host}/1", f"/gpu/{host}/1")):
        page.goto(hub.url + old)
        ready(page, node.uuid(1))
        page.wait_for_url(f"**{new}")
        assert page.text_content("#lines-title") == (
            f"{host} · GPU 1" if new.startswith("/gpu") else host)

    def offered(address: str) -> list[str]:
        page.goto(hub.url + address)
        assert soon(lambda: page.locator("#lines-nearest a").count() > 0)
        return page.locator("#lines-nearest a").all_inner_texts()

    assert offered(f"/gpu/{host}/7") == ["GPU 0", "GPU 1"]
    assert offered(f"/node/{host[:-1]}") == [host]
    namesake = Caller(f"namesake-{random.randrange(10**9)}", host=host)
    raw = RawSocket(hub, "/agent")
    assert isinstance(greet(raw, namesake, hub.token()), Welcome)
    assert len(offered(f"/gpu/{host}/1")) == 2
    assert "2 nodes are named" in page.inner_text("#lines-problem")
    page.locator(f"#lines-nearest a[href*='{node.teller.node_id}']").click()
    ready(page, node.uuid(1))
    assert node.teller.node_id in page.url
    hub.ask(f"/api/v1/nodes/{namesake.node_id}/revoke", "POST", body=b"{}",
            Content_Type="application/json")


def test_an_address_of_nothing_is_a_404_that_offers_the_nearest(
        hub: HubProcess, browser: Browser) -> None:
    context = browser.new_context()  # a browser's console tells of each 404
    visitor = signed_in(hub, "root")
    context.add_cookies([{"name": name, "value": value, "url": hub.url}
                         for name, value in visitor.cookies.items()])
    page = context.new_page()
    answer = page.goto(f"{hub.url}/alerst")
    assert answer is not None
    assert answer.status == 404
    assert soon(lambda: page.inner_text("#missing-nearest") == "Alerts")
    page.click("#missing-nearest a")
    page.wait_for_url("**/alerts")
    context.close()


def test_one_looks_closer_and_comes_back(node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page(f"/gpu/{node.uuid(0)}")
    ready(page, node.uuid(0), 6)
    box: Any = page.locator(".chart .u-over").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.98, box["y"] + 40, steps=4)
    page.mouse.up()
    assert soon(lambda: page.locator("#lines-live").is_visible())
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("End")
    assert soon(lambda: not page.locator("#lines-live").is_visible())


def test_from_the_map_and_back_as_it_was(node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page(f"/?metric=temp_c&group=none&gpu={node.uuid(0)}")
    assert soon(lambda: page.locator("#drawer-node").get_attribute("href") != "/")
    page.keyboard.press("o")
    page.wait_for_url("**/gpu/*")
    ready(page, node.uuid(0))
    page.locator("#lines-back").click()
    page.wait_for_url(f"**/?metric=temp_c&group=none&gpu={node.uuid(0)}")


def test_what_nobody_knows_is_said(open_page: Callable[..., Page]) -> None:
    page = open_page("/compare?gpu=GPU-of-nobody")
    assert soon(lambda: "These GPUs are unknown" in page.inner_text("#lines-problem"))


def test_a_hidden_page_is_sent_nothing(node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page(f"/gpu/{node.uuid(0)}")
    ready(page, node.uuid(0))
    hide = """isHidden => { Object.defineProperty(document, "hidden",
        {configurable: true, get: () => isHidden});
        document.dispatchEvent(new Event("visibilitychange")); }"""
    page.evaluate(hide, True)

    def is_still() -> bool:
        """Check that what was on its way has arrived."""
        points = line(page, node.uuid(0), "util_pct")
        page.wait_for_timeout(1_200)
        return line(page, node.uuid(0), "util_pct") == points

    assert soon(is_still)
    before, reading_count = line(page, node.uuid(0), "util_pct"), len(node.readings(0))
    assert soon(lambda: len(node.readings(0)) > reading_count + 4)
    assert line(page, node.uuid(0), "util_pct") == before
    page.evaluate(hide, False)
    assert soon(lambda: len(line(page, node.uuid(0), "util_pct")) > len(before))


@pytest.mark.parametrize(("theme", "kind"), [("dark", "gpu"), ("light", "node")])
def test_axe_finds_nothing_and_a_phone_is_wide_enough(
        node: Node, open_page: Callable[..., Page], theme: str, kind: str) -> None:
    page = open_page(f"/{kind}/{node.uuid(0) if kind == 'gpu' else node.teller.node_id}", theme,
                     390, 844)
    ready(page, node.uuid(0))
    assert soon(lambda: page.locator("#lines-side h3").count() > 1)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.evaluate(axe_source())
    results = page.evaluate("axe.run(document, {resultTypes: ['violations']})"
                            ".then(found => found.violations.map(one => one.id))")
    assert results == []

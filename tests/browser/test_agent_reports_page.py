"""The pages' other reports of agents, beside live numbers: the drawer, slow metrics in the
map, recent events, and what an agent costs. One hub, and simulated agents."""

import random
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from gpudeck.measures.metrics import Absence
from tests.demos import soon
from tests.integration.hubs import HubProcess
from tests.integration.visitors import add_person, signed_in

from .full_agents import Node
from .test_look import axe_source

pytestmark = pytest.mark.browser
HOSTILE = '<img src=x onerror="document.title=1">&<b>x'

def value(page: Page, label: str) -> str:
    row = page.locator("#drawer .metrics > div").filter(
        has=page.locator("dt", has_text=label).and_(page.get_by_text(label, exact=True)))
    return row.locator(".value").inner_text() if row.is_visible() else ""


# Pure words of the pages, over stand-ins for what they describe.
SAYINGS = """async () => {
    const [{describeSlot}, {chartsOf}, {fitting}, {Metrics},
        {strokeAmong}, {readMetricCatalogue}, {IdleLine}, {drawActs}] = await Promise.all(
            ["fleet/gpu_words", "charts/chart_plan", "actions/actions", "fleet/gpu_metrics",
             "parts/page_colours", "parts/metric_catalogue", "fleet/idle_gpus", "tasks/act_buttons"
            ].map(name => import(`/assets/${name}.mjs`)));
    const book = readMetricCatalogue();
    const picture = {host: () => "n1", placeName: () => "0", partsOf: () => [], isThen: false,
        hasTask: () => true, ownerName: () => "ana", isPaused: () => false, wasted: new Map(),
        state: () => "ok", hasValue: () => true, exact: [5], mask: null};
    const described = group => describeSlot(picture, 0,
        {group, metric: book.metrics.get("util_pct"), reasons: [], alerts: []});
    const gpus = ["a", "b"].map(uuid => ({uuid, missing: {}, values: {}, facts: {}}));
    const charts = chartsOf(gpus, book, () => ({label: ""}));
    const metrics = new Metrics(book);
    metrics.draw({values: {util_pct: 5, sm_occupancy_pct: 41}, missing: {}, facts: {},
        slow_sampled_at: 1, slow_age_s: 9.4});
    const buttons = [2 ** 22, 2 ** 22 + 1].map(pid => {
        const [line, list] = [new IdleLine(), document.createElement("div")];
        const task = {id: "b-1-1", pid, state: "running", user: "ana", command: "python a.py",
            gpus: [{uuid: "a"}]};
        line.person = {role: "admin", unix_names: []};
        line.draw([{gpu: {uuid: "a", place: "0", values: {mem_used_bytes: 5e9}}, forS: 900}],
            [task]);
        drawActs(list, task, line.person, () => ({}));
        return [line.root, list].map(one => one.querySelectorAll("button").length);
    });
    const strokes = ["dark", "light"].map(theme => [...Array(8).keys()].map(at => strokeAmong(
        theme, at, at === 5 ? "waste" : undefined, {waste: "amber"}, false).stroke));
    return {strokes, buttons,
        acts: [2 ** 22, 2 ** 22 + 1].map(pid => fitting({pid, state: "running"}).length),
        words: [described("node").name, described("owner").name,
            ...charts.flatMap(({title, meaning}) => [title, meaning]),
            ...metrics.elements.map(({textContent}) => textContent)].join("\\n")};
}"""


def check_sayings(page: Page) -> None:
    """Found by visitors: buttons for what a simulator made up, and a busy GPU coloured as
    waste."""
    sayings = page.evaluate(SAYINGS)
    # Beside tiles no other line has a hue that looks like waste.
    assert [(one[5], one.count("amber"), len(set(one)) > 1) for one in sayings["strokes"]] == [
        ("amber", 1, True)] * 2
    assert sayings["acts"] == [3, 0]  # notify, pause, end; nothing of what is made up
    # Of the idle one: notify and end; in the list of tasks: all three.
    assert sayings["buttons"] == [[2, 3], [0, 0]]
    assert "Gpu" not in sayings["words"]


def test_the_drawer_says_all_in_sections(hub: HubProcess, node: Node, open_page: Callable[..., Page]
                                         ) -> None:
    """Pitfalls 1 and 2: zero is shown as zero; what a board does not report never as zero."""
    errors, unseen = random.randrange(2, 900), random.randrange(2, 30)
    node.slow(0, ecc_corrected=float(errors), ecc_uncorrected=0.0, rows_pending=1.0,
              mem_unseen_bytes=unseen * 2.0**30, pcie_width=8.0, recovery_action=0.0,
              nvlinks_up=Absence.UNSUPPORTED, tensor_active_pct=Absence.DENIED)
    node.slow(1, ecc_corrected=Absence.UNSUPPORTED, rows_pending=0.0)
    page = open_page(f"/?gpu={node.uuid(0)}")
    assert soon(lambda: value(page, "ECC errors corrected") == str(errors))
    assert value(page, "ECC errors not corrected") == "0"
    assert value(page, "Row remap pending") == "yes: reset the GPU"
    assert value(page, "Recovery advised") == "none"
    assert value(page, "Unattributed memory") == f"{unseen}.0 GiB"
    assert value(page, "PCIe lanes") == "8 of 16 lanes"
    assert value(page, "Tensor activity") == "denied"
    folded, denied = page.locator("#drawer .not-here").all_inner_texts()
    assert "NVLinks up" in folded
    assert "Tensor activity" not in folded
    assert "Tensor activity" in denied
    assert "CAP_SYS_ADMIN" in denied
    assert value(page, "NVLinks up") == ""
    heads = page.locator("#drawer h3").all_inner_texts()
    # A row that waits to be replaced may fire meanwhile.
    assert [head for head in heads if not head.startswith(("Task", "Alerts"))] == [
        "Service", "MIG", "Limits", "Load", "Memory", "Heat and power", "Health", "Links",
        "Modes", "Events", "Quotas", "Board", "Node"]
    facts = " ".join(page.locator("#drawer .facts").all_inner_texts())
    for words in ("96.00.74.00.1A", "165010", "system, 18 NVLinks", "0.6 % CPU", "42 MiB"):
        assert words in facts
    check_sayings(page)

    # The other one beside it has its own numbers.
    other = open_page(f"/?gpu={node.uuid(1)}")
    assert soon(lambda: value(other, "Row remap pending") == "no")
    assert value(other, "ECC errors corrected") == ""
    assert "ECC errors corrected" in other.locator("#drawer .not-here").first.inner_text()

    # New numbers come in place.
    page.evaluate("shifts.length = 0")
    node.slow(0, ecc_corrected=errors + 1.0, rows_pending=0.0)
    assert soon(lambda: value(page, "ECC errors corrected") == str(errors + 1))
    assert sum(page.evaluate("shifts")) == 0


def test_the_map_shows_what_changes_seldom(node: Node, open_page: Callable[..., Page]) -> None:
    lanes = random.choice([1, 2, 4, 8])
    node.slow(0, pcie_width=float(lanes))
    node.slow(1, pcie_width=16.0)
    page = open_page("/?metric=pcie_width&filter=lanes%3C100%25")
    groups = page.locator("#metric optgroup")
    groups.first.wait_for(state="attached")
    assert [group.get_attribute("label") for group in groups.all()] == [
        "Load", "Memory", "Heat and power", "Health", "Links"]

    def cell(gpu: int) -> Any:
        return page.evaluate("uuid => globalThis.gpudeck?.cell(uuid)", node.uuid(gpu))

    assert soon(lambda: cell(0) is not None and cell(0)["text"] == str(lanes)), cell(0)
    assert cell(0)["level"] == round(239 * lanes / 16)
    assert (cell(0)["matched"], cell(1)["matched"]) == (True, False)
    page.locator("#metric").select_option("rows_pending")
    page.locator("#filter").fill("")
    assert soon(lambda: cell(0)["text"] in ("no", "yes") and cell(0)["matched"]), cell(0)


def test_recent_events(hub: HubProcess, node: Node, open_page: Callable[..., Page]) -> None:
    """Text of nodes is hostile: it is shown letter by letter, and adds nothing to the page."""
    page = open_page("/")
    button, panel = page.locator("#events-button"), page.locator("#events-panel")
    assert soon(lambda: page.evaluate("globalThis.gpudeck?.stats.link") == "live")
    box: Any = page.locator("#heatmap canvas").bounding_box()
    button.click()
    assert soon(lambda: "No events yet" in panel.inner_text())
    page.mouse.move(5, 5)

    word = secrets.token_hex(6)
    node.happen("xid", 1, f"{HOSTILE} {word}", xid=79.0)
    node.happen(HOSTILE, None, "")
    lines = panel.locator("li.event")
    assert soon(lambda: button.inner_text().split() == ["Events", "(1)"]), button.inner_text()
    page.keyboard.press("Escape")
    assert panel.is_hidden()
    button.click()
    assert soon(lambda: lines.count() == 2)
    first = lines.filter(has_text=word)
    assert f"{HOSTILE} {word}" in first.inner_text()
    assert "critical" in first.inner_text()
    assert f"{node.teller.caller.said.host} · GPU 1" in first.inner_text()
    assert panel.locator("img").count() == panel.locator("b").count() == 0
    assert page.title() != "1"

    # Under a reader's pointer nothing is pushed away: the new one waits.
    first.hover()
    node.happen("gpu_lost", 0)
    assert soon(page.locator("#events-more").is_visible)
    assert lines.count() == 2
    page.locator("#events-more").click()
    assert lines.count() == 3
    page.locator("#events-severity").select_option("critical")
    assert soon(lambda: lines.count() == 2)

    assert page.locator("#heatmap canvas").bounding_box() == box
    first.locator("button").click()
    assert panel.is_hidden()
    assert soon(lambda: page.locator("#drawer-title").inner_text().endswith("GPU 1"))
    drawer = page.locator("#drawer .event")
    assert soon(lambda: drawer.count() == 1)
    assert word in drawer.inner_text()


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_and_a_phone(node: Node, open_page: Callable[..., Page], theme: str) -> None:
    node.happen("ecc_uncorrected", 0, "one error", count=1.0)
    for path, width in ((f"/?gpu={node.uuid(0)}", 1440), ("/?metric=ecc_corrected", 390)):
        page = open_page(path, theme=theme, width=width, height=844)
        assert soon(lambda page=page: page.evaluate(  # type: ignore[misc]
            "globalThis.gpudeck?.stats.link") == "live")
        if width == 1440:
            assert soon(lambda page=page: page.locator(  # type: ignore[misc]
                "#drawer .not-here").first.is_visible())
        page.locator("#events-button").click()
        assert soon(lambda page=page: page.locator(  # type: ignore[misc]
            "#events-panel li").count() > 0)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        page.evaluate(axe_source())
        violations = page.evaluate("axe.run(document, {resultTypes: ['violations']})"
                                   ".then(({violations}) => violations)")
        assert [(rule["id"], rule["nodes"][0]["html"][:120]) for rule in violations] == []


def test_settings_say_what_is_wrong_with_a_reader(
        node: Node, open_page: Callable[..., Page]) -> None:
    node.beats = {"reader": "hung", "detail": HOSTILE, "pending": 512, "dropped": 7}
    page = open_page("/settings#nodes", width=390, height=844)
    agent = page.locator("td[data-head=Agent]")
    assert soon(lambda: agent.count() == 1 and "hung" not in agent.inner_text()
                and HOSTILE in agent.inner_text())
    for words in ("the driver does not answer", "512 messages queued for the hub (2.9 MiB)",
                  "7 messages lost", "0.6 % CPU"):
        assert words in agent.inner_text()
    assert agent.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    node.beats = {}


def test_nothing_at_all(hub: HubProcess, browser: Browser, tmp_path: Path) -> None:
    """The place for events says that there are none before the first node connects."""
    with HubProcess(tmp_path / "data") as bare:
        add_person(bare, "root", "admin")
        context = browser.new_context()
        context.add_cookies([{"name": name, "value": value, "domain": "127.0.0.1", "path": "/"}
                             for name, value in signed_in(bare, "root").cookies.items()])
        page = context.new_page()
        page.goto(bare.url)
        page.locator("#events-button").click()
        assert soon(lambda: "No events yet" in page.locator("#events-panel").inner_text())
        context.close()

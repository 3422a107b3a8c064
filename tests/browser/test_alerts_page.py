"""The Alerts page in a real browser, before a hub whose agents are told what to say."""

import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page

from tests.demos import soon
from tests.integration.hubs import HubProcess
from tests.integration.visitors import signed_in

from .full_agents import Node
from .test_look import axe_source

pytestmark = pytest.mark.browser


def put(hub: HubProcess, node: Node, **more: Any) -> dict[str, Any]:
    rule = {"id": f"hot-{secrets.token_hex(3)}", "title": f"Hot {secrets.token_hex(3)}",
            "scope": f"node:{node.teller.caller.said.host}", "signal": "temp_margin_c",
            "fire": "<= 5", "clear": ">= 10", "for": "1s", "severity": "crit"} | more
    for gpu in (0, 1):
        node.slow(gpu, temp_margin_c=30.0)
    answer = hub.ask(f"/api/v1/rules/{rule['id']}", "PUT", body=json.dumps(rule).encode(),
                     Content_Type="application/json")
    assert answer.status == 200, answer.body
    return rule


def forget(hub: HubProcess) -> None:
    """The rules of other tests, which would fire too."""
    for item in hub.get("/api/v1/rules")["items"]:
        if item["rule"]["id"].startswith("hot-"):
            assert hub.ask(f"/api/v1/rules/{item['rule']['id']}", "DELETE").status < 300


def rows(page: Page, section: str, title: str) -> list[str]:
    table_rows = page.locator(f"#alerts-{section} tbody tr").filter(has_text=title)
    return [" ".join(text.split()) for text in table_rows.all_inner_texts()]


def choose(page: Page, view: str) -> None:
    page.locator(f"#alerts-views [data-value={view}]").click()


def test_it_fires_is_silenced_in_two_clicks_and_ends(hub: HubProcess, node: Node,
                                                     open_page: Callable[..., Page]) -> None:
    rule = put(hub, node)
    title = rule["title"]
    node.slow(0, temp_margin_c=3.0)
    page = open_page("/alerts")
    assert soon(lambda: rows(page, "firing", title))
    [row] = rows(page, "firing", title)
    assert "3 °C" in row
    assert "GPU 0" in row
    assert "(1) Alerts" in page.title()
    assert any("1 firing" in row_text for row_text in rows(page, "rules", title))
    page.get_by_role("button", name=f"Silence {title} at").first.click()
    page.get_by_role("button", name="4 hours").click()
    assert soon(lambda: not rows(page, "firing", title))
    choose(page, "silenced")
    assert "silenced from the alert by root" in rows(page, "silenced", title)[0]
    assert page.url.endswith("/alerts#silenced")
    [row] = rows(page, "silences", title)
    assert ("GPU 0" in row, "GPU-" in row) == (True, False), row
    page.get_by_role("button", name="End the silence of").click()
    page.locator("dialog").get_by_role("button", name="End silence", exact=True).click()
    assert soon(lambda: rows(page, "firing", title))
    node.slow(0, temp_margin_c=30.0)
    assert soon(lambda: rows(page, "ended", title) and not rows(page, "firing", title))
    page.keyboard.press("5")
    assert "the condition is not met any more" in rows(page, "ended", title)[0]


def test_one_rule_is_one_line_that_opens(hub: HubProcess, node: Node,
                                         open_page: Callable[..., Page]) -> None:
    rule, host = put(hub, node), node.teller.caller.said.host
    for gpu in (0, 1):
        node.slow(gpu, temp_margin_c=3.0)
    page = open_page("/alerts")
    words = f"{rule['title']}: 2 GPUs on 1 node"
    assert soon(lambda: any(words in row for row in rows(page, "firing", rule["title"])))
    [row] = rows(page, "firing", rule["title"])
    assert host in row
    page.get_by_role("button", name=words).click()
    assert soon(lambda: len(rows(page, "firing", rule["title"])) == 3)
    page.get_by_role("button", name=f"Silence {rule['title']} everywhere").click()
    assert page.locator("dialog[open] [name=rule]").input_value() == rule["id"]
    page.keyboard.press("Escape")
    page.get_by_role("button", name=words).click()
    assert soon(lambda: len(rows(page, "firing", rule["title"])) == 1)
    for gpu in (0, 1):
        node.slow(gpu, temp_margin_c=30.0)
    assert soon(lambda: not rows(page, "firing", rule["title"]))


# The headless shell has no desktop and denies each notification, whoever grants it.
RECORDED = """globalThis.notes = [];
    const Real = Notification;
    globalThis.Notification = class extends Real {
      static get permission() { return "granted"; }
      static requestPermission() { return Promise.resolve("granted"); }
      constructor(title, more) { super(title, more); notes.push([title, more.body, more.tag]); }
    };"""


def test_a_critical_alert_is_a_notification_of_the_desktop_where_somebody_allowed_it(
        hub: HubProcess, node: Node, open_page: Callable[..., Page]) -> None:
    forget(hub)
    page = open_page("/settings#you")
    page.context.add_init_script(RECORDED)
    page.reload()
    page.get_by_label("desktop notifications").check()
    manifest = page.evaluate("fetch(document.querySelector('link[rel=manifest]').href)"
                             ".then((answer) => answer.json())")
    assert (manifest["start_url"], manifest["display"]) == ("/", "standalone")
    for icon in manifest["icons"]:
        size = page.evaluate("""async (src) => { const image = new Image(); image.src = src;
            await image.decode(); return image.width; }""", f"/assets/{icon['src']}")
        assert icon["sizes"] == f"{size}x{size}"
    cdp = page.context.new_cdp_session(page)
    assert cdp.send("Page.getAppManifest")["errors"] == []
    page.goto(hub.url + "/reports")
    other = page.context.new_page()
    other.goto(hub.url + "/reports")
    warning, critical = put(hub, node, severity="warn"), put(hub, node)
    node.slow(0, temp_margin_c=3.0)

    def notes() -> list[list[str]]:
        return [note for one in (page, other) for note in one.evaluate("notes")]

    assert soon(notes)
    host = node.teller.caller.said.host
    assert notes() == [[critical["title"], f"{host} · GPU 0", f"gpudeck-{critical['id']}"]]
    node.slow(1, temp_margin_c=3.0)
    assert soon(lambda: len(notes()) == 2)
    assert notes()[1][1] == f"{host} · GPU 1 and 1 more"
    assert warning["title"] not in [title for title, *_ in notes()]
    for gpu in (0, 1):
        node.slow(gpu, temp_margin_c=30.0)
    page.goto(hub.url + "/settings#you")
    page.get_by_label("desktop notifications").uncheck()
    assert page.evaluate("localStorage.getItem('gpudeck.desktop_alerts')") == "off"


def test_a_page_that_opens_asks_each_thing_once_and_is_few_files(
        node: Node, open_page: Callable[..., Page]) -> None:
    page = open_page("/alerts")
    assert soon(lambda: page.evaluate("globalThis.gpudeck?.stats.link === 'live'"))
    page.reload()
    assert soon(lambda: page.evaluate("globalThis.gpudeck?.stats.link === 'live'"))
    page.wait_for_selector("#alerts-rules tbody tr", state="attached")
    times: dict[str, list[float]] = {}
    for name, at in page.evaluate("performance.getEntriesByType('resource')"
                                  ".map(({name, startTime}) => [name, startTime])"):
        times.setdefault(name, []).append(at)
    api_times = {name: times_ms for name, times_ms in times.items() if "/api/v1/" in name}
    assert api_times
    assert not {name for name, times_ms in api_times.items()
                if any(later - at < 1_500 for at, later in pairwise(times_ms))}
    names = [*times]
    assets = [name for name in names if "/assets/" in name and name.endswith((".mjs", ".css"))]
    assert len(assets) == 2


def test_a_filter_with_a_mistake_is_said_where_the_tasks_would_be(
        hub: HubProcess, node: Node, browser: Browser) -> None:
    context = browser.new_context()
    context.add_cookies([{"name": name, "value": value, "domain": "127.0.0.1", "path": "/"}
                         for name, value in signed_in(hub, "root").cookies.items()])
    page = context.new_page()
    page.goto(f"{hub.url}/tasks?filter=utl%3C5")
    assert soon(lambda: "did you mean" in page.inner_text("#tasks-words"))
    assert page.inner_text("#tasks-place .none") == "The filter above has a mistake."
    page.fill("#tasks-filter", "util>=0")
    assert soon(lambda: "mistake" not in page.inner_text("#tasks-place"))
    context.close()


def test_what_is_on_its_way_to_fire_stands_there(hub: HubProcess, node: Node,
                                                 open_page: Callable[..., Page]) -> None:
    rule = put(hub, node, **{"for": "4m"})
    node.slow(1, temp_margin_c=2.0)
    page = open_page("/alerts#pending")
    assert soon(lambda: rows(page, "pending", rule["title"]))
    [row] = rows(page, "pending", rule["title"])
    assert "GPU 1" in row
    assert "in " in row
    node.slow(1, temp_margin_c=30.0)
    assert soon(lambda: not rows(page, "pending", rule["title"]))


def test_a_rule_is_written_with_a_look_at_whom_it_means(
    hub: HubProcess, node: Node, open_page: Callable[..., Page]
) -> None:
    node.slow(0, temp_margin_c=20.0)
    node.slow(1, temp_margin_c=-7.0)
    host = node.teller.caller.said.host
    page = open_page("/alerts")
    page.locator("#alerts-new").click()
    check = page.locator("dialog .rule-check")
    assert soon(lambda: check.inner_text().startswith("Enter a title"))
    assert page.evaluate("""[...document.querySelectorAll("#rule-foot button")].map(button => {
        const {x, y, width, height} = button.getBoundingClientRect();
        return document.elementFromPoint(x + width / 2, y + height / 2) === button; })"""
        ) == [True, True]  # in sight although the form is longer than the window
    field = {name: page.locator(f"dialog [name={name}]") for name in
             ("id", "title", "signal", "fire", "for", "scope", "runbook", "yaml")}
    name = f"mine-{secrets.token_hex(3)}"
    field["title"].fill(name.replace("-", " ").title())
    assert soon(lambda: field["id"].input_value() == name)
    field["signal"].fill("temp_margn_c")
    field["fire"].fill("<= -5")
    field["scope"].fill(f"node:{host}")
    wrong = page.locator("dialog [data-field=signal] .field-wrong")
    assert soon(lambda: "did you mean 'temp_margin_c'" in wrong.inner_text())
    field["signal"].fill("temp_margin_c")
    assert soon(lambda: f"Condition met by 1 of 2 GPUs at this moment: {host} · GPU 1"
                in check.inner_text())
    assert wrong.is_hidden()
    page.locator("dialog summary", has_text="Rehearsal").click()
    page.get_by_role("button", name="Rehearse").click()
    assert soon(lambda: "It would " in page.locator(".rehearsal-words").inner_text())
    way = {mode: page.locator(f"dialog [data-way={mode}]") for mode in ("form", "yaml")}
    way["yaml"].click()
    assert soon(lambda: f"id: {name}" in field["yaml"].input_value())
    field["yaml"].fill(field["yaml"].input_value() + "nonsense: [")
    assert soon(lambda: "line " in check.inner_text())
    field["yaml"].fill(field["yaml"].input_value().replace("nonsense: [", "severity: crit\n"
                                                           "runbook: Look at the fans."))
    assert soon(lambda: "Condition met by 1 of 2" in check.inner_text())
    way["form"].click()
    assert soon(lambda: field["runbook"].input_value() == "Look at the fans.")
    page.locator("dialog").get_by_role("button", name="Save rule").click()
    assert soon(lambda: rows(page, "rules", name))
    saved = hub.get(f"/api/v1/rules/{name}")["rule"]
    assert (saved["signal"], saved["fire"], saved["for"]) == ("temp_margin_c", "<= -5", "2m")
    assert (saved["severity"], saved["runbook"]) == ("crit", "Look at the fans.")
    page.get_by_role("button", name=f"Edit {saved['title']}").click()
    page.locator("dialog summary", has_text="Rehearsal").click()
    page.get_by_role("button", name="Rehearse").click()
    assert soon(lambda: "It did not fire in that time." in page.locator(
        ".rehearsal-words").inner_text()), "beside what it would have done"
    assert page.locator(".rehearsal-words").evaluate(ON_TOP), "neither below the edge nor covered"
    assert "takes no action, so nobody has to approve" in page.locator(
        "#rehearsal-approval").inner_text()


ON_TOP = """one => {
    const box = one.getBoundingClientRect();
    return one.contains(document.elementFromPoint(box.left + 5, box.top + 5));
}"""


def test_every_field_of_a_rule_is_kept_by_the_form(hub: HubProcess, node: Node,
                                                   open_page: Callable[..., Page]) -> None:
    rule = put(hub, node, runbook="Look.\nThen act.", where=["util_pct >= 0%", "temp_c > 0"],
               no_data="hold", min_coverage=0.5, max_gap="9s", cooldown="20m", owner="ops",
               group_by=["rule", "gpu"], inhibited_by=["gpu-lost"], keep_firing_for="1m",
               budget={"acts": 2, "within": "1h"}, ladder=[{"do": "tell", "after": "0s"}],
               when_refused="skip", mode="dry_run", **{"for": "31s"})
    before = hub.get(f"/api/v1/rules/{rule['id']}")["rule"]
    page = open_page("/alerts")
    page.get_by_role("button", name=f"Edit {rule['title']}").click()
    title = f"{rule['title']} anew"
    page.locator("dialog [name=title]").fill(title)
    page.locator("dialog").get_by_role("button", name="Save changes").click()
    assert soon(lambda: rows(page, "rules", title))
    assert f"“{title}” is active, mode dry run." in page.locator(".toast").inner_text()
    assert hub.get(f"/api/v1/rules/{rule['id']}")["rule"] == before | {"title": title}


def test_what_of_a_ladder_cannot_be_done_is_said_below_the_form(
    hub: HubProcess, node: Node, open_page: Callable[..., Page]
) -> None:
    rule = put(hub, node, of="task", signal="sm_pct", fire="<= 1", clear="", ladder=[
        {"do": "tell", "after": "0s"}, {"do": "end", "after": "10m"}, {"do": "end", "after": "10m"}
    ], **{"for": "31s"})
    page = open_page("/alerts")
    page.get_by_role("button", name=f"Edit {rule['title']}").click()
    check = page.locator("dialog .rule-check")
    assert soon(lambda: "Step 3 ('end') can never be done: it comes after 'end', and an ended "
                "task is gone." in check.inner_text())


def test_brakes_modes_and_maintenance(hub: HubProcess, node: Node, open_page: Callable[..., Page]
                                      ) -> None:
    rule = put(hub, node, ladder=[{"do": "tell", "after": "0s"}], **{"for": "31s"})
    host = node.teller.caller.said.host
    page = open_page("/alerts")
    brakes = page.locator("#alerts-brakes tbody tr")
    assert soon(lambda: brakes.count() > 3 and "not blocking" in brakes.first.inner_text())
    assert page.locator("#alerts-stopped").is_hidden()
    page.get_by_role("button", name=f"Mode of {rule['title']}").click()
    page.locator("dialog[open] [name=mode]").select_option("dry_run")
    page.locator("dialog[open]").get_by_role("button", name="Save").click()
    assert soon(lambda: "dry run" in rows(page, "rules", rule["title"])[0])
    page.locator("#alerts-maintain").click()
    page.locator("dialog[open] [name=because]").fill("replacing a fan")
    page.locator("dialog[open]").get_by_role("button", name="Start").click()
    assert soon(lambda: "replacing a fan" in "".join(rows(page, "maintenance", host)))
    page.get_by_role("button", name=f"End the maintenance of {host}").click()
    page.locator("dialog[open]").get_by_role("button", name="End maintenance", exact=True).click()
    assert soon(lambda: not rows(page, "maintenance", host))


def test_what_fires_is_marked_where_its_gpu_is_shown(hub: HubProcess, node: Node,
                                                     open_page: Callable[..., Page]) -> None:
    forget(hub)
    rule = put(hub, node)
    uuid, other = node.uuid(0), node.uuid(1)
    page = open_page(f"/?gpu={uuid}")
    cell = "([uuid, rule]) => gpudeck.cell(uuid)?.alerts.includes(rule)"
    assert soon(lambda: page.evaluate(cell, [uuid, rule["id"]]) is False)
    node.slow(0, temp_margin_c=1.0)
    assert soon(lambda: page.evaluate(cell, [uuid, rule["id"]]) is True)
    assert page.evaluate(cell, [other, rule["id"]]) is False
    drawer = page.locator("#drawer .alert-lines")
    assert soon(lambda: rule["title"] in drawer.inner_text())
    assert f"critical {rule['title']}" in (drawer.text_content() or ""), "as it is read aloud"
    page.locator("#heatmap .heatmap").focus()
    page.keyboard.press("Home")
    assert soon(lambda: f"alert: {rule['title']}" in page.inner_text("#heatmap .live-spoken"))

    def hovered() -> str:
        # Again and again: what is drawn meanwhile may move the mark away from under the pointer.
        page.mouse.move(0, 0)
        page.mouse.move(*middle_of(page, "#heatmap .mark"))
        return page.locator("#hover").inner_text()

    assert soon(lambda: rule["title"] in hovered())
    page.goto(f"{hub.url}/gpu/{uuid}")
    strip = page.locator(f".lane-rules li[data-rule='{rule['id']}']")
    assert soon(lambda: strip.count() and strip.locator("i.crit").count() == 1)
    assert strip.text_content() == f"{rule['title']} · GPU 0"
    assert are_gpus_seen(page, strip) == [True, True]
    # Its margin is seen in the temperature, and nowhere else.
    hairlines = "name => document.querySelector(`.chart[aria-label='${name}']`)?.dataset.alerts"
    assert soon(lambda: int(page.evaluate(hairlines, "Temperature") or 0) > 0)
    assert page.evaluate(hairlines, "Memory used") == "0"
    page.goto(f"{hub.url}/history?gpu={uuid}&last=15m")
    assert soon(lambda: any(label.startswith(rule["title"]) for label in page.evaluate(NAMES)))
    assert are_gpus_seen(page, page.locator(f"#past-lane li[data-rule='{rule['id']}']")) == [
        True, True]
    node.slow(0, temp_margin_c=30.0)


def are_gpus_seen(page: Page, strip: Locator) -> list[bool]:
    """Return whether the GPU's number is seen in a lane, on a desk and on a phone, however long the
    rule is called: its end was cut off."""
    views = []
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        views.append(strip.evaluate("""strip => {
            strip.querySelector('.lane-name').textContent = 'Near thermal limit, '.repeat(9);
            const gpus = strip.querySelector('.lane-gpus');
            const [inner, outer] = [gpus, strip.querySelector('strong')].map(
                one => one.getBoundingClientRect());
            return gpus.textContent.includes('GPU 0') && gpus.scrollWidth <= gpus.clientWidth
                && inner.width > 0 && inner.right <= outer.right + 0.5;
        }"""))
    page.set_viewport_size({"width": 1440, "height": 900})
    return views


@pytest.fixture(name="fresh")
def _fresh(hub: HubProcess) -> Iterator[Node]:
    """A node on which nothing of another test fires, and the first on the map."""
    fresh = Node(hub, f"a{secrets.token_hex(2)}").start()
    yield fresh
    fresh.stop()


def corners(page: Page) -> int:
    """Count the map's pixels of the colour of critical alerts, once their number has settled."""
    last, now = -1, 0
    while last != now:
        last = now
        page.wait_for_timeout(800)
        now = page.evaluate(CORNERS)
    return now


ABOUT = {"node": ("gpus", "the node"), "task": ("gpus", "task of alice"),
         "job": ("tasks", "job of alice"), "owner": ("gpus", "all tasks of alice")}


def test_what_is_about_others_is_marked_at_their_gpus(hub: HubProcess, fresh: Node,
                                                      open_page: Callable[..., Page]) -> None:
    """A task of alice is on the first GPU, and nobody on the second."""
    node, page = fresh, open_page("/")
    uuids = [node.uuid(0), node.uuid(1)]
    cell = "uuid => gpudeck.cell(uuid)?.alerts ?? null"
    assert soon(lambda: all(page.evaluate(cell, uuid) is not None for uuid in uuids))
    rules: dict[str, str] = {}
    words: dict[str, str] = {}
    pixel_count = corners(page)
    for what, (signal, described) in ABOUT.items():
        scope = "user:alice" if what == "owner" else f"node:{node.teller.caller.said.host}"
        rule = put(hub, node, of=what, scope=scope, signal=signal, fire=">= 1", clear="")
        rules[what], words[what] = rule["id"], f"{rule['title']} · {described}"
        assert soon(lambda: rule["id"] in page.evaluate(cell, uuids[0]))  # noqa: B023
        if what in ("node", "task"):  # at the node's name, then at the first GPU as well
            assert soon(lambda: corners(page) > pixel_count)  # noqa: B023
            pixel_count = corners(page)
    assert [set(page.evaluate(cell, uuid)) & set(rules.values()) for uuid in uuids] == [
        set(rules.values()), {rules["node"]}]
    page.locator("#heatmap .heatmap").focus()
    page.keyboard.press("Home")
    live_text = page.locator("#heatmap .live-spoken")
    assert soon(lambda: all(
        f"alert: {title}" in live_text.inner_text() for title in words.values()))
    page.mouse.move(*middle_of(page, "#heatmap .mark"))
    assert soon(lambda: "and 1 alert more" in page.locator("#hover").inner_text())
    page.goto(f"{hub.url}/node/{node.teller.node_id}")
    lines = page.locator("#lines-side .alert-lines")
    assert soon(lambda: all(title in lines.inner_text() for title in words.values()))
    for rule_id in rules.values():
        assert hub.ask(f"/api/v1/rules/{rule_id}", "DELETE").status == 204
    for uuid, expected_words in zip(uuids, (set(words.values()), {words["node"]}), strict=True):
        page.goto(f"{hub.url}/history?gpu={uuid}&last=15m")  # it is over, and stays on their past
        # The span moves on by whole steps: an alert of the last seconds comes with the next.
        assert soon(lambda: titles_of(page.evaluate(NAMES)) & titles_of(words.values())
                    == titles_of(expected_words)), page.evaluate(NAMES)  # noqa: B023


def titles_of(lines: Iterable[str]) -> set[str]:
    return {one.partition(" · ")[0] for one in lines}


NAMES = """() => [...document.querySelectorAll("#past-lane li[data-rule] strong")]
    .map(({textContent}) => textContent)"""
# How much of the map is of the colour of critical alerts, in the dark.
CORNERS = """() => {
    const canvas = document.querySelector("#heatmap canvas");
    const copy = new OffscreenCanvas(canvas.width, canvas.height)
        .getContext("2d", {willReadFrequently: true});
    copy.drawImage(canvas, 0, 0);
    const {data} = copy.getImageData(0, 0, canvas.width, canvas.height);
    let found = 0;
    for (let at = 0; at < data.length; at += 4)
        found += [244, 79, 93].every((tone, part) => Math.abs(data[at + part] - tone) < 3);
    return found;
}"""


def middle_of(page: Page, what: str) -> tuple[float, float]:
    box = page.locator(what).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_and_width(
        hub: HubProcess, node: Node, open_page: Callable[..., Page], theme: str) -> None:
    rule = put(hub, node)
    node.slow(0, temp_margin_c=1.0)
    page = open_page("/alerts", theme=theme)
    assert soon(lambda: rows(page, "firing", rule["title"]))
    page.evaluate(axe_source())
    violations = page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then("
        "({violations}) => violations.map(({id, nodes}) => [id, nodes[0].html]))")
    assert violations == []
    page.keyboard.press("n")
    page.locator("dialog .rule-form").wait_for()
    assert page.evaluate("axe.run('dialog[open]', {resultTypes: ['violations']}).then("
                         "({violations}) => violations.map(({id, nodes}) => [id, nodes[0].html]))"
                         ) == []
    for width in (320, 390, 1024):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_new_rule_takes_no_others_place_and_one_key_no_work_away(
    hub: HubProcess, node: Node, open_page: Callable[..., Page]
) -> None:
    rule = put(hub, node)
    page = open_page("/alerts")
    page.locator("#alerts-new").click()
    form = page.locator("dialog[open]")
    for name, value in {"title": "Mine", "signal": "temp_c", "fire": ">= 90",
                        "id": rule["id"]}.items():
        form.locator(f"[name={name}]").fill(value)
    form.get_by_role("button", name="Save rule").click()
    problem, place = form.locator(".problem"), form.locator("[data-field=id]")
    assert soon(lambda: "choose another id" in place.inner_text()), form.inner_text()
    assert hub.get(f"/api/v1/rules/{rule['id']}")["rule"]["title"] == rule["title"]
    form.locator("[name=title]").fill("Mine, in other words")
    page.keyboard.press("Escape")
    assert "would be lost" in problem.inner_text()
    assert form.locator("[name=title]").input_value() == "Mine, in other words"
    page.keyboard.press("Escape")
    assert soon(lambda: form.count() == 0)

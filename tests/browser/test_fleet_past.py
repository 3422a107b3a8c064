"""The Fleet page's time bar in a real browser: what it shows of a moment is what `instant` says of
it, nobody can take it for live, and nothing is offered there that would act on now."""

import base64
import json
import os
import random
import re
import struct
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route

from tests.demos import Demo, soon

from .acting import send
from .conftest import Fleet
from .test_attention import places
from .test_look import THEMES, overflow, violations

pytestmark = pytest.mark.browser
SLOWLY_S = 0.5  # the page says "loading" after 150 ms
SLIDER = "#time-slider"


def at(fleet: Fleet) -> int | None:
    second: int | None = fleet.stats()["at"]
    return second


def address(fleet: Fleet) -> str:
    search: str = fleet.page.evaluate("location.search")
    return search


def came(fleet: Fleet, moment: int | None) -> bool:
    return soon(lambda: at(fleet) == moment)


def expected_texts(demo: Demo, moment: int, metric: str = "util_pct") -> dict[str, str]:
    """Return each cell's text by what the API says of that second."""
    items = demo.get(f"/api/v1/instant?metric={metric}&at={moment}")["items"]
    return {item["gpu"]: _text(item) for item in items}


def _text(item: dict[str, Any]) -> str:
    if item["value"] is None:
        return {"unsupported": "not supported"}.get(item["missing"], str(item["missing"]))
    if 0 < item["value"] < 0.5:
        return "<1"
    return str(int(item["value"] + 0.5))


def shown_texts(fleet: Fleet, uuids: list[str]) -> dict[str, str]:
    return {uuid: cell["text"] for uuid, cell in fleet.cells(uuids).items()}


def set_and_kept(demo: Demo, gpus: dict[str, Any], texts: dict[str, str]) -> int:
    """A second in which history has all of it so: Nodes hear of it one after the other."""
    demo.control(gpus)
    seconds: list[int] = []

    def is_kept() -> bool:
        seconds.append(int(time.time()) - 3)
        return texts.items() <= expected_texts(demo, seconds[-1]).items()

    assert soon(is_kept)
    return seconds[-1]


def test_the_past_shows_what_was_so_and_live_what_is(demo: Demo, fleet: Fleet) -> None:
    uuids = list(demo.gpus())
    one, lost_uuid = random.sample(uuids, 2)
    first, second = random.sample(range(2, 99), 2)
    then = set_and_kept(demo, {one: {"util_pct": first}, lost_uuid: {"state": "lost"}},
                        {one: str(first), lost_uuid: "lost"})
    set_and_kept(demo, {one: {"util_pct": second}}, {one: str(second)})
    fleet.page.wait_for_selector(SLIDER)
    live = fleet.text("#time-words")
    fleet.open(f"?at={then}")
    assert came(fleet, then)
    cells = shown_texts(fleet, uuids)
    assert cells == expected_texts(demo, then)
    assert (cells[one], cells[lost_uuid]) == (str(first), "lost")
    assert soon(lambda: f"{len(uuids)} of {len(uuids)} GPUs reported" in fleet.text("#time-words"))
    assert "PAST" in fleet.text("#time-words").upper()
    assert "PAST" not in live.upper()
    sums = demo.get(f"/api/v1/totals?at={then}")
    assert soon(lambda: f" {sums['gpus_ok']} of {sums['gpus_seen']} GPUs" in
                fleet.text("#summary"))
    assert sums["gpus_ok"] == len(uuids) - 1
    moment = demo.get(f"/api/v1/moment?at={then}")
    assert soon(lambda: fleet.text("#card-free .card-figure") == (
        str(moment["gpus_free"]) if moment["gpus_free"] else "none"))
    fleet.page.locator("#metric").select_option("temp_c")
    assert soon(lambda: shown_texts(fleet, uuids) == expected_texts(demo, then, "temp_c"))
    fleet.page.locator("#metric").select_option("util_pct")
    fleet.page.locator("#time-live").click()
    assert soon(lambda: shown_texts(fleet, [one])[one] == str(second))
    assert at(fleet) is None
    assert "at=" not in address(fleet)
    assert soon(lambda: "of 64" in fleet.text("#card-free"))


CARDS = """['wasted', 'free', 'attention', 'queue'].map(
    key => document.querySelector(`#card-${key} .card-figure`).textContent)"""


def gpus_of(owner: str, words: str) -> set[int]:
    match = re.search(rf"{owner} on n001 GPU ([\d, \u2013]+), idle ", words)
    return set() if match is None else places(match[1])


def test_what_the_live_page_said_the_past_says_of_that_moment_with_the_owner_and_since(
        tmp_path: Path, browser: Browser) -> None:
    """The past said "current state only" of all four numbers once, and cells had no owner."""
    with Demo(tmp_path / "demo", "--nodes", "1", "--faults", "off",
              "--history-hours", "1") as demo:
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        fleet = Fleet(context, demo.url)
        fleet.page.goto(demo.info()["sign_in_url"])
        fleet.wait_live()
        samples: list[list[str]] = []

        def is_steady() -> bool:
            time.sleep(0.95)
            samples.append(fleet.page.evaluate(CARDS))
            return len(samples) >= 9 and all(sample == samples[-1] for sample in samples[-9:])

        assert soon(is_steady), samples
        live, then = samples[-1], int(time.time()) - 5
        words = fleet.text("#card-wasted")
        wasted_gpus = demo.ask("gpus?filter=state:wasted")
        [hog] = [gpu for gpu in wasted_gpus if gpu["index"] == 5]
        [task] = [candidate for candidate in demo.ask("tasks?limit=1000")
                  if hog["uuid"] in [gpu["uuid"] for gpu in candidate["gpus"]]]
        since = time.time() - hog["wasted_s"]
        assert soon(lambda: ready(demo))
        fleet.open(f"?at={then}")
        assert soon(lambda: fleet.page.evaluate(CARDS) == live), (fleet.page.evaluate(CARDS), live)
        # The hog's owner may have a notebook that is truly idle, too.
        assert 5 in gpus_of(task["user"], words) <= {gpu["index"] for gpu in wasted_gpus}
        assert gpus_of(task["user"], fleet.text("#card-wasted")) == gpus_of(task["user"], words)
        assert fleet.text("#chip-wasted").split() == ["Idle", fleet.text("#card-wasted").split()[1]]
        before = then - 600  # that was never live
        fleet.open(f"?at={before}&gpu={hog['uuid']}")
        assert soon(lambda: 5 in gpus_of(task["user"], fleet.text("#card-wasted")))
        assert soon(lambda: task["user"] in fleet.text("#drawer-then"))
        assert "idle with memory held since" in fleet.text("#drawer-then")
        [cell] = fleet.cells([hog["uuid"]]).values()
        assert cell["isWasted"]
        wasted = demo.get(f"/api/v1/moment?at={before}")["wasted"]
        [told_since] = struct.unpack("<I", base64.b64decode(wasted["since"])[:4])
        assert abs(told_since - since) <= 120
        assert fleet.trouble == []
        context.close()


def ready(demo: Demo) -> bool:
    return bool(demo.info()["history"]["is_ready"])


def test_the_keyboard_alone_goes_through_time(demo: Demo, fleet: Fleet) -> None:
    uuids = list(demo.gpus())
    fleet.page.wait_for_selector(SLIDER)
    fleet.page.focus(SLIDER)
    keys = fleet.page.keyboard
    keys.press("ArrowLeft")
    assert soon(lambda: at(fleet) is not None)
    first = at(fleet)
    assert first is not None
    assert first % 5 == 0
    keys.press("ArrowLeft")
    assert came(fleet, first - 5)
    keys.press("Shift+ArrowLeft")
    assert came(fleet, first - 55)
    assert shown_texts(fleet, uuids) == expected_texts(demo, first - 55)
    keys.press("Shift+ArrowRight")
    keys.press("ArrowLeft")
    assert came(fleet, first - 10)
    assert soon(lambda: f"at={first - 10}" in address(fleet))
    keys.press("Home")
    assert soon(lambda: 0 < (at(fleet) or 0) <= time.time() - 3_595)
    assert soon(lambda: "no samples at that time" in fleet.text("#time-words"))
    assert set(shown_texts(fleet, uuids).values()) == {"unknown"}
    assert soon(lambda: fleet.text("#summary") == "0 nodes · 0 of 0 GPUs")
    oldest = at(fleet) or 0
    keys.press(" ")
    assert fleet.text("#time-play") == "Pause"
    assert soon(lambda: (at(fleet) or 0) >= oldest + 30)
    keys.press(" ")
    assert fleet.text("#time-play") == "Play"
    keys.press("End")
    assert came(fleet, None)
    fleet.page.go_back()  # out of the past it led to: the same page, live
    assert came(fleet, None)


def test_a_link_opens_its_moment_and_back_leads_to_live(demo: Demo, open_fleet: Callable[..., Fleet]
                                                        ) -> None:
    uuids, then = list(demo.gpus()), int(time.time()) - 8
    words = datetime.fromtimestamp(then, UTC).isoformat().replace("+00:00", "Z")
    fleet = open_fleet(f"?at={words}")
    assert came(fleet, then)
    assert shown_texts(fleet, uuids) == expected_texts(demo, then)
    fleet.page.locator("#time-live").click()
    assert came(fleet, None)
    fleet.page.focus(SLIDER)
    fleet.page.keyboard.press("Shift+ArrowLeft")
    assert soon(lambda: "at=" in address(fleet))
    fleet.page.go_back()
    assert came(fleet, None)
    assert soon(lambda: fleet.page.locator("#fleet.then").count() == 0)
    nonsense = open_fleet("?at=yesterday")
    assert soon(lambda: nonsense.text("#time-words").startswith("Now"))


def test_the_past_offers_no_act_and_says_what_it_cannot_tell(
        demo: Demo, open_fleet: Callable[..., Fleet]) -> None:
    task = next(task for task in demo.get("/api/v1/tasks?limit=1000")["items"] if task["gpus"])
    uuid, then = task["gpus"][0]["uuid"], int(time.time()) - 6
    fleet = open_fleet(f"?at={then}&gpu={uuid}&filter=util%3E50&group=owner")
    assert came(fleet, then)
    drawer = fleet.page.locator("#drawer")
    assert soon(lambda: "Go live to act" in drawer.inner_text())
    power = next(item["value"] for item in demo.get(
        f"/api/v1/instant?metric=power_w&at={then}")["items"] if item["gpu"] == uuid)
    assert f"{int(power + 0.5)} W" in drawer.inner_text()
    assert not fleet.page.locator("#drawer-body").is_visible()
    assert [name for name in drawer.locator("button:visible").all_inner_texts() if name] == [
        "Go live"]
    assert "Filters need live data" in fleet.text("#filter-words")
    assert all(cell["matched"] for cell in fleet.cells([uuid]).values())
    title = fleet.page.evaluate("document.querySelector('#drawer-title').textContent")
    assert task["host"] in title
    fleet.page.locator(".go-live").click()
    assert soon(lambda: "Live, read" in fleet.text("#drawer-body"))
    assert soon(lambda: "match" in fleet.text("#filter-words"))


def notified(demo: Demo, task_id: str) -> dict[str, Any] | None:
    preview = send(demo, "POST", "previews", {
        "action": "notify", "targets": [task_id], "params": {"text": "from a test"}})
    if preview["refused"]:
        return None
    [command] = send(demo, "POST", "commands", {"preview": preview["id"],
                                                "reason": "a mark on the time bar"})["items"]
    typed_command: dict[str, Any] = command
    has_ended = soon(lambda: demo.get(f"/api/v1/commands/{command['id']}")["state"] not in (
        "requested", "queued", "sent", "accepted", "acting"))
    state = demo.get(f"/api/v1/commands/{command['id']}")["state"]
    return typed_command if has_ended and state == "done" else None


def test_a_mark_of_a_command_leads_to_its_moment(demo: Demo, open_fleet: Callable[..., Fleet]
                                                 ) -> None:
    tasks = demo.get("/api/v1/tasks?limit=1000")["items"]
    # Some end while they are asked about: one that was told is wanted, at a terminal of ours.
    first_asked, ends = time.time() - 1, os.openpty()
    command = next(notify_command for task in random.sample(tasks, len(tasks))
                   if (notify_command := notified(demo, task["id"])) is not None)
    for end in ends:
        os.close(end)
    assert soon(lambda: time.time() > command["requested_at"] + 3)  # it is over
    fleet = open_fleet()
    # The demo's own commands have marks, too.
    mark = fleet.page.locator(".time-mark.command[title*=notify]").last
    mark.wait_for()
    # One mark is of all commands that lie so near each other, and leads to the first of them.
    mark_at = int(mark.get_attribute("data-at") or 0)
    assert first_asked <= mark_at <= command["requested_at"] + 1
    mark.click()
    assert soon(lambda: at(fleet) == mark_at)
    fleet.page.keyboard.press("Shift+ArrowRight")
    # Back over every mark that came since, as of an alert of the demo's own.
    while (before := at(fleet)) is None or before > mark_at:
        fleet.page.keyboard.press("PageUp")
        assert soon(lambda last_at=before: at(fleet) != last_at)  # type: ignore[misc]
    assert before == mark_at


def slowly(route: Route) -> None:
    time.sleep(SLOWLY_S)
    route.continue_()


@pytest.mark.parametrize("theme", THEMES)
def test_nothing_moves_between_live_and_past(demo: Demo, open_fleet: Callable[..., Fleet],
                                             theme: str) -> None:
    for width, height in ((1440, 900), (390, 844)):
        fleet = open_fleet(width=width, height=height, theme=theme)
        fleet.page.wait_for_selector(SLIDER)
        places = """JSON.stringify(['.attention', '.tools', '#time-bar', '#time-words',
            '#time-slider', '.legend', '#stage', '#heatmap canvas'].map(one => {
            const {x, y, width, height} = document.querySelector(one).getBoundingClientRect();
            return [one, x, y, width, one === '#time-words' ? 0 : height]; }))"""
        before = json.loads(fleet.page.evaluate(places))
        fleet.page.evaluate("""globalThis.shifts = []; new PerformanceObserver(list => {
            for (const {sources} of list.getEntries()) shifts.push(...sources.map(
                ({node, previousRect: was, currentRect: is}) =>
                    `${node?.id || node?.className}: ${was.x},${was.y} to ${is.x},${is.y}`));
            }).observe({type: 'layout-shift'})""")
        # The past takes its time to come: nothing moves then, either.
        fleet.page.route("**/block?*", slowly)
        fleet.page.evaluate("document.querySelector('#time-slider').focus({preventScroll: true})")
        fleet.page.keyboard.press("ArrowLeft")
        assert soon(lambda one=fleet: at(one) is not None)  # type: ignore[misc]
        assert soon(lambda one=fleet: "reported" in one.text("#time-words"))  # type: ignore[misc]
        assert json.loads(fleet.page.evaluate(places)) == before
        assert overflow(fleet) <= 0
        assert violations(fleet) == []
        fleet.page.keyboard.press("End")
        assert came(fleet, None)
        assert fleet.page.evaluate("shifts") == []


def test_a_legend_that_is_wider_than_a_phone_is_reached_by_keyboard(
    open_fleet: Callable[..., Fleet]
) -> None:
    fleet = open_fleet(width=390, height=844)
    fleet.page.add_style_tag(content=".legend-state { padding-left: 300px; }")
    legend = "document.querySelector('#legend-states')"
    assert soon(lambda: fleet.page.evaluate(f"{legend}.scrollWidth > {legend}.clientWidth"))
    assert violations(fleet) == []


def test_ten_thousand_gpus_are_scrubbed_without_long_tasks(fleet: Fleet) -> None:
    """A block of the hub's size, decoded and painted moment by moment, by the page's own code. The
    best of five: the others say how busy the machine is."""
    fleet.page.wait_for_selector(SLIDER)
    worst: dict[str, float] = fleet.page.evaluate("""async () => {
        const {Blocks} = await import('/assets/fleet/past_blocks.mjs');
        const {FleetState} = await import('/assets/live/fleet_state.mjs');
        const [n, count, step] = [10_000, 20, 5];
        const start = Math.floor(Date.now() / 300_000 - 4) * 300;
        const raw = Uint8Array.from({length: n * count}, (_, at) => (at * 7) % 240);
        let text = ''; for (let at = 0; at < raw.length; at += 9_999)
            text += btoa(String.fromCharCode.apply(null, raw.subarray(at, at + 9_999)));
        const answer = JSON.stringify({metric: 'util_pct', unit: '%', epoch: 1, start, step, count,
            n, grain_s: 1, seen: Array(count).fill(n), gone: Array(count).fill(0),
            cells: text, exact: null});
        const own = globalThis.fetch;
        globalThis.fetch = async () => new Response(answer);
        const wish = at => ({metric: 'util_pct', at, step, isSeldom: false, size: n});
        let wrong = 0;
        const scrub = async () => {
            const [blocks, picture, took] = [new Blocks(), new FleetState(), []];
            const began = performance.now();
            await blocks.fetch(wish(start));
            took.push(performance.now() - began);
            for (let k = 0; k < count; k++) {
                const began = performance.now();
                const moment = blocks.ready(wish(start + k * step));
                picture.takeThen(moment);
                took.push(performance.now() - began);
                wrong += moment.cells[17] !== raw[k * n + 17] || moment.cells.length !== n;
            }
            const moments = took.slice(1).sort((a, b) => a - b);
            return [took[0], moments[count / 2], moments.at(-1)];
        };
        const rounds = [];
        try {
            for (let round = 0; round < 5; round++) rounds.push(await scrub());
        } finally { globalThis.fetch = own; }
        const [decode_ms, moment_ms, longest_ms] = [0, 1, 2].map(
            at => Math.min(...rounds.map(took => took[at])));
        return {decode_ms, moment_ms, longest_ms, wrong};
    }""")
    assert worst["wrong"] == 0
    assert worst["decode_ms"] <= 50, worst
    assert worst["moment_ms"] <= 10, worst
    assert worst["longest_ms"] <= 50, worst  # longer ones are what browsers call long tasks

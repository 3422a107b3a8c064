"""The Pool page in a real browser, before a real agent that gives out four GPUs."""

import getpass
import json
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Locator, Page

from gpudeck.contract.pool_link import NodeClaim, OfferedGpu, PoolReport, ReportedLease
from gpudeck.pool.core.claims import Claim
from tests.demos import soon
from tests.integration.hubs import HubProcess, one_task, wait_for
from tests.integration.pools import PoolBed
from tests.integration.visitors import add_person, signed_in

from .full_agents import Node
from .pool_page import field, is_refused, is_shut, reloads_at_once, request_times_ms, text
from .test_look import axe_source
from .watch import WATCH, WatchedPage

pytestmark = pytest.mark.browser
ME = getpass.getuser()


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data", 0, "--pool", "on") as hub:
        add_person(hub, "root", "admin", unix_names=(ME,))
        yield hub


@pytest.fixture(name="bed", scope="module")
def _bed(hub: HubProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolBed]:
    bed = PoolBed(hub, tmp_path_factory.mktemp("bed"))
    with bed.agent():
        wait_for(lambda: hub.get("/api/v1/pool")["nodes"])
        yield bed
    bed.close()


@pytest.fixture
def nothing_held(hub: HubProcess, bed: PoolBed) -> Iterator[None]:
    yield
    for claim in hub.get("/api/v1/claims")["items"]:
        hub.ask(f"/api/v1/claims/{claim['id']}", "DELETE")
    for lease in hub.get("/api/v1/leases")["items"]:
        hub.ask(f"/api/v1/leases/{lease['id']}/give-back", "POST", body=b"{}",
                Content_Type="application/json")
    wait_for(lambda: bed.free() == 4)


@contextmanager
def visit(browser: Browser, hub: HubProcess, name: str) -> Iterator[Page]:
    """Open the pool page, without console checks: the browser logs what the hub refuses."""
    trouble: list[str] = []
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_cookies([{"name": key, "value": value, "domain": "127.0.0.1", "path": "/"}
                         for key, value in signed_in(hub, name).cookies.items()])
    page = context.new_page()
    page.on("pageerror", lambda error: trouble.append(f"{error}"))
    page.goto(f"{hub.url}/pool")
    yield page
    assert soon(lambda: page.evaluate("gpudeck.stats.link === 'live'"))
    context.close()
    assert trouble == []


def ask_for(hub: HubProcess, gpus: int, **more: Any) -> str:
    answer = hub.ask("/api/v1/claims", "POST", Content_Type="application/json",
                     body=json.dumps({"gpus": gpus, "owner": ME} | more).encode())
    assert answer.status == 201, answer.body
    return str(answer.json["id"])


def hold_all(hub: HubProcess) -> None:
    ask_for(hub, 4)
    wait_for(lambda: hub.get("/api/v1/leases")["items"])


def test_a_pool_that_is_off_and_one_without_nodes_say_how_to_begin(
        hub: HubProcess, open_page: Callable[..., Page], browser: Browser, tmp_path: Path) -> None:
    page = open_page("/pool")
    assert soon(lambda: "No node is in the pool yet" in text(page, "#pool-off"))
    assert "--pool-socket" in text(page, "#pool-off")
    assert page.locator("#pool-there").is_hidden()
    assert page.locator("#pool-ask").is_hidden()
    with HubProcess(tmp_path / "off") as off:
        add_person(off, "root", "admin")
        with visit(browser, off, "root") as page:
            assert soon(lambda: "The pool is off" in text(page, "#pool-off"))
            assert "gpudeck hub --pool on" in text(page, "#pool-off")
            assert page.locator("#pool-ask").is_hidden()


def test_gpus_are_asked_for_extended_and_given_back_by_key(
        hub: HubProcess, bed: PoolBed, nothing_held: None, browser: Browser) -> None:
    with visit(browser, hub, "root") as page:
        _hold_and_give_back(hub, bed, page)
        _compare_strategies(hub, page)


def _compare_strategies(hub: HubProcess, page: Page) -> None:
    """The page says what REST says, of the leases that have ended."""
    page.get_by_text("What would another strategy have done?").click()
    page.locator(".pool-compare select").select_option("spread")
    page.get_by_role("button", name="Compare").click()
    rows = page.locator("table[aria-label='Strategies compared'] tbody tr")
    rows.first.wait_for()
    answer = hub.ask("/api/v1/pool/simulations", "POST", Content_Type="application/json",
                     body=json.dumps({"strategies": ["pack", "spread"], "days": 7}).encode())
    assert answer.status == 200, answer.body
    assert [row.split()[0] for row in rows.all_inner_texts()] == ["pack", "spread"]
    assert f"{answer.json['claims']} lease" in text(page, ".pool-would")
    for row, strategy in zip(rows.all_inner_texts(), answer.json["items"], strict=True):
        assert f"{strategy['used_pct']:.1f} %" in row
        assert row.split()[-1] == str(strategy["never"])


def _hold_and_give_back(hub: HubProcess, bed: PoolBed, page: Page) -> None:
    assert soon(lambda: "4 of 4 GPUs free · no one waiting" in text(page, "#pool-words"))
    assert text(page, ".pool-figure") == "4 of 4 free"
    assert "No leases." in text(page, "#pool-held")
    page.keyboard.press("n")
    field(page, "gpus").fill("9")
    assert field(page, "owner").input_value() == ME
    assert is_refused(page, "No node here has 9 GPUs that match")
    field(page, "gpus").fill("2")
    field(page, "term_s").fill("a while")
    assert is_refused(page, "Duration: 'a while' is not a span")
    assert hub.get("/api/v1/claims")["items"] == []
    field(page, "term_s").fill("3h")
    before = request_times_ms(page)
    page.keyboard.press("Enter")
    assert soon(lambda: f"{ME} without a command" in text(page, "#pool-held tbody"))
    assert reloads_at_once(page, before)
    assert is_shut(page)
    assert text(page, ".pool-figure") == "2 of 4 free"
    [lease] = hub.get("/api/v1/leases")["items"]
    held_text = text(page, "#pool-held tbody")
    assert "in 3 h" in held_text
    assert page.locator(".calendar-bar.lease.mine").count() >= 1
    page.get_by_role("button", name="Extend").press("Enter")
    field(page, "by_s").fill("5h")
    page.keyboard.press("Enter")
    assert soon(lambda: "in 8 h" in text(page, "#pool-held tbody")), text(page, "#pool-held")
    assert is_shut(page)
    assert hub.get("/api/v1/leases")["items"][0]["until"] == lease["until"] + 18_000
    page.get_by_role("button", name="Give back").press("Enter")
    assert soon(lambda: "Give back GPU" in text(page, "dialog h2"))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert soon(lambda: "No leases." in text(page, "#pool-held"))
    wait_for(lambda: bed.free() == 4)


def test_the_queue_says_why_and_one_leaves_it(
        hub: HubProcess, bed: PoolBed, nothing_held: None, open_page: Callable[..., Page]) -> None:
    hold_all(hub)
    page = open_page("/pool")
    assert soon(lambda: "0 of 4 GPUs free" in text(page, "#pool-words"))
    assert "The queue is empty." in text(page, "#pool-waiting")
    before = request_times_ms(page)
    claim = ask_for(hub, 2)
    assert soon(lambda: "1 claim waits for 2 GPUs" in text(page, "#pool-words"))
    assert reloads_at_once(page, before)
    waits = text(page, "#pool-waiting tbody")
    assert f"1. {ME}" in waits
    assert "0 of 4 matching are free." in waits
    assert "within " in waits
    page.get_by_role("button", name=f"Withdraw the claim of {ME}: 2 GPUs").click()
    page.locator("dialog .dialog-foot .bad").click()
    assert soon(lambda: "The queue is empty." in text(page, "#pool-waiting"))
    assert claim not in {item["id"] for item in hub.get("/api/v1/claims")["items"]}


def test_a_request_is_taken_back_and_a_search_stands_in_the_address(
        hub: HubProcess, bed: PoolBed, nothing_held: None, open_page: Callable[..., Page]) -> None:
    hold_all(hub)
    page = open_page("/pool")
    assert soon(lambda: "0 of 4 GPUs free" in text(page, "#pool-words"))
    page.keyboard.press("n")
    page.keyboard.press("Enter")
    assert soon(lambda: len(hub.get("/api/v1/claims")["items"]) == 1)
    page.get_by_role("button", name="Undo").click()
    assert soon(lambda: hub.get("/api/v1/claims")["items"] == [])
    assert soon(lambda: "The queue is empty." in text(page, "#pool-waiting"))
    page.keyboard.press("/")
    page.keyboard.type("nobody")
    assert soon(lambda: "No lease matches." in text(page, "#pool-held"))
    assert page.url.endswith("/pool?find=nobody")
    assert page.locator(".calendar-row").count() == 0
    page.reload()
    assert soon(lambda: "No lease matches." in text(page, "#pool-held"))
    page.locator("#pool-find input").fill(ME)
    assert soon(lambda: ME in text(page, "#pool-held tbody"))


def test_hours_of_a_node_are_reserved_by_a_drag_and_by_key(
        hub: HubProcess, bed: PoolBed, nothing_held: None, open_page: Callable[..., Page]) -> None:
    hold_all(hub)  # else a reservation would begin at once where nothing reserves yet
    page = open_page("/pool")
    assert soon(lambda: page.locator(".calendar-bar.lease").count() >= 1)
    host = hub.get("/api/v1/pool/nodes")["items"][0]["host"]
    page.locator(".calendar-row").scroll_into_view_if_needed()
    track: Any = page.locator(".calendar-track").bounding_box()
    day, y = track["width"] / 7, track["y"] + track["height"] / 2
    hour, hours = random.randint(1, 8), random.randint(2, 12)
    page.mouse.move(track["x"] + (3 + (hour + 0.5) / 24) * day, y)
    page.mouse.down()
    page.mouse.move(track["x"] + (3 + (hour + hours - 0.5) / 24) * day, y, steps=5)
    page.keyboard.press("Escape")
    page.mouse.up()
    assert page.locator("dialog[open]").count() == 0, "put aside"
    page.mouse.move(track["x"] + (3 + (hour + 0.5) / 24) * day, y)
    page.mouse.down()
    page.mouse.move(track["x"] + (3 + (hour + hours - 0.5) / 24) * day, y, steps=5)
    page.mouse.up()
    assert field(page, "host").input_value() == host
    assert field(page, "when").input_value() == "at"
    assert field(page, "at").input_value().endswith(f" {hour:02}:00")
    assert field(page, "term_s").input_value() == f"{hours}h"
    page.locator("dialog").get_by_role("button", name="Reserve").click()
    assert soon(lambda: page.locator(".calendar-bar.claim").count() == 1)
    [claim] = hub.get("/api/v1/claims")["items"]
    assert (claim["hosts"], claim["term_s"]) == ([host], hours * 3_600.0)
    assert time.gmtime(claim["starts_at"]).tm_hour == hour
    assert f"{ME} 1 GPU {host}" in text(page, "#pool-reserved tbody")
    assert "1 reservation" in text(page, "#pool-words")
    bar = page.locator(".calendar-bar.claim")
    bar.focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.className").startswith("calendar-bar lease")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert soon(lambda: "Reservation" in text(page, "dialog h2"))
    page.locator("dialog").get_by_role("button", name="Withdraw").click()
    page.locator("dialog .dialog-foot .bad").click()
    assert soon(lambda: page.locator(".calendar-bar.claim").count() == 0)
    page.get_by_role("button", name=f"Reserve GPUs of {host}").focus()
    page.keyboard.press("Enter")
    assert (field(page, "host").input_value(), field(page, "when").input_value()) == (host, "at")
    page.keyboard.press("Escape")
    page.keyboard.press("]")
    assert soon(lambda: page.locator(".calendar-bar").count() == 0)
    page.keyboard.press("[")
    page.get_by_role("button", name="By GPU").click()
    assert soon(lambda: text(page, ".calendar-name ol") == "GPU 0 GPU 1 GPU 2 GPU 3")
    assert page.locator(".calendar-bar").count() >= 1


def test_a_finger_taps_the_hours_that_it_means(hub: HubProcess, bed: PoolBed,
                                               open_page: Callable[..., Page]) -> None:
    page = open_page("/pool", width=390, height=844, has_touch=True)
    track = page.locator(".calendar-track")
    assert soon(lambda: track.count() == 1)
    track.scroll_into_view_if_needed()
    box: Any = track.bounding_box()
    page.touchscreen.tap(box["x"] + 1.5 * box["width"] / 7, box["y"] + 20)
    assert soon(lambda: field(page, "at").count() == 1)
    assert field(page, "at").input_value().endswith(" 12:00")
    assert field(page, "term_s").input_value() == "8h"


@pytest.mark.parametrize(("width", "is_light", "is_phone"), [(1440, False, False),
                                                             (390, True, True)])
def test_one_asks_waits_sees_why_gets_it_extends_it_and_gives_it_back(
        hub: HubProcess, bed: PoolBed, nothing_held: None, open_page: Callable[..., Page],
        width: int, is_light: bool, is_phone: bool) -> None:
    """A new user's way, with only what the page shows; then some are kept for tomorrow."""
    hold_all(hub)
    [first] = hub.get("/api/v1/leases")["items"]
    page = open_page("/pool", width=width, height=844, has_touch=is_phone)
    assert soon(lambda: "0 of 4 GPUs free" in text(page, "#pool-words"))
    if is_light:
        page.keyboard.press("t")
    press = Locator.tap if is_phone else Locator.click
    press(page.locator("#pool-ask"))
    field(page, "gpus").fill("2")
    press(page.locator("dialog .dialog-foot .first"))
    assert soon(lambda: "0 of 4 matching are free" in text(page, "#pool-waiting tbody"))
    assert hub.ask(f"/api/v1/leases/{first['id']}/give-back", "POST",
                   Content_Type="application/json", body=b"{}").status == 204
    assert soon(lambda: "2 of 4 GPUs free · no one waiting" in text(page, "#pool-words"))
    [lease] = hub.get("/api/v1/leases")["items"]
    press(page.get_by_role("button", name="Extend"))
    field(page, "by_s").fill("2h")
    press(page.locator("dialog .dialog-foot .first"))
    wait_for(lambda: hub.get("/api/v1/leases")["items"][0]["until"] == lease["until"] + 7_200)
    press(page.get_by_role("button", name="Give back"))
    press(page.locator("dialog .dialog-foot .bad"))
    assert soon(lambda: "No leases." in text(page, "#pool-held"))
    page.locator(".calendar-track").scroll_into_view_if_needed()
    box: Any = page.locator(".calendar-track").bounding_box()
    x, y = box["x"] + 2.5 * box["width"] / 7, box["y"] + box["height"] / 2
    if is_phone:
        page.touchscreen.tap(x, y)
    else:
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + box["width"] / 14, y, steps=5)
        page.mouse.up()
    press(page.locator("dialog").get_by_role("button", name="Reserve"))
    assert soon(lambda: "1 reservation" in text(page, "#pool-words"))


def test_a_viewer_looks_and_changes_nothing(
        hub: HubProcess, bed: PoolBed, nothing_held: None, browser: Browser) -> None:
    hold_all(hub)
    name = f"viewer{secrets.token_hex(3)}"
    add_person(hub, name, "viewer")
    with visit(browser, hub, name) as page:
        assert soon(lambda: ME in text(page, "#pool-held tbody"))
        page.keyboard.press("n")
        assert page.locator("dialog[open]").count() == 0
        for what in ("#pool-ask", "#pool-held tbody button", "#pool-how",
                     ".calendar-name button"):
            assert page.locator(what).locator("visible=true").count() == 0, what
        page.locator(".calendar-track").click(position={"x": 300, "y": 20})
        assert page.locator("dialog[open]").count() == 0


def test_it_is_accessible_steady_and_no_wider_than_the_window(
        hub: HubProcess, bed: PoolBed, nothing_held: None, open_page: Callable[..., Page]) -> None:
    hold_all(hub)
    ask_for(hub, 3)
    ask_for(hub, 1, starts_at=time.time() + 86_400)
    page = open_page("/pool")
    assert soon(lambda: page.locator(".calendar-bar.claim").count() == 1)
    page.evaluate("shifts.splice(0)")
    before = len(request_times_ms(page))
    assert soon(lambda: len(request_times_ms(page)) > before + 1)
    assert sum(page.evaluate("shifts")) == 0
    page.evaluate(axe_source())
    for width in (1440, 1024, 900, 390, 320):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width
        if width in (1440, 390):
            for _ in ("dark", "light"):
                assert violations(page) == [], width
                page.keyboard.press("t")
    page.locator("#pool-ask").click()
    assert violations(page) == []


def test_my_work_has_my_jobs_leases_and_place_in_the_queue(
        hub: HubProcess, bed: PoolBed, nothing_held: None, browser: Browser) -> None:
    hold_all(hub)
    ask_for(hub, 3)
    node = Node(hub, f"n{secrets.token_hex(2)}").start()
    [gpu, _], now = node.teller.facts, time.time()
    lease = ReportedLease(Claim(id=secrets.token_hex(8), owner="alice", gpus=1, submitted_at=now),
                          (gpu.uuid,), "active", now, now + 7_200, now,
                          task_ids=(one_task().began[0].id,))
    node.teller.say(PoolReport((OfferedGpu(gpu.uuid, gpu.name, 0),), (), (lease,)))
    name = f"mia{secrets.token_hex(3)}"
    add_person(hub, name, "user", unix_names=("alice", ME))
    with visit(browser, hub, name) as page:
        page.locator("#pool-held tbody tr").first.wait_for()
        page.keyboard.press("g")
        page.keyboard.press("m")
        page.wait_for_url("**/work")
        job = page.locator("#my-work-jobs tbody tr")
        assert soon(lambda: "train.py" in text(page, "#my-work-jobs tbody"))
        assert soon(lambda: "1 job on 1 GPU" in text(page, "#my-work-words"))
        assert job.locator("a").get_attribute("href").startswith("/job/")  # type: ignore[union-attr]
        assert all(owner in text(page, "#my-work-leases tbody") for owner in (ME, "alice"))
        assert f"1. {ME}" in text(page, "#my-work-claims tbody")
        assert "GPU-hours in 7 days" in text(page, "#my-work-figures")
        page.evaluate(axe_source())
        for width in (1440, 390, 320):
            page.set_viewport_size({"width": width, "height": 844})
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width
            for _ in ("dark", "light"):
                assert violations(page) == [], width
                page.keyboard.press("t")
        job.get_by_role("button", name="Pause").click()
        assert soon(lambda: "Pause a task" in text(page, "dialog h2"))
        page.keyboard.press("Escape")
        page.locator("#my-work-claims").get_by_role("button", name="Withdraw").click()
        page.locator("dialog .dialog-foot .bad").click()
        assert soon(lambda: "You are not waiting for GPUs." in text(page, "#my-work-claims"))
        job.locator("a").click()
        page.wait_for_url("**/job/**")
        assert soon(lambda: "alice" in text(page, "#job-leases tbody"))
        assert page.locator("#job-acts button:visible").all_inner_texts() == [
            "Pause job", "End job"]
        page.get_by_role("button", name="Pause job").click()
        assert soon(lambda: "Pause a task" in text(page, "dialog h2"))
        page.keyboard.press("Escape")
    node.teller.say(PoolReport((), (), ()))
    node.stop()
    add_person(hub, stranger := f"new{secrets.token_hex(3)}", "user")
    with visit(browser, hub, stranger) as page:
        page.goto(f"{hub.url}/work")
        assert soon(lambda: "has no Unix name" in text(page, "#my-work-none"))
        assert f"gpudeck user set {stranger} --unix-name" in text(page, "#my-work-none")
        before = len(request_times_ms(page))  # who comes back to the tab
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        assert soon(lambda: len(request_times_ms(page)) > before)
        assert soon(lambda: page.locator("#my-work").get_attribute("aria-busy") is None)
        assert page.locator("#my-work-there").is_hidden()
        assert page.locator("#my-work-jobs tbody tr").count() == 0


def violations(page: Page) -> list[Any]:
    results: list[Any] = page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => "
        "violations.map(({id, nodes}) => [id, nodes[0].html]))")
    return results


def test_the_map_and_a_gpu_say_who_holds_it_and_who_else_is_on_it(
        hub: HubProcess, open_page: Callable[..., Page]) -> None:
    node = Node(hub, f"0{secrets.token_hex(2)}", gpus=3).start()  # first of all; alice is on GPU 0
    until = time.time() + 7_200
    facts, now = node.teller.facts, time.time()
    leases = tuple(ReportedLease(Claim(
        id=secrets.token_hex(8), owner=owner, gpus=1, submitted_at=now), (facts[at].uuid,),
        "active", now, until, now) for at, owner in ((0, "bob"), (1, "carol")))
    report = PoolReport(tuple(OfferedGpu(fact.uuid, fact.name, fact.index) for fact in facts), (),
                        leases)
    node.teller.say(report)
    page = open_page("/")
    assert soon(page.locator("#legend-leased").is_visible)
    page.locator("#view-table").click()
    table = page.locator("#table-view tbody")
    clock = time.strftime("%H:%M", time.localtime(until))
    assert soon(lambda: "leased to bob, used by alice" in table.inner_text())
    assert "no task, leased to carol until" in table.inner_text()
    assert clock in table.inner_text()
    page.locator("#view-map").click()
    page.locator("#heatmap .heatmap").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert soon(lambda: "leased to" in text(page, "#heatmap .live-spoken"))
    for at, words in ((0, "Leased to bob until"), (1, "Leased to carol until")):
        drawer = open_page(f"/?gpu={facts[at].uuid}").locator("#drawer-body")
        assert soon(lambda: words in drawer.inner_text()), drawer.inner_text()  # noqa: B023
        assert ("Used by alice without a lease." in drawer.inner_text()) == (at == 0)
    side = open_page(f"/gpu/{facts[0].uuid}").locator("#lines-side")
    assert soon(lambda: "Leased to bob until" in side.inner_text())
    node.teller.say(msgspec.structs.replace(report, leases=()))
    assert soon(lambda: page.locator("#legend-leased").is_hidden())
    node.stop()


def test_places_of_gpus_are_named_together(open_page: Callable[..., Page]) -> None:
    words = open_page("/pool").evaluate("""async () => {
        const {placesWords} = await import("/assets/pool/pool_model.mjs");
        return placesWords(["10", "2", "3", "4", "7", "8", "0/9"]);
    }""")
    assert words == "0/9, 2\N{EN DASH}4, 7, 8, 10"


def test_what_a_node_says_of_its_pool_is_only_text(hub: HubProcess, browser: Browser) -> None:
    nasty = "<img src=x onerror=calc()>'\"`${reboot()}"
    node = Node(hub, f"n{secrets.token_hex(2)}").start()
    now, [one, two] = time.time(), node.teller.facts
    claim = Claim(id=f"{nasty}{secrets.token_hex(3)}", owner=nasty, gpus=1, submitted_at=now,
                  shape=nasty, models=(nasty,))
    node.teller.say(PoolReport(
        (OfferedGpu(one.uuid, nasty, 0), OfferedGpu(two.uuid, "H100", 1, trouble=nasty)),
        (NodeClaim(replace(claim, id=f"w{claim.id}"), True),),
        (ReportedLease(claim, (one.uuid,), nasty, now, now + 3_600, now),)))
    context = browser.new_context()
    context.add_init_script(WATCH)
    context.add_cookies([{"name": key, "value": value, "domain": "127.0.0.1", "path": "/"}
                         for key, value in signed_in(hub, "root").cookies.items()])
    watch = WatchedPage(context, hub)
    for path, ready in (("/pool", ".calendar-bar"), ("/", "#legend-leased:not([hidden])"),
                        (f"/gpu/{one.uuid}", ".drawer-lease:not(:empty)")):
        watch.goto(path, ready)
        if path == "/pool":
            watch.page.locator("#pool-unavailable summary").click()
            watch.page.locator(".calendar-bar").first.click()
            assert soon(lambda: text(watch.page, "dialog").count(nasty) >= 2)
        assert watch.collect() == []
    context.close()
    node.stop()

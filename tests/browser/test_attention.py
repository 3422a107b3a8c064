"""The words over the map: someone who reads only the first screen learns what is wrong."""

import random
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route

from gpudeck.contract.wire import Task, Tasks, Use
from tests.demos import Demo, soon
from tests.integration.full_agent import Teller
from tests.integration.hubs import HubProcess
from tests.integration.visitors import add_person
from tests.unit.fleets import Row, frame

pytestmark = pytest.mark.browser
WASTED_AFTER_S = 3.0
NODES, GPUS = 8, 8
OWN = f"r{secrets.token_hex(2)}"  # of who looks
WORDS = re.compile(r"Wasted\s+(\d+) GPUs?\s+(\S+) on (\S+) GPU (\d+), idle ([\d.]+) (s|min)\b")


class BusyNode(Teller):
    """A node whose GPUs all work but `idle` ones, which somebody holds, and `paused` ones."""

    def __init__(self, name: str) -> None:
        super().__init__(name, GPUS)
        self.idle: dict[int, str] = {}
        self.paused: set[int] = set()
        self.owner = f"u{secrets.token_hex(2)}"

    def say_all(self) -> None:
        rows: list[Row] = [{
            "util_pct": load, "util_max_pct": load, "mem_used_bytes": self.random.uniform(
                30e9, 70e9)} for load in map(self._load, range(GPUS))]
        ids = [f"boot-1:{100 + at}:5" for at in range(GPUS)]
        tasks = Tasks(True, tuple(
            Task(ids[at], 100 + at, 5, 1_000.0, self.idle.get(at, self.owner), "python train.py")
            for at in range(GPUS)), tuple(
            Use(ids[at], at, 30e9, 0.0, "paused" if at in self.paused else "running")
            for at in range(GPUS)))
        self._put(frame(rows, self._next(), time.time(), tasks=tasks))
        self.beat()

    def _load(self, at: int) -> float:
        return 0.0 if at in self.idle or at in self.paused else self.random.uniform(40, 100)


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    constants = {"dashboard.fleet.wasted_gpus.WASTED_AFTER_S": WASTED_AFTER_S}
    with HubProcess(tmp_path_factory.mktemp("hub") / "data", constants=constants) as hub:
        add_person(hub, "root", "admin", unix_names=(OWN,))
        yield hub


@pytest.fixture(name="fleet", scope="module")
def _fleet(hub: HubProcess) -> Iterator[list[BusyNode]]:
    nodes = [BusyNode(f"n{at:03}") for at in range(NODES)]
    is_over = threading.Event()
    for node in nodes:
        node.connect(hub)

    def go_on() -> None:
        while not is_over.wait(1.0):
            for node in nodes:
                node.say_all()

    voice = threading.Thread(target=go_on, daemon=True)
    voice.start()
    yield nodes
    is_over.set()
    voice.join(20)
    for node in nodes:
        node.close()


def first_screen(page: Page) -> str:
    """Return all text in the window that is visible without scrolling."""
    text: str = page.evaluate("""() => [...document.querySelectorAll("main button, main p")]
        .filter(one => one.checkVisibility() && one.getBoundingClientRect().bottom <= innerHeight)
        .map(one => one.innerText).join("\\n")""")
    return text


def test_a_stranger_learns_from_the_first_screen_who_wastes_what(
        fleet: list[BusyNode], open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    assert soon(lambda: "8 of 8 nodes healthy" in first_screen(page)), first_screen(page)
    assert "Wasted\nnone" in first_screen(page)
    node, at, hog = random.choice(fleet), random.randrange(GPUS), f"h{secrets.token_hex(3)}"
    began = time.time()
    node.idle[at] = hog
    assert soon(lambda: WORDS.search(first_screen(page))), first_screen(page)
    noticed_at = time.time()
    match = WORDS.search(first_screen(page))
    assert match is not None
    count, user, where, index, long, unit = match.groups()
    assert (int(count), user, where, int(index)) == (1, hog, node.caller.said.host, at)
    assert unit == "s"
    assert WASTED_AFTER_S - 1 <= float(long) <= noticed_at - began + 2
    uuid = node.facts[at].uuid
    cell: dict[str, Any] = page.evaluate("uuid => gpudeck.cell(uuid)", uuid)
    assert cell["isWasted"]
    assert soon(page.locator("#legend-wasted").is_visible)

    page.locator("#card-wasted").click()
    row = page.locator("#attention-list li")
    assert soon(lambda: row.get_by_role("button", name="Notify").count() == 1)
    assert (hog in row.inner_text(), row.count()) == (True, 1)
    row.get_by_role("button", name=f"GPU {at}").click()
    assert soon(lambda: str(at) in page.locator("#drawer-title").inner_text())
    page.locator("#card-wasted").click()
    page.keyboard.press("Escape")
    assert page.locator("#attention-panel").is_hidden()
    assert page.locator("#drawer").is_visible(), "one layer at a time"

    page.locator("#chip-wasted").click()
    assert soon(lambda: "1 of 64 match" in page.locator("#filter-words").inner_text())
    del node.idle[at]
    assert soon(lambda: "Wasted\nnone" in first_screen(page))


def test_nothing_is_said_of_alerts_before_the_hub_has_said_it(
        hub: HubProcess, fleet: list[BusyNode], open_page: Callable[..., Page]) -> None:
    page, routes = open_page("/tasks"), list[Route]()
    page.route("**/api/v1/alerts*", lambda route: routes.append(route))
    page.goto(hub.url)
    card = page.locator("#card-attention")
    assert soon(lambda: "of 64" in page.locator("#card-free").inner_text() and routes)
    assert "none" not in card.inner_text()
    for route in routes:
        route.continue_()
    assert soon(lambda: "none" in card.inner_text())


LONG = re.compile(
    r"Wasted\s+(\d+) GPUs?\s+(\S+) on (\S+) GPU ([\d, \u2013]+), idle ([\d.]+) (min|h)\b")
SECONDS_IN = {"min": 60, "h": 3_600}


def is_said(page: Page, demo: Demo, nodes: int) -> bool:
    """Check the first screen's words about wasted GPUs against what the hub answers."""
    match = LONG.search(first_screen(page))
    if match is None:
        return False
    count, user, where, indices, long, unit = match.groups()
    wasted = wasted_gpus(demo)
    listed = [gpu for gpu in wasted if gpu["host"] == where and owners(demo, gpu) == {user}]
    worst = max(listed, key=lambda gpu: gpu["wasted_s"] * gpu["values"]["mem_used_bytes"],
                default=None)
    return (worst is not None and places(indices) == {int(gpu["place"]) for gpu in listed}
            and abs(float(long) * SECONDS_IN[unit] - worst["wasted_s"]) <= 1.5 * SECONDS_IN[unit]
            and abs(int(count) - len(wasted)) <= nodes // 20
            and all(page.evaluate("uuid => gpudeck.cell(uuid).isWasted", gpu["uuid"])
                    for gpu in listed))


def places(words: str) -> set[int]:
    """Return the GPUs that the page lists one by one or as ranges."""
    return {at for first, last in re.findall(r"(\d+)(?:\u2013(\d+))?", words)
            for at in range(int(first), int(last or first) + 1)}


def wasted_gpus(demo: Demo) -> list[Any]:
    return [gpu for gpu in demo.ask("gpus?limit=1000") if "wasted_s" in gpu]


def owners(demo: Demo, gpu: Any) -> set[str]:
    return {task["user"] for task in demo.ask(f"tasks?filter=gpu:{gpu['uuid']}")}


@pytest.mark.parametrize("nodes", [8, 125])
def test_a_stranger_learns_it_of_64_and_of_1000_gpus(tmp_path: Path, browser: Browser, nodes: int
                                                     ) -> None:
    """The first screen is right about a demo's own fleet, whose past is made up."""
    with Demo(tmp_path / "demo", "--nodes", str(nodes), "--faults", "off", "--history-hours", "2"
              ) as demo:
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        page.goto(demo.info()["sign_in_url"])
        page.goto(f"{demo.url}/")
        assert soon(lambda: LONG.search(first_screen(page)), 240), first_screen(page)
        assert f"of {8 * nodes:,}" in first_screen(page)
        # A notebook may be truly idle beside the hog: what is wasted is what the hub says now.
        assert soon(lambda: is_said(page, demo, nodes)), (first_screen(page), wasted_gpus(demo))
        context.close()


def test_paused_is_not_idle_and_has_its_own_mark(
        fleet: list[BusyNode], open_page: Callable[..., Page]) -> None:
    node, at = random.choice(fleet), random.randrange(GPUS)
    node.paused.add(at)
    node.owner = OWN
    page = open_page("/")
    cell = "uuid => gpudeck.cell(uuid)"
    uuid = node.facts[at].uuid
    assert soon(lambda: (page.evaluate(cell, uuid) or {}).get("isPaused"))
    assert soon(page.locator("#legend-paused").is_visible)
    assert not page.evaluate(cell, uuid)["isWasted"]
    line = page.locator("#own-paused")
    assert soon(lambda: line.is_visible())
    assert line.inner_text() == f"Your task on {node.caller.said.host} was paused"
    assert line.get_attribute("href") == f"/tasks?task=boot-1%3A{100 + at}%3A5"


def test_a_phone_has_the_map_above_the_fold(fleet: list[BusyNode], open_page: Callable[..., Page]
                                            ) -> None:
    page = open_page("/", width=390)
    assert soon(lambda: page.evaluate("gpudeck.stats.arrange_ms"))
    box: Any = page.locator("#heatmap canvas").bounding_box()
    assert box["y"] < 260
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0

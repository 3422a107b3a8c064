"""Notebook 7 on a machine without a GPU: says so; a simulation works whole, and a hub's fleet."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.acting import busy_seed, jobs
from tests.demos import Demo, soon
from tests.fakes.children import state_of
from tests.notebook.servers import CELL, Book, Jupyter, wait_for_preview

WATCH = "from gpudeck.notebook import watch\n"
CELLS = (f"{WATCH}watch()", f"{WATCH}watch(simulate='h100x2')", f"{WATCH}watch(simulate='h100x2')")
FLEET = """import json, os
from gpudeck.notebook import watch
hub = json.load(open(os.environ['HUB_FILE']))
watch(hub=hub['url'], token=hub['token'])
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Book]:
    root = tmp_path_factory.mktemp("notebook7")
    jupyter = Jupyter("notebook", root, {"GPUDECK_DATA": str(root / "data"),
                                         "HUB_FILE": str(root / "hub.json")})
    try:
        yield jupyter.open(browser, CELLS)
    finally:
        jupyter.close()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so(book: Book) -> None:
    book.run(0)
    note = book.page.locator(".gpudeck .g-note").first
    note.wait_for(state="visible")
    assert soon(lambda: "No GPU here" in note.inner_text()), note.inner_text()
    assert 'watch(simulate="h100x2")' in note.inner_text()


def test_a_simulation_works_whole(book: Book) -> None:
    """Two widgets share one source, and an action in one shows in the other."""
    book.run(1)
    book.run(2)
    page = book.page
    cards = page.locator(".gpudeck .g-card")
    assert soon(lambda: cards.count() >= 4), page.locator(CELL).all_inner_texts()
    first, second = (page.locator(CELL).nth(at).locator(".gpudeck") for at in (1, 2))
    assert first.locator(".g-card").count() == 2
    pid = int(first.locator(".g-task b").first.inner_text())
    task = first.locator(f".g-task:has(b:text-is('{pid}'))")
    task.locator("[data-action=pause]").click()
    wait_for_preview(task)
    task.locator(".g-dialog input").fill("a rehearsal")
    task.locator("[data-go]").click()
    task.locator("[data-outcome=done]").wait_for()
    assert soon(lambda: state_of(pid) == "T")
    mirrored = second.locator(f".g-task:has(b:text-is('{pid}'))")
    assert soon(lambda: "paused" in mirrored.inner_text())
    for theme in ("dark", "light"):
        page.evaluate("dark => document.body.dataset.jpThemeLight = String(!dark)", theme == "dark")
        page.wait_for_selector(f".gpudeck[data-theme={theme}]")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("""() => [...document.querySelectorAll('.gpudeck')]
        .every((each) => each.scrollWidth <= each.clientWidth + 1)""")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("fleet") / "data", "--nodes", "3", "--gpus", "8",
              "--faults", "off", "--seed", str(busy_seed(3, 8, 4))) as demo:
        yield demo


def token_of(demo: Demo, unix_name: str) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "gpudeck.cli.main", "token", "create", "api", "a notebook", "--role",
         "user", "--unix-name", unix_name, "--data", str(demo.data / "hub"), "--json"],
        capture_output=True, text=True, check=True)
    return str(json.loads(result.stdout)["token"])


def test_a_fleet_and_what_is_mine_in_it(book: Book, browser: Browser, demo: Demo) -> None:
    """Own tasks of another machine, paused from a cell; nobody else's are offered."""
    job = jobs(demo)[0]
    mine, together = job[0], {task["pid"] for task in job}
    states = {task["pid"]: state_of(task["pid"]) for task in demo.info()["tasks"]
              if task["pid"] not in together}
    (book.path.parent / "hub.json").write_text(json.dumps(
        {"url": demo.url, "token": token_of(demo, mine["user"])}))
    own = book.jupyter.open(browser, [FLEET], "fleet")
    own.run(0)
    fleet = own.page.locator(".gpudeck")
    fleet.get_by_text("3 nodes, 24 GPUs").wait_for()
    offered = fleet.locator(".g-task b").all_inner_texts()
    assert len(offered) == sum(task["user"] == mine["user"] for task in demo.ask(
        "tasks?limit=1000"))
    row = fleet.locator(f".g-task:has(b:text-is('{mine['host']} {mine['pid']}'))")
    row.locator("[data-action=pause]").click()
    row.locator(".g-dialog input").fill("from a cell")
    row.locator("[data-go]").click()
    row.locator("[data-outcome=done]").wait_for()
    assert {state_of(pid) for pid in together} == {"T"}
    assert not [pid for pid, was in states.items() if was != "T" and state_of(pid) == "T"]
    recorded = demo.ask("commands?limit=5")[0]
    assert recorded["state"] == "done"
    row.get_by_role("button", name="Close").click()
    row.locator("[data-action=end]").click()
    row.locator(".g-dialog input").fill("it was a rehearsal")
    row.locator("[data-go]").click()
    row.locator("[data-outcome=done]").wait_for()
    where = row.locator(".g-line .g-sub")
    assert soon(lambda: where.inner_text().endswith("no longer there")), where.inner_text()

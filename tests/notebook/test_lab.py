"""The widget in a real JupyterLab, over the C fake: it draws what is set, a busy cell starves
nothing, a paused child stops, and nothing outlives its kernel."""

import os
import random
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.demos import alive, descendants, soon
from tests.fakes.children import Children, a_ceiling, state_of
from tests.fakes.nvml import FakeNvml
from tests.machine import required
from tests.notebook.servers import Book, Jupyter, wait_for_preview

GIB = 2**30
DICE = random.Random(random.random())
GAP_S = 2.0
BUSY_S = {"short": 9, "long": 60}

START = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal\\nwhile True: signal.pause()"])
print("pids", os.getpid(), child.pid, "over")
"""
WATCH = "from gpudeck.notebook import watch\nwatch()"
BUSY = """import time
until = time.time() + {seconds}
while time.time() < until: pass
print("done")
"""
# When each picture came, by the browser's clock.
LISTEN = """() => { window.came = [performance.now()];
new MutationObserver(() => window.came.push(performance.now()))
  .observe(document.querySelector('.gpudeck'), {attributeFilter: ['data-at']}); }"""


class Lab:
    def __init__(self, root: Path) -> None:
        self.nvml = FakeNvml(root, gpus=0)
        self.gpu = self.nvml.gpu(util=DICE.randrange(1, 100), mem_total=80 * GIB,
                                 mem_used=70 * GIB, power_mw=DICE.randrange(200, 600) * 1_000)
        books = root / "books"
        books.mkdir()
        fake = {name: self.nvml.env()[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML")}
        self.jupyter = Jupyter("lab", books, {
            **fake, "GPUDECK_DATA": str(root / "data"), "GPUDECK_CEILING": str(a_ceiling(root))})

    def begin(self, browser: Browser, children: Children) -> None:
        self.stranger = children.start()
        self.gpu.process(self.stranger.pid, 30 * GIB, sm_pct=10)
        self.nvml.save()
        cells = [START, WATCH, *(BUSY.format(seconds=seconds) for seconds in BUSY_S.values())]
        self.book: Book = self.jupyter.open(browser, cells)
        self.book.run(0)
        pids = self.book.output(0, r"pids (\d+) (\d+) over")
        self.kernel, self.child = int(pids[1]), int(pids[2])
        self.gpu.process(self.kernel, 11 * GIB, sm_pct=20).process(self.child, 22 * GIB, sm_pct=30)
        self.nvml.save()
        self.book.run(1)
        self.book.page.wait_for_selector(".gpudeck .g-card")

    def text(self, selector: str) -> str:
        return self.book.page.locator(f".gpudeck {selector}".strip()).first.inner_text()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Lab]:
    required("gcc")  # of the fake library
    children = Children()
    lab = Lab(tmp_path_factory.mktemp("lab"))
    try:
        lab.begin(browser, children)
        yield lab
    finally:
        lab.jupyter.close()
        children.close()


def test_what_is_set_is_what_is_drawn(lab: Lab) -> None:
    for util in DICE.sample(range(1, 100), 2):
        lab.gpu["util"] = util
        lab.nvml.save()
        lab.book.page.wait_for_selector(f".gpudeck .g-figure:text-is('{util} %')")
    watts = lab.gpu["power_mw"] // 1_000
    assert f"{watts} W" in lab.text(".g-card")
    assert soon(lambda: "this kernel" in lab.text(".g-owners"))
    owners = lab.text(".g-owners").replace("\n", " ")
    for words in ("this kernel 33.0 GiB", "your other tasks 30.0 GiB", "not by a visible task"):
        assert words in owners
    row = lab.book.page.locator(".gpudeck .g-kernel")
    assert row.locator("button").count() == 0  # a kernel is ended from its own menu


def pause_while_busy(lab: Lab, form: str) -> None:
    page, seconds = lab.book.page, BUSY_S[form]
    at = 2 + [*BUSY_S].index(form)
    lab.book.run(at, r"[\d*]")  # it is at work for long
    page.evaluate(LISTEN)
    page.wait_for_timeout(500)
    task = page.locator(f".gpudeck .g-task:has(b:text-is('{lab.child}'))")
    task.locator("[data-action=pause]").click()
    wait_for_preview(task)
    task.locator(".g-dialog input").fill("the test says so")
    assert str(lab.child) in task.locator(".g-about").inner_text()
    task.locator("[data-go]").click()
    assert soon(lambda: state_of(lab.child) == "T")
    assert "done" not in "".join(page.locator(".jp-CodeCell").nth(at).locator(
        ".jp-OutputArea-output").all_inner_texts())  # the cell runs still: nobody waited for it
    page.wait_for_selector(".g-dialog[data-outcome=done]")
    lab.book.output(at, "done", seconds + 30)
    came = page.evaluate("window.came")
    assert len(came) > 0.7 * seconds
    assert max(later - before for before, later in pairwise(came)) < GAP_S * 1e3
    assert lab.stranger.is_alive()
    assert state_of(lab.stranger.pid) == "S"
    task.get_by_text("Close").click()
    task.locator("[data-action=resume]").click()
    wait_for_preview(task)
    task.locator(".g-dialog input").fill("enough")
    task.locator("[data-go]").click()
    assert soon(lambda: state_of(lab.child) == "S")
    page.wait_for_selector(".g-dialog[data-outcome=done]")
    task.get_by_text("Close").click()


def test_a_busy_cell_starves_nothing_and_a_child_is_paused_meanwhile(lab: Lab) -> None:
    pause_while_busy(lab, "short")


@pytest.mark.soak
def test_a_minute_of_it(lab: Lab) -> None:
    pause_while_busy(lab, "long")


def test_a_saved_notebook_keeps_a_readable_still(lab: Lab, browser: Browser) -> None:
    page = lab.book.page
    assert not page.locator(".gpudeck-still").is_visible()
    lab.book.save()
    saved = lab.book.path.read_text()
    assert "gpudeck-still" in saved
    assert "H100" in saved
    copy = lab.book.path.with_name("copy.ipynb")
    copy.write_text(saved)
    other = Book(lab.jupyter, browser.new_page(), copy).load()  # its kernel knows of no widget
    still = other.page.locator(".gpudeck-still")
    still.wait_for(state="visible")
    assert "NVIDIA H100" in still.inner_text()
    assert "this kernel" in still.inner_text()
    assert not other.page.get_by_text("Error displaying widget").is_visible()
    other.page.close()


def test_a_kernel_that_ends_leaves_nothing(lab: Lab) -> None:
    page = lab.book.page
    kernel = lab.jupyter.kernel_of(lab.book.path.name)
    children = {pid for pid in descendants(lab.kernel) if pid != lab.child}
    assert len(children) >= 2  # the agent and its reader
    lab.jupyter.restart(kernel)  # the page is not told; as after a crash
    assert soon(lambda: not alive(children)), alive(children)
    assert lab.stranger.is_alive()
    page.locator(".gpudeck [data-action=pause]").first.click()
    page.get_by_text("The kernel is not responding").wait_for()
    check_ended(lab, "If it was restarted, run the cell again")
    start_again(lab, lab.kernel)
    page.locator("[data-command='notebook:restart-kernel']").first.click()
    page.locator(".jp-Dialog button.jp-mod-accept").click()
    check_ended(lab, "has ended. Run the cell again")
    new_kernel = start_again(lab, lab.kernel)
    children = {pid for pid in descendants(new_kernel) if b"gpudeck" in _command(pid)}
    assert len(children) >= 2
    os.kill(new_kernel, signal.SIGKILL)  # it says good-bye to nobody
    assert soon(lambda: not alive(children)), alive(children)
    assert lab.stranger.is_alive()


def check_ended(lab: Lab, words: str) -> None:
    """Check that the output of an ended kernel has no button and no wrong statement."""
    lab.book.page.get_by_text(words).wait_for()
    assert lab.book.page.locator(".gpudeck button:visible").count() == 0
    assert "started again" not in lab.text("")
    assert "is busy" not in lab.book.page.locator(".gpudeck").inner_text()


def start_again(lab: Lab, before: int) -> int:
    page = lab.book.page
    page.wait_for_timeout(1_000)
    lab.book.run(0)
    assert soon(lambda: int(lab.book.output(0, r"pids (\d+) ")[1]) != before)
    lab.book.run(1)
    page.locator(".gpudeck .g-fresh", has_text="live").wait_for()
    page.wait_for_selector(".gpudeck .g-card")
    return int(lab.book.output(0, r"pids (\d+) ")[1])


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""

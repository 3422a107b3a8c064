"""Notebook 7 on a machine without a Gpu: says so, and a simulation works whole."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.demos import soon
from tests.fakes.children import state_of
from tests.notebook.servers import Book, Jupyter

CELLS = ("from gpudeck.notebook import watch\nwatch()", "watch(simulate='h100x2')",
         "watch(simulate='h100x2')")


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Book]:
    root = tmp_path_factory.mktemp("notebook7")
    jupyter = Jupyter("notebook", root, {"GPUDECK_DATA": str(root / "data")})
    try:
        yield jupyter.open(browser, CELLS)
    finally:
        jupyter.close()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a Gpu here")
def test_without_a_gpu_it_says_so(book: Book) -> None:
    book.run(0)
    note = book.page.locator(".gpudeck .g-note").first
    note.wait_for(state="visible")
    assert soon(lambda: "No Gpu here" in note.inner_text(), 20), note.inner_text()
    assert 'watch(simulate="h100x2")' in note.inner_text()


def test_a_simulation_works_whole(book: Book) -> None:
    """Two widgets share one source, and what is done in one is seen in the other."""
    book.run(1)
    book.run(2)
    page = book.page
    page.wait_for_selector(".gpudeck .g-card >> nth=3")
    one, other = page.locator(".gpudeck").nth(1), page.locator(".gpudeck").nth(2)
    assert one.locator(".g-card").count() == 2
    task = one.locator(".g-task").first
    pid = int(task.locator("b").first.inner_text())
    page.wait_for_timeout(6_000)  # too young to be told apart from a predecessor
    task.locator("[data-action=pause]").click()
    task.locator(".g-dialog input").fill("a rehearsal")
    task.locator("[data-go]").click()
    task.locator("[data-outcome=done]").wait_for()
    assert state_of(pid) == "T"
    seen = other.locator(f".g-task:has(b:text-is('{pid}'))")
    assert soon(lambda: "paused" in seen.inner_text(), 10)
    for theme in ("dark", "light"):
        page.evaluate("dark => document.body.dataset.jpThemeLight = String(!dark)", theme == "dark")
        page.wait_for_selector(f".gpudeck[data-theme={theme}]")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("""() => [...document.querySelectorAll('.gpudeck')]
        .every((each) => each.scrollWidth <= each.clientWidth + 1)""")

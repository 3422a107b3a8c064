"""Takes the README's pictures anew, of a demo of its own: `make pictures`."""

import re
import tempfile
import time
import urllib.parse
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from docs.terminal_svg import svg_of
from tests.chromium import FLAGS, required
from tests.demos import Demo, soon
from tests.notebook.servers import Jupyter
from tests.screens import DrivenTerminal

IMAGES = Path(__file__).with_name("images")
WASTED = re.compile(r"(\S+) on n001 GPU 5, idle [\d.]+ (?:min|h)\b")
MADE_WITHIN_S = 1_200.0  # the past, and the alert about the wasted GPU
NODE = "/node/n001?" + urllib.parse.urlencode({"span": 3_600})
# Name, path, width, height, theme, and what is on it once it is as it should be.
PICTURES = (("fleet-dark", "/", 1440, 900, "dark", "#card-wasted"),
            ("fleet-phone", "/", 390, 844, "light", "#card-wasted"),
            ("node-dark", NODE, 1440, 900, "dark", "#lines-idle .idle-line"))
CELL = "from gpudeck.notebook import watch\nwatch({url!r})"
COLUMNS, LINES = 120, 36


def _is_whole(demo: Demo) -> bool:
    """The past is made up, to the hour before now."""
    now = int(time.time())
    load = demo.get(f"/api/v1/load?start={now - 3_600}&end={now - 120}&step=60")
    return None not in load["util_mean_pct"]


def _is_reported(demo: Demo) -> bool:
    return demo.ask("alerts?rule=idle-held") != []


def _take(browser: Browser, state: object, demo: Demo) -> None:
    for name, path, width, height, theme, there in PICTURES:
        context = browser.new_context(
            storage_state=state, viewport={"width": width, "height": height},  # type: ignore[arg-type]
            color_scheme="dark" if theme == "dark" else "light")
        page: Page = context.new_page()
        page.goto(demo.url + path)
        page.locator(there).wait_for()
        page.wait_for_timeout(10_000)  # the bar's line, and points of the last seconds
        page.screenshot(path=IMAGES / f"{name}.png")
        context.close()


def _take_notebook(browser: Browser, demo: Demo, folder: Path) -> None:
    folder.mkdir()
    jupyter = Jupyter("lab", folder, {"GPUDECK_TOKEN": str(demo.info()["token"])})
    try:
        book = jupyter.open(browser, [CELL.format(url=demo.url)], "gpus",
                            viewport={"width": 1200, "height": 760})
        book.run(0)
        book.page.locator(".gpudeck").first.wait_for()
        book.page.wait_for_timeout(10_000)
        book.page.screenshot(path=IMAGES / "notebook.png")
    finally:
        jupyter.close()


def _take_terminal(demo: Demo, owner: str) -> None:
    """The fleet, what is wasted in it, and the help. `owner`: of what is wasted, whom the demo
    draws by lot."""
    with DrivenTerminal("--hub", demo.url, width=COLUMNS, height=LINES,
                        env={"GPUDECK_TOKEN": str(demo.info()["token"])}) as top:
        top.shows(owner, "QUEUE", "q quit")
        screens = [top.letters]
        for keys, words in (("/state:wasted\r", "state:wasted"), ("?", "redraw")):
            top.press(keys)
            top.shows(words)
            screens.append(top.letters)
    (IMAGES / "top.svg").write_text(svg_of(screens))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, Demo(
            Path(folder) / "demo", "--faults", "off", "--history-hours", "2") as demo:
        browser = playwright.chromium.launch(executable_path=required(), args=FLAGS)
        first = browser.new_context(viewport={"width": 1440, "height": 900})
        page = first.new_page()
        page.goto(demo.info()["sign_in_url"])
        page.goto(f"{demo.url}/")
        card = page.locator("#card-wasted")
        assert soon(lambda: _is_whole(demo) and _is_reported(demo)
                    and WASTED.search(card.inner_text()), MADE_WITHIN_S)
        wasted = WASTED.search(card.inner_text())
        assert wasted is not None
        _take(browser, first.storage_state(), demo)
        first.close()
        _take_notebook(browser, demo, Path(folder) / "books")
        browser.close()
        _take_terminal(demo, wasted[1])


if __name__ == "__main__":
    main()

"""The real demo in a child process, and Debian's chromium in front of it."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.demos import Demo, soon

from .full_agents import GIVEN_UP, _hub, _node, _open_page  # noqa: F401  # fixtures of whole files

NODES, GPUS = 8, 8


@pytest.fixture(scope="package")  # it would take from all that come after
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("demo"), "--nodes", str(NODES), "--gpus", str(GPUS),
              "--faults", "off", "--seed", str(random.randrange(10**6))) as running:
        yield running


@pytest.fixture(scope="package")
def signed_in(demo: Demo, browser: Browser) -> Any:
    """The cookies of a person who opened the link, for every page that follows."""
    context = browser.new_context()
    context.new_page().goto(demo.info()["sign_in_url"])
    state = context.storage_state()
    context.close()
    return state


class Fleet:
    """A Fleet page as a person and as a test see it. `trouble` is all that must not happen."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context = context
        self.url = url
        self.trouble: list[str] = []
        self.page = context.new_page()
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.trouble.append(f"{error}"))

    def _on_console(self, message: Any) -> None:
        # A CSP violation is told here too. Who leaves early leaves a socket half open.
        if message.type in ("error", "warning") and GIVEN_UP not in message.text:
            self.trouble.append(message.text)

    def open(self, query: str = "") -> "Fleet":
        self.page.goto(f"{self.url}/{query}")
        self.wait_live()
        return self

    def wait_live(self) -> None:
        assert soon(lambda: self.stats().get("link") == "live" and self.stats()["arrange_ms"]
                    ), f"not live: {self.stats()} {self.trouble}"

    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = self.page.evaluate("globalThis.gpudeck?.stats ?? {}")
        return stats

    def cells(self, uuids: "list[str]") -> dict[str, dict[str, Any]]:
        cells: dict[str, dict[str, Any]] = self.page.evaluate(
            "uuids => Object.fromEntries(uuids.map(uuid => [uuid, gpudeck.cell(uuid)]))", uuids)
        return cells

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()


@pytest.fixture
def open_fleet(demo: Demo, browser: Browser, signed_in: Any) -> Iterator[Callable[..., Fleet]]:
    opened: list[Fleet] = []

    def make(query: str = "", width: int = 1440, height: int = 900, theme: str = "dark") -> Fleet:
        context = browser.new_context(
            storage_state=signed_in, viewport={"width": width, "height": height},
            color_scheme="light" if theme == "light" else "dark")
        opened.append(Fleet(context, demo.url))
        return opened[-1].open(query)

    yield make
    demo.control({})
    trouble = [line for fleet in opened for line in fleet.trouble]
    for fleet in opened:
        fleet.context.close()
    assert trouble == []


@pytest.fixture
def fleet(open_fleet: Callable[..., Fleet]) -> Fleet:
    return open_fleet()


@pytest.fixture(scope="module")
def steady_fleet(demo: Demo, browser: Browser, signed_in: Any) -> Iterator[Fleet]:
    """A page that stays open beside the others, for what must hold over half a minute."""
    context = browser.new_context(storage_state=signed_in,
                                  viewport={"width": 1440, "height": 900})
    context.add_init_script("""
        globalThis.shifts = []; globalThis.since = performance.now();
        new PerformanceObserver(list => list.getEntries().forEach(entry => shifts.push(
            [entry.value, ...entry.sources.map(({node}) => node?.outerHTML?.slice(0, 80))])))
            .observe({type: "layout-shift", buffered: true});""")
    yield Fleet(context, demo.url).open()
    context.close()

"""A hub, agents by hand that tell all that the contract knows, and pages that must stay clean."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec import structs
from playwright.sync_api import Browser, Page
from socketio.exceptions import BadNamespaceError

from gpudeck.measures.metrics import Absence
from tests.integration.full_agent import Teller
from tests.integration.hubs import HubProcess, one_task
from tests.integration.visitors import add_person, signed_in
from tests.unit.fleets import Row

EVERY_S = 0.5
# A machine so busy that the hub answered no hello in time: the page says so and tries again.
GIVEN_UP = "WebSocket is closed before the connection is established"


class Node:
    """A Teller that goes on by itself."""

    def __init__(self, hub: HubProcess, name: str, gpus: int = 2) -> None:
        self.teller = Teller(name, gpus)
        self.teller.caller.said = structs.replace(
            self.teller.caller.said, driver_version="550.54.15", cuda_version="12.4")
        self.beats: dict[str, Any] = {}
        self.every_s = EVERY_S
        self.is_silent = False  # it beats, and reads nothing
        self._hub = hub
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def start(self) -> "Node":
        self.teller.connect(self._hub)
        self._thread.start()
        return self

    def _go_on(self) -> None:
        while not self._is_over.is_set():
            # A hub that goes first is not told; who waits for what it was to hear finds out.
            with self._lock, suppress(BadNamespaceError):
                if not self.is_silent:
                    self.teller.tell(one_task())
                self.teller.beat(**self.beats)
            self._is_over.wait(self.every_s)

    def happen(self, *what: Any, **more: Any) -> None:
        with self._lock:
            self.teller.happen(*what, **more)

    def slow(self, gpu: int, **values: float | Absence) -> None:
        with self._lock:
            self.teller.slow[gpu].update(values)

    def readings(self, gpu: int) -> list[tuple[float, Row]]:
        """Return when and what was sent of this GPU, without absent values."""
        with self._lock:
            return [(at, rows[gpu]) for at, rows in self.teller.sent_rows]

    def uuid(self, gpu: int) -> str:
        return self.teller.facts[gpu].uuid

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(20)
        self.teller.close()


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data", 0, "--kubernetes-nodes",
                    "host-kube") as hub:
        add_person(hub, "root", "admin")
        yield hub


@pytest.fixture(name="node", scope="module")
def _node(hub: HubProcess) -> Iterator[Node]:
    node = Node(hub, f"n{random.randrange(1000)}").start()
    yield node
    node.stop()


def is_live(page: Page) -> bool:
    """Check that the socket is up: leaving the page earlier makes the browser complain."""
    return bool(page.evaluate("globalThis.gpudeck?.stats.link === 'live'"))


@pytest.fixture(name="open_page")
def _open_page(hub: HubProcess, browser: Browser) -> Iterator[Callable[..., Page]]:
    trouble: list[str] = []
    opened = []
    cookies = [{"name": name, "value": value, "domain": "127.0.0.1", "path": "/"}
               for name, value in signed_in(hub, "root").cookies.items()]

    def open_page(path: str, theme: Any = "dark", width: int = 1440, height: int = 900,
                  has_touch: bool = False, zone: str | None = None) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height},
                                      color_scheme=theme, has_touch=has_touch, timezone_id=zone)
        opened.append(context)
        context.add_cookies(cookies)  # type: ignore[arg-type]
        context.add_init_script("""globalThis.shifts = [];
            new PerformanceObserver(list => list.getEntries().forEach(
                entry => shifts.push(entry.value))).observe({type: "layout-shift"});""")
        page = context.new_page()
        page.on("pageerror", lambda error: trouble.append(f"{error}"))
        page.on("console", lambda message: trouble.append(message.text)
                if message.type in ("error", "warning") and GIVEN_UP not in message.text else None)
        page.goto(hub.url + path)
        return page

    yield open_page
    for context in opened:
        context.close()
    assert trouble == [], trouble

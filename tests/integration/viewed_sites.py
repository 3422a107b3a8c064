"""Hubs that are viewed, and a hub that views them."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.integration.hubs import HubProcess, WireAgent, one_task
from tests.integration.visitors import add_program

HURRIED = {"dashboard.sites.link.RETRY_MOST_S": 0.5}


class Site:
    """A hub of one node that reports."""

    def __init__(self, folder: Path, name: str, gpus: int = 2, agent: str | None = None) -> None:
        self.name = name
        self.hub = HubProcess(folder / name, 0, "--cluster", name)
        self.agent = WireAgent(agent or name, gpus)
        self._lock = threading.Lock()
        self.connect()
        self.token_file = folder / f"{name}.token"
        self.token_file.write_text(add_program(self.hub))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)
        self._thread.start()

    def connect(self) -> None:
        """Connect; no report meanwhile: a hub that gets a Frame before the Hello hangs up."""
        with self._lock:
            self.agent.connect(self.hub)

    def _report(self) -> None:
        is_first = True
        while not self._over.wait(0.5):
            with self._lock, contextlib.suppress(Exception):  # its hub is killed by a test
                self.agent.tick(one_task(gpu=1) if is_first else None)
                is_first = False

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--view", f"{self.name}={self.hub.url}",
                "--view-token-file", f"{self.name}={self.token_file}")

    def close(self) -> None:
        self._over.set()
        self._thread.join(10)
        self.hub.__exit__()


@contextlib.contextmanager
def viewing(folder: Path, *sites: Site) -> Iterator[HubProcess]:
    flags = [flag for site in sites for flag in site.flags]
    with HubProcess(folder / "viewer", 0, "--cluster", "here", *flags, constants=HURRIED) as hub:
        yield hub

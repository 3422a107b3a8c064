"""Two hubs on one database, and agents that know both."""

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.integration.hubs import Answer, HubProcess, wait_for
from tests.ports import free_port


class PairedHub(HubProcess):
    """A hub started with --standby. It may be active or not: `is_active` asks it."""

    def __init__(self, folder: Path, state: str, *flags: str, port: int = 0, **more: Any) -> None:
        super().__init__(folder, port or free_port(), "--state", state, "--standby",
                         "--cluster", "pair", *flags, **more)

    def start(self) -> None:
        """Start it and wait until it answers, active or not."""
        self.url = f"http://127.0.0.1:{self.port}"
        self._begin_again()
        wait_for(self._answers, why="it answers")

    def _begin_again(self) -> None:
        from dashboard.runtime.data_folder import secret

        self.folder.mkdir(mode=0o700, exist_ok=True)
        secret(self.folder / "api.token")
        (self.folder / "hub.json").unlink(missing_ok=True)
        self.process = self._begin(("hub", "--bind", f"127.0.0.1:{self.port}", "--data",
                                    str(self.folder), *self.flags))

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return self.ready() is not None

    def ready(self) -> Answer | None:
        """Return its answer to a readiness probe; None: it does not answer."""
        try:
            return self.ask("/readyz", token=None)
        except (TimeoutError, urllib.error.URLError, ConnectionError):
            return None

    @property
    def is_active(self) -> bool:
        answer = self.ready()
        return answer is not None and answer.status == 200

"""Around what a node has caused, where the state may be away."""

import logging
import time
from collections.abc import Callable
from typing import Any

from .paced_log import LogPacer
from .state_store import StateUnavailableError

log = logging.getLogger("gpudeck.state")


class StateGuard:
    """A node says it again when it comes back; its connection must not end for that."""

    def __init__(self) -> None:
        self._said = LogPacer()

    def call(self, what: Callable[..., object], *given: Any) -> None:
        try:
            what(*given)
        except StateUnavailableError as error:
            if self._said.due(what.__name__, time.monotonic()) is not None:
                log.warning("state_away part=%s why=%r", what.__name__, str(error))

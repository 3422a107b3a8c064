"""Guard around the handling of nodes' messages, for when the state is unavailable."""

import logging
import time
from collections.abc import Callable
from typing import Any

from gpudeck.rate import RateLimiter

from .state_store import StateUnavailableError

log = logging.getLogger("gpudeck.runtime")


class StateGuard:
    """A call that fails for want of the state is logged: the node says it again when it comes back,
    and its connection must not end for that."""

    def __init__(self) -> None:
        self._pacer = RateLimiter()

    def call(self, handler: Callable[..., object], *arguments: Any) -> None:
        try:
            handler(*arguments)
        except StateUnavailableError as error:
            if self._pacer.due(handler.__name__, time.monotonic()) is not None:
                log.warning("state_away part=%s why=%r", handler.__name__, str(error))

"""What fails at each try, and not for want of disk or memory, is given up: it would keep all that
stands behind it waiting for ever."""

import logging
from collections.abc import Callable, Hashable
from typing import Literal

log = logging.getLogger("gpudeck.history")

MOST_TRIES = 3
MENDS_ITSELF = (OSError, MemoryError)  # disk and machine: tried again as long as it takes

Verdict = Literal["done", "failed", "given up"]


class GiveUpCounter:
    def __init__(self) -> None:
        self._failed: dict[Hashable, int] = {}

    def run(self, key: Hashable, do: Callable[[bool], None]) -> Verdict:
        """`do` is told whether it is the last try."""
        tried = self._failed.pop(key, 0) + 1
        try:
            do(tried >= MOST_TRIES)
        except MENDS_ITSELF:
            self._failed[key] = tried - 1
            raise
        except Exception:
            log.exception("history failed at %r try=%d", key, tried)
            if tried >= MOST_TRIES:
                return "given up"
            self._failed[key] = tried
            return "failed"
        return "done"

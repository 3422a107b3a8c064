"""Limit of attempts: what fails at each try, and not for want of disk or memory, is given up, as
it would keep all that is behind it waiting for ever."""

import logging
from collections.abc import Callable, Hashable

log = logging.getLogger("gpudeck.history")

MOST_TRIES = 3
MENDS_ITSELF = (OSError, MemoryError)  # disk and machine: tried again as long as it takes


class GiveUpCounter:
    def __init__(self) -> None:
        self.failures = 0
        self._failed: dict[Hashable, int] = {}

    def run(self, key: Hashable, do: Callable[[bool], None]) -> bool:
        """Try `do`; False: it failed for the last time, not for want of disk or memory. What waits
        behind it goes on either way. `do` receives whether this is the last try."""
        tries = self._failed.pop(key, 0) + 1
        try:
            do(tries >= MOST_TRIES)
        except MENDS_ITSELF:
            self._failed[key] = tries - 1
            raise
        except Exception:
            self.failures += 1
            log.exception("history failed at %r try=%d", key, tries)
            if tries >= MOST_TRIES:
                return False
            self._failed[key] = tries
        return True

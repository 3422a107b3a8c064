"""Commands that the hub has called back. They count from the moment they are heard, before any disk
is asked: a recall can only stop."""

import logging

from gpudeck.actions import Recall

log = logging.getLogger("gpudeck.agent.act")

MOST = 1_024


class CommandRecalls:
    def __init__(self) -> None:
        self._why: dict[str, str] = {}

    def take(self, message: Recall) -> None:
        while len(self._why) >= MOST:
            del self._why[next(iter(self._why))]
        self._why[message.command_id] = message.why
        log.info("recalled command=%s why=%r", message.command_id, message.why)

    def why(self, command_id: str) -> str | None:
        return self._why.get(command_id)

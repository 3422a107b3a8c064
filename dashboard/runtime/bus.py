"""Messages between the hubs of one site; within the process where there is only one hub."""

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("gpudeck.runtime")

Listener = Callable[[bytes], None]


class Bus(Protocol):
    """Wake-ups and fan-out, delivered at most once: a message may be lost, so what must not be lost
    is in the StateStore first. Messages of one publisher on one topic arrive in order."""

    def publish(self, topic: str, message: bytes) -> None:
        """Deliver `message` to all listeners, also those of the hub that publishes it."""

    def subscribe(self, topic: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each message until the returned function is called."""


class InProcessBus:
    def __init__(self) -> None:
        self._listeners: defaultdict[str, list[Listener]] = defaultdict(list)

    def publish(self, topic: str, message: bytes) -> None:
        for listener in tuple(self._listeners[topic]):
            try:
                listener(message)
            except Exception:
                log.exception("listener_failed topic=%s", topic)

    def subscribe(self, topic: str, listener: Listener) -> Callable[[], None]:
        listeners = self._listeners[topic]
        listeners.append(listener)
        return lambda: listeners.remove(listener)

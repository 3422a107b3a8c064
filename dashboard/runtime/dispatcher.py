"""What happened, from the capability that saw it to those above it that want to know."""

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

log = logging.getLogger("gpudeck.events")

E = TypeVar("E")


class Dispatcher:
    """Events are typed, and their classes belong to the package that dispatches them: a listener
    stands on a floor above."""

    def __init__(self) -> None:
        self._listeners: defaultdict[type, list[Callable[[Any], None]]] = defaultdict(list)
        self.failures = 0

    def listen(self, kind: type[E], listener: Callable[[E], None]) -> None:
        self._listeners[kind].append(listener)

    def dispatch(self, event: object) -> None:
        """In the order of listening. One that fails keeps nobody else from hearing of it, and is
        then raised: whoever caused the event must not take a half-heard one for done."""
        failures: list[Exception] = []
        for listener in self._listeners[type(event)]:
            try:
                listener(event)
            except Exception as error:
                failures.append(error)
                log.exception("listener_failed event=%s", type(event).__name__)
        if failures:
            self.failures += len(failures)
            raise failures[0]

"""Dispatch of events, from the capability that observes them to those above it that listen."""

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

log = logging.getLogger("gpudeck.runtime")

E = TypeVar("E")


class Dispatcher:
    """Events are typed, and their classes belong to the package that dispatches them: a listener
    is in a package above it."""

    def __init__(self) -> None:
        self._listeners: defaultdict[type, list[Callable[[Any], None]]] = defaultdict(list)
        self.failures = 0

    def listen(self, kind: type[E], listener: Callable[[E], None]) -> None:
        self._listeners[kind].append(listener)

    def dispatch(self, event: object) -> None:
        """Call the listeners in the order of listening. One that fails does not keep the others
        from hearing of the event; the first error is raised afterwards, as the cause of the event
        must not take a half-delivered one for done."""
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

"""Events in, effects out: the state machine takes each event, and each of its effects goes to those
capabilities that act on effects of its type."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

from ..runtime.state_guard import StateGuard
from .effects import HubEvent, LogMessage, NodeReport
from .state_machine import FleetStateMachine

log = logging.getLogger("gpudeck.fleet")

E = TypeVar("E")


class EffectHandlers:
    """Handlers of one type are called in the order of their capabilities. `confirm`: called before
    each event; ends the process if the hub may not act any more."""

    def __init__(self, machine: FleetStateMachine, guard: StateGuard, confirm: Callable[[], None]
                 ) -> None:
        self._machine = machine
        self._confirm = confirm
        self._handlers: defaultdict[type, list[Callable[[Any], None]]] = defaultdict(list)
        self._reports: defaultdict[type, list[Callable[[str, Any], None]]] = defaultdict(list)
        self.add(LogMessage, _log)
        self.add(NodeReport, lambda effect: guard.call(self._receive_report, effect))

    def add(self, kind: type[E], handler: Callable[[E], None]) -> None:
        self._handlers[kind].append(handler)

    def add_report(self, kind: type[E], handler: Callable[[str, E], None]) -> None:
        """Call the handler with each report of this type: the node's id, and what it reports."""
        self._reports[kind].append(handler)

    def submit(self, event: HubEvent) -> None:
        self._confirm()
        handlers = self._handlers
        for effect in self._machine.handle(event, time.time(), time.monotonic()):
            for handler in handlers[type(effect)]:
                handler(effect)

    def perform(self, effect: object) -> None:
        for handler in self._handlers[type(effect)]:
            handler(effect)

    def _receive_report(self, effect: NodeReport) -> None:
        for handler in self._reports[type(effect.message)]:
            handler(effect.node_id, effect.message)


def _log(effect: LogMessage) -> None:
    log.info("%s %s", effect.what.replace(" ", "_"), fields(effect.fields))


def fields(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={_printable(value)}" for name, value in values.items())


def _printable(value: Any) -> str:
    """Format a value so that no newline or control character reaches the log: text from nodes may
    be hostile."""
    return repr(value) if isinstance(value, str) else str(value)

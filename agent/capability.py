"""Capability of a node, as the `wiring.py` of its package builds it, and the core that all are
given."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpudeck.contract import wire

from .backends import Backend
from .journal.store import ActionJournal
from .link.identity import NodeIdentity
from .link.outbox import Outbox
from .readings import BackendEvent, Reading, ReadingSource
from .tasks.seen import GpuTask

Handler = Callable[[Any, float], None]  # a message of the type it is registered for, and `now`
Handlers = Mapping[type, Handler]


@dataclass(frozen=True, slots=True)
class NodeCore:
    """Parts of one node that every capability may use."""

    identity: NodeIdentity
    host: str
    boot_id: str
    data: Path
    backend: Backend
    options: str  # of the backend
    is_made_up: bool  # one of a simulator's many nodes, which share a process and a data folder
    source: ReadingSource
    outbox: Outbox
    journal: ActionJournal
    wake: Callable[[], None]  # ends the wait of the node's own thread


@dataclass(frozen=True, slots=True)
class NodeObservation:
    """Reading and events of one turn of the loop. `reading` None: there is none this time;
    `gpu_tasks` None: the process list was not asked."""

    reading: Reading | None
    events: tuple[BackendEvent, ...]
    gpu_tasks: tuple[GpuTask, ...] | None


def ignore(*_: object) -> None:
    """Do nothing: what a capability without that part does."""


def _no_messages(now: float) -> Iterable[wire.FromAgent]:
    return ()


def _never() -> float:
    return math.inf


def _no_trouble() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Parts that a package adds to the node. They run on the node's own thread, and none waits."""

    name: str
    handlers: Handlers = field(default_factory=dict)  # called over a live connection alone
    connected: Callable[[wire.Welcome, float], None] = ignore
    accept_hub_key: Callable[[bytes], None] = ignore  # which the hub has proved
    observe: Callable[[NodeObservation], None] = ignore
    step: Callable[[float, bool], None] = ignore  # in each turn; whether a hub is connected
    poll: Callable[[float], Iterable[wire.FromAgent]] = _no_messages  # to send; while connected
    note_outcome: Callable[[], None] = ignore  # an action has just ended
    due_at: Callable[[], float] = _never  # when `poll` has something again; while connected
    trouble: Callable[[], str] = _no_trouble  # for people, in each Beat
    close: Callable[[], None] = ignore


def handler_table(capabilities: Iterable[Capability], types: Iterable[type]) -> Handlers:
    """Return the handler of each of these types of messages. Raises ValueError where one has none,
    or several."""
    table: dict[type, Handler] = {}
    for capability in capabilities:
        for message_type, handler in capability.handlers.items():
            if message_type in table:
                raise ValueError(f"{message_type.__name__} has a second handler, in "
                                 f"{capability.name}")
            table[message_type] = handler
    missing = [message_type.__name__ for message_type in types if message_type not in table]
    if missing:
        raise ValueError(f"no handler of {', '.join(missing)}")
    return table

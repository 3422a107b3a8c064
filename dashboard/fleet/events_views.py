"""Events as pages and programs are shown them. Pure. They hold a node's own words: hostile text,
which only ever becomes text."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gpudeck.contract.wire import Event
from gpudeck.measures.events import EventKind, Severity, kind_of
from gpudeck.measures.xid import explain

from .events import FleetEvent
from .state_machine import FleetStateMachine
from .visibility import CommandLineVisibility, VisibleFleet

LIVE = 20  # a viewer that missed more asks for the list
OF_TASKS = ("task_began", "task_ended")


class EventView(msgspec.Struct):
    id: str
    at: float  # by the hub's clock
    node: str
    host: str
    gpu: str | None
    index: int | None  # of that GPU on its Node
    task: str | None
    kind: str
    label: str
    severity: Severity
    text: str
    advice: str
    numbers: Mapping[str, float]
    place: str | None = None  # "3"; of a MIG instance "3/9"


class EventList(msgspec.Struct):
    items: list[EventView]
    next: str | None


def event_view(machine: FleetStateMachine, entry: FleetEvent,
               reads: CommandLineVisibility) -> EventView:
    fleet, event, kind = machine.fleet, entry.event, _kind(entry.event)
    node = fleet.nodes.get(entry.node_id)  # of long ago, it may not be known any more
    slot = None if event.gpu_uuid is None else fleet.slot_on(entry.node_id, event.gpu_uuid)
    return EventView(
        entry.id, entry.at, entry.node_id, entry.node_id if node is None else node.hello.host,
        event.gpu_uuid,
        None if slot is None else fleet.facts[slot].index, event.task_id, event.kind, kind.label,
        entry.severity, _text(entry, reads), kind.advice, event.numbers,
        None if slot is None else fleet.facts[slot].place)


def event_of(row: Mapping[str, Any]) -> FleetEvent:
    """Return an event from history, which does not know whose the Task was."""
    words = {name: row[name] if isinstance(row[name], str) else None
             for name in ("gpu", "task", "text", "numbers")}
    numbers = msgspec.json.decode(words["numbers"] or "{}", type=dict[str, float])
    event = Event(int(row["seq"]), row["t"], row["kind"], words["gpu"], words["task"],
                  words["text"] or "", numbers)
    return FleetEvent(row["node"], row["stream"], row["t"], None, event)


def _kind(event: Event) -> EventKind:
    kind = kind_of(event.kind)
    code = event.numbers.get("xid")
    if event.kind != "xid" or code is None:
        return kind
    xid = explain(int(code))
    return EventKind(kind.key, kind.severity, f"Xid {xid.code}", xid.advice)


def _text(entry: FleetEvent, reads: CommandLineVisibility) -> str:
    """Return the text; of others' Tasks it may quote more of the command line than one may read."""
    if entry.event.kind in OF_TASKS and not reads.of_user(entry.user):
        return ""
    return entry.event.text


def live(machine: FleetStateMachine, visible: VisibleFleet) -> dict[str, Any]:
    """Return the newest, each time: a viewer that was sent them before knows them by their ids."""
    newest = machine.events.newest(visible.place_of)[:LIVE]
    return {"newest": [msgspec.to_builtins(event_view(machine, entry, visible.reads))
                       for entry in newest]}

"""REST of Events: `GET /api/v1/events`. The newest are in memory; a span is looked up in
history."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from flask import request

from gpudeck.measures.events import KINDS, SEVERITIES

from ..access.policy import Role
from ..access.requests import caller
from ..access.routes import Query, Route, see
from ..history.reads.protocol import History
from ..web.answers import Key, bad, check_names, one_of, page, read_cursor, read_limit
from ..web.moments import moment
from ..web.openapi_parts import MAX_WORD, TIME
from ..web.query_pool import QueryPool
from .events import LAST_AT, FleetEvent, is_at_least
from .events_views import EventList, event_of, event_view
from .state_machine import FleetStateMachine
from .visibility import VisibleFleet, VisibleFleetCache

NAMES = ("limit", "cursor", "node", "gpu", "kind", "severity", "start", "end")
CHUNK = 5_000
MOST_CHUNKS = 20
TIE_S = 1e-3  # cursors have microseconds, and what is found twice is known by its id

Fits = Callable[[FleetEvent], bool]
Rows = list[dict[str, Any]]


@dataclass(eq=False, slots=True)
class EventsApi:
    machine: FleetStateMachine
    visible_fleets: VisibleFleetCache
    history: History
    questions: QueryPool

    def events(self) -> EventList:
        check_names(NAMES)
        args, visible = request.args, self.visible_fleets.seen_by(caller())
        limit, cursor = read_limit(args.get("limit")), read_cursor(args.get("cursor"))
        for name in ("node", "gpu", "kind"):
            if len(args.get(name, "")) > MAX_WORD:
                raise bad(f"{name} has at most {MAX_WORD} characters")
        severity = one_of("severity", args.get("severity"), SEVERITIES)
        start, end = moment("start"), moment("end")
        if start is not None and end is not None and start >= end:
            raise bad("start must be before end")

        def fits(entry: FleetEvent) -> bool:
            event = entry.event
            conditions = ((args.get("node"), entry.node_id), (args.get("gpu"), event.gpu_uuid),
                          (args.get("kind"), event.kind))
            return (all(want is None or want == has for want, has in conditions)
                    and (severity is None or is_at_least(entry.severity, severity))
                    and (start is None or entry.at >= start) and (end is None or entry.at < end))

        entries = self.machine.events.newest(visible.place_of)
        if start is not None or end is not None:
            entries = self._with_history(entries, visible, limit, cursor, (start, end), fits)
        matches = ((entry.order, entry) for entry in entries if fits(entry))
        listed, more = page(matches, limit, cursor)
        return EventList([event_view(self.machine, entry, visible.reads) for entry in listed], more)

    def _with_history(self, live: list[FleetEvent], visible: VisibleFleet, limit: int,
                      cursor: Key | None, span: tuple[float | None, float | None], fits: Fits
                      ) -> list[FleetEvent]:
        """Add as many events from history as the page needs. One that is in memory here as well is
        taken from there: it knows whose the Task was."""
        by_id = {entry.id: entry for entry in live}
        until = LAST_AT if span[1] is None else span[1]
        if cursor is not None:
            until = min(until, LAST_AT - _number(cursor[0]) + TIE_S)
        question = self._question(visible, span[0] or 0.0)
        for _ in range(MOST_CHUNKS):
            rows = self.questions.ask(partial(question, until))
            for row in rows:
                entry = event_of(row)
                by_id.setdefault(entry.id, entry)
            if len(rows) < CHUNK or limit < sum(
                    entry.at >= rows[0]["t"] and fits(entry)
                    and (cursor is None or entry.order > cursor)
                    for entry in by_id.values()):
                break
            until = min(rows[0]["t"] + TIE_S, until - TIE_S)
        return sorted(by_id.values(), key=lambda entry: entry.order)

    def _question(self, visible: VisibleFleet, start: float) -> Callable[[float], Rows]:
        args = request.args
        nodes = visible.only
        if "node" in args:
            node = frozenset({args["node"]})
            nodes = node if nodes is None else node & nodes
        gpus = [args["gpu"]] if "gpu" in args else None
        kinds = _kinds(args.get("kind"), args.get("severity"))

        def question(until: float) -> Rows:
            rows: Rows = self.history.events(
                start, until, nodes, CHUNK, gpus, kinds).to_dict("records")
            return rows
        return question


def _kinds(kind: str | None, severity: str | None) -> list[str] | None:
    """Return the kinds among which a match can be. The code of an Xid says how bad it is; what is
    not in the table is info."""
    if kind is not None:
        return [kind]
    if severity in (None, SEVERITIES[0]):
        return None
    return [row.key for row in KINDS.values()
            if SEVERITIES.index(row.severity) >= SEVERITIES.index(severity) or row.key == "xid"]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise bad("this cursor is not from this hub; start again without it") from error


EVENTS_QUERY: Query = (
    *((name, {"type": "string", "maxLength": MAX_WORD}) for name in ("node", "gpu", "kind")),
    ("severity", {"enum": list(SEVERITIES), "description": "at least"}),
    ("start", TIME), ("end", TIME),
)
ROUTES = (
    Route("GET events", EventsApi.events, "list_events", see(Role.VIEWER),
          "The latest Events of Nodes in your scope, newest first; per Node the latest "
          "200 important and 200 other ones, 2,000 in all; with `start` or `end`, all "
          "that history has.", is_list=True, query=EVENTS_QUERY),
)

"""REST of Events: `GET /api/v1/events`."""

import re
from datetime import UTC, datetime

from flask import Flask, Response, request

from gpudeck.events import SEVERITIES

from .api import PREFIX, actor, answer, bad, check_names, one_of, page, read_cursor, read_limit
from .api import Question as Page
from .core.events import KeptEvent, is_at_least
from .core.lens import Lenses, Sight
from .events_views import RFC_3339, SECONDS, EventList, event_view
from .openapi import MAX_WORD
from .room import Room

NAMES = ("limit", "cursor", "node", "gpu", "kind", "severity", "start", "end")

EPOCH = datetime.fromtimestamp(0, UTC)


class EventsApi:
    def __init__(self, room: Room, lenses: Lenses) -> None:
        self._room = room
        self._lenses = lenses

    def events(self) -> Response:
        check_names(NAMES)
        args, lens = request.args, self._lenses.of(Sight.of(actor()))
        asked = Page(read_limit(args.get("limit")), read_cursor(args.get("cursor")), None)
        for name in ("node", "gpu", "kind"):
            if len(args.get(name, "")) > MAX_WORD:
                raise bad(f"{name} has at most {MAX_WORD} characters")
        severity = one_of("severity", args.get("severity"), SEVERITIES)
        start, end = moment("start"), moment("end")

        def fits(kept: KeptEvent) -> bool:
            event = kept.event
            wanted = ((args.get("node"), kept.node_id), (args.get("gpu"), event.gpu_uuid),
                      (args.get("kind"), event.kind))
            return (all(want is None or want == has for want, has in wanted)
                    and (severity is None or is_at_least(kept.severity, severity))
                    and (start is None or kept.at >= start) and (end is None or kept.at < end))

        found, more = page(((kept.order, kept) for kept in self._room.events.newest(lens.place_of)
                            if fits(kept)), asked)
        return answer(EventList([event_view(self._room, kept, lens.reads) for kept in found], more))


def moment(name: str) -> float | None:
    """UTC seconds, or RFC 3339."""
    text = request.args.get(name)
    if text is None:
        return None
    found = float(text) if re.fullmatch(SECONDS, text) else _rfc_3339(text)
    if found is None:
        raise bad(f"{name} is a time: UTC seconds, or such as 2026-01-31T12:00:00Z")
    return found


def _rfc_3339(text: str) -> float | None:
    if not re.fullmatch(RFC_3339, text):
        return None
    try:
        return (datetime.fromisoformat(text.upper()) - EPOCH).total_seconds()
    except (ValueError, OverflowError):
        return None


def add_events_api(server: Flask, room: Room, lenses: Lenses) -> None:
    server.add_url_rule(f"{PREFIX}/events", view_func=EventsApi(room, lenses).events,
                        methods=["GET"], provide_automatic_options=False)

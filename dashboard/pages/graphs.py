"""Figures of History, reports, rehearsals, forecasts, the audit log and quotas: the page's module
requests one, a callback queries the hub as the person who views the page, and answers with a
`dcc.Graph`."""

from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import quote

import dash
import msgspec
from dash import Input, Output, dcc, no_update
from msgspec import Meta, Struct

from gpudeck.client.hub import Client
from gpudeck.components import BrowserComponent
from gpudeck.contract.quota import Limit
from gpudeck.errors import CommandError

from .audit_table import newest_steps
from .figures import (
    FORECASTS,
    HOUR_S,
    MOST_NAMED,
    Figure,
    FigureStyle,
    HoursShown,
    Item,
    Word,
    audit_figure,
    forecast_figure,
    hours_figure,
    rehearsal_figure,
)
from .past_answers import PAST, PastRequest, past_answer
from .quota_past import past_words, quota_past_figure
from .reading import UTC, known_zone, parts_on_wire
from .rehearsal_words import rehearsal_lines, rehearsal_words
from .site_hub import SiteThreads, ViewersHub

REPORT, REHEARSAL = "reports-graph", "rehearsal-graph"
FORECAST, AUDIT, QUOTA_PAST = "forecasts-graph", "audit-graph", "quota-graph"
ENTRIES_OF_A_PAGE, MOST_PAGES = 1_000, 5
SHORTEST_S = 86_400  # shortest span of the figure if it starts at the oldest entry
CONFIG: Any = {"displayModeBar": False, "doubleClick": False, "scrollZoom": False,
               "showTips": False}
Second = Annotated[int, Meta(ge=0, le=2**40)]
Answer = tuple[Figure, Item]  # the figure, and facts that the page shows with it


class AnsweredFigure(BrowserComponent):
    """The place of a figure. `asked`: the request of the page's module; `facts`: facts that come
    with the figure, or the `problem` if there is none."""

    PROPS = "id asked facts children"

    def __init__(self, id: str) -> None:
        super().__init__(id=id)


class ReportRequest(Struct):
    """Request for a report's figure. `names`: names of the largest, by their key in the report;
    `show`: their idle hours or all."""

    number: int
    style: FigureStyle
    by: Word
    start: Second
    end: Second
    names: Annotated[dict[str, str], Meta(max_length=MOST_NAMED)]
    show: HoursShown


class RehearsalRequest(Struct):
    """Request for a rehearsal's figure and words. `zone`: of the viewer's clock."""

    number: int
    style: FigureStyle
    id: Word
    zone: Word = UTC


class ForecastRequest(Struct):
    number: int
    style: FigureStyle


class AuditRequest(Struct):
    """Request for the audit log's figure. `filters` are those of `GET audit`; `start` 0: from the
    first entry on."""

    number: int
    style: FigureStyle
    start: Second
    end: Second
    filters: Annotated[dict[str, Word], Meta(max_length=5)]


class QuotaPastRequest(Struct):
    """Request for a holder's past of a quota. `most`: what the quota gives now."""

    number: int
    style: FigureStyle
    quota: Word
    holder: Annotated[str, Meta(max_length=256)]
    limit: Limit
    last: Literal["3h", "24h", "7d"]
    most: Annotated[float, Meta(ge=0)]


def report_answer(client: Client, request: ReportRequest) -> Answer:
    bucket = bucket_for(request.end - request.start)
    usage = client.hub.get("usage", by=request.by, bucket=str(bucket),
                           start=str(request.start), end=str(request.end))
    return (hours_figure(usage, request.names, request.show, request.style),
            {"step": usage["bucket"]})


def rehearsal_answer(client: Client, request: RehearsalRequest) -> Answer:
    """Figure of a rehearsal that is over, and the same in words; without alerts the words say
    it."""
    rehearsal = client.rehearsal(request.id)
    fired = fired_alerts(client, rehearsal) if rehearsal["state"] == "done" else None
    words = rehearsal_words(rehearsal, None if fired is None else len(fired))
    return rehearsal_figure(rehearsal, fired or [], request.style), {
        "parts": parts_on_wire({
            "rehearsal-words": words, "rehearsal-place": bool(rehearsal["alerts"] or fired),
            "rehearsal-list": rehearsal_lines(rehearsal, known_zone(request.zone))})}


def forecast_answer(client: Client, request: ForecastRequest) -> Answer:
    demand = [forecast for forecast in client.hub.get("forecasts")["demand"]
              if forecast["name"] in FORECASTS]
    if not demand:
        raise CommandError("there are forecasts once history has been read, for those who see the "
                           "whole fleet")
    return forecast_figure(demand, request.style), {}


def audit_answer(client: Client, request: AuditRequest) -> Answer:
    """Figure of the audit log, each command once. If there are more entries than are read, it
    starts at the oldest one read."""
    query = {**request.filters, "limit": str(ENTRIES_OF_A_PAGE), "until": str(request.end)}
    if request.start > 0:
        query["since"] = str(request.start)
    entries: list[Item] = []
    for _ in range(MOST_PAGES):
        page = client.hub.page("audit", **query)
        entries += page["items"]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    oldest = min((entry["at"] for entry in entries if entry["at"] is not None), default=request.end)
    is_whole = page["next"] is None and request.start > 0
    start = request.start if is_whole else min(oldest, request.end - SHORTEST_S)
    return (audit_figure(newest_steps(entries), (start, request.end), request.style),
            {"entries": len(entries), "is_all": page["next"] is None})


def quota_past_answer(client: Client, request: QuotaPastRequest) -> Answer:
    past = client.hub.get(f"quotas/{quote(request.quota, safe='')}/past", holder=request.holder,
                          limit=request.limit, last=request.last)
    if past["why"]:
        raise CommandError(past["why"])
    if not past["t"]:
        raise CommandError("no data for this time")
    return (quota_past_figure(past, request.most, request.style),
            {"parts": parts_on_wire({
                "quota-past-words": past_words(past, request.most, request.style.zone_s),
                "quota-past-figure": True})})


def fired_alerts(client: Client, rehearsal: Item) -> list[Item] | None:
    """Return the rule's real alerts in the rehearsed span; None: the hub has no such rule."""
    rule, start, end = rehearsal["rule"]["id"], rehearsal["start"], rehearsal["end"]
    if client.hub.get_known(f"rules/{quote(rule, safe='')}") is None:
        return None
    resolved = client.hub.page("alerts", state="ended", rule=rule, start=str(start), end=str(end))
    firing = client.hub.page("alerts", rule=rule)
    return [*resolved["items"], *(alert for alert in firing["items"] if alert["fired_at"] < end)]


def bucket_for(seconds: int) -> int:
    """Return the seconds of a bar: whole hours, at most 56 bars in up to 28 days. Pure."""
    return next((hours * HOUR_S for hours in (1, 2, 6, 12) if seconds <= 56 * hours * HOUR_S),
                24 * HOUR_S)


GRAPHS: dict[str, tuple[type[Struct], Callable[[Client, Any], Answer]]] = {
    PAST: (PastRequest, past_answer), REPORT: (ReportRequest, report_answer),
    REHEARSAL: (RehearsalRequest, rehearsal_answer), FORECAST: (ForecastRequest, forecast_answer),
    AUDIT: (AuditRequest, audit_answer), QUOTA_PAST: (QuotaPastRequest, quota_past_answer)}


class FigureCallbacks:
    """Callbacks of the figures, in separate threads, so that a site's pages cannot block them."""

    def __init__(self, threads: SiteThreads, hub: ViewersHub) -> None:
        self._threads = threads
        self._hub = hub

    def register(self, app: dash.Dash) -> None:
        for key, (kind, answer) in GRAPHS.items():
            app.callback(Output(key, "children"), Output(key, "facts"), Input(key, "asked"),
                         prevent_initial_call=True)(self._answering(key, kind, answer))

    def _answering(self, key: str, kind: type[Struct], answer: Callable[[Client, Any], Answer]
                   ) -> Callable[[object], tuple[Any, Any]]:
        def answers(request: object) -> tuple[Any, Any]:
            number = request.get("number") if isinstance(request, dict) else None
            try:
                figure, facts = self._threads.run(
                    answer, self._hub.frames().client, msgspec.convert(request, kind))
            except (CommandError, msgspec.ValidationError) as error:
                return no_update, {"number": number, "problem": str(error)}
            facts = {"number": number, **facts}
            if isinstance(request, dict) and request.get("is_drawn") is True:
                # The graph in the page takes it and stays: a new one would lose the pointer.
                return no_update, facts | {"figure": figure}
            return dcc.Graph(id=f"{key}-figure", figure=figure, config=CONFIG), facts
        return answers

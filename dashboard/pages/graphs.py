"""History, reports, rehearsals, forecasts and the audit log as Dash figures: a module of the page
says what to show, a callback asks the hub as the person who looks, and answers with a
`dcc.Graph`."""

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import quote

import dash
import msgspec
from dash import Input, Output, dcc, no_update
from msgspec import Meta, Struct

from gpudeck.client import Client
from gpudeck.components import BrowserComponent
from gpudeck.errors import CommandError

from .figures import (
    FORECASTS,
    HOUR_S,
    JOULES_PER_KWH,
    MOST_NAMED,
    Figure,
    FigureStyle,
    HoursShown,
    Item,
    Word,
    audit_figure,
    forecast_figure,
    hours_figure,
    load_figure,
    rehearsal_figure,
    usage_figure,
)
from .past_alerts import alerts_of, begins_of
from .site_hub import SiteThreads, ViewersHub

PAST, REPORT = "past-graph", "reports-graph"
REHEARSAL, FORECAST, AUDIT = "rehearsal-graph", "forecasts-graph", "audit-graph"
ENTRIES_OF_A_PAGE, MOST_PAGES = 1_000, 5
SHORTEST_S = 86_400  # of the log as a whole, where it is younger
CONFIG: Any = {"displayModeBar": False, "doubleClick": False, "scrollZoom": False,
               "showTips": False}
Second = Annotated[int, Meta(ge=0, le=2**40)]
Answer = tuple[Figure, Item]  # the figure, and what the page says of it


class AnsweredFigure(BrowserComponent):
    """The place of a figure. `asked`: what the page's module wants to see; `facts`: what it is told
    beside the figure, or the `problem` if there is none."""

    PROPS = "id asked facts children"

    def __init__(self, id: str) -> None:
        super().__init__(id=id)


class PastRequest(Struct):
    """`by`: what is looked up under `name`; of a fleet, "" is all of it."""

    number: int
    style: FigureStyle
    by: Literal["fleet", "group", "model", "user", "team"]
    name: Annotated[str, Meta(max_length=256)]
    start: Second
    end: Second
    step: Annotated[int, Meta(ge=1, le=10**8)]


class ReportRequest(Struct):
    """`names`: of the largest, by what the report says they are; `show`: their idle hours, or
    all."""

    number: int
    style: FigureStyle
    by: Word
    start: Second
    end: Second
    names: Annotated[dict[str, str], Meta(max_length=MOST_NAMED)]
    show: HoursShown


class RehearsalRequest(Struct):
    number: int
    style: FigureStyle
    id: Word


class ForecastRequest(Struct):
    number: int
    style: FigureStyle


class AuditRequest(Struct):
    """Filters as `GET audit` takes them; `start` 0: from the first entry on."""

    number: int
    style: FigureStyle
    start: Second
    end: Second
    filters: Annotated[dict[str, Word], Meta(max_length=5)]


def past_answer(client: Client, asked: PastRequest) -> Answer:
    bounds = asked.start, asked.end
    alerts = alerts_of(client, asked.by, asked.name, bounds)
    begins, about = begins_of(client, alerts or (), asked.start), {"alerts": alerts}
    span = {"start": str(asked.start), "end": str(asked.end)}
    if asked.by in ("user", "team"):
        usage = client.hub.get("usage", by=asked.by, of=asked.name, bucket=str(asked.step), **span)
        return (usage_figure(usage, bounds, time.time(), asked.style, begins),
                usage_facts(usage) | about)
    part = {} if asked.by == "fleet" else {asked.by: asked.name}
    load = client.hub.get("load", step=str(asked.step), **part, **span)
    return load_figure(load, bounds, asked.style, begins), load_facts(load) | about


def report_answer(client: Client, asked: ReportRequest) -> Answer:
    usage = client.hub.get("usage", by=asked.by, bucket=str(bucket_for(asked.end - asked.start)),
                       start=str(asked.start), end=str(asked.end))
    return (hours_figure(usage, asked.names, asked.show, asked.style),
            {"step": usage["bucket"]})


def rehearsal_answer(client: Client, asked: RehearsalRequest) -> Answer:
    found = client.rehearsal(asked.id)
    fired = fired_alerts(client, found)
    return rehearsal_figure(found, fired or [], asked.style), {
        "step": found["grain_s"], "fired": None if fired is None else len(fired)}


def forecast_answer(client: Client, asked: ForecastRequest) -> Answer:
    demand = [each for each in client.hub.get("forecasts")["demand"] if each["name"] in FORECASTS]
    if not demand:
        raise CommandError("there are forecasts once history has been read, for those who see the "
                           "whole fleet")
    return forecast_figure(demand, asked.style), {}


def audit_answer(client: Client, asked: AuditRequest) -> Answer:
    """Where there are more entries than are read, the figure begins with the first that was."""
    query = {**asked.filters, "limit": str(ENTRIES_OF_A_PAGE), "until": str(asked.end)}
    if asked.start > 0:
        query["since"] = str(asked.start)
    entries: list[Item] = []
    for _ in range(MOST_PAGES):
        page = client.hub.page("audit", **query)
        entries += page["items"]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    oldest = min((each["at"] for each in entries if each["at"] is not None), default=asked.end)
    is_whole = page["next"] is None and asked.start > 0
    start = asked.start if is_whole else min(oldest, asked.end - SHORTEST_S)
    return (audit_figure(entries, (start, asked.end), asked.style),
            {"entries": len(entries), "is_all": page["next"] is None})


def fired_alerts(client: Client, found: Item) -> list[Item] | None:
    """Alerts that the rehearsed rule did raise in the same time; None: the hub has no such rule."""
    rule, start, end = found["rule"]["id"], found["start"], found["end"]
    if client.hub.get_known(f"rules/{quote(rule, safe='')}") is None:
        return None
    ended = client.hub.page("alerts", state="ended", rule=rule, start=str(start), end=str(end))
    firing = client.hub.page("alerts", rule=rule)
    return [*ended["items"], *(each for each in firing["items"] if each["fired_at"] < end)]


def load_facts(load: Item) -> dict[str, Any]:
    """Pure. `known`: from the first to the last step with data."""
    step, start = load["step"], load["start"]
    seen = [start + at * step for at, gpus in enumerate(load["gpus"]) if gpus is not None]
    return {"step": step, "busiest": load["busiest"],
            "known": [seen[0], seen[-1] + step] if seen else None}


def usage_facts(usage: Item) -> dict[str, Any]:
    """Pure. In the units that the page shows."""
    items, step = usage["items"], usage["bucket"]
    energy = [each["energy_j"] for each in items if each["energy_j"] is not None]
    return {"step": step, "hours": sum(each["gpu_s"] for each in items) / HOUR_S,
            "idle_hours": sum(each["idle_s"] for each in items) / HOUR_S,
            "kwh": sum(energy) / JOULES_PER_KWH if energy else None,
            "known": [items[0]["t"], items[-1]["t"] + step] if items else None}


def bucket_for(seconds: int) -> int:
    """Pure. Whole hours, and at most some fifty bars."""
    return next((hours * HOUR_S for hours in (1, 2, 6, 12) if seconds <= 56 * hours * HOUR_S),
                24 * HOUR_S)


GRAPHS: dict[str, tuple[type[Struct], Callable[[Client, Any], Answer]]] = {
    PAST: (PastRequest, past_answer), REPORT: (ReportRequest, report_answer),
    REHEARSAL: (RehearsalRequest, rehearsal_answer), FORECAST: (ForecastRequest, forecast_answer),
    AUDIT: (AuditRequest, audit_answer)}


class FigureCallbacks:
    """They have threads of their own, so that a site's pages cannot take theirs."""

    def __init__(self, threads: SiteThreads, hub: ViewersHub) -> None:
        self._threads = threads
        self._hub = hub

    def register(self, app: dash.Dash) -> None:
        for key, (kind, answer) in GRAPHS.items():
            app.callback(Output(key, "children"), Output(key, "facts"), Input(key, "asked"),
                         prevent_initial_call=True)(self._answering(key, kind, answer))

    def _answering(self, key: str, kind: type[Struct], answer: Callable[[Client, Any], Answer]
                   ) -> Callable[[object], tuple[Any, Any]]:
        def answers(given: object) -> tuple[Any, Any]:
            number = given.get("number") if isinstance(given, dict) else None
            try:
                figure, facts = self._threads.run(
                    answer, self._hub.frames().client, msgspec.convert(given, kind))
            except (CommandError, msgspec.ValidationError) as error:
                return no_update, {"number": number, "problem": str(error)}
            return (dcc.Graph(id=f"{key}-figure", figure=figure, config=CONFIG),
                    {"number": number, **facts})
        return answers

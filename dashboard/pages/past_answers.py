"""Answers to the requests of History for a figure, with what the page shows beside it."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gpudeck.client.hub import Client, NotThere
from gpudeck.errors import CommandError

from .alert_strips import alert_strips
from .figures import (
    HOUR_S,
    JOULES_PER_KWH,
    LONGEST_NOTE,
    AlertBegin,
    Figure,
    FigureStyle,
    Item,
    Word,
    blank_figure,
    load_figure,
    plain,
    usage_figure,
)
from .gpu_figure import PastGpu, gpu_figure, series_of
from .past_alerts import alerts_of, begins_of
from .past_parts import ELSE, gpu_words, jump_parts, load_words, series_query, usage_words, whole_of
from .past_span import Kind, is_short, least_of, refresh_s, step_for, widened, zone_of
from .past_subject import DRAWN, MOST_GPUS, MOST_METRICS, PastView
from .reading import Parts, parts_on_wire
from .words import sentence, zone_words

PAST = "past-graph"
MOST_EVENTS = 500
LONGEST_S = 60  # a span that is over is read again all the same
PICTURE_HEAD_PX = 56
MOST_NODES = 4  # events of more nodes are read all at once

Second = Annotated[int, Meta(ge=0, le=2**40)]
Answer = tuple[Figure, dict[str, Any]]  # the figure, and facts that the page shows with it


class PastRequest(Struct):
    """Request for a figure of History. `by`: kind of the thing called `name`; "" for the fleet, and
    for GPUs. `is_usual`: nobody chose the span, which may start at the first data."""

    number: int
    style: FigureStyle
    by: Kind
    name: Annotated[str, Meta(max_length=256)]
    start: Second
    end: Second
    step: Annotated[int, Meta(ge=1, le=10**8)]
    gpus: Annotated[list[PastGpu], Meta(max_length=MOST_GPUS)] = []
    metrics: Annotated[list[Word], Meta(max_length=MOST_METRICS)] = []
    view: PastView = msgspec.field(default_factory=PastView)
    is_usual: bool = False
    title: Annotated[str, Meta(max_length=256)] = ""


@dataclass(frozen=True, slots=True)
class Past:
    """Data of a figure of History, as the hub answers, and facts about it. `data_span`: from the
    first to the last step with data."""

    data: Item
    facts: dict[str, Any]
    data_span: tuple[int, int] | None


def past_answer(client: Client, request: PastRequest) -> Answer:
    try:
        past = past_of(client, request)
    except NotThere as error:
        return (blank_figure(sentence(str(error)), request.style),
                {"parts": parts_on_wire({"past-words": ELSE, "past-lane": None})})
    if request.is_usual and is_short(past.data_span, request.start, request.end):
        assert past.data_span is not None
        request = _since(request, past.data_span[0])
        past = past_of(client, request)
    now, zone = time.time(), zone_of(request.view.zone)
    request.view.zone = str(zone)
    style = msgspec.structs.replace(request.style, is_pan=request.view.drag == "pan")
    bounds = request.start, request.end
    names = ",".join(gpu.uuid for gpu in request.gpus) or request.name
    alerts = alerts_of(client, request.by, names, bounds)
    begins = begins_of(client, alerts or (), request.start)
    parts: Parts = {
        "past-lane": None if alerts is None else alert_strips(
            alerts, bounds, zone, now, has_hosts=request.by != "gpus"),
        **jump_parts(request.view, past.data_span, bounds, past.facts.get("busiest"))}
    if request.by == "gpus":
        events, is_all = events_of(client, request)
        figure = gpu_figure(
            series_of(past.data), request.gpus, [DRAWN[key] for key in keys_of(request)], bounds,
            style, has_band=request.view.band == "shown", events=events, begins=begins)
        words = gpu_words(past.facts["step"], past.data_span, len(alerts or ()), len(events),
                          is_all)
    else:
        figure = _sum_figure(request, past, now, style, begins)
        words = (usage_words(past.facts) if request.by in ("user", "team")
                 else load_words(past.facts, zone))
    return figure, past.facts | {
        "span": bounds, "start": request.view.start, "end": request.view.end,
        "least_s": least_of(request.by), "whole": whole_of(request.view),
        "picture": picture_of(figure, request),
        "every_s": LONGEST_S if request.view.end else refresh_s(past.facts["step"],
                                                                lines_of(request)),
        "parts": parts_on_wire(parts | {"past-words": words})}


def picture_of(figure: Figure, request: PastRequest) -> dict[str, Any]:
    """Return what differs in the figure as a picture: the name of the file, and the layout, which
    has a title and the names of several GPUs. Pure."""
    layout, zone = figure["layout"], zone_words(request.end, request.view.zone)
    stretch = "_".join(f"{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M}"
                       for at in (request.start, request.end))
    return {"file": f"gpudeck_history_{stretch}Z.png", "layout": {
        "height": layout["height"] + PICTURE_HEAD_PX,
        "margin": layout["margin"] | {"t": layout["margin"]["t"] + PICTURE_HEAD_PX},
        "title": {"text": plain(f"{request.title} · {zone}", LONGEST_NOTE), "x": 0.01,
                  "xanchor": "left", "y": 0.985, "yanchor": "top", "font": {"size": 14}},
        "showlegend": len(request.gpus) > 1,
        "legend": {"orientation": "h", "xref": "container", "x": 0.99, "xanchor": "right",
                   "yref": "container", "y": 0.99, "yanchor": "top"}}}


def _since(request: PastRequest, first: int) -> PastRequest:
    """Return the request for the same figure from the first data on."""
    start, end = widened(request.by, first, request.end)
    step = step_for(request.by, lines_of(request), end - start)
    return msgspec.structs.replace(request, start=start, end=end, step=step)


def lines_of(request: PastRequest) -> int:
    return len(request.gpus) * len(request.metrics)


def past_of(client: Client, request: PastRequest) -> Past:
    """Read what the figure is drawn from."""
    span = {"start": str(request.start), "end": str(request.end)}
    if request.by == "gpus":
        if not request.gpus:
            raise CommandError("name at least one GPU")
        series = client.series(step=str(request.step), **span,
                               **series_query(request.gpus, keys_of(request)))
        data_span = series_of(series).data_span()
        return Past(series, {"step": series["step"], "known": data_span}, data_span)
    if request.by in ("user", "team"):
        data = client.hub.get("usage", by=request.by, of=request.name, bucket=str(request.step),
                              **span)
        facts = usage_facts(data)
    else:
        part = {} if request.by == "fleet" else {request.by: request.name}
        data = client.hub.get("load", step=str(request.step), **part, **span)
        facts = load_facts(data)
    data_span = facts["known"]
    return Past(data, facts, None if data_span is None else (data_span[0], data_span[1]))


def keys_of(request: PastRequest) -> list[str]:
    """Return the metrics of a request, without unknown ones. Pure."""
    return [key for key in request.metrics if key in DRAWN] or [next(iter(DRAWN))]


def events_of(client: Client, request: PastRequest) -> tuple[list[Item], bool]:
    """Return the events of the GPUs and of their nodes as a whole, and whether those are all."""
    uuids = {gpu.uuid for gpu in request.gpus}
    nodes = {gpu.node for gpu in request.gpus if gpu.node is not None}
    span = {"start": str(request.start), "end": str(request.end), "limit": str(MOST_EVENTS)}
    queries = ([{"node": node} for node in sorted(nodes)] if len(nodes) <= MOST_NODES else [{}])
    pages = [client.hub.page("events", **span, **query) for query in queries]
    return ([event for page in pages for event in page["items"]
             if event["node"] in nodes and (event["gpu"] is None or event["gpu"] in uuids)],
            all(page["next"] is None for page in pages))


def _sum_figure(request: PastRequest, past: Past, now: float, style: FigureStyle,
                begins: list[AlertBegin]) -> Figure:
    bounds = request.start, request.end
    if request.by in ("user", "team"):
        return usage_figure(past.data, bounds, now, style, begins)
    return load_figure(past.data, bounds, style, begins)


def load_facts(load: Item) -> dict[str, Any]:
    """Return the facts about a load. `known`: from the first to the last step with data. Pure."""
    step, start = load["step"], load["start"]
    times = [start + at * step for at, gpus in enumerate(load["gpus"]) if gpus is not None]
    return {"step": step, "busiest": load["busiest"],
            "known": [times[0], times[-1] + step] if times else None}


def usage_facts(usage: Item) -> dict[str, Any]:
    """Return the facts about a usage, in the units that the page shows. Pure."""
    items, step = usage["items"], usage["bucket"]
    energy = [item["energy_j"] for item in items if item["energy_j"] is not None]
    return {"step": step, "hours": sum(item["gpu_s"] for item in items) / HOUR_S,
            "idle_hours": sum(item["idle_s"] for item in items) / HOUR_S,
            "kwh": sum(energy) / JOULES_PER_KWH if energy else None,
            "known": [items[0]["t"], items[-1]["t"] + step] if items else None}

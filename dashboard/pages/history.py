"""The History page: its frame, and the answer to its view. past_answers.py has its figure, and what
depends on the data of that."""

from pathlib import Path
from typing import Any

import msgspec
import plotly
from dash.development.base_component import Component
from dash.fingerprint import build_fingerprint

from gpudeck.client.hub import Client
from gpudeck.markup import make, region

from .graphs import AnsweredFigure
from .parts import Page, moments, problem
from .past_answers import PAST
from .past_parts import (
    YESTERDAY,
    control_parts,
    file_parts,
    nobody_parts,
    range_buttons,
    subject_parts,
    what_field,
    what_parts,
)
from .past_span import LASTS, PastSpan, moments_of, span_of, step_for
from .past_subject import PastView, Subject, choices_of, metrics_of_view, resolve, subject_of
from .reading import Parts, Reading

SCRIPT = "package_data/plotly.min.js"
MODULE, PROBLEM = "history/history.mjs", "history-problem"


def plotly_address() -> str:
    """Return the address at which Dash serves Plotly; only pages that need it load it."""
    made_at = int((Path(plotly.__file__).parent / SCRIPT).stat().st_mtime)
    name: str = build_fingerprint(SCRIPT, plotly.__version__, made_at)
    return f"/_dash-component-suites/plotly/{name}"


def frame() -> Component:
    return make("div#history.past-page", [
        make("header.past-head", [
            make("div.past-name", [make("h1#past-title", "History"),
                                   make("p#past-subtitle", "")]),
            make("div.choice.past-what", [
                make("label#past-what-label", "Show", htmlFor="past-what"),
                make("span", [what_field(), make("datalist#past-whats")])]),
            make("div#past-ranges.switch", [
                make("button", words, data_last=last, aria_pressed="false")
                for last, words in [*((last, words) for last, (_, words) in LASTS.items()),
                                    ("", YESTERDAY)]], role="group", aria_label="Time range"),
            moments("past")]),
        make("div#past-choices.past-choices", [
            make("div#past-metrics.chips", role="group", aria_label="Metrics"),
            make("div#past-gpus.chips", role="group", hidden=True, aria_label="GPUs")]),
        problem("history"),
        make("div#past-line.past-line", [
            make("output#past-words.past-words", ""),
            make("div.past-acts", [
                make("button#past-back.button.small", "Whole span", hidden=True),
                make("button#past-fit.button.small", "Fit to data", hidden=True,
                     title="Zoom in to the part of this span that has data (f)"),
                make("button#past-busiest.button.small", "Busiest hour", hidden=True,
                     title="Zoom in to the busiest hour of this span (u)"),
                make("button#past-pan.button.small", "Pan", aria_pressed="false",
                     title="Drag to pan instead of zooming in (p)"),
                make("button#past-band.button.small", "Min to max", aria_pressed="true",
                     title="Show minimum to maximum of each step as a band (b)"),
                make("a#past-live.button.small", "Live", hidden=True),
                make("a#past-csv.button.small", "CSV", download=""),
                make("a#past-parquet.button.small", "Parquet", download=""),
                make("button#past-png.button.small", "PNG")])]),
        region("section#past-lane.alert-lane", "Alerts over time"),
        # Shown in place of the figure if there is none: what to do.
        make("p#past-none.past-none", "", hidden=True, role="status"),
        make("span#past-request", hidden=True),
        region("div#past-place.past-place", "Figure", AnsweredFigure(PAST))],
        hidden=True, data_unsettled="")


def answer(client: Client, view: PastView, now: float) -> Parts:
    """Read what is shown. A subject that was typed, and a span in other words, stand in the address
    as all others do from then on."""
    choices = choices_of(client, now) if view.choices else None
    view.choices = ""
    resolve(client, view)
    subject = subject_of(client, view)
    if subject is None:
        return what_parts(view, "", choices) | nobody_parts()
    lines = len(subject.gpus) * len(metrics_of_view(view))
    span = span_of(subject.kind, view.last, view.start, view.end, now, lines)
    _set_moments(view, now)
    ranges = range_buttons(view, subject.kind, now)
    return page_parts(view, subject, span, choices) | {"past-ranges": ranges}


def page_parts(view: PastView, subject: Subject, span: PastSpan, choices: list[str] | None
               ) -> Parts:
    """Return the parts of the page. Pure."""
    keys = [metric.key for metric in metrics_of_view(view)]
    parts = (what_parts(view, subject.typed, choices) | subject_parts(view, subject)
             | control_parts(view, subject))
    if subject.has_lines and not subject.gpus:
        return parts | {"past-request": None}
    step = step_for(subject.kind, len(subject.gpus) * len(keys), span.end - span.start)
    return parts | file_parts(subject, keys, span, step) | {
        "past-request": make("i", data_figure=PAST, data_at=str(span.end), data_problem=PROBLEM,
                             data_request=_request(view, subject, span, step, keys))}


def _request(view: PastView, subject: Subject, span: PastSpan, step: int, keys: list[str]
             ) -> dict[str, Any]:
    """Return a PastRequest without what the browser adds."""
    return {"by": subject.kind, "name": subject.name, "start": span.start, "end": span.end,
            "step": step, "is_usual": span.is_usual, "title": subject.title,
            "view": msgspec.to_builtins(msgspec.structs.replace(view, what="")),
            **({"metrics": keys, "gpus": msgspec.to_builtins(subject.gpus)}
               if subject.has_lines else {})}


def _set_moments(view: PastView, now: float) -> None:
    """Write the moments of the view in UTC seconds; moments that name no span go."""
    begin, until = moments_of(view.start, view.end, now) or (None, None)
    view.start = "" if begin is None else f"{begin:.0f}"
    view.end = "" if until is None else f"{until:.0f}"
    if view.start:
        view.last = ""


PAGE = Page(
    "history", "History", MODULE, frame,
    "History of the fleet, a group, a model, a node, GPUs or an owner: the average of each step as "
    "a line, minimum to maximum as a band, events as marks; alerts are in the lane above. Drag to "
    "zoom in.", (
        ("← →  +  -", "earlier, later, zoom in, zoom out"),
        ("p", "drag to pan instead of zooming in"),
        ("b", "minimum to maximum as a band"),
        ("f", "the part of the span that has data"),
        ("u", "the busiest hour, of a fleet"),
        ("Esc", "whole span")), "/history", ("h", "history"),
    reading=Reading(PastView, answer, every_s=5.0))

"""Parts of the History page: controls, which follow from the view, and the words and links that
come with the figure."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any
from urllib.parse import urlencode

from dash.development.base_component import Component

from gpudeck.markup import make

from .figures import HOUR_S, Item
from .gpu_figure import PastGpu
from .past_span import (
    LASTS,
    LOADS,
    Kind,
    PastSpan,
    is_short,
    minute_of,
    step_words,
    usual_last,
    zone_of,
)
from .past_subject import (
    DRAWN,
    MOST_GPUS,
    MOST_METRICS,
    STANDARD,
    PastView,
    Subject,
    metrics_of_view,
)
from .reading import Parts
from .time_ranges import period_bounds
from .words import amount, plural

ELSE = "Choose the fleet, a group, a model, a node, a GPU or an owner above."
NOBODY = "This node does not exist, or you do not have access to it."
NO_GPU = "No node has reported a GPU yet."
NO_GPU_OF_NODE = "This node has reported no GPU."
USUAL = "usual"
YESTERDAY = "yesterday"
# Where a subject can be typed: its hints.
TYPED = {"type": "search", "list": "past-whats", "autoComplete": "off", "spellCheck": "false",
         "autoCapitalize": "none", "maxLength": "256", "placeholder": "fleet, node, user:name",
         "title": "fleet, group:name, model:name, a node (host name), a GPU (host:number), "
                  "user:name or team:name"}
HERE = {"start": "", "end": "", "whole": ""}  # fields of a view without a span that is chosen

Fields = Mapping[str, Any]


def what_parts(view: PastView, typed: str, choices: Sequence[str] | None) -> Parts:
    """Return the field for the subject. `choices` None: those that were listed stay."""
    is_unknown = view.what != ""
    parts: Parts = {
        "past-what-label": "Show (not found)" if is_unknown else "Show",
        "past-what": what_field(value=view.what or typed,
                                aria_invalid="true" if is_unknown else None)}
    if choices is not None:
        parts["past-whats"] = [make("option", value=choice) for choice in choices]
    return parts


def what_field(**traits: str | None) -> Component:
    return make("input#past-what", **TYPED, **traits)


def subject_parts(view: PastView, subject: Subject) -> Parts:
    is_chosen = not subject.has_lines or len(subject.gpus) > 0
    chips = _gpu_chips(subject, view) if len(subject.candidates) > 1 else None
    return {
        "@tab": f"{subject.title}, history", "past-title": subject.title,
        "past-subtitle": subject.subtitle, "past-choices": subject.has_lines,
        "past-metrics": _metric_chips([metric.key for metric in metrics_of_view(view)]),
        "past-gpus": chips, "past-line": is_chosen, "past-place": is_chosen,
        # Its alerts come with the figure.
        **({"past-none": None} if is_chosen else {
            "past-lane": False,
            "past-none": NO_GPU if subject.node is None else NO_GPU_OF_NODE})}


def nobody_parts() -> Parts:
    """Return what stands there in place of a node that this person cannot see."""
    return {"past-choices": False, "past-line": False, "past-lane": False, "past-place": False,
            "past-none": f"{NOBODY} {ELSE}", "past-request": None}


def range_buttons(view: PastView, kind: Kind, now: float) -> list[Component]:
    """Return the buttons for the spans that end now, and for the day before today."""
    pressed = "" if view.start else view.last or usual_last(kind)
    start, end = (f"{at:.0f}" for at in period_bounds("yesterday", now, str(zone_of(view.zone))))
    is_shown = (view.start, view.end) == (start, end)
    return [*(make("button", words, data_last=last, data_set=HERE | {"last": last},
                   aria_pressed=str(last == pressed).lower())
              for last, (_, words) in LASTS.items()),
            make("button", YESTERDAY, aria_pressed=str(is_shown).lower(),
                 data_set=HERE | {"last": "", "start": start, "end": end})]


def control_parts(view: PastView, subject: Subject) -> Parts:
    """Return the buttons for the span, and for how the figure is looked at."""
    is_pan, has_band, live = view.drag == "pan", view.band == "shown", subject.live_address
    return {
        "past-back": make(
            "button#past-back.button.small", "Whole span", hidden=view.whole == "",
            data_set=fields_of_whole(view.whole) if view.whole else None,
            data_shortcut="Escape"),
        # Where there may be one, the figure's answer shows it.
        **({} if subject.kind in LOADS else {"past-busiest": False}),
        "past-pan": make(
            "button#past-pan.button.small", "Pan", aria_pressed=str(is_pan).lower(),
            data_set={"drag": "zoom" if is_pan else "pan"}, data_shortcut="p"),
        "past-band": make(
            "button#past-band.button.small", "Min to max", aria_pressed=str(has_band).lower(),
            data_set={"band": "hidden" if has_band else "shown"}, data_shortcut="b",
            hidden=not subject.has_lines),
        "past-live": make("a#past-live.button.small", "Live", href=live, hidden=live is None)}


def file_parts(subject: Subject, keys: Sequence[str], span: PastSpan, step: int) -> Parts:
    """Return the links to what the figure shows, as files."""
    path = data_path(subject, keys, span, step)
    return {f"past-{form}": make(f"a#past-{form}.button.small", words, download="",
                                 href=f"/api/v1/{path}&format={form}")
            for form, words in (("csv", "CSV"), ("parquet", "Parquet"))}


def data_path(subject: Subject, keys: Sequence[str], span: PastSpan, step: int) -> str:
    times = {"start": span.start, "end": span.end}
    if subject.kind in ("user", "team"):
        query: dict[str, Any] = {"by": subject.kind, "of": subject.name, "bucket": step}
        return f"usage?{urlencode(query | times)}"
    if not subject.has_lines:
        part = {} if subject.kind == "fleet" else {subject.kind: subject.name}
        return f"load?{urlencode(part | times | {'step': step})}"
    return f"series?{urlencode(series_query(subject.gpus, keys) | times | {'step': step})}"


def series_query(gpus: Sequence[PastGpu], keys: Sequence[str]) -> dict[str, str]:
    """Return what is asked of `GET series` for all GPUs and metrics at once."""
    query = {"gpu": gpus[0].uuid, "metric": keys[0], "also": ",".join(keys[1:]),
             "beside": ",".join(gpu.uuid for gpu in gpus[1:])}
    return {name: value for name, value in query.items() if value}


def fields_of_whole(whole: str) -> Fields:
    """Return the fields of the view for the span that `whole` names."""
    if whole in LASTS:
        return HERE | {"last": whole}
    start, dash, end = whole.partition("-")
    return HERE | ({"last": "", "start": start, "end": end} if dash else {"last": ""})


def whole_of(view: PastView) -> str:
    """Return the name of the span that is left for a closer one."""
    if view.whole:
        return view.whole
    return f"{view.start}-{view.end}" if view.start else view.last or USUAL


def closer(view: PastView, start: float, end: float) -> Fields:
    """Return the fields of the view for a span within the present one."""
    return {"start": str(int(start)), "end": str(int(end)), "whole": whole_of(view)}


def jump_parts(view: PastView, data: tuple[int, int] | None, span: tuple[int, int],
               busiest: Item | None) -> Parts:
    """Return the buttons that lead to a part of the span. `data`: the part with data. Its key works
    even if that is nearly all of the span. `busiest`: None, and no button leads to the hour of the
    span before, where this one has no data or nothing that could be busiest."""
    return {
        "past-fit": make(
            "button#past-fit.button.small", "Fit to data", hidden=not is_short(data, *span),
            data_shortcut="f", data_set=None if data is None else closer(view, *data)),
        "past-busiest": make(
            "button#past-busiest.button.small", "Busiest hour", hidden=busiest is None,
            data_shortcut="u", data_set=None if busiest is None else closer(
                view, busiest["start"], busiest["end"]))}


def _metric_chips(keys: Sequence[str]) -> list[Component]:
    chips = []
    for key, metric in DRAWN.items():
        is_chosen = key in keys
        rest = [one for one in DRAWN if (one in keys) != (one == key)]
        is_full = not is_chosen and len(keys) == MOST_METRICS
        fields = {"metric": [] if tuple(rest) == STANDARD else rest}
        chips.append(make(
            "button.chip", metric.label, data_key=key, aria_pressed=str(is_chosen).lower(),
            title=f"{MOST_METRICS} charts at most: remove one first" if is_full
            else metric.meaning, disabled=is_full,
            data_set=None if is_full or not rest else fields))
    return chips


def _gpu_chips(subject: Subject, view: PastView) -> list[Component]:
    uuids = [gpu.uuid for gpu in subject.gpus]
    chips = []
    for gpu in subject.candidates:
        is_shown = gpu.uuid in uuids
        is_full = not is_shown and len(uuids) == MOST_GPUS
        is_last = is_shown and len(uuids) == 1
        colour = {"style": {"border-top": f"3px solid var(--line-{uuids.index(gpu.uuid)})"}
                  } if is_shown else {}
        chips.append(make(
            "button.chip", [make("span.swatch", **colour), gpu.label], data_key=gpu.uuid,
            data_uuid=gpu.uuid, aria_pressed=str(is_shown).lower(), disabled=is_full,
            title=f"{MOST_GPUS} at most: remove one first" if is_full else gpu.uuid,
            data_set=None if is_full or is_last else _toggled(subject, view, gpu.uuid)))
    return chips


def _toggled(subject: Subject, view: PastView, uuid: str) -> Fields:
    """Return the fields of the view with this GPU drawn, if it was not, and otherwise without."""
    uuids = [gpu.uuid for gpu in subject.gpus]
    rest = [gpu.uuid for gpu in subject.candidates
            if (gpu.uuid in uuids) != (gpu.uuid == uuid)]
    if subject.node is None:
        return {"hide": [gpu.uuid for gpu in subject.candidates if gpu.uuid not in rest]}
    usual = [gpu.uuid for gpu in subject.candidates[:MOST_GPUS]]
    return {"gpu": [] if rest == usual else rest}


def gpu_words(step: int, data: Sequence[int] | None, alerts: int, events: int, is_all: bool
              ) -> str:
    words = ["No data in this time." if data is None else words_of_step(step)]
    if alerts:
        words.append(plural(alerts, "alert"))
    if events:
        words.append(plural(events, "event") if is_all else
                     f"the newest {plural(events, 'event')}; zoom in to see all")
    return " · ".join(words)


def usage_words(facts: Item) -> str:
    if facts["known"] is None:
        return "No GPU was held in this time, or no data was recorded."
    energy = [] if facts["kwh"] is None else [f"{amount(facts['kwh'], 1)} kWh"]
    return " · ".join([
        words_of_step(facts["step"]), f"{amount(facts['hours'], 1)} GPU-hours, "
        f"{amount(facts['idle_hours'], 1)} of them idle", *energy])


def load_words(facts: Item, zone: tzinfo) -> str:
    busiest = facts["busiest"]
    if busiest is None:
        return "No data in this time."
    length = busiest["end"] - busiest["start"]
    name = "busiest hour" if length == HOUR_S else f"busiest {step_words(length)}"
    start, end = (minute_of(busiest[at], zone) for at in ("start", "end"))
    return (f"{words_of_step(facts['step'])} · {name} {start} to {end[-5:]}, "
            f"{amount(busiest['util_mean_pct'], 1)} % on average")


def words_of_step(step: int) -> str:
    return "every second" if step == 1 else f"steps of {step_words(step)}"

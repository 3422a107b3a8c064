"""The Fleet page: totals, controls, the heatmap and the Gpu drawer, still empty of numbers."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from dash import html
from dash.development.base_component import Component

from gpudeck.events import SEVERITIES
from gpudeck.metrics import ABSENCE_MEANING, COLUMNS, LIVE, SLOW, THROTTLE_REASONS, Absence, Metric

from ..fleet.colour_scales import ALARMS, is_count
from .parts import icon_button, marks
from .sections import ALL, SECTION_OF, SECTIONS, switch
from .time_bar import time_bar


@dataclass(frozen=True, slots=True)
class FleetTotal:
    """One number of the totals line. `seek` is the filter that a click on it sets."""

    key: str
    label: str
    meaning: str
    seek: str | None = None


TOTALS = (
    FleetTotal("nodes", "Nodes",
               "Nodes whose agent is heard from, of all that were ever connected."),
    FleetTotal("suspect", "suspect", "Nodes not heard from for 15 s.",),
    FleetTotal("silent", "silent", "Nodes not heard from for 60 s: their Gpus are offline here, "
               "whatever they do there.", "state:offline"),
    FleetTotal("gpus", "Gpus",
               "Gpus that are read and well, of all known. A board that is split by "
               "MIG is not counted, its instances are."),
    FleetTotal("stale", "stale",
               "The node is heard from, but its last reading of these Gpus is too "
               "old to be called live.", "state:stale"),
    FleetTotal("lost", "lost",
               "The driver has lost these Gpus; most often only a reset of the board "
               "or the machine brings them back.", "state:lost"),
    FleetTotal("offline", "offline", "Their node is silent, so nothing is known of them now.",
               "state:offline"),
    FleetTotal("free", "Free", "Gpus that are well and have no task on them.", "state:free"),
    FleetTotal("util", "Mean utilization",
               "Mean over the Gpus that are read now of the share of time "
               "in which any kernel ran. It is not the share of the chip in use: one tiny kernel "
               "can "
               "make it 100. SM activity and power are the better witnesses."),
    FleetTotal("power", "Power", "Sum over the Gpus that report it now; a dash when none does."),
    FleetTotal("memory", "Memory used", "Memory in use on the boards, of all they have; only Gpus "
               "that are read now."),
    FleetTotal("tasks", "Tasks", "Processes that use a Gpu now."),
    FleetTotal("throttled", "Throttled", "Gpus that heat or the hardware slows down now. "
               "Idle clocks and the power cap of a board at full load do not count."),
)

GROUPS = (("node", "node"), ("none", "nothing"), ("model", "model"), ("owner", "owner"),
          ("state", "state"))
SORTS = (("name", "name"), ("high", "highest first"), ("low", "lowest first"))

# The state patterns, in the order of the legend. A Gpu is offline when its node is silent.
STATES: dict[str, str] = {
    "stale": ABSENCE_MEANING[Absence.STALE],
    "lost": ABSENCE_MEANING[Absence.LOST],
    "offline": "its node is silent",
    "unsupported": ABSENCE_MEANING[Absence.UNSUPPORTED],
    "denied": ABSENCE_MEANING[Absence.DENIED],
    "unknown": ABSENCE_MEANING[Absence.UNKNOWN],
}

_FULL_FACTS = {
    "mem_total_bytes": "all of the board",
    "power_limit_w": "the power limit",
    "sm_clock_max_mhz": "the highest clock",
    "mem_clock_max_mhz": "the highest clock",
    "pcie_gen_max": "the link's best",
    "pcie_width_max": "the link's best",
    "power_limit_max_w": "the highest limit",
}

FILTER_EXAMPLES = (
    ("util<5 & mem>50%", "hardly working, memory held"),
    ("user:alice", "the Gpus of one owner"),
    ("state:lost | state:stale", "in trouble"),
    ("node:a100 & state:free", "free, on nodes with a100 in their name"),
    ("temp>80 | power>95%", "hot, or at their power limit"),
    ("rowspending=yes | eccbad>0", "with memory that fails"),
    ("lanes<100% & util>5", "at work behind a slow PCIe link"),
)


def fleet_page() -> Component:
    return html.Div(
        id="fleet",
        className="fleet loading",
        hidden="hidden",
        children=[
            html.H1("Fleet", className="unseen"),
            html.Div([_total(total) for total in TOTALS], className="totals", id="totals",
                     role="group", **marks(aria_label="Totals of the fleet")),
            _tools(),
            time_bar(),
            _legend(),
            html.Div([_stage(), _drawer()], className="floor"),
        ],
        **marks(data_metrics=json.dumps([_described(metric) for metric in ALL]),
                data_sections=json.dumps([[section.key, section.label] for section in SECTIONS]),
                data_reasons=json.dumps(list(THROTTLE_REASONS.items())),
                data_absence=json.dumps(_absence_meanings()),
                data_absences=json.dumps([absence.word for absence in Absence]),
                data_columns=json.dumps([metric.key for metric in COLUMNS])),
    )


def _described(metric: Metric) -> dict[str, object]:
    return {
        "key": metric.key, "unit": metric.unit, "label": metric.label, "meaning": metric.meaning,
        "full": metric.full, "fullFact": metric.full_fact,
        "fullWords": _FULL_FACTS.get(metric.full_fact or ""), "filterName": metric.filter_name,
        "section": SECTION_OF[metric.key], "scale": _scale(metric), "words": metric.words,
    }


def _scale(metric: Metric) -> str:
    if metric.key in ALARMS:
        return "alarm"
    return "count" if is_count(metric) else "share"


def _absence_meanings() -> dict[str, str]:
    return {absence.word: meaning for absence, meaning in ABSENCE_MEANING.items()}


def _total(total: FleetTotal) -> Component:
    ident = f"total-{total.key}"
    inside = [
        html.Span(total.label, className="total-label"),
        html.Span("…", className="total-value"),
        html.Span(total.meaning + (" Click to filter." if total.seek else ""),
                  className="tip", role="tooltip", id=f"{ident}-tip"),
    ]
    what = {"aria_describedby": f"{ident}-tip", "data_total": total.key}
    if total.seek is None:
        return html.Div(inside, className="total", tabIndex="0", role="group", **marks(**what))
    return html.Button(inside, className="total", type="button",
                       **marks(data_seek=total.seek, **what))


def _tools() -> Component:
    return html.Div(
        className="tools",
        children=[
            _metric_choice(),
            choice("group", "Group by", GROUPS),
            choice("sort", "Sort by", SORTS),
            html.Div(
                [
                    html.Label("Filter", htmlFor="filter"),
                    # Dash has no plain input element; deck.mjs puts it here.
                    html.Span(id="filter-place", className="filter-place"),
                    icon_button("filter-help", "help", "How to write a filter"),
                    html.Output("", id="filter-words", className="filter-words"),
                    _filter_help(),
                ],
                className="filter",
            ),
            html.Div(
                [html.Button("Map", id="view-map", type="button", **marks(aria_pressed="true")),
                 html.Button("Table", id="view-table", type="button",
                             **marks(aria_pressed="false"))],
                className="switch", role="group", **marks(aria_label="View"),
            ),
            html.Button(["Events ", html.Span("", id="events-count", className="events-count")],
                        id="events-button", className="events-button", type="button",
                        **marks(aria_expanded="false", aria_controls="events-panel")),
            _events(),
        ],
    )


def _metric_choice() -> Component:
    groups = [html.Optgroup([html.Option(metric.label, value=metric.key) for metric in metrics],
                            label=label) for label, metrics in switch()]
    return html.Div([html.Label("Show", htmlFor="metric"), html.Select(groups, id="metric")],
                    className="choice")


def _events() -> Component:
    severities = [(f"{severity}", f"{severity} and worse") for severity in SEVERITIES[1:]]
    return html.Section(
        id="events-panel",
        className="events-panel",
        hidden="hidden",
        tabIndex="-1",
        **marks(aria_labelledby="events-title"),
        children=[
            html.Header([
                html.H2("Recent events", id="events-title"),
                html.Button("", id="events-more", className="button small", type="button",
                            hidden="hidden"),
                choice("events-severity", "Show", [("", "all"), *severities]),
                icon_button("events-close", "close", "Close (Esc)"),
            ]),
            html.Div(id="events-list", className="events-list", tabIndex="0", role="region",
                     **marks(aria_label="List of events")),
        ],
    )


def choice(ident: str, label: str, options: Iterable[tuple[str, str]]) -> Component:
    return html.Div(
        [html.Label(label, htmlFor=ident),
         html.Select([html.Option(words, value=value) for value, words in options], id=ident)],
        className="choice",
    )


def _filter_help() -> Component:
    names, others = (", ".join(metric.filter_name for metric in metrics if metric.filter_name)
                     for metrics in (LIVE, SLOW))
    rows = [
        html.Div([html.Dt(html.Button(html.Code(text), className="example", type="button",
                                      **marks(data_example=text))), html.Dd(what)])
        for text, what in FILTER_EXAMPLES
    ]
    return html.Div(
        id="filter-popover",
        className="popover",
        hidden="hidden",
        role="dialog",
        **marks(aria_label="How to write a filter"),
        children=[
            html.Dl(rows),
            html.P(["Join with ", html.Code("&"), " ", html.Code("|"), " ", html.Code("!"),
                    " and ( ). Compare with ", html.Code("< <= > >= = !="), "."]),
            html.P(["Numbers: ", html.Code(names), "; each minute: ", html.Code(others), "."]),
            html.P(["Words: ", html.Code("node: model: user: gpu: task: state:"), ", where a state "
                    "is ok, stale, lost, offline, free or busy. A word alone is looked for in "
                    "nodes, models, users and UUIDs."]),
            html.P("A Gpu whose number is missing matches neither a comparison nor its opposite."),
        ],
    )


def _legend() -> Component:
    states = [
        html.Span([html.Canvas(width="16", height="16", **marks(data_state=state)), _words(state)],
                  className="legend-state", title=meaning)
        for state, meaning in STATES.items()
    ]
    states.insert(0, html.Span(
        [html.Canvas(width="16", height="16", **marks(data_state="alert")), "alert"],
        className="legend-state",
        title="a rule fires here: the whole corner where it is critical, else a hollow one"))
    return html.Div(
        className="legend",
        children=[
            html.Div(
                [html.Span("", id="scale-name", className="scale-name", tabIndex="0"),
                 html.Span("0 %", id="scale-low"), html.Span(id="scale", className="scale"),
                 html.Span("100 %", id="scale-high")],
                className="legend-scale",
            ),
            html.Div(states, className="legend-states"),
            html.Output("", id="selection", className="selection"),
            html.A("Compare", id="compare", href="/compare", className="button small",
                   hidden="hidden", title="Their timelines in one picture (c)"),
        ],
    )


def _words(state: str) -> str:
    return {"unsupported": "not supported"}.get(state, state)


def _stage() -> Component:
    return html.Section(
        id="stage",
        className="stage",
        **marks(aria_label="Gpus"),
        children=[
            html.Div(
                id="heatmap",
                className="heatmap",
                tabIndex="0",
                role="application",
                **marks(aria_roledescription="heatmap", aria_label="Heatmap of the fleet",
                        aria_describedby="heatmap-hint"),
                children=[
                    html.Canvas(id="cells", width="1", height="1", **marks(aria_hidden="true")),
                    html.Div(id="mark", className="mark", hidden="hidden"),
                ],
            ),
            html.P("Arrow keys move, Enter opens, Space selects. The table view has the same "
                   "numbers as text.", id="heatmap-hint", className="unseen"),
            html.Div("", id="spoken", className="unseen", **marks(aria_live="polite")),
            html.Div(id="table-view", className="table-view", hidden="hidden"),
            html.Div(className="skeleton", id="skeleton", **marks(aria_hidden="true")),
            html.Div(id="notice", className="notice", hidden="hidden"),
            html.Div(id="hover", className="hover", hidden="hidden", **marks(aria_hidden="true")),
        ],
    )


def _drawer() -> Component:
    return html.Aside(
        id="drawer",
        className="drawer",
        hidden="hidden",
        tabIndex="-1",
        **marks(aria_labelledby="drawer-title"),
        children=[
            html.Header(
                [
                    html.Div([html.H2("", id="drawer-title"), html.P("", id="drawer-subtitle")]),
                    icon_button("drawer-copy", "copy", "Copy a link to this Gpu"),
                    icon_button("drawer-close", "close", "Close (Esc)"),
                ]
            ),
            html.Nav([html.A("Timelines", id="drawer-lines", href="/"),
                      html.A("Its node", id="drawer-node", href="/")],
                     className="drawer-ways", **marks(aria_label="More of this Gpu")),
            html.Div(id="drawer-body", className="drawer-body", tabIndex="0", role="region",
                     **marks(aria_label="Details of the Gpu")),
            html.Div(id="drawer-then", className="drawer-body", hidden="hidden", tabIndex="0",
                     role="region", **marks(aria_label="The Gpu at that moment")),
        ],
    )

"""The Fleet page, still empty: what needs attention, controls, the heatmap, the GPU drawer."""

from dash.development.base_component import Component

from gpudeck.components import CARDS, AttentionStrip, LiveHeatmap, TimeBar
from gpudeck.markup import choice, icon_button, labelled, make, region
from gpudeck.measures.events import SEVERITIES
from gpudeck.measures.metrics import (
    ABSENCE_MEANING,
    COLUMNS,
    LIVE,
    SLOW,
    THROTTLE_REASONS,
    Absence,
    Metric,
)

from ..fleet.colour_scales import ALARMS, is_count
from . import machine_panels, parts
from .parts import Page
from .sections import ALL, SECTION_OF, SECTIONS, switch

# Preset filters: key, label, filter; that of "Mine" depends on the user and is set in the browser.
CHIPS = (
    ("wasted", "Idle", "state:wasted"), ("free", "Free", "state:free"), ("mine", "Mine", ""),
    ("throttled", "Throttled", "state:throttled"), ("failed", "Lost", "state:lost | state:error"),
)

GROUPS = (("node", "node"), ("none", "nothing"), ("model", "model"), ("owner", "owner"),
          ("state", "state"))
SORTS = (("name", "sorted by name"), ("high", "highest first"), ("low", "lowest first"))

# States for the legend, shown where they occur: label if other than the key, and meaning. A GPU is
# offline when its node is silent.
STATES: dict[str, tuple[str, str]] = {
    "wasted": ("idle, memory held", CARDS[0][2]),
    "critical": ("", "a critical alert is firing"),
    "warning": ("", "a warning is firing"),
    "paused": ("", "all tasks are paused; their memory stays allocated"),
    "leased": ("", "leased; dashed edge: used without the lease"),
    "closed": ("out of service", "cordoned or under repair: nothing new is assigned there"),
    "lost": ("", ABSENCE_MEANING[Absence.LOST]),
    "error": ("", "every driver query about it fails"),
    "stale": ("", ABSENCE_MEANING[Absence.STALE]),
    "offline": ("", "node silent"),
    "unsupported": ("not supported", ABSENCE_MEANING[Absence.UNSUPPORTED]),
    "denied": ("", ABSENCE_MEANING[Absence.DENIED]),
    "unknown": ("", ABSENCE_MEANING[Absence.UNKNOWN]),
}

_FULL_FACTS = {
    "mem_total_bytes": "capacity",
    "power_limit_w": "the power limit",
    "sm_clock_max_mhz": "the maximum clock",
    "mem_clock_max_mhz": "the maximum clock",
    "pcie_gen_max": "the link's maximum",
    "pcie_width_max": "the link's maximum",
    "power_limit_max_w": "the maximum limit",
}

FILTER_EXAMPLES = (
    ("util<5 & mem>50%", "nearly idle, memory held"),
    ("user:alice", "the GPUs of one owner"),
    ("state:lost | state:error | state:stale", "lost, failing or stale"),
    ("node:a100 & state:free", "free, on nodes with a100 in their name"),
    ("temp>80 | power>95%", "above 80 °C, or near the power limit"),
    ("rowspending=yes | eccbad>0", "with failing memory"),
    ("lanes<100% & util>5", "busy behind a slow PCIe link"),
)


def frame() -> Component:
    return make("div#fleet.fleet.loading", [
        make("h1.unseen", "Fleet"),
        AttentionStrip(driver="page"),
        _tools(),
        make("div.floor", [_stage(), _drawer()]),
        _legend(),
        TimeBar(driver="page")],
        hidden=True)


def metric_catalogue() -> dict[str, object]:
    """Return the facts about metrics that pages need."""
    return {
        "metrics": [_metric_facts(metric) for metric in ALL],
        "sections": [[section.key, section.label] for section in SECTIONS],
        "reasons": list(THROTTLE_REASONS.items()),
        "absence": {absence.word: meaning for absence, meaning in ABSENCE_MEANING.items()},
        "absenceWords": [absence.word for absence in Absence],
        "columns": [metric.key for metric in COLUMNS]}


def _metric_facts(metric: Metric) -> dict[str, object]:
    return {
        "key": metric.key, "unit": metric.unit, "label": metric.label, "meaning": metric.meaning,
        "full": metric.full, "fullFact": metric.full_fact,
        "fullWords": _FULL_FACTS.get(metric.full_fact or ""), "section": SECTION_OF[metric.key],
        "scale": _scale(metric), "words": metric.words,
    }


def _scale(metric: Metric) -> str:
    if metric.key in ALARMS:
        return "alarm"
    return "count" if is_count(metric) else "share"


def _tools() -> Component:
    groups = [make("optgroup", [make("option", metric.label, value=metric.key)
                                for metric in metrics], label=label) for label, metrics in switch()]
    live, slow = (", ".join(metric.filter_name for metric in metrics if metric.filter_name)
                  for metrics in (LIVE, SLOW))
    return make("div.tools", [
        labelled("metric", "Show", make("select#metric", groups)),
        choice("group", "Group by", GROUPS),
        choice("sort", "Sort by", SORTS),
        parts.filter_box("", parts.filter_help(
            "filter-popover", FILTER_EXAMPLES,
            "Join with `&` `|` `!` and ( ). Compare with `< <= > >= = !=`.",
            f"Numbers: `{live}`; each minute: `{slow}`.",
            "Words: `node: model: user: gpu: task: state: site:`; a state is ok, stale, lost, "
            "error, offline, free, busy, wasted, paused or throttled. A single word is searched in "
            "nodes, models, users and UUIDs.",
            "A GPU without the value matches neither a comparison nor its opposite.")),
        make("div#chips.chips", [
            make(f"button#chip-{key}.chip", [f"{words} ", make("b", "")] if seek else words,
                 data_seek=seek, aria_pressed="false") for key, words, seek in CHIPS],
            role="group", aria_label="Preset filters"),
        make("div.switch", [make("button#view-map", "Map", aria_pressed="true"),
                            make("button#view-table", "Table", aria_pressed="false")],
             role="group", aria_label="View"),
        make("button#events-button.events-button",
             ["Events ", make("span#events-count.events-count", "")],
             aria_expanded="false", aria_controls="events-panel"),
        _events()])


def _events() -> Component:
    severities = [("", "all"),
                  *((f"{severity}", f"{severity} and worse") for severity in SEVERITIES[1:])]
    return make("section#events-panel.events-panel", [
        make("header", [
            make("h2#events-title", "Recent events"),
            make("button#events-more.button.small", "", hidden=True),
            choice("events-severity", "Show", severities),
            icon_button("events-close", "close", "Close (Esc)")]),
        region("div#events-list.events-list", "List of events")],
        hidden=True, tabIndex="-1", aria_labelledby="events-title")


def _legend() -> Component:
    states = [make(f"span#legend-{state}.legend-state", [
        make("canvas", width="22", height="14", data_state=state), words or state],
        title=meaning, hidden=True) for state, (words, meaning) in STATES.items()]
    return make("div.legend", [
        make("div.legend-scale", [
            make("span#scale-name.scale-name", "", tabIndex="0"),
            make("span#scale-low", "0 %"), make("span#scale.scale"),
            make("span#scale-high", "100 %")]),
        region("div#legend-states.legend-states", "What is on the map", states),
        make("output#selection.selection", ""),
        make("a#compare.button.small", "Compare", href="/compare", hidden=True,
             title="Charts of the selected GPUs (c)")])


def _stage() -> Component:
    return make("section#stage.stage", [
        LiveHeatmap("heatmap", metric="util_pct", group="node", driver="page"),
        make("div#table-view.table-view", hidden=True),
        make("div#skeleton.skeleton", aria_hidden="true"),
        make("div#notice.notice", hidden=True),
        make("div#hover.hover", hidden=True, aria_hidden="true")], aria_label="GPUs")


def _drawer() -> Component:
    return parts.drawer(
        "drawer", "GPU",
        make("nav.drawer-ways", [make("a#drawer-lines", "Charts", href="/"),
                                 make("a#drawer-node", "Node", href="/")],
             aria_label="More about this GPU"),
        region("div#drawer-body.drawer-body", "Details of the GPU"),
        region("div#drawer-then.drawer-body", "The GPU at that time", hidden=True),
        ident="drawer")


PAGE = Page(
    "fleet", "Fleet", "fleet/fleet.mjs", frame,
    "Every GPU is a cell: its colour and number are the metric under “Show”, the bar is its "
    "memory. Amber is idle with memory held. Click a cell for the details of its GPU.", (
        ("/", "go to the filter"),
        ("← ↑ ↓ →", "move in the heatmap when it has the focus"),
        ("Home  End", "the first and the last GPU"),
        ("Enter", "open the selected GPU"),
        ("Space", "add to or remove from the selection"),
        ("Shift + click", "select from the last one to this one"),
        ("Ctrl + click", "add to or remove from the selection"),
        ("o", "charts of the open GPU"),
        ("c", "compare the selected GPUs"),
        ("v", "heatmap or table"),
        ("↑  ↓", "next or previous metric of the open GPU, with its meaning"),
        ("b", "go to the time bar"),
        ("←  →", "on the time bar: one step back or forward, with Shift ten"),
        ("Home  End", "on the time bar: oldest data, live"),
        ("PgUp  PgDn", "on the time bar: previous mark, next mark"),
        ("Space", "on the time bar: play or pause"),
        ("Esc", "close, then clear the selection, then clear the filter")), "/",
    ("f", "the fleet"), is_live=True, reading=machine_panels.READING)

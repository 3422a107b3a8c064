"""The GPU, Node and Compare pages: one frame, filled by assets/charts/timelines.mjs."""

from dash.development.base_component import Component

from gpudeck.components import RANGES, AlertLane, LiveTimeline, TimeBar
from gpudeck.markup import make, region

from . import machine_panels
from .parts import Page, problem

SECONDS_KEPT_S = 86_400  # older history is on the History page, in minutes


def frame() -> Component:
    return make("div#lines.lines-page", [
        make("header.lines-head", [
            make("nav.crumbs", [make("a#lines-back", "Fleet", href="/"),
                                make("a#lines-node", "", hidden=True)],
                 aria_label="Breadcrumb"),
            make("div.lines-name", [make("h1#lines-title", "…"), make("p#lines-subtitle", "")]),
            make("button#lines-live.button.small", "Back to live", hidden=True),
            make("a#lines-past.button.small", "History", href="/history",
                 title="Up to 90 days back (h)"),
            make("div#lines-spans.switch", role="group", aria_label="How far back")]),
        make("div#lines-now.lines-now", [
            make("p#lines-state.drawer-state", "", role="status"),
            make("div#lines-acts.lines-acts", role="group", aria_label="Actions on the node")],
            hidden=True),
        problem("lines"), make("ul#lines-nearest.nearest", hidden=True),
        make("div.lines-floor", [
            region("div.lines-main", "Charts", [
                make("div#lines-idle"),
                make("div#lines-gpus.lines-gpus", hidden=True),
                AlertLane("lines-lane", driver="page"),
                LiveTimeline("lines-charts", metric=None, driver="page"),
                make("p#lines-never.lines-never", "")]),
            make("aside#lines-side.lines-side", tabIndex="0", data_unsettled="",
                 aria_label="Jobs, health and facts")]),
        TimeBar(ranges=[row for row in RANGES if int(row[0]) <= SECONDS_KEPT_S], driver="page")],
        hidden=True, data_unsettled="")


PAGE = Page(
    "lines", "Charts", "charts/timelines.mjs", frame,
    "Each chart shows one metric or a few related ones over the same time. A gap in a line means "
    "no reading. Dashed: limits; shaded: throttled; notches on top: events. The lane above "
    "the charts shows alerts; a hairline in the metric's chart marks where an alert started.", (
        ("←  →", "earlier, later"),
        ("+  -", "zoom in, zoom out; or drag over a chart"),
        ("b", "go to the time bar"),
        ("End", "back to live"),
        ("h", "history, up to 90 days back"),
        ("↑  ↓", "next or previous metric in the side panel, with its meaning"),
        ("Esc", "back to live, then to the fleet")),
    addresses=r"^/(?:node/[^/]+|gpu/[^/]+(?:/[^/]+)?|compare)$", under="/",
    is_live=True, reading=machine_panels.READING)

"""Live components of pages, ours and a site's (docs/extend.md). Each says what to
show; `assets/` draws it from the hub's socket. No live number passes through a Dash callback."""

from collections.abc import Iterable
from typing import Any, Literal

from dash.development.base_component import Component

from gpudeck.markup import choice, icon_button, make, markup, region, traits_of

# A component is driven by its own properties, or by the module of its page.
Driver = Literal["own", "page"]

# What needs attention, and what is free to use. Key, label, meaning.
CARDS = (
    ("wasted", "Wasted", "A task holds 1 GiB of memory or more, and for ten minutes the GPU was "
     "under 5 % busy. GPU-hours: idle since midnight, counted as in Reports."),
    ("free", "Free", "Available: in service, not leased, and nothing uses it."),
    ("attention", "Needs attention", "Firing critical alerts and warnings. Silenced and info "
     "alerts are not counted."),
    ("queue", "Queue", "Claims waiting for GPUs of the pool."),
)
SUMMARY = ("Nodes reporting, of all enrolled nodes. Utilization: the share of time in which any "
           "kernel ran, average over all GPUs that report; one tiny kernel can make it 100 %. SM "
           "activity and power show better how busy a GPU is.")
RANGES = (("3600", "1 hour"), ("21600", "6 hours"), ("86400", "24 hours"), ("604800", "7 days"))


class BrowserComponent(Component):
    """A component that the class of the same name in `assets/dash_components.js` draws."""

    PROPS = "id"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._namespace, cls._type, cls._prop_names = (
            "gpudeck_components", cls.__name__, cls.PROPS.split())
        cls._children_props, cls._base_nodes = [], ["children"]
        cls._valid_wildcard_attributes = cls.available_wildcard_properties = ["data-", "aria-"]

    def __init__(self, **props: Any) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            **{name: value for name, value in props.items() if value is not None})


class LiveComponent(BrowserComponent):
    """Fixed markup in which a module draws: the component's own, in `assets/components/`, or one of
    the page, which then says what it shows."""

    PROPS = "id tag traits inside driver"

    def __init__(self, root: Component, driver: Driver, **props: Any) -> None:
        tag, traits, inside = traits_of(root)
        super().__init__(tag=tag, traits=traits, inside=markup(inside), driver=driver, **props)


class LiveHeatmap(LiveComponent):
    """The fleet's GPUs in the colours of a metric, as on the Fleet page. `group`: node, model,
    owner, state or none. `clicked` is `{"uuid", "host", "index", "n"}` of the last click; `n`
    counts them, so that the same GPU may be clicked twice."""

    PROPS = f"{LiveComponent.PROPS} metric filter group height clicked"

    def __init__(self, id: Any = None, metric: str = "util_pct", filter: str = "",
                 group: str = "node", height: int = 320, driver: Driver = "own") -> None:
        hint = f"{id}-hint" if isinstance(id, str) else "heatmap-hint"
        canvas = make("div.heatmap", [
            make("canvas", width="1", height="1", aria_hidden="true"),
            make("div.mark", hidden=True)],
            tabIndex="0", role="application", aria_roledescription="heatmap",
            aria_label="Heatmap of the fleet", aria_describedby=hint)
        words = make(f"p#{hint}.unseen", "Arrow keys move, Enter opens, Space selects. The table "
                     "view has the same numbers as text." if driver == "page" else
                     "Arrow keys move, Enter opens.")
        # The page's initial state, or the space that is reserved from the start.
        more = {"data_metric": metric, "data_group": group} if driver == "page" else {
            "style": {"minHeight": height + 30}}
        super().__init__(make("div.live-heatmap", [
            make("div.live-stage", canvas), words,
            make("div.live-spoken.unseen", "", aria_live="polite")], **more), driver, id=id,
            metric=metric, filter=filter, group=group, height=height)


class LiveTimeline(LiveComponent):
    """A chart of one metric of some GPUs, by UUID, each second: the last `minutes`, at most 60.
    `metric` None: a chart for each metric that they report."""

    PROPS = f"{LiveComponent.PROPS} gpus metric minutes"

    def __init__(self, id: Any = None, gpus: Iterable[str] = (),
                 metric: str | None = "util_pct", minutes: int = 5,
                 driver: Driver = "own") -> None:
        own = {"style": {"minHeight": 240}} if driver == "own" else {}
        super().__init__(make("div.live-timeline", **own), driver, id=id, gpus=list(gpus),
                         metric=metric, minutes=minutes)


class LiveTable(LiveComponent):
    """The GPUs that a filter picks, by the metric, the highest first; at most `limit`. `clicked`
    as of LiveHeatmap."""

    PROPS = f"{LiveComponent.PROPS} metric filter limit clicked"

    def __init__(self, id: Any = None, metric: str = "util_pct", filter: str = "",
                 limit: int = 20, driver: Driver = "own") -> None:
        own = {"style": {"minHeight": 28}} if driver == "own" else {}
        super().__init__(make("div.live-table", **own), driver, id=id, metric=metric,
                         filter=filter, limit=limit)


class Stat(LiveComponent):
    """A total of the fleet: free, gpus, tasks, throttled, lost, util, power or memory."""

    PROPS = f"{LiveComponent.PROPS} total label"

    def __init__(self, id: Any = None, total: str = "free", label: str = "") -> None:
        super().__init__(make("div.site-stat", style={"minHeight": 52}), "own", id=id,
                         total=total, label=label)


class AttentionStrip(LiveComponent):
    """Four numbers for what needs attention and what is free to use, each with its list; and a line
    for what is well. One per page. `clicked` as of LiveHeatmap, of a GPU in a list."""

    PROPS = f"{LiveComponent.PROPS} clicked"

    def __init__(self, id: Any = None, driver: Driver = "own") -> None:
        cards = [make(f"button#card-{key}.card", [
            make("span.card-label", label), make("span.card-figure", "…"),
            make("span.card-detail", "")], data_card=key, data_tip=meaning, aria_expanded="false",
            aria_controls="attention-panel") for key, label, meaning in CARDS]
        lists = make("section#attention-panel.events-panel.attention-panel", [
            make("header", [
                make("h2#attention-title", ""), make("a#attention-more.button.small", ""),
                icon_button("attention-close", "close", "Close (Esc)")]),
            region("div#attention-list.events-list", "List")],
            hidden=True, tabIndex="-1", aria_labelledby="attention-title")
        super().__init__(make("div.attention", [
            make("div#strip.strip", cards, role="group", aria_label="Needs attention"),
            make("div.summary-line", [
                make("p#summary.summary", "…", tabIndex="0", data_tip=SUMMARY),
                make("a#own-paused.own-paused", "", hidden=True)]),
            make("ul#sites.sites", hidden=True, aria_label="Sites"), lists]), driver, id=id)


class AlertLane(LiveComponent):
    """The alerts of the last `minutes`: a strip for each rule, what and where on hover."""

    PROPS = f"{LiveComponent.PROPS} minutes"

    def __init__(self, id: Any = None, minutes: int = 60, driver: Driver = "own",
                 hidden: bool = False) -> None:
        super().__init__(region("section.alert-lane", "Alerts over time", hidden=hidden), driver,
                         id=id, minutes=minutes)


class TimeBar(LiveComponent):
    """The selected moment, over the fleet's load. One per page. `at`: in UTC seconds; null: live.
    `ranges`: seconds and words of the spans to choose from."""

    PROPS = f"{LiveComponent.PROPS} ranges at"

    def __init__(self, id: str = "time-bar", ranges: Iterable[tuple[str, str]] = RANGES,
                 driver: Driver = "own") -> None:
        super().__init__(make("section.time-bar", [
            make("button#time-live.time-live", "Live", aria_pressed="true",
                 title="Back to live (End)"),
            make("button#time-play.time-play", "Play", title="Play or pause (Space)"),
            choice("time-speed", "Speed", [("60", "60x")], ".time-choice", "label.unseen"),
            make("div.time-track", [
                make("canvas#time-load.time-load", aria_hidden="true"),
                make("div#time-marks.time-marks", aria_hidden="true"),
                # Dash has no plain input element; the module puts it here.
                make("div#time-slider-place.time-slider-place"),
                make("div#time-hover.time-hover", "", hidden=True, aria_hidden="true")]),
            make("p#time-words.time-words", ""),
            choice("time-range", "Span of the time bar", ranges, ".time-choice", "label.unseen"),
            make("div#time-spoken.unseen", "", aria_live="polite")], aria_label="Time"),
            driver, id=id, ranges=[[*pair] for pair in ranges])

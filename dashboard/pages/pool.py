"""The Pool page: its frame; assets/pool/pool.mjs fills it."""

from dash.development.base_component import Component

from gpudeck.markup import make

from .components import PoolWeek
from .parts import Page, problem, switch

ROWS = (("node", "By node"), ("gpu", "By GPU"))


def frame() -> Component:
    week = [make("p#pool-how.pool-how", "To reserve GPUs, click a node's name or drag over its "
                 "hours; with a finger, hold before you drag.", hidden=True),
            PoolWeek("pool-calendar", rows="node")]
    unavailable = make("details#pool-unavailable.pool-unavailable", [
        make("summary", ""), make("ul")], hidden=True)
    return make("div#pool.pool-page", [
        make("header.pool-head", [
            make("div", [make("h1", "Pool"), make("p#pool-words", "", role="status")]),
            make("button#pool-ask.button.first", "Request GPUs …", hidden=True)]),
        problem("pool"),
        make("div#pool-off.pool-off", hidden=True),
        make("div#pool-there.pool-there", [
            _section("free", "Free now", [make("ul#pool-free.pool-free"), unavailable]),
            make("div.pool-columns", [
                make("div", [_section("waiting", "Queue", [make("div#pool-waiting")]),
                             _section("reserved", "Reservations", [make("div#pool-reserved")])]),
                _section("held", "Leases", [make("div#pool-held")], make("span#pool-find"))]),
            _section("week", "Week", week, *_week()),
            _section("strategy", "Order and placement", [make("div#pool-strategy.pool-strategy")])],
            hidden=True)], hidden=True, data_unsettled="")


def _section(key: str, title: str, body: list[Component], *extra: Component) -> Component:
    return make(f"section#pool-{key}-section.pool-section", [
        make("div.pool-title", [make(f"h2#pool-{key}-title", title), *extra]), *body],
        aria_labelledby=f"pool-{key}-title")


def _week() -> list[Component]:
    steps = [("before", "←", "Previous week"), ("today", "Today", "Today, this week"),
             ("after", "→", "Next week")]
    return [make("span#pool-week.pool-week", "", role="status"),
            make("div.pool-weeks", [make(f"button#pool-{key}.button.small", words, title=title,
                                         aria_label=title) for key, words, title in steps]),
            switch("pool-rows", "Rows of the week", "rows", ROWS)]


PAGE = Page(
    "pool", "Pool", "pool/pool.mjs", frame,
    "GPUs assigned before tasks run: free GPUs, leases, reservations and the queue. A lease ends "
    "with its command; a lease without a command is returned if it stays unused.", (
        ("n", "request GPUs"),
        ("/", "find an owner, a node or a command"),
        ("[  ]", "previous week, next week"),
        ("←  →", "in the week: previous or next lease of a node")), "/pool", ("l", "the pool"))

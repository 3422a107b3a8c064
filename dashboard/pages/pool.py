"""The Pool page: what is free, who waits, who holds what until when, and the week ahead.
assets/pool/pool.mjs has what is dragged over the week."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from dash.development.base_component import Component
from msgspec import Meta

from gpudeck.client.hub import Client, typed
from gpudeck.markup import make

from ..access.policy import Role
from ..pool.views import (
    ClaimView,
    LeaseView,
    ModelView,
    PoolNodeView,
    PoolView,
    SimulationView,
    StrategyList,
    StrategyView,
)
from . import pool_strategy
from .components import PoolWeek
from .parts import Page, copyable, problem, switch
from .pool_orders import offers_request, request
from .pool_tables import PoolTables, fact_lines
from .pool_week import PoolWeekView, RowsBy
from .pool_words import gpus_of, is_match, is_reserved, summary
from .reading import Parts, Reading, View, Viewer, viewer
from .reports_table import natural
from .words import amount, plural

EVERY_S = 5.0
FIRST_ROWS, MOST_ROWS = 10, 200
MOST_TROUBLES = 100
ROWS = (("node", "By node"), ("gpu", "By GPU"))
LINE_FOR_NODE = "gpudeck agent --pool-socket /run/gpudeck/pool.sock"
T = TypeVar("T", LeaseView, ClaimView)


class PoolPageView(View):
    """Choice of the rows and the week. `open`: the lease or reservation whose dialog is opened,
    once; `simulation`: what came of one, as the browser had it from the hub, once."""

    find: Annotated[str, Meta(max_length=256)] = ""
    rows: RowsBy = "node"
    week: Annotated[int, Meta(ge=0, le=520)] = 0
    all_waiting: bool = False
    all_leases: bool = False
    open: Annotated[str, Meta(max_length=512)] = ""
    strategy: Annotated[str, Meta(max_length=64)] = ""
    simulation: Annotated[str, Meta(max_length=50_000)] = ""

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset(("open", "strategy", "simulation"))


@dataclass(frozen=True, slots=True)
class PoolNow:
    """The pool as the hub answered it; `nodes` in the order of their names."""

    pool: PoolView
    nodes: Sequence[PoolNodeView]
    leases: Sequence[LeaseView]
    claims: Sequence[ClaimView]
    strategies: Sequence[StrategyView]


def frame() -> Component:
    week = [make("p#pool-how.pool-how", "To reserve GPUs, click a node's name or drag over its "
                 "hours; with a finger, hold before you drag.", hidden=True),
            PoolWeek("pool-calendar"), make("p#pool-week-more.pool-more", hidden=True)]
    columns = make("div.pool-columns", [
        make("div", [_section("waiting", "Queue", [make("div#pool-waiting")]),
                     _section("reserved", "Reservations", [make("div#pool-reserved")])]),
        _section("held", "Leases", [make("div#pool-held")], make("span#pool-find"))])
    return make("div#pool.pool-page", [
        make("header.pool-head", [
            make("div", [make("h1", "Pool"), make("p#pool-words", "", role="status")]),
            make("button#pool-ask.button.first", "Request GPUs …", hidden=True)]),
        problem("pool"),
        make("div#pool-off.pool-off", hidden=True),
        make("div#pool-there.pool-there", [
            _section("free", "Free now", [
                make("ul#pool-free.pool-free"),
                make("details#pool-unavailable.pool-unavailable", hidden=True)]),
            columns, _section("week", "Week", week, *_week()),
            _section("strategy", "Order and placement", [
                make("div.pool-strategy", pool_strategy.frame())])],
            hidden=True)], hidden=True, data_unsettled="")


def _section(key: str, title: str, body: list[Component], *extra: Component) -> Component:
    return make(f"section#pool-{key}-section.pool-section", [
        make("div.pool-title", [make(f"h2#pool-{key}-title", title), *extra]), *body],
        aria_labelledby=f"pool-{key}-title")


def _week() -> list[Component]:
    steps = [make(f"button#pool-{key}.button.small", "") for key in ("before", "today", "after")]
    return [make("span#pool-week.pool-week", "", role="status"), make("div.pool-weeks", steps),
            switch("pool-rows", "Rows of the week", "rows", ROWS)]


def answer(client: Client, view: PoolPageView, now: float) -> Parts:
    hub = client.hub
    nodes = typed(list[PoolNodeView], hub.all("pool/nodes"))
    state = PoolNow(
        typed(PoolView, hub.get("pool")), sorted(nodes, key=lambda node: natural(node.host)),
        typed(list[LeaseView], client.leases()), typed(list[ClaimView], client.claims()),
        typed(StrategyList, hub.get("pool/strategies")).items)
    person = viewer(client)
    alternatives = pool_strategy.unused_strategies(state.strategies)
    if view.strategy not in alternatives:
        view.strategy = next(iter(alternatives), "")
    return (parts_of(state, view, person, now) | _dialog(state, view, person, now)
            | _comparison(view))


def parts_of(state: PoolNow, view: PoolPageView, person: Viewer, now: float) -> Parts:
    """Return the parts of the page. Pure."""
    pool, is_there = state.pool, state.pool.nodes > 0
    offers = offers_request(person, pool.is_on and is_there)
    order = request(pool.models, [node.host for node in state.nodes], person, view.zone, now)
    ask = make("button#pool-ask.button.first", "Request GPUs …", data_shortcut="n",
               data_form=order)
    reservations = [claim for claim in state.claims if is_reserved(claim, now)]
    tables = PoolTables(person, gpus_of(state.nodes), now, view.zone)
    return {
        "@every": EVERY_S, "pool-ask": ask if offers else False, "pool-there": is_there,
        "pool-words": summary(pool, len(reservations)) if is_there else "",
        "pool-off": _off(pool), "pool-free": [_model(model) for model in pool.models],
        "pool-unavailable": _unavailable(
            state.nodes, {uuid for lease in state.leases for uuid in lease.gpus}),
        **_tables(state, view, tables, reservations),
        **PoolWeekView(view.week, view.rows, offers, person, tables.gpus, now, view.zone).parts(
            state.nodes, state.leases, state.claims, view.find),
        **pool_strategy.policy_parts(pool, state.strategies, person.may(Role.OPERATOR))}


def _tables(state: PoolNow, view: PoolPageView, tables: PoolTables,
            reservations: Sequence[ClaimView]) -> Parts:
    waiting = [claim for claim in state.claims if not is_reserved(claim, tables.now)]
    matches = [lease for lease in state.leases if is_match(lease, tables.gpus, view.find)]
    leases = sorted(matches, key=lambda lease: (
        lease.owner not in tables.person.unix_names, lease.until, lease.host))
    empty = "No lease matches." if state.leases else "No leases."
    return {
        "pool-waiting": _first(waiting, "all_waiting", view.all_waiting or bool(view.find),
                               tables.waiting),
        "pool-reserved": tables.reserved(sorted(
            reservations, key=lambda claim: claim.starts_at or 0.0)),
        "pool-reserved-section": bool(reservations),
        "pool-held": _first(leases, "all_leases", view.all_leases or bool(view.find),
                            lambda first: tables.leases(first, empty=empty)),
        "pool-find": make(
            "input.find", type="search", data_view="find", data_shortcut="/",
            placeholder="Find an owner, a node, a command", autoComplete="off", spellCheck="false",
            maxLength="256", aria_label="Find an owner, a node or a command"
        ) if state.leases else None}


def _first(items: Sequence[T], field: str, is_whole: bool,
           draw: Callable[[Sequence[T]], Component]) -> list[Component]:
    """Return the table of the first items, or of as many as a page can have, and the way to the
    others."""
    most = MOST_ROWS if is_whole else FIRST_ROWS
    table = draw(items[:most])
    if len(items) <= most:
        return [table]
    more: Any = f"The first {MOST_ROWS} of {amount(len(items))}." if is_whole else make(
        "button.button.small", f"Show all {amount(len(items))}", data_set={field: True},
        data_step="false")
    return [table, make("p.pool-more", more)]


def _off(pool: PoolView) -> list[Component] | None:
    """Return why there is nothing to be had, and what to do about it."""
    if pool.is_on and pool.nodes:
        return None
    if pool.is_on:
        return [make("h2", "No node is in the pool yet"),
                make("p", "A node joins the pool when its agent has a socket for “gpudeck run”. "
                     "Add this to its other flags:"),
                copyable(LINE_FOR_NODE, "the line")]
    return [make("h2", "The pool is off"),
            make("p", "The pool assigns GPUs before a task runs, for sites without a scheduler. "
                 "Nothing changes until it is switched on, on the hub and on each node that "
                 "joins, next to their other flags:"),
            copyable("gpudeck hub --pool on", "the line for the hub"),
            copyable(LINE_FOR_NODE, "the line for a node"),
            make("p", "Or by environment variables: GPUDECK_POOL=on, "
                 "GPUDECK_POOL_SOCKET=/run/gpudeck/pool.sock.")]


def _model(model: ModelView) -> Component:
    parts = [("is-free", model.free), ("is-leased", model.leased),
             ("is-unavailable", model.unavailable)]
    rest = [f"{amount(model.leased)} leased",
            *([f"{amount(model.unavailable)} not available"] if model.unavailable else [])]
    return make("li", [
        make("h3", model.model, title=model.model),
        make(f"p.pool-figure{'' if model.free else '.none-free'}", [
            make("strong", amount(model.free)), f" of {amount(model.gpus)} free"]),
        make("div.pool-bar", [make(f"i.{name}", style={"flex-grow": count})
                              for name, count in parts if count], aria_hidden="true"),
        make("p.pool-rest", " · ".join(rest))], data_key=model.model)


def _unavailable(nodes: Sequence[PoolNodeView], leased: Collection[str]
                 ) -> list[Component] | None:
    """Return the GPUs that the bars count as not available, and why; then those that they count as
    leased, and what is wrong with these."""
    troubles = [(gpu.uuid in leased, f"{node.host} · GPU {gpu.place}", gpu.trouble)
                for node in nodes for gpu in node.gpus if gpu.trouble]
    troubles.sort(key=lambda trouble: trouble[0])
    leased_count = sum(is_leased for is_leased, _, _ in troubles)
    counts = [f"{plural(len(troubles) - leased_count, 'GPU')} not available"
              if leased_count < len(troubles) else "",
              f"{plural(leased_count, 'leased GPU')} with a problem" if leased_count else ""]
    return [make("summary", " · ".join(filter(None, counts))),
            make("ul", [make("li", [make("strong", f"{name}, leased" if is_leased else name),
                                    f": {why}"])
                        for is_leased, name, why in troubles[:MOST_TROUBLES]])
            ] if troubles else None


def _dialog(state: PoolNow, view: PoolPageView, person: Viewer, now: float) -> Parts:
    """Return the dialog of a lease or a reservation that was pressed in the week."""
    item_id, view.open = view.open, ""
    if item_id == "":
        return {}
    tables = PoolTables(person, gpus_of(state.nodes), now, view.zone)
    for lease in state.leases:
        if lease.id == item_id:
            return {"@dialog": ["Lease", *_facts(
                fact_lines(tables.lease_facts(lease)), tables.lease_buttons(lease))]}
    for claim in state.claims:
        if claim.id == item_id:
            return {"@dialog": ["Reservation", *_facts(
                fact_lines(tables.claim_facts(claim)), tables.claim_buttons(claim))]}
    return {}


def _facts(lines: list[Component], buttons: list[Component]) -> list[Component]:
    return [make("dl.pool-facts", lines), make("div.pool-acts", buttons)]


def _comparison(view: PoolPageView) -> Parts:
    """Return what came of a simulation, with the answer after it; it then stays."""
    simulation, view.simulation = view.simulation, ""
    try:
        return {"pool-outcome": pool_strategy.outcome(
            msgspec.json.decode(simulation, type=SimulationView))}
    except (msgspec.MsgspecError, UnicodeError):
        return {}


PAGE = Page(
    "pool", "Pool", "pool/pool.mjs", frame,
    "GPUs assigned before tasks run: free GPUs, leases, reservations and the queue. A lease ends "
    "with its command; a lease without a command is returned if it stays unused.", (
        ("n", "request GPUs"),
        ("/", "find an owner, a node or a command"),
        ("[  ]", "previous week, next week"),
        ("←  →", "in the week: previous or next lease of a node")), "/pool", ("l", "the pool"),
    reading=Reading(PoolPageView, answer, EVERY_S, events=("lease", "claim")))

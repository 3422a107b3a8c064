"""The Audit log page: requests, their authors and their outcomes."""

from typing import Annotated, Any, ClassVar, Literal

from dash.development.base_component import Component
from msgspec import Meta

from gpudeck.client.hub import PAGE as MOST_PER_REQUEST
from gpudeck.client.hub import Client
from gpudeck.errors import CommandError
from gpudeck.markup import choice, labelled, make

from ..access.policy import Role
from .audit_table import (
    NO_MATCH,
    NONE_YET,
    count_words,
    host_options,
    kind_options,
    newest_steps,
    no_verdict,
    outcome_options,
    table,
    verdict,
)
from .figures import Item
from .graphs import AUDIT, AnsweredFigure
from .parts import READ_PAGE, Page, problem
from .reading import Parts, Reading, View, viewer

# The most usual spans; the API accepts any.
SPANS = (("", "any time"), ("3600", "the last hour"), ("86400", "the last day"),
         ("604800", "the last week"))
AUTHORS = (("", "people and rules"), ("all", "the system, too"))
EVERY_S = 10.0
ENTRIES = 100  # shown at first; each "Load older" doubles them
MOST_SHOWN = 800  # older ones than these are a page further on
MOST_REQUESTS = 5
OVERVIEW_PX = 150
OVERVIEW_STEP_S = 300  # the overview is drawn again when its end has moved on by this
Word = Annotated[str, Meta(max_length=128)]
Choice = Annotated[str, Meta(max_length=64)]


class AuditView(View):
    """Entries to show: `before` this number, 0: the newest; `open`: numbers of those with details;
    `verify`: verify the whole chain, once."""

    actor: Word = ""
    node: Word = ""  # host name or key
    kind: Choice = ""
    outcome: Choice = ""
    span: Literal["", "3600", "86400", "604800"] = ""
    system: Literal["", "all"] = ""
    task: Word = ""
    before: Annotated[int, Meta(ge=0, lt=10**15)] = 0
    shown: Annotated[int, Meta(ge=1, le=MOST_SHOWN)] = ENTRIES
    open: Annotated[tuple[int, ...], Meta(max_length=50)] = ()
    verify: bool = False

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset(("verify",))


def frame() -> Component:
    return make("div#audit.audit-page", [
        make("header.page-head", [
            make("div", [make("h1", "Audit log"), make(
                "p", "Every action and change, including refused attempts, in a chain of hashes. "
                "Nothing is done that cannot be logged.")]),
            make("div.page-acts", [
                make("button#audit-verify.button", "Verify", hidden=True,
                     data_set={"verify": True}),
                make("a#audit-export.button", "Export", hidden=True, href="/api/v1/audit/export",
                     download="gpudeck-audit.jsonl")])]),
        make("div.tools.audit-tools", [
            _entry("actor", "Who", "any name", data_shortcut="/"),
            _entry("node", "Node", "any node", list="audit-hosts"),
            choice("audit-kind", "What", [("", "anything")], data_view="kind"),
            choice("audit-outcome", "Outcome", [("", "any")], data_view="outcome"),
            choice("audit-span", "When", SPANS, data_view="span"),
            choice("audit-system", "By", AUTHORS, data_view="system"),
            make("output#audit-words.filter-words", "")], role="search"),
        make("div#audit-verification", role="status", hidden=True),
        problem("audit"),
        make("section#audit-overview.audit-overview", [AnsweredFigure(AUDIT)],
             aria_label="Entries over time, by outcome", hidden=True),
        make("span#audit-figure", hidden=True),
        make("div#audit-place.page-place"),
        make("datalist#audit-hosts")], hidden=True, data_unsettled="")


def _entry(name: str, label: str, hint: str, **traits: str) -> Component:
    control = make(f"input#audit-{name}", type="search", placeholder=hint, maxLength="128",
                 autoComplete="off", autoCapitalize="none", spellCheck="false", data_view=name,
                 **traits)
    return labelled(f"audit-{name}", label, make("span.audit-field", control))


def answer(client: Client, view: AuditView, now: float) -> Parts:
    person = viewer(client)
    if not person.may(Role.OPERATOR):
        return closed()
    filters = filters_of(view, node_id(client, view.node))
    since = None if view.span == "" else int(now) - int(view.span)
    entries, following = read(client, filters, since, view.before, view.shown)
    parts = parts_of(view, entries, following, now) | overview(filters, view.span, now)
    parts |= dict.fromkeys(("audit-verify", "audit-export"), person.may(Role.ADMIN))
    if view.verify:  # once: the answers after it leave the verdict as it is
        view.verify = False
        parts["audit-verification"] = _verdict(client)
    return parts


def _verdict(client: Client) -> Component:
    try:
        return verdict(client.audit_verdict())
    except CommandError as error:
        return no_verdict(str(error))


def node_id(client: Client, name: str) -> str:
    """Return a node's key: people know it by its host, the log by its key."""
    nodes = client.hub.items("nodes", id=name) if name else []
    return nodes[0]["id"] if len(nodes) == 1 else name


def read(client: Client, filters: dict[str, str], since: int | None, before: int, most: int
         ) -> tuple[list[Item], str | None]:
    """Return up to `most` entries, the newest first, and the cursor of the following ones."""
    entries: list[Item] = []
    cursor = str(before) if before else None
    for _ in range(MOST_REQUESTS):
        query = filters | {"limit": str(min(most - len(entries), MOST_PER_REQUEST))}
        if since is not None:
            query["since"] = str(since)
        if cursor is not None:
            query["cursor"] = cursor
        page = client.audit(**query)
        entries += page["items"]
        cursor = page["next"]
        if cursor is None or len(entries) == most:
            break
    return entries, cursor


def filters_of(view: AuditView, node: str) -> dict[str, str]:
    """Return the filters of `GET audit`. People come first: what the system does for itself is
    there on demand. Pure."""
    is_system = view.system == "all" or view.kind != ""
    filters = {"actor": view.actor.strip(), "kind": view.kind, "task": view.task, "node": node,
               "system": "" if is_system else "false"}
    return {name: value for name, value in filters.items() if value}


def parts_of(view: AuditView, entries: list[Item], following: str | None, now: float) -> Parts:
    """Return the list and the words about it: of a command its newest step, all steps only where
    the system's entries are shown too. The hub does not look for outcomes: the page does, in the
    entries that it has. Pure."""
    every, entries = entries, entries if view.system == "all" else newest_steps(entries)
    matching = [entry for entry in entries if view.outcome in ("", entry["outcome"])]
    is_filtered = any((view.actor, view.node, view.kind, view.outcome, view.span, view.system,
                       view.task, view.before))
    return {
        "audit-words": count_words(len(matching), len(entries), following is not None,
                                   view.before == 0),
        "audit-kind": kind_options(entries, view.kind),
        "audit-outcome": outcome_options(entries, view.outcome),
        "audit-hosts": host_options(entries),
        "audit-place": [
            table(matching, {*view.open}, now, view.zone, every),
            make("p.none", NO_MATCH if is_filtered else NONE_YET, hidden=bool(matching),
                 role="status"),
            make("p.audit-older", [older(view, following), newest(view)])]}


def older(view: AuditView, following: str | None) -> Component:
    """Return the button for more entries: below those shown, or, after many, a page further on."""
    more: dict[str, Any] = {}
    if following is not None:
        more = {"shown": min(2 * view.shown, MOST_SHOWN)} if view.shown < MOST_SHOWN else {
            "before": int(following), "shown": ENTRIES}
    return make("button#audit-older.button", "Load older", hidden=following is None, data_set=more)


def newest(view: AuditView) -> Component:
    return make("button#audit-newest.button", "Back to the newest", hidden=view.before == 0,
                data_set={"before": 0, "shown": ENTRIES})


def overview(filters: dict[str, str], span: str, now: float) -> Parts:
    """Return the request for the figure of the entries over time. Pure."""
    end = int(-(-now // OVERVIEW_STEP_S) * OVERVIEW_STEP_S)
    request = {"start": 0 if span == "" else end - int(span), "end": end, "filters": filters}
    return {"audit-overview": True, "audit-figure": make(
        "span#audit-figure", data_figure=AUDIT, data_request=request, data_height=str(OVERVIEW_PX),
        data_at=str(end))}


def closed() -> Parts:
    """Return the page of somebody who may not read the log. Pure."""
    return {"audit-words": "", "audit-overview": False, "audit-place": make(
        "p.none", "The audit log is for operators and admins.", role="status")}


PAGE = Page(
    "audit", "Audit log", READ_PAGE, frame,
    "Who requested which action or change, and its outcome, including refusals. Entries cannot be "
    "changed; “Verify” checks the whole chain.", (("/", "go to the first filter"),), "/audit",
    ("r", "the audit log"), r"^/record$", reading=Reading(AuditView, answer, EVERY_S, "list"))

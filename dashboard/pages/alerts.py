"""The Alerts page: firing, pending, blocked, silenced and resolved alerts, and the rules. The
resolved ones are read; assets/alerts/alerts.mjs watches the others."""

from typing import Annotated, ClassVar
from urllib.parse import quote

from dash.development.base_component import Component
from msgspec import Meta

from gpudeck.client import Client
from gpudeck.errors import CommandError
from gpudeck.markup import make

from .graphs import REHEARSAL, AnsweredFigure
from .parts import Page, problem
from .past_alert_table import NONE_RESOLVED, Item, past_alert_table
from .reading import Parts, Reading, View
from .rehearsal_words import rehearsals
from .words import sentence

VIEWS = (
    ("firing", "Firing", "Condition met for the required time."),
    ("pending", "Pending", "Condition met, but not for the required time yet."),
    ("held", "Blocked", "Firing, but something blocks the rule's actions."),
    ("silenced", "Silenced",
     "Firing; no notifications or actions while the silence lasts."),
    ("ended", "Resolved", "Alerts resolved in the last seven days."),
)
EVERY_S = 10.0
ALERTS = 100  # resolved ones at first; each "Show older" doubles them
MOST_ALERTS = 800
RuleName = Annotated[str, Meta(max_length=200)]
MAINTAIN = make("button#alerts-maintain.button.small", "Maintenance …", hidden=True)
SECTIONS = (
    ("silences", "Silences", "A silence suppresses notifications and actions of matching "
     "alerts until it ends."),
    ("rules", "Rules", "What each rule checks, what it applies to, and what it matches now."),
    ("brakes", "Brakes", "Limits on automatic actions."),
    ("maintenance", "Maintenance", "No automatic actions on these nodes.", MAINTAIN),
)


class PastAlertsView(View):
    """Resolved alerts to show: how many, and the rules whose alerts are shown one by one; and the
    rule whose rehearsals a dialog shows, once. They are parts of the page, so its address says
    nothing of them."""

    opened: Annotated[tuple[RuleName, ...], Meta(max_length=100)] = ()
    limit: Annotated[int, Meta(ge=1, le=MOST_ALERTS)] = ALERTS
    rehearsed: RuleName = ""

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset(("opened", "limit", "rehearsed"))


def frame() -> Component:
    return make("div#alerts.alerts-page", [
        make("header.alerts-head", [
            make("div", [make("h1", "Alerts"), make("p#alerts-words", "", role="status")]),
            make("div.alerts-acts", [
                make("button#alerts-silence.button", "Silence …", hidden=True),
                make("button#alerts-new.button", "New rule …", hidden=True)])]),
        problem("alerts"),
        make("div#alerts-stopped.problem", hidden=True, role="status"),
        make("div#alerts-views.switch", [_choice(*row) for row in VIEWS], role="group",
             aria_label="Which alerts"),
        make("div", [_view(*row) for row in VIEWS]),
        make("section", [
            make("h2#alerts-sites-title", "Other sites"),
            make("p#alerts-sites-words.alerts-lead", "", role="status"),
            make("div#alerts-sites.alerts-place")],
            hidden=True, aria_labelledby="alerts-sites-title"),
        *(_section(*row) for row in SECTIONS),
        # The form of a rule moves it into itself.
        make("div#rehearsal-place", AnsweredFigure(REHEARSAL), hidden=True)], hidden=True)


def _choice(key: str, title: str, lead: str) -> Component:
    return make("button", [title, make("span.alerts-count", "")], title=lead, data_view=key,
                aria_pressed=str(key == "firing").lower())


def _view(key: str, title: str, lead: str) -> Component:
    body = [make(f"h2#alerts-{key}-title.unseen", title), *_body(key, lead)]
    if key == "ended":
        body.append(problem(f"alerts-view-{key}"))
    return make(f"section#alerts-view-{key}.alerts-view", body,
                hidden=key != "firing", aria_labelledby=f"alerts-{key}-title")


def _section(key: str, title: str, lead: str, *acts: Component) -> Component:
    return make("section", [
        make("div.alerts-title", [make(f"h2#alerts-{key}-title", title), *acts]),
        *_body(key, lead)], aria_labelledby=f"alerts-{key}-title")


def _body(key: str, lead: str) -> list[Component]:
    return [make("p.alerts-lead", lead), make(f"div#alerts-{key}.alerts-place")]


def answer(client: Client, view: PastAlertsView, now: float) -> Parts:
    page = client.hub.page("alerts", state="ended", limit=str(view.limit))
    signals = {rule["rule"]["id"]: rule["rule"]["signal"] for rule in client.hub.items("rules")}
    parts = past_parts(page["items"], page["next"] is not None, signals, view, now)
    if view.rehearsed:
        parts["rule-rehearsals"] = _rehearsals(client, view.rehearsed, now)
        view.rehearsed = ""
    return parts


def _rehearsals(client: Client, rule: str, now: float) -> Component:
    try:
        version = client.hub.get(f"rules/{quote(rule, safe='')}")["version"]
        items = client.hub.items("rules/backtests", rule=rule)
        return rehearsals(items, version, client.me(), now)
    except CommandError as error:
        return make("p", sentence(str(error)))


def past_parts(alerts: list[Item], has_more: bool, signals: dict[str, str], view: PastAlertsView,
               now: float) -> Parts:
    """Return the list of resolved alerts. Pure."""
    table = past_alert_table(alerts, signals, {*view.opened}, now, view.zone) if alerts else (
        make("p.none", NONE_RESOLVED))
    older = make("button#alerts-older.button.small", "Show older", data_step="false",
                 data_set={"limit": min(2 * view.limit, MOST_ALERTS)},
                 hidden=not has_more or view.limit >= MOST_ALERTS)
    return {"alerts-ended": make("div.rows-place", [table, older])}


PAGE = Page(
    "alerts", "Alerts", "alerts/alerts.mjs", frame,
    "An alert fires when a rule's condition has been met for the required time. A silence "
    "suppresses notifications and actions of matching alerts until it ends.", (
        ("1 to 5", "firing, pending, blocked, silenced, resolved"),
        ("n", "new rule"),
        ("s", "new silence")), "/alerts", ("a", "the alerts"),
    reading=Reading(PastAlertsView, answer, EVERY_S, "list"))

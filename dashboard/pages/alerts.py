"""The Alerts page: firing, pending, blocked, silenced and resolved alerts, and the rules."""

from dash.development.base_component import Component

from gpudeck.markup import make

from .graphs import REHEARSAL, AnsweredFigure
from .parts import Page, problem

VIEWS = (
    ("firing", "Firing", "Condition met for the required time."),
    ("pending", "Pending", "Condition met, but not for the required time yet."),
    ("held", "Blocked", "Firing, but something blocks the rule's actions."),
    ("silenced", "Silenced",
     "Firing; no notifications or actions while the silence lasts."),
    ("ended", "Resolved", "Alerts resolved in the last seven days."),
)
MAINTAIN = make("button#alerts-maintain.button.small", "Maintenance …", hidden=True)
SECTIONS = (
    ("silences", "Silences", "A silence suppresses notifications and actions of matching "
     "alerts until it ends."),
    ("rules", "Rules", "What each rule checks, what it applies to, and what it matches now."),
    ("brakes", "Brakes", "Limits on automatic actions."),
    ("maintenance", "Maintenance", "No automatic actions on these nodes.", MAINTAIN),
)


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
    return make(f"section#alerts-view-{key}.alerts-view",
                [make(f"h2#alerts-{key}-title.unseen", title), *_body(key, lead)],
                hidden=key != "firing", aria_labelledby=f"alerts-{key}-title")


def _section(key: str, title: str, lead: str, *acts: Component) -> Component:
    return make("section", [
        make("div.alerts-title", [make(f"h2#alerts-{key}-title", title), *acts]),
        *_body(key, lead)], aria_labelledby=f"alerts-{key}-title")


def _body(key: str, lead: str) -> list[Component]:
    return [make("p.alerts-lead", lead), make(f"div#alerts-{key}.alerts-place")]


PAGE = Page(
    "alerts", "Alerts", "alerts/alerts.mjs", frame,
    "An alert fires when a rule's condition has been met for the required time. A silence "
    "suppresses notifications and actions of matching alerts until it ends.", (
        ("1 to 5", "firing, pending, blocked, silenced, resolved"),
        ("n", "new rule"),
        ("s", "new silence")), "/alerts", ("a", "the alerts"))

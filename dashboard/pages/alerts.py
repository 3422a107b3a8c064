"""The Alerts page: what fires, waits, is held or silenced, what fired, and the rules behind it."""

from dash.development.base_component import Component

from .parts import Page, make, problem

VIEWS = (
    ("firing", "Firing", "A rule is true of these, and has been for long enough."),
    ("pending", "Pending", "It is so, and not for long enough yet."),
    ("held", "Held", "These fire, and something holds what would be done about it."),
    ("silenced", "Silenced",
     "These fire; while the silence lasts, nobody is told and nothing is done."),
    ("ended", "Over", "What fired in the last seven days and is over."),
)
MAINTAIN = make("button#alerts-maintain.button.small", "Maintenance …", hidden=True)
SECTIONS = (
    ("silences", "Silences", "While one is in force, nobody is told of matching alerts, and "
     "nothing is done about them."),
    ("rules", "Rules", "What is watched, on whom, and of how many it is so now."),
    ("brakes", "Brakes", "What bounds all that rules do by themselves."),
    ("maintenance", "Maintenance", "On these nodes nothing is done by itself.", MAINTAIN),
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
        make("div#alerts-views.switch", [_choice(*each) for each in VIEWS], role="group",
             aria_label="Which alerts"),
        make("div", [_view(*each) for each in VIEWS]),
        *(_section(*each) for each in SECTIONS)], hidden=True)


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
    "What fires: a rule has been true of something for long enough. While a silence is in force, "
    "nobody is told of matching alerts and no rule acts on them; it has an end.", (
        ("1 to 5", "firing, pending, held, silenced, over"),
        ("n", "a new rule"),
        ("s", "silence something")), "/alerts", ("a", "the alerts"))

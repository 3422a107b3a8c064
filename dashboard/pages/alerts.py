"""The Alerts page: firing, pending, blocked, silenced and resolved alerts, silences, rules, and
limits of automatic actions."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from dash.development.base_component import Component
from msgspec import Meta

from gpudeck.client.hub import Client
from gpudeck.errors import CommandError
from gpudeck.markup import make

from ..access.policy import Role
from .alert_cells import AlertContext
from .alert_table import alert_lists, alert_table, waits
from .alert_words import measure_of, place_words
from .brake_tables import brake_table, maintenance_form, maintenance_table, stop_line
from .drafts import MOST_LETTERS, NEW, REMOVED_MEANWHILE, encode_draft, removed_draft
from .field_elements import page_dialog
from .item_lists import Item
from .parts import READ_PAGE, Page, problem
from .past_alert_table import NONE_RESOLVED, past_alert_table
from .reading import Parts, Reading, View, Viewer, viewer
from .rehearsal_words import rehearsals
from .rule_editor import RuleEditor, rule_dialog
from .rule_form import RuleFormDraft
from .rule_table import mode_form, rule_table
from .silence_table import in_force, new_silence_button, silence_table
from .site_alert_table import site_alert_table, site_words
from .words import amount, plural, sentence

Kind = Literal["firing", "pending", "held", "silenced", "ended"]
VIEWS: tuple[tuple[Kind, str, str], ...] = (
    ("firing", "Firing", "Condition met for the required time."),
    ("pending", "Pending", "Condition met, but not for the required time yet."),
    ("held", "Blocked", "Firing, but something blocks the rule's actions."),
    ("silenced", "Silenced",
     "Firing; no notifications or actions while the silence lasts."),
    ("ended", "Resolved", "Alerts resolved in the last seven days."),
)
EVERY_S = 5.0
ALERTS = 100  # resolved ones at first; each "Show older" doubles them
MOST_ALERTS = 800
MOST_TARGETS = 20  # that the hub is asked about at once
RuleName = Annotated[str, Meta(max_length=200)]
MAINTAIN = make("button#alerts-maintain.button.small", "Maintenance …", hidden=True,
                data_set={"maintains": "begun"}, data_step="false")
SECTIONS = (
    ("silences", "Silences", "A silence suppresses notifications and actions of matching "
     "alerts until it ends."),
    ("rules", "Rules", "What each rule checks, what it applies to, and what it matches now."),
    ("brakes", "Brakes", "Limits on automatic actions."),
    ("maintenance", "Maintenance", "No automatic actions on these nodes.", MAINTAIN),
)


class AlertsView(View):
    """Choice of a list, which is after the `#` of the address. Its other fields are parts of the
    page, so the address says nothing of them: rules whose alerts are shown one by one, how many
    resolved alerts are shown, the rule whose mode a dialog sets, whether one puts a node into
    maintenance, and the rule that somebody edits, with the draft and its newest rehearsal."""

    kind: Kind = "firing"
    opened: Annotated[tuple[RuleName, ...], Meta(max_length=100)] = ()
    limit: Annotated[int, Meta(ge=1, le=MOST_ALERTS)] = ALERTS
    mode_of: RuleName = ""
    maintains: Literal["", "begun"] = ""
    edited: RuleName = ""
    draft: Annotated[str, Meta(max_length=MOST_LETTERS)] = ""
    rehearsal: RuleName = ""

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset((
        "kind", "opened", "limit", "mode_of", "maintains", "edited", "draft", "rehearsal"))


def frame() -> Component:
    return make("div#alerts.alerts-page", [
        make("header.alerts-head", [
            make("div", [make("h1", "Alerts"), make("p#alerts-words", "", role="status"),
                         problem("alerts")]),
            make("div.alerts-acts", [
                make("button#alerts-silence.button", "Silence …", hidden=True),
                make("button#alerts-new.button", "New rule …", hidden=True,
                     data_set={"edited": NEW}, data_step="false", data_shortcut="n")])]),
        make("div#alerts-stopped.problem", hidden=True, role="status"),
        make("div#alerts-views.switch", [
            _choice(at, *row) for at, row in enumerate(VIEWS, 1)], role="group",
             aria_label="Which alerts"),
        make("div", [_view(*row) for row in VIEWS]),
        make("section#alerts-sites-section", [
            make("h2#alerts-sites-title", "Other sites"),
            make("p#alerts-sites-words.alerts-lead", "", role="status"),
            make("div#alerts-sites.alerts-place")],
            hidden=True, aria_labelledby="alerts-sites-title"),
        *(_section(*row) for row in SECTIONS),
        page_dialog("mode-dialog", "mode_of"), page_dialog("maintenance-dialog", "maintains"),
        rule_dialog()],
        hidden=True, data_unsettled="")


def _choice(number: int, key: Kind, title: str, lead: str) -> Component:
    return make("button", [title, make(f"span#alerts-{key}-count.alerts-count", "")], title=lead,
                data_view="kind", data_value=key, data_shortcut=str(number),
                aria_pressed=str(key == "firing").lower())


def _view(key: Kind, title: str, lead: str) -> Component:
    return make(f"section#alerts-view-{key}.alerts-view", [
        make(f"h2#alerts-{key}-title.unseen", title), *_body(key, lead)],
        hidden=key != "firing", data_while={"kind": key}, aria_labelledby=f"alerts-{key}-title")


def _section(key: str, title: str, lead: str, *acts: Component) -> Component:
    return make("section", [
        make("div.alerts-title", [make(f"h2#alerts-{key}-title", title), *acts]),
        *_body(key, lead)], aria_labelledby=f"alerts-{key}-title")


def _body(key: str, lead: str) -> list[Component]:
    return [make("p.alerts-lead", lead), make(f"div#alerts-{key}.alerts-place")]


class AlertsRead(NamedTuple):
    """Answers of the hub that the page is made of. `past`: a page of resolved alerts; `ended`:
    resolved alerts at silenced targets, which tell what these are called."""

    firing: list[Item]
    pending: list[Item]
    past: Item
    ended: list[Item]
    rules: Item
    silences: list[Item]
    brakes: Item
    maintenance: list[Item]


def answer(client: Client, view: AlertsView, now: float) -> Parts:
    hub = client.hub
    firing, pending = hub.items("alerts"), hub.items("alerts", state="pending")
    silences = in_force(hub.items("silences"), now)
    read = AlertsRead(
        firing, pending, hub.page("alerts", state="ended", limit=str(view.limit)),
        _ended_at(client, silences, [*firing, *pending]), hub.page("rules"), silences,
        hub.get("brakes"), hub.items("maintenance"))
    person = viewer(client)
    parts = page_parts(read, person, view, now) | _site_parts(client, now)
    parts |= {"@every": EVERY_S} | _mode_parts(client, view, read.rules, now)
    parts |= _editor_parts(client, view, read.rules, person, now)
    if view.maintains:
        parts |= {"maintenance-dialog-title": "Put a node in maintenance",
                  "maintenance-dialog-body": maintenance_form(client.nodes())}
    return parts


def _ended_at(client: Client, silences: Sequence[Item], alerts: Sequence[Item]) -> list[Item]:
    open_targets = {alert["target"] for alert in alerts}
    targets = dict.fromkeys(silence["target"] for silence in silences
                            if silence["target"] and silence["target"] not in open_targets)
    if not targets:
        return []
    return client.hub.items("alerts", state="ended", targets=",".join([*targets][:MOST_TARGETS]))


def _site_parts(client: Client, now: float) -> Parts:
    if not client.hub.items("sites"):
        return {"alerts-sites-section": False}
    read = client.hub.page("sites/alerts")
    return {"alerts-sites-section": True, "alerts-sites": site_alert_table(read["items"], now),
            "alerts-sites-words": site_words(read["items"], read["unknown"])}


def _mode_parts(client: Client, view: AlertsView, rules: Item, now: float) -> Parts:
    """Return the dialog of a rule's mode. A rule that was removed meanwhile closes it."""
    item = next((item for item in rules["items"] if item["rule"]["id"] == view.mode_of), None)
    if item is None:
        view.mode_of = ""
        return {}
    return {"mode-dialog-title": f"Mode of “{item['rule']['title']}”",
            "mode-dialog-body": mode_form(item, rules["proof_h"],
                                          _rehearsals(client, item, now))}


def _editor_parts(client: Client, view: AlertsView, rules: Item, person: Viewer, now: float
                  ) -> Parts:
    if view.edited == "":
        return {}
    item = next((item for item in rules["items"] if item["rule"]["id"] == view.edited), None)
    if item is None and view.edited != NEW:
        view.draft = removed_draft(RuleFormDraft(view.edited), view.draft)
        if view.draft == "":
            view.edited = ""
            return {}
        return {"rule-problem": REMOVED_MEANWHILE}
    editor = RuleEditor(client, person, item, view.draft, now)
    parts = editor.parts(view.rehearsal, view.zone)
    view.draft = encode_draft(editor.draft)
    return parts


def _rehearsals(client: Client, item: Item, now: float) -> Component:
    rule, version = item["rule"]["id"], item["version"]
    try:
        return rehearsals(client.hub.items("rules/backtests", rule=rule), version, client.me(),
                          now)
    except CommandError as error:
        return make("p", sentence(str(error)))


def page_parts(read: AlertsRead, person: Viewer, view: AlertsView, now: float) -> Parts:
    """Return what is on the page. Pure."""
    rules = [item["rule"] for item in read.rules["items"]]
    measures = {item["rule"]["id"]: measure_of(item) for item in read.rules["items"]}
    context = AlertContext(
        {rule["id"]: rule["signal"] for rule in rules}, measures,
        {rule["id"]: rule["title"] for rule in rules}, {*view.opened}, person, now, view.zone)
    lists = alert_lists(read.firing, read.pending)
    places = {alert["target"]: place_words(alert)
              for alert in (*read.ended, *read.pending, *read.firing)}
    firing = len(lists["firing"])
    return {
        **{f"alerts-{key}": alert_table(key, alerts, context) for key, alerts in lists.items()},
        **{f"alerts-{key}-count": amount(len(alerts)) if alerts else ""
           for key, alerts in lists.items()},
        "alerts-ended": _past(read.past, context, view.limit),
        "alerts-silences": silence_table(read.silences, places, context),
        "alerts-rules": rule_table(read.rules["items"], lists, person),
        "alerts-brakes": brake_table(read.brakes["brakes"], person),
        "alerts-stopped": stop_line(read.brakes, person),
        "alerts-maintenance": maintenance_table(read.maintenance, person, now, view.zone),
        "alerts-maintain": person.may(Role.OPERATOR), "alerts-new": person.may(Role.ADMIN),
        "alerts-silence": new_silence_button([*context.titles.items()], person),
        "alerts-words": summary(lists, len(rules)),
        "@tab": f"({amount(firing)}) Alerts" if firing else "Alerts"}


def summary(lists: Mapping[str, Sequence[Item]], rules: int) -> str:
    firing, asking = len(lists["firing"]), sum(map(waits, lists["firing"]))
    words = (f"{amount(firing)} firing" if firing else "No alert is firing",
             f"{amount(asking)} waiting for approval" if asking else "",
             *(f"{amount(len(lists[key]))} {word}" if lists[key] else "" for key, word in (
                 ("pending", "pending"), ("held", "blocked"), ("silenced", "silenced"))))
    return f"{', '.join(filter(None, words))}. {plural(rules, 'rule')}."


def _past(page: Item, context: AlertContext, limit: int) -> Component:
    alerts: Any = page["items"]
    table = past_alert_table(alerts, context.measures, context.opened, context.now,
                             context.zone) if alerts else make("p.none", NONE_RESOLVED)
    older = make("button#alerts-older.button.small", "Show older", data_step="false",
                 data_set={"limit": min(2 * limit, MOST_ALERTS)},
                 hidden=page["next"] is None or limit >= MOST_ALERTS)
    return make("div.rows-place", [table, older])


PAGE = Page(
    "alerts", "Alerts", READ_PAGE, frame,
    "An alert fires when a rule's condition has been met for the required time. A silence "
    "suppresses notifications and actions of matching alerts until it ends.", (
        ("1 to 5", "firing, pending, blocked, silenced, resolved"),
        ("n", "new rule"),
        ("s", "new silence")), "/alerts", ("a", "the alerts"),
    reading=Reading(AlertsView, answer, EVERY_S, "page", events=("alert",), anchor="kind"))

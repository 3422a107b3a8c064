"""Silences on the Alerts page: the list, and the dialogs that begin and end one. From data
alone."""

import json
from collections.abc import Iterable, Mapping, Sequence

from dash.development.base_component import Component

from gpudeck.markup import make

from ..access.policy import Role
from .alert_cells import AlertContext
from .alert_words import place_words
from .forms import Field, Form, choice, order, row_button, text
from .item_lists import Item, ItemList
from .parts import literal
from .reading import Viewer

TIMES = (("3600", "1 hour"), ("14400", "4 hours"), ("86400", "1 day"), ("604800", "1 week"))
LONG_TIMES = (*TIMES, ("2592000", "30 days"))
USUAL_S = "14400"
LEAD = ("Matching alerts stay visible; no notifications are sent and no rule acts on them until "
        "the silence ends.")


def lasts_field(options: Sequence[tuple[str, str]] = TIMES) -> Field:
    """Return the field of how long something lasts, whose value is the moment of its end."""
    return choice("until", "For", options, USUAL_S) | {"as": "seconds_from_now"}


def reason_field(example: str) -> Field:
    return text("because", "Reason", required="", maxlength="400", placeholder=example)


def new_silence(rules: Iterable[tuple[str, str]], rule: str = "") -> Form:
    """Return the dialog of a new silence. `rules`: ids and titles; `rule`: the id of the chosen
    one."""
    fields = [_rule_field(rules, rule), text("node", "Node", hint="Host name.", empty="",
                                             placeholder="any node"),
              text("user", "User", hint="Only where nobody else has tasks.", empty="",
                   placeholder="any user")]
    return _form(fields, {"node": "$node", "user": "$user"})


def _silence_of(alert: Item) -> Form:
    """Return the dialog of a silence that may reach further than one alert."""
    places = [({"target": alert["target"], "node": ""}, f"here ({place_words(alert)})"),
              *([({"target": "", "node": alert["node"]}, f"all of {alert['host']}")]
                if alert["node"] else []),
              ({"target": "", "node": ""}, "everywhere")]
    options = [(json.dumps(place), words) for place, words in places]
    fields = [_rule_field([(alert["rule"], alert["title"])], alert["rule"]),
              choice("reach", "Where", options, options[0][0]) | {"as": "json"}]
    return _form(fields, {"node": "$reach.node", "target": "$reach.target"})


def _rule_field(rules: Iterable[tuple[str, str]], rule: str) -> Field:
    return choice("rule", "Rule", (("", "any rule"), *rules), rule) | {"empty": ""}


def _form(fields: Sequence[Field], body: Mapping[str, str]) -> Form:
    return {"title": "Silence", "lead": LEAD, "verb": "Silence",
            "fields": [*fields, lasts_field(LONG_TIMES), reason_field("moving racks")],
            } | order("POST", "silences", body={
                "until": "$until", "because": "$because", "rule": "$rule", **body})


def silence_button(alert: Item, context: AlertContext) -> Component:
    """Return the button that silences an alert with one more click, for how long; or all alerts of
    a rule."""
    title = alert["title"]
    if "members" in alert:
        return row_button("Silence …", new_silence([(alert["rule"], title)], alert["rule"]),
                          f"Silence {title} everywhere")
    place = place_words(alert)
    body = {"until": "$until", "because": "$because", **literal({
        "rule": alert["rule"], "target": alert["target"]})}
    return row_button("Silence", {
        "title": "Silence", "verb": "Silence",
        "lead": f"{title}, at {place}. The alert stays visible; no notification is sent and no "
                "rule acts on it, for",
        "fields": [
            {"name": "until", "type": "ways", "label": "For", "options": [*map(list, TIMES)],
             "as": "seconds_from_now"},
            text("because", "Reason", hint="Optional.", placeholder="under investigation",
                 empty=f"silenced from the alert by {context.person.name}", maxlength="400"),
            {"name": "more", "type": "order", "label": "More options …",
             "order": _silence_of(alert)}],
        } | order("POST", "silences", body=body), f"Silence {title} at {place}")


def in_force(silences: Iterable[Item], now: float) -> list[Item]:
    return [silence for silence in silences
            if silence["ended_at"] is None and silence["until"] > now]


def silence_table(silences: Sequence[Item], places: Mapping[str, str], context: AlertContext
                  ) -> Component:
    """Return the list. `places`: of targets, as far as they are known."""
    def words(silence: Item) -> str:
        return silence_words(silence, context.titles, places)

    def end(silence: Item) -> list[Component]:
        if not context.person.may(Role.OPERATOR):
            return []
        form = {"title": "End this silence?", "verb": "End silence",
                "lead": f"{words(silence)}: {silence['because']}"}
        return [row_button("End silence", form | order("DELETE", "silences", silence["id"]),
                           f"End the silence of {words(silence)}")]

    return ItemList(
        "Silences", (
            ("What", words), ("Reason", lambda silence: silence["because"]),
            ("By", lambda silence: silence["by"]),
            ("From", lambda silence: context.ago(silence["begins"])),
            ("Until", lambda silence: context.ago(silence["until"]))),
        lambda silence: str(silence["id"]), "Nothing is silenced.", end).draw(silences)


def silence_words(silence: Item, titles: Mapping[str, str], places: Mapping[str, str]) -> str:
    """Return what a silence matches, by names that people know."""
    rule, host, target, user = (silence[name] for name in ("rule", "host", "target", "user"))
    return ", ".join(filter(None, (
        titles.get(rule, f"rule {rule}") if rule else "", f"node {host}" if host else "",
        places.get(target, f"target {target}") if target else "",
        f"user {user}" if user else "")))


def new_silence_button(rules: Sequence[tuple[str, str]], person: Viewer) -> Component | None:
    if not person.may(Role.OPERATOR):
        return None
    return make("button#alerts-silence.button", "Silence …", data_form=new_silence(rules),
                data_shortcut="s")

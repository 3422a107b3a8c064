"""Brakes of automatic actions and nodes in maintenance on the Alerts page, with their dialogs. From
data alone."""

from collections.abc import Sequence

from dash.development.base_component import Component

from gpudeck.markup import make

from ..access.policy import Role
from .field_elements import dialog_foot, field_elements
from .forms import Form, choice, order, row_button, text
from .item_lists import Item, ItemList, ago, stacked
from .reading import Viewer
from .silence_table import lasts_field, reason_field
from .words import capital, plural

STAYING = ("breaker", "storm")  # brakes that stay on until an admin resets them
STORMS_SHOWN = 2
RESET: Form = {
    "title": "Reset the brakes", "verb": "Reset", "tone": "bad",
    "lead": "Rules may act again. Waiting actions are dropped and ladders start from the first "
            "step.",
    "fields": [text("reason", "Reason", required="", maxlength="400",
                    placeholder="what was found, and why it is safe")],
    } | order("POST", "brakes", body={"reason": "$reason"})


def brake_table(brakes: Sequence[Item], person: Viewer) -> Component:
    def reset(brake: Item) -> list[Component]:
        may_reset = person.may(Role.ADMIN) and brake["holds"] and brake["name"] in STAYING
        return [row_button("Reset …", RESET, f"Reset: {brake['title']}")] if may_reset else []

    return ItemList(
        "Brakes", (
            ("Brake", lambda brake: stacked(make("strong.name", brake["title"]))),
            ("Limit", lambda brake: stacked(make("span", brake["limit"]), make(
                "small", f"Released: {brake['lets_go']}"))),
            ("Now", _now)),
        lambda brake: str(brake["name"]), "No brake is set.", reset).draw(brakes)


def _now(brake: Item) -> Component:
    usage, most = brake["used"], brake["most"]
    count = "" if usage is None or (most is None and usage == 0) else (
        str(usage) if most is None else f"{usage} of {most}")
    pill = make("span.pill.lost", "blocking") if brake["holds"] else (
        make("span.pill.ok", "not blocking"))
    return stacked(pill, make("span.brake-count", count) if count else None,
                   make("small", brake["sentence"]) if brake["sentence"] else None)


def stop_line(brakes: Item, person: Viewer) -> list[Component] | None:
    """Return why rules do not act until somebody resets the brakes; None: they may act."""
    breaker, storms = brakes["breaker"], brakes["storms"]
    more = len(storms) - STORMS_SHOWN
    sentences = [
        *([] if breaker is None else [f"No rule may act: {breaker['sentence']}"]),
        *(_storm_words(storm) for storm in storms[:STORMS_SHOWN]),
        *([f"{plural(more, 'more rule')} stopped for the same reason"] if more > 0 else [])]
    if not sentences:
        return None
    return [make("span", f"{'. '.join(sentences)}. "),
            *([row_button("Reset …", RESET, "Reset the brakes")] if person.may(Role.ADMIN)
              else [])]


def _storm_words(storm: Item) -> str:
    source = storm["source"]
    reason = storm["trip"]["sentence"].replace(f"{source} ", "it ", 1)
    return f"{capital(source)} is stopped: {reason}"


def maintenance_table(nodes: Sequence[Item], person: Viewer, now: float, zone: str) -> Component:
    def end(node: Item) -> list[Component]:
        host = node["host"]
        form = {"title": f"End the maintenance of {host}?", "verb": "End maintenance",
                "lead": "Rules may act on this node again."}
        return [row_button("End maintenance", form | order(
            "DELETE", "nodes", node["node"], "maintenance"), f"End the maintenance of {host}",
            )] if person.may(Role.OPERATOR) else []

    return ItemList(
        "Nodes in maintenance", (
            ("Node", lambda node: node["host"]), ("Reason", lambda node: node["because"]),
            ("By", lambda node: node["by"]),
            ("Until", lambda node: ago(node["until"], now, zone))),
        lambda node: str(node["node"]), "No node is in maintenance.", end).draw(nodes)


def maintenance_form(nodes: Sequence[Item]) -> Component:
    """Return the inside of the dialog that puts a node into maintenance."""
    fields = [choice("node", "Node", [(node["id"], node["host"]) for node in nodes],
                     nodes[0]["id"] if nodes else ""),
              lasts_field(), reason_field("replacing a fan")]
    form = {"method": "PUT", "path": "nodes/$node/maintenance", "fields": fields,
            "body": {"because": "$because", "until": "$until"}}
    return make("form.form.dialog-body", [
        make("p", "Rules do not act on the node, and people have to confirm twice."),
        *field_elements("maintenance", fields), *dialog_foot("Start")], data_form=form)

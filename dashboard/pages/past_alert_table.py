"""The list of resolved alerts on the Alerts page: those of one rule are one line that opens, since
what fails is one thing, however many targets it hits. From data alone."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make

from ..alerts.core.measure import Measure
from .alert_cells import UNKNOWN, alert_cell, group_cell, hosts_cell, place_cell
from .alert_words import Item
from .words import moment, when

HEADS = ("Alert", "Where", "Value", "Fired", "Resolved", "Why")
NONE_RESOLVED = "No alert was resolved in the last seven days."


def past_alert_table(alerts: Sequence[Item], measures: Mapping[str, Measure], opened: Set[str],
                     now: float, zone: str) -> Component:
    """Return the table. `measures`: of the rules by their ids; `opened`: ids of rules whose alerts
    are shown one by one."""
    members: dict[str, list[Item]] = {}
    for alert in alerts:
        members.setdefault(alert["rule"], []).append(alert)
    rows: list[Component] = []
    for rule, group in members.items():
        if len(group) > 1:
            rows.append(_group_row(rule, group, opened, now, zone))
        if len(group) == 1 or rule in opened:
            rows += [_alert_row(alert, measures.get(rule, UNKNOWN), now, zone) for alert in group]
    # On a phone each row is laid out as a card, and a table laid out so must say what it still is.
    head = make("thead", make("tr", [
        make("th", head, role="columnheader", scope="col") for head in HEADS], role="row"),
        role="rowgroup")
    return make("table.rows", [head, make("tbody", rows, role="rowgroup")], role="table",
                aria_label="Alerts: resolved")


def _row(key: str, cells: Sequence[Any], titles: Mapping[str, str]) -> Component:
    return make("tr", [
        make("td", cell, role="cell", data_head=head, title=titles.get(head))
        for head, cell in zip(HEADS, cells, strict=True)], role="row", data_key=key)


def _alert_row(alert: Item, measure: Measure, now: float, zone: str) -> Component:
    return _row(alert["id"], [
        alert_cell(alert), place_cell(alert), measure.value_words(alert["value"]),
        when(alert["fired_at"], now), when(alert["ended_at"], now), alert["why"]],
        {"Fired": moment(alert["fired_at"], zone), "Resolved": moment(alert["ended_at"], zone)})


def _group_row(rule: str, alerts: Sequence[Item], opened: Set[str], now: float, zone: str
               ) -> Component:
    fired_at = min(alert["fired_at"] for alert in alerts)
    ended_at = max(alert["ended_at"] for alert in alerts)
    return _row(f"rule {rule}", [
        group_cell(alerts, opened), hosts_cell(alerts), "", when(fired_at, now),
        when(ended_at, now), ""],
        {"Fired": moment(fired_at, zone), "Resolved": moment(ended_at, zone)})

"""The list of resolved alerts on the Alerts page: those of one rule are one line that opens, since
what fails is one thing, however many targets it hits. From data alone."""

from collections.abc import Mapping, Sequence, Set
from typing import Any
from urllib.parse import quote

from dash.development.base_component import Component

from gpudeck.markup import make

from .alert_words import MOST_NAMED, TONES, place_words, targets_words, users_words, value_words
from .words import moment, plural, when

Item = Mapping[str, Any]
HEADS = ("Alert", "Where", "Value", "Fired", "Resolved", "Why")
ON_NODES = ("gpu", "task", "job")
NONE_RESOLVED = "No alert was resolved in the last seven days."


def past_alert_table(alerts: Sequence[Item], signals: Mapping[str, str], opened: Set[str],
                     now: float, zone: str) -> Component:
    """Return the table. `signals`: of the rules by their ids; `opened`: ids of rules whose alerts
    are shown one by one."""
    members: dict[str, list[Item]] = {}
    for alert in alerts:
        members.setdefault(alert["rule"], []).append(alert)
    rows: list[Component] = []
    for rule, group in members.items():
        if len(group) > 1:
            rows.append(_group_row(rule, group, opened, now, zone))
        if len(group) == 1 or rule in opened:
            rows += [_alert_row(alert, signals.get(rule, ""), now, zone) for alert in group]
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


def _alert_row(alert: Item, signal: str, now: float, zone: str) -> Component:
    times = alert["comebacks"]
    repeats = f"fired again {plural(times, 'time')}" if times else ""
    title = make("div.stacked", [
        _severity(alert["severity"]), make("strong.name", alert["title"]),
        make("small", " · ".join(filter(None, (alert["rule"], repeats))))])
    return _row(alert["id"], [
        title, _place(alert), value_words(alert["value"], signal), when(alert["fired_at"], now),
        when(alert["ended_at"], now), alert["why"]],
        {"Fired": moment(alert["fired_at"], zone), "Resolved": moment(alert["ended_at"], zone)})


def _group_row(rule: str, alerts: Sequence[Item], opened: Set[str], now: float, zone: str
               ) -> Component:
    fired_at = min(alert["fired_at"] for alert in alerts)
    ended_at = max(alert["ended_at"] for alert in alerts)
    button = make("button.as-link.name.group-toggle", group_words(alerts), data_rule=rule,
                  aria_expanded=str(rule in opened).lower(), data_step="false",
                  data_set={"opened": sorted(opened ^ {rule})})
    title = make("div.stacked", [_severity(alerts[0]["severity"]), " ", button,
                                 make("small", rule)])
    hosts = sorted({alert["host"] for alert in alerts} - {""})
    more = f" and {len(hosts) - MOST_NAMED} more" if len(hosts) > MOST_NAMED else ""
    where = make("span", ", ".join(hosts[:MOST_NAMED]) + more, title=", ".join(hosts))
    return _row(f"rule {rule}", [
        title, where, "", when(fired_at, now), when(ended_at, now), ""],
        {"Fired": moment(fired_at, zone), "Resolved": moment(ended_at, zone)})


def group_words(alerts: Sequence[Item]) -> str:
    """Name alerts of one rule, such as `Near thermal limit: 6 GPUs on 4 nodes`."""
    of, hosts = alerts[0]["of"], {alert["host"] for alert in alerts}
    nodes = f" on {plural(len(hosts), 'node')}" if of in ON_NODES else ""
    return f"{alerts[0]['title']}: {targets_words(of, len(alerts))}{nodes}"


def _severity(severity: str) -> Component:
    tone = TONES.get(severity, "")
    return make(f"span.pill{f'.{tone}' if tone else ''}", severity)


def _place(alert: Item) -> Component:
    address, words, users = place_address(alert), place_words(alert), alert["users"]
    return make("div.stacked", [
        make("span", words) if address is None else make("a", words, href=address),
        *([make("small", users_words(users))] if users else [])])


def place_address(alert: Item) -> str | None:
    """Return the page of the GPU or the node; None: it is about neither."""
    if alert["of"] == "gpu":
        return f"/gpu/{quote(alert['target'], safe='')}"
    return f"/node/{quote(alert['node'], safe='')}" if alert["node"] else None

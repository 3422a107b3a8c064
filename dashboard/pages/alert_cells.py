"""Cells of the lists of alerts, from data alone."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from urllib.parse import quote

from dash.development.base_component import Component

from gpudeck.markup import make

from ..alerts.core.measure import Measure
from .alert_words import (
    MOST_NAMED,
    SEVERITIES,
    TONES,
    Item,
    place_words,
    targets_words,
    users_words,
)
from .item_lists import ago, stacked
from .reading import Viewer
from .words import plural

UNKNOWN = Measure()  # of a rule that is there no more
ON_NODES = ("gpu", "task", "job")


@dataclass(frozen=True, slots=True)
class AlertContext:
    """Facts that rows need besides the alerts. `signals`, `measures` and `titles`: of the rules, by
    their ids; `opened`: ids of rules whose alerts are shown one by one."""

    signals: Mapping[str, str]
    measures: Mapping[str, Measure]
    titles: Mapping[str, str]
    opened: Set[str]
    person: Viewer
    now: float
    zone: str

    def value(self, alert: Item) -> str:
        return self._measure(alert).value_words(alert["value"])

    def limit(self, alert: Item) -> str:
        return self._measure(alert).limit_words()

    def _measure(self, alert: Item) -> Measure:
        return self.measures.get(alert["rule"], UNKNOWN)

    def ago(self, at: float) -> Component:
        return ago(at, self.now, self.zone)


def severity_pill(severity: str) -> Component:
    tone = TONES.get(severity, "")
    return make(f"span.pill{f'.{tone}' if tone else ''}", SEVERITIES.get(severity, severity))


def alert_cell(alert: Item) -> Component:
    times = alert["comebacks"]
    repeats = f"fired again {plural(times, 'time')}" if times else ""
    return stacked(severity_pill(alert["severity"]), make("strong.name", alert["title"]),
                   make("small", " · ".join(filter(None, (alert["rule"], repeats)))))


def group_cell(alerts: Sequence[Item], opened: Set[str]) -> Component:
    """Return the line of a rule with several alerts. `opened`: ids of rules whose alerts are shown
    one by one."""
    rule = alerts[0]["rule"]
    button = make("button.as-link.name.group-toggle", group_words(alerts), data_rule=rule,
                  aria_expanded=str(rule in opened).lower(), data_step="false",
                  data_set={"opened": sorted(opened ^ {rule})})
    return make("div.stacked", [severity_pill(alerts[0]["severity"]), " ", button,
                                make("small", rule)])


def group_words(alerts: Sequence[Item]) -> str:
    """Name alerts of one rule, such as `Near thermal limit: 6 GPUs on 4 nodes`."""
    of, hosts = alerts[0]["of"], {alert["host"] for alert in alerts}
    nodes = f" on {plural(len(hosts), 'node')}" if of in ON_NODES else ""
    return f"{alerts[0]['title']}: {targets_words(of, len(alerts))}{nodes}"


def place_cell(alert: Item) -> Component:
    address, words, users = place_address(alert), place_words(alert), alert["users"]
    return stacked(make("span", words) if address is None else make("a", words, href=address),
                   make("small", users_words(users)) if users else None)


def value_cell(alert: Item, context: AlertContext) -> Component:
    """Return an alert's value and the limit of its rule, both in the unit of what is measured."""
    limit = context.limit(alert)
    return stacked(make("span", context.value(alert)),
                   make("small", f"fires at {limit}") if limit else None)


def hosts_cell(alerts: Sequence[Item]) -> Component:
    hosts = sorted({alert["host"] for alert in alerts} - {""})
    more = f" and {len(hosts) - MOST_NAMED} more" if len(hosts) > MOST_NAMED else ""
    return make("span", ", ".join(hosts[:MOST_NAMED]) + more, title=", ".join(hosts))


def place_address(alert: Item) -> str | None:
    """Return the page of the GPU or the node; None: it is about neither."""
    if alert["of"] == "gpu":
        return f"/gpu/{quote(alert['target'], safe='')}"
    return f"/node/{quote(alert['node'], safe='')}" if alert["node"] else None

"""Lane of alerts over a figure: a strip for each rule, with what and where in its tip."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make

from .alert_words import SEVERITIES
from .past_span import clock_of

Alert = Mapping[str, Any]
THINGS = {"task": "task", "job": "job", "node": "node"}
MOST_NAMED = 3
RANKS = {"crit": 0, "warn": 1, "info": 2}
EMPTY = "No alert in this time"


def alert_strips(alerts: Sequence[Alert], span: tuple[float, float], zone: tzinfo, now: float,
                 has_hosts: bool = True) -> list[Component]:
    """Return what stands in the lane: the worst first, as only the first strips are seen without
    scrolling. `alerts`: of this span, oldest first. `has_hosts`: of several nodes, so that a GPU is
    named with its node."""
    by_rule: dict[str, list[Alert]] = {}
    for alert in alerts:
        if alert["since"] < span[1] and (alert["ended_at"] is None or alert["ended_at"] > span[0]):
            by_rule.setdefault(alert["rule"], []).append(alert)
    if not by_rule:
        return [make("p.lane-none", EMPTY), make("ul.lane-rules")]
    return [make("p.lane-none", EMPTY, hidden=True), make("ul.lane-rules", [
        _strip(rule, of_rule, span, zone, now, has_hosts)
        for rule, of_rule in sorted(by_rule.items(), key=lambda strip: _rank(strip[1]))])]


def _rank(alerts: Sequence[Alert]) -> int:
    return min(RANKS.get(alert["severity"], len(RANKS)) for alert in alerts)


def _title(alerts: Sequence[Alert], has_hosts: bool) -> list[Component]:
    """Return the title in parts, of which a narrow lane cuts the rule and the node before what the
    eye looks for: the GPUs, or how many nodes. (assets/charts/alert_lane.mjs)"""
    on_gpus = [alert for alert in alerts if alert["of"] != "node" and alert["place"]]
    hosts = {alert["host"] for alert in on_gpus} if has_hosts else set()
    places = ", ".join(sorted({alert["place"] for alert in on_gpus}))
    where = f"{len(hosts)} nodes" if len(hosts) > 1 else places and f"GPU {places}"
    silenced = "silenced" if all(alert["silenced_by"] for alert in alerts) else ""
    host = next(iter(hosts)) if len(hosts) == 1 else ""
    return [make("span.lane-name", alerts[0]["title"]),
            *([make("span.lane-host", f" · {host}")] if host else []),
            make("span.lane-gpus", "".join(f" · {word}" for word in (where, silenced) if word))]


def _strip(rule: str, alerts: Sequence[Alert], span: tuple[float, float], zone: tzinfo, now: float,
           has_hosts: bool) -> Component:
    return make("li", [make("strong", _title(alerts, has_hosts)), make("span.lane-track", [
        _bar(alert, span) for alert in alerts])], tabIndex="0", data_rule=rule, data_key=rule,
        data_tip="\n".join(_alert_words(alert, zone, now) for alert in alerts))


def _bar(alert: Alert, span: tuple[float, float]) -> Component:
    start, end = span
    shares = [100 * (min(end, max(start, at)) - start) / (end - start)
              for at in (alert["since"], end if alert["ended_at"] is None else alert["ended_at"])]
    severity = alert["severity"] if alert["severity"] in SEVERITIES else "info"
    kind = "silenced" if alert["silenced_by"] else severity
    return make(f"i.{kind}", data_key=alert["id"], style={
        "left": f"{shares[0]:.2f}%", "width": f"{shares[1] - shares[0]:.2f}%"})


def _alert_words(alert: Alert, zone: tzinfo, now: float) -> str:
    until = "now" if alert["ended_at"] is None else clock_of(alert["ended_at"], zone, now)
    title = " · ".join(filter(None, (alert["title"], _target_words(alert),
                                     "silenced" if alert["silenced_by"] else "")))
    return (f"{title}, {_place_words(alert)}: {SEVERITIES.get(alert['severity'], 'info')}, "
            f"{clock_of(alert['since'], zone, now)} to {until}")


def _target_words(alert: Alert) -> str:
    """Return what the alert is about, where it stands at a GPU."""
    users = ", ".join(alert["users"][:MOST_NAMED])
    if alert["of"] == "owner":
        return f"all tasks of {users}"
    if alert["of"] == "node":
        return "the node"
    thing = THINGS.get(alert["of"], "")
    return f"{thing} of {users}" if thing and users else thing


def _place_words(alert: Alert) -> str:
    if alert["of"] == "fleet":
        return "the whole fleet"
    if alert["of"] == "owner":
        return str(next(iter(alert["users"]), alert["target"]))
    place = alert["place"]
    spot = f"GPU {place}" if place and alert["of"] != "node" else place
    return " · ".join(filter(None, (alert["host"], spot))) or str(alert["target"])

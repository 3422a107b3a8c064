"""Alerts of the fleet, a part of it, GPUs, an owner or a team in a past span, and their starts as
marks in the figure of History."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpudeck.client.hub import Client
from gpudeck.errors import CommandError

from .figures import AlertBegin

Alert = Mapping[str, Any]
MOST = 1_000  # limit of firing alerts, and of resolved ones
MOST_USERS = 200
MOST_BEGINS = 200
# Metrics that rules read but not every figure draws, and the drawn metric that shows their effect.
SEEN_IN = {
    "busy_pct": "util_pct", "util_max_pct": "util_pct", "sm_active_pct": "util_pct",
    "gpu_mem_share": "mem_used_bytes", "mem_share": "mem_used_bytes",
    "mem_unseen_bytes": "mem_used_bytes", "slowed_power_pct": "power_w",
    "slowed_brake_pct": "power_w", "power_max_w": "power_w", "energy_j": "power_w",
    "temp_margin_c": "temp_c", "slowed_soft_thermal_pct": "temp_c",
    "slowed_hard_thermal_pct": "temp_c"}


def alerts_of(client: Client, by: str, name: str, span: tuple[int, int]) -> list[Alert] | None:
    """Return the alerts, oldest first; None: they cannot be read now, or not by this person, for
    example those of a team's owners. The figure is drawn all the same."""
    limit, start, end = str(MOST), str(span[0]), str(span[1])
    try:
        part = _query(client, by, name)
        if part is None:
            return None
        resolved = client.hub.page("alerts", state="ended", start=start, end=end, limit=limit,
                                   **part)
        firing = client.hub.page("alerts", limit=limit, **part)
    except CommandError:
        return None
    return listed([*firing["items"], *resolved["items"]], span)


def _query(client: Client, by: str, name: str) -> dict[str, str] | None:
    if by == "fleet":
        return {}
    if by == "user":
        return {"users": name}
    if by != "team":
        return {by: name}
    users = client.hub.get("teams")["members"].get(name, [])
    return {"users": ",".join(users)} if 0 < len(users) <= MOST_USERS else None


def listed(alerts: Iterable[Alert], span: tuple[float, float]) -> list[Alert]:
    """Return the alerts of this span by start, without those that another alert explains. Pure."""
    return sorted((alert for alert in alerts if alert["since"] < span[1]
                   and (alert["ended_at"] is None or alert["ended_at"] > span[0])
                   and not alert["inhibited_by"]),
                  key=lambda alert: alert["since"])


def begins_of(client: Client, alerts: Iterable[Alert], start: float) -> list[AlertBegin]:
    """Return the starts of the newest alerts since `start`, without silenced ones."""
    new = [alert for alert in alerts if alert["since"] >= start and not alert["silenced_by"]]
    if not new:
        return []
    metrics = {rule["rule"]["id"]: metrics_of(rule["rule"]["signal"])
               for rule in client.hub.items("rules")}
    return [AlertBegin(alert["since"], alert["severity"], metrics[alert["rule"]])
            for alert in new[-MOST_BEGINS:] if alert["rule"] in metrics]


def metrics_of(signal: str) -> frozenset[str]:
    """Return the metrics of a rule's signal, as figures draw them. Pure."""
    words = re.findall(r"\b[a-z]\w*", signal)
    return frozenset((*words, *(SEEN_IN[word] for word in words if word in SEEN_IN)))

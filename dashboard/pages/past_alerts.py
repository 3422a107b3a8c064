"""Alerts of the fleet, a part of it, an owner or a team in a span of the past, and where in the
figure of History they began."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpudeck.client import Client
from gpudeck.errors import CommandError

from .figures import AlertBegin

Alert = Mapping[str, Any]
MOST = 1_000  # of each: of those that fire, and of those that have ended
MOST_USERS = 200
MOST_BEGINS = 200
INHIBITED = "inhibited by "  # another alert explains it
# What a rule reads and no figure draws is seen in these.
SEEN_IN = {
    "busy_pct": "util_pct", "util_max_pct": "util_pct", "sm_active_pct": "util_pct",
    "gpu_mem_share": "mem_used_bytes", "mem_share": "mem_used_bytes",
    "mem_unseen_bytes": "mem_used_bytes", "slowed_power_pct": "power_w",
    "slowed_brake_pct": "power_w", "power_max_w": "power_w", "energy_j": "power_w"}


def alerts_of(client: Client, by: str, name: str, span: tuple[int, int]) -> list[Alert] | None:
    """Oldest first; None: they are not known now, or not to who asks, such as those of a team's
    owners. The figure comes all the same."""
    limit, start, end = str(MOST), str(span[0]), str(span[1])
    try:
        part = _query(client, by, name)
        if part is None:
            return None
        ended = client.hub.page("alerts", state="ended", start=start, end=end, limit=limit, **part)
        firing = client.hub.page("alerts", limit=limit, **part)
    except CommandError:
        return None
    return listed([*firing["items"], *ended["items"]], span)


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
    """Pure. Of this span, and without those that another one explains."""
    return sorted((each for each in alerts if each["since"] < span[1]
                   and (each["ended_at"] is None or each["ended_at"] > span[0])
                   and not any(held.startswith(INHIBITED) for held in each["holds"])),
                  key=lambda each: each["since"])


def begins_of(client: Client, alerts: Iterable[Alert], start: float) -> list[AlertBegin]:
    """The newest of those that began after `start`, silenced ones left out."""
    new = [each for each in alerts if each["since"] >= start and not each["silenced_by"]]
    if not new:
        return []
    metrics = {each["rule"]["id"]: metrics_of(each["rule"]["signal"])
               for each in client.hub.items("rules")}
    return [AlertBegin(each["since"], each["severity"], metrics[each["rule"]])
            for each in new[-MOST_BEGINS:] if each["rule"] in metrics]


def metrics_of(signal: str) -> frozenset[str]:
    """Pure. Those that a rule's signal is about, as figures draw them."""
    return frozenset(SEEN_IN.get(word, word) for word in re.findall(r"\b[a-z]\w*", signal))

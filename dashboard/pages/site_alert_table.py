"""Alerts that are firing at other sites, on the Alerts page: to read, with the way to where
somebody can act on them. From data alone."""

from collections.abc import Sequence

from dash.development.base_component import Component

from gpudeck.markup import make

from .alert_words import Item
from .words import age

HEADS = ("Site", "Alert", "Where", "Since", "")
TONES = {"crit": ".critical", "warn": ".warning", "info": ".info"}


def site_alert_table(alerts: Sequence[Item], now: float) -> Component | None:
    if not alerts:
        return None
    return make("table", [
        make("thead", make("tr", [make("th", head, scope="col") for head in HEADS])),
        make("tbody", [_row(alert, now) for alert in alerts])])


def _row(alert: Item, now: float) -> Component:
    spot = f"GPU {alert['place']}" if alert["place"] else ""
    return make("tr", [
        make("td", alert["site"]), make(f"td{TONES.get(alert['severity'], '')}", alert["title"]),
        make("td", " · ".join(filter(None, (alert["host"], spot)))),
        make("td", age(now - alert["since"])),
        make("td", make("a.button.small", f"Open at {alert['site']}", href=alert["link"]))],
        data_key=f"{alert['site']} {alert['id']}")


def site_words(alerts: Sequence[Item], unknown: Sequence[str]) -> str | None:
    """Return what is to be said besides the list; None: nothing."""
    if unknown:
        return f"Alerts of {', '.join(unknown)}: unknown."
    return None if alerts else "No alert is firing at another site."

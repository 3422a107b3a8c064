"""Contents of a notification: fields for programs, text for people. Pure; a text from a node
becomes a single line, and never markup."""

import hashlib
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from msgspec import Struct

from ..alerts.core.firing_alerts import Alert
from ..alerts.core.measure import Measure
from ..alerts.core.rule import CompiledRule, Of, Severity
from .grouping import NotificationBatch, Reason
from .owner_words import MailMessage, one_line
from .receivers import RANKS

MOST_NAMED = 50
MOST_LINES = 20
MOST_SUBJECT = 180
MOST_CHAT = 16_000  # of 16,383 that Mattermost accepts
WORDS: dict[Reason, str] = {"firing": "Firing", "resolved": "Resolved", "repeat": "Still firing"}


class NotifiedAlert(Struct, frozen=True):
    """An alert in a notification; `signal`, `fire`, `hold` and `fires_at`, its limit in `unit`, are
    those of its rule, if that is still known."""

    id: str
    rule: str
    title: str
    severity: Severity
    state: str
    of: Of
    target: str
    node: str
    host: str
    place: str
    users: tuple[str, ...]
    value: float | None
    unit: str
    signal: str
    fire: str
    hold: str
    since: float
    fired_at: float
    ended_at: float | None
    why: str
    url: str
    fires_at: float | None = None  # one that waited while the hub was updated has none


class AlertNotification(Struct, frozen=True):
    """A notification. `id` stays the same however often it is sent."""

    id: str
    receiver: str
    words: str  # of its group
    owner: str
    at: float
    reason: Reason
    group: dict[str, str]
    firing: int
    over: int
    muted: int
    alerts: tuple[NotifiedAlert, ...]
    runbooks: dict[str, str]
    url: str


Find = Callable[[str], CompiledRule | None]


def build_notification(batch: NotificationBatch, now: float, url: str, find: Find
                       ) -> AlertNotification:
    listed = (*_worst(batch.firing), *_worst(batch.over))[:MOST_NAMED]
    runbooks = {alert.rule_id: ready.rule.runbook.strip() for alert in listed
                if (ready := find(alert.rule_id)) is not None and ready.rule.runbook.strip()}
    receiver, words = batch.key
    return AlertNotification(
        _id(receiver, words, now), receiver, words, batch.owner, now, batch.reason,
        _group(batch), len(batch.firing), len(batch.over), batch.muted,
        tuple(_line(alert, url, find(alert.rule_id)) for alert in listed), runbooks,
        f"{url}/alerts")


def _group(batch: NotificationBatch) -> dict[str, str]:
    """Return what its alerts have in common; for a node also the host name, which people know."""
    group = dict(batch.by)
    hosts = {alert.target.host for alert in (*batch.firing, *batch.over)}
    return {**group, "host": hosts.pop()} if "node" in group and len(hosts) == 1 else group


def merge_notifications(older: AlertNotification, newer: AlertNotification) -> AlertNotification:
    """Merge two notifications of a group if the older was never sent: the newer one then contains
    what the older would have reported."""
    lines = (*newer.alerts, *(line for line in older.alerts if line.state == "ended"))[:MOST_NAMED]
    reason: Reason = "firing" if older.reason == "firing" and newer.firing else newer.reason
    return AlertNotification(_id(newer.receiver, newer.words + older.id, newer.at), newer.receiver,
                             newer.words, newer.owner, newer.at, reason, newer.group, newer.firing,
                             older.over + newer.over, newer.muted, lines,
                             older.runbooks | newer.runbooks, newer.url)


def _id(receiver: str, words: str, at: float) -> str:
    return "n" + hashlib.sha256(f"{receiver}\n{words}\n{at}".encode()).hexdigest()[:24]


def _worst(alerts: Iterable[Alert]) -> list[Alert]:
    return sorted(alerts, key=lambda alert: (-RANKS[alert.severity], alert.fired_at, alert.id))


def _line(alert: Alert, url: str, ready: CompiledRule | None) -> NotifiedAlert:
    target = alert.target
    of_rule = ("", "", "", "") if ready is None else (
        ready.signal.part.unit or "", ready.rule.signal, ready.rule.fire, ready.rule.for_)
    fires_at = None if ready is None else ready.fire.number
    return NotifiedAlert(
        alert.id, alert.rule_id, alert.title, alert.severity, alert.state, alert.of, target.key,
        target.node_id, target.host, target.place, target.users, alert.value, *of_rule, alert.since,
        alert.fired_at, alert.ended_at, alert.why, _url(alert, url), fires_at)


def _url(alert: Alert, url: str) -> str:
    """Return the page with its timelines; for an owner of several GPUs and for the fleet, the list
    of alerts."""
    target = alert.target
    if alert.of == "gpu":
        return f"{url}/gpu/{target.key}"
    if len(target.gpus) == 1:
        return f"{url}/gpu/{target.gpus[0]}"
    return f"{url}/node/{target.node_id}" if target.node_id else f"{url}/alerts"


# -- for people


def title(notification: AlertNotification) -> str:
    worst = max((line.severity for line in notification.alerts), key=RANKS.__getitem__,
                default="info")
    titles = sorted({one_line(line.title) for line in notification.alerts})
    places = sorted({place_of(line) for line in notification.alerts})
    what = titles[0] if len(titles) == 1 else f"{len(titles)} rules"
    where = f" at {places[0]}" if len(places) == 1 and places[0] else (
        f" at {notification.firing or notification.over} places" if len(places) > 1 else "")
    is_mixed = notification.firing and notification.over
    counts = f" ({notification.firing} firing, {notification.over} resolved)" if is_mixed else ""
    return f"{WORDS[notification.reason]} [{worst}] {what}{where}{counts}"[:MOST_SUBJECT]


def place_of(line: NotifiedAlert) -> str:
    place = f"GPU {one_line(line.place)}" if line.place else ""
    return " · ".join(word for word in (one_line(line.host), place) if word) or one_line(
        line.target)


def sentence(line: NotifiedAlert) -> str:
    """Return the measured value and its limit, since when, and the owners; in the past tense for a
    resolved alert."""
    is_over, measure = line.ended_at is not None, Measure(line.unit, line.fire, line.fires_at)
    value = "" if line.value is None else (
        f"{line.signal or 'value'} {'was ' * is_over}{measure.value_words(line.value)}")
    limit = f"{'fired' if is_over else 'fires'} at {measure.limit_words()}" + (
        f" for {line.hold}" if line.hold not in ("", "0s") else "")
    measured = f"{value} ({limit})" if value and line.fire else value
    when = f"since {clock(line.since)}"
    if line.ended_at is not None:
        why = f": {one_line(line.why)}" if line.why else ""
        when = f"from {clock(line.since)} to {clock(line.ended_at)}{why}"
    whose = f"tasks of {', '.join(map(one_line, line.users))}" if line.users else ""
    return ", ".join(word for word in (measured, when, whose) if word)


def text(notification: AlertNotification, quote: Callable[[str], str] = lambda words: words) -> str:
    """Return plain text; `quote` makes words from nodes harmless in markup."""
    return f"{quote(title(notification))}\n\n{body(notification, quote)}"


def body(notification: AlertNotification, quote: Callable[[str], str] = lambda words: words) -> str:
    """Return the text for channels that show the title elsewhere."""
    lines = []
    for line in notification.alerts[:MOST_LINES]:
        mark = "resolved" if line.state == "ended" else "firing"
        lines += [quote(f"- {one_line(line.title)}, {place_of(line)}: {mark}, {sentence(line)}"),
                  f"  {line.url}"]
    more = notification.firing + notification.over - len(notification.alerts[:MOST_LINES])
    if more > 0:
        lines.append(f"- and {more} more")
    if notification.muted:
        lines.append(f"({notification.muted} more are silenced or blocked by another alert)")
    if notification.firing:
        for rule, runbook in sorted(notification.runbooks.items()):
            lines += ["", quote(f"What to do ({rule}): {' '.join(runbook.split())}")]
    return "\n".join([*lines, "", f"All alerts: {notification.url}", ""])


def chat_text(notification: AlertNotification) -> str:
    """Return the text for Slack and Mattermost, in which no mention and no link can be injected."""
    full_text = text(notification, lambda words: words.replace("&", "&amp;").replace(
        "<", "&lt;").replace(">", "&gt;"))
    if len(full_text) <= MOST_CHAT:
        return full_text
    end = f" …\n\nAll alerts: {notification.url}\n"
    return re.sub(r"&\w{0,4}$", "", full_text[:MOST_CHAT - len(end)]) + end


def group_id(notification: AlertNotification) -> str:
    """Return an id that all notifications of a group share: that of an incident, or a mail
    thread."""
    group = f"{notification.receiver}\n{notification.words}"
    return hashlib.sha256(group.encode()).hexdigest()[:24]


def mail(notification: AlertNotification, to: str) -> MailMessage:
    thread = group_id(notification)
    headers = (("Message-ID", f"<{notification.id}@gpudeck.invalid>"),
               ("References", f"<{thread}@gpudeck.invalid>"),
               ("List-Id", "gpudeck notices <notices.gpudeck.invalid>"),
               ("X-Gpudeck-Notice", notification.id))
    return MailMessage(to, "[gpudeck] " + one_line(title(notification)), text(notification),
                       headers)


def clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

"""PagerDuty and Jira Service Management: one incident per group, resolved with its last alert."""

from ..webhook import WebRequest
from ..words import AlertNotification, group_id, place_of, text, title
from .webhook import WebhookChannel

PAGERDUTY_SEVERITIES = {"crit": "critical", "warn": "warning", "info": "info"}
JSM_PRIORITIES = {"crit": "P1", "warn": "P3", "info": "P5"}
RANK = ("crit", "warn", "info")


class PagerDutyChannel(WebhookChannel):
    kind = "pagerduty"
    title = "PagerDuty: one incident per group of alerts"
    description = ("PagerDuty's Events API v2 (`https://events.pagerduty.com/v2/enqueue`); the "
                   "token is the integration's routing key. One incident per group, resolved "
                   "with it")

    def flaw(self) -> str | None:
        return super().flaw() or _needs_token(self, "the integration's routing key")

    def request(self, notification: AlertNotification, token: str) -> WebRequest:
        return WebRequest(self.receiver.to, {
            "routing_key": token,
            "event_action": "trigger" if notification.firing else "resolve",
            "dedup_key": group_id(notification), "client": "gpudeck",
            "client_url": notification.url,
            "payload": {
                "summary": title(notification)[:1_024], "source": _source(notification),
                "severity": PAGERDUTY_SEVERITIES[_worst(notification)],
                "custom_details": {"alerts": text(notification)[:400_000]}}})

    def test_request(self, url: str, token: str) -> WebRequest:
        return WebRequest(self.receiver.to, {
            "routing_key": token, "event_action": "resolve", "dedup_key": "gpudeck-test"})


class JsmChannel(WebhookChannel):
    kind = "jsm"
    title = "Jira Service Management: one alert per group"
    description = ("the operations API of Jira Service Management "
                   "(`https://api.atlassian.com/jsm/ops/integration/v2/alerts`); the token is the "
                   "integration's key. One alert per group, closed with it")

    def flaw(self) -> str | None:
        return super().flaw() or _needs_token(self, "the integration's key")

    def request(self, notification: AlertNotification, token: str) -> WebRequest:
        alias, key = group_id(notification), f"GenieKey {token}"
        if not notification.firing:
            return WebRequest(f"{self.receiver.to.rstrip('/')}/{alias}/close?identifierType=alias",
                              {"source": "gpudeck", "note": title(notification)}, key)
        return WebRequest(self.receiver.to, {
            "message": title(notification)[:130], "alias": alias, "source": "gpudeck",
            "description": text(notification)[:15_000], "entity": _source(notification)[:512],
            "priority": JSM_PRIORITIES[_worst(notification)]}, key)

    def test_request(self, url: str, token: str) -> WebRequest:
        return WebRequest(self.receiver.to, {
            "message": "Test of gpudeck: no alert is firing", "alias": "gpudeck-test",
            "priority": "P5", "source": "gpudeck"}, f"GenieKey {token}")


def _needs_token(channel: WebhookChannel, what: str) -> str | None:
    if channel.receiver.token or channel.receiver.token_file:
        return None
    return f"a token is needed: {what}"


def _worst(notification: AlertNotification) -> str:
    return min((alert.severity for alert in notification.alerts), key=RANK.index, default="info")


def _source(notification: AlertNotification) -> str:
    """Return where the trouble is: its only place, or how many there are."""
    places = sorted({place_of(alert) for alert in notification.alerts})
    return places[0] if len(places) == 1 else f"{len(places)} places"

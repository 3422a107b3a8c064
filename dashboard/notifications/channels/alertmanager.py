"""Alertmanager: each alert separately, with its own start and end."""

from datetime import UTC, datetime

from ..webhook import WebRequest
from ..words import AlertNotification, NotifiedAlert, place_of, sentence
from .webhook import WebhookChannel

# An alert without an end would count as resolved after five minutes; a firing one is sent again
# at every repetition.
HOLDS_S = 86_400.0
SEVERITIES = {"crit": "critical", "warn": "warning", "info": "info"}
PATH = "/api/v2/alerts"


class AlertmanagerChannel(WebhookChannel):
    kind = "alertmanager"
    title = "Alertmanager: each alert, by its API v2"
    description = ("an Alertmanager, by its API v2: each alert with its beginning and end; its "
                   "own routes decide who is notified")

    def request(self, notification: AlertNotification, token: str) -> WebRequest:
        return self._build_request(
            [_alert(alert, notification) for alert in notification.alerts], token)

    def test_request(self, url: str, token: str) -> WebRequest:
        now = datetime.now(UTC).timestamp()
        return self._build_request([{
            "labels": {"alertname": "gpudeck-test", "severity": "info", "source": "gpudeck"},
            "annotations": {"summary": "This is a test of gpudeck: no alert is firing."},
            "startsAt": _moment(now), "endsAt": _moment(now + 60), "generatorURL": f"{url}/alerts",
        }], token)

    def _build_request(self, alerts: list[dict[str, object]], token: str) -> WebRequest:
        request = self.build_request(alerts, token)
        return request if request.url.endswith(PATH) else WebRequest(
            request.url.rstrip("/") + PATH, request.body, request.authorization)


def _alert(line: NotifiedAlert, notification: AlertNotification) -> dict[str, object]:
    """Return an alert without empty labels: Alertmanager ignores them, so that two targets could be
    one."""
    labels = {"alertname": line.rule, "severity": SEVERITIES[line.severity], "source": "gpudeck",
              "host": line.host, "node": line.node, "gpu": line.place, "target": line.target,
              "kind": line.of, "owner": ",".join(line.users)}
    ends_at = notification.at + HOLDS_S if line.ended_at is None else line.ended_at
    return {"labels": {name: value for name, value in labels.items() if value},
            "annotations": {
                "summary": f"{line.title}, {place_of(line)}", "description": sentence(line),
                "runbook": notification.runbooks.get(line.rule, "")},
            "startsAt": _moment(line.fired_at), "endsAt": _moment(max(ends_at, line.fired_at)),
            "generatorURL": line.url}


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()

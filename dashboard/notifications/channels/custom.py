"""A POST of JSON that the site defines, for systems without a channel here."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..webhook import WebRequest
from ..words import AlertNotification, group_id, place_of, text, title
from .channel import TEST
from .chats import RANK, state
from .webhook import WebhookChannel

MOST_CHARS = 10_000
PLACE = re.compile(r"\{\{\s*([a-z_]*)\s*\}\}")
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
HEADER_VALUE = re.compile(r"[\x20-\x7e]{1,2000}")
# Set by the hub: the kind of a request, its destination and its length.
OURS = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection",
                  "expect", "upgrade", "te", "trailer"})
# A name, and what it stands for; `{{token}}` in headers besides.
FIELDS: Mapping[str, str] = {
    "status": "firing or resolved", "severity": "crit, warn or info: the worst",
    "title": "one line", "text": "all of it, several lines", "places": "hosts and GPUs",
    "rules": "ids of the rules", "users": "owners of tasks", "count": "how many alerts fire",
    "id": "of this notification: the same when it is sent again",
    "group": "the same for all notifications of a group", "url": "the list of alerts"}


class CustomChannel(WebhookChannel):
    kind = "custom"
    has_template = True
    title = "custom: your own JSON and headers to a URL"
    description = ("a URL, by a POST of JSON as you write it, with headers: see "
                   "[A template](#a-template)")

    def flaw(self) -> str | None:
        return super().flaw() or _body_flaw(self.receiver.template) or _headers_flaw(
            self.receiver.headers)

    def request(self, notification: AlertNotification, token: str) -> WebRequest:
        return self._fill(_fields(notification), token)

    def test_request(self, url: str, token: str) -> WebRequest:
        return self._fill({
            **dict.fromkeys(FIELDS, ""), "status": "test", "severity": "info", "title": TEST,
            "text": TEST, "count": "0", "id": "test", "group": "test", "url": f"{url}/alerts"},
            token)

    def _fill(self, fields: Mapping[str, str], token: str) -> WebRequest:
        """Fill the strings of the parsed template, so that no text of a node can become syntax."""
        request = self.build_request(_with(json.loads(self.receiver.template), fields), "")
        own = {name: value.replace("{{token}}", token)
               for name, value in self.receiver.headers.items()}
        is_used = any("{{token}}" in value for value in self.receiver.headers.values())
        authorization = f"Bearer {token}" if token and not is_used else ""
        return WebRequest(request.url, request.body, authorization, own)


def _fields(notification: AlertNotification) -> dict[str, str]:
    alerts = notification.alerts
    worst = min((alert.severity for alert in alerts), key=RANK.index, default="info")
    severity = state(notification)
    return {
        "status": "firing" if notification.firing else "resolved",
        "severity": worst if severity == "resolved" else severity,
        "title": title(notification), "text": text(notification),
        "places": ", ".join(sorted({place_of(alert) for alert in alerts})),
        "rules": ", ".join(sorted({alert.rule for alert in alerts})),
        "users": ", ".join(sorted({user for alert in alerts for user in alert.users})),
        "count": str(notification.firing), "id": notification.id,
        "group": group_id(notification), "url": notification.url}


def _with(part: Any, fields: Mapping[str, str]) -> Any:
    match part:
        case str():
            return PLACE.sub(lambda place: fields[place[1]], part)
        case list():
            return [_with(entry, fields) for entry in part]
        case dict():
            return {name: _with(value, fields) for name, value in part.items()}
        case _:
            return part


def _strings(part: Any) -> Iterator[str]:
    match part:
        case str():
            yield part
        case list():
            for entry in part:
                yield from _strings(entry)
        case dict():
            for name, value in part.items():
                if PLACE.search(name):
                    raise ValueError("names of fields hold no {{…}}; their values do")
                yield from _strings(value)


def _body_flaw(template: str) -> str | None:
    if not template.strip():
        return 'a template is needed, such as {"text": "{{text}}"}'
    if len(template) > MOST_CHARS:
        return f"a template has {MOST_CHARS} characters at most"
    try:
        names = {name for text in _strings(json.loads(template)) for name in PLACE.findall(text)}
    except (ValueError, RecursionError) as error:
        return f"the template is not JSON: {error}" if isinstance(
            error, json.JSONDecodeError) else f"the template cannot be used: {error}"
    unknown = sorted(names - FIELDS.keys())
    if unknown:
        return f"there is no {{{{{unknown[0]}}}}}; there are {', '.join(FIELDS)}"
    return None


def _headers_flaw(headers: Mapping[str, str]) -> str | None:
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
            return f"{name[:50]!r} is not a header: a name and a line of printable ASCII"
        if name.lower() in OURS:
            return f"the header {name} is set by the hub"
    return None

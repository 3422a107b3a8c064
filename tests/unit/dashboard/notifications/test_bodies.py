"""Bodies for receivers with a form of their own: within their limits, and never with markup,
mentions or links that a node made up."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from dashboard.notifications.channels.table import channel_of, flaw
from dashboard.notifications.channels.webhook import WebhookChannel
from dashboard.notifications.receiver_directory import ReceiverDirectory
from dashboard.notifications.receivers import Receiver
from dashboard.notifications.store import NotificationsStore
from dashboard.notifications.words import (
    AlertNotification,
    NotifiedAlert,
    mail,
    sentence,
    text,
)
from dashboard.state import HubState

HOSTILE = "@everyone <!channel> [click](https://evil.example) **x** ~~y~~ `z` " + "ü" * 300
KINDS = ("alertmanager", "pagerduty", "jsm", "teams", "discord", "ntfy", "custom", "slack")
TEMPLATE = '{"status": "{{status}}", "body": {"lines": ["{{title}}", "{{ text }}"], "n": 3}}'


def line(number: int, state: str = "firing") -> NotifiedAlert:
    return NotifiedAlert(
        f"a{number}", "hot", f"Hot {HOSTILE}", "crit", state, "gpu", f"GPU-{number}", "n1",
        f"host-{number}-{HOSTILE}", str(number), ("alice", HOSTILE), 91.5, "°C", "temp_c", ">= 90",
        "30s", 1_000.0, 1_030.0, None if state == "firing" else 2_000.0, "", "https://deck/gpu/x",
        90.0)


def notification(count: int, over: int = 0) -> AlertNotification:
    lines = [line(at) for at in range(count)] + [line(at, "ended") for at in range(over)]
    return AlertNotification("n1", "r1", "hot", "", 5_000.0, "firing" if count else "resolved",
                             {"rule": "hot"}, count, over, 0, tuple(lines),
                             {"hot": "Look. " * 500}, "https://deck/alerts")


def request_to(kind: str, content: AlertNotification) -> Any:
    channel = channel_of(Receiver("r1", "ops", kind, "https://hook.example/x/topic", token="T",
                                  template=TEMPLATE))
    assert isinstance(channel, WebhookChannel)
    return channel.request(content, "T")


def texts(body: Any) -> list[str]:
    if isinstance(body, str):
        return [body]
    inside = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    return [words for part in inside for words in texts(part)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("count", "over"), [(1, 0), (50, 0), (0, 50), (3, 2)])
def test_bodies_are_within_the_limits(kind: str, count: int, over: int) -> None:
    body = request_to(kind, notification(count, over)).body
    size = len(json.dumps(body, ensure_ascii=False).encode())
    match kind:
        case "pagerduty":
            assert size <= 512_000
            assert len(body["payload"]["summary"]) <= 1_024
            assert len(body["dedup_key"]) <= 255
        case "jsm" if count:
            assert len(body["message"]) <= 130
            assert len(body["description"]) <= 15_000
        case "teams":
            assert size <= 28_000
        case "discord":
            [embed] = body["embeds"]
            assert len(embed["title"]) <= 256
            assert len(embed["description"]) <= 4_096
            assert len(embed["title"]) + len(embed["description"]) <= 6_000
        case "ntfy":
            assert size <= 4_096
        case "alertmanager":
            assert all(isinstance(value, str) and value for alert in body
                       for value in alert["labels"].values())
            assert all(alert["endsAt"] >= alert["startsAt"] for alert in body)


@pytest.mark.parametrize("kind", ["teams", "discord"])
def test_what_a_node_says_is_no_markup(kind: str) -> None:
    for words in texts(request_to(kind, notification(2)).body):
        for markup in ("[click](", "**x**", "~~y~~", "`z`", "<!channel>"):
            assert markup not in words


def test_mentions_reach_nobody_in_discord() -> None:
    assert request_to("discord", notification(1)).body["allowed_mentions"] == {"parse": []}


def test_a_template_is_filled_as_text_and_never_as_syntax() -> None:
    body = request_to("custom", notification(2)).body
    assert (body["status"], body["body"]["n"]) == ("firing", 3)
    head, words = body["body"]["lines"]
    assert HOSTILE.split()[0] in head
    assert "host-0" in words
    assert json.loads(json.dumps(body)) == body


@pytest.mark.parametrize(("template", "says"), [
    ("", "is needed"), ("{text}", "not JSON"), ('{"a": "{{texts}}"}', "there is no {{texts}}"),
    ('{"{{text}}": 1}', "names of fields"), ("[" * 9_000 + "]" * 9_000, "characters")])
def test_a_template_that_cannot_work(template: str, says: str) -> None:
    channel = channel_of(Receiver("r", "ops", "custom", "https://h.example/x",
                                  template=template))
    assert says in (channel.flaw() or "")


@pytest.mark.parametrize(("headers", "says"), [
    ({"X-Key": "a\r\nHost: evil"}, "not a header"), ({"X Key": "a"}, "not a header"),
    ({"X-Key": ""}, "not a header"), ({"hOsT": "evil"}, "set by the hub"),
    ({"Content-Length": "3"}, "set by the hub"), ({"X-Key": "{{token}}"}, "")])
def test_headers_that_cannot_be(headers: dict[str, str], says: str) -> None:
    channel = channel_of(Receiver("r", "ops", "custom", "https://h.example/x",
                                  template=TEMPLATE, headers=headers))
    assert says in (channel.flaw() or "")
    assert bool(says) == (channel.flaw() is not None)


def test_the_token_goes_where_a_header_asks_for_it() -> None:
    def request(**headers: str) -> Any:
        channel = channel_of(Receiver("r", "ops", "custom", "https://h.example/x", token="T",
                                      template=TEMPLATE, headers=headers))
        assert isinstance(channel, WebhookChannel)
        return channel.request(notification(1), "T")

    assert (request(X_Key="k {{token}}").headers, request(X_Key="k {{token}}").authorization) == (
        {"X_Key": "k T"}, "")
    assert request().authorization == "Bearer T"


# Of Slack's and Mattermost's documentation of incoming webhooks: fields with a meaning there.
CHAT: dict[str, Any] = {"type": "object", "required": ["text"], "properties": {
    "text": {"type": "string", "minLength": 1, "maxLength": 16_383},
    **{name: {"type": "string"} for name in (
        "channel", "username", "icon_url", "icon_emoji", "thread_ts", "type", "priority")},
    **{name: {"type": "array", "items": {"type": "object"}} for name in ("attachments", "blocks")},
    **{name: {"type": "boolean"} for name in ("mrkdwn", "unfurl_links", "unfurl_media")},
    "props": {"type": "object"}}}


@pytest.mark.parametrize(("count", "over"), [(1, 0), (50, 0), (0, 50), (3, 2)])
def test_slack_and_mattermost_get_their_markup(count: int, over: int) -> None:
    body = request_to("slack", notification(count, over)).body
    jsonschema.validate(body, CHAT)
    assert body.keys() == {"text"}, "nothing is said by accident"
    assert "<!channel>" not in body["text"], "nobody is called by what a node says"


def test_a_webhook_gets_plain_text() -> None:
    """Found by examiners: whoever read it got `&gt;`, as if everybody were Slack."""
    content = notification(1)
    body = request_to("webhook", content).body
    assert body["text"] == text(content)
    assert ">= 90 °C" in body["text"]
    [alert] = body["alerts"]
    assert (alert["value"], alert["unit"], alert["fires_at"]) == (91.5, "°C", 90.0)


@pytest.mark.parametrize("kind", [*KINDS, "webhook"])
def test_a_limit_has_its_unit(kind: str) -> None:
    """Found by visitors: "91.5 °C (fires at >= 90 for 30s)"."""
    content = " ".join(texts(request_to(kind, notification(1)).body))
    assert "91.5 °C" in content
    assert "= 90 °C for 30s" in content


def test_a_mail_has_limits_with_their_units() -> None:
    assert "(fires at >= 90 °C for 30s)" in mail(notification(1), "ops@example.org").text


def test_one_that_waited_since_an_older_hub_shows_its_limit_as_it_was_written() -> None:
    stored = msgspec.to_builtins(line(1))
    del stored["fires_at"]
    assert "91.5 °C (fires at >= 90 for 30s)" in sentence(msgspec.convert(stored, NotifiedAlert))


@pytest.mark.parametrize(("url", "kind"), [
    ("https://hooks.slack.com/services/T0/B0/x", "slack"),
    ("https://chat.example.org/hooks/abcdefghijklmnopqrstuvwx12", "slack"),
    ("https://chat.example.org/team/hooks/abcdefghijklmnopqrstuvwx12", "slack"),
    ("https://ops.example.org/hooks/slack.com/services", "webhook"),
    ("https://hooks.slack.com.example.org/x", "webhook")])
def test_a_webhook_of_a_chat_becomes_its_kind_and_no_new_one_is_taken(
    url: str, kind: str, tmp_path: Path
) -> None:
    """Plain text would let the name of a job call everybody there."""
    tmp_path.chmod(0o700)
    state = HubState.open(tmp_path)
    old = Receiver("r1", "ops", "webhook", url)
    state.store(NotificationsStore).put_receiver(old)
    assert ReceiverDirectory(state.store(NotificationsStore)).get("r1").kind == kind
    assert ("kind slack" in (flaw(old) or "")) == (kind == "slack")
    state.close()


@pytest.mark.parametrize("kind", ["slack", "teams", "discord", "ntfy"])
def test_a_headline_stands_once(kind: str) -> None:
    """Found by examiners: Teams and Discord showed it twice."""
    whole = " ".join(texts(request_to(kind, notification(1)).body))
    assert whole.count("Firing ") == 1

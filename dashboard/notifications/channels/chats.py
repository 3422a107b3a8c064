"""Chats: Slack (and Mattermost), Teams, Discord, ntfy.

Texts of nodes are plain: anything that a chat would read as markup, a mention or a link is made
harmless.
"""

import re
from typing import Any

from ..webhook import WebRequest
from ..words import AlertNotification, body, chat_text, title
from .channel import TEST
from .webhook import WebhookChannel

COLOURS = {"crit": 0xC62828, "warn": 0xB26A00, "info": 0x1565C0, "resolved": 0x2E7D32}
PRIORITIES = {"crit": 5, "warn": 4, "info": 3, "resolved": 2}
RANK = ("crit", "warn", "info")
TEAMS_MOST_BYTES = 20_000  # of some 28 KB for the whole message
DISCORD_MOST = 4_000
NTFY_MOST_BYTES = 3_000  # of 4,096, with title and URL


class SlackChannel(WebhookChannel):
    kind = "slack"
    title = "Slack or Mattermost: a message by webhook"
    description = "a channel of Slack or Mattermost, by the URL of its incoming webhook"

    def request(self, notification: AlertNotification, token: str) -> WebRequest:
        return self.build_request({"text": chat_text(notification)}, token)

    def test_request(self, url: str, token: str) -> WebRequest:
        return self.build_request({"text": f"{TEST}\n\nAll alerts: {url}/alerts"}, token)


class TeamsChannel(WebhookChannel):
    kind = "teams"
    title = "Teams: a card by a workflow"
    description = ("a channel of Microsoft Teams, by the URL of a workflow *When a Teams webhook "
                   "request is received*")

    def request(self, notification: AlertNotification, token: str) -> WebRequest:
        return self.build_request(
            _card(title(notification), body(notification), notification.url), token)

    def test_request(self, url: str, token: str) -> WebRequest:
        return self.build_request(_card("gpudeck: test", TEST, f"{url}/alerts"), token)


class DiscordChannel(WebhookChannel):
    kind = "discord"
    title = "Discord: a message by webhook"
    description = "a channel of Discord, by the URL of its webhook"

    def request(self, notification: AlertNotification, token: str) -> WebRequest:
        return self.build_request(_embed(title(notification), body(notification), notification.url,
                                         COLOURS[state(notification)]), token)

    def test_request(self, url: str, token: str) -> WebRequest:
        return self.build_request(
            _embed("gpudeck: test", TEST, f"{url}/alerts", COLOURS["info"]), token)


class NtfyChannel(WebhookChannel):
    kind = "ntfy"
    title = "ntfy: a push message to a topic"
    description = "a topic of ntfy, by its URL such as `https://ntfy.example.org/gpus`"

    def flaw(self) -> str | None:
        flaw = super().flaw()
        if flaw is None and not re.search(r"//[^/]+/(?:.*/)?[A-Za-z0-9_-]{1,64}/?$",
                                          self.receiver.to):
            return "the URL ends with the topic, such as https://ntfy.example.org/gpus"
        return flaw

    def request(self, notification: AlertNotification, token: str) -> WebRequest:
        return self._message(title(notification), body(notification), notification.url,
                             PRIORITIES[state(notification)], token)

    def test_request(self, url: str, token: str) -> WebRequest:
        return self._message("gpudeck: test", TEST, f"{url}/alerts", PRIORITIES["info"], token)

    def _message(self, head: str, words: str, url: str, priority: int, token: str) -> WebRequest:
        """Return a request to the server's root, which takes JSON with the topic inside."""
        site, _, topic = self.receiver.to.rstrip("/").rpartition("/")
        request = self.build_request({
            "topic": topic, "title": head[:250], "priority": priority, "click": url,
            "message": _cut(words, NTFY_MOST_BYTES)}, token)
        return WebRequest(f"{site}/", request.body, request.authorization)


def state(notification: AlertNotification) -> str:
    """Return the worst severity that fires, or "resolved"."""
    if not notification.firing:
        return "resolved"
    return min((alert.severity for alert in notification.alerts if alert.state != "ended"),
               key=RANK.index, default="info")


def _cut(words: str, most_bytes: int) -> str:
    return words.encode()[:most_bytes].decode(errors="ignore")


def _card(head: str, words: str, url: str) -> dict[str, Any]:
    return {"type": "message", "attachments": [{
        "contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None,
        "content": {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard", "version": "1.2", "msteams": {"width": "full"},
            "body": [
                {"type": "TextBlock", "text": _without_markdown(head), "wrap": True,
                 "weight": "bolder"},
                {"type": "TextBlock", "text": _cut(_without_markdown(words), TEAMS_MOST_BYTES),
                 "wrap": True}],
            "actions": [{"type": "Action.OpenUrl", "title": "All alerts", "url": url}]}}]}


def _without_markdown(words: str) -> str:
    """Return plain text for Markdown, where a single line end is ignored."""
    return _plain(words).replace("\n", "\n\n")


def _plain(words: str) -> str:
    return re.sub(r"([\\`*_{}\[\]()#+!<>|~])", r"\\\1", words)


def _embed(head: str, words: str, url: str, colour: int) -> dict[str, Any]:
    return {"allowed_mentions": {"parse": []}, "embeds": [{
        "title": _plain(head)[:256], "url": url, "color": colour,
        "description": _plain(words)[:DISCORD_MOST]}]}

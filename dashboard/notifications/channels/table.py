"""All channels. To add one: its file in this folder, and its row here."""

from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from ...alerts.core.firing_alerts import Alert
from ..receivers import Receiver, is_chat_url, token_flaw
from .alertmanager import AlertmanagerChannel
from .channel import Channel
from .chats import DiscordChannel, NtfyChannel, SlackChannel, TeamsChannel
from .custom import CustomChannel
from .heartbeat import HeartbeatChannel
from .incidents import JsmChannel, PagerDutyChannel
from .mail import MailChannel
from .owners import OwnersChannel
from .webhook import WebhookChannel

TABLE: tuple[type[Channel], ...] = (
    WebhookChannel, MailChannel, OwnersChannel, HeartbeatChannel, AlertmanagerChannel,
    PagerDutyChannel, JsmChannel, SlackChannel, TeamsChannel, DiscordChannel, NtfyChannel,
    CustomChannel)
CHANNELS = {channel.kind: channel for channel in TABLE}

if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(CHANNELS)]


def with_current_kind(receiver: Receiver) -> Receiver:
    """Convert a webhook to a chat into the kind slack: until 0.1 Slack and Mattermost were written
    to as webhooks, whose text was their markup."""
    if receiver.kind == WebhookChannel.kind and is_chat_url(receiver.to):
        return replace(receiver, kind=SlackChannel.kind)
    return receiver


def channel_of(receiver: Receiver) -> Channel:
    return CHANNELS[receiver.kind](receiver)


def flaw(receiver: Receiver) -> str | None:
    """Return why nothing could be sent there, or None."""
    return token_flaw(receiver) or channel_of(receiver).flaw()


def owners_for(receiver: Receiver, alert: Alert) -> tuple[str, ...]:
    """Return the owners for each of whom this receiver gets a notification; '' is nobody in
    particular."""
    return channel_of(receiver).owners(alert)

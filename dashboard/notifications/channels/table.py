"""The channels that there are. To add one: its file beside this one, and its row here."""

from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from ...alerts.core.firing_alerts import Alert
from ..receivers import Receiver, is_of_a_chat, token_flaw
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


def in_todays_kind(receiver: Receiver) -> Receiver:
    """Until 0.1 Slack and Mattermost were written to as a webhook, whose text was their markup."""
    if receiver.kind == WebhookChannel.kind and is_of_a_chat(receiver.to):
        return replace(receiver, kind=SlackChannel.kind)
    return receiver


def channel_of(receiver: Receiver) -> Channel:
    return CHANNELS[receiver.kind](receiver)


def flaw(receiver: Receiver) -> str | None:
    """Why nothing could be sent there."""
    return token_flaw(receiver) or channel_of(receiver).flaw()


def owners_for(receiver: Receiver, alert: Alert) -> tuple[str, ...]:
    """For whom this receiver makes a notification each; '' is nobody in particular."""
    return channel_of(receiver).owners(alert)

"""The channels that there are. To add one: its file beside this one, and its row here."""

from typing import TYPE_CHECKING, Literal

from ...alerts.core.firing_alerts import Alert
from ..receivers import Receiver, token_flaw
from .alertmanager import AlertmanagerChannel
from .channel import Channel
from .chats import DiscordChannel, NtfyChannel, TeamsChannel
from .custom import CustomChannel
from .heartbeat import HeartbeatChannel
from .incidents import JsmChannel, PagerDutyChannel
from .mail import MailChannel
from .owners import OwnersChannel
from .webhook import WebhookChannel

TABLE: tuple[type[Channel], ...] = (
    WebhookChannel, MailChannel, OwnersChannel, HeartbeatChannel, AlertmanagerChannel,
    PagerDutyChannel, JsmChannel, TeamsChannel, DiscordChannel, NtfyChannel,
    CustomChannel)
CHANNELS = {channel.kind: channel for channel in TABLE}

if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(CHANNELS)]


def channel_of(receiver: Receiver) -> Channel:
    return CHANNELS[receiver.kind](receiver)


def flaw(receiver: Receiver) -> str | None:
    """Why nothing could be sent there."""
    return token_flaw(receiver) or channel_of(receiver).flaw()


def owners_for(receiver: Receiver, alert: Alert) -> tuple[str, ...]:
    """For whom this receiver makes a notification each; '' is nobody in particular."""
    return channel_of(receiver).owners(alert)

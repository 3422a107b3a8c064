"""Receivers, waiting notifications and addresses, as the API and the pages show them. Pure."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from ..alerts.core.rule import RuleId, Severity
from .channels.channel import Destination
from .channels.table import Kind, channel_of
from .receiver_directory import ReceiverStatus
from .receivers import Receiver
from .retry import QueuedNotification
from .transports import DeliveryResult
from .words import title

UnixName = Annotated[str, Meta(min_length=1, max_length=128)]
Address = Annotated[str, Meta(min_length=3, max_length=254)]


class NewReceiver(Struct, forbid_unknown_fields=True):
    """`rules`: empty means all of them."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    kind: Kind
    to: Annotated[str, Meta(max_length=2_000)] = ""
    least: Severity = "warn"
    rules: Annotated[tuple[RuleId, ...], Meta(max_length=200)] = ()
    token: Annotated[str, Meta(max_length=2_000)] = ""
    token_file: Annotated[str, Meta(max_length=64)] = ""
    is_on: bool = True
    template: Annotated[str, Meta(max_length=10_000)] = ""
    headers: Annotated[dict[str, str], Meta(max_length=20)] = {}


class ReceiverTestView(Struct):
    is_taken: bool
    words: str


class ReceiverView(Struct):
    """A receiver as shown; `to` without the path of a URL, which is often its secret."""

    id: str
    name: str
    kind: Kind
    to: str
    least: Severity
    rules: list[str]
    has_token: bool
    token_file: str
    is_on: bool
    template: str
    headers: dict[str, str]
    waiting: int
    parked: int
    sent: int
    failed: int
    unreached: int
    dropped: int
    told_at: float | None
    error: str
    error_at: float | None
    test: ReceiverTestView | None  # the last one since the hub started
    tested_at: float | None


class ChannelView(Struct):
    """A kind of receiver. `destination`: what its `to` holds; `to_words` and `wants_words`: shown
    instead of its destination, and instead of the alerts that it wants."""

    kind: Kind
    title: str
    destination: Destination
    needs_mail: bool
    has_template: bool
    to_words: str
    wants_words: str


class ReceiverList(Struct):
    """`has_mail`: a mail server is set up. `muted`: alerts never reported, as they were silenced or
    explained by another alert until they ended. `kinds`: of receivers that can be added."""

    items: list[ReceiverView]
    has_mail: bool
    muted: int
    kinds: list[ChannelView]


class WaitingNotificationView(Struct):
    id: str
    receiver: str
    title: str
    at: float
    attempts: int
    next_at: float
    error: str
    parked_at: float | None
    state: Literal["waiting", "parked"]


class WaitingNotificationList(Struct):
    """At most 200 notifications."""

    items: list[WaitingNotificationView]
    total: int


class AddressView(Struct, forbid_unknown_fields=True):
    unix_name: UnixName
    address: Address


class AddressList(Struct, forbid_unknown_fields=True):
    items: Annotated[list[AddressView], Meta(max_length=10_000)]


def receiver_view(receiver: Receiver, status: ReceiverStatus, queued: list[QueuedNotification]
                  ) -> ReceiverView:
    parked = sum(entry.parked_at is not None for entry in queued)
    return ReceiverView(
        receiver.id, receiver.name, receiver.kind, channel_of(receiver).shown_to(), receiver.least,
        [*receiver.rules], bool(receiver.token), receiver.token_file, receiver.is_on,
        receiver.template, receiver.headers, len(queued) - parked, parked, status.sent,
        status.failed, status.unreached, status.dropped, status.told_at, status.error,
        status.error_at, None if status.test is None else test_view(status.test), status.tested_at)


def test_view(result: DeliveryResult) -> ReceiverTestView:
    return ReceiverTestView(result.is_taken, result.words)


def waiting_view(entry: QueuedNotification) -> WaitingNotificationView:
    notice = entry.notice
    return WaitingNotificationView(
        notice.id, notice.receiver, title(notice), notice.at, entry.attempts, entry.next_at,
        entry.error, entry.parked_at, "waiting" if entry.parked_at is None else "parked")


def receiver_of(draft: NewReceiver) -> Receiver:
    return Receiver("", draft.name.strip(), draft.kind, draft.to.strip(), draft.least, draft.rules,
                    draft.token.strip(), draft.token_file.strip(), draft.is_on,
                    draft.template.strip(), draft.headers)


def address_list(addresses: Mapping[str, str]) -> AddressList:
    return AddressList([AddressView(*row) for row in sorted(addresses.items())])

"""REST of receivers, waiting notifications and owners' addresses. NotificationService and
OwnerAddresses decide what is allowed."""

from dataclasses import dataclass

from msgspec import convert

from ..access.policy import PermissionReach, Role
from ..access.requests import caller
from ..access.routes import Route, change, see
from ..web.answers import bad
from . import views
from .addresses import OwnerAddresses
from .channels.table import TABLE
from .receivers import Receiver
from .service import NotificationService
from .store import MOST_LISTED


@dataclass(frozen=True, slots=True)
class NotificationsApi:
    service: NotificationService
    addresses: OwnerAddresses

    def receivers(self) -> views.ReceiverList:
        receivers = sorted(self.service.receivers,
                           key=lambda receiver: (receiver.kind, receiver.name))
        return views.ReceiverList(
            [self._view(receiver) for receiver in receivers], self.service.transports.has_mail,
            self.service.groups.muted,
            convert(TABLE, list[views.ChannelView], from_attributes=True))

    def _view(self, receiver: Receiver) -> views.ReceiverView:
        queued = [entry for entry in self.service.outbox if entry.notice.receiver == receiver.id]
        return views.receiver_view(receiver, self.service.receivers.status[receiver.id], queued)

    def add_receiver(self, draft: views.NewReceiver) -> views.ReceiverView:
        return self._view(self.service.add(caller(), views.receiver_of(draft)))

    def change_receiver(self, draft: views.NewReceiver, receiver_id: str) -> views.ReceiverView:
        return self._view(self.service.change(caller(), receiver_id, views.receiver_of(draft)))

    def remove_receiver(self, receiver_id: str) -> None:
        self.service.remove(caller(), receiver_id)

    def test_receiver(self, receiver_id: str) -> views.ReceiverTestView:
        return views.test_view(self.service.test(caller(), receiver_id))

    def notices(self) -> views.WaitingNotificationList:
        waiting = sorted(self.service.outbox,
                         key=lambda entry: (entry.parked_at is None, -entry.notice.at))
        return views.WaitingNotificationList(
            [views.waiting_view(entry) for entry in waiting[:MOST_LISTED]], len(waiting))

    def retry_notice(self, notice_id: str) -> None:
        self.service.retry(caller(), notice_id)

    def drop_notice(self, notice_id: str) -> None:
        self.service.drop(caller(), notice_id)

    def owner_addresses(self) -> views.AddressList:
        return views.address_list(self.addresses.all())

    def replace_addresses(self, address_list: views.AddressList) -> views.AddressList:
        addresses = {row.unix_name: row.address for row in address_list.items}
        if len(addresses) != len(address_list.items):
            raise bad("a Unix name is listed twice")
        self.addresses.replace(caller(), addresses)
        return views.address_list(addresses)

    def put_address(self, address: views.AddressView) -> views.AddressList:
        self.addresses.put(caller(), address.unix_name, address.address)
        return self.owner_addresses()

    def remove_address(self, unix_name: str) -> None:
        self.addresses.remove(caller(), unix_name)


ROUTES = (
    Route("GET addresses", NotificationsApi.owner_addresses, "list_addresses",
          see(Role.ADMIN, PermissionReach.NONE),
          "E-mail addresses of task owners."),
    Route("PUT addresses", NotificationsApi.replace_addresses, "put_addresses",
          change(Role.ADMIN, is_fresh=False),
          "Replace the whole table.", errors=(409,)),
    Route("POST addresses", NotificationsApi.put_address, "put_address",
          change(Role.ADMIN, is_fresh=False),
          "Add an owner's address, or replace it.", errors=(409,)),
    Route("DELETE addresses/<unix_name>", NotificationsApi.remove_address, "remove_address",
          change(Role.ADMIN, is_fresh=False), "Remove an owner's address.", errors=(404, 409)),
    # For admins only, because what is sent there leaves the hub.
    Route("GET receivers", NotificationsApi.receivers, "list_receivers",
          see(Role.ADMIN, PermissionReach.NONE),
          "Receivers of notifications, and their deliveries since the hub started."),
    Route("POST receivers", NotificationsApi.add_receiver, "add_receiver", change(Role.ADMIN),
          "Create a receiver of notifications: a webhook, addresses, the owners of tasks, or a "
          "heartbeat every minute.", status=201),
    Route("PUT receivers/<receiver_id>", NotificationsApi.change_receiver, "change_receiver",
          change(Role.ADMIN),
          "Replace a receiver; an empty `to` or no token keeps the present one.",
          errors=(404, 409)),
    Route("DELETE receivers/<receiver_id>", NotificationsApi.remove_receiver, "remove_receiver",
          change(Role.ADMIN),
          "Remove a receiver and its waiting notifications.", errors=(404,)),
    Route("POST receivers/<receiver_id>/test", NotificationsApi.test_receiver, "test_receiver",
          change(Role.ADMIN),
          "Send a test notification now.", errors=(404,)),
    Route("GET notices", NotificationsApi.notices, "list_notices",
          see(Role.ADMIN, PermissionReach.NONE),
          "Notifications not delivered yet, and those given up after a day."),
    Route("POST notices/<notice_id>/retry", NotificationsApi.retry_notice, "retry_notice",
          change(Role.ADMIN, is_fresh=False),
          "Retry it now.", errors=(404,)),
    Route("DELETE notices/<notice_id>", NotificationsApi.drop_notice, "drop_notice",
          change(Role.ADMIN),
          "Drop it.", errors=(404,)),
)

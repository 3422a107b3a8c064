"""REST of receivers and of notices that wait. What is allowed, the desk decides."""

from http import HTTPStatus

import msgspec
from flask import Flask, Response

from ..access.policy import PermissionReach, Role
from ..access.requests import asker, body
from ..access.routes import Route, change, see, serve_routes
from ..web.answers import answer
from .receivers import Receiver
from .service import NotificationService
from .store import MOST_LISTED
from .views import (
    NewReceiver,
    ReceiverList,
    ReceiverTestView,
    ReceiverView,
    WaitingNotificationList,
    receiver_of,
    shown,
    waiting_view,
)


class NotificationsApi:
    def __init__(self, desk: NotificationService) -> None:
        self._desk = desk

    def receivers(self) -> Response:
        found = sorted(self._desk.receivers.values(), key=lambda each: (each.kind, each.name))
        return answer(ReceiverList([self._view(each) for each in found], self._desk.has_mail,
                                   self._desk.groups.muted))

    def _view(self, receiver: Receiver) -> ReceiverView:
        lane = self._desk.lanes[receiver.id]
        mine = [each for each in self._desk.waiting.values()
                if each.notice.receiver == receiver.id]
        parked = sum(each.parked_at is not None for each in mine)
        return msgspec.convert(shown(receiver) | {
            "waiting": len(mine) - parked, "parked": parked, "sent": lane.sent,
            "failed": lane.failed, "unreached": lane.unreached, "dropped": lane.dropped,
            "told_at": lane.told_at, "error": lane.error, "error_at": lane.error_at}, ReceiverView)

    def add_receiver(self) -> Response:
        asked = body(NewReceiver)
        return answer(self._view(self._desk.add(asker(), receiver_of(asked))), HTTPStatus.CREATED)

    def change_receiver(self, receiver_id: str) -> Response:
        asked = body(NewReceiver)
        return answer(self._view(self._desk.change(asker(), receiver_id, receiver_of(asked))))

    def remove_receiver(self, receiver_id: str) -> Response:
        self._desk.remove(asker(), receiver_id)
        return Response(status=HTTPStatus.NO_CONTENT)

    def test_receiver(self, receiver_id: str) -> Response:
        return answer(ReceiverTestView(*self._desk.try_out(asker(), receiver_id)))

    def notices(self) -> Response:
        found = sorted(self._desk.waiting.values(),
                       key=lambda each: (each.parked_at is None, -each.notice.at))
        return answer(WaitingNotificationList([waiting_view(each) for each in found[:MOST_LISTED]],
                                              len(found)))

    def retry_notice(self, notice_id: str) -> Response:
        self._desk.retry(asker(), notice_id)
        return Response(status=HTTPStatus.NO_CONTENT)

    def drop_notice(self, notice_id: str) -> Response:
        self._desk.drop(asker(), notice_id)
        return Response(status=HTTPStatus.NO_CONTENT)


ROUTES = (
    # An admin's alone, because what is sent there leaves the hub.
    Route("GET receivers", NotificationsApi.receivers, "list_receivers",
          see(Role.ADMIN, PermissionReach.NONE),
          "Where notices go, and how each has been doing since the hub was started.",
          answer=ReceiverList),
    Route("POST receivers", NotificationsApi.add_receiver, "add_receiver",
          change(Role.ADMIN),
          "A place for notices: a webhook, addresses, the owners of tasks, or a heartbeat that "
          "comes every minute.",
          answer=ReceiverView, body=NewReceiver, status=201, errors=(400, 409, 415,
          503)),
    Route("PUT receivers/<receiver_id>", NotificationsApi.change_receiver, "change_receiver",
          change(Role.ADMIN),
          "The whole of it; an empty `to` or no token leaves what there is.",
          answer=ReceiverView, body=NewReceiver, errors=(400, 404, 409, 415, 503)),
    Route("DELETE receivers/<receiver_id>", NotificationsApi.remove_receiver, "remove_receiver",
          change(Role.ADMIN),
          "And what waits to be sent there.",
          status=204, errors=(404, 503)),
    Route("POST receivers/<receiver_id>/test", NotificationsApi.test_receiver, "test_receiver",
          change(Role.ADMIN),
          "Sends it a notice that is none, now.",
          answer=ReceiverTestView, errors=(404, 503)),
    Route("GET notices", NotificationsApi.notices, "list_notices",
          see(Role.ADMIN, PermissionReach.NONE),
          "What was not taken yet, and what was put aside after a day.",
          answer=WaitingNotificationList),
    Route("POST notices/<notice_id>/retry", NotificationsApi.retry_notice, "retry_notice",
          change(Role.ADMIN, is_fresh=False),
          "Tries it again at once.",
          status=204, errors=(404, 503)),
    Route("DELETE notices/<notice_id>", NotificationsApi.drop_notice, "drop_notice",
          change(Role.ADMIN),
          "It is not sent.",
          status=204, errors=(404, 503)),
)


def add_notices_api(server: Flask, api: NotificationsApi) -> None:
    serve_routes(server, api, ROUTES)

"""REST of receivers and of notifications that wait. NotificationAdmin decides what is allowed."""

from collections.abc import Callable
from http import HTTPStatus

import msgspec
from flask import Blueprint, Flask, Response

from ..access.requests import asker, body
from ..web.answers import PREFIX, answer
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
    def __init__(self, service: NotificationService) -> None:
        self._service = service
        self._admin = service.admin

    def receivers(self) -> Response:
        found = sorted(self._service.receivers, key=lambda each: (each.kind, each.name))
        return answer(ReceiverList([self._view(each) for each in found], self._service.has_mail,
                                   self._service.groups.muted))

    def _view(self, receiver: Receiver) -> ReceiverView:
        status = self._service.receivers.status[receiver.id]
        mine = [each for each in self._service.outbox if each.notice.receiver == receiver.id]
        parked = sum(each.parked_at is not None for each in mine)
        return msgspec.convert(shown(receiver) | {
            "waiting": len(mine) - parked, "parked": parked, "sent": status.sent,
            "failed": status.failed, "unreached": status.unreached, "dropped": status.dropped,
            "told_at": status.told_at, "error": status.error, "error_at": status.error_at},
            ReceiverView)

    def add_receiver(self) -> Response:
        asked = body(NewReceiver)
        return answer(self._view(self._admin.add(asker(), receiver_of(asked))), HTTPStatus.CREATED)

    def change_receiver(self, receiver_id: str) -> Response:
        asked = body(NewReceiver)
        return answer(self._view(self._admin.change(asker(), receiver_id, receiver_of(asked))))

    def remove_receiver(self, receiver_id: str) -> Response:
        self._admin.remove(asker(), receiver_id)
        return Response(status=HTTPStatus.NO_CONTENT)

    def test_receiver(self, receiver_id: str) -> Response:
        result = self._admin.test(asker(), receiver_id)
        return answer(ReceiverTestView(result.is_taken, result.words))

    def notices(self) -> Response:
        found = sorted(self._service.outbox,
                       key=lambda each: (each.parked_at is None, -each.notice.at))
        return answer(WaitingNotificationList([waiting_view(each) for each in found[:MOST_LISTED]],
                                              len(found)))

    def retry_notice(self, notice_id: str) -> Response:
        self._admin.retry(asker(), notice_id)
        return Response(status=HTTPStatus.NO_CONTENT)

    def drop_notice(self, notice_id: str) -> Response:
        self._admin.drop(asker(), notice_id)
        return Response(status=HTTPStatus.NO_CONTENT)


def add_notifications_api(server: Flask, api: NotificationsApi) -> None:
    routes = Blueprint("notices", __name__, url_prefix=PREFIX)
    table: tuple[tuple[str, str, Callable[..., Response]], ...] = (
        ("GET", "/receivers", api.receivers), ("POST", "/receivers", api.add_receiver),
        ("PUT", "/receivers/<receiver_id>", api.change_receiver),
        ("DELETE", "/receivers/<receiver_id>", api.remove_receiver),
        ("POST", "/receivers/<receiver_id>/test", api.test_receiver),
        ("GET", "/notices", api.notices),
        ("POST", "/notices/<notice_id>/retry", api.retry_notice),
        ("DELETE", "/notices/<notice_id>", api.drop_notice),
    )
    for method, rule, view in table:
        routes.add_url_rule(rule, f"{view.__name__} {method}", view, methods=[method],
                            provide_automatic_options=False)
    server.register_blueprint(routes)

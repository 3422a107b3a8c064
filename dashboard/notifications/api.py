"""REST of receivers and of notices that wait. What is allowed, the desk decides."""

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


def add_notices_api(server: Flask, api: NotificationsApi) -> None:
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

"""REST of enrolments and of what may be done with nodes. What is allowed, the service decides."""

import time
from collections.abc import Callable
from http import HTTPStatus

from flask import Blueprint, Flask, Response

from ..access.requests import asker, body
from ..fleet import views
from ..fleet.members import EnrolledNode, Enrolment, EnrolmentRequest
from ..fleet.state_machine import FleetStateMachine
from ..web.answers import PREFIX, ApiError, answer
from .enrolment import EnrolmentService, command
from .views import EnrolmentList, EnrolmentView, NewEnrolment, NodeChange


class NodesApi:
    def __init__(self, nodes: EnrolmentService, room: FleetStateMachine,
                 url: Callable[[], str]) -> None:
        self._nodes = nodes
        self._room = room
        self._url = url

    def enrolments(self) -> Response:
        return answer(EnrolmentList([_view(each) for each in self._nodes.enrolments(asker())]))

    def create(self) -> Response:
        asked = body(NewEnrolment)
        wanted = EnrolmentRequest(asked.host, asked.approve, asked.group)
        wrong = wanted.flaw()
        if wrong is not None:
            raise ApiError(HTTPStatus.BAD_REQUEST, wrong)
        token, enrolment = self._nodes.create(asker(), wanted)
        shown = _view(enrolment)
        shown.token, shown.command = token.text, command(self._url(), token)
        return answer(shown, HTTPStatus.CREATED)

    def withdraw(self, enrolment_id: str) -> Response:
        self._nodes.withdraw(asker(), enrolment_id)
        return Response(status=HTTPStatus.NO_CONTENT)

    def change(self, node_id: str) -> Response:
        return self._shown(self._nodes.put_in_group(asker(), node_id, body(NodeChange).group))

    def approve(self, node_id: str) -> Response:
        return self._shown(self._nodes.approve(asker(), node_id))

    def revoke(self, node_id: str) -> Response:
        return self._shown(self._nodes.revoke(asker(), node_id))

    def _shown(self, member: EnrolledNode) -> Response:
        if member.node_id not in self._room.fleet.nodes:
            return answer(views.member_view(member))
        return answer(views.node_view(self._room, member.node_id, member, time.monotonic()))


def _view(enrolment: Enrolment) -> EnrolmentView:
    return EnrolmentView(enrolment.id, enrolment.host, enrolment.approve, enrolment.group,
                         enrolment.created_at, enrolment.created_by, enrolment.expires_at,
                         enrolment.used_by)


def add_nodes_api(server: Flask, api: NodesApi) -> None:
    routes = Blueprint("enrolments", __name__, url_prefix=PREFIX)
    table: tuple[tuple[str, str, Callable[..., Response]], ...] = (
        ("GET", "/enrolments", api.enrolments), ("POST", "/enrolments", api.create),
        ("DELETE", "/enrolments/<enrolment_id>", api.withdraw),
        ("PATCH", "/nodes/<node_id>", api.change),
        ("POST", "/nodes/<node_id>/approve", api.approve),
        ("POST", "/nodes/<node_id>/revoke", api.revoke),
    )
    for method, rule, view in table:
        routes.add_url_rule(rule, view_func=view, methods=[method],
                            provide_automatic_options=False)
    server.register_blueprint(routes)

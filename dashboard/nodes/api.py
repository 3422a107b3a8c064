"""REST of enrolments and of what may be done with nodes. The service decides what is allowed."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from ..access.policy import PermissionReach, Role
from ..access.requests import caller
from ..access.routes import Route, change, see
from ..fleet import views
from ..fleet.members import EnrolledNode, Enrolment, NewEnrolment
from ..fleet.state_machine import FleetStateMachine
from ..fleet.views import NodeView
from ..web.answers import bad
from .enrolment import EnrolmentService, command
from .views import (
    ApprovalRequest,
    ApprovalViewList,
    EnrolmentList,
    EnrolmentView,
    NodeChange,
)


@dataclass(eq=False, slots=True)
class NodesApi:
    service: EnrolmentService
    machine: FleetStateMachine
    url: Callable[[], str]

    def enrolments(self) -> EnrolmentList:
        return EnrolmentList([_view(enrolment) for enrolment in self.service.enrolments(caller())])

    def enrolment(self, enrolment_id: str) -> EnrolmentView:
        return _view(self.service.enrolment(caller(), enrolment_id))

    def create(self, request: NewEnrolment) -> EnrolmentView:
        wrong = request.flaw()
        if wrong is not None:
            raise bad(wrong)
        token, enrolment = self.service.create(caller(), request)
        view = _view(enrolment)
        view.token, view.command = token.text, command(self.url(), token)
        return view

    def withdraw(self, enrolment_id: str) -> None:
        self.service.withdraw(caller(), enrolment_id)

    def change(self, request: NodeChange, node_id: str) -> NodeView:
        return self._node_view(self.service.put_in_group(caller(), node_id, request.group))

    def approve(self, node_id: str) -> NodeView:
        return self._node_view(self.service.approve(caller(), node_id))

    def approve_all(self, request: ApprovalRequest) -> ApprovalViewList:
        return ApprovalViewList(self.service.approve_all(caller(), request.fingerprints))

    def revoke(self, node_id: str) -> NodeView:
        return self._node_view(self.service.revoke(caller(), node_id))

    def _node_view(self, member: EnrolledNode) -> NodeView:
        return views.node_view(self.machine, member.node_id, member, time.monotonic())


def _view(enrolment: Enrolment) -> EnrolmentView:
    return msgspec.convert(enrolment, EnrolmentView, from_attributes=True)


CHANGE = change(Role.ADMIN, is_fresh=False)
ROUTES = (
    Route("GET enrolments", NodesApi.enrolments, "list_enrolments",
          see(Role.ADMIN, PermissionReach.NONE),
          "Enrolments for new nodes, including those that ended within the last day."),
    Route("GET enrolments/<enrolment_id>", NodesApi.enrolment, "get_enrolment",
          see(Role.ADMIN, PermissionReach.NONE),
          "One enrolment, and how often it was used.", errors=(404,)),
    Route("POST enrolments", NodesApi.create, "add_enrolment", CHANGE,
          "Create an enrolment for one Node or several, valid for an hour unless `lasts_s` says "
          "otherwise; `token` and `command` are shown only once.",
          status=201),
    Route("DELETE enrolments/<enrolment_id>", NodesApi.withdraw, "withdraw_enrolment", CHANGE,
          "Withdraw an unused enrolment.", errors=(404,)),
    Route("PATCH nodes/<node_id>", NodesApi.change, "change_node", CHANGE,
          "Move a Node into another group.", errors=(404, 409)),
    Route("POST nodes/<node_id>/approve", NodesApi.approve, "approve_node", CHANGE,
          "Approve a waiting Node.", errors=(404,)),
    Route("POST nodes/approvals", NodesApi.approve_all, "approve_nodes", CHANGE,
          "Approve the waiting Nodes of a list of fingerprints; the answer says what became of "
          "each."),
    Route("POST nodes/<node_id>/revoke", NodesApi.revoke, "revoke_node", CHANGE,
          "Revoke a Node, within a second and permanently.", errors=(404,)),
)

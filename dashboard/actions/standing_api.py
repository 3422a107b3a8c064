"""REST of hold and keep. What is allowed, the services decide."""

from dataclasses import dataclass
from http import HTTPStatus

from flask import Flask, Response, request

from gpudeck.action_views import KeepView

from ..access.policy import PermissionReach, Role
from ..access.requests import asker, body
from ..access.routes import Route, change, see, serve_routes
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from ..web.answers import ApiError, answer
from .holds import HoldService
from .owner_keeps import OwnerKeepService
from .standing_store import HoldRecord
from .standing_views import (
    HoldStateView,
    HoldView,
    NewHold,
    NewKeep,
    NodeHoldView,
)


@dataclass(frozen=True, slots=True)
class StandingApi:
    fleet: Fleet
    lenses: VisibleFleetCache
    holds: HoldService
    keeps: OwnerKeepService

    # -- hold

    def hold_state(self) -> Response:
        return answer(hold_state(self.fleet, self.holds,
                                 self.lenses.of(VisibilityScope.of(asker()))))

    def hold(self) -> Response:
        asked = body(NewHold)
        self.holds.hold(asker(), asked.node, asked.reason)
        return self.hold_state()

    def release(self) -> Response:
        given = request.args.getlist("node")
        if len(given) > 1 or set(request.args) - {"node"} or "" in given:
            raise ApiError(HTTPStatus.BAD_REQUEST,
                           "the one parameter here is `node`; without it the "
                           "hold of the whole fleet is released")
        self.holds.release(asker(), given[0] if given else None)
        return self.hold_state()

    # -- keep

    def keep(self, task_id: str) -> Response:
        asked = body(NewKeep)
        made = self.keeps.set(asker(), task_id, asked.until, asked.because)
        return answer(KeepView(made.until, made.because, made.by))

    def keep_no_more(self, task_id: str) -> Response:
        self.keeps.remove(asker(), task_id)
        return Response(status=HTTPStatus.NO_CONTENT)


def hold_state(fleet: Fleet, holds: HoldService, lens: VisibleFleet) -> HoldStateView:
    whole = holds.fleet
    return HoldStateView(None if whole is None else HoldView(whole.by, whole.reason, whole.since),
                         [_held(fleet, holds, node_id) for node_id in holds.held_nodes()
                          if lens.sees_node(node_id)])


def _held(fleet: Fleet, holds: HoldService, node_id: str) -> NodeHoldView:
    own: HoldRecord | None = holds.of(node_id)
    node = fleet.nodes.get(node_id)
    return NodeHoldView(node_id, None if node is None else node.hello.host, [*holds.said(node_id)],
                        holds.wanted(node_id) is not None, None if own is None else own.by,
                        None if own is None else own.reason, None if own is None else own.since)


ROUTES = (
    Route("GET hold", StandingApi.hold_state, "get_hold",
          see(Role.VIEWER),
          "What is held, and by whom: the fleet, and each Node.",
          answer=HoldStateView),
    # Stopping must be quick; letting go needs the password.
    Route("POST hold", StandingApi.hold, "hold",
          change(Role.OPERATOR, PermissionReach.LENS, is_fresh=False),
          "Stops every act on a Node, or with `node` null on the fleet, at once and until it "
          "is released.",
          answer=HoldStateView, body=NewHold, errors=(400, 404, 409, 415, 503)),
    Route("DELETE hold", StandingApi.release, "release",
          change(Role.OPERATOR, PermissionReach.LENS),
          "Lets go of a hold that was ordered here.",
          answer=HoldStateView, errors=(400, 404, 503),
          query=(("node", {"type": "string", "minLength": 1}),)),
    Route("PUT tasks/<path:task_id>/keep", StandingApi.keep, "keep_task",
          change(Role.USER, PermissionReach.LENS, is_fresh=False),
          "Its owner wants the Task to be left alone until then, within seven days.",
          answer=KeepView, body=NewKeep, errors=(400, 404, 409, 415, 503)),
    Route("DELETE tasks/<path:task_id>/keep", StandingApi.keep_no_more, "keep_task_no_more",
          change(Role.USER, PermissionReach.LENS, is_fresh=False),
          "Takes that back.",
          status=204, errors=(404, 503)),
)


def add_standing_api(server: Flask, api: StandingApi) -> None:
    serve_routes(server, api, ROUTES)

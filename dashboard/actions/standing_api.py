"""REST of hold and keep. What is allowed, the services decide."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from flask import Blueprint, Flask, Response, request

from gpudeck.action_views import KeepView

from ..access.requests import asker, body
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from ..web.answers import PREFIX, ApiError, answer
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


def add_standing_api(server: Flask, api: StandingApi) -> None:
    routes = Blueprint("standing", __name__, url_prefix=PREFIX)
    table: tuple[tuple[str, str, Callable[..., Response]], ...] = (
        ("GET", "/hold", api.hold_state), ("POST", "/hold", api.hold),
        ("DELETE", "/hold", api.release),
        ("PUT", "/tasks/<path:task_id>/keep", api.keep),
        ("DELETE", "/tasks/<path:task_id>/keep", api.keep_no_more),
    )
    for method, rule, view in table:
        routes.add_url_rule(rule, f"{view.__name__} {method}", view, methods=[method],
                            provide_automatic_options=False)
    server.register_blueprint(routes)

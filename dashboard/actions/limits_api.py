"""REST of MPS and of limits of Gpus, as they are. To change them is an act: POST previews."""

from http import HTTPStatus

from flask import Flask, Response, request

from ..access.policy import Role
from ..access.requests import asker
from ..access.routes import Route, see, serve_routes
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from ..web.answers import ApiError, answer
from ..web.openapi_parts import NODE_QUERY
from .limits_views import LimitsList, MpsList, limits_list, mps_list


class LimitsApi:
    def __init__(self, fleet: Fleet, lenses: VisibleFleetCache) -> None:
        self._fleet = fleet
        self._lenses = lenses

    def mps(self) -> Response:
        return answer(mps_list(self._fleet, self._lens(), _node()))

    def limits(self) -> Response:
        return answer(limits_list(self._fleet, self._lens(), _node()))

    def _lens(self) -> VisibleFleet:
        return self._lenses.of(VisibilityScope.of(asker()))


def _node() -> str | None:
    given = request.args.getlist("node")
    if len(given) > 1 or set(request.args) - {"node"} or "" in given:
        raise ApiError(HTTPStatus.BAD_REQUEST,
                       "the one parameter here is `node`, an id; without it "
                       "all nodes are listed")
    return given[0] if given else None


ROUTES = (
    Route("GET mps", LimitsApi.mps, "list_mps",
          see(Role.VIEWER),
          "MPS on each Node that has said: daemons, servers, clients, and what is set.",
          answer=MpsList, errors=(400,),
          query=NODE_QUERY),
    Route("GET limits", LimitsApi.limits, "list_limits",
          see(Role.VIEWER),
          "Power caps, clock locks and compute modes that gpudeck holds on Gpus: until when, "
          "and whether they are in force.",
          answer=LimitsList, errors=(400,),
          query=NODE_QUERY),
)


def add_limits_api(server: Flask, api: LimitsApi) -> None:
    serve_routes(server, api, ROUTES)

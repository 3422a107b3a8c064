"""REST of MPS and of limits of Gpus, as they are. To change them is an act: POST previews."""

from collections.abc import Callable
from http import HTTPStatus

from flask import Blueprint, Flask, Response, request

from ..access.requests import asker
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from ..web.answers import PREFIX, ApiError, answer
from .limits_views import limits_list, mps_list


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


def add_limits_api(server: Flask, api: LimitsApi) -> None:
    routes = Blueprint("limits", __name__, url_prefix=PREFIX)
    table: tuple[tuple[str, str, Callable[..., Response]], ...] = (
        ("GET", "/mps", api.mps), ("GET", "/limits", api.limits))
    for method, rule, view in table:
        routes.add_url_rule(rule, view_func=view, methods=[method],
                            provide_automatic_options=False)
    server.register_blueprint(routes)

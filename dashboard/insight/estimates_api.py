"""REST of estimates: needs of a model, and GPUs of the fleet on which it fits."""

from collections.abc import Callable
from dataclasses import dataclass

from gpudeck.estimate.config import EstimateError
from gpudeck.estimate.fit import FleetBoards
from gpudeck.estimate.request import EstimateAsked, EstimateView, answer

from ..access.policy import PermissionReach, Role
from ..access.requests import caller
from ..access.routes import Route, change
from ..fleet.visibility import VisibleFleet, VisibleFleetCache
from ..web.answers import bad


@dataclass(frozen=True, slots=True)
class EstimatesApi:
    boards: Callable[[VisibleFleet], list[FleetBoards]]
    visible_fleets: VisibleFleetCache

    def estimate(self, query: EstimateAsked) -> EstimateView:
        boards = self.boards(self.visible_fleets.seen_by(caller()))
        try:
            return answer(query, boards)
        except EstimateError as error:
            raise bad(str(error)) from None


ROUTES = (
    Route("POST estimates", EstimatesApi.estimate, "estimate",
          change(Role.VIEWER, PermissionReach.VISIBLE, is_fresh=False),
          "Memory and speed of training or serving a model, and which GPUs of the fleet it fits "
          "on. Changes nothing."),
)

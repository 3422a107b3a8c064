"""REST of estimates: needs of a model, and GPUs of the fleet on which it fits."""

import time
from dataclasses import dataclass

from gpudeck.estimate.config import EstimateError
from gpudeck.estimate.request import EstimateAsked, EstimateView, answer

from ..access.policy import PermissionReach, Role
from ..access.requests import caller
from ..access.routes import Route, change
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibleFleetCache
from ..web.answers import bad
from .fleet_boards import fleet_boards


@dataclass(frozen=True, slots=True)
class EstimatesApi:
    fleet: Fleet
    visible_fleets: VisibleFleetCache

    def estimate(self, query: EstimateAsked) -> EstimateView:
        boards = fleet_boards(self.fleet, self.visible_fleets.seen_by(caller()), time.monotonic())
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

"""REST of forecasts."""

import time
from dataclasses import dataclass

from ..access.policy import Role
from ..access.requests import caller
from ..access.routes import Route, see
from ..fleet.visibility import VisibleFleetCache
from .queries import ForecastQueries
from .views import ForecastList


@dataclass(frozen=True, slots=True)
class InsightApi:
    queries: ForecastQueries
    visible_fleets: VisibleFleetCache

    def forecasts(self) -> ForecastList:
        visible = self.visible_fleets.seen_by(caller())
        return self.queries.forecasts(visible, time.time(), time.monotonic())


ROUTES = (
    Route("GET forecasts", InsightApi.forecasts, "get_forecasts", see(Role.VIEWER),
          "What is likely to come: tasks whose memory grows and when their GPU is full; in each of "
          "the next 24 hours how many GPUs will be held, how many claims will wait for, and how "
          "much power all GPUs will draw; how much longer leases will last, and how long claims "
          "wait. Each has the test on this fleet's own past, and no numbers where it is no better "
          "there than the best naive guess."),
)

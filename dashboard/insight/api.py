"""REST of forecasts."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpudeck.measures.metrics import Absence

from ..access.policy import Role
from ..access.requests import caller
from ..access.routes import Route, see
from ..fleet.fleet import Fleet
from ..fleet.mig import NO_PARENT
from ..fleet.visibility import VisibleFleetCache
from ..history.reads.protocol import History
from ..pool.service import PoolService
from .advice_service import KeyValueStore
from .pool_outlook_views import run_time_view, wait_view
from .queue_history import QueueHours
from .service import InsightService
from .views import ForecastList, demand_view, memory_view


@dataclass(frozen=True, slots=True)
class InsightApi:
    service: InsightService
    fleet: Fleet
    visible_fleets: VisibleFleetCache
    mono: Callable[[], float] = time.monotonic

    @classmethod
    def over(cls, history: History, fleet: Fleet, visible_fleets: VisibleFleetCache,
             pool: PoolService, store: KeyValueStore) -> "InsightApi":
        return cls(InsightService(history, lambda: _boards(fleet), pool, QueueHours(store)), fleet,
                   visible_fleets)

    def forecasts(self) -> ForecastList:
        fleet, service = self.fleet, self.service
        visible = self.visible_fleets.seen_by(caller())
        memory_used = fleet.column("mem_used_bytes", self.mono())

        def place(node_id: str, gpu: str) -> tuple[str, str] | None:
            slot = fleet.slot_on(node_id, gpu)
            if slot is None or not visible.sees_node(node_id):
                return None
            return fleet.nodes[node_id].hello.host, fleet.facts[slot].place

        def room(node_id: str, gpu: str) -> tuple[float, float] | None:
            slot = fleet.slot_on(node_id, gpu)
            total = None if slot is None else fleet.facts[slot].mem_total_bytes
            if slot is None or total is None or memory_used.absent[slot] != Absence.PRESENT:
                return None
            return float(total), float(memory_used.values[slot])

        def seen_host(node_id: str) -> str | None:
            return fleet.host_of(node_id) if visible.sees_node(node_id) else None

        return ForecastList(
            memory_view(service.growing, service.grown_at, service.record, place, room),
            demand_view(service.demand, len(_boards(fleet)), visible.is_whole),
            run_time_view(service.runs.leases, service.pool.run_times.proof, seen_host,
                          time.time()),
            wait_view(service.runs, visible.is_whole))


def _boards(fleet: Fleet) -> list[str]:
    size = len(fleet)
    there = ~fleet.retired[:size] & ~fleet.viewed[:size] & (fleet.parent[:size] == NO_PARENT)
    return [fleet.uuids[slot] for slot in np.flatnonzero(there).tolist()]


ROUTES = (
    Route("GET forecasts", InsightApi.forecasts, "get_forecasts", see(Role.VIEWER),
          "What is likely to come: tasks whose memory grows and when their GPU is full; in each of "
          "the next 24 hours how many GPUs will be held, how many claims will wait for, and how "
          "much power all GPUs will draw; how much longer leases will last, and how long claims "
          "wait. Each has the test on this fleet's own past, and no numbers where it is no better "
          "there than the best naive guess."),
)

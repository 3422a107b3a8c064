"""Forecasts with the names and sizes of the live picture, by what an actor may see."""

from dataclasses import dataclass

import numpy as np

from gpudeck.measures.metrics import Absence

from ..fleet.fleet import Fleet
from ..fleet.mig import NO_PARENT
from ..fleet.visibility import VisibleFleet
from .pool_outlook_views import run_time_view, wait_view
from .service import InsightService
from .views import ForecastList, demand_view, memory_view


@dataclass(frozen=True, slots=True)
class ForecastQueries:
    service: InsightService
    fleet: Fleet

    def forecasts(self, visible: VisibleFleet, now: float, mono: float) -> ForecastList:
        fleet, service = self.fleet, self.service
        memory_used = fleet.column("mem_used_bytes", mono)

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
            demand_view(service.demand, len(boards(fleet)), visible.is_whole),
            run_time_view(service.runs.leases, service.pool.run_times.proof, seen_host, now),
            wait_view(service.runs, visible.is_whole))


def boards(fleet: Fleet) -> list[str]:
    """Return the boards of this hub's own nodes; MIG instances and other sites' are left out."""
    size = len(fleet)
    there = ~fleet.retired[:size] & ~fleet.viewed[:size] & (fleet.parent[:size] == NO_PARENT)
    return [*{fleet.uuids[slot]: None for slot in np.flatnonzero(there).tolist()}]

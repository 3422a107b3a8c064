"""Maintenance of nodes: its GPUs are no one's to place on until it ends, whatever the clocks do."""

import time
from contextlib import closing
from pathlib import Path
from typing import Any

from dashboard.automation.holds import MaintenanceService
from dashboard.automation.store import AutomationStore, MaintenanceWindow
from dashboard.fleet.available_gpus import maintenance_of
from dashboard.fleet.fleet import Fleet
from dashboard.fleet.visibility import VisibleFleetCache
from dashboard.state import HubState
from tests.unit import fleets

HOUR_S = 3_600.0


def test_it_ends_by_the_hubs_clock_also_where_that_is_set(tmp_path: Path) -> None:
    """Set the clock back and ahead: by the monotonic one its GPUs were free too early, or late."""
    fleet, audit = Fleet(1), None
    fleets.add_node(fleet, "n1")
    with closing(HubState.open(tmp_path)) as state:
        store, now, mono = state.store(AutomationStore), time.time(), time.monotonic()
        store.put_maintenance(MaintenanceWindow("n1", "ann", "fans", now, now + 2 * HOUR_S))
        nobody: Any = audit
        service = MaintenanceService(store, nobody, fleet, VisibleFleetCache(fleet))

        def is_marked(now: float, mono: float) -> bool:
            service.step(now, mono)
            return maintenance_of(fleet, "n1", mono) is not None

        assert is_marked(now, mono)
        assert is_marked(now - HOUR_S, mono + 2.5 * HOUR_S), "the clock was set back"
        assert not is_marked(now + 3 * HOUR_S, mono + 2.6 * HOUR_S), "it is over"
        assert is_marked(now + HOUR_S, mono + 2.7 * HOUR_S), "the clock was ahead for a moment"

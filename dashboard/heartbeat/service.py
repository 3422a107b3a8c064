"""The hub's tick of one second for the fleet and for commands; it also checks that the hub keeps
up."""

import logging
import time
from collections.abc import Callable
from typing import Any

from ..actions.commander import Commander
from ..alerts.service import AlertService
from ..fleet.effect_handlers import fields
from ..fleet.effects import HubEvent, Tick
from ..fleet.state_machine import FleetStateMachine
from ..fleet.wasted_gpus import note_idle
from ..runtime.runner import TICK_S, Loop
from ..runtime.state_store import StateUnavailableError
from ..state import HubState
from ..web.bounded_socket import BoundedSocketIO
from ..web.http_server import ServerCounters

log = logging.getLogger("gpudeck.heartbeat")

LAG_LIMIT_S = 2.0
COUNTS_EVERY_S = 60.0


class Heartbeat:
    def __init__(
        self, state: HubState, fleet_state: FleetStateMachine, socketio: BoundedSocketIO,
        alerts: AlertService, commander: Commander, counters: ServerCounters,
        submit: Callable[[HubEvent], None], perform: Callable[[Any], None],
    ) -> None:
        self._state = state
        self._fleet_state = fleet_state
        self._socketio = socketio
        self._alerts = alerts
        self._commander = commander
        self._counters = counters
        self._submit = submit
        self._perform = perform
        self._ticked_mono = self._logged_mono = time.monotonic()
        self._logged_counts: dict[str, int] = {}
        self._is_superseded = False
        self._state_away: str | None = None

    @property
    def loop(self) -> Loop:
        return Loop("heartbeat", self.step, TICK_S, is_vital=True)

    def start(self) -> None:
        self._ticked_mono = self._logged_mono = time.monotonic()

    def step(self, now: float, mono: float) -> None:
        gap_s = mono - self._ticked_mono
        self._ticked_mono = mono
        if gap_s > 5 * TICK_S:  # we paused, and not everybody else
            self._socketio.engine.forgive(gap_s)
            self._alerts.forgive(mono)
        self._submit(Tick())
        note_idle(self._fleet_state.fleet, mono)
        self._commander.tick()
        try:
            self._check_superseded()
            self._state_away = None
        except StateUnavailableError as error:
            self._state_away = str(error)
        for effect in self._fleet_state.probes(now, mono):
            self._perform(effect)
        self._socketio.engine.tick(mono)
        self._log_counts(mono)

    def _log_counts(self, mono: float) -> None:
        counts = self.counts()
        if mono - self._logged_mono >= COUNTS_EVERY_S and counts != self._logged_counts:
            log.info("counts %s", fields(counts))
            self._logged_counts, self._logged_mono = counts, mono

    def lag_s(self) -> float:
        return time.monotonic() - self._ticked_mono - TICK_S

    def unready(self) -> str | None:
        lag_s, disk_error = self.lag_s(), self._fleet_state.fleet.disk_error
        if lag_s > LAG_LIMIT_S:
            return f"the event loop lags by {lag_s:.1f} s"
        if disk_error is not None:
            return (f"the disk is not writable ({disk_error}); live data continues, "
                    "acknowledgements wait")
        if self._state_away is not None:
            return (f"the state database cannot be used ({self._state_away}); live data and "
                    "history continue, actions and sign-ins are refused")
        return None

    def counts(self) -> dict[str, int]:
        """Return counts of what was refused, cut or lost so far."""
        counts = self._counters.counts | self._fleet_state.counts
        left_out = self._alerts.alerts.left_out
        return counts | ({"alerts_left_out": left_out} if left_out else {})

    def _check_superseded(self) -> None:
        """Store an epoch above ours that agents have seen, so that the next start is above it, and
        log whether another hub with this key has taken over."""
        fence, count = self._fleet_state.fence, len(self._fleet_state.link_of)
        if fence.seen > int(self._state.get("epoch") or 0):
            self._state.put("epoch", str(fence.seen))
        if fence.is_superseded(count) != self._is_superseded:
            self._is_superseded = not self._is_superseded
            log.warning("superseded=%s another hub with this key %s", self._is_superseded,
                        "has taken over; restart this one to take over again"
                        if self._is_superseded else "is no longer seen by most nodes")

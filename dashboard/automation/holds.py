"""Reasons against automatic actions: nodes in maintenance, holds, and owners who asked to keep a
task."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpudeck.contract.pool_link import NodeMaintenance

from ..access.policy import Actor, actor_fields
from ..access.rights import require
from ..actions.holds import HoldService
from ..actions.owner_keeps import OwnerKeepService
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError, NotFoundError
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from .intents import RequestedKeep
from .store import AutomationStore, MaintenanceWindow

PATH = "/api/v1/nodes/<node_id>/maintenance"
MOST_S = 30 * 86_400.0
MAX_BECAUSE = 200


class MaintenanceService:
    def __init__(self, store: AutomationStore, auditor: AuditRecorder, fleet: Fleet,
                 visible_fleets: VisibleFleetCache) -> None:
        self._store = store
        self._auditor = auditor
        self._fleet = fleet
        self._visible_fleets = visible_fleets
        self._windows = store.maintenance()
        now, mono = time.time(), time.monotonic()
        for window in self._windows.values():
            self._update_fleet(window, now, mono)

    def of(self, node_id: str) -> MaintenanceWindow | None:
        window = self._windows.get(node_id)
        return window if window is not None and time.time() < window.until else None

    def why(self, node_id: str) -> str | None:
        window = self.of(node_id)
        return None if window is None else window.sentence

    def seen_by(self, visible: VisibleFleet) -> list[MaintenanceWindow]:
        return [window for node_id in sorted(self._windows)
                if (window := self.of(node_id)) is not None and visible.sees_node(node_id)]

    def put(self, actor: Actor, node_id: str, because: str, until: float) -> MaintenanceWindow:
        self._check(actor, f"PUT {PATH}", node_id)
        now = time.time()
        because = " ".join(because.split())
        if not because or len(because) > MAX_BECAUSE or not because.isprintable():
            raise InvalidChangeError(f"say why, in one line of at most {MAX_BECAUSE} characters")
        if not now < until <= now + MOST_S:
            raise InvalidChangeError("`until` is in UTC seconds, ahead of now and within 30 days")
        window = MaintenanceWindow(node_id, actor.name, because, now, until)
        # A change that only makes actions rarer does not wait for a copy of the audit log.
        with self._change(actor, "begin", window, takes_away=True):
            self._store.put_maintenance(window)
        self._windows[node_id] = window
        self._update_fleet(window, now, time.monotonic())
        return window

    def end(self, actor: Actor, node_id: str) -> None:
        self._check(actor, f"DELETE {PATH}", node_id)
        window = self.of(node_id)
        if window is None:
            raise NotFoundError("this node is not in maintenance")
        with self._change(actor, "end", window):
            self._store.drop_maintenance(node_id)
        del self._windows[node_id]
        self._fleet.maintenance.pop(node_id, None)

    def step(self, now: float, mono: float) -> None:
        """Follow the hub's clock. It may be set, or jump when the hub's machine was suspended:
        marks that were made once would free the GPUs of a node before its maintenance is over, or
        long after."""
        for node_id, window in self._windows.items():
            if now < window.until:
                self._update_fleet(window, now, mono)
            else:
                self._fleet.maintenance.pop(node_id, None)

    def _update_fleet(self, window: MaintenanceWindow, now: float, mono: float) -> None:
        """Mark its GPUs as unavailable until then."""
        self._fleet.maintenance[window.node_id] = (
            NodeMaintenance(window.sentence, window.until), mono + window.until - now)

    def _change(self, actor: Actor, action: str, window: MaintenanceWindow,
                takes_away: bool = False) -> Any:
        node = self._fleet.nodes.get(window.node_id)
        return self._auditor.change("maintenance", actor_fields(actor) | {
            "action": action, "node": window.node_id,
            "host": None if node is None else node.hello.host,
            "detail": {"because": window.because, "until": window.until}}, takes_away)

    def _check(self, actor: Actor, verb: str, node_id: str) -> None:
        require(actor, verb)
        if node_id not in self._fleet.nodes or not self._visible_fleets.of(
                VisibilityScope.of(actor)).sees_node(node_id):
            raise NotFoundError(f"there is no node {node_id[:64]!r} here")


@dataclass(frozen=True, slots=True)
class HubHolds:
    keeps: OwnerKeepService
    holds: HoldService
    maintenance: MaintenanceService

    def on_node(self, node_id: str) -> str | None:
        """Return why nothing may be done there; None if it may."""
        if (why := self.maintenance.why(node_id)) is not None:
            return why
        refusal = self.holds.refusal(node_id)
        return None if refusal is None else refusal.sentence

    def keep_of(self, node_id: str, task_ids: Iterable[str]) -> RequestedKeep | None:
        keep = self.keeps.of_any(node_id, task_ids)
        if keep is None:
            return None
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(keep.until))
        why = f": {keep.because}" if keep.because else ""
        return RequestedKeep(keep.until, f"{keep.by} asked that it be kept until {until}{why}")

"""What forbids automatic actions: maintenance, holds, and owners who asked to keep a task."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from ..actions.holds import HoldService
from ..actions.owner_keeps import OwnerKeepService
from .intents import RequestedKeep
from .maintenance import MaintenanceService


@dataclass(frozen=True, slots=True)
class HubHolds:
    keeps: OwnerKeepService
    holds: HoldService
    maintenance: MaintenanceService

    def on_node(self, node_id: str) -> str | None:
        """Why nothing may be done there; None if it may."""
        if (why := self.maintenance.why(node_id)) is not None:
            return why
        refusal = self.holds.refusal(node_id)
        return None if refusal is None else refusal.sentence

    def keep_of(self, task_ids: Iterable[str]) -> RequestedKeep | None:
        keep = self.keeps.of_any(task_ids)
        if keep is None:
            return None
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(keep.until))
        why = f": {keep.because}" if keep.because else ""
        return RequestedKeep(keep.until, f"{keep.by} asked that it be kept until {until}{why}")

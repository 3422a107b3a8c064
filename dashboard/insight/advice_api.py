"""REST of advice."""

import time
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

from ..access.policy import PermissionReach, Role
from ..access.requests import caller
from ..access.routes import Route, change, see
from ..fleet.visibility import VisibleFleetCache
from .advice_service import AdviceDismissal, AdviceService
from .core.advice import LABELS, UNIT, UNITS


class AdviceView(Struct):
    """A piece of advice. `gpu_hours`: a week, had it been followed; `unit`: of what. `undo`: the
    command that takes it back. `dismissed` null: it stands."""

    id: str
    kind: str
    label: str
    title: str
    reason: str
    gpu_hours: float
    risk: str
    past: str
    command: str
    undo: str
    owner: str | None
    gpus: list[str]
    dismissed: AdviceDismissal | None
    unit: str


class AdviceList(Struct):
    """A list of advice. `hours` were measured, of which at least `least_hours` are needed; before
    that there is no advice. The most GPU-hours first, dismissed ones last."""

    hours: int
    least_hours: int
    items: list[AdviceView]


class DismissalReason(Struct, forbid_unknown_fields=True):
    reason: Annotated[str, Meta(min_length=3, max_length=200)]


@dataclass(frozen=True, slots=True)
class AdviceApi:
    service: AdviceService
    visible_fleets: VisibleFleetCache

    def advice(self) -> AdviceList:
        report = self.service.seen_by(self.visible_fleets.seen_by(caller()))
        items = [AdviceView(
            advice.id, advice.kind, LABELS[advice.kind], advice.title, advice.reason,
            advice.gpu_hours, advice.risk, advice.past, advice.command, advice.undo, advice.owner,
            uuids, self.service.dismissed.get(advice.id), UNITS.get(advice.kind, UNIT))
            for advice, uuids in zip(report.items, report.uuids, strict=True)]
        items.sort(key=lambda item: item.dismissed is not None)
        return AdviceList(report.hours, self.service.least_h, items)

    def dismiss(self, request: DismissalReason, advice_id: str) -> None:
        self.service.dismiss(advice_id, request.reason, caller(), time.time())

    def recall(self, advice_id: str) -> None:
        self.service.recall(advice_id, caller())


ROUTES = (
    Route("GET advice", AdviceApi.advice, "list_advice", see(Role.OPERATOR),
          "Advice from the measurements of the last days: reason, GPU-hours, "
          "risk, the command, and the one that undoes it."),
    Route("POST advice/<advice_id>/dismiss", AdviceApi.dismiss, "dismiss_advice",
          change(Role.OPERATOR, PermissionReach.NONE, is_fresh=False),
          "Dismiss one, with a reason; it stays in the list.", status=204, errors=(404,)),
    Route("POST advice/<advice_id>/recall", AdviceApi.recall, "recall_advice",
          change(Role.OPERATOR, PermissionReach.NONE, is_fresh=False),
          "Undo a dismissal.", status=204, errors=(404,)),
)

"""REST of advice."""

import time
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

from ..access.policy import PermissionReach, Role
from ..access.requests import asker
from ..access.routes import Route, change, see
from ..fleet.visibility import VisibleFleetCache
from .advice_service import AdviceDismissal, AdviceService
from .core.advice import LABELS


class AdviceView(Struct):
    """`gpu_hours`: a week, as would have been. `undo`: the command that takes it back. `dismissed`
    null: it stands."""

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


class AdviceList(Struct):
    """`hours` were measured, of which at least `least_hours` are needed; before that there is no
    advice. The most GPU-hours first, dismissed ones last."""

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
        report = self.service.seen_by(self.visible_fleets.seen_by(asker()))
        found = [AdviceView(
            each.id, each.kind, LABELS[each.kind], each.title, each.reason, each.gpu_hours,
            each.risk, each.past, each.command, each.undo, each.owner, uuids,
            self.service.dismissed.get(each.id))
            for each, uuids in zip(report.items, report.uuids, strict=True)]
        found.sort(key=lambda each: each.dismissed is not None)
        return AdviceList(report.hours, self.service.least_h, found)

    def dismiss(self, given: DismissalReason, advice_id: str) -> None:
        self.service.dismiss(advice_id, given.reason, asker(), time.time())

    def recall(self, advice_id: str) -> None:
        self.service.recall(advice_id, asker())


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

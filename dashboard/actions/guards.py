"""Guards against actions. Doubt means no: a guard that cannot be checked refuses."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from gpudeck.contract.action_table import ROWS
from gpudeck.contract.action_views import KeepView
from gpudeck.contract.actions import Refusal

from .errors import ActionRefusedError
from .preview_cache import JobPreview

log = logging.getLogger("gpudeck.actions")

A = TypeVar("A")
R = TypeVar("R")

UNANSWERED = ("the hub cannot check all guards now, so nothing is done; see its log")


@dataclass(frozen=True, slots=True)
class ActionGuards:
    """Guards that other parts answer. `hold`: refusal of every action on a node. `maintenance`: why
    a node is in maintenance. `keep`: until when owners keep any of these tasks on a node.
    `unreached`: why an owner is notified on terminals only."""

    hold: Callable[[str], Refusal | None]
    maintenance: Callable[[str], str | None]
    keep: Callable[[str, Iterable[str]], KeepView | None]
    unreached: Callable[[str | None], str | None]

    def refusal(self, node_id: str) -> Refusal | None:
        try:
            return self.hold(node_id)
        except Exception:
            log.exception("guard_failed name=hold")
            return Refusal("hold", UNANSWERED)

    def maintenance_of(self, node_id: str) -> str | None:
        return _answer("maintenance", self.maintenance, node_id)

    def keep_of(self, node_id: str, task_ids: Iterable[str]) -> KeepView | None:
        return _answer("keep", partial(self.keep, node_id), task_ids)

    def unreached_owner(self, owner: str | None) -> str | None:
        return _answer("unreached", self.unreached, owner)

    def maintenance_among(self, previews: Iterable[JobPreview]) -> str | None:
        """Return the first maintenance reason of any node where something would be done."""
        return next((why for job in previews if not job.is_refused and job.preview is not None
                     and not ROWS[job.preview.action].only_tells
                     and (why := self.maintenance_of(job.target.node_id)) is not None), None)


def _answer(name: str, guard: Callable[[A], R], subject: A) -> R:
    try:
        return guard(subject)
    except Exception as error:
        log.exception("guard_failed name=%s", name)
        raise ActionRefusedError(503, "guard", UNANSWERED) from error

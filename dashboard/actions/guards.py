"""What may speak against an action. Doubt means no: what cannot be asked refuses it."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from gpudeck.action_table import ROWS
from gpudeck.action_views import KeepView
from gpudeck.actions import Refusal

from .errors import ActionRefusedError
from .preview_cache import JobPreview

log = logging.getLogger("gpudeck.actions")

A = TypeVar("A")
R = TypeVar("R")

UNANSWERED = ("the hub cannot check all guards now, so nothing is done; see its log")


@dataclass(frozen=True, slots=True)
class ActionGuards:
    """`hold`: why nothing may be done on a node. `maintenance`: why one should think twice there.
    `keep`: what the owner of any of these tasks on a node asked for. `unreached`: why an owner will
    hear of it at terminals only."""

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
        """The first reason on any node where something would be done."""
        return next((why for one in previews if not one.is_refused and one.preview is not None
                     and not ROWS[one.preview.action].only_tells
                     and (why := self.maintenance_of(one.target.node_id)) is not None), None)


def _answer(name: str, guard: Callable[[A], R], about: A) -> R:
    try:
        return guard(about)
    except Exception as error:
        log.exception("guard_failed name=%s", name)
        raise ActionRefusedError(503, "guard", UNANSWERED) from error

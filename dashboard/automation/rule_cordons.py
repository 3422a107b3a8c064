"""Cordons the GPUs for which a rule fires, where it asks for that and may act automatically. That
is the only thing a rule does to a GPU: it ends nothing, and a person repairs the GPU and takes the
cordon back.

The brakes are those of all automatic actions: the rule's own budget, counted within an hour or
more, and the fleet's, which opens the breaker until an admin resets it. Beyond them, no rule
cordons while a twentieth of all boards of this hub is out of service, or about to be.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from gpudeck.contract.actions import (
    COMMAND_LASTS_S,
    NO_TASK,
    ActionParams,
    CommandActor,
    Preview,
    Refusal,
)
from gpudeck.contract.limits import Cordon

from ..actions.commander import new_id
from ..actions.lifecycle import CommandRecord
from ..audit.recorder import AuditRecorder
from ..fleet.fleet import Fleet
from ..fleet.mig import NO_PARENT
from ..runtime.runner import Loop
from .brake_limits import BrakeRequest
from .brakes import BrakeService
from .dispatch import ActionDispatcher
from .intents import IntentMode

log = logging.getLogger("gpudeck.automation")

EVERY_S = 2.0
AGAIN_AFTER_S = 10.0
AT_ONCE = 4  # per step: each waits for its node
SHARE = 0.05


@dataclass(frozen=True, slots=True)
class CordonRequest:
    """A cordon that a rule wants. `holds`: why not now, for people; without a default, as what was
    not checked must not permit."""

    source: str  # what budgets are counted by
    by: str  # as its commands name it
    node_id: str
    host: str
    board: str
    alert_id: str
    sentence: str
    mode: IntentMode
    holds: tuple[str, ...]
    acts: int
    within_s: float


def share_brake(fleet: Fleet, under_way: int) -> str:
    """Return why no rule may cordon another board now, or ''. `under_way`: ordered, but not
    reported out of service yet."""
    size = len(fleet)
    boards = (fleet.parent[:size] == NO_PARENT) & ~fleet.retired[:size] & ~fleet.viewed[:size]
    out = under_way + int((boards & (fleet.service[:size] != 0)).sum())
    most = max(1, int(boards.sum() * SHARE))
    if out < most:
        return ""
    return (f"{out} of {int(boards.sum())} GPUs are out of service, and rules cordon up to "
            f"{most} (5 %); a person has to look")


@dataclass(slots=True)
class RuleCordons:
    requests: Callable[[], Iterable[CordonRequest]]
    fleet: Fleet
    brakes: BrakeService
    dispatcher: ActionDispatcher
    auditor: AuditRecorder
    _tried_mono: dict[tuple[str, str], float] = field(default_factory=dict)
    _ordered_mono: dict[tuple[str, str], float] = field(default_factory=dict)
    _audited_reasons: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def loop(self) -> Loop:
        return Loop("cordons of rules", self.step, EVERY_S)

    def step(self, now: float, mono: float) -> None:
        due = [request for request in self.requests()
               if not request.holds and self._is_in_service(request.node_id, request.board)]
        self._tried_mono = {key: at for key, at in self._tried_mono.items()
                            if mono - at < AGAIN_AFTER_S}
        self._ordered_mono = {key: at for key, at in self._ordered_mono.items()
                              if mono - at < COMMAND_LASTS_S and self._is_in_service(*key)}
        alive = {request.alert_id for request in due}
        self._audited_reasons = {key: why for key, why in self._audited_reasons.items()
                                 if key[0] in alive}
        untried = [request for request in due
                   if (request.node_id, request.board) not in self._tried_mono]
        for request in untried[:AT_ONCE]:
            if request.mode == "dry_run":
                self._note(request, "would cordon", "dry run: nothing was sent")
            elif request.mode == "auto":
                self._tried_mono[(request.node_id, request.board)] = mono
                if why := self._cordon(request, now, mono):
                    self._note(request, "not cordoned", why)

    def _is_in_service(self, node_id: str, board: str) -> bool:
        slot = self.fleet.slot_on(node_id, board)
        return slot is not None and not np.any(self.fleet.service[slot])

    def _cordon(self, request: CordonRequest, now: float, mono: float) -> str:
        """Order a cordon, and return why not, or ''."""
        if why := share_brake(self.fleet, len(self._ordered_mono)):
            return why
        params = ActionParams(setting=Cordon(request.board))
        preview = self.dispatcher.preview(request.node_id, NO_TASK, "cordon", params)
        if isinstance(preview, Refusal):
            return preview.sentence
        if preview.refusals:
            return preview.refusals[0].sentence
        reservation = self.brakes.reserve(BrakeRequest(
            request.source, request.node_id, request.acts, request.within_s,
            self.dispatcher.node_count(), frozenset(self.dispatcher.busy_nodes())))
        if isinstance(reservation, str):
            return reservation
        self._ordered_mono[(request.node_id, request.board)] = mono
        self._order(request, preview, params, now)
        return ""

    def _order(self, request: CordonRequest, preview: Preview, params: ActionParams, now: float
               ) -> None:
        record = CommandRecord(
            new_id(now), "cordon", request.node_id, request.host, CommandActor("rule", request.by),
            request.sentence, now, now, now + COMMAND_LASTS_S, params,
            bystanders=len(preview.bystanders))
        self.dispatcher.order(record, preview, None, detail={"alert": request.alert_id})

    def _note(self, request: CordonRequest, action: str, why: str) -> None:
        """Note a reason in the audit log, once for each alert and action until it changes."""
        if self._audited_reasons.get((request.alert_id, action)) == why:
            return
        self._audited_reasons[(request.alert_id, action)] = why
        log.info("%s gpu=%s by=%s why=%r", action, request.board, request.by, why)
        self.auditor.note("ladder", {
            "actor": request.by, "actor_kind": "rule", "action": action, "outcome": "done",
            "node": request.node_id, "host": request.host,
            "sentence": f"{action} GPU {request.board}: {why}",
            "detail": {"alert": request.alert_id, "because": request.sentence,
                       "mode": request.mode}})

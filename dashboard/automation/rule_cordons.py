"""Cordons the GPUs for which a rule fires, where it says so and may act by itself. It is the one
thing that a rule does to a GPU: it ends nothing, and a person takes it back. To repair is theirs.

Its brakes are those of all automatic actions: the rule's own budget, counted within an hour or
more, and the fleet's, which opens the breaker until an admin resets it. Beyond them, no rule
cordons where a twentieth of all boards of this hub is out of service, or about to be.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from gpudeck.actions import COMMAND_LASTS_S, NO_TASK, ActionParams, CommandActor, Preview, Refusal
from gpudeck.limits import Cordon

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

log = logging.getLogger("gpudeck.cordons")

EVERY_S = 2.0
AGAIN_AFTER_S = 10.0
AT_ONCE = 4  # of one look: each waits for its node
SHARE = 0.05


@dataclass(frozen=True, slots=True)
class WantedCordon:
    """`holds`: why not now, each for people; without a default, for what was not asked must not
    permit."""

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
    """Why no rule may cordon another board now; "": one may. `under_way`: ordered, and not said to
    be out of service yet."""
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
    wanted: Callable[[], Iterable[WantedCordon]]
    fleet: Fleet
    brakes: BrakeService
    dispatcher: ActionDispatcher
    auditor: AuditRecorder
    _tried: dict[tuple[str, str], float] = field(default_factory=dict)
    _ordered: dict[tuple[str, str], float] = field(default_factory=dict)
    _noted: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def loop(self) -> Loop:
        return Loop("cordons of rules", self.step, EVERY_S)

    def step(self, now: float, mono: float) -> None:
        due = [each for each in self.wanted()
               if not each.holds and self._is_in_service(each.node_id, each.board)]
        self._tried = {key: at for key, at in self._tried.items() if mono - at < AGAIN_AFTER_S}
        self._ordered = {key: at for key, at in self._ordered.items()
                         if mono - at < COMMAND_LASTS_S and self._is_in_service(*key)}
        alive = {each.alert_id for each in due}
        self._noted = {key: why for key, why in self._noted.items() if key[0] in alive}
        for each in [one for one in due if (one.node_id, one.board) not in self._tried][:AT_ONCE]:
            if each.mode == "dry_run":
                self._note(each, "would cordon", "dry run: nothing was sent")
            elif each.mode == "auto":
                self._tried[(each.node_id, each.board)] = mono
                if why := self._cordon(each, now, mono):
                    self._note(each, "not cordoned", why)

    def _is_in_service(self, node_id: str, board: str) -> bool:
        slot = self.fleet.slot_on(node_id, board)
        return slot is not None and not np.any(self.fleet.service[slot])

    def _cordon(self, wanted: WantedCordon, now: float, mono: float) -> str:
        """Why not; "": it is on its way."""
        if why := share_brake(self.fleet, len(self._ordered)):
            return why
        params = ActionParams(setting=Cordon(wanted.board))
        found = self.dispatcher.look(wanted.node_id, NO_TASK, "cordon", params)
        if isinstance(found, Refusal):
            return found.sentence
        if found.refusals:
            return found.refusals[0].sentence
        spent = self.brakes.take(BrakeRequest(
            wanted.source, wanted.node_id, wanted.acts, wanted.within_s, self.dispatcher.nodes(),
            frozenset(self.dispatcher.acting())))
        if isinstance(spent, str):
            return spent
        self._ordered[(wanted.node_id, wanted.board)] = mono
        self._order(wanted, found, params, now)
        return ""

    def _order(self, wanted: WantedCordon, found: Preview, params: ActionParams, now: float
               ) -> None:
        record = CommandRecord(
            new_id(now), "cordon", wanted.node_id, wanted.host, CommandActor("rule", wanted.by),
            wanted.sentence, now, now, now + COMMAND_LASTS_S, params,
            bystanders=len(found.bystanders))
        self.dispatcher.order(record, found, None, detail={"alert": wanted.alert_id})

    def _note(self, wanted: WantedCordon, action: str, why: str) -> None:
        """Once for each alert and reason."""
        if self._noted.get((wanted.alert_id, action)) == why:
            return
        self._noted[(wanted.alert_id, action)] = why
        log.info("%s gpu=%s by=%s why=%r", action, wanted.board, wanted.by, why)
        self.auditor.note("ladder", {
            "actor": wanted.by, "actor_kind": "rule", "action": action, "outcome": "done",
            "node": wanted.node_id, "host": wanted.host,
            "sentence": f"{action} GPU {wanted.board}: {why}",
            "detail": {"alert": wanted.alert_id, "because": wanted.sentence, "mode": wanted.mode}})

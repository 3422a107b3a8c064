"""Carry out one step of a ladder: notify, or preview and order."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from gpudeck.action_table import ON_RUNG
from gpudeck.actions import COMMAND_LASTS_S, ActionParams, CommandActor, Preview, Refusal
from gpudeck.ladder import LadderStep, OutcomeKind

from ..actions.commander import new_id
from ..actions.lifecycle import CommandRecord
from ..actions.views import mem_of
from ..errors import AuditWriteError
from .brakes import BrakeService
from .dispatch import ActionDispatcher
from .intent_sources import IntentSources
from .intents import LASTING, ActionIntent, preview_flaw
from .ladder_guards import LadderGuards
from .ladder_outcomes import LadderOutcomes
from .ladder_runs import LadderRuns

log = logging.getLogger("gpudeck.ladders")

Outcome = tuple[OutcomeKind, str]


@dataclass(frozen=True, slots=True)
class LadderNotification:
    """For an owner, whether or not they have a terminal or a task."""

    intent: ActionIntent
    text: str
    at: float


@dataclass(frozen=True, slots=True)
class LadderStepRunner:
    """`notify_owner` is called, not sent as an event: if it raises, the step has failed, and no
    harsher step follows a warning that nobody got."""

    intents: IntentSources
    runs: LadderRuns
    outcomes: LadderOutcomes
    guards: LadderGuards
    brakes: BrakeService
    dispatcher: ActionDispatcher
    notify_owner: Callable[[LadderNotification], None]

    def run(self, intent: ActionIntent, step: LadderStep) -> None:
        outcome: Outcome | None
        try:
            outcome = (self._tell if step.do == "tell" else self._act)(intent, step)
        except AuditWriteError as error:
            self.brakes.trip("breaker", f"an act of {intent.source} cannot be recorded: {error}")
            outcome = "put_off", str(error)
        except Exception:
            log.exception("step_failed cause=%r target=%r", intent.cause, intent.target)
            outcome = "failed", "the hub failed in the middle of it; its log says why"
        if outcome is not None:
            self.outcomes.settle(intent.key, *outcome)

    def _tell(self, intent: ActionIntent, step: LadderStep) -> Outcome | None:
        text = _text(intent, step)
        if intent.mode == "dry_run":
            return self._would(intent, step, "nobody was told", None)
        if (fenced := self.dispatcher.fenced(intent.node_id)) is not None:
            return "put_off", fenced.sentence
        run = self.runs.find(intent.key)
        if run is None or run.climb.put_off == 0:  # once, however often the node is tried
            self.notify_owner(LadderNotification(intent, text, time.time()))
        if not intent.task_ids:
            return "done", "its owner is told by notice"
        return self._send(intent, step, ActionParams(text=text))

    def _act(self, intent: ActionIntent, step: LadderStep) -> Outcome | None:
        if not intent.task_ids:
            return "refused", "there is no task of it on a GPU that could be acted on"
        return self._send(intent, step, ActionParams())

    def _send(self, intent: ActionIntent, step: LadderStep, params: ActionParams
              ) -> Outcome | None:
        found = self.dispatcher.look(intent.node_id, intent.task_ids[0], ON_RUNG[step.do], params)
        refusal = found if isinstance(found, Refusal) else preview_flaw(intent, step.do, found)
        if intent.mode == "dry_run":
            return self._would(intent, step, "nothing was sent", refusal)
        if refusal is not None:
            return ("refused" if refusal.code in LASTING else "put_off"), refusal.sentence
        assert isinstance(found, Preview)
        if why := self._changed(intent, step):
            return "put_off", why
        self._order(intent, step, found, params)
        return None

    def _would(self, intent: ActionIntent, step: LadderStep, done: str, refusal: Refusal | None
               ) -> Outcome:
        """A dry run records what the step would have hit."""
        why = "" if refusal is None else f"; it would have been refused: {refusal.sentence}"
        whom = f"{intent.owner or 'somebody'} on {intent.host}"
        self.outcomes.note(intent, f"would {step.do}",
                           f"would {step.do} {whom}; dry run: {done}{why}")
        if refusal is not None and refusal.code in LASTING:
            return "refused", f"dry run: {done}{why}"
        return ("done" if refusal is None else "put_off"), f"dry run: {done}{why}"

    def _changed(self, intent: ActionIntent, step: LadderStep) -> str:
        if step.do != "tell":
            self.intents.read()
        is_running = self.runs.find(intent.key) is not None
        newest = self.intents.newest.get(intent.key) if is_running else None
        return self.guards.changed(intent, newest, step)

    def _order(self, intent: ActionIntent, step: LadderStep, preview: Preview,
               params: ActionParams) -> None:
        run = self.runs.find(intent.key)
        assert run is not None, "it was there when it was asked whether anything changed"
        now, action = time.time(), ON_RUNG[step.do]
        record = CommandRecord(
            new_id(now), action, intent.node_id, intent.host,
            CommandActor("rule", intent.cause.partition(" ")[2] or intent.cause), intent.sentence,
            now, now, now + COMMAND_LASTS_S, params, task_id=intent.task_ids[0],
            task_ids=intent.task_ids, job_id=preview.job_id, owner=preview.owner,
            bystanders=len(preview.bystanders),
            command=next((each.command for each in preview.victims if each.command), None),
            mem_used_bytes=mem_of(preview))
        self.outcomes.track(run, record.id)
        try:
            made = self.dispatcher.order(record, preview, intent.condition, detail={
                "cause": intent.cause, "alert": intent.alert_id, "step": step.number,
                "rung": step.rung})
        except BaseException:
            self.outcomes.untrack(record.id)
            raise
        self.outcomes.command_changed(made)


def _text(intent: ActionIntent, step: LadderStep) -> str:
    after = next((rung for rung in intent.rungs[step.rung + 1:] if rung.do != "tell"), None)
    comes = "" if after is None or intent.mode == "dry_run" else (
        f" If it stays so, gpudeck will {after.do} it; to keep it, say so: gpudeck keep.")
    return f"{intent.sentence}.{comes}"[:1_024]

"""A row of the table of acts on tasks, and what all of them share while one is carried out."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec import structs

from gpudeck.action_table import HITS, TaskAction
from gpudeck.actions import ActionParams, Refusal, RuleCondition

from ...tasks.terminals import TerminalReach
from ...tasks.user_table import name_of
from ...telemetry.recent_tasks import TaskObservation
from .. import rule_condition
from ..guard import GuardInput
from ..targets import TargetProcessSet, take
from . import checkpoint_wait
from .execution import ActionExecution, ActionRefusedError, Outcome

SAMPLES = 2  # from after a Rule's command
SAMPLES_WITHIN_S = 12.0


@dataclass(slots=True, eq=False)
class TaskExecution(ActionExecution):
    kind: "TaskActionKind"

    def do(self) -> Outcome:
        if self.command.asker.kind == "rule" and self.kind.action in HITS:
            with self._take():  # what is refused anyway is not waited for
                pass
            self._look_twice()
        if not checkpoint_wait.waits(self.kind.action, self.params):
            with self._take() as targets:
                return self.kind.do(self, targets)
        return self._after_checkpoint()

    def _after_checkpoint(self) -> Outcome:
        """Everything is compared again afterwards, which may be half an hour after the preview."""
        with self._take() as targets:
            self.say("waiting for its next checkpoint; nothing is touched before")
            written_at = checkpoint_wait.wait(self.context, self.shown, targets)
        words = checkpoint_wait.step_words(written_at)
        self.say(words)
        with self._take() as targets:
            state, refusal, verified, step = self.kind.do(self, targets)
        return (state, refusal, structs.replace(verified, checkpoint_at=written_at),
                f"{words}; {step}"[:1_024])

    def tell_owner(self, targets: TargetProcessSet, text: str) -> TerminalReach:
        by, shown = self.command.asker, self.shown
        approved = f", approved by {by.approved_by}" if by.approved_by else ""
        command = next((victim.command for victim in shown.victims if victim.command), "") or ""
        return self.context.people.tell(targets.uid, [
            f"gpudeck: {by.name} ({by.kind}{approved}) {self.kind.owner_words} task"
            f" {shown.task_id} of {shown.owner or name_of(targets.uid)}: {command[:120]}",
            f"  {text}" if text else "",
            f"  Reason: {self.command.reason}" if self.command.reason else "",
        ])

    def cleared(self, since: tuple[float, float]) -> Refusal | None:
        """During the grace: one sample in which the rule's condition fails is enough to stop."""
        if self.command.asker.kind != "rule":
            return None
        for each in self.context.tasks.recent.after(*since):
            if (why := self._flaw(each)) is not None and self.shown.task_id in {
                    one.task.id for one in each.seen}:
                return Refusal("condition", "the condition stopped being met during the grace "
                                            f"period: {why}")
        return None

    def _look_twice(self) -> None:
        """What a Rule has seen from afar, this node must see for itself, and after it was asked:
        twice, since a single sample may be any moment."""
        began = time.time(), time.monotonic()
        self.say("waiting for two samples, to check that the condition is still met")
        found = self.context.tasks.recent.wait(*began, SAMPLES, SAMPLES_WITHIN_S)
        if len(found) < SAMPLES:
            raise ActionRefusedError(Refusal(
                "unreadable", f"no {SAMPLES} samples came within {SAMPLES_WITHIN_S:.0f} s of the "
                              "command; nothing was touched"))
        for each in found[-SAMPLES:]:
            if (why := self._flaw(each)) is not None:
                raise ActionRefusedError(Refusal(
                    "condition", f"the condition is not met any more: {why}; nothing was touched"))

    def _flaw(self, observed: TaskObservation) -> str | None:
        return rule_condition.flaw(self.command.condition or RuleCondition(), self.shown.task_id,
                                   observed.seen, observed.util_pct, observed.taken_at)

    def _take(self) -> TargetProcessSet:
        """Raises ActionRefusedError."""
        try:
            targets = take(self.context, self.shown, self.command.asker.kind)
        except OSError as error:
            raise ActionRefusedError(Refusal(
                "unreadable", "the agent could not open every process "
                              f"({error.strerror}); nothing was touched. Look at its limits "
                              "(LimitNOFILE) and rights.")) from error
        if targets.refusal is not None:
            targets.grips.close()
            raise ActionRefusedError(targets.refusal)
        return targets


@dataclass(frozen=True, slots=True)
class TaskActionKind:
    """`do`: signals, waits, and says what was observed. `warnings`: what a preview says besides."""

    action: TaskAction
    owner_words: str  # to the owner: "ada (person) ends task …"
    do: Callable[[TaskExecution, TargetProcessSet], Outcome]
    warnings: Callable[[ActionParams, GuardInput], Iterable[str]]
    is_whole_job: bool = True


def no_warnings(_params: ActionParams, _case: GuardInput) -> tuple[str, ...]:
    return ()


def are_alive(targets: TargetProcessSet, vanished: tuple[str, ...]) -> bool | None:
    """The bystanders; None: there is none to watch."""
    return None if not targets.watched else not vanished

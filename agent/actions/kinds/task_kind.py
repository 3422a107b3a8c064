"""A row of the table of actions on tasks, and what they share while one is carried out."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec import structs

from gpudeck.contract.action_table import HITS, TaskAction
from gpudeck.contract.actions import ActionParams, Refusal, RuleCondition

from ...tasks.terminals import TerminalReach
from ...tasks.user_table import name_of
from ...telemetry.recent_tasks import TaskObservation
from .. import rule_condition
from ..context import TaskPreview
from ..guard import GuardInput
from ..targets import TargetProcessSet, open_targets
from . import checkpoint_wait
from .execution import ActionExecution, ActionRefusedError, Outcome

SAMPLES = 2  # from after a Rule's command
SAMPLES_WITHIN_S = 12.0


@dataclass(slots=True, eq=False)
class TaskExecution(ActionExecution):
    kind: "TaskActionKind"

    def do(self) -> Outcome:
        if self.command.asker.kind == "rule" and self.kind.action in HITS:
            with self._open_targets():  # no wait for what is refused anyway
                pass
            self._confirm_condition()
        if not checkpoint_wait.waits(self.kind.action, self.params):
            with self._open_targets() as targets:
                return self.kind.do(self, targets)
        return self._after_checkpoint()

    def _after_checkpoint(self) -> Outcome:
        """Compare everything again afterwards, which may be half an hour after the preview."""
        with self._open_targets() as targets:
            self.report("waiting for its next checkpoint; nothing is touched before")
            written_at = checkpoint_wait.wait(self.context, self.preview, targets)
        words = checkpoint_wait.step_words(written_at)
        self.report(words)
        with self._open_targets() as targets:
            state, refusal, verified, step = self.kind.do(self, targets)
        return (state, refusal, structs.replace(verified, checkpoint_at=written_at),
                f"{words}; {step}"[:1_024])

    def tell_owner(self, targets: TargetProcessSet, text: str) -> TerminalReach:
        by, preview = self.command.asker, self.preview
        approved = f", approved by {by.approved_by}" if by.approved_by else ""
        command = next((victim.command for victim in preview.victims if victim.command), "") or ""
        return self.context.people.notify(targets.uid, [
            f"gpudeck: {by.name} ({by.kind}{approved}) {self.kind.owner_words} task"
            f" {preview.task_id} of {preview.owner or name_of(targets.uid)}: {command[:120]}",
            f"  {text}" if text else "",
            f"  Reason: {self.command.reason}" if self.command.reason else "",
        ])

    def cleared(self, since: tuple[float, float]) -> Refusal | None:
        """Refuse if the rule's condition fails in one sample of the grace: one is enough to
        stop."""
        if self.command.asker.kind != "rule":
            return None
        for observation in self.context.tasks.recent.after(*since):
            if (why := self._flaw(observation)) is not None and self.preview.task_id in {
                    entry.task.id for entry in observation.gpu_tasks}:
                return Refusal("condition", "the condition stopped being met during the grace "
                                            f"period: {why}")
        return None

    def _confirm_condition(self) -> None:
        """Check the condition here. This node must see for itself, after it was asked, what a Rule
        saw from afar: twice, since a single sample may be any moment."""
        began = time.time(), time.monotonic()
        self.report("waiting for two samples, to check that the condition is still met")
        observations = self.context.tasks.recent.wait(*began, SAMPLES, SAMPLES_WITHIN_S)
        if len(observations) < SAMPLES:
            raise ActionRefusedError(Refusal(
                "unreadable", f"no {SAMPLES} samples came within {SAMPLES_WITHIN_S:.0f} s of the "
                              "command; nothing was touched"))
        for observation in observations[-SAMPLES:]:
            if (why := self._flaw(observation)) is not None:
                raise ActionRefusedError(Refusal(
                    "condition", f"the condition is not met any more: {why}; nothing was touched"))

    def _flaw(self, observation: TaskObservation) -> str | None:
        return rule_condition.flaw(self.command.condition or RuleCondition(), self.preview.task_id,
                                   observation.gpu_tasks, observation.util_pct,
                                   observation.taken_at)

    def _open_targets(self) -> TargetProcessSet:
        """Open and compare the processes. Raises ActionRefusedError."""
        try:
            targets = open_targets(self.context, self.preview, self.command.asker.kind)
        except OSError as error:
            raise ActionRefusedError(Refusal(
                "unreadable", "the agent could not open every process "
                              f"({error.strerror}); nothing was touched. Look at its limits "
                              "(LimitNOFILE) and rights.")) from error
        if targets.refusal is not None:
            targets.handles.close()
            raise ActionRefusedError(targets.refusal)
        return targets


@dataclass(frozen=True, slots=True)
class TaskActionKind:
    """Row of the table. `do`: signals, waits, returns what was observed. `flaws`: forbids it beyond
    the checks that all share. `warnings` and `notes`: for its preview."""

    action: TaskAction
    owner_words: str  # to the owner: "ada (person) ends task …"
    do: Callable[[TaskExecution, TargetProcessSet], Outcome]
    warnings: Callable[[ActionParams, GuardInput], Iterable[str]]
    flaws: Callable[[TaskPreview], Iterable[Refusal]]
    notes: Callable[[TaskPreview], Iterable[str]] = lambda task: ()
    is_whole_job: bool = True


def no_warnings(_params: ActionParams, _case: GuardInput) -> tuple[str, ...]:
    return ()


def no_flaws(_task: TaskPreview) -> tuple[Refusal, ...]:
    return ()


def are_alive(targets: TargetProcessSet, vanished: tuple[str, ...]) -> bool | None:
    """Return whether the bystanders are alive; None: there is none to watch."""
    return None if not targets.bystanders else not vanished

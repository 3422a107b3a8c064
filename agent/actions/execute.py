"""Executes one action: compares, signals, waits, compares again, verifies. Blocks, on its thread.

Whatever happens ends in one Reply with an outcome; what is found
before the first signal is a refusal, and then nothing was touched.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gpudeck.contract.actions import ActionVerification, Command, CommandState, Refusal, Reply
from gpudeck.contract.wire import Look

from ..journal.store import ActionJournal, JournalError, command_record
from .context import NodeContext
from .kinds.execution import ActionExecution, ActionRefusedError, ActionTimeouts, Outcome
from .kinds.table import SETTING_KINDS, TASK_KINDS
from .kinds.task_kind import TaskExecution
from .preview import preview
from .replies import refused_state
from .signals import ProcessHandles, is_same, living

log = logging.getLogger("gpudeck.agent.actions")


class SettingExecution(ActionExecution):
    """Check again, apply, read back. The command's own answer counts as applied, the value read
    back as in force; both are reported."""

    def do(self) -> Outcome:
        setting = self.params.setting
        assert setting is not None
        self._preview_again()
        with ProcessHandles() as handles:
            pairs = [(other, handles.open(other.process.pid)) for other in self.preview.bystanders]
            present = [(other, handle) for other, handle in pairs if handle is not None
                       and (facts := handle.facts()) is not None
                       and is_same(facts.identity, other.process)]
            applied, in_force, step = SETTING_KINDS[type(setting)].do(self, setting)
            alive = set(living([handle for _, handle in present]))
            vanished = tuple(other.task_id for other, handle in present if handle not in alive)
        verified = ActionVerification(applied=applied, in_force=in_force, vanished=vanished,
                                      bystanders_alive=not vanished if present else None)
        is_done = applied and in_force is not False and not vanished
        return ("done" if is_done else "not_effective"), None, verified, step

    def _preview_again(self) -> None:
        former = self.preview
        now = preview(self.context, Look(former.ask_id, former.nonce, former.action, former.params,
                                         former.task_id, self.command.asker.kind), is_begun=True)
        if now.refusals:
            raise ActionRefusedError(now.refusals[0])
        if now.changes != former.changes:
            raise ActionRefusedError(Refusal(
                "changed", "the task is no longer what was previewed; nothing was touched. Preview "
                           "again."))
        before = {victim.process for victim in former.victims}
        if any(victim.process not in before for victim in now.victims):
            raise ActionRefusedError(Refusal(
                "changed", "there are clients now that the preview did not show; nothing was "
                           "touched. Preview again."))


@dataclass(frozen=True, slots=True)
class ActionExecutor:
    """Executes commands. `recalled`: why the hub has called back the command of an id, if it
    has."""

    context: NodeContext
    journal: ActionJournal
    tell_hub: Callable[[Reply], None]
    timeouts: ActionTimeouts
    recalled: Callable[[str], str | None]

    def act(self, command: Command, accepted: Reply) -> Reply:
        """Execute the command. `accepted` is in the journal already; nothing else of it is."""
        try:
            reply = self.journal.record_intent(command, self._next(
                accepted, "acting", "comparing each process with the one that was shown"))
        except JournalError as why:
            return self._end(command, accepted, "refused", Refusal("journal", str(why)))
        self.tell_hub(reply)
        execution = self._execution(command, reply)
        try:
            state, refusal, verified, step = execution.do()
        except ActionRefusedError as why:
            return self._end(command, execution.reply, "refused", why.refusal)
        except Exception:
            log.exception("act_failed command=%s", command.command_id)
            return self._end(command, execution.reply, "unknown", None, ActionVerification(),
                             "the agent failed while doing this; see its log. Check "
                             "whether the task is still there.")
        return self._end(command, execution.reply, state, refusal, verified, step)

    def refuse(self, command: Command, accepted: Reply, refusal: Refusal,
               state: CommandState | None = None) -> None:
        """Record and send that nothing of the command was begun."""
        self._end(command, accepted, state or refused_state(refusal), refusal)

    def _execution(self, command: Command, reply: Reply) -> ActionExecution:
        context = self.context.also_held_by(lambda: self._recall(command.command_id))
        kind = TASK_KINDS.get(command.action)
        if kind is None or (command.preview and command.preview.params.setting is not None):
            return SettingExecution(context, command, reply, self._report, self.timeouts)
        return TaskExecution(context, command, reply, self._report, self.timeouts, kind)

    def _recall(self, command_id: str) -> tuple[str, ...]:
        """A recall is a hold on that one command."""
        why = self.recalled(command_id)
        return () if why is None else (
            f"this command alone, called back by the hub: {why}"[:1_024],)

    def _report(self, reply: Reply, step: str) -> Reply:
        reply = self._next(reply, "acting", step)
        try:
            self.journal.record_step(reply)
        except JournalError as why:  # the INTENT is on disk; what is begun is brought to its end
            log.warning("journal_refuses command=%s why=%r", reply.command_id, str(why))
        self.tell_hub(reply)
        return reply

    def _end(
        self, command: Command, last: Reply, state: CommandState, refusal: Refusal | None = None,
        verified: ActionVerification | None = None, step: str = "",
    ) -> Reply:
        reply = msgspec.structs.replace(
            self._next(last, state, step or (refusal.sentence if refusal else "")),
            refusal=refusal, verified=verified)
        try:
            reply = self.journal.record_result(reply, command_record(command))
        except JournalError as why:
            log.error("result_not_recorded command=%s why=%r", reply.command_id, str(why))
        self.tell_hub(reply)
        return reply

    def _next(self, last: Reply, state: CommandState, step: str) -> Reply:
        return msgspec.structs.replace(last, number=last.number + 1, state=state,
                                       at=time.time(), step=step[:1_024])


def never_recalled(_command_id: str) -> None:
    """Return None: nobody can call back a command that no hub gave."""

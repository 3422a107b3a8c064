"""Does one act: compares, signals, waits, compares again, verifies. Blocks; on a thread of its own.

The order is that of DESIGN 9. Whatever happens ends in one Reply with an outcome; what is found
before the first signal is a refusal, and then nothing was touched.
"""

import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from gpudeck.actions import (
    MEMORY_BACK_WITHIN_S,
    UNKILLABLE_AFTER_S,
    ActionVerification,
    Command,
    CommandState,
    Preview,
    Refusal,
    Reply,
    RuleCondition,
)

from ..journal.store import ActionJournal, JournalError, about
from ..readings import OnDemandReading
from ..tasks.terminals import name_of, tell
from ..telemetry.recent_tasks import TaskObservation
from . import guard, rule_condition, verify
from .execute_setting import ActionRefusedError, SettingExecution
from .preview import FRESH_WITHIN_S, NodeContext, catches
from .signals import wait_for_end
from .targets import TargetProcessSet, take

log = logging.getLogger("gpudeck.agent.hand")

LOOK_EVERY_S = 0.2
SAMPLES = 2  # from after a Rule's command
SAMPLES_WITHIN_S = 12.0
STOPPED_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True)
class ActionTimeouts:
    unkillable_after_s: float = UNKILLABLE_AFTER_S
    memory_within_s: float = MEMORY_BACK_WITHIN_S


class ActionExecutor:
    def __init__(
        self, place: NodeContext, journal: ActionJournal, tell_hub: Callable[[Reply], None],
        patience: ActionTimeouts | None = None,
        recalled: Callable[[str], str | None] = lambda command_id: None,
    ) -> None:
        self._place = place
        self._journal = journal
        self._tell_hub = tell_hub
        self._patience = patience or ActionTimeouts()
        self._recalled = recalled

    def act(self, command: Command, accepted: Reply) -> Reply:
        """`accepted` is in the journal already; nothing else of this command is."""
        try:
            reply = self._journal.intend(command, self._next(
                accepted, "acting", "comparing each process with the one that was shown"))
        except JournalError as why:
            return self._end(command, accepted, "refused", Refusal("journal", str(why)))
        self._tell_hub(reply)
        place = self._place_of(command.command_id)
        deed = (_TaskExecution(place, command, reply, self._say, self._patience)
                if command.preview is None or command.preview.params.setting is None
                else SettingExecution(place, command, reply, self._say))
        try:
            state, refusal, verified, step = deed.do()
        except ActionRefusedError as why:
            return self._end(command, deed.reply, "refused", why.refusal)
        except Exception:
            log.exception("act_failed command=%s", command.command_id)
            return self._end(command, deed.reply, "unknown", None, ActionVerification(),
                             "the agent failed in the middle of it; its log says why. Look "
                             "whether the task is still there.")
        return self._end(command, deed.reply, state, refusal, verified, step)

    def _place_of(self, command_id: str) -> NodeContext:
        """Whoever calls one command back puts a hold on that one alone."""
        holds = self._place.holds

        def with_recall() -> tuple[str, ...]:
            why = self._recalled(command_id)
            return holds() if why is None else (
                *holds(), f"this command alone, called back by the hub: {why}"[:1_024])

        return replace(self._place, holds=with_recall)

    def _say(self, reply: Reply, step: str) -> Reply:
        reply = self._next(reply, "acting", step)
        try:
            self._journal.says(reply)
        except JournalError as why:  # the INTENT is on disk; what is begun is brought to its end
            log.warning("journal_refuses command=%s why=%r", reply.command_id, str(why))
        self._tell_hub(reply)
        return reply

    def _end(
        self, command: Command, last: Reply, state: CommandState, refusal: Refusal | None = None,
        verified: ActionVerification | None = None, step: str = "",
    ) -> Reply:
        reply = msgspec.structs.replace(
            self._next(last, state, step or (refusal.sentence if refusal else "")),
            refusal=refusal, verified=verified)
        try:
            reply = self._journal.result(reply, about(command))
        except JournalError as why:
            log.error("result_not_recorded command=%s why=%r", reply.command_id, str(why))
        self._tell_hub(reply)
        return reply

    def _next(self, last: Reply, state: CommandState, step: str) -> Reply:
        return msgspec.structs.replace(last, number=last.number + 1, state=state,
                                       at=self._place.wall(), step=step[:1_024])


Outcome = tuple[CommandState, Refusal | None, ActionVerification, str]


class _TaskExecution:
    """One command from the first comparison to what was observed afterwards."""

    def __init__(
        self, place: NodeContext, command: Command, reply: Reply,
        say: Callable[[Reply, str], Reply], patience: ActionTimeouts,
    ) -> None:
        assert command.preview is not None
        self.reply = reply
        self._place = place
        self._command = command
        self._shown: Preview = command.preview
        self._params = command.preview.params
        self._say_it = say
        self._patience = patience

    def do(self) -> Outcome:
        if self._command.asker.kind == "rule" and self._shown.action in guard.SIGNALS:
            with self._take() as targets:  # what is refused anyway is not waited for
                if targets.refusal is not None:
                    raise ActionRefusedError(targets.refusal)
            self._look_twice()
        with self._take() as targets:
            if targets.refusal is not None:
                raise ActionRefusedError(targets.refusal)
            match self._shown.action:
                case "notify":
                    return self._notify(targets)
                case "pause":
                    return self._pause(targets)
                case "resume":
                    return self._resume(targets)
                case "end":
                    return self._end(targets)
                case "terminate_client":
                    return self._terminate_client(targets)
        raise ActionRefusedError(Refusal("schema", f"{self._shown.action} is no act on a task"))

    def _look_twice(self) -> None:
        """What a Rule has seen from afar, this node must see for itself, and after it was asked:
        twice, since a single sample may be any moment."""
        began = self._place.wall(), time.monotonic()
        self._say("waiting for two samples, to see whether it is still so")
        found = self._place.sightings.wait(*began, SAMPLES, SAMPLES_WITHIN_S)
        if len(found) < SAMPLES:
            raise ActionRefusedError(Refusal("unreadable", f"no {SAMPLES} samples came within "
                                             f"{SAMPLES_WITHIN_S:.0f} s of the command; nothing "
                                             "was touched"))
        for each in found[-SAMPLES:]:
            if (why := self._not_so(each)) is not None:
                raise ActionRefusedError(Refusal("condition",
                                                 f"it is not so any more: {why}; nothing was "
                                                              "touched"))

    def _not_so(self, sighting: TaskObservation) -> str | None:
        return rule_condition.flaw(self._command.condition or RuleCondition(), self._shown.task_id,
                              sighting.seen, sighting.util_pct, sighting.taken_at)

    def _cleared(self, since: tuple[float, float]) -> Refusal | None:
        """During the grace: one sample in which it is not so is enough to stop there."""
        if self._command.asker.kind != "rule":
            return None
        for each in self._place.sightings.after(*since):
            if (why := self._not_so(each)) is not None and self._shown.task_id in {
                    one.task.id for one in each.seen}:
                return Refusal("condition", f"it was not so any more during the grace: {why}")
        return None

    def _take(self) -> TargetProcessSet:
        try:
            return take(self._place, self._shown, self._command.asker.kind)
        except OSError as error:
            raise ActionRefusedError(Refusal("unreadable",
                                             "the agent could not take hold of each process "
                                                           f"({error.strerror}); nothing was "
                                                           "touched. Look "
                                                           "at its limits (LimitNOFILE) and "
                                                           "rights.")
                                     ) from error

    # notify

    def _notify(self, targets: TargetProcessSet) -> Outcome:
        told = self._tell_owner(targets, self._params.text)
        who = targets.account
        if told == 0:
            return ("not_effective", None, ActionVerification(),
                    f"{who} has no terminal open on this node; nobody was told here")
        return ("done", None, ActionVerification(),
                f"told {who} at {told} terminal{'s' * (told != 1)}")

    def _tell_owner(self, targets: TargetProcessSet, text: str) -> int:
        by, shown = self._command.asker, self._shown
        approved = f", approved by {by.approved_by}" if by.approved_by else ""
        what = {"notify": "about", "pause": "pauses", "resume": "lets go on", "end": "ends",
                "terminate_client": "takes out of MPS"}
        command = (next((victim.command for victim in shown.victims if victim.command), "") or "")
        return tell(targets.uid, [
            f"gpudeck: {by.name} ({by.kind}{approved}) {what.get(shown.action)} task"
            f" {shown.task_id} of {shown.owner or name_of(targets.uid)}: {command[:120]}",
            f"  {text}" if text else "",
            f"  Reason: {self._command.reason}" if self._command.reason else "",
        ])

    # pause and resume

    def _pause(self, targets: TargetProcessSet) -> Outcome:
        sent = targets.send(signal.SIGSTOP)
        self._tell_owner(targets, "Its memory stays; `gpudeck resume` lets it go on.")
        targets.adopt()
        targets.send(signal.SIGSTOP, only_new=True)
        moving = self._wait_for_state(targets, "T", True)
        return self._settled(targets, moving, f"paused: {sent} processes stand still",
                             "did not stand still")

    def _resume(self, targets: TargetProcessSet) -> Outcome:
        sent = targets.send(signal.SIGCONT)
        still = self._wait_for_state(targets, "T", False)
        return self._settled(targets, still, f"resumed: {sent} processes go on",
                             "still stand still")

    def _wait_for_state(self, targets: TargetProcessSet, letter: str, wanted: bool) -> list[int]:
        """Who is not so after a while. A debugger's stop (`t`) is not ours."""
        deadline = time.monotonic() + STOPPED_WITHIN_S
        while True:
            facts = [found for grip in targets.living() if (found := grip.facts()) is not None]
            wrong = [each.identity.pid for each in facts
                     if (each.row.state == letter) != wanted and each.row.state not in "ZX"]
            if not wrong or time.monotonic() > deadline:
                return wrong
            time.sleep(0.01)

    def _settled(self, targets: TargetProcessSet, wrong: list[int], done: str,
                 failed: str) -> Outcome:
        vanished = targets.vanished()
        verified = ActionVerification(bystanders_alive=_alive(targets, vanished), vanished=vanished,
                                      survivors=tuple(wrong))
        if not targets.living():
            return "not_effective", None, verified, "it ended by itself meanwhile"
        if wrong:
            return "not_effective", None, verified, f"{len(wrong)} processes {failed}"
        state: CommandState = "not_effective" if vanished else "done"
        return state, None, verified, done

    # end

    def _end(self, targets: TargetProcessSet) -> Outcome:
        if (trouble := self._leave_mps(targets)) is not None:
            return self._finish(targets, trouble.sentence, trouble)
        if self._checkpoint(targets) and (refusal := targets.recheck()) is not None:
            return self._finish(targets, "checkpoint signal sent; SIGTERM was held back", refusal)
        if not targets.living():
            return self._finish(targets, "ended before SIGTERM")
        sent = targets.send(signal.SIGTERM)
        if not sent and targets.living():
            raise ActionRefusedError(Refusal("identity",
                                             "the process became another program just now; no "
                                                         "SIGTERM was sent. Look again."))
        # A process that stands still acts on SIGTERM only when it goes on (nvml-mps.md E).
        targets.send(signal.SIGCONT, only_stopped=True)
        since = self._place.wall(), time.monotonic()
        self._tell_owner(targets, f"It has {self._params.grace_s:.0f} s to save and leave.")
        decided = f"{targets.decided_ms:.1f} ms after taking hold"
        self._say(f"SIGTERM sent to {sent} processes ({decided}); "
                  f"{self._params.grace_s:.0f} s of grace")
        targets.adopt()
        targets.send(signal.SIGTERM, only_new=True)
        wait_for_end(targets.living(), self._params.grace_s)
        if not targets.living():
            return self._finish(targets, "ended on SIGTERM")
        return self._kill(targets, since)

    def _kill(self, targets: TargetProcessSet, since: tuple[float, float]) -> Outcome:
        """Only after everything was looked at again; and what was born meanwhile goes with it."""
        refusal = targets.recheck() or self._cleared(since)
        if refusal is not None:
            return self._finish(targets, "SIGTERM was not enough; SIGKILL was not sent", refusal)
        targets.adopt()
        sent = targets.send(signal.SIGKILL)
        if not sent and targets.living():
            changed = Refusal("identity", "what is left became another program after SIGTERM; "
                                          "SIGKILL was not sent")
            return self._finish(targets, changed.sentence, changed)
        self._say(f"SIGKILL sent to {sent} processes that outlasted the grace")
        wait_for_end(targets.living(), self._patience.unkillable_after_s)
        if targets.living():
            return self._unkillable(targets)
        return self._finish(targets, "ended by SIGKILL")

    def _unkillable(self, targets: TargetProcessSet) -> Outcome:
        verified = self._finish(targets, "")[2]
        return "unkillable", None, verified, (
            f"{len(verified.survivors)} processes are still there "
            f"{self._patience.unkillable_after_s:.0f} s after SIGKILL: they wait inside the "
            "kernel, often in the driver. No further signal is sent; see `dmesg`, and plan a "
            "reboot if they stay.")

    def _terminate_client(self, targets: TargetProcessSet) -> Outcome:
        """The process goes on; that MPS has let go of it is read back."""
        if not targets.clients():
            raise ActionRefusedError(Refusal("mps", "it is no client of MPS any more; nothing was "
                                                    "touched"))
        self._leave_mps(targets)
        self._tell_owner(targets, "CUDA will give it errors from now on.")
        pids = {grip.pid for grip in targets.living()}
        listed = {pid for clients in self._place.mps.clients().values() for pid in clients}
        vanished = targets.vanished()
        verified = ActionVerification(applied=True, in_force=not pids & listed, vanished=vanished,
                                      bystanders_alive=_alive(targets, vanished))
        if pids & listed:
            return ("not_effective", None, verified,
                    "applied, not in force: MPS still lists it as its client")
        return ("not_effective" if vanished else "done"), None, verified, (
            "MPS has let go of it; the process itself goes on")

    def _leave_mps(self, targets: TargetProcessSet) -> Refusal | None:
        """Refused if the first is not let go: then nothing was touched."""
        for number, grip in enumerate(targets.clients()):
            if trouble := self._place.mps.terminate(grip.pid):
                refusal = Refusal("mps", f"{trouble}; no signal was sent")
                if number == 0:
                    raise ActionRefusedError(refusal)
                return refusal
        return None

    def _checkpoint(self, targets: TargetProcessSet) -> bool:
        """To those on a Gpu that handle it (or else the root): whoever does not would die of it."""
        if self._params.checkpoint_signal is None:
            return False
        number = signal.Signals[f"SIG{self._params.checkpoint_signal}"]
        sent = targets.send(number, only=lambda facts: catches(facts, number), only_leading=True)
        if not sent:
            self._say(f"{number.name} not sent: no process of it handles it")
            return False
        self._say(f"{number.name} sent to {sent} processes; "
                  f"{self._params.checkpoint_wait_s:.0f} s to save")
        deadline = time.monotonic() + self._params.checkpoint_wait_s
        while (left := deadline - time.monotonic()) > 0 and targets.hold() is None:
            if not wait_for_end(targets.living(), min(left, LOOK_EVERY_S)):
                break
        return True

    def _finish(
        self, targets: TargetProcessSet, step: str, refusal: Refusal | None = None
    ) -> Outcome:
        survivors = tuple(grip.pid for grip in targets.living())
        memory = verify.MemoryVerification(None, None, None)
        if targets.before is not None:
            memory = self._memory(targets, targets.before, not survivors)
        vanished = targets.vanished()
        verified = ActionVerification(
            exited=not survivors, memory_returned=memory.returned,
            bystanders_alive=_alive(targets, vanished), mem_before_bytes=memory.before_bytes,
            mem_after_bytes=memory.after_bytes, vanished=vanished, survivors=survivors,
        )
        return verify.outcome(verified), refusal, verified, step

    def _memory(self, targets: TargetProcessSet, before: OnDemandReading,
                wait: bool) -> verify.MemoryVerification:
        """Asked again and again until it is back; a driver takes its time."""
        deadline = time.monotonic() + (self._patience.memory_within_s if wait else 0.0)
        pause_s, told = 0.05, False
        while True:
            after = self._place.source.fresh(FRESH_WITHIN_S)
            memory = verify.memory(before, after, targets.pids)
            if memory.returned or time.monotonic() + pause_s > deadline:
                return memory
            if memory.returned is None and after is not None:
                return memory  # what it cannot tell now it cannot tell later
            if not told:
                told = True
                self._say("all processes have ended; waiting for their memory to come back")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 1.0)

    def _say(self, step: str) -> None:
        self.reply = self._say_it(self.reply, step)


def _alive(targets: TargetProcessSet, vanished: tuple[str, ...]) -> bool | None:
    return None if not targets.watched else not vanished


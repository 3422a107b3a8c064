"""Ends a task and the whole job it belongs to: checkpoint signal, SIGTERM, grace, SIGKILL."""

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

from gpudeck.contract.actions import MAX_VICTIMS, ActionParams, ActionVerification, Refusal

from ...readings import OnDemandReading
from ...tasks.processes import ProcessFacts
from .. import verify
from ..born import BornProcesses
from ..context import FRESH_WITHIN_S
from ..guard import GuardInput
from ..signals import wait_for_end
from ..targets import TargetProcessSet
from .execution import ActionRefusedError, Outcome
from .task_kind import TaskActionKind, TaskExecution, are_alive, no_flaws
from .terminate_client import leave_mps

LOOK_EVERY_S = 0.2
ROUNDS = 5  # of SIGKILL: what is born in between is found, and the chase has an end


@dataclass(frozen=True, slots=True)
class TaskEnd:
    act: TaskExecution
    targets: TargetProcessSet
    born: BornProcesses

    def run(self) -> Outcome:
        act, targets = self.act, self.targets
        if (trouble := leave_mps(act, targets)) is not None:
            return self._finish(trouble.sentence, trouble)
        if self._checkpoint() and (refusal := targets.recheck()) is not None:
            return self._finish("checkpoint signal sent; SIGTERM was not sent", refusal)
        if not targets.living() and not self.born.adopt():
            return self._finish("ended before SIGTERM")
        count = targets.send(signal.SIGTERM)
        if not count and targets.living():
            raise ActionRefusedError(Refusal("identity",
                                             "the process became another program just now; no "
                                             "SIGTERM was sent. Preview again."))
        # A process that stands still acts on SIGTERM only when it goes on (pitfalls.md E).
        targets.send(signal.SIGCONT, only_stopped=True)
        since, grace_s = (time.time(), time.monotonic()), act.params.grace_s
        act.tell_owner(targets, f"It has {grace_s:.0f} s to save and leave.")
        decided = f"{targets.decided_ms:.1f} ms after taking hold"
        act.report(f"SIGTERM sent to {count} processes ({decided}); {grace_s:.0f} s of grace")
        targets.adopt()
        targets.send(signal.SIGTERM, only_new=True)
        self._wait(grace_s)
        if not targets.living():
            return self._finish("ended on SIGTERM")
        return self._kill(since)

    def _wait(self, grace_s: float) -> None:
        """Wait out the grace; what is born meanwhile, though its parents have gone, is asked to end
        too."""
        targets, deadline = self.targets, time.monotonic() + grace_s
        while True:
            alive = targets.living()
            if self.born.adopt():
                if targets.hold() is None:
                    targets.send(signal.SIGTERM, only_new=True)
            elif not alive:
                return
            if (remaining_s := deadline - time.monotonic()) <= 0:
                return
            wait_for_end(targets.living(), min(remaining_s, LOOK_EVERY_S))

    def _checkpoint(self) -> bool:
        """Send the signal to those on a GPU that handle it (or else to the root): the others would
        die of it. Return whether any got it."""
        act, targets, params = self.act, self.targets, self.act.params
        if params.checkpoint_signal is None:
            return False
        number = signal.Signals[f"SIG{params.checkpoint_signal}"]
        count = targets.send(number, only=lambda facts: catches(facts, number), only_leading=True)
        if not count:
            act.report(f"{number.name} not sent: no process of it handles it")
            return False
        act.report(f"{number.name} sent to {count} processes; "
                   f"{params.checkpoint_wait_s:.0f} s to save")
        deadline = time.monotonic() + params.checkpoint_wait_s
        while (remaining_s := deadline - time.monotonic()) > 0 and targets.hold() is None:
            if not wait_for_end(targets.living(), min(remaining_s, LOOK_EVERY_S)):
                break
        return True

    def _kill(self, since: tuple[float, float]) -> Outcome:
        """Kill, after everything was checked again; what was born meanwhile goes with it."""
        targets = self.targets
        refusal = targets.recheck() or self.act.cleared(since)
        if refusal is not None:
            return self._finish("SIGTERM was not enough; SIGKILL was not sent", refusal)
        targets.adopt()
        self.born.adopt()
        count = targets.send(signal.SIGKILL)
        if not count and targets.living():
            changed = Refusal("identity", "the remaining process became another program after "
                                          "SIGTERM; SIGKILL was not sent")
            return self._finish(changed.sentence, changed)
        self.act.report(f"SIGKILL sent to {count} processes that outlasted the grace")
        for _ in range(ROUNDS):
            wait_for_end(targets.living(), self.act.timeouts.unkillable_after_s)
            if not self.born.adopt() or targets.hold() is not None:
                break
            targets.send(signal.SIGKILL)
        if targets.living():
            return self._unkillable()
        return self._finish("ended by SIGKILL")

    def _unkillable(self) -> Outcome:
        verified = self._finish("")[2]
        return "unkillable", None, verified, (
            f"{len(verified.survivors)} processes are still there "
            f"{self.act.timeouts.unkillable_after_s:.0f} s after SIGKILL: they wait inside the "
            "kernel, often in the driver. No further signal is sent; see `dmesg`, and plan a "
            "reboot if they stay.")

    def _finish(self, step: str, refusal: Refusal | None = None) -> Outcome:
        targets = self.targets
        self.born.adopt()
        survivors = tuple(handle.pid for handle in targets.living())[:MAX_VICTIMS]
        memory = verify.MemoryVerification(None, None, None)
        if targets.before is not None:
            memory = self._memory(targets.before, not survivors)
        vanished = targets.vanished()
        verified = ActionVerification(
            exited=not survivors, memory_returned=memory.returned,
            bystanders_alive=are_alive(targets, vanished), mem_before_bytes=memory.before_bytes,
            mem_after_bytes=memory.after_bytes, vanished=vanished, survivors=survivors,
        )
        return verify.outcome(verified), refusal, verified, step + self.born.left_over()

    def _memory(self, before: OnDemandReading, wait: bool) -> verify.MemoryVerification:
        """Ask again and again until the memory is back; a driver takes its time."""
        deadline = time.monotonic() + (self.act.timeouts.memory_within_s if wait else 0.0)
        pause_s, is_reported = 0.05, False
        while True:
            after = self.act.context.tasks.source.fresh(FRESH_WITHIN_S)
            memory = verify.memory(before, after, self.targets.pids)
            if memory.returned or time.monotonic() + pause_s > deadline:
                return memory
            if memory.returned is None and after is not None:
                return memory  # what it cannot tell now it cannot tell later
            if not is_reported:
                is_reported = True
                self.act.report("all processes have ended; waiting for their memory to be freed")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 1.0)


def do(act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    with BornProcesses(targets) as born:
        return TaskEnd(act, targets, born).run()


def warnings(params: ActionParams, case: GuardInput) -> Iterator[str]:
    yield "Work that is not in a checkpoint is lost; ending a task cannot be undone."
    if case.manager is not None:
        yield f"It belongs to {case.manager}, which may start it again."
    if any(subject.kind == "mps_client" for subject in case.subjects):
        yield ("It is an MPS client: it is disconnected from MPS first; if that fails, no signal "
               "is sent.")
    if params.checkpoint_signal is not None:
        number = signal.Signals[f"SIG{params.checkpoint_signal}"]
        if not any(catches(subject.facts, number) for subject in case.subjects):
            yield (f"No process of it handles {number.name}: the signal would kill it, so it is "
                   "not sent.")


def catches(facts: ProcessFacts, number: signal.Signals) -> bool:
    return bool(facts.caught_signals >> (number - 1) & 1)


END = TaskActionKind("end", "ends", do, warnings, no_flaws)

"""Ends real processes by the agent's own code, while at one step of its order something happens to
the target. Run as a program, in its own PID namespace where there is one:

    python -m tests.faults.steps FOLDER ROUNDS reuse,exit,exec,fork [os_kill]

Prints what happened as JSON, by step and event. `os_kill`: the control arm, whose signals go by
number.
"""

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.actions import guard, signals, targets
from agent.actions import preview as actions_preview
from agent.actions.context import NodeContext, TaskLookup
from agent.actions.execute import ActionExecutor, never_recalled
from agent.actions.kinds import end, task_kind
from agent.actions.kinds.execution import ActionTimeouts
from agent.journal.store import ActionJournal, ActionStore
from agent.readings import OnDemandReading, ProcessReading
from agent.tasks.boot_id import boot_id
from agent.tasks.people import SystemPeople
from agent.tasks.processes import row_of
from agent.tasks.terminals import TerminalReach
from gpudeck.audit.chain import verify
from gpudeck.contract.actions import ActionParams, Command, CommandActor, Reply
from gpudeck.contract.wire import Look
from tests.fakes.children import a_ceiling
from tests.fakes.contexts import a_context
from tests.faults.forging import Forge

# (where its name is looked up, its name, before or after it)
STEPS: dict[str, tuple[Any, str, str]] = {
    "before INTENT": (ActionJournal, "record_intent", "before"),
    "after INTENT": (ActionJournal, "record_intent", "after"),
    "before all is held": (task_kind, "open_targets", "before"),
    "before the pidfd": (signals.ProcessHandle, "open", "before"),
    "after the pidfd": (signals.ProcessHandle, "open", "after"),
    "before /proc is read": (signals, "facts", "before"),
    "after /proc is read": (signals, "facts", "after"),
    "before the comparison": (targets, "is_same", "before"),
    "after the comparison": (targets, "is_same", "after"),
    "before the fresh list": (TaskLookup, "find", "before"),
    "after the fresh list": (TaskLookup, "find", "after"),
    "before the guard": (guard, "refusals", "before"),
    "after the guard": (guard, "refusals", "after"),
    "before the signals": (targets.TargetProcessSet, "send", "before"),
    "before its signal": (signals.ProcessHandle, "send", "before"),
    "after its signal": (signals.ProcessHandle, "send", "after"),
    "before new ones are looked for": (targets.TargetProcessSet, "adopt", "before"),
    "during the grace": (end, "wait_for_end", "before"),
    "before the second look": (targets.TargetProcessSet, "recheck", "before"),
    "after the second look": (targets.TargetProcessSet, "recheck", "after"),
}


@dataclass
class Listed:
    """Process list of the driver: the processes that have these pids now."""

    on_gpu: set[int] = field(default_factory=set)
    pids: frozenset[int] = frozenset()
    detail: str = ""

    def readers_of(self, uuid: str) -> frozenset[int]:
        return self.pids

    def fresh(self, timeout_s: float) -> OnDemandReading | None:
        living = [pid for pid in self.on_gpu
                  if (row := row_of(pid)) is not None and row.state not in "ZX"]
        return OnDemandReading(tuple(ProcessReading(pid, "GPU-1", 1.0, None, "compute")
                                     for pid in living),
                               {"GPU-1": float(len(living))})


@dataclass
class Trap:
    """Trap that springs once, at the n-th time that the step is reached."""

    countdown: int = 0
    spring: Callable[[], None] = lambda: None

    def reached(self) -> None:
        if self.countdown > 0:
            self.countdown -= 1
            if self.countdown == 0:
                self.spring()


def lay_trap(where: Any, name: str, when: str) -> tuple[Trap, Callable[[], None]]:
    trap, own = Trap(), vars(where)[name]
    real = own.__func__ if isinstance(own, classmethod) else own

    def trapped(*arguments: Any, **keywords: Any) -> Any:
        if when == "before":
            trap.reached()
        answer = real(*arguments, **keywords)
        if when == "after":
            trap.reached()
        return answer

    setattr(where, name, classmethod(trapped) if isinstance(own, classmethod) else trapped)
    return trap, lambda: setattr(where, name, own)


@dataclass
class Stage:
    nursery: Forge
    listed: Listed
    context: NodeContext
    journal: ActionJournal

    def act(self, was: dict[str, Any], trap: Trap, event: str) -> tuple[str, Reply]:
        """Return what happened to the target meanwhile, and the reply to the command."""
        preview = actions_preview.preview(self.context, Look(
            "ask", secrets.token_bytes(32), "end", ActionParams(grace_s=0.03),
            f"{boot_id()[:8]}-{was['pid']}-{was['start_ticks']}"))
        assert preview.refusals == (), preview.refusals
        now, happened = time.time(), []
        command = Command(secrets.token_hex(16), "node", 1, now, now + 25, preview.nonce, "end",
                          CommandActor("person", "test"), "because of a test", preview)
        first = self.journal.record_first(
            command, "digest", Reply(command.command_id, 1, "accepted", now))
        trap.countdown = random.choice((1, 1, 1, 2, 3))  # most are reached once
        trap.spring = lambda: happened.append(self._poke(was["pid"], event))
        reply = ActionExecutor(self.context, self.journal, lambda _: None,
                               ActionTimeouts(5.0, 0.0), never_recalled).act(
            command, first)
        trap.countdown = 0
        return {(True,): event, (None,): "ended alone"}.get(tuple(happened), "nothing"), reply

    def _poke(self, pid: int, event: str) -> Any:
        """Disturb the target; False: it has ended before, of the signal that this step follows."""
        try:
            return self.nursery.ask("poke", pid=pid, how=event)
        except AssertionError as error:
            if "FileNotFoundError" in str(error):
                return False
            raise


def a_stage(folder: Path) -> Stage:
    folder.chmod(0o700)
    listed = Listed()
    journal = ActionJournal(ActionStore(folder / "acts.db", durable=False))
    context = a_context(listed, journal, a_ceiling(folder, kills_per_hour=10**7))
    return Stage(Forge(), listed, context, journal)


def by_number(handle: signals.ProcessHandle, number: signal.Signals) -> bool:
    os.kill(handle.pid, number)
    return True


def main(folder: str, rounds: str, events: str, control: str = "") -> None:
    guard.YOUNGEST_S = 0.0  # type: ignore[attr-defined]  # the identity decides here, not the age
    if control == "os_kill":
        signals.ProcessHandle.send = by_number  # type: ignore[assignment, method-assign]
    SystemPeople.notify = lambda *_: TerminalReach()  # type: ignore[method-assign]  # no message to a terminal
    subprocess.run(["true"], check=True)  # pid 2, whose children are taken for the kernel's
    stage = a_stage(Path(folder))
    bystander = stage.nursery.ask("live", count=1)[0]["pid"]
    counts: dict[str, Counter[str]] = {}
    for step, (where, name, when) in STEPS.items():
        trap, undo = lay_trap(where, name, when)
        for event in events.split(","):
            for _ in range(int(rounds)):
                was = stage.nursery.ask("obedient", is_stubborn=random.random() < 0.5)
                stage.listed.on_gpu = {was["pid"], bystander}
                happened, reply = stage.act(was, trap, event)
                fate = stage.nursery.ask("finish", pid=was["pid"])
                key = "died" if fate["died"] else "lives"
                count = counts.setdefault(f"{step}: {happened}", Counter())
                count[key] += 1
                count[reply.refusal.code if reply.refusal else reply.state] += 1
        undo()
    print(json.dumps({
        "told": counts, "bystander": stage.nursery.ask("is_running", pid=bystander),
        "broken": str(verify(stage.journal.audit.links())),
    }))
    stage.nursery.ask("finish", pid=bystander)
    stage.nursery.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    main(*sys.argv[1:])

"""Follow-up of suspended tasks: which there are, and what became of those whose suspension or
restoration was cut short.

Called from the node's own thread, which never waits for the disk or for the vendor's program."""

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec.structs import replace

from gpudeck.contract.suspensions import AT_WORK, WORDS_MOST, SuspendedTask

from ..backends.suspend import SuspendModule
from ..journal.facts import Fact
from ..journal.store import JournalError, fact_on_disk
from ..runtime.action_lock import ActionLock
from ..runtime.worker import Worker
from ..tasks.boot_id import boot_id
from ..tasks.processes import row_of
from ..tasks.seen import SuspendedUse
from .stores import SuspensionStore, decode_limits

log = logging.getLogger("gpudeck.agent.limits")

ROUND_S = 2.0  # as often as processes are listed


def suspended_uses(store: SuspensionStore, boot: str) -> tuple[SuspendedUse, ...]:
    """Return what suspended processes held. Raises JournalError."""
    return uses_of(store.all(), boot)


def uses_of(tasks: Iterable[SuspendedTask], boot: str) -> tuple[SuspendedUse, ...]:
    return tuple(SuspendedUse(entry.process.pid, entry.process.start_ticks, gpu.gpu_uuid)
                 for task in tasks if task.boot_id == boot
                 for entry in task.processes for gpu in entry.gpus)


def suspended_here(data: Path) -> tuple[SuspendedUse, ...]:
    """Return what the agent of a folder has suspended, for commands that only look. Nothing where
    the folder is closed to us."""
    text = fact_on_disk(data / "acts.db", Fact.SUSPENSIONS)
    return uses_of(decode_limits(text or "[]", SuspendedTask)[0], boot_id())


def way_back(task_id: str) -> str:
    return f"`gpudeck restore {task_id}` brings it back"


class SuspensionKeeper:
    def __init__(self, store: SuspensionStore, boot: str, lock: ActionLock,
                 module: SuspendModule | None, wake: Callable[[], None]) -> None:
        """Follow the suspensions of a node. `lock`: held while an act is in flight here. `module`
        None: the backend suspends nothing."""
        self._store = store
        self._boot_id = boot
        self._lock = lock
        self._module = module
        self._wake = wake
        self._worker = Worker("suspensions", 2)
        self._examined: set[SuspendedTask] = set()
        self._next_at = 0.0
        self._trouble = ""
        # Before the first list of processes: a task that is suspended has not ended.
        self._uses: tuple[SuspendedUse, ...] = ()
        self._look()

    @property
    def trouble(self) -> str:
        return self._trouble

    @property
    def is_idle(self) -> bool:
        return self._worker.is_idle

    def uses(self) -> tuple[SuspendedUse, ...]:
        return self._uses

    def changed(self) -> None:
        """Start a round soon: an act has just been done."""
        self._next_at = 0.0

    def step(self, now: float) -> None:
        if now < self._next_at or (self._store.is_surely_empty and not self._uses):
            return  # a simulator has a thousand nodes, which suspend nothing
        self._next_at = now + ROUND_S
        self._worker.put(self._round)

    def close(self) -> None:
        self._worker.close()

    def _round(self) -> None:
        try:
            for task in self._store.all():
                self._follow(task)
        except JournalError as why:
            self._trouble = str(why)
            return
        before = self._uses, self._trouble
        self._look()
        if before != (self._uses, self._trouble):
            self._wake()

    def _look(self) -> None:
        try:
            tasks = self._store.all()
        except JournalError as why:
            self._trouble = str(why)
            return
        self._uses = uses_of(tasks, self._boot_id)
        unread = self._store.unread
        self._trouble = "; ".join((
            *(f"task {task.task_id}: {task.words}" for task in tasks if task.state == "cut_short"),
            *([f"{unread} cannot be understood: such a task may hang; see docs/suspend.md for the "
               "way back by hand"] if unread else [])))

    def _follow(self, task: SuspendedTask) -> None:
        if not self._has_living(task):
            self._store.end(task, "its processes have ended")
        elif task.state in AT_WORK:
            self._follow_act(task)
        elif task.state == "cut_short" and task not in self._examined:
            self._examine(task)

    def _has_living(self, task: SuspendedTask) -> bool:
        if task.boot_id != self._boot_id:
            return False
        rows = ((entry.process, row_of(entry.process.pid)) for entry in task.processes)
        return any(row is not None and row.start_ticks == process.start_ticks
                   and row.state not in "ZX" for process, row in rows)

    def _follow_act(self, task: SuspendedTask) -> None:
        """Follow an act that is marked as running: if no process holds the lock, the one that ran
        it died."""
        if not self._lock.take(0.0):
            return
        try:
            if task in self._store.all():
                self._store.turn(task, replace(
                    task, state="cut_short", since=time.time(),
                    words=f"{task.state} when the agent ended; {way_back(task.task_id)}"))
                log.warning("suspension_cut_short task=%s state=%s", task.task_id, task.state)
        finally:
            self._lock.free()

    def _examine(self, task: SuspendedTask) -> None:
        """Ask for the state of each process, once. Nothing is changed: nobody has asked for it."""
        if self._module is None:
            return
        states = {entry.process.pid: self._module.state_of(entry.process.pid)
                  for entry in task.processes}
        if all(state == "running" for state in states.values()):
            self._store.end(task, "each of its processes runs")
            return
        words = ", ".join(f"process {pid} is {state or 'in a state that cannot be learned'}"
                          for pid, state in states.items() if state != "running")
        now = replace(task, words=f"{words}; {way_back(task.task_id)}"[:WORDS_MOST])
        self._store.turn(task, now)
        self._examined.add(now)

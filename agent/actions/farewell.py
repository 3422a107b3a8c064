"""Farewell of an agent whose service is removed: what it has left on this machine is undone, since
nothing else would."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ..backends import NVML
from ..journal.store import ActionJournal, ActionStore, JournalError
from ..limits.apply import LimitApplier
from ..limits.control_groups import GroupTree
from ..limits.memory_keeper import MemoryMachine, clear_all
from ..limits.mps import LocalMpsDaemons
from ..limits.removal import TimedRemoval
from ..limits.stores import MemoryLimitStore, TimedLimitStore
from ..tasks.boot_id import boot_id
from .hold_files import driver_order
from .left_paused import let_go_on

Undoing = Callable[[ActionJournal, LimitApplier], tuple[list[str], list[str]]]


def undo_all(data: Path) -> tuple[list[str], list[str]]:
    """Undo what the agent of a folder has left; return a sentence for each thing undone, and one
    for each that stays."""
    lines, stopped_pids = let_go_on(data)
    remaining = [] if not stopped_pids else [
        f"still paused by gpudeck: {', '.join(map(str, stopped_pids))}; see `kill -CONT` and `ps`"]
    for name, undoing in (("memory limits", clear_memory_limits),
                          ("power caps and clock locks", undo_timed_limits)):
        undone, limits = _with_journal(data, name, undoing)
        lines, remaining = [*lines, *undone], [*remaining, *limits]
    return lines, remaining


def _with_journal(data: Path, name: str, undoing: Undoing) -> tuple[list[str], list[str]]:
    file = data / "acts.db"
    if not file.exists():
        return [], []
    store = ActionStore(file)
    try:
        return undoing(ActionJournal(store), LimitApplier(NVML, "", partial(driver_order, data)))
    except JournalError as why:
        return [], [f"{name} that gpudeck has set may be there still: {why}"]
    finally:
        store.close()


def clear_memory_limits(journal: ActionJournal, applier: LimitApplier
                        ) -> tuple[list[str], list[str]]:
    """Clear the memory limits of control groups that the agent has set. Raises JournalError."""
    machine = MemoryMachine(
        driver=applier, store=MemoryLimitStore(journal, is_shared=True), groups=GroupTree(),
        boot_id=boot_id(), holds=tuple)
    count = len(machine.store.all())
    remaining = clear_all(machine)
    cleared = count - len(remaining)
    lines = [f"cleared {cleared} memory limit{'s' * (cleared != 1)} that gpudeck had set"]
    return lines if cleared else [], [
        f"a memory limit that gpudeck has set is there still: {limit}; `nvidia-smi memory-limits` "
        "clears it, or a reboot" for limit in remaining]


def undo_timed_limits(journal: ActionJournal, applier: LimitApplier
                      ) -> tuple[list[str], list[str]]:
    """Undo the power caps, clock locks and shares of MPS that the agent has set for a time. Raises
    JournalError."""
    removal = TimedRemoval(TimedLimitStore(journal), applier, LocalMpsDaemons(), boot_id())
    return removal.undo_all()

"""Farewell of an agent whose service is removed: what it has left on this machine is undone, since
nothing else would."""

from pathlib import Path

from ..backends import NVML
from ..journal.store import ActionJournal, ActionStore, JournalError
from ..limits.apply import LimitApplier
from ..limits.control_groups import GroupTree
from ..limits.memory_keeper import MemoryMachine, clear_all
from ..limits.stores import MemoryLimitStore
from ..tasks.boot_id import boot_id
from .hold_files import driver_order
from .left_paused import let_go_on


def undo_all(data: Path) -> tuple[list[str], list[str]]:
    """Undo what the agent of a folder has left; return a sentence for each thing undone, and one
    for each that stays."""
    lines, stopped_pids = let_go_on(data)
    remaining = [] if not stopped_pids else [
        f"still paused by gpudeck: {', '.join(map(str, stopped_pids))}; see `kill -CONT` and `ps`"]
    undone, limits = clear_memory_limits(data)
    return [*lines, *undone], [*remaining, *limits]


def clear_memory_limits(data: Path) -> tuple[list[str], list[str]]:
    """Clear the memory limits of control groups that the agent of a folder has set."""
    file = data / "acts.db"
    if not file.exists():
        return [], []
    store = ActionStore(file)
    try:
        machine = MemoryMachine(
            driver=LimitApplier(NVML, "", lambda: driver_order(data)),
            store=MemoryLimitStore(ActionJournal(store), is_shared=True), groups=GroupTree(),
            boot_id=boot_id(), holds=tuple)
        count = len(machine.store.all())
        remaining = clear_all(machine)
    except JournalError as why:
        return [], [f"memory limits that gpudeck has set may be there still: {why}"]
    finally:
        store.close()
    cleared = count - len(remaining)
    lines = [f"cleared {cleared} memory limit{'s' * (cleared != 1)} that gpudeck had set"]
    return lines if cleared else [], [
        f"a memory limit that gpudeck has set is there still: {limit}; `nvidia-smi memory-limits` "
        "clears it, or a reboot" for limit in remaining]

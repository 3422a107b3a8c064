"""Tasks whose GPU memory was moved to their machine's memory, as their node keeps them. Pure."""

from collections.abc import Collection
from typing import Annotated, Literal

from msgspec import Meta, Struct

from gpudeck.contract.actions import HeldGpu, ProcessIdentity
from gpudeck.contract.message_limits import Seconds, Text, Word
from gpudeck.contract.vendors import NO_SUSPENSION, is_nvidia

MAX_SUSPENSIONS = 256
MIG = "MIG-"  # how the driver begins the UUID of an instance
WORDS_MOST = 1_024
# `suspending` and `restoring` while an action is at work; `cut_short`: it ended in the middle, and
# its processes may be locked.
SuspensionState = Literal["suspending", "suspended", "restoring", "cut_short"]
PREEMPTION = "pre-emption"  # what suspends by itself; by its lease: "pre-emption of LEASE"
AT_WORK: tuple[SuspensionState, ...] = ("suspending", "restoring")


INSTANCE = "the memory of a MIG instance cannot be moved"
NOT_COMPUTE = "it is no plain compute task"


def suspend_refusal(uuids: Collection[str], kind: str | None) -> str:
    """Return why a task cannot be suspended wherever it runs, as far as its GPUs and its kind say;
    "": they do not speak against it. Its node looks at more (agent/actions/kinds/suspend.py)."""
    if not all(map(is_nvidia, uuids)):
        return NO_SUSPENSION
    if any(uuid.startswith(MIG) for uuid in uuids):
        return INSTANCE
    return "" if kind in ("compute", None) else NOT_COMPUTE


class SuspendedProcess(Struct, frozen=True):
    """A process and what it held on GPUs before."""

    process: ProcessIdentity
    gpus: Annotated[tuple[HeldGpu, ...], Meta(max_length=256)]


class SuspendedTask(Struct, frozen=True):
    """Record of the processes of a job that one action suspended."""

    task_id: Word
    boot_id: Word
    processes: Annotated[tuple[SuspendedProcess, ...], Meta(max_length=512)]
    state: SuspensionState
    since: Seconds
    by: Word
    # Of its GPUs, when it was suspended: where there is another now, that has them.
    leases: Annotated[tuple[Word, ...], Meta(max_length=256)] = ()
    words: Text = ""  # what went wrong, and the way back

    @property
    def is_by_pool(self) -> bool:
        """Return whether a pre-emption suspended it, of any lease, whatever its hub calls that
        now."""
        return is_preemption(self.by)

    def has(self, pid: int, start_ticks: int) -> bool:
        return any((entry.process.pid, entry.process.start_ticks) == (pid, start_ticks)
                   for entry in self.processes)


def is_preemption(name: str) -> bool:
    return name.partition(" of ")[0] == PREEMPTION

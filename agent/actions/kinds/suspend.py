"""Suspends a task: its GPU memory goes to the machine's memory, and comes back when it is restored.

A record is on disk before anything is touched, because the driver does not list a suspended process
any more, and a locked one hangs until somebody unlocks it. All processes of the job or none: where
a step fails, those before it are brought back at once. The vendor's program takes a number, so each
process is held open and compared right before each step, and judged by its state afterwards.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from gpudeck.contract.actions import ActionVerification, CommandState, HeldGpu, Refusal
from gpudeck.contract.suspensions import (
    MIG,
    WORDS_MOST,
    SuspendedProcess,
    SuspendedTask,
    SuspensionState,
    is_preemption,
)
from gpudeck.contract.vendors import NO_SUSPENSION
from gpudeck.words.actions import many

from ...backends.suspend import AFTER, Step, SuspendModule
from ...journal.store import JournalError
from ...limits.suspensions import way_back
from ...tasks import host_memory
from ...tasks.jobs import below
from ...tasks.processes import table
from .. import verify
from ..context import FRESH_WITHIN_S, NodeContext, TaskPreview
from ..signals import is_same
from ..targets import TargetProcess, TargetProcessSet
from .execution import ActionRefusedError, Outcome
from .setting_kind import NOT_VERIFIED
from .task_kind import TaskActionKind, TaskExecution, are_alive, no_warnings

SPARE_SHARE = 1.1  # of host memory, for what the driver keeps beside the copy
LISTED_WITHIN_S = 10.0
GIB = 2**30
UNCLEAR = "in a state that cannot be learned"


# what forbids it


def _suspend_flaws(task: TaskPreview) -> Iterator[Refusal]:
    module = task.context.boards.suspend_module(
        {gpu.gpu_uuid for holder in task.holders for gpu in holder.gpus})
    if module is None:
        yield Refusal("setting", NO_SUSPENSION)
        return
    driver = task.context.node.driver()
    if why := module.trouble(driver):
        yield Refusal("setting", why)
    if why := _recorded(task):
        yield Refusal("condition", why)
    yield from (Refusal("condition", why) for why in _unsuited(task))
    if len(task.holders) > 1 and not module.takes_several(driver):
        yield Refusal("multi_process", (
            f"{many(len(task.holders), 'process')} of this job hold GPU memory, and driver "
            f"{driver or 'unknown'} cannot bring back memory that they may share"))
    yield from (Refusal("condition", why) for why in _no_room(task))


def _recorded(task: TaskPreview) -> str:
    store = task.context.limits.suspensions
    try:
        records = [store.of(process.facts.identity.pid, process.facts.identity.start_ticks)
                   for process in task.processes]
    except JournalError as why:
        return str(why)
    return "it is suspended already, or was not brought back: restore it" if any(records) else ""


def _unsuited(task: TaskPreview) -> Iterator[str]:
    parts = {uuid for uuid, facts in task.context.tasks.recent.facts.items() if facts.parent_uuid}
    if not task.holders:
        yield "none of its processes is listed on a GPU"
    for process in task.holders:
        pid = process.facts.identity.pid
        if any(gpu.gpu_uuid in parts or gpu.gpu_uuid.startswith(MIG) for gpu in process.gpus):
            yield f"process {pid} is on a MIG instance, whose memory cannot be moved"
        if process.kind != "compute":
            yield f"process {pid} is no plain compute process ({process.kind or 'unknown'})"
        if process.facts.row.state in "Tt":
            yield f"process {pid} is stopped and cannot hand over its memory; resume it first"
        if any(gpu.mem_used_bytes is None for gpu in process.gpus):
            yield (f"the driver does not report how much memory process {pid} holds, so it is "
                   "unknown whether there is room for it")


def _no_room(task: TaskPreview) -> Iterator[str]:
    """Yield where the memory would not fit. Unknown room is none."""
    for where, free, needed in _needs(task):
        if free is None:
            yield (f"the memory limit of {where} cannot be read, so it is unknown whether there is "
                   "room")
        elif needed > free:
            yield (f"it needs {needed / GIB:.1f} GiB of host memory, and {where} has "
                   f"{max(free, 0.0) / GIB:.1f} GiB left")


def _needs(task: TaskPreview) -> list[tuple[str, float | None, float]]:
    """Return (place, bytes free there, bytes that go there) of the machine and of each cgroup."""
    needs: dict[str, tuple[float | None, float]] = {}
    for process in task.holders:
        amount = SPARE_SHARE * _bytes_of(process.gpus)
        rooms = host_memory.rooms(process.facts.cgroups)
        if rooms is None:
            where = f"process {process.facts.identity.pid}"
            needs[where] = None, amount
            continue
        for room in rooms:
            _, before = needs.get(room.words, (None, 0.0))
            needs[room.words] = room.free_bytes, before + amount
    return [(where, free, needed) for where, (free, needed) in needs.items()]


def _bytes_of(gpus: Iterable[HeldGpu]) -> float:
    return sum(gpu.mem_used_bytes or 0.0 for gpu in gpus)


def _suspend_notes(task: TaskPreview) -> Iterator[str]:
    yield NOT_VERIFIED
    needs = _needs(task)
    yield from (f"It takes {needed / GIB:.1f} GiB of host memory; {where} has "
                f"{free / GIB:.1f} GiB left." for where, free, needed in needs if free is not None)
    yield ("Its GPU memory is then free for others, so that restoring it may have to wait until "
           "they have left.")
    yield "Processes that wait for it hang and may time out."


def _restore_flaws(task: TaskPreview) -> Iterator[Refusal]:
    module = task.context.boards.suspend_module(())
    if module is None:
        yield Refusal("setting", "tasks on boards of this kind cannot be restored")
        return
    if why := module.trouble(task.context.node.driver()):
        yield Refusal("setting", why)
    try:
        record = _record_of(task.context, task)
    except JournalError as why:
        yield Refusal("journal", str(why))
        return
    if record is None:
        yield Refusal("condition", "it was not suspended by gpudeck")
        return
    yield from (Refusal("condition", why) for why in _leased_since(task, record))
    yield from (Refusal("condition", why) for why in _no_room_on_gpus(task, record))


def _record_of(context: NodeContext, task: TaskPreview) -> SuspendedTask | None:
    store = context.limits.suspensions
    return next(filter(None, (store.of(process.facts.identity.pid,
                                       process.facts.identity.start_ticks)
                              for process in task.processes)), None)


def _leased_since(task: TaskPreview, record: SuspendedTask) -> Iterator[str]:
    """Yield what the pool has against it: its lease waits for its GPUs, or they were leased to
    somebody since."""
    needed, limits = _needed(task, record), task.context.limits
    try:
        leases = limits.leases_of_gpus() if needed else ()
        waiting = limits.waiting_leases() & {*record.leases}
    except JournalError as why:
        yield str(why)
        return
    if waiting:
        yield (f"lease {min(waiting)} of it waits in the queue for its GPUs (gpudeck pool); it is "
               "restored when the lease has them again")
        return
    for uuid in needed:
        on_it = {lease for lease, gpu in leases if gpu == uuid}
        if on_it and not on_it & {*record.leases}:
            yield f"GPU {uuid} was leased since; it stays suspended until that lease has ended"


def _needed(task: TaskPreview, record: SuspendedTask) -> dict[str, float]:
    """Return the memory that comes back to each GPU. What was only locked is there still."""
    needed: dict[str, float] = {}
    back = {(entry.facts.identity.pid, gpu.gpu_uuid) for entry in task.processes
            for gpu in entry.gpus if gpu.mem_used_bytes}
    for entry in record.processes:
        for gpu in entry.gpus:
            if (entry.process.pid, gpu.gpu_uuid) not in back:
                needed[gpu.gpu_uuid] = needed.get(gpu.gpu_uuid, 0.0) + (gpu.mem_used_bytes or 0.0)
    return needed


def _no_room_on_gpus(task: TaskPreview, record: SuspendedTask) -> Iterator[str]:
    """Yield GPUs that are full. What the driver does not report is tried: a restoration that finds
    no room fails, and leaves the task suspended."""
    for uuid, amount in _needed(task, record).items():
        facts = task.context.tasks.recent.facts.get(uuid)
        total = None if facts is None else facts.mem_total_bytes
        used_bytes = None if task.fresh is None else task.fresh.mem_used_bytes.get(uuid)
        if total is not None and used_bytes is not None and amount > total - used_bytes:
            yield (f"it needs {amount / GIB:.1f} GiB on GPU {uuid}, which has "
                   f"{(total - used_bytes) / GIB:.1f} GiB free; it stays suspended until "
                   "there is room")


def _restore_notes(_task: TaskPreview) -> Iterator[str]:
    yield NOT_VERIFIED


# what is done


def _suspend(act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    module, task = _checked(act, targets, _suspend_flaws)
    if (late := _newcomers(targets)):
        raise ActionRefusedError(Refusal("changed", (
            f"process {late[0]} of it came to a GPU after the preview; nothing was touched. "
            "Preview again.")))
    store = act.context.limits.suspensions
    gpus_of = {process.facts.identity.pid: process.gpus for process in task.holders}
    holders = [target for target in targets.all if target.handle.pid in gpus_of]
    for target in holders:  # what another program has locked is not ours to unlock afterwards
        if (state := module.state_of(target.handle.pid)) != "running":
            raise ActionRefusedError(Refusal("condition", (
                f"process {target.handle.pid} is {state or UNCLEAR}; nothing was touched")))
    record = SuspendedTask(
        act.preview.task_id, act.context.node.boot_id,
        tuple(SuspendedProcess(target.identity, gpus_of[target.handle.pid]) for target in holders),
        "suspending", time.time(), act.command.asker.name)
    try:
        gpus = {gpu.gpu_uuid for entry in record.processes for gpu in entry.gpus}
        record = replace(record, leases=tuple(sorted(
            {lease for lease, gpu in act.context.limits.leases_of_gpus() if gpu in gpus}))[:256])
        store.begin(record)
    except JournalError as why:
        raise ActionRefusedError(Refusal("journal", str(why))) from why
    act.tell_owner(targets, "Its GPU memory is moved to this machine's memory; `gpudeck restore` "
                            "brings it back.")
    trouble = (_step(act, module, targets, holders, "lock")
               or _step(act, module, targets, holders, "checkpoint"))
    if trouble:
        return _undone(act, module, targets, record, holders, trouble)
    return _suspended(act, targets, record)


def _checked(act: TaskExecution, targets: TargetProcessSet,
             flaws: Callable[[TaskPreview], Iterable[Refusal]]
             ) -> tuple[SuspendModule, TaskPreview]:
    """Judge everything again, on the processes that are held now. Raises ActionRefusedError."""
    task = targets.as_preview()
    for flaw in flaws(task):
        raise ActionRefusedError(flaw)
    module = act.context.boards.suspend_module(())
    assert module is not None
    return module, task


def _newcomers(targets: TargetProcessSet) -> list[int]:
    """Return processes on GPUs that belong to the job and were not shown: they would be left
    running while the others stand still."""
    assert targets.snapshot is not None
    listed = {entry.task.pid for entry in targets.snapshot.gpu_tasks} - targets.pids
    return [row.pid for row in below(targets.pids, table()) if row.pid in listed]


def _step(act: TaskExecution, module: SuspendModule, targets: TargetProcessSet,
          holders: Sequence[TargetProcess], step: Step) -> str:
    """Take one step with each process; return what went wrong with the first that failed."""
    for target in holders:
        if (hold := targets.hold()) is not None:
            return hold.sentence
        act.report(f"{step} of process {target.handle.pid}")
        if why := _take(module, target, step):
            return why
    return ""


def _take(module: SuspendModule, target: TargetProcess, step: Step) -> str:
    pid, facts = target.handle.pid, target.handle.facts()
    if facts is None:
        return f"process {pid} has ended"
    if not is_same(facts.identity, target.identity):
        return f"process {pid} became another program"
    why = module.take(step, pid)
    state = module.state_of(pid)
    if not target.handle.is_alive():
        _release(module, pid)
        return f"process {pid} ended meanwhile"
    if state == AFTER[step]:
        return ""
    return f"{step} of process {pid} failed ({why or f'it is {state or UNCLEAR}'})"


def _release(module: SuspendModule, pid: int) -> None:
    """Bring back the process that has this number now: the one that was meant has ended."""
    if module.state_of(pid) == "checkpointed":
        module.take("restore", pid)
    if module.state_of(pid) == "locked":
        module.take("unlock", pid)


def _undone(act: TaskExecution, module: SuspendModule, targets: TargetProcessSet,
            record: SuspendedTask, holders: Sequence[TargetProcess], trouble: str) -> Outcome:
    act.report(f"{trouble}; bringing it back")
    wrong = _bring_back(module, holders)
    if wrong:
        words = f"{trouble}; {wrong}; {way_back(record.task_id)}"
        _turn(act, record, "cut_short", words)
    else:
        words = f"{trouble}; nothing is suspended, it runs as before"
        _end(act, record, words)
    return _outcome(targets, False, None, words)


def _bring_back(module: SuspendModule, holders: Sequence[TargetProcess]) -> str:
    """Restore what is checkpointed, then unlock what is locked; return what is not as before. All
    are restored before any runs again, since they may wait for each other."""
    steps: tuple[tuple[Step, str], ...] = (("restore", "checkpointed"), ("unlock", "locked"))
    troubles = [trouble for step, state in steps for target in holders
                if target.handle.is_alive() and module.state_of(target.handle.pid) == state
                and (trouble := _take(module, target, step))]
    states = {target.handle.pid: module.state_of(target.handle.pid) for target in holders
              if target.handle.is_alive()}
    wrong = [f"process {pid} is {state or UNCLEAR}"
             for pid, state in states.items() if state != "running"]
    return "; ".join([*troubles, *wrong]) if wrong else ""


def _suspended(act: TaskExecution, targets: TargetProcessSet, record: SuspendedTask) -> Outcome:
    before = targets.before
    assert before is not None
    act.report("waiting for its GPU memory to be freed")
    deadline = time.monotonic() + act.timeouts.memory_within_s
    while True:
        after = act.context.tasks.source.fresh(FRESH_WITHIN_S)
        memory = verify.memory(before, after, targets.pids)
        if memory.returned or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    words = (f"the GPU memory of {many(len(record.processes), 'process')} is in the memory of the "
             "machine until it is restored")
    if memory.returned is False:
        words = f"{words}, and the driver does not report it as freed; {way_back(record.task_id)}"
    _turn(act, record, "suspended", "" if memory.returned is not False else words)
    return _outcome(targets, memory.returned is not False, memory, words)


def _restore(act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    module, task = _checked(act, targets, _restore_flaws)
    record = _record_of(act.context, task)
    if record is None:
        raise ActionRefusedError(Refusal("condition", "it was not suspended by gpudeck"))
    if act.command.asker.kind == "rule" and not (
            record.is_by_pool and is_preemption(act.command.asker.name)):
        raise ActionRefusedError(Refusal("rules", f"{record.by} has suspended it; only what the "
                                                  "pool has suspended is restored automatically"))
    numbers = {(entry.process.pid, entry.process.start_ticks) for entry in record.processes}
    holders = [target for target in targets.all
               if (target.identity.pid, target.identity.start_ticks) in numbers]
    if (hold := targets.hold()) is not None:
        raise ActionRefusedError(hold)
    try:
        act.context.limits.suspensions.turn(record, replace(record, state="restoring",
                                                            since=time.time()))
    except JournalError as why:
        raise ActionRefusedError(Refusal("journal", str(why))) from why
    record = replace(record, state="restoring")
    act.report(f"restoring {many(len(holders), 'process')}")
    wrong = _bring_back(module, holders)
    if wrong:
        # One that found no room is as it was before; of others somebody has to know.
        is_whole = all(module.state_of(target.handle.pid) == "checkpointed" for target in holders)
        words = f"{wrong}; {way_back(record.task_id)} once its GPUs have room" if is_whole else (
            f"{wrong}; {way_back(record.task_id)}")
        _turn(act, record, "suspended" if is_whole else "cut_short", words)
        return _outcome(targets, False, None, words)
    words = f"{many(len(holders), 'process')} back on its GPUs{_listed(act, targets)}"
    rest = tuple(entry for entry in record.processes
                 if (entry.process.pid, entry.process.start_ticks) not in {
                     (target.identity.pid, target.identity.start_ticks) for target in holders})
    if rest:  # they left the job meanwhile, and have a task of their own
        _turn(act, replace(record, processes=rest), "suspended", "")
    else:
        _end(act, record, words)
    return _outcome(targets, True, None, words)


def _listed(act: TaskExecution, targets: TargetProcessSet) -> str:
    """Return a remark where the driver does not list them again soon."""
    deadline = time.monotonic() + LISTED_WITHIN_S
    while time.monotonic() < deadline:
        fresh = act.context.tasks.source.fresh(FRESH_WITHIN_S)
        if fresh is not None and any(process.pid in targets.pids for process in fresh.processes):
            return ""
        time.sleep(0.1)
    return ", though the driver does not list them on a GPU yet"


def _turn(act: TaskExecution, record: SuspendedTask, state: SuspensionState, words: str) -> None:
    """Store what became of it. Where that fails the record says that it was cut short, which has
    the same way back."""
    store = act.context.limits.suspensions
    try:
        [former] = [task for task in store.all() if task.task_id == record.task_id]
        store.turn(former, replace(record, state=state, since=time.time(),
                                   words=words[:WORDS_MOST]))
    except (JournalError, ValueError) as why:
        act.report(f"this could not be recorded ({why})")


def _end(act: TaskExecution, record: SuspendedTask, why: str) -> None:
    try:
        act.context.limits.suspensions.end(record, why[:WORDS_MOST])
    except JournalError as error:
        act.report(f"this could not be recorded ({error})")


def _outcome(targets: TargetProcessSet, is_done: bool, memory: verify.MemoryVerification | None,
             words: str) -> Outcome:
    vanished = targets.vanished()
    verified = ActionVerification(
        bystanders_alive=are_alive(targets, vanished), vanished=vanished,
        memory_returned=None if memory is None else memory.returned,
        mem_before_bytes=None if memory is None else memory.before_bytes,
        mem_after_bytes=None if memory is None else memory.after_bytes)
    if not targets.living():
        return "not_effective", None, verified, "it ended by itself in the meantime"
    state: CommandState = "done" if is_done and not vanished else "not_effective"
    return state, None, verified, words[:WORDS_MOST]


SUSPEND = TaskActionKind("suspend", "suspends", _suspend, no_warnings,
                         _suspend_flaws, _suspend_notes)
RESTORE = TaskActionKind("restore", "restores", _restore, no_warnings,
                         _restore_flaws, _restore_notes)

"""Processes of one action, held by pidfd from before they are compared until it is over."""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from gpudeck.contract.actions import Bystander, Preview, ProcessIdentity, Refusal, Victim

from ..readings import OnDemandReading
from ..tasks.jobs import below
from ..tasks.processes import ProcessFacts, table
from ..tasks.user_table import name_of
from . import guard
from .context import NodeContext, TaskPreview, TaskSnapshot, task_preview
from .guard import Check, GuardedProcess
from .signals import ProcessHandle, ProcessHandles, is_same, living

DECIDED_WITHIN_S = 0.05
ATTEMPTS = 3


@dataclass(slots=True, eq=False)
class TargetProcess:
    handle: ProcessHandle
    identity: ProcessIdentity
    user: str | None
    kind: str | None
    leads: bool  # holds a GPU, or is the root of the Job
    is_new: bool = False
    is_adopted: bool = False


@dataclass(slots=True)
class TargetProcessSet:
    """Processes of an action. `refusal`: nothing may be touched. All handles are closed at its
    end."""

    context: NodeContext
    preview: Preview
    asker: str
    handles: ProcessHandles = field(default_factory=ProcessHandles)
    all: list[TargetProcess] = field(default_factory=list)
    bystanders: list[tuple[str, ProcessHandle]] = field(default_factory=list)  # bystanders
    snapshot: TaskSnapshot | None = None  # in the driver's fresh list
    refusal: Refusal | None = None
    began: float = 0.0
    decided_ms: float = 0.0

    def __enter__(self) -> "TargetProcessSet":
        return self

    def __exit__(self, *_: object) -> None:
        self.handles.close()

    @property
    def before(self) -> OnDemandReading | None:
        return None if self.snapshot is None else self.snapshot.fresh

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(target.handle.pid for target in self.all)

    @property
    def uid(self) -> int:
        return self._requested_target().identity.uid

    @property
    def account(self) -> str:
        return name_of(self.uid)

    def living(self) -> list[ProcessHandle]:
        return living([target.handle for target in self.all])

    def clients(self) -> list[ProcessHandle]:
        alive = set(self.living())
        return [target.handle for target in self.all
                if target.kind == "mps_client" and target.handle in alive]

    def vanished(self) -> tuple[str, ...]:
        alive = set(living([handle for _, handle in self.bystanders]))
        return tuple(task_id for task_id, handle in self.bystanders if handle not in alive)

    def as_preview(self) -> TaskPreview:
        """Return the job as it is now, on the fresh list by which it was opened."""
        assert self.snapshot is not None
        return task_preview(self.context, self._subjects(), self.snapshot)

    def hold(self) -> Refusal | None:
        holds = self.context.guards.holds()
        if not holds:
            return None
        return Refusal("hold", f"actions were stopped in the meantime: {'; '.join(holds)}"[:1_024])

    def send(
        self, number: signal.Signals, only: Callable[[ProcessFacts], bool] | None = None,
        only_new: bool = False, only_stopped: bool = False, only_leading: bool = False,
    ) -> int:
        """Send a signal, parents first: they must not answer a child's end with a new one. Each
        process is compared once more right before, so that one that became another program is left
        alone. Return how many got it."""
        count = 0
        for target in self.all:
            if (only_new and not target.is_new) or (only_leading and not target.leads):
                continue
            facts = target.handle.facts()
            if facts is None or not is_same(facts.identity, target.identity):
                continue
            if (only_stopped and facts.row.state != "T") or (only is not None and not only(facts)):
                continue
            count += target.handle.send(number)
            if not self.decided_ms:
                self.decided_ms = (time.monotonic() - self.began) * 1_000
            target.is_new = False
        return count

    def adopt(self) -> None:
        """Add what was born below a living victim since: it belongs to that victim."""
        alive = {handle.pid for handle in self.living()}
        pids = self.pids
        for row in below(alive, table()):
            if row.pid in pids:
                continue
            handle = self.handles.open(row.pid)
            facts = None if handle is None else handle.facts()
            if handle is None or facts is None or facts.row.start_ticks != row.start_ticks:
                continue
            # Its parent is alive now, and so the one that we hold, not one with the same number.
            parents = {parent.pid for parent in self.living()}
            if facts.row.parent in parents and self.may_adopt(facts, handle):
                self.add(handle, facts)

    def add(self, handle: ProcessHandle, facts: ProcessFacts) -> None:
        self.all.append(TargetProcess(handle, facts.identity, name_of(facts.identity.uid), None,
                                      False, is_new=True, is_adopted=True))

    def recheck(self) -> Refusal | None:
        """Check the hold, the protected sets and the ceiling as they are now, before the next
        signal."""
        if (hold := self.hold()) is not None:
            return hold
        subjects = self._subjects()
        if not subjects:
            return None
        case = self.context.case(self.preview.action, subjects, subjects[0].facts, self.asker)
        # The budget was spent by the INTENT of this very act, and its age was judged then.
        return next(iter(guard.refusals(replace(case, kills_last_hour=0, pauses_last_hour=0,
                                                age_s=None))), None)

    def may_adopt(self, facts: ProcessFacts, handle: ProcessHandle) -> bool:
        subject = self.context.subject(facts, name_of(facts.identity.uid), None,
                                       handle.may_signal())
        case = self.context.case(self.preview.action, (subject,), facts, self.asker)
        return not any(refusal.code in ("protected", "permission")
                       for refusal in guard.refusals(case))

    def _requested_target(self) -> TargetProcess:
        victim = requested_victim(self.preview)
        return next(target for target in self.all if target.identity == victim.process)

    def _subjects(self) -> tuple[GuardedProcess, ...]:
        current = ((target, target.handle.facts()) for target in self.all)
        return tuple(
            self.context.subject(facts, target.user, target.kind, target.handle.may_signal())
            for target, facts in current if facts is not None)


def open_targets(context: NodeContext, preview: Preview, asker: str) -> TargetProcessSet:
    """Open pidfds first, then compare, then read one fresh list, then ask the guard. If that took
    too long, start over; each is compared again right before its signal in any case."""
    for attempt in range(ATTEMPTS):
        targets = TargetProcessSet(context, preview, asker)
        try:
            targets.refusal = _fill(targets)
        except BaseException:
            targets.handles.close()
            raise
        took_s = time.monotonic() - targets.began
        if targets.refusal is not None or took_s < DECIDED_WITHIN_S or attempt == ATTEMPTS - 1:
            break
        targets.handles.close()
    return targets


def _fill(targets: TargetProcessSet) -> Refusal | None:
    targets.began = time.monotonic()
    for check in HELD_PROCESSES:
        for refusal in check.refusals(targets):
            return refusal
    subjects = targets._subjects()
    target = targets._requested_target().handle.facts()
    if target is None:
        return guard.gone_refusal(targets.preview.task_id)
    case = targets.context.case(targets.preview.action, subjects, target, targets.asker)
    return next(iter(guard.refusals(guard.discount_itself(case))), None)


def _open_all(targets: TargetProcessSet) -> Iterator[Refusal]:
    for victim in targets.preview.victims:
        if (refusal := _open(targets, victim)) is not None:
            yield refusal
    for bystander in targets.preview.bystanders:
        _watch(targets, bystander)


def _list_again(targets: TargetProcessSet) -> Iterator[Refusal]:
    targets.snapshot = targets.context.tasks.find()
    is_unread = targets.snapshot is None or (targets.snapshot.fresh.unread and (
        targets.snapshot.task(targets.preview.task_id) is None))
    if is_unread:
        yield guard.unreadable_refusal(targets.context.tasks.source.detail)


def _open(targets: TargetProcessSet, victim: Victim) -> Refusal | None:
    """A worker that has ended since is no reason to stop; anything that changed is."""
    former = victim.process
    is_asked = victim.task_id == targets.preview.task_id
    handle = targets.handles.open(former.pid)
    facts = None if handle is None else handle.facts()
    if handle is None or facts is None:
        return guard.gone_refusal(targets.preview.task_id) if is_asked else None
    current = facts.identity
    if not is_same(current, former):
        if not is_asked and current.start_ticks != former.start_ticks:
            return None  # that worker has ended, and its number is somebody else's: not touched
        return Refusal("identity", f"process {former.pid} is not the one that was shown (another "
                                   "start, program, user or cgroup); nothing was touched. Preview "
                                   "again.")
    leads = victim.task_id is not None or victim is targets.preview.victims[0]
    targets.all.append(TargetProcess(handle, former, victim.user, None, leads))
    return None


def _watch(targets: TargetProcessSet, bystander: Bystander) -> None:
    handle = targets.handles.open(bystander.process.pid)
    facts = None if handle is None else handle.facts()
    if handle is not None and facts is not None and is_same(facts.identity, bystander.process):
        targets.bystanders.append((bystander.task_id, handle))


def _still_there(targets: TargetProcessSet) -> Iterator[Refusal]:
    assert targets.snapshot is not None
    snapshot, preview = targets.snapshot, targets.preview
    task = snapshot.task(preview.task_id)
    if task is None:
        yield Refusal("condition", f"task {preview.task_id} does not use a GPU any more; nothing "
                                   "was touched. Preview again.")
        return
    gpus = {gpu.gpu_uuid for gpu in requested_victim(preview).held}
    if gpus and not gpus & {gpu.gpu_uuid for gpu in snapshot.held_gpus(task.pid)}:
        yield Refusal("condition", "the task has moved to other GPUs than the preview showed; "
                                   "nothing was touched. Preview again.")
    for target in targets.all:
        its = snapshot.task_of(target.handle.pid)
        target.kind = None if its is None else its.kind


def requested_victim(preview: Preview) -> Victim:
    return next(victim for victim in preview.victims if victim.task_id == preview.task_id)


HELD_PROCESSES: tuple[Check[TargetProcessSet], ...] = (
    Check("identity", ("gone", "identity"), "each process, held by pidfd, is the one that was "
          "shown", _open_all),
    Check("fresh list", ("unreadable",), "the driver lists its processes once more", _list_again),
    Check("use of GPUs", ("condition",), "the task is in that list, on GPUs that were shown",
          _still_there),
)

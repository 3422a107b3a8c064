"""The processes of one act, held by pidfd from before they are compared until it is over."""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from gpudeck.actions import Bystander, Preview, ProcessIdentity, Refusal, Victim

from ..readings import OnDemandReading
from ..tasks.jobs import below
from ..tasks.processes import ProcessFacts, table
from ..tasks.user_table import name_of
from . import guard
from .context import NodeContext, TaskSnapshot
from .guard import Check, GuardedProcess
from .signals import ProcessHandle, ProcessHandles, is_same, living

DECIDED_WITHIN_S = 0.05
ATTEMPTS = 3


@dataclass(slots=True, eq=False)
class TargetProcess:
    grip: ProcessHandle
    shown: ProcessIdentity
    user: str | None
    kind: str | None
    leads: bool  # holds a GPU, or is the root of the Job
    is_new: bool = False
    is_adopted: bool = False


@dataclass(slots=True)
class TargetProcessSet:
    """`refusal`: nothing may be touched. All grips are closed when the act is over."""

    context: NodeContext
    shown: Preview
    asker: str
    grips: ProcessHandles = field(default_factory=ProcessHandles)
    all: list[TargetProcess] = field(default_factory=list)
    watched: list[tuple[str, ProcessHandle]] = field(default_factory=list)  # bystanders
    found: TaskSnapshot | None = None  # in the driver's fresh list
    refusal: Refusal | None = None
    began: float = 0.0
    decided_ms: float = 0.0

    def __enter__(self) -> "TargetProcessSet":
        return self

    def __exit__(self, *_: object) -> None:
        self.grips.close()

    @property
    def before(self) -> OnDemandReading | None:
        return None if self.found is None else self.found.fresh

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(target.grip.pid for target in self.all)

    @property
    def uid(self) -> int:
        return self._asked().shown.uid

    @property
    def account(self) -> str:
        return name_of(self.uid)

    def living(self) -> list[ProcessHandle]:
        return living([target.grip for target in self.all])

    def clients(self) -> list[ProcessHandle]:
        alive = set(self.living())
        return [target.grip for target in self.all
                if target.kind == "mps_client" and target.grip in alive]

    def vanished(self) -> tuple[str, ...]:
        alive = set(living([grip for _, grip in self.watched]))
        return tuple(task_id for task_id, grip in self.watched if grip not in alive)

    def hold(self) -> Refusal | None:
        holds = self.context.guards.holds()
        if not holds:
            return None
        return Refusal("hold", f"actions were stopped in the meantime: {'; '.join(holds)}"[:1_024])

    def send(
        self, number: signal.Signals, only: Callable[[ProcessFacts], bool] | None = None,
        only_new: bool = False, only_stopped: bool = False, only_leading: bool = False,
    ) -> int:
        """Each is compared once more right before its signal, so that one that became another
        program is left alone. Parents first: they must not answer a child's end with a new one."""
        sent = 0
        for target in self.all:
            if (only_new and not target.is_new) or (only_leading and not target.leads):
                continue
            facts = target.grip.facts()
            if facts is None or not is_same(facts.identity, target.shown):
                continue
            if (only_stopped and facts.row.state != "T") or (only is not None and not only(facts)):
                continue
            sent += target.grip.send(number)
            if not self.decided_ms:
                self.decided_ms = (time.monotonic() - self.began) * 1_000
            target.is_new = False
        return sent

    def adopt(self) -> None:
        """What was born below a living victim since belongs to it."""
        alive = {grip.pid for grip in self.living()}
        known = self.pids
        for row in below(alive, table()):
            if row.pid in known:
                continue
            grip = self.grips.take(row.pid)
            facts = None if grip is None else grip.facts()
            if grip is None or facts is None or facts.row.start_ticks != row.start_ticks:
                continue
            # Its parent is alive now, and so the one that we hold, not one with the same number.
            parents = {each.pid for each in self.living()}
            if facts.row.parent in parents and self.may_adopt(facts, grip):
                self.take_in(grip, facts)

    def take_in(self, grip: ProcessHandle, facts: ProcessFacts) -> None:
        self.all.append(TargetProcess(grip, facts.identity, name_of(facts.identity.uid), None,
                                      False, is_new=True, is_adopted=True))

    def recheck(self) -> Refusal | None:
        """Before SIGKILL: the hold, the protected sets and the ceiling as they are now."""
        if (hold := self.hold()) is not None:
            return hold
        subjects = self._subjects()
        if not subjects:
            return None
        case = self.context.case(self.shown.action, subjects, subjects[0].facts, self.asker)
        # The budget was spent by the INTENT of this very act, and its age was judged then.
        return next(iter(guard.refusals(replace(case, kills_last_hour=0, pauses_last_hour=0,
                                                age_s=None))), None)

    def may_adopt(self, facts: ProcessFacts, grip: ProcessHandle) -> bool:
        subject = self.context.subject(facts, name_of(facts.identity.uid), None, grip.may_signal())
        case = self.context.case(self.shown.action, (subject,), facts, self.asker)
        return not any(refusal.code in ("protected", "permission")
                       for refusal in guard.refusals(case))

    def _asked(self) -> TargetProcess:
        victim = asked(self.shown)
        return next(target for target in self.all if target.shown == victim.process)

    def _subjects(self) -> tuple[GuardedProcess, ...]:
        found = ((target, target.grip.facts()) for target in self.all)
        return tuple(
            self.context.subject(facts, target.user, target.kind, target.grip.may_signal())
            for target, facts in found if facts is not None)


def take(context: NodeContext, shown: Preview, asker: str) -> TargetProcessSet:
    """Pidfds first, then the comparison, then one fresh list, then the guard. If that took too
    long, it starts over; each is compared again right before its signal in any case."""
    for attempt in range(ATTEMPTS):
        targets = TargetProcessSet(context, shown, asker)
        try:
            targets.refusal = _fill(targets)
        except BaseException:
            targets.grips.close()
            raise
        took_s = time.monotonic() - targets.began
        if targets.refusal is not None or took_s < DECIDED_WITHIN_S or attempt == ATTEMPTS - 1:
            break
        targets.grips.close()
    return targets


def _fill(targets: TargetProcessSet) -> Refusal | None:
    targets.began = time.monotonic()
    for check in HELD_PROCESSES:
        for refusal in check.refusals(targets):
            return refusal
    subjects = targets._subjects()
    target = targets._asked().grip.facts()
    if target is None:
        return guard.gone(targets.shown.task_id)
    case = targets.context.case(targets.shown.action, subjects, target, targets.asker)
    return next(iter(guard.refusals(guard.begun(case))), None)


def _hold_all(targets: TargetProcessSet) -> Iterator[Refusal]:
    for victim in targets.shown.victims:
        if (refusal := _hold_on(targets, victim)) is not None:
            yield refusal
    for bystander in targets.shown.bystanders:
        _watch(targets, bystander)


def _list_afresh(targets: TargetProcessSet) -> Iterator[Refusal]:
    targets.found = targets.context.tasks.find()
    if targets.found is None:
        yield guard.unreadable(targets.context.tasks.source.detail)


def _hold_on(targets: TargetProcessSet, victim: Victim) -> Refusal | None:
    """A worker that has ended since is no reason to stop; anything that changed is."""
    shown = victim.process
    is_asked = victim.task_id == targets.shown.task_id
    grip = targets.grips.take(shown.pid)
    facts = None if grip is None else grip.facts()
    if grip is None or facts is None:
        return guard.gone(targets.shown.task_id) if is_asked else None
    found = facts.identity
    if not is_same(found, shown):
        if not is_asked and found.start_ticks != shown.start_ticks:
            return None  # that worker has ended, and its number is somebody else's: not touched
        return Refusal("identity", f"process {shown.pid} is not the one that was shown (another "
                                   "start, program, user or cgroup); nothing was touched. Preview "
                                   "again.")
    leads = victim.task_id is not None or victim is targets.shown.victims[0]
    targets.all.append(TargetProcess(grip, shown, victim.user, None, leads))
    return None


def _watch(targets: TargetProcessSet, bystander: Bystander) -> None:
    grip = targets.grips.take(bystander.process.pid)
    facts = None if grip is None else grip.facts()
    if grip is not None and facts is not None and is_same(facts.identity, bystander.process):
        targets.watched.append((bystander.task_id, grip))


def _still_there(targets: TargetProcessSet) -> Iterator[Refusal]:
    assert targets.found is not None
    found, shown = targets.found, targets.shown
    task = found.task(shown.task_id)
    if task is None:
        yield Refusal("condition", f"task {shown.task_id} does not use a GPU any more; nothing was "
                                   "touched. Preview again.")
        return
    held = {each.gpu_uuid for each in asked(shown).held}
    if held and not held & {each.gpu_uuid for each in found.held(task.pid)}:
        yield Refusal("condition", "the task has moved to other GPUs than the preview showed; "
                                   "nothing was touched. Preview again.")
    for target in targets.all:
        its = found.of(target.grip.pid)
        target.kind = None if its is None else its.kind


def asked(shown: Preview) -> Victim:
    return next(victim for victim in shown.victims if victim.task_id == shown.task_id)


HELD_PROCESSES: tuple[Check[TargetProcessSet], ...] = (
    Check("identity", ("gone", "identity"), "each process, held by pidfd, is the one that was "
          "shown", _hold_all),
    Check("fresh list", ("unreadable",), "the driver lists its processes once more", _list_afresh),
    Check("use of GPUs", ("condition",), "the task is in that list, on GPUs that were shown",
          _still_there),
)

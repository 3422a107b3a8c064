"""A fresh look at what an act would hit: the Job's processes, its neighbours, and what forbids it.

Blocks on the driver and on /proc; never on the node's own thread.
"""

import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol

import msgspec

from gpudeck.actions import (
    MAX_BYSTANDERS,
    MAX_VICTIMS,
    ActionParams,
    Bystander,
    HeldGpu,
    Preview,
    Refusal,
    ShownAction,
    Victim,
)
from gpudeck.limits import MpsSetting, TimedLimit
from gpudeck.wire import Task

from ..backends import RECORDED
from ..limits.apply import LimitApplier
from ..limits.compute_modes import ComputeModeStore
from ..limits.mps import LocalMpsDaemons
from ..limits.mps_store import Default, MpsSettingStore
from ..limits.timed_limit_store import TimedLimitStore
from ..readings import OnDemandReading
from ..tasks.cgroup_freezer import is_frozen
from ..tasks.jobs import ProcessTableRow, members, root_of
from ..tasks.managers import WHOLE_JOBS
from ..tasks.processes import (
    ProcessFacts,
    about,
    age_s,
    file_id,
    in_host_namespace,
    ourselves,
    own_manager,
    table,
)
from ..tasks.seen import GpuTask
from ..tasks.task_table import TaskTable, shown_command
from ..tasks.terminals import name_of
from ..telemetry.recent_tasks import RecentTasks
from . import guard
from .ceiling import read_ceiling
from .guard import GuardedProcess, GuardInput, ProtectedExecutables
from .signals import ProcessHandles

FRESH_WITHIN_S = 5.0
HOUR_S = 3_600.0
COMMANDS_BYTES = 200_000  # of all victims together: a message has 1 MB


class ProcessListSource(Protocol):
    """The Source, as far as acts use it."""

    def fresh(self, timeout_s: float) -> OnDemandReading | None: ...
    @property
    def pids(self) -> frozenset[int]: ...


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The node, as far as acts depend on it."""

    node_id: str
    boot_id: str
    source: ProcessListSource
    holds: Callable[[], tuple[str, ...]]
    kills_since: Callable[[float], int]
    ceiling_file: Path | None = None
    host_pids_only: bool = True  # the backend's pids are those of the host
    is_recorded: bool = False  # its tasks are of another time
    mps: LocalMpsDaemons = field(default_factory=LocalMpsDaemons)
    wall: Callable[[], float] = time.time
    limiter: LimitApplier = field(default_factory=lambda: LimitApplier(RECORDED, "", lambda: ""))
    book: TimedLimitStore | None = None
    modes: ComputeModeStore | None = None
    mps_book: MpsSettingStore | None = None
    driver: Callable[[], str | None] = lambda: None  # its version
    sightings: RecentTasks = field(default_factory=RecentTasks)

    def leases(self) -> tuple[TimedLimit, ...]:
        return () if self.book is None else self.book.all()

    def given(self, pipes: str, server: int, pid: int) -> float | None:
        return None if self.mps_book is None else self.mps_book.of(pipes, server, pid)

    def wanted_mps(self) -> tuple[Default, ...]:
        """Raises JournalRefuses."""
        return () if self.mps_book is None else self.mps_book.wanted()

    def now_wanted_of_mps(self, setting: MpsSetting) -> None:
        """Raises JournalRefuses."""
        if self.mps_book is not None:
            self.mps_book.now_wanted(setting)

    def was_given(self, pipes: str, server: int, pct: float, pids: Iterable[int]) -> None:
        if self.mps_book is not None:
            self.mps_book.note(pipes, server, pct, pids)


@dataclass(frozen=True, slots=True)
class PreviewRequest:
    """A question to a node, by the hub or at its terminal."""

    ask_id: str
    nonce: bytes
    action: ShownAction
    params: ActionParams
    task_id: str
    asker: str | None = None  # who would order it, where that is known already


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """The Tasks of one moment, by pid."""

    fresh: OnDemandReading
    seen: tuple[GpuTask, ...]

    def task(self, task_id: str) -> Task | None:
        return next((each.task for each in self.seen if each.task.id == task_id), None)

    def of(self, pid: int) -> Task | None:
        return next((each.task for each in self.seen if each.task.pid == pid), None)

    def held(self, pid: int) -> tuple[HeldGpu, ...]:
        return tuple(HeldGpu(each.gpu_uuid, each.mem_used_bytes) for each in self.seen
                     if each.task.pid == pid)[:256]


def find(place: NodeContext) -> TaskSnapshot | None:
    fresh = place.source.fresh(FRESH_WITHIN_S)
    if fresh is None:
        return None
    tasks = TaskTable(place.boot_id, clients=place.mps.clients)
    return TaskSnapshot(fresh, tasks.describe(fresh.processes))


def preview(place: NodeContext, ask: PreviewRequest) -> Preview:
    """Not signed yet."""
    found = find(place)
    if found is None:
        holds = place.holds()  # one of them may be why there is nothing to read
        return nothing(place, ask, guard.held(holds) if holds else guard.unreadable(
            getattr(place.source, "detail", "")))
    task = found.task(ask.task_id)
    if task is None:
        return nothing(place, ask, guard.gone(ask.task_id))
    if place.is_recorded:
        return nothing(place, ask, guard.recorded(), task)
    if (fiction := guard.made_up(task.pid)) is not None:
        return nothing(place, ask, fiction, task)
    rows = table()
    with ProcessHandles() as grips:
        target = _facts(grips, task.pid)
        if target is None or target.identity.start_ticks != task.start_ticks:
            return nothing(place, ask, guard.gone(ask.task_id), task)
        job_id, group = _job(place, ask.action, target, rows)
        if len(group) > MAX_VICTIMS:
            return nothing(place, ask, _too_many(len(group)), task)
        subjects = _subjects(place, grips, group, found, task)
        return _shown(place, ask, found, task, job_id, target, subjects, grips)


def _shown(
    place: NodeContext, ask: PreviewRequest, found: TaskSnapshot, task: Task, job_id: str,
    target: ProcessFacts,
    subjects: tuple[GuardedProcess, ...], grips: ProcessHandles,
) -> Preview:
    case = case_of(place, ask.action, subjects, target, ask.asker)
    return msgspec.structs.replace(
        empty(place, ask, task), job_id=job_id[:128], manager=case.manager or task.manager,
        age_s=max(age_s(task.start_ticks), 0.0),
        victims=_victims(subjects, found, task, target),
        bystanders=_bystanders(subjects, found, grips),
        refusals=guard.refusals(case)[:32],
        warnings=_warnings(ask, case, target),
    )


def case_of(
    place: NodeContext, action: ShownAction, subjects: tuple[GuardedProcess, ...],
    target: ProcessFacts,
    asker: str | None = None,
) -> GuardInput:
    ceiling = read_ceiling(place.ceiling_file)
    clients = any(subject.kind == "mps_client" for subject in subjects)
    return GuardInput(
        action=action, ceiling=ceiling, subjects=subjects, target_pid=target.identity.pid,
        age_s=age_s(target.identity.start_ticks), protected=protected(),
        protected_by_ceiling=ceiling.protected_ids(), holds=place.holds(), asker=asker,
        sees_host_pids=not place.host_pids_only or in_host_namespace(),
        kills_last_hour=place.kills_since(place.wall() - HOUR_S),
        manager=next((managed for subject in subjects
                      if (managed := managed_by(subject.facts))), None),
        mps=place.mps.trouble() if clients and action in guard.LEAVE_MPS else "",
    )


def subject_of(
    place: NodeContext, facts: ProcessFacts, user: str | None, kind: str | None, may_signal: bool
) -> GuardedProcess:
    pid = facts.identity.pid
    is_ours = pid in ourselves() or pid in place.source.pids
    return GuardedProcess(facts, user, kind, may_signal, is_ours, is_frozen(facts.cgroups))


def managed_by(facts: ProcessFacts) -> str | None:
    return None if facts.manager == own_manager() else facts.manager


@cache
def protected() -> ProtectedExecutables:
    return ProtectedExecutables(
        frozenset(filter(None, map(file_id, guard.SYSTEM_EXECUTABLES))),
        frozenset(filter(None, map(file_id, guard.EVERYBODYS_EXECUTABLES))))


def _job(
    place: NodeContext, action: ShownAction, target: ProcessFacts, rows: dict[int, ProcessTableRow]
) -> tuple[str, tuple[ProcessTableRow, ...]]:
    """Its id, and all its processes, parents first."""
    manager = managed_by(target)
    if manager is not None and manager.startswith(WHOLE_JOBS):
        inside = (row for row in rows.values() if _is_in(row.pid, manager, target.group))
        return manager[:128], tuple(sorted(inside, key=lambda row: row.start_ticks))
    pid = target.identity.pid
    root = root_of(pid, rows.get, about, ourselves()) or target.row
    job_id = f"{place.boot_id[:8]}-{root.pid}-{root.start_ticks}"
    if action in ("notify", "terminate_client"):  # of the others in it nobody asked
        return job_id, (target.row,)
    return job_id, members(root.pid, rows)


def _is_in(pid: int, manager: str, group: str | None) -> bool:
    """By its group's whole path: root of a container may make one below that has another's id."""
    with ProcessHandles() as grips:
        found = _facts(grips, pid)
        return found is not None and (found.manager, found.group) == (manager, group)


def _facts(grips: ProcessHandles, pid: int) -> ProcessFacts | None:
    grip = grips.take(pid)
    return None if grip is None else grip.facts()


def _subjects(
    place: NodeContext, grips: ProcessHandles, group: Iterable[ProcessTableRow],
    found: TaskSnapshot, task: Task
) -> tuple[GuardedProcess, ...]:
    subjects = []
    for row in group:
        grip = grips.take(row.pid)
        facts = None if grip is None else grip.facts()
        if grip is None or facts is None or facts.row.start_ticks != row.start_ticks:
            continue  # it ended while we looked
        its = found.of(row.pid)
        user = name_of(facts.identity.uid) if its is None else its.user
        kind = None if its is None else its.kind
        subjects.append(subject_of(place, facts, user, kind, grip.may_signal()))
    return tuple(subjects)


def _victims(
    subjects: tuple[GuardedProcess, ...], found: TaskSnapshot, task: Task, target: ProcessFacts
) -> tuple[Victim, ...]:
    room = COMMANDS_BYTES // max(len(subjects), 1) // 4
    made = []
    for subject in subjects:
        identity = subject.facts.identity
        its = found.of(identity.pid)
        command = its.command if its is not None else shown_command(identity.pid)
        # A simulated owner has no account here; the workers are as much theirs.
        user = task.user if identity.uid == target.identity.uid else subject.user
        made.append(Victim(identity, command and command[:room], user,
                           None if its is None else its.id, found.held(identity.pid)))
    return tuple(made)


def _bystanders(
    subjects: tuple[GuardedProcess, ...], found: TaskSnapshot, grips: ProcessHandles
) -> tuple[Bystander, ...]:
    victims = {subject.facts.identity.pid for subject in subjects}
    gpus = {held.gpu_uuid for pid in victims for held in found.held(pid)}
    near = {each.task.pid: each.task for each in found.seen
            if each.gpu_uuid in gpus and each.task.pid not in victims}
    made = []
    for pid, task in near.items():
        facts = _facts(grips, pid)
        if facts is not None:
            command = task.command and task.command[:512]
            made.append(Bystander(facts.identity, task.id, task.user, command, found.held(pid)))
    return tuple(made[:MAX_BYSTANDERS])


def _warnings(ask: PreviewRequest, case: GuardInput, target: ProcessFacts) -> tuple[str, ...]:
    said: list[str] = []
    if ask.action == "end":
        said.append("What is not saved is lost; an end cannot be undone.")
        if case.manager is not None:
            said.append(f"It belongs to {case.manager}, which may start it again.")
        if any(subject.kind == "mps_client" for subject in case.subjects):
            said.append("It is a client of MPS: it is taken out of MPS first; if that fails, no "
                        "signal is sent.")
        said += _checkpoint_warning(ask.params, case)
    if ask.action == "terminate_client":
        said.append("MPS takes its contexts on the Gpu away at once; the process itself goes on, "
                    "with errors from CUDA, and what it had there is lost. While MPS does so, "
                    "its server takes no new client.")
    if ask.action == "pause":
        said.append("Its memory stays held while it is paused.")
        said.append("Peers that wait for it in a collective (NCCL, MPI) hang, and may give up.")
    if ask.action in guard.SIGNALS and len(case.subjects) > 1:
        said.append(f"All {len(case.subjects)} processes of the job are meant.")
    stuck = [str(each.facts.identity.pid) for each in case.subjects if each.facts.row.state == "D"]
    if stuck:
        said.append(f"Process {', '.join(stuck[:5])} waits inside the kernel (state D) and may not "
                    "react before that is over.")
    return tuple(said[:32])


def _checkpoint_warning(params: ActionParams, case: GuardInput) -> list[str]:
    if params.checkpoint_signal is None:
        return []
    number = signal.Signals[f"SIG{params.checkpoint_signal}"]
    if any(catches(subject.facts, number) for subject in case.subjects):
        return []
    return [f"No process of it handles {number.name}: it would die of it, so it is not sent."]


def catches(facts: ProcessFacts, number: signal.Signals) -> bool:
    return bool(facts.caught >> (number - 1) & 1)


def _too_many(count: int) -> Refusal:
    return Refusal("too_many", f"the job has {count} processes; gpudeck acts on at most "
                               f"{MAX_VICTIMS} at once. End it from inside, or by its manager.")


def nothing(place: NodeContext, ask: PreviewRequest, refusal: Refusal,
            task: Task | None = None) -> Preview:
    return msgspec.structs.replace(empty(place, ask, task), refusals=(refusal,))


def empty(place: NodeContext, ask: PreviewRequest, task: Task | None) -> Preview:
    known = Task("-", 0, 0, None, None, None) if task is None else task
    return Preview(
        ask_id=ask.ask_id, nonce=ask.nonce, node_id=place.node_id, boot_id=place.boot_id,
        taken_at=place.wall(), action=ask.action, params=ask.params, task_id=ask.task_id,
        job_id=known.job_id, owner=known.user, age_s=None,
        kind=None if task is None else task.kind, manager=known.manager, victims=(), bystanders=(),
    )


"""Context of the actions on this node: what they read, and what may forbid them. The agent, the
terminal, a notebook and quotas all get theirs from `open_context`."""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from gpudeck.contract.action_table import KILLS, ShownAction
from gpudeck.contract.actions import HeldGpu
from gpudeck.contract.repairs import WHOLE_NODE
from gpudeck.contract.wire import GpuFacts, Task

from ..backends import Backend
from ..backends.repair import RepairModule
from ..backends.suspend import SuspendModule
from ..backends.time_slice import TimeSliceModule
from ..journal.store import ActionJournal, JournalError
from ..limits.apply import LimitApplier
from ..limits.mps import LocalMpsDaemons
from ..limits.stores import LimitStores, SuspensionStore, open_limits
from ..limits.suspensions import suspended_uses
from ..readings import OnDemandReading, ProcessListSource
from ..runtime.data_lock import agent_pid
from ..schedulers import Schedulers
from ..tasks.cgroup_freezer import is_frozen
from ..tasks.device_users import readers
from ..tasks.people import NodePeople, SystemPeople
from ..tasks.privileges import in_host_namespace
from ..tasks.processes import (
    ProcessFacts,
    age_s,
    file_id,
    ourselves,
    own_manager,
)
from ..tasks.seen import GpuTask, SuspendedUse
from ..tasks.task_table import TaskTable
from ..telemetry.recent_tasks import RecentTasks
from . import guard
from .ceiling import Ceiling, read_ceiling
from .guard import GuardedProcess, GuardInput, ProtectedExecutables
from .hold_files import driver_order

FRESH_WITHIN_S = 5.0
HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    node_id: str
    boot_id: str
    has_host_pids: bool  # the backend's pids are those of the host
    is_recorded: bool  # its tasks are of another time
    driver: Callable[[], str | None]  # its version


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """Tasks on the GPUs at one moment."""

    fresh: OnDemandReading
    gpu_tasks: tuple[GpuTask, ...]

    def task(self, task_id: str) -> Task | None:
        return next((entry.task for entry in self.gpu_tasks if entry.task.id == task_id), None)

    def task_of(self, pid: int) -> Task | None:
        return next((entry.task for entry in self.gpu_tasks if entry.task.pid == pid), None)

    def held_gpus(self, pid: int) -> tuple[HeldGpu, ...]:
        return tuple(HeldGpu(entry.gpu_uuid, entry.mem_used_bytes) for entry in self.gpu_tasks
                     if entry.task.pid == pid)[:256]


@dataclass(frozen=True, slots=True)
class TaskLookup:
    """Finds tasks: by asking the driver now, or among the last readings."""

    boot_id: str
    source: ProcessListSource
    mps: LocalMpsDaemons
    recent: RecentTasks
    suspensions: SuspensionStore

    def find(self, uuid: str = "") -> TaskSnapshot | None:
        """Read the tasks that are on the GPUs now. None: the driver does not answer, or, of
        several, not that of this board; of the whole node one is enough."""
        fresh = self.source.fresh(FRESH_WITHIN_S)
        if fresh is None or (uuid and not fresh.is_read(uuid)) or (
                uuid == WHOLE_NODE and fresh.unread):
            return None
        tasks = TaskTable(self.boot_id, clients=self.mps.clients, suspended=self._suspended)
        return TaskSnapshot(fresh, tasks.describe(fresh.processes))

    def _suspended(self) -> Iterable[SuspendedUse]:
        try:
            return suspended_uses(self.suspensions, self.boot_id)
        except JournalError:
            return ()  # such a task cannot be found then, and nothing is done to it


def held_words(holds: Collection[str]) -> str:
    return f"all actions on this node are stopped: {'; '.join(holds)}" if holds else ""


@dataclass(frozen=True, slots=True)
class ActionGuards:
    """Guards that may forbid an action, checked again each time.
    Nothing here has a default: a guard that was
    forgotten must not permit."""

    ceiling_file: Path | None  # None: the usual place
    holds: Callable[[], tuple[str, ...]]
    begun_since: Callable[[Collection[str], float], int]

    def ceiling(self) -> Ceiling:
        return read_ceiling(self.ceiling_file)

    def why_rules_end_nothing(self) -> str:
        """Return why rules may end nothing here, for people; "": they may, as far as this node
        goes."""
        ceiling = self.ceiling()
        why = held_words(self.holds()) or ceiling.trouble
        if not why and "end" not in ceiling.actions:
            why = "the ceiling of this node does not permit 'end'"
        if not why and not ceiling.rules_may_act:
            why = ("the ceiling of this node does not let rules and quotas act "
                   "(rules_may_act in ceiling.toml)")
        return why

    def begun_last_hour(self, actions: Collection[str]) -> int:
        return self.begun_since(actions, time.time() - HOUR_S)


@dataclass(frozen=True, slots=True)
class BoardRepairs:
    """Repairs of boards that are out of service. `data`: where this agent's readers look whether
    they have to let go of the driver."""

    backend: Backend
    data: Path

    def module(self, uuid: str) -> RepairModule | None:
        part = self.backend.part_of(uuid)
        return None if part is None else part.repair_module()

    def suspend_module(self, uuids: Collection[str]) -> SuspendModule | None:
        """Return what suspends a task on these boards. None: one of them is of a vendor that cannot
        be asked to."""
        parts = [self.backend.part_of(uuid) for uuid in uuids] or [self.backend]
        modules = [None if part is None else part.suspend_module() for part in parts]
        return None if None in modules else modules[0]

    def time_slice_module(self, uuid: str) -> TimeSliceModule | None:
        part = self.backend.part_of(uuid)
        return None if part is None else part.time_slice_module()

    def has_readers(self, uuid: str) -> bool:
        """Return whether the agent of this folder has readers of this board's driver; it may be
        another process than this."""
        agent, part = agent_pid(self.data), self.backend.part_of(uuid)
        names = (part.name,) if part is not None and self.backend.parts else ()
        return agent is not None and bool(readers(agent, names))

    def facts_and_module(self, recent: RecentTasks, uuid: str) -> tuple[GpuFacts, RepairModule]:
        """Return facts and repair module of a board that a preview has checked."""
        module = self.module(uuid)
        assert module is not None
        return recent.facts[uuid], module


@dataclass(frozen=True, slots=True)
class NodeContext:
    node: NodeFacts
    boards: BoardRepairs
    tasks: TaskLookup
    limits: LimitStores
    schedulers: Schedulers
    guards: ActionGuards
    people: NodePeople

    def subject(self, facts: ProcessFacts, user: str | None, kind: str | None, may_signal: bool
                ) -> GuardedProcess:
        is_ours = facts.identity.pid in ourselves() or facts.identity.pid in self.tasks.source.pids
        return GuardedProcess(facts, user, kind, may_signal, is_ours, is_frozen(facts.cgroups),
                              self._is_suspended(facts))

    def _is_suspended(self, facts: ProcessFacts) -> bool:
        identity = facts.identity
        try:
            return self.limits.suspensions.of(identity.pid, identity.start_ticks) is not None
        except JournalError:
            return True  # nobody knows

    def case(self, action: ShownAction, subjects: tuple[GuardedProcess, ...],
             target: ProcessFacts | None, asker: str | None) -> GuardInput:
        """Build what the guard judges. `target` None: a setting is meant, and no process by
        itself."""
        ceiling, guards = self.guards.ceiling(), self.guards
        clients = any(subject.kind == "mps_client" for subject in subjects)
        return GuardInput(
            action=action, ceiling=ceiling, subjects=subjects,
            age_s=None if target is None else age_s(target.identity.start_ticks),
            protected=protected(), protected_by_ceiling=ceiling.protected_ids(),
            holds=guards.holds(), asker=asker,
            sees_host_pids=(target is None or not self.node.has_host_pids
                            or in_host_namespace()),
            kills_last_hour=guards.begun_last_hour(KILLS),
            pauses_last_hour=guards.begun_last_hour(("pause",)),
            manager=None if target is None else next(
                filter(None, (managed_by(subject.facts) for subject in subjects)), None),
            mps=(self.limits.mps.trouble()
                 if target is not None and clients and action in guard.LEAVE_MPS else ""))

    def also_held_by(self, more: Callable[[], tuple[str, ...]]) -> "NodeContext":
        """Return the same node with `more` as a further source of holds."""
        holds = self.guards.holds
        return replace(self, guards=replace(self.guards, holds=lambda: (*holds(), *more())))


@dataclass(frozen=True, slots=True)
class TaskProcess:
    """A process of a job, and what it holds on GPUs."""

    facts: ProcessFacts
    kind: str | None  # of its Task; None: it uses no GPU
    gpus: tuple[HeldGpu, ...]


@dataclass(frozen=True, slots=True)
class TaskPreview:
    """A job as an action on it is judged, before it is begun and once more after that."""

    context: NodeContext
    processes: tuple[TaskProcess, ...]
    fresh: OnDemandReading

    @property
    def holders(self) -> tuple[TaskProcess, ...]:
        return tuple(process for process in self.processes if process.gpus)


def task_preview(context: NodeContext, subjects: Iterable[GuardedProcess], snapshot: TaskSnapshot
                 ) -> TaskPreview:
    return TaskPreview(context, tuple(
        TaskProcess(subject.facts, subject.kind, snapshot.held_gpus(subject.facts.identity.pid))
        for subject in subjects), snapshot.fresh)


def managed_by(facts: ProcessFacts) -> str | None:
    return None if facts.manager == own_manager() else facts.manager


@cache
def protected() -> ProtectedExecutables:
    return ProtectedExecutables(
        frozenset(filter(None, map(file_id, guard.SYSTEM_EXECUTABLES))),
        frozenset(filter(None, map(file_id, guard.EVERYBODYS_EXECUTABLES))))


def open_context(
    *, node_id: str, boot_id: str, backend: Backend, options: str, data: Path,
    source: ProcessListSource, recent: RecentTasks, mps: LocalMpsDaemons, journal: ActionJournal,
    is_shared: bool, driver: Callable[[], str | None], schedulers: Schedulers,
    guards: ActionGuards,
) -> NodeContext:
    """`is_shared`: another process may write the journal as well."""
    pids = backend.capabilities.pids
    applier = LimitApplier(backend, options, partial(driver_order, data))
    limits = open_limits(applier, mps, journal, boot_id, is_shared)
    return NodeContext(
        NodeFacts(node_id, boot_id, pids != "own", pids == "recorded", driver),
        BoardRepairs(backend, data),
        TaskLookup(boot_id, source, mps, recent, limits.suspensions), limits, schedulers,
        guards, people_of(backend, options))


def people_of(backend: Backend, options: str) -> NodePeople:
    module = backend.people_module()
    return SystemPeople() if module is None else module.open_people(options)

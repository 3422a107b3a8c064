"""Finds the Task of a pid: what it is, whose it is, since when."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from msgspec import structs

from gpudeck.contract.wire import Task

from ..readings import Owner, ProcessReading
from . import processes
from .jobs import root_of
from .managers import WHOLE_JOBS
from .name_cache import WorkloadNameCache
from .owners import NO_NAMES, WorkloadNames, owner_of
from .redact import redact
from .seen import GpuTask, SuspendedUse
from .user_table import user_and_groups
from .wire_text import cut

MPS_SERVER = "nvidia-cuda-mps-server"


@dataclass(slots=True)
class TaskEntry:
    task: Task
    details: processes.ProcessDetails | None = None  # None: nothing more will be known
    is_read: bool = True  # False: something could not be, and is read again


Clients = Callable[[], Mapping[int, Sequence[int]]]
# Name of a user and of groups; raises OSError where they are not known, or not yet.
Users = Callable[[int, tuple[int, ...]], tuple[str, tuple[str, ...]]]
Suspended = Callable[[], Iterable[SuspendedUse]]


class TaskTable:
    """Remembers what it has read: a process is asked for its command line once. `names`, `users`
    and `clients` (of MPS, by their server) may know nothing yet; they are asked again. `suspended`:
    tasks that the driver does not list while their memory is on the host."""

    def __init__(
        self, boot_id: str, proc: Path = Path("/proc"), names: WorkloadNameCache | None = None,
        clients: Clients = dict, users: Users = user_and_groups, suspended: Suspended = tuple,
    ) -> None:
        self._boot_id, self._proc, self._names, self._clients = boot_id, proc, names, clients
        self._users, self._suspended = users, suspended
        self._entries: dict[tuple[int, int], TaskEntry] = {}

    def describe(self, listed: Sequence[ProcessReading]) -> tuple[GpuTask, ...]:
        gpu_tasks = tuple(self._gpu_task(process) for process in listed)
        servers = {gpu_task.task.pid for gpu_task in gpu_tasks if gpu_task.task.kind == "mps_server"
                   and (gpu_task.task.pid, gpu_task.task.start_ticks) in self._entries}
        if servers:
            gpu_tasks = self._with_clients(gpu_tasks, servers)
        gpu_tasks = self._with_suspended(gpu_tasks)
        present = {(gpu_task.task.pid, gpu_task.task.start_ticks) for gpu_task in gpu_tasks}
        self._entries = {key: entry for key, entry in self._entries.items() if key in present}
        if self._names is not None:
            self._names.keep({(entry.details.place, entry.details.uid)
                              for entry in self._entries.values() if entry.details is not None})
        return gpu_tasks

    def _with_clients(self, gpu_tasks: tuple[GpuTask, ...], servers: set[int]
                      ) -> tuple[GpuTask, ...]:
        """Add the clients of MPS. The driver may list a server alone, and its clients as if they
        were none (pitfalls.md 16)."""
        clients = {pid: server for server, pids in self._clients().items() if server in servers
                   for pid in pids}
        listed = {gpu_task.task.pid for gpu_task in gpu_tasks}
        more = [self._gpu_task(ProcessReading(pid, uuids.pop(), None, None, "mps_client"))
                for pid, server in clients.items() if pid not in listed
                and len(uuids := {gpu_task.gpu_uuid for gpu_task in gpu_tasks
                                  if gpu_task.task.pid == server}) == 1]
        return (*(self._as_client(gpu_task) if gpu_task.task.pid in clients else gpu_task
                  for gpu_task in gpu_tasks),
                *(gpu_task for gpu_task in more if gpu_task.state is not None))

    def _with_suspended(self, gpu_tasks: tuple[GpuTask, ...]) -> tuple[GpuTask, ...]:
        """Add the suspended tasks, which hold nothing and have not ended."""
        listed = {(gpu_task.task.pid, gpu_task.gpu_uuid) for gpu_task in gpu_tasks}
        more = []
        for pid, start_ticks, uuid in self._suspended():
            stat = processes.read_stat(self._proc, pid)
            if (pid, uuid) in listed or stat is None or stat.start_ticks != start_ticks or (
                    stat.state == "zombie"):
                continue
            gpu_task = self._gpu_task(ProcessReading(pid, uuid, 0.0, None))
            more.append(structs.replace(gpu_task, is_suspended=True))
        return (*gpu_tasks, *more)

    def _as_client(self, gpu_task: GpuTask) -> GpuTask:
        entry = self._entries.get((gpu_task.task.pid, gpu_task.task.start_ticks))
        if entry is None or gpu_task.task.kind != "compute":
            return gpu_task
        entry.task = structs.replace(entry.task, kind="mps_client")
        return structs.replace(gpu_task, task=entry.task)

    def _gpu_task(self, process: ProcessReading) -> GpuTask:
        task, state = self._task_and_state(process)
        return GpuTask(task, process.gpu_uuid, process.mem_used_bytes, process.sm_pct, state)

    def _task_and_state(self, process: ProcessReading) -> tuple[Task, processes.State | None]:
        if process.task is not None:
            return process.task, process.state
        if process.start_ticks is not None:  # the backend knows better than our /proc
            return self._from_backend(process, process.start_ticks), process.state
        stat = processes.read_stat(self._proc, process.pid)
        if stat is None:
            return self._unseen_task(process), None
        key = process.pid, stat.start_ticks
        entry = self._entries.get(key)
        if entry is None or not entry.is_read:
            entry = self._entries[key] = self._from_proc(process, stat.start_ticks)
        elif entry.details is not None:
            self._name(entry)
        return entry.task, stat.state

    def _from_backend(self, process: ProcessReading, start_ticks: int) -> Task:
        entry = self._entries.get((process.pid, start_ticks))
        if entry is None:
            # Of a simulated manager's job only what is really there stands or falls together.
            entry = self._entries[process.pid, start_ticks] = TaskEntry(self._task(
                process, start_ticks, process.started_at, process.user,
                process.command and redact(process.command), process.owner,
                self._tree_id(process.pid, start_ticks)))
        elif entry.task.kind != process.kind:
            entry.task = structs.replace(entry.task, kind=process.kind)
        return entry.task

    def _from_proc(self, process: ProcessReading, start_ticks: int) -> TaskEntry:
        details = processes.look(process.pid, self._proc)
        began = started_at(self._proc, start_ticks)
        if details is None or details.row.start_ticks != start_ticks:
            return TaskEntry(self._task(process, start_ticks, began), is_read=False)
        user, groups, is_read = self._user_and_groups(details)
        kind = "mps_server" if details.program == MPS_SERVER else process.kind
        entry = TaskEntry(self._task(
            structs.replace(process, kind=kind), start_ticks, began, user,
            details.command, self._owner(details, NO_NAMES, groups),
            self._job_id(process.pid, start_ticks, details.place.manager)), details, is_read)
        self._name(entry)
        return entry

    def _user_and_groups(self, details: processes.ProcessDetails
                         ) -> tuple[str | None, tuple[str, ...], bool]:
        """Return its user and its groups, and whether they could be looked up."""
        try:
            return *self._users(details.uid, tuple(details.gids)), True
        except OSError:
            return None, (), False

    def _owner(self, details: processes.ProcessDetails, names: WorkloadNames,
               groups: tuple[str, ...]) -> Owner:
        owner = owner_of(details.place, details.words, details.env, self._boot_id[:8], names)
        return structs.replace(owner, uid=details.uid, parent_pid=details.row.parent,
                               groups=groups)

    def _name(self, entry: TaskEntry) -> None:
        """Look up its names. The pod's namespace may be part of the launch's name: all is
        rebuilt."""
        if entry.details is None or self._names is None:
            entry.details = None
            return
        names, is_all = self._names.names(entry.details.place, entry.details.uid)
        entry.task = structs.replace(entry.task, **structs.asdict(
            self._owner(entry.details, names, entry.task.groups)))
        if is_all:
            entry.details = None

    def _unseen_task(self, process: ProcessReading) -> Task:
        """Return the Task of a process that the driver lists and /proc does not: it is just ending,
        or it lives in a PID namespace that we do not see."""
        for (pid, _), entry in self._entries.items():
            if pid == process.pid:
                return entry.task
        return self._task(process, 0)

    def _task(
        self, process: ProcessReading, start_ticks: int, began: float | None = None,
        user: str | None = None, command: str | None = None, owner: Owner | None = None,
        job_id: str | None = None,
    ) -> Task:
        task_id = self._id(process.pid, start_ticks)
        return Task(
            id=task_id, pid=process.pid, start_ticks=start_ticks, started_at=began, user=cut(user),
            command=command and command[:processes.COMMAND_MAX], kind=process.kind,
            job_id=(job_id or task_id)[:128], **structs.asdict(owner or Owner()))

    def _id(self, pid: int, start_ticks: int) -> str:
        return f"{self._boot_id[:8]}-{pid}-{start_ticks}"

    def _job_id(self, pid: int, start_ticks: int, managed_by: str | None) -> str:
        """Return its job's id as it was when the Task was first seen; an action looks again."""
        if managed_by is not None and managed_by.startswith(WHOLE_JOBS) and (
                managed_by != processes.own_manager()):
            return managed_by
        return self._tree_id(pid, start_ticks)

    def _tree_id(self, pid: int, start_ticks: int) -> str:
        row = processes.row_of(pid, self._proc)
        if row is None or row.start_ticks != start_ticks:
            return self._id(pid, start_ticks)
        root = root_of(pid, lambda other: processes.row_of(other, self._proc),
                       lambda other: processes.about(other, self._proc),
                       processes.ourselves()) or row
        return self._id(root.pid, root.start_ticks)


@lru_cache(maxsize=4)
def _booted_at(proc: Path) -> float | None:
    lines = (proc / "stat").read_text().splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), None)


def started_at(proc: Path, start_ticks: int) -> float | None:
    try:
        booted = _booted_at(proc)
    except OSError:
        return None
    return None if booted is None else booted + start_ticks / os.sysconf("SC_CLK_TCK")

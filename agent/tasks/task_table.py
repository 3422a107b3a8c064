"""From a pid to a Task: who it is, whose it is, since when."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from msgspec import structs

from gpudeck.wire import Task

from ..readings import Owner, ProcessReading
from . import processes
from .jobs import root_of
from .managers import WHOLE_JOBS
from .name_cache import WorkloadNameCache
from .owners import NO_NAMES, WorkloadNames, owner_of
from .redact import redact
from .seen import GpuTask
from .user_table import group_names, uid_words, user_name
from .wire_text import cut

MPS_SERVER = "nvidia-cuda-mps-server"


@dataclass(slots=True)
class TaskEntry:
    task: Task
    look: processes.ProcessDetails | None = None  # None: nothing more will be known
    is_read: bool = True  # False: something could not be, and is read again


Clients = Callable[[], Mapping[int, Sequence[int]]]


class TaskTable:
    """Remembers what it has read: a process is asked for its command line once. `names` and
    `clients` (of MPS, by their server) may know nothing yet; they are asked again."""

    def __init__(
        self, boot_id: str, proc: Path = Path("/proc"), names: WorkloadNameCache | None = None,
        clients: Clients = dict,
    ) -> None:
        self._boot_id, self._proc, self._names, self._clients = boot_id, proc, names, clients
        self._known: dict[tuple[int, int], TaskEntry] = {}

    def describe(self, listed: Sequence[ProcessReading]) -> tuple[GpuTask, ...]:
        seen = tuple(self._seen(process) for process in listed)
        servers = {each.task.pid for each in seen if each.task.kind == "mps_server"
                   and (each.task.pid, each.task.start_ticks) in self._known}
        if servers:
            seen = self._with_clients(seen, servers)
        present = {(each.task.pid, each.task.start_ticks) for each in seen}
        self._known = {key: known for key, known in self._known.items() if key in present}
        if self._names is not None:
            self._names.keep({(known.look.place, known.look.uid)
                              for known in self._known.values() if known.look is not None})
        return seen

    def _with_clients(self, seen: tuple[GpuTask, ...], servers: set[int]) -> tuple[GpuTask, ...]:
        """The driver may list a server alone, and its clients as if they were none
        (pitfalls.md 16)."""
        clients = {pid: server for server, pids in self._clients().items() if server in servers
                   for pid in pids}
        listed = {each.task.pid for each in seen}
        more = [self._seen(ProcessReading(pid, uuids.pop(), None, None, "mps_client"))
                for pid, server in clients.items() if pid not in listed
                and len(uuids := {each.gpu_uuid for each in seen if each.task.pid == server}) == 1]
        return (*(self._as_client(each) if each.task.pid in clients else each for each in seen),
                *(each for each in more if each.state is not None))

    def _as_client(self, seen: GpuTask) -> GpuTask:
        known = self._known.get((seen.task.pid, seen.task.start_ticks))
        if known is None or seen.task.kind != "compute":
            return seen
        known.task = structs.replace(known.task, kind="mps_client")
        return structs.replace(seen, task=known.task)

    def _seen(self, process: ProcessReading) -> GpuTask:
        task, state = self._task_and_state(process)
        return GpuTask(task, process.gpu_uuid, process.mem_used_bytes, process.sm_pct, state)

    def _task_and_state(self, process: ProcessReading) -> tuple[Task, processes.State | None]:
        if process.task is not None:
            return process.task, process.state
        if process.start_ticks is not None:  # the backend knows better than our /proc
            return self._as_told(process, process.start_ticks), process.state
        stat = processes.read_stat(self._proc, process.pid)
        if stat is None:
            return self._gone(process), None
        key = process.pid, stat.start_ticks
        known = self._known.get(key)
        if known is None or not known.is_read:
            known = self._known[key] = self._from_proc(process, stat.start_ticks)
        elif known.look is not None:
            self._name(known)
        return known.task, stat.state

    def _as_told(self, process: ProcessReading, start_ticks: int) -> Task:
        known = self._known.get((process.pid, start_ticks))
        if known is None:
            # Of a made-up manager's job only what is really there stands or falls together.
            known = self._known[process.pid, start_ticks] = TaskEntry(self._task(
                process, start_ticks, process.started_at, process.user,
                process.command and redact(process.command), process.owner,
                self._tree_id(process.pid, start_ticks)))
        elif known.task.kind != process.kind:
            known.task = structs.replace(known.task, kind=process.kind)
        return known.task

    def _from_proc(self, process: ProcessReading, start_ticks: int) -> TaskEntry:
        seen, began = processes.look(process.pid, self._proc), started_at(self._proc, start_ticks)
        if seen is None or seen.row.start_ticks != start_ticks:
            return TaskEntry(self._task(process, start_ticks, began), is_read=False)
        user, groups, is_read = _people(seen)
        kind = "mps_server" if seen.program == MPS_SERVER else process.kind
        known = TaskEntry(self._task(
            structs.replace(process, kind=kind), start_ticks, began, user,
            seen.command, self._owner(seen, NO_NAMES, groups),
            self._job_id(process.pid, start_ticks, seen.place.manager)), seen, is_read)
        self._name(known)
        return known

    def _owner(self, seen: processes.ProcessDetails, names: WorkloadNames,
               groups: tuple[str, ...]) -> Owner:
        found = owner_of(seen.place, seen.words, seen.env, self._boot_id[:8], names)
        return structs.replace(found, uid=seen.uid, parent_pid=seen.row.parent,
                               groups=groups)

    def _name(self, known: TaskEntry) -> None:
        """The pod's namespace may be part of the launch's name: everything is rebuilt."""
        if known.look is None or self._names is None:
            known.look = None
            return
        names, is_all = self._names.names(known.look.place, known.look.uid)
        known.task = structs.replace(known.task, **structs.asdict(
            self._owner(known.look, names, known.task.groups)))
        if is_all:
            known.look = None

    def _gone(self, process: ProcessReading) -> Task:
        """The driver still lists it and /proc does not: it is just ending, or it lives in a PID
        namespace that we do not see."""
        for (pid, _), known in self._known.items():
            if pid == process.pid:
                return known.task
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
        """As it was when the Task was first seen; an act looks again."""
        if managed_by is not None and managed_by.startswith(WHOLE_JOBS) and (
                managed_by != processes.own_manager()):
            return managed_by
        return self._tree_id(pid, start_ticks)

    def _tree_id(self, pid: int, start_ticks: int) -> str:
        row = processes.row_of(pid, self._proc)
        if row is None or row.start_ticks != start_ticks:
            return self._id(pid, start_ticks)
        root = root_of(pid, lambda each: processes.row_of(each, self._proc),
                       lambda each: processes.about(each, self._proc), processes.ourselves()) or row
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


def _people(seen: processes.ProcessDetails) -> tuple[str | None, tuple[str, ...], bool]:
    """Its user and its groups, and whether they could be looked up."""
    try:
        name = user_name(seen.uid)
        return uid_words(seen.uid) if name is None else name, group_names(seen.gids), True
    except OSError:
        return None, (), False

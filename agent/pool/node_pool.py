"""Composition of the pool of one node."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from gpudeck.contract.limits import GroupMemoryLimit
from gpudeck.contract.pool_link import PoolPlan, PoolReport
from gpudeck.contract.repairs import GpuRepair
from gpudeck.pool.core.claims import CPU_MILLI
from gpudeck.pool.core.host_resources import NOT_COUNTED, FreeHost
from gpudeck.pool.core.schedule import PoolPolicy

from ..journal.store import ActionJournal
from ..limits.memory_limits import MemoryTarget
from ..limits.mps import LocalMpsDaemons, multiuser_pipes
from ..limits.mps_view import daemons
from ..limits.stores import LimitStores, SuspensionStore
from ..readings import Reading
from ..runtime.worker import Worker
from ..tasks.control_group import group_of
from ..tasks.people import NodePeople
from ..tasks.processes import uptime_s
from ..tasks.seen import GpuTask
from .clock import PoolClock
from .cores import NodeCores
from .exclusive import ExclusiveGpus
from .gpus import PoolSnapshot, pool_gpus
from .leases import NodeLeases
from .memory import LeaseMemory
from .mps_look import MpsProbe
from .requests import PoolRequests
from .reservations import NodeReservations
from .server import PoolServer
from .service import PoolService, tell
from .shares import MpsFacts
from .signs import ProcessSigns
from .store import LeaseStore
from .suspended import suspended_processes

CUT_OFF_AFTER_S = 60.0  # a hub that is away for less may be busy with our claims


class NodePool:
    def __init__(self, service: PoolService, server: PoolServer, managed_by: str,
                 exclusive: ExclusiveGpus | None, memory: LeaseMemory) -> None:
        self._service = service
        self._memory = memory
        self._server = server
        self._managed_by = managed_by
        self._exclusive = exclusive
        self._modes = Worker("pool modes", 1)
        self._tasks: Sequence[GpuTask] | None = None
        self._live_at = float("-inf")
        self._resets: frozenset[str] = frozenset()
        self._host = NOT_COUNTED

    def put(self, reading: Reading, tasks: Sequence[GpuTask] | None) -> None:
        """Pass on a reading. `tasks` None: they were not listed this time."""
        if tasks is not None:
            self._tasks = tasks
        for gpu in reading.gpus:  # read now and then only
            if (rows := gpu.value("rows_pending")) is not None:
                self._resets = self._resets | {gpu.uuid} if rows else self._resets - {gpu.uuid}
        if reading.host is not None:
            self._host = free_host(reading.host.numbers, self._host)
        self._service.snapshot = PoolSnapshot(
            pool_gpus(reading.facts, reading.links, reading.gpus, self._resets), self._tasks,
            self._managed_by, self._host)

    def memory_targets(self) -> Sequence[MemoryTarget] | None:
        """Return the memory limits that leases want; None: not known yet. Called on a thread of
        its own."""
        service = self._service
        with service.lock:
            is_known = service.snapshot is not None and not service.leases.trouble
            return self._memory.targets(service.gpus()) if is_known else None

    def connected(self) -> None:
        self._service.connected()

    def receive(self, plan: PoolPlan) -> None:
        self._service.receive(plan)

    def step(self, now: float, is_live: bool) -> None:
        self._set_modes(now)
        if is_live:
            self._live_at = now
        elif now - self._live_at >= CUT_OFF_AFTER_S:
            self._service.disconnected()

    def poll(self) -> tuple[PoolReport, ...]:
        """Return what is to be sent over a live connection."""
        return self._service.poll()

    def _set_modes(self, now: float) -> None:
        exclusive, leases = self._exclusive, list(self._service.leases.all.values())
        if exclusive is not None and self._service.snapshot is not None and (
                exclusive.is_due(leases, self._service.snapshot.gpus, now)):
            gpus = self._service.snapshot.gpus
            self._modes.put(lambda: exclusive.step(leases, gpus, now))

    def close(self) -> None:
        self._modes.close()
        self._server.close()
        self._service.close()


def free_host(numbers: Mapping[str, float], before: FreeHost) -> FreeHost:
    """Return all CPUs and memory of a node by its last sample; what that lacks is as `before`."""
    cpus, ram_bytes = numbers.get("cpus"), numbers.get("mem_total_bytes")
    return FreeHost(before.cpu_milli if cpus is None else int(cpus) * CPU_MILLI,
                    before.ram_bytes if ram_bytes is None else int(ram_bytes))


def open_exclusive(journal: ActionJournal, limits: LimitStores,
                   holds: Callable[[], Collection[str]]) -> ExclusiveGpus:
    return ExclusiveGpus(journal, limits.applier,
                         lambda: {mode.gpu_uuid for mode in limits.modes.all()}, holds)


def open_pool(socket: Path, node_id: str, host: str, boot_id: str, journal: ActionJournal,
              mps: LocalMpsDaemons, people: NodePeople, managed_by: str, is_local: bool,
              unused_s: float, wake: Callable[[], None], why_no_end: Callable[[], str],
              out_of_service: Callable[[], Sequence[GpuRepair]], suspensions: SuspensionStore,
              exclusive: ExclusiveGpus | None,
              memory_limits: Callable[[], Sequence[GroupMemoryLimit]]) -> NodePool:
    """Open the pool of a node. `exclusive` None: modes of leased GPUs are left as they are.
    `memory_limits`: those of control groups, as they are now; raises JournalError."""
    clock = PoolClock(uptime_s, time.time)
    leases = NodeLeases(LeaseStore(journal, boot_id), clock, ProcessSigns(), NodeCores(), unused_s)
    probe = MpsProbe(lambda: MpsFacts(daemons(mps), multiuser_pipes()), uptime_s)
    service = PoolService(node_id, host, leases, NodeReservations(journal, node_id, clock),
                          PoolPolicy(), clock, probe, is_local, wake, people, why_no_end,
                          out_of_service, partial(suspended_processes, suspensions, boot_id))
    service.start()
    return NodePool(service, PoolServer(socket, PoolRequests(service), people), managed_by,
                    exclusive, LeaseMemory(leases, memory_limits, group_of, partial(tell, service)))

"""Puts the pool of one node together."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gpudeck.pool.core.schedule import PoolPolicy
from gpudeck.pool.link import PoolPlan, PoolReport

from ..journal.store import ActionJournal
from ..limits.mps import LocalMpsDaemons, multiuser_pipes
from ..limits.mps_view import daemons
from ..readings import Reading
from ..tasks.processes import uptime_s
from ..tasks.seen import GpuTask
from ..tasks.terminals import tell
from .clock import PoolClock
from .gpus import PoolSnapshot, pool_gpus
from .leases import NodeLeases
from .mps_look import MpsLook
from .requests import PoolRequests
from .server import PoolServer
from .service import PoolService
from .shares import MpsFacts
from .signs import ProcessSigns
from .store import LeaseStore

CUT_OFF_AFTER_S = 60.0  # a hub that is away for less may be busy with our claims


class NodePool:
    def __init__(self, service: PoolService, server: PoolServer) -> None:
        self._service = service
        self._server = server
        self._tasks: Sequence[GpuTask] | None = None
        self._live_at = float("-inf")

    def put(self, reading: Reading, tasks: Sequence[GpuTask] | None) -> None:
        """`tasks` None: they were not asked this time."""
        if tasks is not None:
            self._tasks = tasks
        self._service.snapshot = PoolSnapshot(
            pool_gpus(reading.facts, reading.links,
                      {each.uuid: each.state for each in reading.gpus}), self._tasks)

    def connected(self) -> None:
        self._service.connected()

    def hear(self, plan: PoolPlan) -> None:
        self._service.hear(plan)

    def say(self, now: float, is_live: bool) -> tuple[PoolReport, ...]:
        if is_live:
            self._live_at = now
            return self._service.say()
        if now - self._live_at >= CUT_OFF_AFTER_S:
            self._service.disconnected()
        return ()

    def close(self) -> None:
        self._server.close()
        self._service.close()


def open_pool(socket: Path, node_id: str, host: str, boot_id: str, journal: ActionJournal,
              mps: LocalMpsDaemons, is_local: bool, unused_s: float, wake: Callable[[], None],
              why_no_end: Callable[[], str]) -> NodePool:
    clock = PoolClock(uptime_s, time.time)
    leases = NodeLeases(LeaseStore(journal, boot_id), clock, ProcessSigns(), unused_s)
    look = MpsLook(lambda: MpsFacts(daemons(mps), multiuser_pipes()), uptime_s)
    service = PoolService(node_id, host, leases, PoolPolicy(), clock, look, is_local, wake, tell,
                          why_no_end)
    service.start()
    return NodePool(service, PoolServer(socket, PoolRequests(service)))

"""Puts the pool of one node together."""

import time
from collections.abc import Sequence
from pathlib import Path

from gpudeck.pool.core.schedule import PoolPolicy

from ..journal.store import ActionJournal
from ..readings import Reading
from ..tasks.processes import uptime_s
from ..tasks.seen import GpuTask
from .gpus import pool_gpus
from .server import PoolServer
from .service import PoolService, PoolSnapshot
from .store import LeaseStore


class NodePool:
    def __init__(self, service: PoolService, server: PoolServer) -> None:
        self._service = service
        self._server = server
        self._tasks: Sequence[GpuTask] = ()

    def put(self, reading: Reading, tasks: Sequence[GpuTask] | None) -> None:
        """`tasks` None: they were not asked this time."""
        if tasks is not None:
            self._tasks = tasks
        self._service.observe(PoolSnapshot(
            pool_gpus(reading.facts, reading.links,
                      {each.uuid: each.state for each in reading.gpus}), self._tasks))

    def close(self) -> None:
        self._server.close()
        self._service.close()


def open_pool(socket: Path, node_id: str, host: str, boot_id: str, journal: ActionJournal
              ) -> NodePool:
    service = PoolService(node_id, host, LeaseStore(journal, boot_id), PoolPolicy(), uptime_s,
                          time.time)
    service.start()
    return NodePool(service, PoolServer(socket, service))

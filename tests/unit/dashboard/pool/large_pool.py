"""The hub's pool with as many nodes and claims as one likes; no agents, no network."""

import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import gevent
import msgspec

from dashboard.pool.service import PoolService
from dashboard.pool.store import SCHEMA, PoolStore
from dashboard.pool.watch import PoolWatch
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.runtime.sqlite_state import SqliteStateStore
from gpudeck.pool.core.claims import Claim, Lease
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.schedule import NoOwnerLimits
from gpudeck.pool.link import NodeClaim, OfferedGpu, PoolReport, ReportedLease
from tests.unit.dashboard.pool.test_interleavings import HostsById, Willing


class LargePool:
    """Each claim is asked on one node."""

    def __init__(self, there: Sequence[Node], leases: Sequence[Lease], claims: Sequence[Claim],
                 now: float, draw: random.Random) -> None:
        asked: dict[str, list[NodeClaim]] = {each.id: [] for each in there}
        for claim in claims:
            asked[draw.choice(there).id].append(NodeClaim(claim, True))
        leased: dict[str, list[ReportedLease]] = {each.id: [] for each in there}
        for lease in leases:
            [grant] = lease.grants
            leased[grant.node].append(ReportedLease(
                lease.claim, grant.uuids, "active", lease.since, lease.until, now))
        self._reports = {node.id: PoolReport(
            tuple(OfferedGpu(uuid, gpu.model, index, mem_bytes=gpu.board_bytes)
                  for index, (uuid, gpu) in enumerate(zip(node.uuids, node.gpus, strict=True))),
            tuple(asked[node.id]), tuple(leased[node.id])) for node in there}
        self._now, self._turns = now, 0
        self._folder = tempfile.TemporaryDirectory()
        self._state = SqliteStateStore(Path(self._folder.name) / "state.db")
        self._state.migrate((SCHEMA,))
        self.service = PoolService(
            PoolStore(self._state.connection), HostsById(),  # type: ignore[arg-type]
            self._reports, lambda node_id, plan: True, lambda nodes, leases: NoOwnerLimits(),
            Willing, True, lambda: 0.0, PoolWatch(Dispatcher()))
        self.service.open(now)
        for node_id, report in self._reports.items():
            self.service.reported(node_id, report)

    def turn_ms(self) -> list[float]:
        """CPU of each stretch of one turn, after one node has said something new."""
        self.service.pending.clear()
        node_id = [*self._reports][self._turns % len(self._reports)]
        self.service.reported(node_id, msgspec.structs.replace(self._reports[node_id]))
        self._turns += 1
        turn = gevent.spawn(self.service.step, self._now + self._turns, float(self._turns))
        found = []
        while not turn.ready():
            began = time.process_time()
            gevent.sleep(0)
            found.append((time.process_time() - began) * 1e3)
        turn.get()
        return found

    def close(self) -> None:
        self._state.close()
        self._folder.cleanup()

"""The hub's pool with as many nodes and claims as one likes; no agents, no network."""

import random
import shutil
import tempfile
import time
import weakref
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gevent
import msgspec

from dashboard.pool.limits import LeasedQuotas, QuotaLimits, held_gpus
from dashboard.pool.plan import PoolNode
from dashboard.pool.service import PoolService
from dashboard.pool.store import SCHEMA, TIMES_SCHEMA, PoolStore
from dashboard.pool.teams import TeamsOf
from dashboard.pool.watch import PoolWatch
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.runtime.heap import settle_garbage
from dashboard.runtime.sqlite_state import SqliteStateStore
from gpudeck.contract.pool_link import NodeClaim, OfferedGpu, PoolReport, ReportedLease
from gpudeck.contract.quota import Quota
from gpudeck.contract.quota_usage import QuotaIndex
from gpudeck.pool.core.claims import Claim, Lease
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.schedule import NoOwnerLimits, OwnerLimits
from tests.unit.dashboard.pool.interleavings import HostsById, Willing


class NoTasks:
    """Fleet, as far as it is asked for what its tasks use."""

    nodes: Mapping[str, Any] = {}


class LargePool:
    """Pool of the hub. A claim is asked on one node, but for a part that is asked at the hub.
    `quotas`: what each owner may hold; none: all."""

    def __init__(self, there: Sequence[Node], leases: Sequence[Lease], claims: Sequence[Claim],
                 now: float, draw: random.Random, at_hub: float = 0.0, quotas: Sequence[Quota] = (),
                 teams_of: TeamsOf = lambda owners, groups: {}) -> None:
        claims_of: dict[str, list[NodeClaim]] = {node.id: [] for node in there}
        own = {claim.id for claim in claims if at_hub and draw.random() < at_hub}
        for claim in claims:
            if claim.id not in own:
                claims_of[draw.choice(there).id].append(NodeClaim(claim, True))
        leased: dict[str, list[ReportedLease]] = {node.id: [] for node in there}
        for lease in leases:
            [grant] = lease.grants
            leased[grant.node].append(ReportedLease(
                lease.claim, grant.uuids, "active", lease.since, lease.until, now))
        self._reports = {node.id: PoolReport(
            tuple(OfferedGpu(uuid, gpu.model, index, mem_bytes=gpu.board_bytes)
                  for index, (uuid, gpu) in enumerate(zip(node.uuids, node.gpus, strict=True))),
            tuple(claims_of[node.id]), tuple(leased[node.id])) for node in there}
        self._now, self._turns = now, 0
        self._quotas = LeasedQuotas(QuotaIndex(quotas), {}, {})
        folder = tempfile.mkdtemp()  # a test that fails before it closes this must fail alone
        self._remove_folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._state = SqliteStateStore(Path(folder) / "state.db")
        self._state.migrate((SCHEMA, TIMES_SCHEMA))
        self.service = PoolService(
            PoolStore(self._state.connection), HostsById(),
            self._reports, lambda node_id, plan: True, self._limits,
            teams_of, Willing, True, self._clock, lambda: now,
            lambda node_id, spent_s, at: None, PoolWatch(Dispatcher()))
        self.service.open(now)
        self.service.claims |= {claim.id: claim for claim in claims if claim.id in own}
        for node_id, report in self._reports.items():
            self.service.reported(node_id, report)

    def _limits(self, nodes: Collection[PoolNode], leases: Iterable[Lease]
                ) -> Generator[None, None, OwnerLimits]:
        if not self._quotas.is_any:
            return NoOwnerLimits()
        in_use = yield from held_gpus(leases, NoTasks())  # type: ignore[arg-type]
        return (yield from QuotaLimits.build(
            self._quotas, {node.id: (node.host, None) for node in nodes}, in_use))

    def _clock(self) -> float:
        """Return the time; between two turns enough passes for the hub to have rested."""
        return 100.0 * self._turns + time.perf_counter()

    def says(self, node_id: str, **changed: Any) -> None:
        self._reports[node_id] = msgspec.structs.replace(self._reports[node_id], **changed)
        self.service.reported(node_id, self._reports[node_id])

    def settle_garbage(self) -> None:
        """Settle garbage as the hub does when it has started."""
        settle_garbage()

    def turn_ms(self) -> list[float]:
        """CPU of each stretch of one turn, after one node has said something new."""
        self.service.pending.clear()
        node_id = [*self._reports][self._turns % len(self._reports)]
        self.service.reported(node_id, msgspec.structs.replace(self._reports[node_id]))
        self._turns += 1
        turn = gevent.spawn(self.service.step, self._now + self._turns, self._clock())
        stretches_ms = []
        while not turn.ready():
            began = time.process_time()
            gevent.sleep(0)
            stretches_ms.append((time.process_time() - began) * 1e3)
        turn.get()
        return stretches_ms

    def close(self) -> None:
        self._state.close()
        self._remove_folder()

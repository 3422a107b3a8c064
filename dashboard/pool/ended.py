"""Leases that have ended: the last of them one by one, all of them as what their owners had."""

from collections.abc import Iterable, Sequence
from itertools import islice

from msgspec.structs import replace as changed

from gpudeck.contract.pool_link import ReportedEnd
from gpudeck.pool.core.claims import Grant, Lease
from gpudeck.pool.core.fair_share import EndedUsage, FairSharePolicy

from ..fleet.node_budget import NodeBudget
from ..runtime.row_room import room_of
from .store import PoolStore

KEPT_S = 35 * 86_400.0  # five half-lives of fair share
FORGET_EVERY_S = 3_600.0
RECENT_MOST = 4_096
# Of one node, on disk: some 1,200 leases an hour, or 200 of many GPUs.
BYTES_MOST = ((3_600.0, 1_000_000), (86_400.0, 16_000_000))


class EndedLeases:
    def __init__(self, store: PoolStore) -> None:
        self._store = store
        self._recent: dict[tuple[str, str], Lease] = {}  # claim and node
        self.usage: EndedUsage | None = None
        self._forgot_mono = float("-inf")
        self._bytes = NodeBudget(BYTES_MOST)

    def open(self, policy: FairSharePolicy, now: float) -> None:
        """Read what is stored, also after a change of what counts."""
        self.usage = EndedUsage((_lease(*row) for row in self._store.ended_since(now - KEPT_S)),
                                policy, now)
        self._recent = {(end.claim.id, node_id): _lease(node_id, end)
                        for node_id, end in self._store.last_ended(RECENT_MOST)}

    @property
    def recent(self) -> Sequence[Lease]:
        """Leases that ended lately, oldest first."""
        return [*self._recent.values()]

    def is_known(self, node_id: str, end: ReportedEnd) -> bool:
        return (end.claim.id, node_id) in self._recent

    def add_all(self, node_id: str, ends: Iterable[ReportedEnd], mono: float) -> None:
        """Add leases that have ended. Nodes report them again whenever they come back. How each
        ended was announced when it did."""
        bodies = [(end, self._store.body_of(changed(end, why="", exit_status=None)))
                  for end in ends]
        if not self._bytes.take(node_id, sum(
                room_of(body, node_id, end.claim.id) for end, body in bodies), mono):
            return
        for end in self._store.add_ended(node_id, bodies):
            lease = _lease(node_id, end)
            self._recent[end.claim.id, node_id] = lease
            if self.usage is not None:
                self.usage.add(lease)
        for key in list(islice(self._recent, max(0, len(self._recent) - RECENT_MOST))):
            del self._recent[key]

    def forget_node(self, node_id: str, policy: FairSharePolicy, now: float) -> None:
        self._store.forget_ended_of(node_id)
        self.open(policy, now)

    def forget(self, now: float, mono: float) -> None:
        if mono - self._forgot_mono >= FORGET_EVERY_S:
            self._forgot_mono = mono
            self._store.forget_ended(now - KEPT_S)


def _lease(node_id: str, end: ReportedEnd) -> Lease:
    return Lease(id=end.claim.id, claim=end.claim, grants=(Grant(node_id, end.uuids),),
                 since=end.since, until=end.ended_at, ended_at=end.ended_at)

"""Map of leases: who holds each GPU until when, for the Fleet map, and who held it in the past."""

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpudeck.pool.core.claims import Claim

from ..fleet.fleet import Fleet
from ..fleet.past_moment import PastLease, PastPool
from ..fleet.visibility import VisibleFleet
from .service import PoolService

NO_LEASE, SEVERAL = 65_535, 65_534
UNTIL_MOST = 2.0**32 - 1


@dataclass(frozen=True, slots=True)
class LeaseMap:
    service: PoolService
    fleet: Fleet

    @property
    def version(self) -> Hashable:
        """Version of the map. None: nothing was ever leased."""
        number = self.service.watch.version
        return (number, frozenset(node.id for node in self.service.nodes)) if number else None

    def view(self, visible: VisibleFleet) -> dict[str, Any]:
        """Return owner and end by visible slot. For a GPU with several leases, the end of the last
        one."""
        size = len(visible)
        owner, until = [NO_LEASE] * size, [0] * size
        place_of = dict(zip(visible.slots.tolist(), range(size), strict=True))
        names: dict[str, int] = {}
        for node in self.service.nodes:
            if not visible.sees_node(node.id):
                continue
            for lease in node.report.leases:
                number = min(names.setdefault(lease.claim.owner, len(names)), SEVERAL)
                ends = int(min(max(lease.until, 0.0), UNTIL_MOST))
                for uuid in lease.uuids:
                    slot = self.fleet.slot_on(node.id, uuid)
                    at = None if slot is None else place_of.get(slot)
                    if at is not None:
                        owner[at] = number if owner[at] in (NO_LEASE, number) else SEVERAL
                        until[at] = max(until[at], ends)
        return {"epoch": visible.epoch, "names": list(names),
                "owner": np.array(owner, "<u2").tobytes(),
                "until": np.array(until, "<u4").tobytes()}


@dataclass(frozen=True, slots=True)
class PoolPast:
    service: PoolService

    def at(self, at: float) -> PastPool:
        """Return the leases that were held then, and the claims that waited and have got their GPUs
        since or wait still: no other claim is kept."""
        leases: list[PastLease] = []
        waiting: dict[str, tuple[float, PastLease]] = {}  # one over several nodes waited once
        for claim, node_id, uuids, since, ended_at in self._leases():
            if since <= at < (math.inf if ended_at is None else ended_at):
                leases.append(PastLease(node_id, claim.owner, uuids, claim.gpus))
            elif _began_to_wait(claim) <= at < since:
                waiting[claim.id] = since, _waiting(claim)
        waiting |= {claim.id: (math.inf, _waiting(claim))
                    for claim in self.service.waiting(self.service.nodes)
                    if _began_to_wait(claim) <= at}
        return PastPool(leases, [lease for _, lease in sorted(
            waiting.values(), key=lambda entry: entry[0])])

    def _leases(self) -> Iterator[tuple[Claim, str, tuple[str, ...], float, float | None]]:
        for node in self.service.nodes:
            for lease in node.report.leases:
                yield lease.claim, node.id, lease.uuids, lease.since, None
        for past in self.service.ended.recent:
            for grant in past.grants:
                yield past.claim, grant.node, grant.uuids, past.since, past.ended_at


def _began_to_wait(claim: Claim) -> float:
    """Return when it began: a reservation does not before its time."""
    return max(claim.submitted_at, claim.starts_at or 0.0)


def _waiting(claim: Claim) -> PastLease:
    return PastLease("", claim.owner, (), claim.gpus * claim.nodes)

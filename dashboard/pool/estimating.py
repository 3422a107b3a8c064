"""What is known of how long leases last, from those that ended."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpudeck.pool.core.claims import Booking, Claim, Lease
from gpudeck.pool.core.estimates import WaitEstimate, estimate
from gpudeck.pool.core.feasibility import suits
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.prediction import FinishedRun, RunTime, is_proven, predict

AGAIN_AFTER_S = 60.0
LEASES_MOST = 512  # for more of them it would take too long
RUNS_MOST = 100  # of one owner


@dataclass(slots=True)
class WaitEstimates:
    """For the head of the queue alone: whoever comes after it waits for it, too."""

    _learnt: float = field(init=False, default=float("-inf"))
    _is_proven: bool = field(init=False, default=False)
    _runs: dict[str, list[FinishedRun]] = field(init=False, default_factory=dict)
    _said: tuple[str, float, WaitEstimate | None] = field(init=False, default=("", 0.0, None))

    def of(self, claim: Claim, free: Callable[[], Mapping[str, Node]], leases: Sequence[Lease],
           bookings: Collection[Booking], ended: Iterable[Lease], now: float, mono: float
           ) -> WaitEstimate | None:
        if self._said[0] == claim.id and mono - self._said[1] < AGAIN_AFTER_S:
            return self._said[2]
        self._learn(ended, mono)
        nodes = free()
        uuids = {uuid for node in nodes.values()
                 for uuid, gpu in zip(node.uuids, node.gpus, strict=True) if suits(claim, gpu)}
        there = [each for each in leases
                 if any(not uuids.isdisjoint(grant.uuids) for grant in each.grants)]
        found = None
        if self._is_proven and len(there) <= LEASES_MOST:
            known = {each.id: one for each in there if (one := self._of_lease(each, now))}
            found = estimate(claim, nodes, there, list(bookings), known, now)
        self._said = claim.id, mono, found
        return found

    def _of_lease(self, lease: Lease, now: float) -> RunTime | None:
        claim = lease.claim
        return predict(self._runs.get(claim.owner, ()), claim.owner, claim.team, claim.shape,
                       claim.gpus, now - lease.since)

    def _learn(self, ended: Iterable[Lease], mono: float) -> None:
        if mono - self._learnt < AGAIN_AFTER_S:
            return
        self._learnt = mono
        runs = [FinishedRun(each.claim.owner, each.claim.team, each.claim.shape, each.claim.gpus,
                            each.ended_at, each.ended_at - each.since)
                for each in ended if each.ended_at is not None]
        self._is_proven = is_proven(runs)
        self._runs = {}
        for each in sorted(runs, key=lambda run: run.ended_at):
            self._runs.setdefault(each.owner, []).append(each)
        self._runs = {owner: those[-RUNS_MOST:] for owner, those in self._runs.items()}

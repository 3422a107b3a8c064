"""Forecast of how much longer leases will last, and how long claims wait, by earlier ones. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from gpudeck.pool.core.claims import Claim, Lease
from gpudeck.pool.core.prediction import FinishedRun, RunTime, RunTimeProof, predict, proof

# The most GPUs of a claim of each size.
SIZES = ((1.0, "1 GPU"), (4.0, "2 to 4 GPUs"), (8.0, "5 to 8 GPUs"), (inf, "9 GPUs and more"))
RECENT = 100  # of a size
LEAST_WAIT_S = 1.0  # a pass of the scheduler


@dataclass(frozen=True, slots=True)
class LeaseOutlook:
    """A lease. `took`: its whole run time, so the time that remains is less by how long it has
    lasted."""

    lease: Lease
    took: RunTime


@dataclass(frozen=True, slots=True)
class WaitOutlook:
    """Waits of claims for so many GPUs. `predicted` None: too few are known, or they say nothing.
    `waits`: how many are known."""

    size: str
    predicted: RunTime | None
    waits: int


@dataclass(frozen=True, slots=True)
class PoolOutlook:
    leases: Sequence[LeaseOutlook] = ()
    waits: Sequence[WaitOutlook] = ()
    waits_proof: RunTimeProof = field(default_factory=RunTimeProof)


def outlook(leases: Sequence[Lease], finished: Iterable[Lease], predicted: Mapping[str, RunTime]
            ) -> PoolOutlook:
    """Predict run times and waits. `leases`: the present ones; `predicted`: run times by their ids,
    as the pool predicts them."""
    outlooks = [LeaseOutlook(lease, predicted[lease.id]) for lease in leases
                if lease.id in predicted]
    outlooks.sort(key=lambda item: item.lease.since + item.took.p50_s)
    waits = waited([*finished, *leases])
    return PoolOutlook(outlooks, [_of_size(size, waits) for _, size in SIZES], proof(waits))


def waited(leases: Iterable[Lease]) -> list[FinishedRun]:
    """Return the waits. A claim over several nodes has waited once. A reservation waits from its
    time on."""
    first: dict[str, Lease] = {}
    for lease in leases:
        had = first.get(lease.id)
        if had is None or lease.since < had.since:
            first[lease.id] = lease
    return sorted((_wait(lease.claim, lease.since) for lease in first.values()),
                  key=lambda run: run.ended_at)


def _wait(claim: Claim, until: float) -> FinishedRun:
    gpus = claim.gpus * claim.nodes
    size = next(name for most, name in SIZES if gpus <= most)
    began = max(claim.submitted_at, claim.starts_at or 0.0)
    return FinishedRun(size, "", "", gpus, until, max(LEAST_WAIT_S, until - began))


def _of_size(size: str, waits: Iterable[FinishedRun]) -> WaitOutlook:
    mine = [run for run in waits if run.owner == size]
    return WaitOutlook(size, predict(mine[-RECENT:], size, "", "", 0), len(mine))

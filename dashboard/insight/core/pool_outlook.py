"""How much longer leases will last, and how long claims wait, by earlier ones. Pure."""

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
    """`took`: in all, so that what is left is less by how long it has lasted."""

    lease: Lease
    took: RunTime


@dataclass(frozen=True, slots=True)
class WaitOutlook:
    """Of claims for so many GPUs. `found` None: too few, or they say nothing. `waits`: so many are
    known."""

    size: str
    found: RunTime | None
    waits: int


@dataclass(frozen=True, slots=True)
class PoolOutlook:
    leases: Sequence[LeaseOutlook] = ()
    waits: Sequence[WaitOutlook] = ()
    waits_proof: RunTimeProof = field(default_factory=RunTimeProof)


def outlook(held: Sequence[Lease], ended: Iterable[Lease], predicted: Mapping[str, RunTime]
            ) -> PoolOutlook:
    """`held`: the leases of now; `predicted`: by their ids, as the pool does it."""
    known = [LeaseOutlook(each, predicted[each.id]) for each in held if each.id in predicted]
    known.sort(key=lambda each: each.lease.since + each.took.p50_s)
    waits = waited([*ended, *held])
    return PoolOutlook(known, [_of_size(size, waits) for _, size in SIZES], proof(waits))


def waited(leases: Iterable[Lease]) -> list[FinishedRun]:
    """A claim over several nodes has waited once. A reservation waits from its time on."""
    first: dict[str, Lease] = {}
    for each in leases:
        had = first.get(each.id)
        if had is None or each.since < had.since:
            first[each.id] = each
    return sorted((_wait(each.claim, each.since) for each in first.values()),
                  key=lambda each: each.ended_at)


def _wait(claim: Claim, until: float) -> FinishedRun:
    gpus = claim.gpus * claim.nodes
    size = next(name for most, name in SIZES if gpus <= most)
    began = max(claim.submitted_at, claim.starts_at or 0.0)
    return FinishedRun(size, "", "", gpus, until, max(LEAST_WAIT_S, until - began))


def _of_size(size: str, waits: Iterable[FinishedRun]) -> WaitOutlook:
    mine = [each for each in waits if each.owner == size]
    return WaitOutlook(size, predict(mine[-RECENT:], size, "", "", 0), len(mine))

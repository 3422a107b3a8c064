"""The pool of this node as its users, and its hub, are told. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.feasibility import words
from gpudeck.pool.link import NodeClaim, OfferedGpu, PoolReport, ReportedEnd, ReportedLease
from gpudeck.pool.messages import (
    HeldGpus,
    Leased,
    LeasedGpu,
    PoolShown,
    Reserved,
    UnavailableGpu,
    WaitingClaim,
)

from . import queue
from .gpus import LOST
from .lock import BIND_WITHIN_S, NodeLease, PoolGpu
from .uses import LeaseUse, outside_uses, task_ids

USED_STEP_S = 60.0  # when a lease was used last is reported by the minute
Utc = Callable[[float], float]


def report(gpus: Iterable[PoolGpu], waiting: queue.WaitingClaims, leases: Iterable[NodeLease],
           uses: Sequence[LeaseUse], ended: Sequence[ReportedEnd],
           withdrawals: queue.WaitingWithdrawals, groups_of: Callable[[int], tuple[str, ...]],
           utc: Utc) -> PoolReport:
    def dated(claim: Claim) -> Claim:
        return replace(claim, submitted_at=utc(claim.submitted_at),
                       starts_at=None if claim.starts_at is None else utc(claim.starts_at))

    leases = list(leases)
    owners = {each.claim.owner: each.user.uid for each in waiting}
    owners |= {each.claim.owner: each.uid for each in leases}
    return PoolReport(
        tuple(OfferedGpu(each.uuid, each.model, each.index, each.is_mig, each.numa, each.clique,
                         each.mem_bytes, each.trouble) for each in gpus),
        tuple(NodeClaim(dated(each.claim), each.is_run) for each in waiting),
        tuple(ReportedLease(dated(each.claim), each.uuids, _state(each), utc(each.since),
                            utc(each.until), utc(each.used_at // USED_STEP_S * USED_STEP_S),
                            task_ids(each, uses), each.misplaced, each.is_run)
              for each in leases),
        tuple(ended), dict(waiting.refused), outside_uses(uses), withdrawals.of_report(),
        {owner: groups for owner, uid in owners.items() if (groups := groups_of(uid))})


def _state(lease: NodeLease) -> str:
    return "draining" if lease.preempted else lease.state


def leased(lease: NodeLease, host: str, gpus: Mapping[str, PoolGpu], utc: Utc) -> Leased:
    return Leased(
        lease.id, host,
        tuple(_gpu(gpu) for gpu in sorted((gpus[uuid] for uuid in lease.uuids if uuid in gpus),
                                          key=lambda gpu: gpu.index)),
        utc(lease.until), lease.claim.share_milli, lease.claim.mem_bytes, BIND_WITHIN_S,
        tuple(each.uuid for each in gpus.values() if not each.is_mig and each.trouble != LOST),
        lease.mps_pipes)


def reserved(claim: Claim, uuids: Collection[str], gpus: Mapping[str, PoolGpu], utc: Utc
             ) -> Reserved:
    return Reserved(claim.id, utc(claim.starts_at or 0.0),
                    tuple(_gpu(each) for each in gpus.values() if each.uuid in uuids))


def shown(host: str, gpus: Mapping[str, PoolGpu], leases: Iterable[NodeLease],
          waiting: queue.WaitingClaims, now: float, utc: Utc) -> PoolShown:
    return PoolShown(
        host, tuple(_gpu(each) for each in gpus.values()),
        tuple(HeldGpus(each.id, each.claim.owner, each.uuids, each.claim.share_milli, each.state,
                       utc(each.until), now - each.used_at) for each in leases),
        tuple(WaitingClaim(each.claim.owner, words(each.claim), each.said.place, each.said.why,
                           now - each.claim.submitted_at, each.said.wait_s, each.claim.id)
              for each in waiting if each.said is not None),
        tuple(UnavailableGpu(each.uuid, each.trouble) for each in gpus.values() if each.trouble))


def _gpu(gpu: PoolGpu) -> LeasedGpu:
    return LeasedGpu(gpu.uuid, gpu.model, gpu.index, gpu.is_mig, gpu.pci_bus_id, gpu.mem_bytes)

"""The pool of this node, as shown to its users and its hub. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gpudeck.pool.core.claims import CPU_MILLI, Claim
from gpudeck.pool.core.feasibility import words
from gpudeck.pool.core.host_resources import FreeHost, cores_text, lease_words, left_words
from gpudeck.pool.core.schedule import IS_DUE, NOT_YET
from gpudeck.pool.link import (
    NodeClaim,
    OfferedGpu,
    PoolReport,
    ReportedEnd,
    ReportedLease,
    ReservedGpus,
)
from gpudeck.pool.messages import (
    HeldGpus,
    Leased,
    LeasedGpu,
    PoolShown,
    Reserved,
    ReservedOnNode,
    UnavailableGpu,
    WaitingClaim,
)

from . import queue
from .lock import BIND_WITHIN_S, NodeLease, PoolGpu
from .uses import LeaseUse, outside_uses, task_ids

USED_STEP_S = 60.0  # when a lease was used last is reported by the minute
Utc = Callable[[float], float]


def report(gpus: Iterable[PoolGpu], waiting: queue.WaitingClaims, reserved: Iterable[Claim],
           leases: Iterable[NodeLease], uses: Sequence[LeaseUse], ended: Sequence[ReportedEnd],
           withdrawals: queue.WaitingWithdrawals, groups_of: Callable[[int], tuple[str, ...]],
           managed_by: str, host: FreeHost, no_end: str, utc: Utc) -> PoolReport:
    def dated(claim: Claim) -> Claim:
        return replace(claim, submitted_at=utc(claim.submitted_at),
                       starts_at=None if claim.starts_at is None else utc(claim.starts_at))

    leases = list(leases)
    owners = {each.claim.owner: each.user.uid for each in waiting}
    owners |= {each.claim.owner: each.uid for each in leases}
    return PoolReport(
        tuple(OfferedGpu(each.uuid, each.model, each.index, each.is_mig, each.numa, each.clique,
                         each.mem_bytes, each.trouble, each.reason) for each in gpus),
        (*(NodeClaim(dated(each.claim), each.is_run, each.paused, each.limits_itself)
           for each in waiting),
         *(NodeClaim(dated(each), False, limits_itself=False) for each in reserved)),
        tuple(ReportedLease(dated(each.claim), each.uuids, _state(each), utc(each.since),
                            utc(each.until), utc(each.used_at // USED_STEP_S * USED_STEP_S),
                            task_ids(each, uses), each.misplaced, each.is_run,
                            cores_text(each.cores)[:1_024], each.limits)
              for each in leases),
        tuple(ended), waiting.answers, outside_uses(uses), withdrawals.of_report(),
        {owner: groups for owner, uid in owners.items() if (groups := groups_of(uid))},
        managed_by, None if host.cpu_milli is None else host.cpu_milli // CPU_MILLI, no_end,
        host.ram_bytes)


def _state(lease: NodeLease) -> str:
    return "draining" if lease.preempted or lease.given_back_at is not None else lease.state


def leased(lease: NodeLease, host: str, gpus: Mapping[str, PoolGpu], utc: Utc) -> Leased:
    return Leased(
        lease.id, host,
        tuple(_gpu(gpu) for gpu in sorted((gpus[uuid] for uuid in lease.uuids if uuid in gpus),
                                          key=lambda gpu: gpu.index)),
        utc(lease.until), lease.claim.share_milli, lease.claim.mem_bytes, BIND_WITHIN_S,
        tuple(each.uuid for each in gpus.values() if not each.is_mig and each.reason != "lost"),
        lease.mps_pipes, lease.hosts, lease.claim.cpu_milli, lease.claim.ram_bytes, lease.cores)


def reserved(claim: Claim, uuids: Collection[str], gpus: Mapping[str, PoolGpu], utc: Utc
             ) -> Reserved:
    return Reserved(claim.id, utc(claim.starts_at or 0.0),
                    tuple(_gpu(each) for each in gpus.values() if each.uuid in uuids))


def shown(host: str, gpus: Mapping[str, PoolGpu], leases: Iterable[NodeLease],
          waiting: queue.WaitingClaims, asked: Iterable[Claim], reserved: Iterable[ReservedGpus],
          host_resources: FreeHost, now: float, utc: Utc) -> PoolShown:
    """`asked`: reservations that this node keeps itself."""
    leases = list(leases)
    left = host_resources.given(each.claim for each in leases)
    in_line = [each.said.place for each in waiting if each.said is not None]
    return PoolShown(
        host, tuple(_gpu(each) for each in gpus.values()),
        tuple(HeldGpus(each.id, each.claim.owner, each.uuids, each.claim.share_milli, _state(each),
                       utc(each.until), now - each.used_at,
                       lease_words(each.claim, cores_text(each.cores), each.limits))
              for each in leases),
        (*(WaitingClaim(each.claim.owner, words(each.claim), each.said.place, each.said.why,
                        now - each.claim.submitted_at, each.said.wait_s, each.claim.id)
           for each in waiting if each.said is not None),
         *(WaitingClaim(each.owner, words(each), max(in_line, default=0) + place,
                        _starts(each, now), now - each.submitted_at,
                        max(0.0, (each.starts_at or now) - now), each.id)
           for place, each in enumerate(asked, 1))),
        tuple(UnavailableGpu(each.uuid, each.trouble, each.reason) for each in gpus.values()
              if each.trouble),
        tuple(ReservedOnNode(each.owner, each.uuids, each.starts_at, each.ends_at, each.claim_id)
              for each in reserved), left_words(host_resources, left))


def _starts(claim: Claim, now: float) -> str:
    ahead_s = (claim.starts_at or now) - now
    return NOT_YET if ahead_s > 0 else IS_DUE


def _gpu(gpu: PoolGpu) -> LeasedGpu:
    return LeasedGpu(gpu.uuid, gpu.model, gpu.index, gpu.is_mig, gpu.pci_bus_id, gpu.mem_bytes)

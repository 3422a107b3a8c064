"""The pool of this node, as shown to its users and its hub. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gpudeck.contract.pool_link import (
    ClaimStanding,
    NodeClaim,
    OfferedGpu,
    PoolReport,
    ReportedEnd,
    ReportedLease,
    ReservedGpus,
)
from gpudeck.contract.pool_messages import (
    HeldGpus,
    Leased,
    LeasedGpu,
    PoolShown,
    Reserved,
    ReservedOnNode,
    UnavailableGpu,
    WaitingClaim,
)
from gpudeck.pool.core.claims import CPU_MILLI, Claim
from gpudeck.pool.core.feasibility import words
from gpudeck.pool.core.host_resources import FreeHost, cores_text, lease_words, left_words
from gpudeck.pool.core.schedule import IS_DUE, NOT_YET

from . import queue
from .lock import BIND_WITHIN_S, NodeLease, PoolGpu
from .uses import LeaseUse, outside_uses, task_ids

NO_STANDING = "its work is suspended, and comes back when its GPUs are free"
USED_STEP_S = 60.0  # when a lease was used last is reported by the minute
Utc = Callable[[float], float]


def report(gpus: Iterable[PoolGpu], waiting: queue.WaitingClaims, reserved: Iterable[Claim],
           leases: Iterable[NodeLease], uses: Sequence[LeaseUse],
           ended_leases: Sequence[ReportedEnd],
           withdrawals: queue.WaitingWithdrawals,
           groups_of: Callable[[int], tuple[str, ...] | None],
           managed_by: str, host: FreeHost, no_end: str, utc: Utc) -> PoolReport:
    def dated(claim: Claim) -> Claim:
        return replace(claim, submitted_at=utc(claim.submitted_at),
                       starts_at=None if claim.starts_at is None else utc(claim.starts_at))

    leases = list(leases)
    owners = {entry.claim.owner: entry.user.uid for entry in waiting}
    owners |= {lease.claim.owner: lease.uid for lease in leases}
    groups = {owner: groups_of(uid) for owner, uid in owners.items()}
    return PoolReport(
        tuple(OfferedGpu(gpu.uuid, gpu.model, gpu.index, gpu.is_mig, gpu.numa, gpu.clique,
                         gpu.mem_bytes, gpu.trouble, gpu.reason) for gpu in gpus),
        (*(NodeClaim(dated(entry.claim), entry.is_run,
                     entry.paused or ("" if groups[entry.claim.owner] is not None
                                      else queue.GROUPS_UNKNOWN), entry.limits_itself)
           for entry in waiting),
         *(NodeClaim(dated(claim), False, limits_itself=False) for claim in (
             *reserved, *(waiting_claim(lease) for lease in leases if lease.waits)))),
        tuple(ReportedLease(dated(lease.claim), lease.uuids, _state(lease), utc(lease.since),
                            utc(lease.until), utc(lease.used_at // USED_STEP_S * USED_STEP_S),
                            task_ids(lease, uses), lease.misplaced, lease.is_run,
                            cores_text(lease.cores)[:1_024], lease.limits)
              for lease in leases if not lease.waits),
        tuple(ended_leases), waiting.answers, outside_uses(uses), withdrawals.of_report(),
        {owner: names for owner, names in groups.items() if names},
        managed_by, None if host.cpu_milli is None else host.cpu_milli // CPU_MILLI, no_end,
        host.ram_bytes)


def waiting_claim(lease: NodeLease) -> Claim:
    """Return the claim by which a lease waits for the GPUs on which its work was suspended, in the
    place that it had."""
    return replace(lease.claim, gpus=len(lease.home_gpus), home_gpus=lease.home_gpus, hosts=(),
                   starts_at=None, is_again=True)


def _state(lease: NodeLease) -> str:
    if lease.home_gpus:
        return "restoring"
    return "draining" if lease.preempted or lease.given_back_at is not None else lease.state


def leased(lease: NodeLease, host: str, gpus: Mapping[str, PoolGpu], utc: Utc) -> Leased:
    return Leased(
        lease.id, host,
        tuple(_gpu(gpu) for gpu in sorted((gpus[uuid] for uuid in lease.uuids if uuid in gpus),
                                          key=lambda gpu: gpu.index)),
        utc(lease.until), lease.claim.share_milli, lease.claim.mem_bytes, BIND_WITHIN_S,
        tuple(gpu.uuid for gpu in gpus.values() if not gpu.is_mig and gpu.reason != "lost"),
        lease.mps_pipes, lease.hosts, lease.claim.cpu_milli, lease.claim.ram_bytes, lease.cores)


def reserved(claim: Claim, uuids: Collection[str], gpus: Mapping[str, PoolGpu], utc: Utc
             ) -> Reserved:
    return Reserved(claim.id, utc(claim.starts_at or 0.0),
                    tuple(_gpu(gpu) for gpu in gpus.values() if gpu.uuid in uuids))


def pool_view(host: str, gpus: Mapping[str, PoolGpu], leases: Iterable[NodeLease],
              waiting: queue.WaitingClaims, standings: Mapping[str, ClaimStanding],
              kept_here: Iterable[Claim],
              reserved: Iterable[ReservedGpus], host_resources: FreeHost, now: float, utc: Utc
              ) -> PoolShown:
    """Return the pool as its users see it. `standings`: of leases whose work is suspended, as a hub
    said last. `kept_here`: reservations that this node keeps."""
    all_leases, leases = list(leases), [lease for lease in leases if not lease.waits]
    free = host_resources.after_grants(lease.claim for lease in all_leases)
    in_line = [entry.standing.place for entry in waiting if entry.standing is not None]
    suspended = [(lease, standings.get(lease.id, ClaimStanding(lease.id, 0, NO_STANDING)))
                 for lease in all_leases if lease.waits]
    return PoolShown(
        host, tuple(_gpu(gpu) for gpu in gpus.values()),
        tuple(HeldGpus(lease.id, lease.claim.owner, lease.uuids, lease.claim.share_milli,
                       _state(lease), utc(lease.until), now - lease.used_at,
                       lease_words(lease.claim, cores_text(lease.cores), lease.limits))
              for lease in leases),
        (*(WaitingClaim(entry.claim.owner, words(entry.claim), entry.standing.place,
                        entry.standing.why, now - entry.claim.submitted_at,
                        entry.standing.wait_s, entry.claim.id)
           for entry in waiting if entry.standing is not None),
         *(WaitingClaim(lease.claim.owner, words(waiting_claim(lease)), standing.place,
                        standing.why, now - lease.claim.submitted_at, standing.wait_s, lease.id)
           for lease, standing in suspended),
         *(WaitingClaim(claim.owner, words(claim), max(in_line, default=0) + place,
                        _starts(claim, now), now - claim.submitted_at,
                        max(0.0, (claim.starts_at or now) - now), claim.id)
           for place, claim in enumerate(kept_here, 1))),
        tuple(UnavailableGpu(gpu.uuid, gpu.trouble, gpu.reason) for gpu in gpus.values()
              if gpu.trouble),
        tuple(ReservedOnNode(booked.owner, booked.uuids, booked.starts_at, booked.ends_at,
                             booked.claim_id)
              for booked in reserved), left_words(host_resources, free))


def _starts(claim: Claim, now: float) -> str:
    ahead_s = (claim.starts_at or now) - now
    return NOT_YET if ahead_s > 0 else IS_DUE


def _gpu(gpu: PoolGpu) -> LeasedGpu:
    return LeasedGpu(gpu.uuid, gpu.model, gpu.index, gpu.is_mig, gpu.pci_bus_id, gpu.mem_bytes)

"""Intake of a node's report: what it says of itself, with ids and times that are the hub's."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as changed

from gpudeck.contract.pool_link import PoolReport, ReportedEnd, ReportedLease
from gpudeck.pool.core.claims import GPUS_MOST, Claim

from .claim_ids import ClaimIds, HubClaims, NodeIds
from .store import ClaimTimes, PoolStore

Times = dict[str, ClaimTimes]  # by claim, as its node calls it


@dataclass(frozen=True, slots=True)
class OwnReport:
    report: PoolReport
    ids: NodeIds


@dataclass(slots=True)
class ReportIntake:
    """Intake of reports. `has_gpu`: whether a node has, or had lately, a GPU of that UUID."""

    store: PoolStore
    has_gpu: Callable[[str, str], bool]
    foreign: Counter[str] = field(init=False, default_factory=Counter)  # claims on others, by node
    _ids: ClaimIds = field(init=False, default_factory=ClaimIds)
    _times: dict[str, Times] = field(init=False)
    _reported_at: dict[str, float] = field(init=False, default_factory=dict)  # by node, last
    _preempted: dict[tuple[str, str], float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._times = {}
        for node_id, claim_id, times in self.store.times():
            self._times.setdefault(node_id, {})[claim_id] = times

    def take(self, node_id: str, host: str, report: PoolReport, at_hub: HubClaims, now: float
             ) -> OwnReport:
        names = {node_id, host}
        claims = [entry for entry in report.claims if names.issuperset(entry.claim.hosts)]
        self.foreign[node_id] += len(report.claims) - len(claims)
        own = [*(entry.claim for entry in claims), *(entry.claim for entry in report.leases)]
        ids = self._ids.renew(node_id, [entry.claim.id for entry in claims],
                              [lease.claim.id for lease in report.leases], at_hub)
        self._note_preempted(node_id, report.ended)
        times = self._dated(node_id, own, report.leases, now)
        gpus = {gpu.uuid for gpu in report.gpus}

        def of_node(uuids: Iterable[str]) -> tuple[str, ...]:
            return tuple(uuid for uuid in uuids if uuid in gpus or self.has_gpu(node_id, uuid))

        def claim_of(claim: Claim, hub_id: str, gpus: int) -> Claim:
            dates = times.get(claim.id)
            asked_at = min(claim.submitted_at, now) if dates is None else dates.asked_at
            return replace(claim, id=hub_id, submitted_at=asked_at, gpus=min(claim.gpus, gpus))

        def lease_of(lease: ReportedLease) -> ReportedLease:
            uuids, told_since = of_node(lease.uuids), times[lease.claim.id].since
            since = now if told_since is None else told_since
            return changed(
                lease, claim=claim_of(lease.claim, ids.leases[lease.claim.id], len(uuids)),
                uuids=uuids, since=since,
                # By the minute that it was in, which may have begun before the lease.
                used_at=min(max(lease.used_at, since), now))

        def end_of(end: ReportedEnd) -> ReportedEnd:
            uuids, ended_at = of_node(end.uuids), min(end.ended_at, now)
            return changed(
                end, claim=claim_of(end.claim, ids.of(end.claim.id), len(uuids)), uuids=uuids,
                ended_at=ended_at, since=min(end.since, ended_at))

        return OwnReport(changed(
            report,
            claims=tuple(changed(entry, claim=claim_of(entry.claim, ids.claims[entry.claim.id],
                                                       GPUS_MOST)) for entry in claims),
            leases=tuple(map(lease_of, report.leases)), ended=tuple(map(end_of, report.ended)),
            refused={ids.claims.get(claim_id, claim_id): why
                     for claim_id, why in report.refused.items()}), ids)

    def forget(self, node_id: str) -> None:
        self._ids.forget(node_id)
        self._reported_at.pop(node_id, None)
        self.foreign.pop(node_id, None)
        if self._times.pop(node_id, None):
            self.store.forget_times(node_id)

    def _note_preempted(self, node_id: str, ends: Iterable[ReportedEnd]) -> None:
        """Note the age of preempted claims: their owners ask again with it."""
        times = self._times.get(node_id, {})
        for end in ends:
            if end.state == "preempted" and (dates := times.get(end.claim.id)) is not None:
                self._preempted[node_id, end.claim.owner] = dates.asked_at

    def _dated(self, node_id: str, own: Iterable[Claim], leases: Iterable[ReportedLease],
               now: float) -> Times:
        """Return the times of claims and leases. What was not in the report before began after
        that; of a node that is new here, now."""
        before, times = self._times.get(node_id, {}), Times()
        earliest = self._reported_at.get(node_id, now)
        self._reported_at[node_id] = now
        for claim in own:
            if claim.home_gpus and claim.id in before:  # it holds nothing now
                times[claim.id] = ClaimTimes(before[claim.id].asked_at)
                continue
            times[claim.id] = before.get(claim.id) or ClaimTimes(_within(
                claim.submitted_at, self._preempted.pop((node_id, claim.owner), earliest)
                if claim.is_again else earliest, now))
        for lease in leases:
            dates = times[lease.claim.id]
            if dates.since is None:
                times[lease.claim.id] = ClaimTimes(dates.asked_at, _within(
                    lease.since, earliest, now))
        new = {claim_id: dates for claim_id, dates in times.items()
               if before.get(claim_id) != dates}
        removed = before.keys() - times.keys()
        if new or removed:
            self.store.put_times(node_id, new, removed)
        self._times[node_id] = times
        return times


def _within(reported: float, earliest: float, now: float) -> float:
    return min(max(reported, earliest), now)

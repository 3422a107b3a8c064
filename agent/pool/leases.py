"""The leases of this node: on disk before they count, and kept by the signs of their use."""

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.link import ENDED_MOST, ReportedEnd

from . import lock
from .clock import PoolClock
from .gpus import PoolSnapshot
from .lock import LeaseSigns, NodeLease, PoolGpu, Review
from .signs import ProcessSigns
from .store import LeaseStore

log = logging.getLogger("gpudeck.agent.pool")

MARKS_EVERY_S = 5.0  # to look through every process is not cheap


class NodeLeases:
    """What cannot be recorded raises JournalError, and changes nothing."""

    def __init__(self, store: LeaseStore, clock: PoolClock, processes: ProcessSigns) -> None:
        self._store = store
        self._clock = clock
        self.processes = processes
        self._marks: dict[str, int] = {}
        self._marked_at = -MARKS_EVERY_S
        self.ended: deque[ReportedEnd] = deque(maxlen=ENDED_MOST)
        found, lost = store.read()
        self.all: Mapping[str, NodeLease] = {each.id: each for each in found}
        if lost:
            log.warning("leases_lost leases=%d why=restart", len(lost))
            store.write(found, {"pool": "lost", "leases": [each.id for each in lost],
                                "why": "the machine restarted"})

    def grant(self, claim: Claim, uuids: tuple[str, ...], gpus: Mapping[str, PoolGpu], uid: int,
              is_run: bool) -> NodeLease | str:
        """The lease, or why not."""
        now = self._clock.now()
        lease = NodeLease(
            id=claim.id, claim=claim, uuids=uuids, uid=uid, is_run=is_run, since=now, used_at=now,
            state="offered" if is_run else "active", until=now + claim.term_s)
        why = lock.refusal(self.all.values(), lease, gpus)
        if why:
            return why
        self.put(lease, {"pool": "granted", "lease": lease.id, "owner": lease.claim.owner,
                         "uuids": list(lease.uuids), "share_milli": lease.claim.share_milli})
        return lease

    def put(self, lease: NodeLease, record: dict[str, Any]) -> None:
        after = {**self.all, lease.id: lease}
        self._store.write(list(after.values()), record)
        self.all = after

    def extend(self, lease: NodeLease, until: float) -> NodeLease:
        after = replace(lease, until=until)
        self.put(after, {"pool": "extended", "lease": lease.id,
                         "by_s": round(until - lease.until, 3)})
        return after

    def end(self, lease: NodeLease, why: str, exit_status: int | None = None) -> None:
        after = {each.id: each for each in self.all.values() if each.id != lease.id}
        self._store.write(list(after.values()), {
            "pool": "released", "lease": lease.id, "why": why, "exit_status": exit_status})
        self.all = after
        utc = self._clock.utc
        self.ended.append(ReportedEnd(
            replace(lease.claim, submitted_at=utc(lease.claim.submitted_at)), lease.uuids,
            utc(lease.since), utc(self._clock.now()), "released", why, exit_status))
        log.info("lease_ended lease=%s owner=%s why=%r", lease.id, lease.claim.owner, why)

    def reviewed(self, lease: NodeLease, snapshot: PoolSnapshot | None, is_connected: bool
                 ) -> Review:
        found = lock.review(lease, self.signs(lease, snapshot, is_connected), self._clock.now())
        if found.lease is None:
            self.end(lease, found.why)
        else:
            # When it was used last is not worth a write each second.
            self.all = {**self.all, lease.id: found.lease}
        return found

    def signs(self, lease: NodeLease, snapshot: PoolSnapshot | None, is_connected: bool,
              is_fresh: bool = False) -> LeaseSigns:
        now = self._clock.now()
        if is_fresh or now - self._marked_at >= MARKS_EVERY_S:
            self._marked_at = now
            self._marks = self.processes.marked(list(self.all), {
                each.id: each.uid for each in self.all.values()})
        on_gpus = snapshot is not None and any(
            each.gpu_uuid in lease.uuids and each.task.uid == lease.uid
            for each in snapshot.tasks)
        # Until they were looked through, a process that was bound counts as one with the mark.
        marked = self._marks.get(lease.id, 1 if lease.process is not None else 0)
        is_alive = lease.process is not None and self.processes.is_alive(lease.process)
        return LeaseSigns(is_connected, is_alive, marked, on_gpus)

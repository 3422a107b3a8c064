"""The leases of this node: on disk before they count, and kept by the signs of their use."""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gpudeck.contract.pool_link import ENDED_MOST, ReportedEnd
from gpudeck.pool.core.claims import Claim, Lease, State
from gpudeck.pool.core.fair_share import EndedUsage, FairSharePolicy
from gpudeck.pool.core.host_resources import GPU_MEMORY, FreeHost
from gpudeck.rate import REFUSALS_AT_ONCE, REFUSALS_EVERY_S, RateLimiter

from ..journal.store import JournalError
from . import lock
from .clock import PoolClock
from .cores import NodeCores, cores_for
from .gpus import PoolSnapshot
from .lock import LeaseSigns, NodeLease, PoolGpu, Review
from .marks import LeaseMarks
from .signs import ProcessSigns
from .store import LeaseStore, SavedUsage
from .uses import LeaseUse, lease_uses, misplaced_gpus, processes_on

log = logging.getLogger("gpudeck.agent.pool")

GIVEN_BACK = "given back"
LEFT_MOST = 256  # of one lease, on disk
FAIR_SHARE = FairSharePolicy()


NOT_READ = "the leases of this node have not been read from its disk yet"


class NodeLeases:
    """Leases of this node. What cannot be recorded raises JournalError and changes nothing. Nothing
    is leased before the leases on disk are known."""

    def __init__(self, store: LeaseStore, clock: PoolClock, processes: ProcessSigns,
                 cores: NodeCores, unused_s: float = lock.UNUSED_TELL_S) -> None:
        self._store = store
        self._unused_s = unused_s
        self._clock = clock
        self.processes = processes
        self._cores = cores
        self._refusals = RateLimiter(REFUSALS_AT_ONCE, REFUSALS_EVERY_S)
        self._preempted: dict[tuple[str, int], float] = {}
        self.ended_leases: deque[ReportedEnd] = deque(maxlen=ENDED_MOST)
        self.past_usage = EndedUsage((), FAIR_SHARE, clock.now())
        self.all: Mapping[str, NodeLease] = {}
        self.marks = LeaseMarks(processes, lambda: self.all, clock.now)
        self._is_read = False

    @property
    def trouble(self) -> str:
        """Reason why no GPU of this node can be leased now; "": nothing here forbids it."""
        return self._store.trouble if self._is_read else NOT_READ

    def read(self) -> None:
        """Read the leases from disk, once. Raises JournalError; may be called again."""
        if self._is_read:
            return
        stored_leases, lost_leases = self._store.read()
        # Whether the driver holds their memory is to be read again.
        leases = [replace(lease, limits=tuple(word for word in lease.limits if word != GPU_MEMORY))
                  for lease in stored_leases]
        if lost_leases:
            log.warning("leases_lost leases=%d why=restart", len(lost_leases))
            self._store.write(leases, {
                "pool": "lost", "leases": [lease.id for lease in lost_leases],
                "why": "the machine restarted"})
        now = self._clock.now()
        if (saved := self._store.read_usage()) is not None:
            self.past_usage = EndedUsage(
                (), FAIR_SHARE, min(self._clock.own(saved.at), now), saved.owners)
        self.all, self._is_read = {lease.id: lease for lease in leases}, True

    def forget_unread(self, owner: str) -> None:
        self._store.forget_unread(list(self.all.values()), owner)
        log.warning("unread_leases_forgotten by=%s", owner)

    def grant(self, claim: Claim, uuids: tuple[str, ...], gpus: Mapping[str, PoolGpu],
              host: FreeHost, uid: int, is_run: bool, mps_pipes: str = "",
              hosts: tuple[str, ...] = ()) -> NodeLease | str:
        """Grant GPUs to a claim: return the lease, or why there is none."""
        now = self._clock.now()
        lease = NodeLease(
            id=claim.id, claim=claim, uuids=uuids, uid=uid, is_run=is_run, since=now, used_at=now,
            state="offered" if is_run else "active", until=now + claim.term_s,
            mps_pipes=mps_pipes, hosts=hosts,
            cores=() if not claim.cpu_milli else cores_for(
                self._cores, claim.cpu_milli, [gpus[uuid] for uuid in uuids if uuid in gpus],
                (other.cores for other in self.all.values())))
        why = self.trouble or lock.refusal(list(self.all.values()), lease, gpus, host)
        if why:
            return why
        self.put(lease, {"pool": "granted", "lease": lease.id, "owner": lease.claim.owner,
                         "uuids": list(lease.uuids), "share_milli": lease.claim.share_milli})
        return lease

    def put(self, lease: NodeLease, record: dict[str, Any]) -> None:
        if not self._is_read:
            raise JournalError(NOT_READ)
        before = self.all.get(lease.id)
        after = {**self.all, lease.id: lease}
        self._store.write(list(after.values()), record)
        self.all = after
        if lease.process is not None and (before is None or before.process != lease.process):
            self.marks.forget(lease.id)

    def record_refusal(self, owner: str, why: str) -> None:
        """Record a refused claim, if that can be recorded: a refusal changes nothing."""
        left_out = self._refusals.due("refused", self._clock.now())
        if left_out is not None:
            with suppress(JournalError):
                self._store.record({"pool": "refused", "owner": owner, "why": why[:500],
                                    "count": left_out + 1})

    def extend(self, lease: NodeLease, until: float) -> NodeLease:
        after = replace(lease, until=until)
        self.put(after, {"pool": "extended", "lease": lease.id,
                         "by_s": round(until - lease.until, 3)})
        return after

    def take_back(self, lease: NodeLease, why: str) -> None:
        """Take back an offered lease that was not bound; its claim goes on waiting."""
        after = {other.id: other for other in self.all.values() if other.id != lease.id}
        self._store.write(list(after.values()), {
            "pool": "waiting", "lease": lease.id, "why": why})
        self.all = after

    def end(self, lease: NodeLease, why: str, exit_status: int | None = None) -> None:
        after = {other.id: other for other in self.all.values() if other.id != lease.id}
        state = lease.end_state
        self._store.write(list(after.values()), {
            "pool": state, "lease": lease.id, "why": why, "exit_status": exit_status})
        self.all = after
        if state == "preempted":
            self._preempted[lease.id, lease.uid] = lease.claim.submitted_at
            for oldest in list(self._preempted)[:-ENDED_MOST]:
                del self._preempted[oldest]
        if not lease.waits:  # what it held until then was reported when its work was suspended
            self.note_end(lease.claim, lease, state, why, exit_status)
        log.info("lease_ended lease=%s owner=%s why=%r", lease.id, lease.claim.owner, why)

    def note_end(self, claim: Claim, lease: NodeLease, state: State, why: str,
                 exit_status: int | None = None) -> None:
        """Note what a lease held until now, to report it as one that has ended."""
        self._charge(claim, lease)
        utc = self._clock.utc
        self.ended_leases.append(ReportedEnd(
            replace(claim, submitted_at=utc(claim.submitted_at)), lease.uuids,
            utc(lease.since), utc(self._clock.now()), state, why, exit_status))

    def _charge(self, claim: Claim, lease: NodeLease) -> None:
        """Count a lease that has ended, for the turns of its owner: after a restart, too."""
        now = self._clock.now()
        self.past_usage.add(Lease(id=claim.id, claim=claim, grants=(), since=lease.since,
                                  until=now, ended_at=now))
        try:
            self._store.write_usage(SavedUsage(self._clock.utc(now), self.past_usage.sums(now)))
        except JournalError as why:
            log.error("usage_not_stored why=%r", str(why))

    def pop_preempted(self, lease_id: str, uid: int) -> float | None:
        """Return since when the claim of a preempted lease waited, once; None: this user had
        none."""
        return self._preempted.pop((lease_id, uid), None)

    def uses(self, snapshot: PoolSnapshot | None) -> tuple[LeaseUse, ...] | None:
        """Return the uses of GPUs by tasks; None: tasks have not been listed yet."""
        if snapshot is None or snapshot.tasks is None:
            return None
        uses = lease_uses(snapshot.tasks, list(self.all.values()), self.marks.all)
        # It may be of a lease that is not understood: nobody is accused for that.
        return tuple(use for use in uses if not use.is_outside) if self.trouble else uses

    def review(self, lease: NodeLease, uses: Sequence[LeaseUse] | None, is_connected: bool,
               keep_until: float | None) -> Review:
        signs = self.signs(lease, uses, is_connected)
        review = lock.review(lease, signs, keep_until, self._unused_s, self._clock.now())
        if review.lease is None:
            self.end(lease, review.why)
            return review
        if not signs.is_alive:
            self.keep_left(lease)
        reviewed = replace(review.lease, left=self.all[lease.id].left)
        if uses is not None and (remaining := lock.remaining_gpus(
                lease, self.marks.of(lease.id), processes_on(lease, uses),
                self._clock.now())) != lease.uuids:
            if not remaining:
                self.end(lease, GIVEN_BACK)
                return Review(None, GIVEN_BACK)
            reviewed = replace(reviewed, uuids=remaining)
            self.put(reviewed, {"pool": "kept", "lease": lease.id, "uuids": list(remaining),
                                "why": "processes that its program left behind use these"})
        wrong = misplaced_gpus(lease, uses or (), list(self.all.values()))
        after = replace(reviewed, misplaced=wrong)
        new = set(wrong) - set(lease.misplaced)
        if not new:
            # When it was used last is not worth a write each second.
            self.all = {**self.all, lease.id: after}
            return review
        self.put(after, {"pool": "misplaced", "lease": lease.id, "uuids": list(wrong)})
        return replace(review, tell=(*review.tell, (
            f"processes of lease {lease.id} use GPUs that are not of it: {', '.join(sorted(new))}; "
            "does the command choose its GPUs itself, or does CUDA count them otherwise "
            "(--ids uuid)?")))

    def is_left_behind(self, lease: NodeLease) -> bool:
        """Return whether processes are there that the lease stays with, its own process apart."""
        own = None if lease.process is None else lease.process.key
        return any(key != own for key in self.marks.of(lease.id))

    def give_back(self, lease: NodeLease) -> None:
        """Give back a lease whose program goes on: it now belongs to what that has left behind."""
        left_behind = tuple(sorted(self.marks.of(lease.id)))[:LEFT_MOST]
        self.put(replace(lease, process=None, left=left_behind, given_back_at=self._clock.now()), {
            "pool": "draining", "lease": lease.id, "pids": [pid for pid, _ in left_behind]})

    def keep_left(self, lease: NodeLease) -> None:
        """Store what is still there when the lease's process has ended: it has to be known after a
        restart of the agent, too, whatever its environment says."""
        there = self.marks.of(lease.id)
        if lease.process is not None and there and set(lease.left).isdisjoint(there):
            left_behind = tuple(sorted(there))[:LEFT_MOST]
            self.put(replace(lease, left=left_behind), {
                "pool": "left", "lease": lease.id, "pids": [pid for pid, _ in left_behind]})

    def user_of(self, lease: NodeLease, snapshot: PoolSnapshot | None, besides: int) -> str:
        """Return what runs on a lease, for people; "": nothing. `besides`: a pid that does not
        count, such as that of the requesting program."""
        pids = {pid for pid, _ in self.marks.of(lease.id)}
        if lease.process is not None and self.processes.is_alive(lease.process):
            pids.add(lease.process.pid)
        pids |= {use.gpu_task.task.pid for use in self.uses(snapshot) or () if use.may_be_of(lease)}
        return ", ".join(f"process {pid}" for pid in sorted(pids - {besides})[:4])

    def signs(self, lease: NodeLease, uses: Sequence[LeaseUse] | None, is_connected: bool
              ) -> LeaseSigns:
        on_gpus = None if uses is None else any(use.may_be_of(lease) for use in uses)
        is_alive = lease.process is not None and self.processes.is_alive(lease.process)
        return LeaseSigns(is_connected, is_alive, self.marks.count(lease), on_gpus)


def leases_on(node_id: str, leases: NodeLeases) -> list[Lease]:
    return [lease.as_lease(node_id) for lease in leases.all.values() if not lease.waits]

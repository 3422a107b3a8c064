"""The leases of this node: on disk before they count, and kept by the signs of their use."""

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gpudeck.pool.core.claims import Claim, Lease
from gpudeck.pool.core.fair_share import EndedUsage, FairSharePolicy
from gpudeck.pool.core.host_resources import FreeHost
from gpudeck.pool.link import ENDED_MOST, ReportedEnd

from ..journal.store import JournalError
from ..telemetry.rate_limit import RefusalCounter
from . import lock
from .clock import PoolClock
from .cores import NodeCores, cores_for
from .gpus import PoolSnapshot
from .lock import LeaseSigns, Marks, NodeLease, PoolGpu, Review
from .signs import ProcessSigns
from .store import LeaseStore
from .uses import LeaseUse, lease_uses, misplaced, processes_on

log = logging.getLogger("gpudeck.agent.pool")

MARKS_EVERY_S = 5.0  # to look through every process is not cheap
GIVEN_BACK = "given back"
LEFT_MOST = 256  # of one lease, on disk


NOT_READ = "the leases of this node have not been read from its disk yet"


class NodeLeases:
    """What cannot be recorded raises JournalError, and changes nothing. Nothing is leased before
    the leases on disk are known."""

    def __init__(self, store: LeaseStore, clock: PoolClock, processes: ProcessSigns,
                 cores: NodeCores, unused_s: float = lock.UNUSED_TELL_S) -> None:
        self._store = store
        self._unused_s = unused_s
        self._clock = clock
        self.processes = processes
        self._cores = cores
        self._marks: Marks = {}
        self._refusals = RefusalCounter()
        self._taken: dict[tuple[str, int], float] = {}
        self._marked_at = -MARKS_EVERY_S
        self.ended: deque[ReportedEnd] = deque(maxlen=ENDED_MOST)
        self.all: Mapping[str, NodeLease] = {}
        self._is_read = False

    @property
    def trouble(self) -> str:
        """Why no GPU of this node can be leased now; "": nothing of this forbids it."""
        return self._store.trouble if self._is_read else NOT_READ

    def read(self) -> None:
        """Raises JournalError; to be tried again."""
        if self._is_read:
            return
        found, lost = self._store.read()
        if lost:
            log.warning("leases_lost leases=%d why=restart", len(lost))
            self._store.write(found, {"pool": "lost", "leases": [each.id for each in lost],
                                      "why": "the machine restarted"})
        self.all, self._is_read = {each.id: each for each in found}, True

    def forget_unread(self, owner: str) -> None:
        self._store.forget_unread(list(self.all.values()), owner)
        log.warning("unread_leases_forgotten by=%s", owner)

    def grant(self, claim: Claim, uuids: tuple[str, ...], gpus: Mapping[str, PoolGpu],
              host: FreeHost, uid: int, is_run: bool, mps_pipes: str = "",
              hosts: tuple[str, ...] = ()) -> NodeLease | str:
        """The lease, or why not."""
        now = self._clock.now()
        lease = NodeLease(
            id=claim.id, claim=claim, uuids=uuids, uid=uid, is_run=is_run, since=now, used_at=now,
            state="offered" if is_run else "active", until=now + claim.term_s,
            mps_pipes=mps_pipes, hosts=hosts,
            cores=() if not claim.cpu_milli else cores_for(
                self._cores, claim.cpu_milli, [gpus[uuid] for uuid in uuids if uuid in gpus],
                (each.cores for each in self.all.values())))
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
            # What was seen of it before says nothing of what begins.
            self._marks = {each: those for each, those in self._marks.items() if each != lease.id}

    def refused(self, owner: str, why: str) -> None:
        """A claim. What changes nothing is refused also where it cannot be recorded."""
        if count := self._refusals.count(self._clock.now()):
            with suppress(JournalError):
                self._store.record({"pool": "refused", "owner": owner, "why": why[:500],
                                    "count": count})

    def extend(self, lease: NodeLease, until: float) -> NodeLease:
        after = replace(lease, until=until)
        self.put(after, {"pool": "extended", "lease": lease.id,
                         "by_s": round(until - lease.until, 3)})
        return after

    def take_back(self, lease: NodeLease, why: str) -> None:
        """It has not begun, and its claim goes on waiting."""
        after = {each.id: each for each in self.all.values() if each.id != lease.id}
        self._store.write(list(after.values()), {
            "pool": "waiting", "lease": lease.id, "why": why})
        self.all = after

    def end(self, lease: NodeLease, why: str, exit_status: int | None = None) -> None:
        after = {each.id: each for each in self.all.values() if each.id != lease.id}
        state = lease.end_state
        self._store.write(list(after.values()), {
            "pool": state, "lease": lease.id, "why": why, "exit_status": exit_status})
        self.all = after
        if state == "preempted":
            self._taken[lease.id, lease.uid] = lease.claim.submitted_at
            for oldest in list(self._taken)[:-ENDED_MOST]:
                del self._taken[oldest]
        utc = self._clock.utc
        self.ended.append(ReportedEnd(
            replace(lease.claim, submitted_at=utc(lease.claim.submitted_at)), lease.uuids,
            utc(lease.since), utc(self._clock.now()), state, why, exit_status))
        log.info("lease_ended lease=%s owner=%s why=%r", lease.id, lease.claim.owner, why)

    def taken(self, lease_id: str, uid: int) -> float | None:
        """Since when a claim of this user waited whose lease was taken from it; None: none was."""
        return self._taken.pop((lease_id, uid), None)

    def look_for_marks(self, is_due: bool = False) -> None:
        now = self._clock.now()
        if is_due or now - self._marked_at >= MARKS_EVERY_S:
            self._marked_at = now
            self._marks = self.processes.marked(
                {each.id: each.uid for each in self.all.values()},
                {each.id: {*each.roots, *self._marks.get(each.id, ())}
                 for each in self.all.values()})

    def look_at_run(self, lease: NodeLease, run_pid: int) -> None:
        """What its command left behind came to its run, which is about to end."""
        if lease.process is not None:
            started = self.processes.started_by(run_pid, lease.process.start_ticks)
            self._marks = {**self._marks, lease.id: {*self._marks.get(lease.id, ()), *started}}

    def uses(self, snapshot: PoolSnapshot | None) -> tuple[LeaseUse, ...] | None:
        """None: nobody has listed the tasks yet."""
        if snapshot is None or snapshot.tasks is None:
            return None
        found = lease_uses(snapshot.tasks, list(self.all.values()), self._marks)
        # It may be of a lease that is not understood: nobody is accused for that.
        return tuple(each for each in found if not each.is_outside) if self.trouble else found

    def reviewed(self, lease: NodeLease, uses: Sequence[LeaseUse] | None, is_connected: bool,
                 keep_until: float | None) -> Review:
        signs = self.signs(lease, uses, is_connected)
        found = lock.review(lease, signs, keep_until, self._unused_s, self._clock.now())
        if found.lease is None:
            self.end(lease, found.why)
            return found
        if not signs.is_alive:
            self.keep_left(lease)
        reviewed = replace(found.lease, left=self.all[lease.id].left)
        if uses is not None and (kept := lock.gpus_kept(
                lease, self._marks.get(lease.id, ()), processes_on(lease, uses),
                self._clock.now())) != lease.uuids:
            if not kept:
                self.end(lease, GIVEN_BACK)
                return Review(None, GIVEN_BACK)
            reviewed = replace(reviewed, uuids=kept)
            self.put(reviewed, {"pool": "kept", "lease": lease.id, "uuids": list(kept),
                                "why": "processes that its program left behind use these"})
        wrong = misplaced(lease, uses or (), list(self.all.values()))
        after = replace(reviewed, misplaced=wrong)
        new = set(wrong) - set(lease.misplaced)
        if not new:
            # When it was used last is not worth a write each second.
            self.all = {**self.all, lease.id: after}
            return found
        self.put(after, {"pool": "misplaced", "lease": lease.id, "uuids": list(wrong)})
        return replace(found, tell=(*found.tell, (
            f"processes of lease {lease.id} use GPUs that are not of it: {', '.join(sorted(new))}; "
            "does the command choose its GPUs itself, or does CUDA count them otherwise "
            "(--ids uuid)?")))

    def is_left_behind(self, lease: NodeLease) -> bool:
        """Whether something is there that the lease stays with, its own process apart."""
        own = None if lease.process is None else lease.process.key
        return any(key != own for key in self._marks.get(lease.id, ()))

    def give_back(self, lease: NodeLease) -> None:
        """By its program, which goes on: from now on it is of what that has left behind."""
        left = tuple(sorted(self._marks.get(lease.id, ())))[:LEFT_MOST]
        self.put(replace(lease, process=None, left=left, given_back_at=self._clock.now()), {
            "pool": "draining", "lease": lease.id, "pids": [pid for pid, _ in left]})

    def keep_left(self, lease: NodeLease) -> None:
        """What is still there when its process has ended has to be known after a restart of the
        agent, too, whatever its environment says."""
        there = self._marks.get(lease.id, ())
        if lease.process is not None and there and set(lease.left).isdisjoint(there):
            left = tuple(sorted(there))[:LEFT_MOST]
            self.put(replace(lease, left=left), {
                "pool": "left", "lease": lease.id, "pids": [pid for pid, _ in left]})

    def user_of(self, lease: NodeLease, snapshot: PoolSnapshot | None, besides: int) -> str:
        """What is on a lease, for people; "": nothing. `besides`: a pid that does not count, as
        that of the program that asks."""
        self.look_for_marks(is_due=True)
        pids = {pid for pid, _ in self._marks.get(lease.id, ())}
        if lease.process is not None and self.processes.is_alive(lease.process):
            pids.add(lease.process.pid)
        pids |= {each.seen.task.pid for each in self.uses(snapshot) or () if each.may_be_of(lease)}
        return ", ".join(f"process {pid}" for pid in sorted(pids - {besides})[:4])

    def signs(self, lease: NodeLease, uses: Sequence[LeaseUse] | None, is_connected: bool
              ) -> LeaseSigns:
        on_gpus = None if uses is None else any(each.may_be_of(lease) for each in uses)
        marked = self._marks.get(lease.id)
        is_alive = lease.process is not None and self.processes.is_alive(lease.process)
        # Until they were looked through, a process that was bound counts as one with the mark.
        return LeaseSigns(is_connected, is_alive, len(marked) if marked is not None else (
            1 if lease.process is not None else 0), on_gpus)


def leases_on(node_id: str, leases: NodeLeases) -> list[Lease]:
    return [each.as_lease(node_id) for each in leases.all.values()]


def had_of(ended: Iterable[ReportedEnd], clock: PoolClock, policy: FairSharePolicy, now: float
           ) -> EndedUsage:
    """What leases of this node that have ended count in the order."""
    return EndedUsage((Lease(
        id=each.claim.id, claim=each.claim, grants=(), since=clock.own(each.since),
        until=clock.own(each.ended_at), ended_at=clock.own(each.ended_at)) for each in ended),
        policy, now)

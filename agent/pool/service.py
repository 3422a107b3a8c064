"""Leases on this node: hears `gpudeck run`, schedules, keeps the lock, takes back what is unused.

Any thread may call it. Work that waits for a disk is done on the thread that asks, or on its own.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpudeck.pool.core.claims import DEFAULT_PRIORITY, Claim
from gpudeck.pool.core.feasibility import why_never, why_waits, words
from gpudeck.pool.core.fragmentation import ClaimMix
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import PlacementContext
from gpudeck.pool.core.schedule import NoOwnerLimits, Pass, PoolPolicy, Queue, run_pass
from gpudeck.pool.link import (
    ENDED_MOST,
    LeaseOffer,
    NodeClaim,
    OfferedGpu,
    PoolPlan,
    PoolReport,
    ReportedEnd,
    ReportedLease,
)
from gpudeck.pool.messages import (
    AskClaim,
    Bind,
    Bound,
    ClaimRefused,
    ClaimWaits,
    Extend,
    FromPool,
    FromUser,
    GiveBack,
    HeldGpus,
    Leased,
    LeasedGpu,
    LeaseEnded,
    LeaseNotice,
    PoolShown,
    ShowPool,
    UnavailableGpu,
    WaitingClaim,
)

from ..journal.store import JournalError
from ..tasks.seen import GpuTask
from . import lock, signs
from .gpus import with_users
from .lock import BIND_WITHIN_S, LeaseSigns, NodeLease, PoolGpu
from .server import PoolUser, uid_of
from .store import LeaseStore

log = logging.getLogger("gpudeck.agent.pool")

LOOK_EVERY_S = 1.0
MARKS_EVERY_S = 5.0
WAITING_OF_ONE_USER_MOST = 32
WAITING_MOST = 1_024
NO_HUB = ("no hub decides here now, and this agent gives out no GPUs by itself; it would with "
          "--local-claims")
USED_STEP_S = 60.0  # when a lease was used last is reported by the minute


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """This node's GPUs and tasks at one moment."""

    gpus: Mapping[str, PoolGpu]
    tasks: Sequence[GpuTask]


@dataclass(slots=True)
class _Waiting:
    claim: Claim
    user: PoolUser
    is_run: bool
    wait_until: float | None
    said: ClaimWaits | None = None


class PoolService:
    def __init__(self, node_id: str, host: str, store: LeaseStore, policy: PoolPolicy,
                 clock: Callable[[], float], wall: Callable[[], float],
                 is_local: bool, changed: Callable[[], None]) -> None:
        """`clock`: seconds since the machine started, which nobody can set. `is_local`: may give
        out GPUs while no hub decides. `changed`: there may be something to `say`."""
        self._node_id = node_id
        self._host = host
        self._store = store
        self._policy = policy
        self._clock = clock
        self._wall = wall
        self._is_local = is_local
        self._changed = changed
        self._lock = threading.RLock()
        self._snapshot: PoolSnapshot | None = None
        self._waiting: dict[str, _Waiting] = {}
        self._users: dict[str, PoolUser] = {}  # lease to who holds the connection
        self._marks: dict[str, int] = {}
        self._marked_at = -MARKS_EVERY_S
        self._is_planned = False  # a hub is there, and decides
        self._refused: dict[str, str] = {}
        self._ended: deque[ReportedEnd] = deque(maxlen=ENDED_MOST)
        self._reported: PoolReport | None = None
        found, lost = store.read()
        self._leases = {each.id: each for each in found}
        for lease in lost:
            log.warning("lease_lost lease=%s owner=%s why=restart", lease.id, lease.claim.owner)
        if lost:
            self._store.write(found, {"pool": "lost", "leases": [each.id for each in lost],
                                      "why": "the machine restarted"})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pool", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=1.0)

    def observe(self, snapshot: PoolSnapshot) -> None:
        self._snapshot = snapshot

    # what the hub says

    def connected(self) -> None:
        """Until it has sent a plan, this hub knows no pool."""
        with self._lock:
            self._is_planned, self._reported = False, None

    def disconnected(self) -> None:
        with self._lock:
            self._is_planned = False

    def hear(self, plan: PoolPlan) -> None:
        with self._lock:
            self._is_planned = True
            gpus = self._gpus()
            try:
                for lease_id, why in plan.give_back.items():
                    if (lease := self._leases.get(lease_id)) is not None and not lease.is_run:
                        self._end(lease, "released", why)
                for offer in plan.offers:
                    self._take_offer(offer, gpus)
            except JournalError as why:
                log.error("lease_not_kept why=%r", str(why))
            for standing in plan.standings:
                if (waiting := self._waiting.get(standing.claim_id)) is not None:
                    self._tell_standing(waiting, ClaimWaits(standing.place, standing.why,
                                                            standing.wait_s))

    def _take_offer(self, offer: LeaseOffer, gpus: Mapping[str, PoolGpu]) -> None:
        waiting = self._waiting.get(offer.claim_id)
        if offer.claim_id in self._leases:
            return
        if waiting is None and offer.claim is None:
            self._refused[offer.claim_id] = "nobody here waits for it any more"
            return
        if waiting is not None:
            self._grant(waiting.claim, offer.uuids, gpus, waiting.user.uid, waiting.is_run)
        elif offer.claim is not None:
            uid = uid_of(offer.claim.owner)
            if uid is None:
                self._refused[offer.claim_id] = f"{self._host} has no user {offer.claim.owner}"
                return
            self._grant(replace(offer.claim, submitted_at=self._clock()), offer.uuids, gpus, uid,
                        is_run=False)

    def say(self) -> tuple[PoolReport, ...]:
        """Only what is new."""
        with self._lock:
            if self._snapshot is None:
                return ()
            report = self._report()
            if report == self._reported:
                return ()
            self._reported = report
            return (report,)

    def _report(self) -> PoolReport:
        now, shift = self._clock(), self._wall() - self._clock()

        def utc(at: float, step: float = 1.0) -> float:
            return round((at + shift) / step) * step

        def claim_of(claim: Claim) -> Claim:
            return replace(claim, submitted_at=utc(claim.submitted_at))

        return PoolReport(
            tuple(OfferedGpu(each.uuid, each.model, each.index, each.is_mig, each.numa,
                             each.clique, each.mem_bytes, each.trouble)
                  for each in self._gpus().values()),
            tuple(NodeClaim(claim_of(each.claim), each.is_run)
                  for each in self._waiting.values()),
            tuple(ReportedLease(claim_of(each.claim), each.uuids, each.state, utc(each.since),
                                utc(each.until), utc(min(each.used_at, now), USED_STEP_S))
                  for each in self._leases.values()),
            tuple(self._ended), dict(self._refused))

    # what users say

    def asked(self, user: PoolUser, message: FromUser, pidfd: int | None) -> None:
        try:
            with self._lock:
                match message:
                    case AskClaim():
                        self._ask(user, message)
                    case Bind():
                        user.send(self._bind(user, message.lease_id, pidfd))
                    case GiveBack():
                        user.send(self._give_back(user, message))
                    case Extend():
                        user.send(self._extend(user, message))
                    case ShowPool():
                        user.send(self._shown())
        except JournalError as why:
            user.send(ClaimRefused(str(why)))

    def left(self, user: PoolUser) -> None:
        """A claim waits as long as its connection; a lease does not depend on it."""
        with self._lock:
            for claim_id, each in list(self._waiting.items()):
                if each.user is user:
                    del self._waiting[claim_id]
            for lease_id, each_user in list(self._users.items()):
                if each_user is user:
                    del self._users[lease_id]
                    lease = self._leases.get(lease_id)
                    if lease is not None and lease.state == "offered":
                        self._end(lease, "released", "its `gpudeck run` ended before it began")

    def _ask(self, user: PoolUser, asked: AskClaim) -> None:
        known = self._leases.get(asked.request_id)
        if known is not None and known.uid == user.uid:
            self._users[known.id] = user
            user.send(self._leased(known))
            return
        why = self._why_not(user, asked)
        if why:
            user.send(ClaimRefused(why))
            return
        claim = self._claim(user, asked)
        self._waiting[claim.id] = _Waiting(
            claim, user, asked.is_run,
            None if asked.wait_s is None else claim.submitted_at + asked.wait_s)
        self._schedule()
        self._give_up()

    def _claim(self, user: PoolUser, asked: AskClaim) -> Claim:
        return Claim(
            id=asked.request_id, owner=user.owner, gpus=asked.gpus, nodes=asked.nodes,
            submitted_at=self._clock(), share_milli=asked.share_milli, mem_bytes=asked.mem_bytes,
            models=asked.models, shape=asked.shape, is_preemptible=asked.is_preemptible,
            term_s=self._policy.default_term_s if asked.term_s is None else asked.term_s,
            priority=DEFAULT_PRIORITY if asked.priority is None else asked.priority)

    def _why_not(self, user: PoolUser, asked: AskClaim) -> str:
        if self._snapshot is None:
            return "the GPUs of this node have not been read yet; try again in some seconds"
        if asked.request_id in self._waiting or asked.request_id in self._leases:
            return "this claim was made already"
        of_user = sum(each.user.uid == user.uid for each in self._waiting.values())
        if of_user >= WAITING_OF_ONE_USER_MOST or len(self._waiting) >= WAITING_MOST:
            return (f"{WAITING_OF_ONE_USER_MOST} claims of yours wait already, or {WAITING_MOST} "
                    "in all: end one first")
        if not self._is_planned and (
                asked.nodes > 1 or any(host != self._host for host in asked.hosts)):
            return "GPUs of other nodes are given out by a hub, and this agent has none now"
        return why_never(self._claim(user, asked), [self._empty()])

    def _bind(self, user: PoolUser, lease_id: str, pidfd: int | None) -> FromPool:
        lease = self._own(user, lease_id)
        if isinstance(lease, ClaimRefused):
            return lease
        process = None if pidfd is None else signs.process_of(pidfd)
        if process is None:
            return ClaimRefused("the process of this lease has ended, or is of another pid "
                                "namespace than the agent")
        now = self._clock()
        self._put(replace(lease, state="active", process=process, used_at=now,
                          until=now + lease.claim.term_s),
                  {"pool": "bound", "lease": lease.id, "pid": process.pid})
        return Bound()

    def _give_back(self, user: PoolUser, message: GiveBack) -> FromPool:
        lease = self._own(user, message.lease_id)
        if isinstance(lease, ClaimRefused):
            return lease
        self._users.pop(lease.id, None)
        if lease.is_run and self._signs(lease, is_fresh=True).marked:
            return LeaseEnded("processes that it started are still there; it ends with them")
        self._end(lease, "released", "given back", exit_status=message.exit_status)
        self._schedule()
        return LeaseEnded("given back")

    def _extend(self, user: PoolUser, message: Extend) -> FromPool:
        lease = self._own(user, message.lease_id)
        if isinstance(lease, ClaimRefused):
            return lease
        lease = replace(lease, until=lease.until + message.by_s)
        self._put(lease, {"pool": "extended", "lease": lease.id, "by_s": message.by_s})
        return self._leased(lease)

    def _own(self, user: PoolUser, lease_id: str) -> NodeLease | ClaimRefused:
        lease = self._leases.get(lease_id)
        if lease is None:
            return ClaimRefused(f"there is no lease {lease_id} here")
        if user.uid not in (lease.uid, 0):
            return ClaimRefused(f"lease {lease_id} is of {lease.claim.owner}")
        return lease

    # the lock

    def _put(self, lease: NodeLease, record: dict[str, object]) -> None:
        """On disk before it counts. Raises JournalError."""
        after = {**self._leases, lease.id: lease}
        self._store.write(list(after.values()), record)
        self._leases = after

    def _end(self, lease: NodeLease, state: str, why: str, exit_status: int | None = None) -> None:
        now, shift = self._clock(), self._wall() - self._clock()
        after = {each.id: each for each in self._leases.values() if each.id != lease.id}
        self._store.write(list(after.values()), {
            "pool": state, "lease": lease.id, "why": why, "exit_status": exit_status})
        self._leases = after
        self._ended.append(ReportedEnd(
            replace(lease.claim, submitted_at=lease.claim.submitted_at + shift), lease.uuids,
            lease.since + shift, now + shift, state, why, exit_status))
        log.info("lease_ended lease=%s owner=%s why=%r", lease.id, lease.claim.owner, why)

    def _schedule(self) -> None:
        """Here, where no hub decides."""
        self._changed()
        if self._is_planned or self._snapshot is None or not self._waiting:
            return
        if not self._is_local:
            for place, each in enumerate(self._waiting.values(), 1):
                self._tell_standing(each, ClaimWaits(place, NO_HUB))
            return
        now, gpus = self._clock(), self._gpus()
        claims = [each.claim for each in self._waiting.values()]
        leases = [each.as_lease(self._node_id) for each in self._leases.values()]
        node = lock.free_node(self._node_id, self._host, gpus.values(), self._leases.values())
        made = run_pass(Queue(waiting=claims, leases=leases, limits=NoOwnerLimits()), [node],
                        self._policy, PlacementContext(mix=ClaimMix(claims)), now)
        for placement in made.offers:
            waiting = self._waiting[placement.claim.id]
            self._grant(placement.claim, placement.grants[0].uuids, gpus, waiting.user.uid,
                        waiting.is_run)
        for place, claim_id in enumerate(made.order, 1):
            self._tell_place(self._waiting[claim_id], place, made, node, now)

    def _gpus(self) -> dict[str, PoolGpu]:
        snapshot = self._snapshot
        return {} if snapshot is None else with_users(
            snapshot.gpus, snapshot.tasks, list(self._leases.values()))

    def _grant(self, claim: Claim, uuids: tuple[str, ...], gpus: Mapping[str, PoolGpu], uid: int,
               is_run: bool) -> None:
        now = self._clock()
        lease = NodeLease(
            id=claim.id, claim=claim, uuids=uuids, uid=uid, is_run=is_run, since=now, used_at=now,
            state="offered" if is_run else "active", until=now + claim.term_s)
        why = lock.refusal(self._leases.values(), lease, gpus)
        if why:
            self._refused[claim.id] = why
            return
        self._put(lease, {"pool": "granted", "lease": lease.id, "owner": lease.claim.owner,
                          "uuids": list(lease.uuids), "share_milli": lease.claim.share_milli})
        self._refused.pop(claim.id, None)
        waiting = self._waiting.pop(claim.id, None)
        if waiting is not None:
            self._users[lease.id] = waiting.user
            waiting.user.send(self._leased(lease))

    def _tell_place(self, waiting: _Waiting, place: int, made: Pass, free: Node, now: float
                    ) -> None:
        claim, shadow = waiting.claim, made.shadow
        wait_s = shadow.at - now if shadow is not None and shadow.claim is claim else None
        why = made.blocked.get(claim.id) or why_waits(claim, [self._empty()], [free])
        self._tell_standing(waiting, ClaimWaits(place, why, wait_s))

    def _tell_standing(self, waiting: _Waiting, said: ClaimWaits) -> None:
        if waiting.said is None or (said.place, said.why) != (waiting.said.place, waiting.said.why):
            waiting.said = said
            waiting.user.send(said)

    def _empty(self) -> Node:
        """This node as if nothing were given out, and all were well."""
        gpus = {} if self._snapshot is None else self._snapshot.gpus
        return lock.free_node(self._node_id, self._host,
                              [replace(each, trouble="") for each in gpus.values()], ())

    # what is looked after

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            try:
                with self._lock:
                    self._review()
                    self._give_up()
                    self._schedule()
            except JournalError as why:
                log.error("lease_not_kept why=%r", str(why))

    def _review(self) -> None:
        now = self._clock()
        for lease in list(self._leases.values()):
            found = lock.review(lease, self._signs(lease), now)
            if found.tell:
                self._tell(lease, found.tell)
            if found.lease is None:
                self._end(lease, "released", found.why)
                if (user := self._users.pop(lease.id, None)) is not None:
                    user.send(LeaseEnded(found.why))
            else:
                # When it was used last is not worth a write each second.
                self._leases[lease.id] = found.lease
        self._refused = {each: why for each, why in self._refused.items() if each in self._waiting}

    def _tell(self, lease: NodeLease, sentence: str) -> None:
        log.info("lease_told lease=%s owner=%s", lease.id, lease.claim.owner)
        if (user := self._users.get(lease.id)) is not None:
            user.send(LeaseNotice(sentence))

    def _signs(self, lease: NodeLease, is_fresh: bool = False) -> LeaseSigns:
        now = self._clock()
        if is_fresh or now - self._marked_at >= MARKS_EVERY_S:
            self._marked_at = now
            self._marks = signs.marked(list(self._leases), {
                each.id: each.uid for each in self._leases.values()})
        on_gpus = self._snapshot is not None and any(
            each.gpu_uuid in lease.uuids and each.task.uid == lease.uid
            for each in self._snapshot.tasks)
        return LeaseSigns(
            lease.id in self._users,
            lease.process is not None and signs.is_alive(lease.process),
            self._marks.get(lease.id, 1 if lease.process is not None else 0), on_gpus)

    def _give_up(self) -> None:
        now = self._clock()
        for claim_id, each in list(self._waiting.items()):
            if each.wait_until is not None and now >= each.wait_until:
                del self._waiting[claim_id]
                each.user.send(ClaimRefused("nothing came free in the time that it waits"))

    # what is shown

    def _leased(self, lease: NodeLease) -> Leased:
        assert self._snapshot is not None
        gpus = self._snapshot.gpus
        return Leased(
            lease.id, self._host, tuple(shown(gpus[uuid]) for uuid in lease.uuids if uuid in gpus),
            self._wall() + lease.until - self._clock(), lease.claim.share_milli,
            lease.claim.mem_bytes, BIND_WITHIN_S,
            tuple(each.uuid for each in gpus.values() if not each.is_mig))

    def _shown(self) -> PoolShown:
        now = self._clock()
        gpus = {} if self._snapshot is None else self._snapshot.gpus
        return PoolShown(
            self._host, tuple(shown(each) for each in gpus.values()),
            tuple(HeldGpus(each.id, each.claim.owner, each.uuids, each.claim.share_milli,
                           each.state, self._wall() + each.until - now, now - each.used_at)
                  for each in self._leases.values()),
            tuple(WaitingClaim(each.claim.owner, words(each.claim), each.said.place,
                               each.said.why, now - each.claim.submitted_at, each.said.wait_s)
                  for each in self._waiting.values() if each.said is not None),
            tuple(UnavailableGpu(each.uuid, each.trouble) for each in self._gpus().values()
                  if each.trouble))


def shown(gpu: PoolGpu) -> LeasedGpu:
    return LeasedGpu(gpu.uuid, gpu.model, gpu.index, gpu.is_mig, gpu.pci_bus_id, gpu.mem_bytes)

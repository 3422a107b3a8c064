"""The pool of this node: gives out its GPUs by the hub's plan, or by its own where it may.

Any thread may call it. Work that waits for a disk is done on the thread that asks, or on its own.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from gpudeck.contract.pool_link import (
    ClaimStanding,
    LeaseOffer,
    NodeMaintenance,
    PoolPlan,
    PoolReport,
    ReservedGpus,
)
from gpudeck.contract.pool_messages import ClaimRefused, ClaimWaits, LeaseEnded, LeaseNotice
from gpudeck.contract.repairs import GpuRepair
from gpudeck.contract.suspensions import SuspendedTask
from gpudeck.measures.availability import UNREAD
from gpudeck.pool.core.ahead import ClaimsAhead, with_ahead
from gpudeck.pool.core.claims import TERM_MOST_S, Claim
from gpudeck.pool.core.feasibility import why_waits
from gpudeck.pool.core.fragmentation import ClaimMix
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.reservations import UnreadGpus, reserved_from
from gpudeck.pool.core.schedule import NoOwnerLimits, Pass, PoolPolicy, Queue, run_pass
from gpudeck.pool.core.strategies import PlacementContext
from gpudeck.pool.core.wait_estimate import known_bound

from ..journal.store import JournalError
from ..tasks.people import NodePeople
from . import lock, views
from .clock import PoolClock
from .ending import PreemptedRuns
from .gpus import PoolSnapshot, host_resources, with_reasons
from .leases import NOT_READ, NodeLeases, leases_on
from .lock import NodeLease, PoolGpu, ProcessKey
from .mps_look import MpsProbe
from .queue import (
    OWNER_UNKNOWN,
    STOPPED,
    UNSETTLED,
    WaitingClaim,
    WaitingClaims,
    WaitingWithdrawals,
)
from .reservations import NodeReservations, StoredReservation
from .server import PoolUser
from .shares import UNKNOWN, ShareHolder
from .suspended import SuspendedLeases

log = logging.getLogger("gpudeck.agent.pool")

LOOK_EVERY_S = 1.0
EXTEND_LEAST_S = 1.0  # less is what clocks differ by
NO_HUB = ("no hub decides about these GPUs now, and this agent does not lease GPUs without one; "
          "start it with --local-claims to allow that")


class PoolService:
    def __init__(self, node_id: str, host: str, leases: NodeLeases,
                 reservations: NodeReservations, policy: PoolPolicy,
                 clock: PoolClock, mps: MpsProbe, is_local: bool, changed: Callable[[], None],
                 people: NodePeople, why_no_end: Callable[[], str],
                 out_of_service: Callable[[], Sequence[GpuRepair]],
                 suspended: Callable[[], Mapping[ProcessKey, SuspendedTask]]) -> None:
        """Set up the pool; `start` begins its loop. `is_local`: may give out GPUs while no hub
        decides. `changed`: there may be a new report. `people`: its users. `why_no_end`: what
        forbids rules to end work here. `out_of_service`: repairs whose GPUs get nothing new.
        `suspended`: processes that are, or may be; raises JournalError."""
        self.node_id = node_id
        self.host = host
        self.leases = leases
        self.reservations = reservations
        self.policy = policy
        self.clock = clock
        self.mps = mps
        self.waiting = WaitingClaims()
        self.withdrawals = WaitingWithdrawals()
        self._why_no_end = why_no_end
        self._no_end = why_no_end()[:1_024]
        self._preempted = PreemptedRuns(leases, clock, why_no_end)
        self.suspended = SuspendedLeases(leases, clock, suspended, partial(tell, self))
        self.users: dict[str, PoolUser] = {}  # by lease: its connection
        self._begins: dict[str, WaitingClaim] = {}  # leases to which nothing is bound yet
        self.lock = threading.RLock()
        self.snapshot: PoolSnapshot | None = None
        self.is_planned = False  # a hub is there, and decides
        self.maintenance: NodeMaintenance | None = None  # as a hub said last
        self._offered: tuple[LeaseOffer, ...] = ()  # of its last plan
        self._owners: Mapping[str, int | str] = {}  # of what it offers: uid, or why there is none
        self.reserved: tuple[ReservedGpus, ...] = ()  # likewise, and as long as it decides
        self.keep_until: Mapping[str, float] = {}  # by lease
        self.unread = UnreadGpus()
        self.is_local = is_local
        self._changed = changed
        self.people = people
        self._out_of_service = out_of_service
        self._reported: PoolReport | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pool", daemon=True)

    def start(self) -> None:
        read_disk(self)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=1.0)

    def gpus(self) -> dict[str, PoolGpu]:
        """Return the GPUs, each with the reason why it is not given out now."""
        snapshot = self.snapshot
        if snapshot is None:
            return {}
        window = self.maintenance
        return with_reasons(
            snapshot, self._out_of_service(),
            window.why if window is not None and (
                self.clock.utc(self.clock.now()) < window.until) else "",
            self.leases.uses(snapshot) or (),
            {uuid for lease in self.leases.all.values() for uuid in lease.uuids},
            self.leases.trouble)

    def empty(self) -> Node:
        """Return this node as if nothing were given out, and all were well."""
        gpus = {} if self.snapshot is None else self.snapshot.gpus
        return lock.free_node(self.node_id, self.host,
                              [replace(gpu, trouble="") for gpu in gpus.values()], (),
                              host_resources(self.snapshot))

    # the hub

    def connected(self) -> None:
        """Start over with a hub that has connected: until it has sent a plan, it knows no pool."""
        with self.lock:
            self.is_planned, self._reported, self._offered = False, None, ()
            self.reserved = ()

    def disconnected(self) -> None:
        with self.lock:
            self.is_planned, self._offered, self.reserved = False, (), ()

    def receive(self, plan: PoolPlan) -> None:
        owners = _owners_of(self.people, plan.offers)
        with self.lock:
            self._owners = owners
            self.is_planned, self._offered = True, plan.offers
            self.maintenance, self.reserved = plan.maintenance, plan.reserved
            self.waiting.refusals.clear()
            self.withdrawals.answer(plan.withdrawn)
            try:
                for lease_id, why in plan.give_back.items():
                    lease = self.leases.all.get(lease_id)
                    if lease is not None and not lease.is_run:
                        self.leases.end(lease, why)
                self.keep_until = {lease_id: self.clock.own(until)
                                    for lease_id, until in plan.keep_until.items()}
                self._preempted.grace_s = plan.grace_s
                self._preempt(plan.preempt)
                for lease_id, utc in plan.extend.items():
                    lease, until = self.leases.all.get(lease_id), self.clock.own(utc)
                    if lease is not None and (
                            EXTEND_LEAST_S <= until - lease.until <= TERM_MOST_S):
                        self.leases.extend(lease, until)
                for offer in plan.offers:
                    self._take(offer)
                    if offer.hosts and offer.claim is None and (
                            offer.claim_id in self.waiting.refusals):
                        self._reported = None  # others hold theirs for it until this is heard
            except JournalError as error:
                log.error("lease_not_kept why=%r", str(error))
            for standing in plan.standings:
                if standing.claim_id in self.leases.all:
                    self.suspended.standings[standing.claim_id] = standing
                    continue
                if (reservation := self.reservations.get(standing.claim_id)) is not None:
                    self._hand_over(reservation, standing)
                    continue
                if (waiting := self.waiting.all.get(standing.claim_id)) is None:
                    continue
                if standing.kept or standing.never:
                    self.waiting.remove(standing.claim_id)
                    if standing.never:
                        _refuse(self.leases, waiting, standing.never)
                    else:
                        waiting.user.send(views.reserved(
                            waiting.claim, standing.kept, self.gpus(), self.clock.utc))
                else:
                    waiting.notify(ClaimWaits(standing.place, standing.why, standing.wait_s,
                                              standing.estimate, standing.elsewhere))

    def _hand_over(self, reservation: StoredReservation, standing: ClaimStanding) -> None:
        """Hand a reservation over: what this node kept without a hub is the hub's from now on."""
        if standing.never:
            self.reservations.drop(
                reservation.claim.id, f"the hub does not keep it: {standing.never}")
            self.people.notify(reservation.uid, [
                f"your reservation {reservation.claim.id} is off: {standing.never}"])
        elif standing.kept:
            self.reservations.drop(reservation.claim.id, "the hub keeps it from now on")

    def _preempt(self, whys: Mapping[str, str]) -> None:
        """Notify the owner. Its work is ended by later commands and by `run` itself."""
        for lease in list(self.leases.all.values()):
            why = whys.get(lease.id, "")
            if why == lease.preempted or lease.waits:
                continue
            self.leases.put(replace(lease, preempted=why, kill_at=None), {
                "pool": "preempting" if why else "kept", "lease": lease.id, "why": why})
            text = (f"GPUs are taken back: {why}" if why else "GPUs are not taken back after all")
            user = self.users.get(lease.id)
            if user is not None:
                user.send(LeaseNotice(f"these {text}", None if why else "no"))
            if user is None or lease.is_program:
                self.people.notify(lease.uid, [f"lease {lease.id}: its {text}"])

    def _take(self, offer: LeaseOffer) -> None:
        lease = self.leases.all.get(offer.claim_id)
        if lease is not None:
            if lease.waits and (why := _give_again(self, lease, offer.uuids)):
                self.waiting.refusals[lease.id] = why
            return
        waiting = self.waiting.all.get(offer.claim_id)
        if waiting is not None:
            self._grant(waiting.claim, offer.uuids, waiting.user.uid, waiting.is_run,
                        waiting.limits_itself, offer.hosts)
        elif offer.claim is None:
            self.waiting.refusals[offer.claim_id] = "its requester is gone"
        elif isinstance(uid := self._owners.get(offer.claim.owner, OWNER_UNKNOWN), str):
            self.waiting.refusals[offer.claim_id] = uid[:1_024]
        else:
            self._grant(replace(offer.claim, submitted_at=self.clock.now()), offer.uuids, uid,
                        is_run=False, hosts=offer.hosts)

    def poll(self) -> tuple[PoolReport, ...]:
        """Return the report, if it is new."""
        with self.lock:
            if self.snapshot is None or self.leases.trouble == NOT_READ:
                return ()
            report = views.report(self.gpus().values(), self.waiting,
                                  [reservation.claim for reservation in self.reservations],
                                  self.leases.all.values(),
                                  self.leases.uses(self.snapshot) or (),
                                  self.leases.ended_leases,
                                  self.withdrawals, self.people.groups_of,
                                  self.snapshot.managed_by, self.snapshot.host, self._no_end,
                                  self.clock.utc)
            if report == self._reported:
                return ()
            self._reported = report
            return (report,)

    # giving out GPUs

    def schedule(self) -> None:
        """Schedule on this node, where no hub decides."""
        self._changed()
        if self.is_planned:
            return
        self.keep_until = {}
        suspended = self.suspended.waiting
        if self.snapshot is None or not (self.waiting.all or len(self.reservations) or suspended):
            return
        if not self.is_local:
            for lease in suspended:  # nobody else gets them meanwhile
                _give_again(self, lease, lease.home_gpus)
            for place, waiting_claim in enumerate(self.waiting, 1):
                waiting_claim.notify(ClaimWaits(place, NO_HUB))
            return
        now = self.clock.now()
        claims = [*(waiting_claim.claim for waiting_claim in self.waiting),
                  *map(views.waiting_claim, suspended)]
        node_leases, leases = self.leases.all.values(), leases_on(self.node_id, self.leases)
        self.reservations.renew([_well(self)], leases, self.policy.strategy)
        node = lock.free_node(self.node_id, self.host, self.gpus().values(), node_leases,
                              self.snapshot.host)
        outcome = run_pass(
            Queue(waiting=claims, leases=leases,
                  past_usage=self.leases.past_usage,
                  bookings=self.reservations.bookings(), limits=NoOwnerLimits(),
                  paused=self.waiting.paused), [node],
            self.policy, PlacementContext(mix=ClaimMix(claims)), now)
        for placement in outcome.offers:
            uuids, waiting = placement.grants[0].uuids, self.waiting.all.get(placement.claim.id)
            if (suspended_lease := self.leases.all.get(placement.claim.id)) is not None:
                _give_again(self, suspended_lease, uuids)
            elif waiting is None:
                self._begin(placement.claim.id, uuids, now)
            else:
                self._grant(placement.claim, uuids, waiting.user.uid, waiting.is_run,
                            waiting.limits_itself)
        self.keep_until = {lease.id: until for lease in node_leases
                            if (until := outcome.kept_until(self.node_id, lease.uuids)) is not None}
        waits = [claim_id for claim_id in outcome.order if claim_id in self.waiting.all]
        ahead = ClaimsAhead((self.waiting.all[claim_id].claim for claim_id in outcome.competing
                             if claim_id in self.waiting.all), outcome.pinned,
                            {gpu.model for gpu in self.empty().gpus}, lambda claim: frozenset())
        for place, claim_id in enumerate(waits, 1):
            self._notify_place(claim_id, place, outcome, node, ahead, now)

    def reserve(self, claim: Claim, uid: int) -> StoredReservation:
        """Reserve GPUs. Raises ReservationError."""
        _look_for_unread(self)
        return self.reservations.reserve(
            claim, uid, _well(self),
            lambda: _well(self, {uuid for _, uuid in self.unread.recent(self.clock.now())}),
            leases_on(self.node_id, self.leases), self.policy.strategy)

    def _begin(self, claim_id: str, uuids: tuple[str, ...], now: float) -> None:
        """Begin a reservation whose time has come; drop it only when the lease is on disk."""
        reservation = self.reservations.get(claim_id)
        if reservation is None:
            return
        lease = self.leases.grant(replace(reservation.claim, submitted_at=now), uuids, self.gpus(),
                                  host_resources(self.snapshot), reservation.uid, is_run=False)
        if isinstance(lease, str):
            log.info("reservation_waits claim=%s why=%r", claim_id, lease)
            return
        self.reservations.drop(claim_id, "it has begun")

    def _notify_place(self, claim_id: str, place: int, outcome: Pass, free: Node,
                      ahead: ClaimsAhead, now: float) -> None:
        waiting, shadow = self.waiting.all[claim_id], outcome.shadow
        is_head = shadow is not None and shadow.claim.id == claim_id
        why = outcome.blocked.get(claim_id) or with_ahead(why_waits(
            waiting.claim, [self.empty()], [free],
            {(self.node_id, uuid): gpu.trouble for uuid, gpu in self.gpus().items() if gpu.trouble},
            {gpu: self.clock.utc(at) for gpu, at in reserved_from(
                self.reservations.bookings()).items()}, self.clock.utc(now)),
            ahead.of(waiting.claim))
        waiting.notify(ClaimWaits(
            place, why, known_bound(shadow.at - now) if is_head and shadow else None))

    def _grant(self, claim: Claim, uuids: tuple[str, ...], uid: int, is_run: bool,
               limits_itself: bool = False, hosts: tuple[str, ...] = ()) -> None:
        waits = self.waiting.all.get(claim.id)
        if waits is not None and self.leases.processes.is_stopped(waits.user.peer_pid):
            waits.paused = self.waiting.refusals[claim.id] = STOPPED
            return
        holder = ShareHolder()
        if claim.is_share:
            holder = self.mps.holder_of(uid, self.leases.all.values())
        if holder.why and not limits_itself:
            waiting = None if holder.why == UNKNOWN else self.waiting.remove(claim.id)
            if waiting is None:
                self.waiting.refusals[claim.id] = holder.why
            else:
                _refuse(self.leases, waiting, holder.why)
            return
        lease = self.leases.grant(claim, uuids, self.gpus(), host_resources(self.snapshot),
                                  uid, is_run, holder.pipes, hosts)
        if isinstance(lease, str):
            self.waiting.refusals[claim.id] = lease
            return
        waiting = self.waiting.remove(claim.id)
        if waiting is not None:
            self.users[lease.id] = waiting.user
            self._begins[lease.id] = waiting
            waiting.user.send(views.leased(lease, self.host, self.gpus(), self.clock.utc))

    # the loop

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            self.mps.probe_if_requested()
            self.step()
            with self.lock:
                users = {*self.users.values(), *(waiting.user for waiting in self.waiting)}
            for user in users:
                user.flush()

    def step(self) -> None:
        if self.leases.trouble == NOT_READ:
            read_disk(self)
        marks = self.leases.marks
        try:
            scan = marks.scan_if_due()
            owners = _owners_of(self.people, self._offered)
            with self.lock:
                self._owners = owners
                if scan is not None:
                    marks.take(scan)
                self._review()
                self._no_end = self._why_no_end()[:1_024]
                self.waiting.update_paused(self.leases.processes.is_stopped)
                for offer in self._offered:  # MPS, or the user table, has answered meanwhile
                    if self.waiting.refusals.get(offer.claim_id) in UNSETTLED:
                        self._take(offer)
                self.waiting.give_up(self.clock.now())
                self.withdrawals.give_up(self.clock.now())
                _look_for_unread(self)
                self.schedule()
        except JournalError as why:
            log.error("lease_not_kept why=%r", str(why))
        except OSError as why:  # what runs could not be looked at: no lease ends for that
            log.error("leases_not_reviewed why=%r", str(why))

    def _review(self) -> None:
        self._begins = {lease_id: begins for lease_id, begins in self._begins.items()
                        if lease_id in self.leases.all
                        and self.leases.all[lease_id].state == "offered"}
        uses = self.leases.uses(self.snapshot)
        self.suspended.step(uses)
        self._preempted.step(self.users, uses)
        for lease in list(self.leases.all.values()):
            user = self.users.get(lease.id)
            begins = self._begins.get(lease.id)
            if user is not None and begins is not None and _is_late(lease, self.clock.now()):
                self.leases.take_back(lease, lock.NOT_CLAIMED)
                del self.users[lease.id]
                self.waiting.all[lease.id] = replace(begins, standing=None)
                continue
            review = self.leases.review(lease, uses, user is not None,
                                        self.keep_until.get(lease.id))
            for text in review.tell:
                log.info("lease_told lease=%s owner=%s text=%r", lease.id, lease.claim.owner, text)
                if user is not None:
                    user.send(LeaseNotice(text))
                if user is None or lease.is_program:  # which works, and reads nothing meanwhile
                    self.people.notify(lease.uid, [text])
            if review.lease is None:
                self.users.pop(lease.id, None)
                if user is not None:
                    user.send(LeaseEnded(review.why, lease.end_state))


def tell(service: PoolService, lease: NodeLease, text: str) -> None:
    user = service.users.get(lease.id)
    if user is not None:
        user.send(LeaseNotice(text))
    if user is None or lease.is_program:  # which works, and reads nothing meanwhile
        service.people.notify(lease.uid, [f"lease {lease.id}: {text}"])


def _give_again(service: PoolService, lease: NodeLease, uuids: Sequence[str]) -> str:
    """Give a lease whose work is suspended its GPUs again; return why not."""
    return service.suspended.give(lease, uuids, service.gpus(), service.snapshot,
                                  service.is_planned)


def read_disk(service: PoolService) -> None:
    """Read what is on disk. Retried each second; until it works nothing is leased."""
    try:
        with service.lock:
            service.reservations.read()
            service.leases.read()
    except JournalError as why:
        log.error("pool_not_read why=%r", str(why))


def _look_for_unread(service: PoolService) -> None:
    """Note since when GPUs are not read, as long as no hub decides about them."""
    service.unread.update(() if service.is_planned or not service.is_local else [
        (service.node_id, uuid) for uuid, gpu in service.gpus().items() if gpu.reason in UNREAD],
        service.clock.now())


def _owners_of(people: NodePeople, offers: Sequence[LeaseOffer]) -> dict[str, int | str]:
    """Return the uids of owners whose claims were not made here, or why one has none. Waits a
    moment, so it is called without the lock."""
    return people.uids_of({offer.claim.owner for offer in offers if offer.claim is not None})


def _is_late(lease: NodeLease, now: float) -> bool:
    """Return whether an offered lease was not bound in time, as when its run was stopped."""
    return lease.state == "offered" and now - lease.since >= lock.BIND_WITHIN_S


def _refuse(leases: NodeLeases, waiting: WaitingClaim, why: str) -> None:
    leases.record_refusal(waiting.claim.owner, why)
    waiting.user.send(ClaimRefused(why))


def _well(service: PoolService, besides: Collection[str] = ()) -> Node:
    """Return this node with its healthy GPUs, as if nothing were given out. `besides`: GPUs
    that count whatever the reason why they are not available."""
    gpus = [replace(gpu, trouble="") if uuid in besides else gpu
            for uuid, gpu in service.gpus().items()]
    return lock.free_node(service.node_id, service.host, gpus, (),
                          host_resources(service.snapshot))

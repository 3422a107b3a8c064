"""Requests of this node's users to its pool, over the socket."""

import threading
import time
from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace

from gpudeck.contract.pool_link import ReservedGpus
from gpudeck.contract.pool_messages import (
    AskClaim,
    Bind,
    Bound,
    CancelClaim,
    ClaimCancelled,
    ClaimRefused,
    Extend,
    FromPool,
    FromUser,
    GiveBack,
    LeaseEnded,
    ShowPool,
    UseLease,
)
from gpudeck.pool.core.claims import DEFAULT_PRIORITY, WHOLE_MILLI, Claim
from gpudeck.pool.core.feasibility import why_never
from gpudeck.pool.core.reservations import ReservationError, UnreadGpusError
from gpudeck.pool.process_limits import limits_of

from ..journal.store import JournalError
from . import views
from .gpus import host_resources
from .leases import GIVEN_BACK, NOT_READ
from .lock import NOT_CLAIMED, NodeLease, ProcessKey
from .marks import MarkScan
from .queue import ROOT, WaitingClaim
from .server import PoolUser
from .service import NO_HUB, PoolService
from .store import UNREAD

WAITS = "its work is suspended, and it waits in the queue for its GPUs"
MADE_ALREADY = "this claim was made already"
READ_WITHIN_S, READ_EVERY_S = 30.0, 0.1  # after the agent's start


class _RefusedError(Exception):
    """Refusal, as a sentence for people. `waits`: the claim of the lease in question still
    waits."""

    def __init__(self, why: str, waits: bool = False) -> None:
        super().__init__(why)
        self.waits = waits


class PoolRequests:
    def __init__(self, service: PoolService) -> None:
        self._service = service
        self._read_until = time.monotonic() + READ_WITHIN_S
        self._turns: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)  # by uid

    def handle(self, user: PoolUser, message: FromUser, pidfd: int | None) -> None:
        if isinstance(message, AskClaim):
            self._prepare(user, message)
        if isinstance(message, Bind | GiveBack) and self._service.leases.trouble == NOT_READ:
            return user.hang_up()  # it asks again: who has a lease must not read that it has ended
        try:
            # One request of each user waits for the pool, however many connections they have.
            with self._turns[user.uid]:
                scan = self._scan(user, message)
                with self._service.lock:
                    answer = self._answer(user, message, pidfd, scan)
                    if answer is not None:
                        user.send(answer)
        except (JournalError, _RefusedError, OSError) as why:
            if isinstance(message, AskClaim):
                self._service.leases.record_refusal(user.owner, str(why))
            user.send(ClaimRefused(str(why)[:1_024], isinstance(why, _RefusedError) and why.waits))

    def _prepare(self, user: PoolUser, request: AskClaim) -> None:
        """Do the slow part without the lock. Waiting runs ask an agent that has just started, and
        must not be refused for that."""
        while _is_early(self._service, request) and time.monotonic() < self._read_until:
            time.sleep(READ_EVERY_S)
        if request.share_milli < WHOLE_MILLI:
            self._service.mps.probe()
        # Groups are for a hub's quotas. One that comes later must not wait for them.
        if self._service.is_planned or not self._service.is_local:
            self._service.people.look_up(user.uid)
        else:
            self._service.people.groups_of(user.uid)

    def drop_user(self, user: PoolUser) -> None:
        """Forget a user who left. A claim lasts as long as its connection; a lease does not."""
        service = self._service
        with service.lock:
            service.waiting.drop_user(user)
            service.withdrawals.drop_user(user)
            for lease_id in [key for key, holder in service.users.items() if holder is user]:
                del service.users[lease_id]
                lease = service.leases.all.get(lease_id)
                if lease is not None and lease.state == "offered":
                    service.leases.end(lease, "its `gpudeck run` ended before it began")

    def _scan(self, user: PoolUser, message: FromUser) -> MarkScan | None:
        """Look through all processes for a request that goes by them. None: this one does not, or
        not yet. One that is refused anyway, however often it comes, takes no scan."""
        if not isinstance(message, GiveBack | UseLease):
            return None
        if isinstance(message, UseLease):
            _usable(self._own(user, message.lease_id), user, message.is_run)
            if not message.is_run:
                return None
        leases, orphans = self._service.leases, dict[str, Collection[ProcessKey]]()
        lease = leases.all.get(message.lease_id)
        if lease is None or user.uid not in (lease.uid, ROOT):
            return None
        process = lease.process
        if process is not None and isinstance(message, GiveBack) and (
                not _is_own(lease, user) and leases.processes.is_alive(process)):
            return None  # it may still leave something behind
        if process is not None and lease.run is not None and (
                lease.run == leases.processes.key_of(user.peer_pid)):
            # What the command left behind became a child of its run, which is about to end.
            orphans[lease.id] = leases.processes.started_by(user.peer_pid, process.start_ticks)
        return leases.marks.scan(orphans)

    def _take(self, scan: MarkScan | None, user: PoolUser, message: GiveBack | UseLease,
              lease: NodeLease) -> None:
        """Take over a scan; if the lease has changed since, a new one, which seldom happens."""
        marks = self._service.leases.marks
        if scan is None or not scan.is_of(lease, marks.all):
            scan = self._scan(user, message)
        if scan is not None:
            marks.take(scan)

    def _answer(self, user: PoolUser, message: FromUser, pidfd: int | None,
                scan: MarkScan | None) -> FromPool | None:
        match message:
            case AskClaim():
                return self._ask(user, message)
            case Bind():
                return self._bind(user, self._own(user, message.lease_id), pidfd)
            case UseLease():
                return self._use(user, message, scan)
            case CancelClaim():
                return self._cancel(user, message.claim_id)
            case GiveBack(lease_id=id) if id == UNREAD:
                return self._forget_unread(user)
            case GiveBack():
                return self._give_back(user, message, scan)
            case Extend():
                return self._extend(user, self._own(user, message.lease_id), message.by_s)
            case ShowPool():
                return self._show_pool()

    def _show_pool(self) -> FromPool:
        service, utc = self._service, self._service.clock.utc
        reserved = [*service.reserved, *(ReservedGpus(
            booking.claim.id, booking.claim.owner, tuple(uuid for _, uuid in booking.gpus),
            utc(booking.starts_at), utc(booking.ends_at))
            for booking in service.reservations.bookings())]
        return views.pool_view(service.host, service.gpus(), service.leases.all.values(),
                               service.waiting, service.suspended.standings,
                               [reservation.claim for reservation in service.reservations],
                               reserved, host_resources(service.snapshot), service.clock.now(), utc)

    def _ask(self, user: PoolUser, request: AskClaim) -> FromPool | None:
        service = self._service
        existing = service.leases.all.get(request.request_id)
        if existing is not None and existing.uid == user.uid:
            service.users[existing.id] = user
            return self._leased(existing)
        waits = service.waiting.all.get(request.request_id)
        if waits is not None and waits.user.uid != user.uid:
            raise _RefusedError(MADE_ALREADY)
        claim = self._claim(user, request) if waits is None else waits.claim
        if why := self._why_not(user, request, claim):
            raise _RefusedError(why)
        if claim.starts_at is not None and not service.is_planned:
            return self._reserve(claim, user.uid)
        # Requested again it keeps its place, and waits no longer for that.
        wait_until = waits.wait_until if waits is not None else (
            None if request.wait_s is None else service.clock.now() + request.wait_s)
        service.waiting.all[claim.id] = WaitingClaim(claim, user, request.is_run, wait_until,
                                                     request.limits_itself)
        service.schedule()
        if not service.is_planned:  # a hub gets a moment to answer
            service.waiting.give_up(service.clock.now())
        return None

    def _reserve(self, claim: Claim, uid: int) -> FromPool:
        service = self._service
        try:
            reservation = service.reserve(claim, uid)
        except UnreadGpusError as why:
            raise _RefusedError(f"{why}; try again in some seconds") from why
        except ReservationError as why:
            raise _RefusedError(str(why) + ("" if why.first is None else (
                "; they are from " + time.strftime("%a %d %b %H:%M", time.localtime(
                    service.clock.utc(why.first) + 59.999))))) from why
        service.schedule()
        return views.reserved(claim, reservation.uuids, service.gpus(), service.clock.utc)

    def _claim(self, user: PoolUser, request: AskClaim) -> Claim:
        service = self._service
        since = None if request.again_of is None else (
            service.leases.pop_preempted(request.again_of, user.uid))
        return Claim(
            id=request.request_id, owner=user.owner, gpus=request.gpus, nodes=request.nodes,
            submitted_at=service.clock.now() if since is None else since,
            is_again=since is not None, share_milli=request.share_milli,
            mem_bytes=request.mem_bytes, cpu_milli=request.cpu_milli, ram_bytes=request.ram_bytes,
            models=request.models, hosts=request.hosts, shape=request.shape,
            is_preemptible=request.is_preemptible, is_suspendable=request.is_suspendable,
            home=service.node_id if request.nodes > 1 else "",
            starts_at=None if request.starts_at is None else service.clock.own(request.starts_at),
            term_s=service.policy.default_term_s if request.term_s is None else request.term_s,
            priority=DEFAULT_PRIORITY if request.priority is None else request.priority)

    def _why_not(self, user: PoolUser, request: AskClaim, claim: Claim) -> str:
        service = self._service
        if service.snapshot is None:
            return "the GPUs of this node have not been read yet; try again in some seconds"
        if service.leases.trouble:
            return service.leases.trouble
        if by := service.snapshot.managed_by:
            return f"{by} assigns the GPUs of this node; ask it for them"
        if claim.id in service.leases.all:
            return MADE_ALREADY
        if any(host != service.host for host in request.hosts):
            return "this agent leases only GPUs of its own node; run it on the node that has them"
        if request.nodes > 1 and not (request.is_run and service.is_planned):
            return "GPUs of several nodes are leased for a run, by a hub; no hub decides here now"
        if request.is_suspendable and not request.is_preemptible:
            return "a claim may be suspendable only if it is preemptible: ask for both"
        if request.starts_at is not None and request.is_run:
            return "a running command cannot be reserved"
        if request.starts_at is not None and not (service.is_planned or service.is_local):
            return NO_HUB
        if not service.is_planned and (why := service.policy.limits_at_node(user.owner).refusal(
                claim, [
                    *(other.claim for other in service.waiting if other.user.uid == user.uid),
                    *(other.claim for other in service.reservations if other.uid == user.uid)])):
            return why
        here = replace(claim, nodes=1, home="")  # of others this node knows nothing
        why = service.waiting.why_no_more(user) or why_never(here, [service.empty()])
        if why or not claim.is_share or request.limits_itself:
            return why
        return service.mps.holder_of(user.uid, service.leases.all.values()).why

    def _own(self, user: PoolUser, lease_id: str) -> NodeLease:
        lease = self._service.leases.all.get(lease_id)
        waits = self._service.waiting.all.get(lease_id)
        if lease is None and waits is not None and waits.user.uid == user.uid:
            raise _RefusedError(NOT_CLAIMED, waits=True)
        if lease is None:
            raise _RefusedError(f"there is no lease {lease_id} here")
        if user.uid not in (lease.uid, ROOT):
            raise _RefusedError(f"lease {lease_id} is of {lease.claim.owner}")
        return lease

    def _use(self, user: PoolUser, request: UseLease, scan: MarkScan | None) -> FromPool:
        """Return a lease for use. Whether a run gets it is decided when its command is bound: of
        two that ask at once one is too late."""
        lease = _usable(self._own(user, request.lease_id), user, request.is_run)
        if request.is_run:
            self._take(scan, user, request, lease)
            if user_of := self._service.leases.user_of(
                    lease, self._service.snapshot, user.peer_pid):
                raise _RefusedError(f"{user_of} runs on lease {lease.id} already")
        return self._leased(lease)

    def _cancel(self, user: PoolUser, claim_id: str) -> FromPool | None:
        service = self._service
        waiting = service.waiting.all.get(claim_id)
        if waiting is not None:
            if user.uid not in (waiting.user.uid, ROOT):
                raise _RefusedError(f"claim {claim_id} is of {waiting.claim.owner}")
            service.waiting.remove(claim_id)
            waiting.user.send(ClaimRefused(f"it was cancelled by {user.owner}"))
            service.schedule()
            return ClaimCancelled()
        if (reservation := service.reservations.get(claim_id)) is not None:
            if user.uid not in (reservation.uid, ROOT):
                raise _RefusedError(f"reservation {claim_id} is of {reservation.claim.owner}")
            service.reservations.drop(claim_id, f"it was cancelled by {user.owner}")
            service.schedule()
            return ClaimCancelled()
        if claim_id in service.leases.all:
            if self._own(user, claim_id).waits:
                raise _RefusedError(f"{WAITS}; end its command instead")
            raise _RefusedError("it holds its GPUs already: gpudeck claim --give-back "
                                f"{claim_id}; for a run, end the command")
        if not service.is_planned or claim_id in service.withdrawals.all:
            raise _RefusedError(f"no claim {claim_id} waits here" if not service.is_planned else
                                "it is being cancelled")
        if why := service.waiting.why_no_more(user):
            raise _RefusedError(why)
        service.withdrawals.put(claim_id, user, service.clock.now())
        service.schedule()
        return None

    def _bind(self, user: PoolUser, lease: NodeLease, pidfd: int | None) -> FromPool:
        """Bind a process to a lease; also for a run that has reconnected."""
        process = None if pidfd is None else self._service.leases.processes.process_of(
            pidfd, lease.uid)
        if process is None:
            raise _RefusedError("the process of this lease has ended, is another user's, or of "
                                "another pid namespace than the agent")
        is_program = process.pid == user.peer_pid
        run = None if is_program else self._service.leases.processes.key_of(user.peer_pid)
        if process != lease.process:
            if lease.process is not None and self._service.leases.processes.is_alive(lease.process):
                raise _RefusedError(f"process {lease.process.pid} runs on lease {lease.id} already")
            now = self._service.clock.now()
            until = now + lease.claim.term_s if lease.state == "offered" else lease.until
            self._service.leases.put(
                replace(lease, state="active", process=process, is_run=True, used_at=now,
                        until=until, is_program=is_program, run=run, left=(),
                        limits=limits_of(process.pid, lease.cores, lease.claim.ram_bytes)),
                {"pool": "bound", "lease": lease.id, "pid": process.pid})
        elif run is not None and lease.run is None and not lease.is_program:
            # It was bound by an older agent, which did not store this.
            self._service.leases.put(replace(lease, run=run), {
                "pool": "bound", "lease": lease.id, "pid": process.pid})
        self._service.users[lease.id] = user
        return Bound()

    def _forget_unread(self, user: PoolUser) -> FromPool:
        if user.uid != ROOT:
            raise _RefusedError("only root can end leases that are not understood")
        self._service.leases.forget_unread(user.owner)
        self._service.schedule()
        return LeaseEnded(GIVEN_BACK, "released")

    def _give_back(self, user: PoolUser, request: GiveBack, scan: MarkScan | None) -> FromPool:
        """End a lease, or leave it draining. A run's lease ends with its command and all that this
        has started, no matter who gives it back and when; a program may go on without its lease."""
        service, lease = self._service, self._own(user, request.lease_id)
        process, is_own = lease.process, _is_own(lease, user)
        if process is not None and not is_own and service.leases.processes.is_alive(process):
            return LeaseEnded(f"process {process.pid} still runs on it; it ends with that",
                              "draining")
        self._take(scan, user, request, lease)
        service.users.pop(lease.id, None)
        if lease.is_run and service.leases.is_left_behind(lease):
            if is_own:
                service.leases.give_back(lease)
            else:
                service.leases.keep_left(lease)
            return LeaseEnded("processes that it started are still there; it ends with them",
                              "draining")
        service.leases.end(lease, lease.preempted or GIVEN_BACK, request.exit_status)
        service.schedule()
        return LeaseEnded(lease.preempted or GIVEN_BACK, lease.end_state)

    def _extend(self, user: PoolUser, lease: NodeLease, by_s: float) -> FromPool:
        service, now = self._service, self._service.clock.now()
        limits = service.policy.limits_at_node(user.owner)
        if why := limits.too_long(lease.until + by_s, now):
            raise _RefusedError(why)
        is_waited_for = lease.id in service.keep_until or any(
            other.user.uid != lease.uid and (other.claim.starts_at or now) <= now
            for other in service.waiting)
        if is_waited_for and not limits.extends_while_waited:
            raise _RefusedError("others wait for GPUs of this node, so the lease is not extended; "
                                "it is renewed while it is used, as far as nobody else begins "
                                "there")
        return self._leased(self._service.leases.extend(lease, lease.until + by_s))

    def _leased(self, lease: NodeLease) -> FromPool:
        service = self._service
        return views.leased(lease, service.host, service.gpus(), service.clock.utc)


def _is_early(service: PoolService, request: AskClaim) -> bool:
    """Return whether something that the request needs has not come since the start: a reading, the
    leases on disk, and for a reservation the list of tasks, and the first plan of the hub that
    decides."""
    snapshot = service.snapshot
    return snapshot is None or service.leases.trouble == NOT_READ or (
        request.starts_at is not None and (
            snapshot.tasks is None or not (service.is_planned or service.is_local)))


def _usable(lease: NodeLease, user: PoolUser, is_run: bool) -> NodeLease:
    """Return a lease if it may be used, as far as no process is in the way."""
    if lease.uid != user.uid:
        raise _RefusedError(f"lease {lease.id} is of {lease.claim.owner}; run it as them")
    if lease.given_back_at is not None:
        raise _RefusedError(f"lease {lease.id} was given back; it ends with what was left "
                            "running on it")
    if lease.waits:
        raise _RefusedError(WAITS)
    if is_run and (lease.preempted or lease.state != "active"):
        raise _RefusedError(lease.preempted or "it has not begun")
    return lease


def _is_own(lease: NodeLease, user: PoolUser) -> bool:
    """Return whether the program that has this lease asks itself."""
    return (lease.is_program and lease.process is not None
            and lease.process.pid == user.peer_pid)

"""Leases that are being taken back: for a claim of higher priority, or since they are overdue."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gevent

from gpudeck.pool.core.claims import Claim, Grant, Lease
from gpudeck.pool.core.feasibility import words
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.preemption import Preemption, overdue, preemption

from .bookings import PoolBookings

log = logging.getLogger("gpudeck.pool")

AT_ONCE = 4
GIVE_UP_S = 1_800.0  # a lease that could not be ended by then will not be
AGAIN_AFTER_S = 300.0  # it was not to be
EXTENDED = "the lease was extended"


@dataclass(slots=True)
class Preemptions:
    """Preemptions in progress. `why_not`: why the work of one of the victims could not be ended; it
    asks their nodes. `on_checked`: called when that was answered."""

    bookings: PoolBookings
    why_not: Callable[[Preemption], str]
    on_checked: Callable[[], object]
    spawn: Callable[..., Any] = gevent.spawn
    all: dict[str, Preemption] = field(init=False, default_factory=dict)  # by claim
    failed: dict[str, str] = field(init=False, default_factory=dict)  # claim to why
    _began: dict[str, float] = field(init=False, default_factory=dict)  # monotonic

    def begin(self, claim: Claim, free: Mapping[str, Node], leases: Sequence[Lease],
              least_run_s: float, now: float, mono: float) -> None:
        """Find who makes room for the head of the queue, if anybody does."""
        self._begin(claim, lambda remaining: preemption(claim, free, remaining, least_run_s, now),
                    leases, now, mono)

    def end_overdue(self, claim: Claim, grants: Sequence[Grant], leases: Sequence[Lease],
                    now: float, mono: float) -> None:
        """End overdue leases for a claim for which these GPUs are kept by now."""
        self._begin(claim, lambda remaining: overdue(claim, grants, remaining, now), leases, now,
                    mono)

    def _begin(self, claim: Claim, look: Callable[[Sequence[Lease]], Preemption | None],
               leases: Sequence[Lease], now: float, mono: float) -> None:
        """Begin a preemption. No owner is notified before it is known that all victims can be
        ended."""
        began = self._began.get(claim.id)
        is_tried = began is not None and (
            claim.id not in self.failed or mono - began < AGAIN_AFTER_S)
        if is_tried or len(self._began) - len(self.failed) >= AT_ONCE:
            return
        self.failed.pop(claim.id, None)
        victim_ids = {victim.id for running in self.all.values() for victim in running.victims}
        plan = look([lease for lease in leases if lease.id not in victim_ids])
        if plan is not None:
            self._began[claim.id] = mono
            self.spawn(self._check, plan, now)

    def _check(self, plan: Preemption, now: float) -> None:
        claim = plan.claim
        try:
            why = self.why_not(plan)
        except Exception:
            log.exception("preemption_check_failed claim=%s", claim.id)
            why = "the hub could not ask their nodes"
        if why:
            self.failed[claim.id] = f"no GPUs are taken back for it: {why}"
        elif claim.id in self._began:  # it still waits
            log.info("preemption claim=%s owner=%s leases=%s", claim.id, claim.owner,
                     ",".join(victim.id for victim in plan.victims))
            self.all[claim.id] = plan
            self.bookings.make_room(plan, now)
        self.on_checked()

    def renew(self, waiting: Collection[str], leases: Iterable[Lease], stopped: Mapping[str, str],
              now: float, mono: float) -> None:
        """End preemptions whose claim no longer waits, or of whose victims one cannot be ended or
        is no longer overdue. `stopped`: lease to why."""
        extended = {lease.id: EXTENDED for lease in leases if lease.until > now}
        for claim_id, plan in list(self.all.items()):
            reasons = {**extended, **stopped} if plan.is_overdue else stopped
            if whys := [reasons[victim.id] for victim in plan.victims if victim.id in reasons]:
                self.failed[claim_id] = f"no GPUs are taken back for it: {whys[0]}"
            elif mono - self._began[claim_id] >= GIVE_UP_S:
                self.failed[claim_id] = "GPUs to be taken back for it did not become free"
        self._began = {claim_id: at for claim_id, at in self._began.items() if claim_id in waiting}
        self.failed = {claim_id: why for claim_id, why in self.failed.items()
                       if claim_id in waiting}
        self.all = {claim_id: plan for claim_id, plan in self.all.items()
                    if claim_id in self._began.keys() - self.failed.keys()}

    def of_node(self, node_id: str) -> dict[str, str]:
        """Return leases of a node that are taken back, and why."""
        return {victim.id: why(plan) for plan in self.all.values() for victim in plan.victims
                if victim.grants[0].node == node_id}

    @property
    def notes(self) -> dict[str, str]:
        """Claim to the state of what is taken back for it."""
        return self.failed | {claim_id: f"{len(plan.victims)} "
                              f"lease{'s are' if len(plan.victims) > 1 else ' is'} being taken "
                              "back for it" for claim_id, plan in self.all.items()}

    def victims(self) -> Iterator[tuple[Preemption, Lease]]:
        for plan in self.all.values():
            for victim in plan.victims:
                yield plan, victim


def why(plan: Preemption) -> str:
    claim = plan.claim
    if plan.is_overdue:
        return (f"the term of this lease is over, and its GPUs are kept for {claim.owner}, who has "
                f"asked for {words(claim)}")
    return (f"{claim.owner} has asked for {words(claim)} with priority {claim.priority}, and this "
            "lease may be taken back for that")

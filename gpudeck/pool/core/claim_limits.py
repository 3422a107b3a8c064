"""Limits of what may be asked of the pool, by role. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

from gpudeck.pool.core.claims import TERM_MOST_S, Claim

HOUR_S, DAY_S = 3_600.0, 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLimits:
    """Limits of a role. `priority`: the highest; `waiting`: claims of one owner at a time;
    `reserved_gpu_h`: of one owner's reservations together, None: any number; `term_s`: the longest,
    also after extensions. `extends_while_waited`: also while others wait for the GPUs."""

    priority: int
    waiting: int
    reserved_gpu_h: float | None
    term_s: float
    extends_while_waited: bool

    def refusal(self, claim: Claim, owned: Collection[Claim]) -> str:
        """Return why a claim exceeds the limits; "": it does not. `owned`: its owner's claims that
        wait or are reserved."""
        if claim.priority > self.priority:
            return f"priority {claim.priority} is not yours to ask for: {self.priority} at most"
        if claim.term_s > self.term_s:
            return f"a term of {_span(claim.term_s)}: {_span(self.term_s)} at most"
        if len(owned) >= self.waiting:
            return f"{self.waiting} claims of {claim.owner} wait already: withdraw one first"
        if claim.starts_at is not None and self.reserved_gpu_h is not None:
            hours = sum(map(_gpu_h, (claim, *(
                other for other in owned if other.starts_at is not None))))
            if hours > self.reserved_gpu_h:
                return (f"{hours:,.0f} GPU-hours would be reserved for {claim.owner}: "
                        f"{self.reserved_gpu_h:,.0f} at most")
        return ""

    def too_long(self, until: float, now: float) -> str:
        """Return why a lease must not be extended until then; "": it may."""
        return "" if until - now <= self.term_s else (
            f"it would last {_span(until - now)} from now: {_span(self.term_s)} at most")


USER = ClaimLimits(priority=2, waiting=32, reserved_gpu_h=1_344.0, term_s=30 * DAY_S,
                   extends_while_waited=False)
BY_ROLE = {
    "user": USER,
    "operator": ClaimLimits(priority=3, waiting=256, reserved_gpu_h=13_440.0, term_s=90 * DAY_S,
                            extends_while_waited=True),
    "admin": ClaimLimits(priority=4, waiting=1_024, reserved_gpu_h=None, term_s=TERM_MOST_S,
                         extends_while_waited=True)}


def _span(seconds: float) -> str:
    return f"{seconds / DAY_S:.3g} days" if seconds >= 2 * DAY_S else f"{seconds / HOUR_S:.3g} h"


def _gpu_h(claim: Claim) -> float:
    return claim.gpus * claim.nodes * claim.term_s / HOUR_S

"""Claims that wait on this node, each as long as its connection."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gpudeck.contract.pool_link import WITHDRAWALS_MOST, Withdrawal
from gpudeck.contract.pool_messages import ClaimCancelled, ClaimRefused, ClaimWaits
from gpudeck.pool.core.claims import Claim

from .server import PoolUser
from .shares import UNKNOWN

ROOT = 0
ANSWER_WITHIN_S = 15.0
OF_ONE_USER_MOST = 32
OWNER_UNKNOWN = "its owner is still being looked up"
GROUPS_UNKNOWN = "the groups of its user are still being looked up, and quotas may go by them"
UNSETTLED = (UNKNOWN, OWNER_UNKNOWN)
STOPPED = "it is stopped; it keeps its place, and gets its GPUs when it continues (fg)"
MOST = 1_024


@dataclass(slots=True)
class WaitingClaim:
    claim: Claim
    user: PoolUser
    is_run: bool
    wait_until: float | None
    limits_itself: bool = False
    standing: ClaimWaits | None = None
    paused: str = ""  # why it gets nothing now, whatever is free

    def notify(self, standing: ClaimWaits) -> None:
        """Notify the user when the place or the reason changes; an estimate alone is no news."""
        if self.standing is None or _news(standing) != _news(self.standing):
            self.user.send(standing)
        self.standing = standing


@dataclass(slots=True)
class WaitingWithdrawals:
    """Claims that users here withdraw and the hub keeps, each as long as its connection."""

    all: dict[str, tuple[PoolUser, float]] = field(default_factory=dict)  # claim to whose, until

    def put(self, claim_id: str, user: PoolUser, now: float) -> None:
        self.all[claim_id] = user, now + ANSWER_WITHIN_S

    def of_report(self) -> tuple[Withdrawal, ...]:
        return tuple(Withdrawal(claim_id, None if user.uid == ROOT else user.owner)
                     for claim_id, (user, _) in self.all.items())[:WITHDRAWALS_MOST]

    def answer(self, whys: Mapping[str, str]) -> None:
        for claim_id, why in whys.items():
            if (waits := self.all.pop(claim_id, None)) is not None:
                waits[0].send(ClaimRefused(why) if why else ClaimCancelled())

    def drop_user(self, user: PoolUser) -> None:
        self.all = {claim_id: entry for claim_id, entry in self.all.items() if entry[0] is not user}

    def give_up(self, now: float) -> None:
        self.answer(dict.fromkeys(
            (claim_id for claim_id, (_, until) in self.all.items() if now >= until),
            "the hub has not answered; try again, or cancel it on the Pool page"))


def _news(standing: ClaimWaits) -> tuple[object, ...]:
    return standing.place, standing.why, standing.elsewhere


@dataclass(slots=True)
class WaitingClaims:
    """Claims that wait on this node. `refusals`: why the node did not take what a hub proposed for
    a claim, until its next plan; also for claims made at the hub, which do not wait here."""

    all: dict[str, WaitingClaim] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[WaitingClaim]:
        return iter(tuple(self.all.values()))

    def update_paused(self, is_stopped: Callable[[int], bool]) -> None:
        """Pause exactly the claims whose programs are stopped. `is_stopped`: by pid."""
        for waiting in self:
            waiting.paused = STOPPED if is_stopped(waiting.user.peer_pid) else ""

    @property
    def answers(self) -> dict[str, str]:
        """Refusals to report; not those that only wait for MPS to be checked, or for a user to be
        looked up."""
        return {claim_id: why for claim_id, why in self.refusals.items() if why not in UNSETTLED}

    @property
    def paused(self) -> Mapping[str, str]:
        return {waiting.claim.id: waiting.paused for waiting in self if waiting.paused}

    def why_no_more(self, user: PoolUser) -> str:
        of_user = sum(waiting.user.uid == user.uid for waiting in self)
        if of_user >= OF_ONE_USER_MOST or len(self.all) >= MOST:
            return (f"{OF_ONE_USER_MOST} claims of yours wait already, or {MOST} in all: end one "
                    "first")
        return ""

    def remove(self, claim_id: str) -> WaitingClaim | None:
        self.refusals.pop(claim_id, None)
        return self.all.pop(claim_id, None)

    def drop_user(self, user: PoolUser) -> None:
        for waiting in self:
            if waiting.user is user:
                self.remove(waiting.claim.id)

    def give_up(self, now: float) -> None:
        """Refuse claims whose time is up, with the reason. A claim that was to wait for nothing
        waits for the hub's answer."""
        for waiting in self:
            patience_s = ANSWER_WITHIN_S if waiting.standing is None else 0.0
            if waiting.wait_until is not None and now >= waiting.wait_until + patience_s:
                self.remove(waiting.claim.id)
                why = "" if waiting.standing is None else f": {waiting.standing.why}"
                waiting.user.send(ClaimRefused(f"no GPUs came free in time{why}"))

"""Claims that wait on this node, each as long as its connection."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.link import WITHDRAWALS_MOST, Withdrawal
from gpudeck.pool.messages import ClaimCancelled, ClaimRefused, ClaimWaits

from .server import PoolUser
from .shares import UNKNOWN

ROOT = 0
ANSWER_WITHIN_S = 15.0
OF_ONE_USER_MOST = 32
STOPPED = "it is stopped; it keeps its place, and gets its GPUs when it continues (fg)"
MOST = 1_024


@dataclass(slots=True)
class WaitingClaim:
    claim: Claim
    user: PoolUser
    is_run: bool
    wait_until: float | None
    limits_itself: bool = False
    said: ClaimWaits | None = None
    paused: str = ""  # why it gets nothing now, whatever is free

    def tell(self, said: ClaimWaits) -> None:
        """When its place or the reason changes; an estimate alone is no news."""
        if self.said is None or _news(said) != _news(self.said):
            self.user.send(said)
        self.said = said


@dataclass(slots=True)
class WaitingWithdrawals:
    """What users of this node take back and the hub keeps: each as long as its connection."""

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

    def left(self, user: PoolUser) -> None:
        self.all = {claim_id: each for claim_id, each in self.all.items() if each[0] is not user}

    def give_up(self, now: float) -> None:
        self.answer(dict.fromkeys(
            (claim_id for claim_id, (_, until) in self.all.items() if now >= until),
            "the hub has not answered; try again, or cancel it on the Pool page"))


def _news(said: ClaimWaits) -> tuple[object, ...]:
    return said.place, said.why, said.elsewhere


@dataclass(slots=True)
class WaitingClaims:
    """`refused`: why the node did not take what a hub proposed for a claim, until its next plan:
    also of a claim that was made at the hub, and does not wait here."""

    all: dict[str, WaitingClaim] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[WaitingClaim]:
        return iter(tuple(self.all.values()))

    def look(self, is_stopped: Callable[[int], bool]) -> None:
        """`is_stopped`: whether the process is that asks."""
        for each in self:
            each.paused = STOPPED if is_stopped(each.user.peer_pid) else ""

    @property
    def answers(self) -> dict[str, str]:
        """Whether MPS is there is asked first."""
        return {each: why for each, why in self.refused.items() if why != UNKNOWN}

    @property
    def paused(self) -> Mapping[str, str]:
        return {each.claim.id: each.paused for each in self if each.paused}

    def why_no_more(self, user: PoolUser) -> str:
        of_user = sum(each.user.uid == user.uid for each in self)
        if of_user >= OF_ONE_USER_MOST or len(self.all) >= MOST:
            return (f"{OF_ONE_USER_MOST} claims of yours wait already, or {MOST} in all: end one "
                    "first")
        return ""

    def take(self, claim_id: str) -> WaitingClaim | None:
        self.refused.pop(claim_id, None)
        return self.all.pop(claim_id, None)

    def left(self, user: PoolUser) -> None:
        for each in self:
            if each.user is user:
                self.take(each.claim.id)

    def give_up(self, now: float) -> None:
        """With the reason: a claim that was to wait for nothing waits for the hub's answer."""
        for each in self:
            patience_s = ANSWER_WITHIN_S if each.said is None else 0.0
            if each.wait_until is not None and now >= each.wait_until + patience_s:
                self.take(each.claim.id)
                why = "" if each.said is None else f": {each.said.why}"
                each.user.send(ClaimRefused(f"no GPUs came free in time{why}"))

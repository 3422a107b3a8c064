"""Claims that users take back on the node where they asked for them."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from gpudeck.contract.pool_link import Withdrawal
from gpudeck.pool.core.claims import Claim

log = logging.getLogger("gpudeck.pool")


@dataclass(slots=True)
class NodeWithdrawals:
    """Withdrawals reported by nodes. `withdraw`: withdraws a claim, by its id."""

    claims: Mapping[str, Claim]
    withdraw: Callable[[str], None]
    _answers: dict[str, dict[str, str]] = field(init=False, default_factory=dict)

    def receive(self, node_id: str, names: Collection[str], withdrawals: Iterable[Withdrawal]
                ) -> None:
        """Answer a node of these `names`. It repeats itself until it has the answer."""
        before, answers = self._answers.get(node_id, {}), dict[str, str]()
        for withdrawal in withdrawals:
            if withdrawal.claim_id in before:
                answers[withdrawal.claim_id] = before[withdrawal.claim_id]
                continue
            why = why_not(self.claims.get(withdrawal.claim_id), withdrawal, names)
            answers[withdrawal.claim_id] = why
            if not why:
                log.info("claim_withdrawn claim=%s node=%s", withdrawal.claim_id, node_id)
                self.withdraw(withdrawal.claim_id)
        self._answers[node_id] = answers

    def forget(self, node_id: str) -> None:
        self._answers.pop(node_id, None)

    def answers(self, node_id: str) -> Mapping[str, str]:
        """Return why claims are not withdrawn; "": they are."""
        return self._answers.get(node_id, {})


def why_not(claim: Claim | None, withdrawal: Withdrawal, names: Collection[str]) -> str:
    """Return why a claim is not withdrawn; "": it is. A node speaks only for claims made on it."""
    if claim is None:
        return f"no claim {withdrawal.claim_id} waits here"
    if not claim.hosts or not set(claim.hosts) <= set(names):
        return "it was not requested on this node; cancel it on the Pool page"
    return "" if withdrawal.owner in (None, claim.owner) else f"it is of {claim.owner}"

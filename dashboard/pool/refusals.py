"""Refusals by nodes of what was proposed for a claim. No claim is proposed for ever."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from gpudeck.pool.core.claims import Claim

TIMES_MOST = 3  # for one reason, one after another
AVOID_S = 10.0  # the nodes that did not take it last: another one may
REFUSED_MOST = 1_024
REFUSED_KEEP_S = 86_400.0


@dataclass(frozen=True, slots=True)
class RefusedClaim:
    """Claim that was made at the hub, and refused for good. `at`: UTC."""

    claim: Claim
    why: str
    at: float


@dataclass(frozen=True, slots=True)
class ClaimRefusals:
    why: str
    times: int
    nodes: Mapping[str, str]  # that said so, with their hosts
    at_mono: float

    @property
    def sentence(self) -> str:
        return f"{', '.join(sorted(set(self.nodes.values())))}: {self.why}"


@dataclass(slots=True)
class NodeRefusals:
    for_good: dict[str, RefusedClaim] = field(init=False, default_factory=dict)
    _all: dict[str, ClaimRefusals] = field(init=False, default_factory=dict)  # by claim

    def add(self, claim_id: str, hosts: Mapping[str, str], why: str, mono: float) -> str:
        """Add a refusal; return why it is for good; "": the claim is proposed again. `hosts`: of
        the nodes that said so."""
        before = self._all.get(claim_id)
        refusals = ClaimRefusals(why, 1, hosts, mono)
        if before is not None and before.why == why:
            refusals = replace(refusals, times=before.times + 1, nodes={**before.nodes, **hosts})
        self._all[claim_id] = refusals
        return refusals.sentence if refusals.times >= TIMES_MOST else ""

    def keep(self, claim: Claim, why: str, now: float) -> None:
        """Keep a refused claim for its owner to read."""
        self.for_good[claim.id] = RefusedClaim(claim, why[:1_024], now)
        for oldest in list(self.for_good)[:-REFUSED_MOST]:
            del self.for_good[oldest]

    def forget(self, waiting: Collection[str], now: float) -> None:
        """Forget refusals. `waiting`: claims that are proposed, or may be again."""
        self._all = {claim_id: refusals for claim_id, refusals in self._all.items()
                     if claim_id in waiting}
        self.for_good = {claim_id: refusal for claim_id, refusal in self.for_good.items()
                         if now - refusal.at < REFUSED_KEEP_S}

    def avoided(self, mono: float) -> dict[str, frozenset[str]]:
        """Claim to nodes that are not asked again just now."""
        return {claim_id: frozenset(refusals.nodes) for claim_id, refusals in self._all.items()
                if mono - refusals.at_mono < AVOID_S}

    @property
    def notes(self) -> dict[str, str]:
        """Claim to why it was not taken last."""
        return {claim_id: f"not taken by {refusals.sentence}; it is offered again"
                for claim_id, refusals in self._all.items()}

"""Why nodes did not take what was proposed to them for a claim. None is proposed for ever."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from gpudeck.pool.core.claims import Claim

TIMES_MOST = 3  # for one reason, one after another
AVOID_S = 10.0  # the nodes that did not take it last: another one may
REFUSED_MOST = 1_024
REFUSED_KEEP_S = 86_400.0


@dataclass(frozen=True, slots=True)
class RefusedClaim:
    """That was made at the hub. `at`: UTC."""

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
        """Why it is refused for good; "": it is proposed again. `hosts`: of the nodes that said
        so."""
        before = self._all.get(claim_id)
        found = ClaimRefusals(why, 1, hosts, mono)
        if before is not None and before.why == why:
            found = replace(found, times=before.times + 1, nodes={**before.nodes, **hosts})
        self._all[claim_id] = found
        return found.sentence if found.times >= TIMES_MOST else ""

    def keep(self, claim: Claim, why: str, now: float) -> None:
        """For its owner to read."""
        self.for_good[claim.id] = RefusedClaim(claim, why[:1_024], now)
        for oldest in list(self.for_good)[:-REFUSED_MOST]:
            del self.for_good[oldest]

    def forget(self, waiting: Collection[str], now: float) -> None:
        """`waiting`: claims that are proposed, or may be again."""
        self._all = {each: found for each, found in self._all.items() if each in waiting}
        self.for_good = {each: found for each, found in self.for_good.items()
                         if now - found.at < REFUSED_KEEP_S}

    def avoided(self, mono: float) -> dict[str, frozenset[str]]:
        """Claim to nodes that are not asked again just now."""
        return {each: frozenset(found.nodes) for each, found in self._all.items()
                if mono - found.at_mono < AVOID_S}

    @property
    def notes(self) -> dict[str, str]:
        """Claim to why it was not taken last."""
        return {each: f"not taken by {found.sentence}; it is offered again"
                for each, found in self._all.items()}

"""How long leases will last, learnt from those that ended."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from gpudeck.pool.core.claims import Claim, Lease
from gpudeck.pool.core.prediction import (
    FinishedRun,
    RunTime,
    RunTimeProof,
    predict,
    proof,
)

LEARN_EVERY_S = 60.0
PREDICTED_AT_ONCE = 200
RUNS_MOST = 100  # of one owner, or of one team


@dataclass(slots=True)
class RunTimes:
    """Nothing is known as long as a simpler guess would have come as near."""

    is_proven: bool = field(init=False, default=False)
    proof: RunTimeProof = field(init=False, default_factory=RunTimeProof)
    _said: dict[str, tuple[float, float | None]] = field(init=False, default_factory=dict)
    _learnt: float = field(init=False, default=float("-inf"))
    _team_of: Mapping[str, str] = field(init=False, default_factory=dict)
    _runs: dict[tuple[str, bool], list[FinishedRun]] = field(init=False, default_factory=dict)

    def of_leases(self, leases: Iterable[Lease], now: float) -> dict[str, RunTime]:
        """By lease, of those of which something is known."""
        if not self.is_proven:
            return {}
        return {each.id: found for each in leases
                if (found := self._of(each.claim, now - each.since)) is not None}

    def whole_s(self, leases: Iterable[Lease], waiting: Iterable[Claim], now: float, mono: float
                ) -> Mapping[str, float]:
        """By lease and claim, what three of four such runs take at most. Of thousands those that
        are new are looked at over some passes; until then their terms count."""
        if not self.is_proven:
            return {}
        asked = [(each.claim, now - each.since) for each in leases]
        asked += [(each, 0.0) for each in waiting]
        there: dict[str, tuple[float, float | None]] = {}
        left = PREDICTED_AT_ONCE
        for claim, ran_s in asked:
            said = self._said.get(claim.id)
            is_over = said is None or ran_s > (said[1] or inf)
            if left and (is_over or said is None or mono - said[0] >= LEARN_EVERY_S):
                left -= 1
                found = self._of(claim, ran_s)
                said, is_over = (mono, None if found is None else found.p75_s), False
            if said is not None and not is_over:
                there[claim.id] = said
        self._said = there
        return {claim_id: took_s for claim_id, (_, took_s) in there.items() if took_s is not None}

    def _of(self, claim: Claim, ran_s: float) -> RunTime | None:
        team = self._team_of.get(claim.owner, "")
        runs = self._runs.get((team, True) if team else (claim.owner, False), ())
        return predict(runs, claim.owner, team, claim.shape, claim.gpus, ran_s)

    def learn(self, ended: Iterable[Lease], team_of: Mapping[str, str], mono: float) -> None:
        if mono - self._learnt < LEARN_EVERY_S:
            return
        self._learnt, self._team_of = mono, team_of
        runs = [FinishedRun(each.claim.owner, team_of.get(each.claim.owner, ""), each.claim.shape,
                            each.claim.gpus, each.ended_at, each.ended_at - each.since)
                for each in ended if each.ended_at is not None]
        self.proof = proof(runs)
        self.is_proven = self.proof.is_proven
        found: dict[tuple[str, bool], list[FinishedRun]] = {}
        for each in sorted(runs, key=lambda run: run.ended_at):
            key = (each.team, True) if each.team else (each.owner, False)
            found.setdefault(key, []).append(each)
        self._runs = {key: those[-RUNS_MOST:] for key, those in found.items()}

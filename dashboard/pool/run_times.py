"""Run times of leases, learnt from those that ended."""

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
    """Predicted run times; none while a simpler guess would have come as near."""

    is_proven: bool = field(init=False, default=False)
    proof: RunTimeProof = field(init=False, default_factory=RunTimeProof)
    _cached: dict[str, tuple[float, float | None]] = field(init=False, default_factory=dict)
    _learnt: float = field(init=False, default=float("-inf"))
    _team_of: Mapping[str, str] = field(init=False, default_factory=dict)
    _runs: dict[tuple[str, bool], list[FinishedRun]] = field(init=False, default_factory=dict)

    def of_leases(self, leases: Iterable[Lease], now: float) -> dict[str, RunTime]:
        """Return run times by lease, of those of which something is known."""
        if not self.is_proven:
            return {}
        return {lease.id: run_time for lease in leases
                if (run_time := self._of(lease.claim, now - lease.since)) is not None}

    def whole_s(self, leases: Iterable[Lease], waiting: Iterable[Claim], now: float, mono: float
                ) -> Mapping[str, float]:
        """Return, by lease and claim, what three of four such runs take at most. Of thousands those
        that are new are looked at over some passes; until then their terms count."""
        if not self.is_proven:
            return {}
        runs = [(lease.claim, now - lease.since) for lease in leases]
        runs += [(claim, 0.0) for claim in waiting]
        there: dict[str, tuple[float, float | None]] = {}
        budget = PREDICTED_AT_ONCE
        for claim, ran_s in runs:
            cached = self._cached.get(claim.id)
            is_over = cached is None or ran_s > (cached[1] or inf)
            if budget and (is_over or cached is None or mono - cached[0] >= LEARN_EVERY_S):
                budget -= 1
                run_time = self._of(claim, ran_s)
                cached, is_over = (mono, None if run_time is None else run_time.p75_s), False
            if cached is not None and not is_over:
                there[claim.id] = cached
        self._cached = there
        return {claim_id: took_s for claim_id, (_, took_s) in there.items() if took_s is not None}

    def _of(self, claim: Claim, ran_s: float) -> RunTime | None:
        team = self._team_of.get(claim.owner, "")
        runs = self._runs.get((team, True) if team else (claim.owner, False), ())
        return predict(runs, claim.owner, team, claim.shape, claim.gpus, ran_s)

    def learn(self, ended_leases: Iterable[Lease], team_of: Mapping[str, str], mono: float) -> None:
        if mono - self._learnt < LEARN_EVERY_S:
            return
        self._learnt, self._team_of = mono, team_of
        runs = [FinishedRun(lease.claim.owner, team_of.get(lease.claim.owner, ""),
                            lease.claim.shape, lease.claim.gpus, lease.ended_at,
                            lease.ended_at - lease.since)
                for lease in ended_leases if lease.ended_at is not None]
        self.proof = proof(runs)
        self.is_proven = self.proof.is_proven
        by_group: dict[tuple[str, bool], list[FinishedRun]] = {}
        for run in sorted(runs, key=lambda run: run.ended_at):
            key = (run.team, True) if run.team else (run.owner, False)
            by_group.setdefault(key, []).append(run)
        self._runs = {key: group_runs[-RUNS_MOST:] for key, group_runs in by_group.items()}

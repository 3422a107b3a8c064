"""Prediction of run times from earlier runs: quantiles, or nothing. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, log

LEAST_RUNS = 5
# A spread wider than this says nothing that helps.
MOST_SPREAD = 8.0
PROOF_LEAST, PROOF_MOST = 20, 300  # runs
RECENT_RUNS = 5.0  # a run counts half when so many came after it
QUANTILES = (0.25, 0.5, 0.75, 0.9)
LAST, LINE = "the last one", "a straight line through GPUs and times"


@dataclass(frozen=True, slots=True)
class FinishedRun:
    owner: str
    team: str
    shape: str
    gpus: int
    ended_at: float
    took_s: float


@dataclass(frozen=True, slots=True)
class RunTime:
    """Quantiles of the whole run time, and how many runs they come from."""

    p25_s: float
    p50_s: float
    p75_s: float
    p90_s: float
    runs: int
    of: str  # whose runs, for people


def predict(runs: Sequence[FinishedRun], owner: str, team: str, shape: str, gpus: int,
            ran_s: float = 0.0) -> RunTime | None:
    """Predict by the narrowest group with enough runs that lasted longer than this one has so
    far."""
    longer = [run for run in runs if run.took_s > ran_s]
    for of, alike in (
        ("this command on as many GPUs", [run for run in longer if (run.owner, run.shape,
                                          run.gpus) == (owner, shape, gpus) and shape]),
        ("this command", [run for run in longer
                          if (run.owner, run.shape) == (owner, shape) and shape]),
        (f"runs of {owner}", [run for run in longer if run.owner == owner]),
        (f"runs of team {team}", [run for run in longer if team and run.team == team]),
    ):
        if len(alike) >= LEAST_RUNS:
            quantiles = _quantiles(alike)
            is_narrow = quantiles[2] <= MOST_SPREAD * quantiles[0]
            return RunTime(*quantiles, len(alike), of) if is_narrow else None
    return None


def _quantiles(runs: Sequence[FinishedRun]) -> tuple[float, float, float, float]:
    """Return weighted quantiles, by logarithm: run times span orders of magnitude, and recent runs
    count more (Tsafrir et al., TPDS 2007)."""
    newest = sorted(runs, key=lambda run: run.ended_at, reverse=True)
    weighed = sorted((log(max(run.took_s, 1e-3)), 2 ** (-age / RECENT_RUNS))
                     for age, run in enumerate(newest))
    total = sum(weight for _, weight in weighed)
    # A run is in the middle of its weight; between runs, a straight line.
    points, weight_before = [], 0.0
    for value, weight in weighed:
        points.append(((weight_before + weight / 2) / total, value))
        weight_before += weight
    first, second, third, last = (exp(_between(points, quantile)) for quantile in QUANTILES)
    return first, second, third, last


def _between(points: Sequence[tuple[float, float]], at: float) -> float:
    if at <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if at <= x1:
            return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    return points[-1][1]


@dataclass(frozen=True, slots=True)
class RunTimeProof:
    """Proof of predictions, each made from the runs before it: summed logarithms of how far off
    each method was. `inside`: how many lay between p25 and p75."""

    runs: int = 0
    error: float = 0.0
    naive: Mapping[str, float] = field(default_factory=dict)
    inside: int = 0

    @property
    def is_proven(self) -> bool:
        return self.runs >= PROOF_LEAST and self.error < min(self.naive.values())

    def why_not(self) -> str:
        """Return why predictions are not used, for people; "": they are proven."""
        if self.is_proven:
            return ""
        if self.runs < PROOF_LEAST:
            return (f"{self.runs} of the {PROOF_LEAST} predictions that it takes to judge them "
                    "have been checked so far")
        best = min(self.naive, key=lambda name: self.naive[name])
        return (f"they were off by a factor of {self.off_by(self.error):.2f}, the best naive guess "
                f"({best}) by {self.off_by(self.naive[best]):.2f}")

    def off_by(self, error: float) -> float:
        """Return an error as a factor: 2 is twice as long, or half as long."""
        return exp(error / max(1, self.runs))


def proof(runs: Sequence[FinishedRun]) -> RunTimeProof:
    """Predict each run from those that had ended before: by `predict`, by its owner's last run, and
    by a straight line through GPUs and times. Only what is better than both is used."""
    errors, last_runs, lines, inside = [], [], [], 0
    last: dict[str, float] = {}
    line = _LeastSquares()
    recent = sorted(runs, key=lambda run: run.ended_at)[-PROOF_MOST:]
    for place, run in enumerate(recent):
        predicted = predict(recent[:place], run.owner, run.team, run.shape, run.gpus)
        if predicted is not None and run.owner in last:
            errors.append(_error(predicted.p50_s, run))
            last_runs.append(_error(last[run.owner], run))
            lines.append(_error(line.at(run.gpus), run))
            inside += predicted.p25_s <= run.took_s <= predicted.p75_s
        last[run.owner] = run.took_s
        line.add(run.gpus, run.took_s)
    return RunTimeProof(len(errors), sum(errors), {LAST: sum(last_runs), LINE: sum(lines)}, inside)


def _error(predicted_s: float, run: FinishedRun) -> float:
    return abs(log(max(predicted_s, 1.0) / max(run.took_s, 1.0)))


@dataclass(slots=True)
class _LeastSquares:
    """A straight line through what was added."""

    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def add(self, x: float, y: float) -> None:
        self.n, self.x, self.y = self.n + 1, self.x + x, self.y + y
        self.xx, self.xy = self.xx + x * x, self.xy + x * y

    def at(self, x: float) -> float:
        spread = self.n * self.xx - self.x * self.x
        slope = (self.n * self.xy - self.x * self.y) / spread if spread else 0.0
        return (self.y + slope * (self.n * x - self.x)) / self.n

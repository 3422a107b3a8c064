"""How long a run will take, from earlier runs: quantiles, or nothing. Pure."""

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
    """The narrowest group with enough runs that lasted longer than this one already has."""
    longer = [each for each in runs if each.took_s > ran_s]
    for of, alike in (
        ("this command on as many GPUs", [each for each in longer if (each.owner, each.shape,
                                          each.gpus) == (owner, shape, gpus) and shape]),
        ("this command", [each for each in longer
                          if (each.owner, each.shape) == (owner, shape) and shape]),
        (f"runs of {owner}", [each for each in longer if each.owner == owner]),
        (f"runs of team {team}", [each for each in longer if team and each.team == team]),
    ):
        if len(alike) >= LEAST_RUNS:
            found = _quantiles(alike)
            return RunTime(*found, len(alike), of) if found[2] <= MOST_SPREAD * found[0] else None
    return None


def _quantiles(runs: Sequence[FinishedRun]) -> tuple[float, float, float, float]:
    """Weighted, of the logarithm: run times span orders of magnitude, and recent runs count more
    (Tsafrir et al., TPDS 2007)."""
    newest = sorted(runs, key=lambda each: each.ended_at, reverse=True)
    weighed = sorted((log(max(each.took_s, 1e-3)), 2 ** (-age / RECENT_RUNS))
                     for age, each in enumerate(newest))
    total = sum(weight for _, weight in weighed)
    # A run stands in the middle of its own weight; between runs a straight line.
    points, passed = [], 0.0
    for value, weight in weighed:
        points.append(((passed + weight / 2) / total, value))
        passed += weight
    first, second, third, last = (exp(_between(points, quantile)) for quantile in QUANTILES)
    return first, second, third, last


def _between(points: Sequence[tuple[float, float]], at: float) -> float:
    if at <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in pairwise(points):
        if at <= right:
            return low + (high - low) * (at - left) / (right - left)
    return points[-1][1]


@dataclass(frozen=True, slots=True)
class RunTimeProof:
    """Of runs that were predicted from those before them: summed logarithms of how far off each
    method was. `inside`: how many lay between p25 and p75."""

    runs: int = 0
    error: float = 0.0
    naive: Mapping[str, float] = field(default_factory=dict)
    inside: int = 0

    @property
    def is_proven(self) -> bool:
        return self.runs >= PROOF_LEAST and self.error < min(self.naive.values())

    def why_not(self) -> str:
        """For people; empty: it is proven."""
        if self.is_proven:
            return ""
        if self.runs < PROOF_LEAST:
            return (f"{self.runs} of the {PROOF_LEAST} predictions that it takes to judge them "
                    "have been checked so far")
        best = min(self.naive, key=lambda name: self.naive[name])
        return (f"they were off by a factor of {self.off_by(self.error):.2f}, the best naive guess "
                f"({best}) by {self.off_by(self.naive[best]):.2f}")

    def off_by(self, error: float) -> float:
        """As a factor: 2 is twice as long, or half as long."""
        return exp(error / max(1, self.runs))


def proof(runs: Sequence[FinishedRun]) -> RunTimeProof:
    """Each run is predicted from those that had ended before: by `predict`, by its owner's last
    run, and by a straight line through GPUs and times. Only what is better than both is said."""
    ours, last_runs, lines, inside = [], [], [], 0
    last: dict[str, float] = {}
    line = _LeastSquares()
    ordered = sorted(runs, key=lambda each: each.ended_at)[-PROOF_MOST:]
    for place, each in enumerate(ordered):
        found = predict(ordered[:place], each.owner, each.team, each.shape, each.gpus)
        if found is not None and each.owner in last:
            ours.append(_error(found.p50_s, each))
            last_runs.append(_error(last[each.owner], each))
            lines.append(_error(line.at(each.gpus), each))
            inside += found.p25_s <= each.took_s <= found.p75_s
        last[each.owner] = each.took_s
        line.add(each.gpus, each.took_s)
    return RunTimeProof(len(ours), sum(ours), {LAST: sum(last_runs), LINE: sum(lines)}, inside)


def _error(said_s: float, run: FinishedRun) -> float:
    return abs(log(max(said_s, 1.0) / max(run.took_s, 1.0)))


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

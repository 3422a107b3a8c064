"""Usage of a Quota over time, with what it gave then. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpudeck.contract.quota import HOURS_OF, PER_S, Limit, Quota

from .store import QuotaVersion

HOUR_S = 3_600
STEPS_S = ((6 * HOUR_S, 60), (24 * HOUR_S, 300))  # up to this span; of more, whole hours


@dataclass(frozen=True, slots=True)
class QuotaUsageSeries:
    """Usage per step, the mean of it; None: not known. `most` None: it gave no limit then."""

    t: list[int]
    usage: list[float | None]
    most: list[float | None]


def why_not(quota: Quota, limit: Limit) -> str:
    """Return why a quota's past is not known; "": it is."""
    if quota.subject_kind not in HOURS_OF or (
            quota.count == "together" and quota.subject_kind != "user"):
        return ("history knows whose a task was, and not its container, job or sum: there is no "
                "past of this")
    if quota.scope_kind == "gpu":
        return "history of owners is kept by node: there is no past of a single GPU"
    if limit == "max_age_s":
        return "an age is of a moment: there is no past of it"
    return ""


def step_of(limit: Limit, span_s: float) -> int:
    if limit == "gpu_hours":
        return HOUR_S
    return next((step_s for most_s, step_s in STEPS_S if span_s <= most_s), HOUR_S)


def narrower(quota: Quota, limit: Limit, holder: str, groups: Iterable[str],
             quotas: Iterable[Quota]) -> list[Quota]:
    """Return the quotas that count instead of this one where they are about the same place."""
    about = {f"user:{holder}", "*", *(f"group:{group}" for group in groups)}
    return [other for other in quotas if other.subject in about and other.rank > quota.rank
            and other.count == quota.count and other.limit(limit) is not None]


def line(quota: Quota, limit: Limit, span: tuple[int, int], step_s: int,
         amounts: Mapping[int, float], known_steps: frozenset[int],
         gave: Sequence[QuotaVersion]) -> QuotaUsageSeries:
    """Return the series of a holder. `amounts`: of each step that has one, second-wise sums;
    `known_steps`: those of which there is history, so that no amount is none. `gave`: the newest
    first."""
    times = list(range(span[0], span[1], step_s))
    if limit == "gpu_hours":
        usage = _rolling(times, amounts, known_steps, int(PER_S[quota.per]))
    else:
        usage = [amounts.get(t, 0.0) / step_s if t in known_steps else None for t in times]
    return QuotaUsageSeries(times, usage, [_most(gave, t + step_s, limit) for t in times])


def _rolling(times: Sequence[int], amounts: Mapping[int, float], known_steps: frozenset[int],
             span_s: int) -> list[float | None]:
    """Return rolling sums from the start of the hour a day or week before, as counted live."""
    return [math.fsum(amounts.get(at, 0.0) for at in range(t - span_s, t + HOUR_S, HOUR_S)) / HOUR_S
            if t in known_steps else None for t in times]


def _most(gave: Sequence[QuotaVersion], at: float, limit: Limit) -> float | None:
    """Return the limit at that time. `at`: the end of a step, so that the step in which it was
    changed has the change."""
    version = next((version for version in gave if version.set_at < at), None)
    return version.quota.limit(limit) if version is not None and version.is_there else None

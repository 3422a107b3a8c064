"""Use of a Quota over time, beside what it gave then. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpudeck.quota import HOURS_OF, PER_S, Limit, Quota

from .store import QuotaVersion

HOUR_S = 3_600
STEPS_S = ((6 * HOUR_S, 60), (24 * HOUR_S, 300))  # up to this span; of more, whole hours


@dataclass(frozen=True, slots=True)
class QuotaUsageSeries:
    """Per `step_s`, the mean of it; None: not known. `most` None: it gave no limit then."""

    t: list[int]
    used: list[float | None]
    most: list[float | None]


def why_not(quota: Quota, limit: Limit) -> str:
    """Why its past is not known; "": it is."""
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
    """Those that count instead of it where they are about the same place."""
    about = {f"user:{holder}", "*", *(f"group:{group}" for group in groups)}
    return [each for each in quotas if each.subject in about and each.rank > quota.rank
            and each.count == quota.count and each.limit(limit) is not None]


def line(quota: Quota, limit: Limit, span: tuple[int, int], step_s: int,
         amounts: Mapping[int, float], known: frozenset[int],
         gave: Sequence[QuotaVersion]) -> QuotaUsageSeries:
    """`amounts`: of each step that has one, second-wise sums; `known`: the steps of which there is
    history, so that no amount is none. `gave`: the newest first."""
    times = list(range(span[0], span[1], step_s))
    if limit == "gpu_hours":
        used = _rolling(times, amounts, known, int(PER_S[quota.per]))
    else:
        used = [amounts.get(t, 0.0) / step_s if t in known else None for t in times]
    return QuotaUsageSeries(times, used, [_most(gave, t + step_s, limit) for t in times])


def _rolling(times: Sequence[int], amounts: Mapping[int, float], known: frozenset[int],
             span_s: int) -> list[float | None]:
    """From the beginning of the hour a day or week before, as they are counted live."""
    return [math.fsum(amounts.get(at, 0.0) for at in range(t - span_s, t + HOUR_S, HOUR_S)) / HOUR_S
            if t in known else None for t in times]


def _most(gave: Sequence[QuotaVersion], at: float, limit: Limit) -> float | None:
    """`at`: the end of a step, so that the step in which it was changed has the change."""
    one = next((each for each in gave if each.set_at < at), None)
    return one.quota.limit(limit) if one is not None and one.is_there else None

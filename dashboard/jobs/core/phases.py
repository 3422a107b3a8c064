"""Phases of a job, minute by minute, as far as they can be told from outside. Pure.

A board that works does not say on what. So training is named where steps, checkpoints or
evaluations show; evaluations where three of them are alike, at like intervals; everything else that
works is work. What is shorter than two minutes is not seen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from . import signs
from .job_minutes import JobMinutes, Matrix

PhaseKind = Literal["loading", "training", "evaluation", "checkpoint", "serving", "work", "pause",
                    "idle", "unknown"]
Vector = npt.NDArray[np.float64]

REST_PCT = 5.0  # utilization, as a mean of the minute
PAUSE_S = signs.KEPT_S  # a longer rest is no pause
LOADS_BYTES = 100e6  # more memory than before: it loads
LOWER, STEADY = 0.85, 0.1  # of the usual power
LEAST_MINUTES, LEAST_TIMES = 3, 3  # of an evaluation, of several
SPREAD, ALIKE = 0.2, 2.0  # of their intervals; the longest by the shortest


class JobPhase(Struct, frozen=True):
    kind: PhaseKind
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PhaseWitnesses:
    """Other knowledge of a job. `began_at`: of its first task; `checkpoints`: when its last regular
    ones were done, each with the seconds by which that may be off; `has_steps`: a period of steps
    is visible."""

    began_at: float
    checkpoints: Sequence[tuple[float, float]]
    has_steps: bool
    serves: bool


def phases_of(job: JobMinutes, witnesses: PhaseWitnesses) -> list[JobPhase]:
    """Return the phases in order; empty where there are no minutes."""
    if not len(job.ranks) or not job.steps or job.step != 60:
        return []
    util, power = (_mean_of_held(job, name) for name in ("util_pct", "power_w"))
    is_held = np.asarray(job.is_held.any(axis=0))
    is_known = ~np.isnan(util)
    with np.errstate(invalid="ignore"):
        works = is_known & (util > REST_PCT)
    # Requests that come at intervals to a model server are no evaluations.
    evaluates = _evaluations(power, works & (not witnesses.serves))
    kinds = np.full(job.steps, "unknown", object)
    kinds[works] = _work_kind(witnesses, bool(evaluates.any()))
    kinds[evaluates] = "evaluation"
    for start, end in _stretches(is_known & ~works):
        if works[:start].any() or witnesses.began_at < job.t0 + (start - 1) * job.step:
            kinds[start:end] = _rest_kind(job, witnesses, works, start, end)
        else:
            kinds[start:end] = "idle"
            kinds[start:_loaded(job, start, end, works_then=bool(works[end:].any()))] = "loading"
    return [*_merge(kinds, is_held, job)]


def _mean_of_held(job: JobMinutes, name: str) -> Vector:
    """Return the mean over the ranks that are there; NaN: one of them does not report it."""
    values, is_held = job.numbers[name], job.is_held
    sums = np.where(is_held, values, 0.0).sum(axis=0)
    return np.where(is_held.any(axis=0), sums / np.maximum(is_held.sum(axis=0), 1), np.nan)


def _work_kind(witnesses: PhaseWitnesses, has_evaluations: bool) -> PhaseKind:
    if witnesses.serves:
        return "serving"
    trains = witnesses.has_steps or witnesses.checkpoints or has_evaluations
    return "training" if trains else "work"


def _evaluations(power: Vector, works: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the minutes of evaluations: of a job with two steady levels of power, the lower one,
    where it returns at like intervals for like times."""
    nothing = np.zeros(len(power), bool)
    is_working = works & ~np.isnan(power)
    if not is_working.any():
        return nothing
    usual = float(np.median(power[is_working]))
    with np.errstate(invalid="ignore"):
        lower = is_working & (power < LOWER * usual)
    # The minutes in which one level turns into the other are of neither.
    edges = lower & ~(np.roll(lower, 1) & np.roll(lower, -1))
    inside = lower & ~edges
    level = float(np.median(power[inside])) if inside.any() else np.nan
    if not _is_steady(power[is_working & ~lower], usual) or not _is_steady(power[inside], level):
        return nothing
    spans = [(start, end) for start, end in _stretches(lower) if end - start >= LEAST_MINUTES]
    whole = [span for span in spans if span[0] > 0 and span[1] < len(power)]
    if len(whole) < LEAST_TIMES or not _is_regular(whole):
        return nothing
    for start, end in spans:
        nothing[start:end] = True
    return nothing


def _is_steady(power: Vector, level: float) -> bool:
    return len(power) > 0 and float((np.abs(power - level) <= STEADY * level).mean()) >= 0.9


def _is_regular(spans: Sequence[tuple[int, int]]) -> bool:
    apart = [later - start for (start, _), (later, _) in pairwise(spans)]
    lengths = [end - start for start, end in spans]
    return (max(apart) - min(apart) <= SPREAD * float(np.median(apart))
            and max(lengths) <= ALIKE * min(lengths))


def _rest_kind(job: JobMinutes, witnesses: PhaseWitnesses, works: npt.NDArray[np.bool_],
               start: int, end: int) -> PhaseKind:
    begins, ends = (job.t0 + at * job.step for at in (start, end))
    if not works[end:].any() or ends - begins > PAUSE_S:
        return "idle"
    return "checkpoint" if any(begins - off_s <= at <= ends + job.step + off_s
                               for at, off_s in witnesses.checkpoints) else "pause"


def _loaded(job: JobMinutes, start: int, end: int, works_then: bool) -> int:
    """Return the first minute after which neither memory grows nor its processes work, of a rest
    before its GPUs first work; what is short before they do is of the loading, too."""
    memory, cpu = (job.numbers[name][:, start:end] for name in ("mem_used_bytes", "host_cpu_pct"))
    is_loading = _grows(memory)
    works = signs.works_on_host(cpu)
    if len(known_works := works[~np.isnan(cpu)]) > 0 and known_works.mean() >= 0.5:
        is_loading |= works.any(axis=0)
    if not is_loading.any():
        return start
    loaded = start + int(np.flatnonzero(is_loading)[-1]) + 1
    return end if works_then and (end - loaded) * job.step <= PAUSE_S else loaded


def _grows(memory: Matrix) -> npt.NDArray[np.bool_]:
    """Return the minutes up to which it has grown to what it is at the end."""
    has_memory = ~np.isnan(memory).all(axis=0)
    sums = np.nansum(memory, axis=0)
    grows = np.zeros(len(sums), bool)
    if has_memory.any() and sums[has_memory][-1] - sums[has_memory][0] >= LOADS_BYTES:
        grows[has_memory] = sums[has_memory] <= sums[has_memory][-1] - LOADS_BYTES
    return grows


def _stretches(mask: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _merge(kinds: npt.NDArray[np.object_], is_held: npt.NDArray[np.bool_], job: JobMinutes
            ) -> Iterator[JobPhase]:
    """Yield stretches of one kind. Minutes in which the job was not there are of none."""
    at = 0
    for (kind, is_there), minutes in groupby(zip(kinds.tolist(), is_held.tolist(), strict=True)):
        count = sum(1 for _ in minutes)
        if is_there:
            start = job.t0 + at * job.step
            yield JobPhase(kind, start, start + count * job.step)
        at += count

"""Load of a job on each of its GPUs at a moment: pure, from the job's seed and its age."""

import math
from dataclasses import dataclass

from .chance import between, roll
from .jobs import SimulatedJob

STARTING_S = 25.0
DAY_S = 86_400.0


@dataclass(slots=True)
class SimulatedLoad:
    """Shares are 0 to 1. `intensity` is how much of the board's power full use would draw."""

    busy: float = 0.0
    peak: float = 0.0  # the busiest moment within the second
    bandwidth: float = 0.0
    sm: float = 0.0
    intensity: float = 0.0
    mem_share: float = 0.0
    sent: float = 0.0  # of the PCIe link
    received: float = 0.0


def load_of(job: SimulatedJob, at: float) -> SimulatedLoad:
    age_s = max(0.0, at - job.working_since)
    if age_s < STARTING_S:
        return _starting(job, age_s)
    if job.kind in ("train", "finetune"):
        return _training(job, age_s)
    if job.kind == "serve":
        return _serving(job, at)
    if job.kind == "notebook":
        return _notebook(job, age_s)
    return SimulatedLoad(mem_share=job.mem_share)


def paused(job: SimulatedJob, at: float) -> SimulatedLoad:
    """Return the load of a stopped job: the kernels run dry, the memory stays."""
    return SimulatedLoad(mem_share=load_of(job, at).mem_share)


def waits_for_data(job: SimulatedJob, at: float) -> bool:
    """Return whether it starves: a slow disk does that now and then; longer dips for single-GPU
    jobs."""
    return job.kind in ("train", "finetune") and _is_starved(
        job, int(max(0.0, at - job.working_since)))


def _is_starved(job: SimulatedJob, second: int) -> bool:
    return roll(job.seed ^ 0x5A5A, second // 4) < (0.09 if job.kind == "finetune" else 0.035)


def shares(load: SimulatedLoad) -> dict[str, float]:
    """Return what GPM measures of it, by metric key."""
    return {
        "gr_active_pct": round(load.busy * 98.5, 1), "sm_occupancy_pct": round(load.sm * 52, 1),
        "tensor_active_pct": round(load.sm * load.intensity * 61, 1),
        "dram_active_pct": round(load.bandwidth * 83, 1),
    }


def _starting(job: SimulatedJob, age_s: float) -> SimulatedLoad:
    """Weights come in over PCIe; memory fills as they do."""
    part = age_s / STARTING_S
    jitter = roll(job.seed, int(age_s) + 1000)
    busy = 0.02 + 0.1 * jitter
    return SimulatedLoad(busy, min(1.0, busy * 2.5), busy * 0.4, busy * 0.3, 0.5,
                         job.mem_share * (0.05 + 0.9 * part), 0.01, 0.25 + 0.4 * jitter)


def _training(job: SimulatedJob, age_s: float) -> SimulatedLoad:
    """Epochs: training steps, then evaluation, then a checkpoint that leaves over PCIe."""
    seed = job.seed
    epoch_s = between(420, 2_100, roll(seed, 10))
    into_s = age_s % epoch_s
    checkpoint_s = between(6, 16, roll(seed, 11))
    evaluation_s = epoch_s * between(0.05, 0.1, roll(seed, 12))
    second = int(age_s)
    jitter = roll(seed, second)
    if into_s > epoch_s - checkpoint_s:
        return SimulatedLoad(0.03 * jitter, 0.06, 0.1, 0.01, 0.3, job.mem_share,
                             0.45 + 0.2 * jitter, 0.01)
    if into_s > epoch_s - checkpoint_s - evaluation_s:
        busy = between(0.55, 0.78, jitter)
        return SimulatedLoad(busy, min(1.0, busy * 1.15), busy * 0.5, busy * 0.6, 0.72,
                             job.mem_share * 0.84, 0.02, 0.05)
    busy = between(0.93, 1.0, jitter)
    if _is_starved(job, second):
        busy *= between(0.25, 0.7, jitter)
    grown = 0.93 + 0.07 * into_s / epoch_s  # the allocator's cache, emptied at each checkpoint
    intensity = between(0.82, 1.07, roll(seed, 13)) if job.kind == "train" else 0.8
    return SimulatedLoad(busy, 1.0, busy * between(0.35, 0.6, roll(seed, 14)),
                         busy * between(0.62, 0.86, roll(seed, 15)), intensity,
                         job.mem_share * grown,
                         0.03 + 0.03 * jitter, 0.06 + 0.05 * jitter)


def _serving(job: SimulatedJob, at: float) -> SimulatedLoad:
    """Bursts over a tide: requests follow the day, and come in flocks."""
    seed = job.seed
    tide = 0.5 - 0.5 * math.cos((at % DAY_S / DAY_S - 3 / 24) * math.tau)  # lowest at 03:00 UTC
    flock = roll(seed, int(at) // 11) ** 2
    jitter = roll(seed, int(at))
    busy = min(1.0, (0.08 + 0.5 * tide) * (0.35 + 1.6 * flock) * (0.7 + 0.6 * jitter))
    peak = min(1.0, busy * 1.6 + 0.1)
    return SimulatedLoad(busy, peak, busy * 0.78, busy * 0.34, 0.62, job.mem_share,
                         0.01 + 0.03 * busy,
                         0.01 + 0.04 * busy)


def _notebook(job: SimulatedJob, age_s: float) -> SimulatedLoad:
    """Mostly a person thinking. Now and then a cell runs."""
    seed = job.seed
    window = int(age_s // 40)
    ran = 0.4 + 0.6 * min(1.0, age_s / 2_400)  # cells leave their tensors behind
    if roll(seed, window) > 0.12 or age_s % 40 > between(6, 40, roll(seed, window + 7_777)):
        return SimulatedLoad(mem_share=job.mem_share * ran)
    jitter = roll(seed, int(age_s))
    busy = between(0.2, 0.95, jitter)
    return SimulatedLoad(busy, min(1.0, busy * 1.3), busy * 0.3, busy * 0.25, 0.55,
                         job.mem_share * ran,
                         0.02, 0.05 * jitter)

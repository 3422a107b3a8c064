"""Signs that a job is stuck, or that one of its ranks lags: over arrays, so that a live rule, its
rehearsal and the page of a job all compute the same. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]

# Full utilization while power and memory fall to those of a spinning kernel (NVIDIA/nccl#968: 100
# %, 70 W of 300). On recorded runs of H100s, collectives and offloading included, no 10 s did so.
STUCK_UTIL_PCT = 95.0
STUCK_POWER_SHARE = 0.35  # of the board's largest limit: the present one may be a cap
STUCK_MEM_UTIL_PCT = 3.0
STUCK_FOR_S = 180
REST_UTIL_PCT = 1.0  # of the one rank that the others wait for

# Behind its peers, the GPUs of the same job on the same node. On recorded runs, two stages of
# a pipeline on one node differ by 14 % of power, and ranks that do the same by 10 %. At 20 a rank
# that is a fifth slower was found in one of five runs, at 16 within five minutes in three of four:
# noise took it below again and again.
LAG_PCT = 15.0
LAG_CLEAR_PCT = 10.0
LAG_FOR_S = 240
PEERS_LEAST = 3
WORKING_SHARE = 0.3  # of the largest limit: below, boards differ by their power at rest
# A job that writes a checkpoint pauses, and shows none of its other signs meanwhile.
KEPT_S = 600

# A job whose GPUs pause while its host is short of processors or disks waits for data. Pressure is
# the kernel's own measure of waiting: a fifth of the time is much.
STARVED_PRESSURE_PCT = 20.0
STARVED_PCT = 30.0
STARVED_CLEAR_PCT = 15.0
STARVED_FOR_S = 240
# A process that takes a fifth of a processor does something: an idle notebook or a debugger takes
# less than a hundredth.
HOST_WORK_PCT = 20.0


def starved_pct(util_pct: Floats, pressure_pct: Floats) -> Floats:
    """Return the share of a GPU's time that is unused while processes on its host wait; NaN: not
    known."""
    is_known = ~np.isnan(util_pct) & ~np.isnan(pressure_pct)
    with np.errstate(invalid="ignore"):
        idle_pct = np.where(pressure_pct >= STARVED_PRESSURE_PCT, 100.0 - util_pct, 0.0)
    return np.where(is_known, np.maximum(idle_pct, 0.0), np.nan)


def works_on_host(cpu_pct: Floats) -> Floats:
    """Return 1 where processor time shows work; a number that is not known is no evidence."""
    with np.errstate(invalid="ignore"):
        return np.where(cpu_pct >= HOST_WORK_PCT, 1.0, 0.0)


def stuck(util_pct: Floats, mem_util_pct: Floats, power_w: Floats, power_limit_w: Floats) -> Bools:
    """Return whether each GPU is stuck at each moment. A number that is not known is no sign."""
    with np.errstate(invalid="ignore"):
        is_stuck: Bools = ((util_pct >= STUCK_UTIL_PCT) & (mem_util_pct <= STUCK_MEM_UTIL_PCT)
                           & (power_w < STUCK_POWER_SHARE * power_limit_w))
    return is_stuck


class RankLag(NamedTuple):
    """Lag of each GPU behind its peers. `is_compared`: there are enough peers, and they work;
    `rests`: there are enough, and they do not."""

    pct: Floats  # 0 where it is not compared; NaN where too little is known
    is_compared: Bools
    rests: Bools


def rank_lag(util_pct: Floats, power_w: Floats, power_limit_w: Floats, group: Rows) -> RankLag:
    """Return how far each is behind the median of its `group`, its peers at that moment.

    A rank that spins while it waits for a slow one has full utilization: so the slow one is behind
    in utilization where its host is slow, and in power where its board is.
    """
    if not len(group):
        return RankLag(np.zeros(0), np.zeros(0, bool), np.zeros(0, bool))
    (median_w, median_util), peers = _medians((power_w, util_pct), group)
    of_power, of_util = _behind(power_w, median_w), _behind(util_pct, median_util)
    with np.errstate(invalid="ignore"):
        works = median_w >= WORKING_SHARE * power_limit_w
        rests = median_w < WORKING_SHARE * power_limit_w
    is_known, are_enough = ~np.isnan(median_w) & ~np.isnan(power_w), peers >= PEERS_LEAST
    pct = np.where(works & are_enough, np.fmax(of_power, of_util), 0.0)
    return RankLag(np.where(is_known | ~are_enough, np.maximum(pct, 0.0), np.nan),
                   works & are_enough, rests & are_enough)


def _behind(values: Floats, median: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(median > 0, 100.0 * (1.0 - values / median), 0.0)


def _medians(numbers: Sequence[Floats], group: Rows) -> tuple[list[Floats], Rows]:
    """Return, for each row, the median of its group in each of these numbers, and the size of the
    group."""
    if group.max() >= 2**31:
        group = np.unique(group, return_inverse=True)[1]
    shifted = group.astype(np.int64) << 32
    of_group = np.sort(shifted)
    starts = np.flatnonzero(np.append(True, np.diff(of_group) != 0))
    many = np.diff(np.append(starts, len(group)))
    at = np.searchsorted(of_group[starts], shifted)
    return [_middle(values, shifted, starts)[at] for values in numbers], many[at]


def _middle(values: Floats, shifted: npt.NDArray[np.int64], starts: Rows) -> Floats:
    """Return the median of each group; of an even number the lower one: where half of the GPUs do
    less, they do something else, and none is slow."""
    # Non-negative floats sort in the order of their bits, and NaN comes last: one sort of
    # integers takes a tenth of the time of a lexsort.
    bits = np.abs(values).astype(np.float32).view(np.uint32)
    in_order = np.sort(shifted | bits).astype(np.uint32).view(np.float32).astype(float)
    count = np.add.reduceat((~np.isnan(in_order)).astype(np.intp), starts)
    middle = in_order[starts + np.maximum(count - 1, 0) // 2]
    return np.where(count > 0, middle, np.nan)

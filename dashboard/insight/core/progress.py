"""Signature of a hang, seen from outside: a GPU that is busy without progress. Pure.

A collective that waits for a rank that never comes spins: full utilization at the power of a board
that does nothing, and no byte moves. A kernel that spins for another reason looks the same, so that
this says "no progress" and never why.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BUSY_PCT = 95.0
POWER_SHARE = 0.35  # of the limit in force; real training ran at 0.27 and more, but at 14 % busy
MEMORY_PCT = 3.0
LINK_BYTES_PER_S = 100e6


def no_progress(util_pct: Floats, power_w: Floats, limit_w: Floats, most_w: Floats,
                mem_util_pct: Floats, *links: Floats) -> Floats:
    """Return 1 or 0 for each GPU; NaN where utilization, power or its limit is not known.
    `limit_w`: in force, `most_w` where the board does not report that. Memory and links that a
    board does not report count neither for nor against it."""
    limit_w = np.where(np.isnan(limit_w), most_w, limit_w)
    with np.errstate(invalid="ignore"):
        is_stuck = (util_pct >= BUSY_PCT) & (power_w < POWER_SHARE * limit_w)
        is_stuck &= ~(mem_util_pct > MEMORY_PCT)
        for moved in links:
            is_stuck &= ~(moved > LINK_BYTES_PER_S)
    return np.where(np.isnan(util_pct + power_w + limit_w), np.nan, is_stuck.astype(float))



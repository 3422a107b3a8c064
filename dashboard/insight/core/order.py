"""Order in which jobs that share a GPU would go. Pure."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
NONE = -1  # not known


def distinct_values(values: Rows) -> Rows:
    """Return the distinct values, sorted. np.unique hashes since numpy 2.3, which takes ten times
    as long."""
    ordered_values = np.sort(values)
    is_new: npt.NDArray[np.bool_] = np.diff(ordered_values, prepend=ordered_values[:1] - 1) != 0
    return ordered_values[is_new]


def is_first_to_go(job: Rows, gpu: Rows, priority: Floats, started_at: Floats, gpus: int) -> Floats:
    """Return 1 or 0 for each use of a GPU by a task: whether its job has the lowest priority on
    that GPU, and of equals came last. At most one job of a GPU, none where it is alone. NaN where
    the job or the start of anything on that GPU is not known: then no order is given.

    The most important of its tasks speaks for a job, and the first that began.
    """
    is_first = np.zeros(len(job))
    if not len(job):
        return is_first
    is_known = (job != NONE) & ~np.isnan(started_at) & ~np.isnan(priority)
    jobs = int(job.max(initial=0)) + 1
    highest, began_at = np.full(jobs, -np.inf), np.full(jobs, np.inf)
    np.maximum.at(highest, job[is_known], priority[is_known])
    np.minimum.at(began_at, job[is_known], started_at[is_known])
    pairs = distinct_values(gpu[is_known] * jobs + job[is_known])
    where, whose = pairs // jobs, pairs % jobs
    many = np.bincount(where, minlength=gpus)
    is_shared = many[where] > 1
    where, whose = where[is_shared], whose[is_shared]
    # On each GPU: the lowest priority first, of equals the latest, of these one by its number.
    by = np.lexsort((whose, -began_at[whose], highest[whose], where))
    where, whose = where[by], whose[by]
    is_head = np.diff(where, prepend=NONE) != 0
    first = np.full(gpus, NONE, np.intp)
    first[where[is_head]] = whose[is_head]
    is_first[is_known] = first[gpu[is_known]] == job[is_known]
    is_unsure = np.zeros(gpus, bool)
    is_unsure[gpu[~is_known]] = True
    return np.where(is_unsure[gpu], np.nan, is_first)

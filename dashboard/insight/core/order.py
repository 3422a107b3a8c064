"""Which of the jobs that share a GPU goes first, if one has to. Pure."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
NONE = -1  # not known


def distinct_values(values: Rows) -> Rows:
    """Sorted. np.unique hashes since numpy 2.3, which takes ten times as long."""
    found = np.sort(values)
    is_new: npt.NDArray[np.bool_] = np.diff(found, prepend=found[:1] - 1) != 0
    return found[is_new]


def is_first_to_go(job: Rows, gpu: Rows, priority: Floats, started_at: Floats, gpus: int) -> Floats:
    """1 or 0, of each use of a GPU by a task: whether its job has the lowest priority on that GPU,
    and of equals came last. One job of a GPU at most, none where it is alone. NaN where the job or
    the start of anything on that GPU is not known: nothing is said of who goes then.

    The most important of its tasks speaks for a job, and the first that began."""
    found = np.zeros(len(job))
    if not len(job):
        return found
    is_known = (job != NONE) & ~np.isnan(started_at) & ~np.isnan(priority)
    jobs = int(job.max(initial=0)) + 1
    highest, begun = np.full(jobs, -np.inf), np.full(jobs, np.inf)
    np.maximum.at(highest, job[is_known], priority[is_known])
    np.minimum.at(begun, job[is_known], started_at[is_known])
    pairs = distinct_values(gpu[is_known] * jobs + job[is_known])
    where, whose = pairs // jobs, pairs % jobs
    many = np.bincount(where, minlength=gpus)
    is_shared = many[where] > 1
    where, whose = where[is_shared], whose[is_shared]
    # Of each GPU: the lowest priority first, of equals the latest, of these one by its number.
    by = np.lexsort((whose, -begun[whose], highest[whose], where))
    where, whose = where[by], whose[by]
    is_head = np.diff(where, prepend=NONE) != 0
    first = np.full(gpus, NONE, np.intp)
    first[where[is_head]] = whose[is_head]
    found[is_known] = first[gpu[is_known]] == job[is_known]
    is_unsure = np.zeros(gpus, bool)
    is_unsure[gpu[~is_known]] = True
    return np.where(is_unsure[gpu], np.nan, found)

"""Grouping of tasks into jobs, and a job's use of its GPUs. Pure."""

from collections.abc import Hashable, Iterable

JobKey = tuple[str | None, ...]


def job_key(node_id: str, task_id: str, job_id: str | None, user: str | None,
            launch: str | None) -> JobKey:
    """Return the key of a task's job: ranks of one launch are one job, on however many nodes; all
    else is a job of its node."""
    if launch is not None:
        return (user, launch)
    return (node_id, job_id or task_id, None)


def average_sm_pct(uses: Iterable[tuple[Hashable, float | None]]) -> float | None:
    """Return the share of time in which kernels of a task, or of all tasks of a job, ran: summed on
    each GPU, averaged over their GPUs. `uses`: GPU and share of each use. None where the share of
    one of them is not known."""
    gpus, total_pct = set(), 0.0
    for gpu, sm_pct in uses:
        if sm_pct is None:
            return None
        gpus.add(gpu)
        total_pct += sm_pct
    return total_pct / len(gpus) if gpus else None

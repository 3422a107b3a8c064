"""Which tasks are one job. Pure."""

JobKey = tuple[str | None, ...]


def job_key(node_id: str, task_id: str, job_id: str | None, user: str | None,
            launch: str | None) -> JobKey:
    """Ranks of one launch are one job, on however many nodes; all else is a job of its node."""
    if launch is not None:
        return (user, launch)
    return (node_id, job_id or task_id, None)

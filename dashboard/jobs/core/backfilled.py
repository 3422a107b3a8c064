"""Jobs that ran while the hub was away, from frames that nodes send later. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from gpudeck.contract.wire import Task, Tasks

from .records import JobRecord, grown, records_of

# Jobs of one node between two calls of `collect`: a node may send any number.
MOST_ENDED = 500
TaskGpu = tuple[str, int]  # a task, and the index of a GPU of its node


@dataclass(slots=True)
class NodeBackfill:
    """Jobs of a node while the hub was away. Frames say what changed, so it continues from the
    state when the node left: `open` are the jobs that were there at `at`, when its newest frame was
    taken."""

    node: str
    host: str
    tasks: Mapping[str, Task]
    uses: Sequence[TaskGpu]
    open: dict[str, JobRecord]
    at: float = 0.0
    _ended_jobs: list[JobRecord] = field(default_factory=list)
    _is_news: bool = False

    def add(self, tasks: Tasks | None, gpus: Sequence[str], at: float) -> None:
        """Add a frame. `gpus`: in the order in which this frame lists them. `at`: by the hub's
        clock."""
        uses = self.uses if tasks is None else [(use.task_id, use.gpu) for use in tasks.uses]
        if tasks is not None and (tasks.began or tasks.snapshot or uses != self.uses):
            began = {task.id: task for task in tasks.began}
            tasks_now = began if tasks.snapshot else {**self.tasks, **began}
            self.tasks = {task_id: tasks_now[task_id] for task_id, _ in uses
                          if task_id in tasks_now}
            self.uses = uses
            self._change(gpus, at)
        self.at, self._is_news = at, True

    def _change(self, gpus: Sequence[str], at: float) -> None:
        gpus_of: dict[str, set[str]] = {}
        for task_id, gpu in self.uses:
            if gpu < len(gpus):
                gpus_of.setdefault(task_id, set()).add(gpus[gpu])
        former_jobs, self.open = self.open, {}
        for job_id, job in records_of(self.node, self.host, self.tasks.values(), gpus_of,
                                      at).items():
            former = former_jobs.pop(job_id, None)
            self.open[job_id] = job if former is None else grown(former, job)
        room = max(0, MOST_ENDED - len(self._ended_jobs))
        self._ended_jobs += _end_all(former_jobs.values(), at)[:room]

    def collect(self) -> list[JobRecord]:
        """Return all jobs since the last call: those that have ended, and those that were running
        when the newest frame was taken, as ended at that moment: no more is known of them yet."""
        if not self._is_news:
            return []
        ended_jobs, self._ended_jobs, self._is_news = self._ended_jobs, [], False
        return ended_jobs + _end_all(self.open.values(), self.at)


def joined_past(record: JobRecord, past: JobRecord, is_end: bool) -> JobRecord:
    """Merge the record of a job with an earlier time that was reported later. `is_end`: the hub
    itself has not seen the job since."""
    whole = structs.replace(grown(past, record),
                            first_seen=min(past.first_seen, record.first_seen))
    if is_end:
        return structs.replace(whole, last_seen=past.last_seen, ended_at=past.ended_at)
    return whole


def _end_all(records: Iterable[JobRecord], at: float) -> list[JobRecord]:
    return [structs.replace(job, last_seen=at, ended_at=at) for job in records]

"""Jobs of a time without the hub, out of the frames that their nodes bring later. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from gpudeck.wire import Task, Tasks

from .records import JobRecord, grown, records_of

# Of one node, between two looks: what it brings is up to it.
MOST_GONE = 500
TaskGpu = tuple[str, int]  # a task, and which of its node's GPUs


@dataclass(slots=True)
class NodeBackfill:
    """Frames say what changed, so it goes on from what was known when the node left: `open` are
    the jobs that were there at `at`, when its newest frame was taken."""

    node: str
    host: str
    tasks: Mapping[str, Task]
    uses: Sequence[TaskGpu]
    open: dict[str, JobRecord]
    at: float = 0.0
    _gone: list[JobRecord] = field(default_factory=list)
    _is_news: bool = False

    def take(self, tasks: Tasks | None, gpus: Sequence[str], at: float) -> None:
        """`gpus`: in the order in which this frame lists them. `at`: by the hub's clock."""
        uses = self.uses if tasks is None else [(use.task_id, use.gpu) for use in tasks.uses]
        if tasks is not None and (tasks.began or tasks.snapshot or uses != self.uses):
            began = {task.id: task for task in tasks.began}
            known = began if tasks.snapshot else {**self.tasks, **began}
            self.tasks = {task_id: known[task_id] for task_id, _ in uses if task_id in known}
            self.uses = uses
            self._change(gpus, at)
        self.at, self._is_news = at, True

    def _change(self, gpus: Sequence[str], at: float) -> None:
        gpus_of: dict[str, set[str]] = {}
        for task_id, gpu in self.uses:
            if gpu < len(gpus):
                gpus_of.setdefault(task_id, set()).add(gpus[gpu])
        had, self.open = self.open, {}
        for job_id, one in records_of(self.node, self.host, self.tasks.values(), gpus_of,
                                      at).items():
            former = had.pop(job_id, None)
            self.open[job_id] = one if former is None else grown(former, one)
        self._gone += _ended(had.values(), at)[:max(0, MOST_GONE - len(self._gone))]

    def collect(self) -> list[JobRecord]:
        """All since the last time: what has gone, and what was there when the newest frame was
        taken, as of that moment: more is not known of it yet."""
        if not self._is_news:
            return []
        gone, self._gone, self._is_news = self._gone, [], False
        return gone + _ended(self.open.values(), self.at)


def joined_past(had: JobRecord, past: JobRecord, is_end: bool) -> JobRecord:
    """What is known of a job, and what was brought later of an earlier time. `is_end`: the hub
    itself has not seen it since."""
    whole = structs.replace(grown(past, had), first_seen=min(past.first_seen, had.first_seen))
    if is_end:
        return structs.replace(whole, last_seen=past.last_seen, ended_at=past.ended_at)
    return whole


def _ended(records: Iterable[JobRecord], at: float) -> list[JobRecord]:
    return [structs.replace(one, last_seen=at, ended_at=at) for one in records]

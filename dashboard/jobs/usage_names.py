"""Names of jobs and teams for reports of the past."""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from .core.records import JobRecord
from .service import JobsService
from .store import JobsStore
from .views import report_words

Line = Callable[[str | None, str | None], str | None]
MOST_NAMED = 20_000


@dataclass(frozen=True, slots=True)
class JobUsageNames:
    """Source of names. `another_store`: over a separate connection, for a native thread."""

    service: JobsService
    another_store: Callable[[], AbstractContextManager[JobsStore]]

    def teams_of(self, users: Collection[str]) -> Mapping[str, str]:
        return self.service.teams_of(users)

    def team_prices(self) -> Mapping[str, float]:
        return self.service.team_prices()

    def called(self, by: str, keys: Collection[str], line: Line) -> Mapping[str, str]:
        with self.another_store() as store:
            ids = [*keys][:MOST_NAMED]
            records = store.of_ids(ids) if by == "job" else store.of_launches(ids)
        newest: dict[str, JobRecord] = {}
        for job in sorted(records, key=lambda job: job.last_seen):
            newest[job.id if by == "job" else job.launch or ""] = job
        return {key: report_words(job, line(job.user, job.command))
                for key, job in newest.items()}

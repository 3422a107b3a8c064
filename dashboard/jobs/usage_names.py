"""What reports of the past ask of jobs and teams."""

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
    """`another_store`: over a connection of its own, for a native thread."""

    service: JobsService
    another_store: Callable[[], AbstractContextManager[JobsStore]]

    def teams_of(self, users: Collection[str]) -> Mapping[str, str]:
        return self.service.teams_of(users)

    def team_prices(self) -> Mapping[str, float]:
        return self.service.team_prices()

    def called(self, by: str, keys: Collection[str], line: Line) -> Mapping[str, str]:
        with self.another_store() as store:
            wanted = [*keys][:MOST_NAMED]
            found = store.of_ids(wanted) if by == "job" else store.of_launches(wanted)
        newest: dict[str, JobRecord] = {}
        for one in sorted(found, key=lambda one: one.last_seen):
            newest[one.id if by == "job" else one.launch or ""] = one
        return {key: report_words(one, line(one.user, one.command))
                for key, one in newest.items()}

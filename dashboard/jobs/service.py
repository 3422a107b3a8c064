"""Service that records the words of jobs while they run, so that they are known when they have
ended; and the table of teams."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from gpudeck.contract.wire import Frame, Hello

from ..access.policy import Actor, actor_fields
from ..access.rights import require
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError
from ..fleet.effects import StreamRecord
from ..fleet.fleet import Fleet, Node
from ..runtime.runner import Loop
from .core.backfilled import NodeBackfill, joined_past
from .core.record_room import RecordRoom
from .core.records import JobRecord, grown, is_news, records_of
from .core.teams import Team, TeamTable, teams_flaw
from .store import CANNOT_STORE, JobsStore

log = logging.getLogger("gpudeck.jobs")

LOOK_EVERY_S = 5.0
FORGET_EVERY_S = 3_600.0
MOST = 500_000  # nodes choose their names
MOST_UNWRITTEN = 50_000  # while the disk takes nothing
# Of one node, between two looks; jobs that a look sees are recorded in any case.
MOST_EARLY = 64
# Of one node in an hour, whether they come early or late.
MOST_NAMED = 500

NO_GROUPS: Mapping[str, Collection[str]] = {}
GroupsOf = Callable[[], Mapping[str, Collection[str]]]


class JobsService:
    def __init__(self, fleet: Fleet, store: JobsStore, audit: AuditRecorder, groups_of: GroupsOf,
                 provider_groups_of: GroupsOf, keep_s: float) -> None:
        """Load the records of running jobs. `groups_of`: in which Unix groups each owner was seen
        last; `provider_groups_of`: in which groups the provider of sign-ins has them."""
        self._fleet = fleet
        self.store = store
        self._audit = audit
        self._groups_of, self._provider_groups_of = groups_of, provider_groups_of
        self._keep_s = keep_s
        self._running: dict[str, dict[str, JobRecord]] = {}  # by node and id
        for job in store.open():
            self._running.setdefault(job.node, {})[job.id] = job
        self._unwritten: dict[tuple[str, str], JobRecord] = {}
        self._room = RecordRoom()
        self._warned: set[str] = set()  # nodes without room in this hour
        self._uses: dict[str, frozenset[tuple[str, int]]] = {}  # by node, as they were looked at
        self._pasts: dict[str, NodeBackfill] = {}
        self._past_news: list[JobRecord] = []
        self._early: Counter[str] = Counter()  # by node, jobs known before a look
        self._unseen_jobs: Counter[str] = Counter()  # by node, in this hour
        # By node, jobs whose end its past may report: not seen here since it came back.
        self._past_ends: dict[str, set[str]] = {}
        self._forgot_at = -FORGET_EVERY_S
        self._is_failing = False
        self._table = TeamTable(store.teams())

    @property
    def loop(self) -> Loop:
        return Loop("jobs", self.step, LOOK_EVERY_S)

    # -- records

    def receive(self, record: StreamRecord) -> None:
        """Record the jobs of a frame: a job has its page from the frame on that brings it. At the
        next look a short one would be gone, and a job that ran while the hub was away is in no
        look."""
        message, node = record.message, self._fleet.nodes.get(record.node_id)
        if node is None:
            return
        if isinstance(message, Hello):
            self._connected(record.node_id, node)
        elif not isinstance(message, Frame):
            return
        elif record.is_backfill:
            self._add_past(record, message, node)
        elif (message.tasks is not None and message.tasks.began and _reports_tasks(node)
              and self._early[record.node_id] < MOST_EARLY
              and self._unseen_jobs[record.node_id] < MOST_NAMED):
            self._early[record.node_id] += len(message.tasks.began)
            self._unseen_jobs[record.node_id] += len(message.tasks.began)
            self._look(record.node_id, node, record.received_at)

    def _connected(self, node_id: str, node: Node) -> None:
        former = self._pasts.get(node_id)
        if former is not None:
            self._past_news += former.collect()
        self._uses.pop(node_id, None)
        self._past_ends[node_id] = set()
        self._pasts[node_id] = NodeBackfill(
            node_id, node.hello.host, dict(node.tasks),
            [(use.task_id, use.gpu) for use in node.uses],
            dict(self._running.get(node_id, {})))

    def _add_past(self, record: StreamRecord, frame: Frame, node: Node) -> None:
        past, listing = self._pasts.get(record.node_id), node.listings.get(frame.generation)
        if past is not None:
            past.add(frame.tasks, [] if listing is None else
                     [self._fleet.uuids[slot] for slot in listing.order], float(record.second))

    def step(self, now: float, mono: float) -> None:
        self._early.clear()
        for node_id, node in self._fleet.nodes.items():
            if _reports_tasks(node):
                self._look(node_id, node, now)
        for past in self._pasts.values():
            self._past_news += past.collect()
        try:
            self._save_past(now)
            if self._unwritten:
                self.store.put(self._unwritten.values())
                self._unwritten.clear()
            if mono - self._forgot_at >= FORGET_EVERY_S:
                self.store.forget(now - self._keep_s, MOST)
                self._unseen_jobs.clear()
                self._warned.clear()
                self._forgot_at = mono
            self._is_failing = False
        except CANNOT_STORE as error:
            if not self._is_failing:
                log.warning("jobs_not_kept why=%r", str(error))
            self._is_failing = True
            for key in [*self._unwritten][:-MOST_UNWRITTEN]:
                del self._unwritten[key]
            del self._past_news[:-MOST_UNWRITTEN]

    def _save_past(self, now: float) -> None:
        """Merge jobs that nodes have reported of a time without the hub into those known since."""
        if not self._past_news:
            return
        records = {(job.node, job.id): job
                   for job in self.of_ids({job.id for job in self._past_news})}
        for job in self._past_news:
            key, ends = (job.node, job.id), self._past_ends.setdefault(job.node, set())
            had = records.get(key)
            if had is None:
                if self._unseen_jobs[job.node] >= MOST_NAMED:
                    continue
                self._unseen_jobs[job.node] += 1
                ends.add(job.id)
            here = self._running.get(job.node, {})
            whole = job if had is None else joined_past(
                had, job, job.id not in here and job.id in ends)
            if whole == had:
                continue
            if job.id in here:
                here[job.id] = whole
            if not self._has_room(had, whole, now):
                if job.id not in here:
                    self._room.forget(job)
                continue
            self._unwritten[key] = records[key] = whole
        self._past_news.clear()

    def of_ids(self, ids: Collection[str]) -> list[JobRecord]:
        """Return their records; those that run as they are known now, not as they were written
        last."""
        return self._newest(self.store.of_ids(ids), lambda job: job.id in ids)

    def of_launch(self, launch: str) -> list[JobRecord]:
        return self._newest(self.store.of_launches([launch]), lambda job: job.launch == launch)

    def ended(self, since: float, most: int) -> list[JobRecord]:
        return self._newest(self.store.ended(since, most), lambda job: (
            job.ended_at is not None and job.last_seen >= since))

    def running(self) -> list[JobRecord]:
        return [job for jobs in self._running.values() for job in jobs.values()]

    def _newest(self, stored: Iterable[JobRecord], is_wanted: Callable[[JobRecord], bool]
                ) -> list[JobRecord]:
        newest = {(job.node, job.id): job for job in stored}
        for job in (*self._unwritten.values(), *self.running()):
            if (key := (job.node, job.id)) in newest or is_wanted(job):
                newest[key] = job
        return [*newest.values()]

    def _look(self, node_id: str, node: Node, now: float) -> None:
        uses = frozenset((use.task_id, use.gpu) for use in node.uses)
        if self._uses.get(node_id) == uses and not self._room.is_short(node_id):
            return
        is_first = node_id not in self._uses
        self._uses[node_id] = uses
        records = records_of(
            node_id, node.hello.host, node.tasks.values(), self._gpus_of(node), now)
        had, here = self._running.pop(node_id, {}), {}
        for job_id, job in records.items():
            former = had.pop(job_id, None)
            here[job_id] = whole = job if former is None else grown(former, job)
            if ((former is None or is_news(former, whole) or self._room.is_left_out(whole))
                    and self._has_room(former, whole, now)):
                self._unwritten[node_id, job_id] = whole
        for job_id, job in had.items():
            last = self._room.end(job, now)
            if last is not None:
                self._unwritten[node_id, job_id] = last
        if here:
            self._running[node_id] = here
        if is_first:
            self._past_ends.setdefault(node_id, set()).update(had)

    def _has_room(self, had: JobRecord | None, job: JobRecord, now: float) -> bool:
        if self._room.take(had, job, now):
            return True
        if job.node not in self._warned:
            self._warned.add(job.node)
            log.warning("jobs_not_kept node=%s why='more than one node may have'", job.node)
        return False

    def _gpus_of(self, node: Node) -> dict[str, set[str]]:
        by_task: dict[str, set[str]] = {}
        for use in node.uses:
            if node.listing is not None and use.gpu < len(node.listing.order):
                by_task.setdefault(use.task_id, set()).add(
                    self._fleet.uuids[node.listing.order[use.gpu]])
        return by_task

    # -- teams

    def set_teams(self, actor: Actor, teams: Collection[Team]) -> None:
        require(actor, "PUT /api/v1/teams")
        flaw = teams_flaw(teams)
        if flaw is not None:
            raise InvalidChangeError(flaw)
        had = {team.name: team for team in self.teams}
        changed = sorted({team.name for team in teams if had.get(team.name) != team}
                         | {*had} - {team.name for team in teams})
        with self._audit.change("team", actor_fields(actor) | {"action": "replace", "detail": {
                "count": len(teams), "changed": changed[:100]}}):
            self.store.put_teams(teams)
        self._table = TeamTable(teams)

    def owners(self) -> list[str]:
        """Return the owners whose tasks were seen."""
        return sorted({*self._groups_of(), *(job.user for job in self.running()
                                             if job.user is not None)})

    @property
    def teams(self) -> tuple[Team, ...]:
        return self._table.teams

    def teams_of(self, users: Collection[str],
                 more_groups: Mapping[str, Collection[str]] = NO_GROUPS) -> dict[str, str]:
        """Return the teams of these users. `more_groups`: other Unix groups of owners that are
        known."""
        groups = {**self._groups_of(), **more_groups}
        for user, names in self._provider_groups_of().items():
            groups[user] = (*groups.get(user, ()), *names)
        return self._table.of(users, groups)

    def team_prices(self) -> dict[str, float]:
        return {team.name: team.price_gpu_hour for team in self.teams
                if team.price_gpu_hour is not None}


def _reports_tasks(node: Node) -> bool:
    """Return whether the node reports its tasks now: a task that is missing from the report of a
    node that is away has not ended."""
    return node.connected and node.are_tasks_known and node.state == "live"

"""Keeps the words of jobs while they run, so that they are known when they have ended; and the
table of teams."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import structs

from gpudeck.wire import Frame, Hello

from ..access.policy import Actor, actor_fields
from ..access.rights import require
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError
from ..fleet.effects import StreamRecord
from ..fleet.fleet import Fleet, Node
from ..runtime.runner import Loop
from .core.backfilled import NodeBackfill, joined_past
from .core.records import JobRecord, grown, is_news, records_of
from .core.teams import Team, TeamTable, teams_flaw
from .store import CANNOT_STORE, JobsStore

log = logging.getLogger("gpudeck.jobs")

LOOK_EVERY_S = 5.0
FORGET_EVERY_S = 3_600.0
MOST = 500_000  # their names are up to the nodes
MOST_UNWRITTEN = 50_000  # while the disk takes nothing
# Of one node, between two looks; what is there at a look is taken in any case.
MOST_EARLY = 64
# And of one node in an hour, whether they come early or late.
MOST_NAMED = 500

NOTHING_TOLD: Mapping[str, Collection[str]] = {}
GroupsOf = Callable[[], Mapping[str, Collection[str]]]


class JobsService:
    def __init__(self, fleet: Fleet, store: JobsStore, audit: AuditRecorder, groups_of: GroupsOf,
                 keep_s: float) -> None:
        """`groups_of`: in which Unix groups each owner was seen last."""
        self._fleet = fleet
        self.store = store
        self._audit = audit
        self._groups_of = groups_of
        self._keep_s = keep_s
        self._running: dict[str, dict[str, JobRecord]] = {}  # by node and id
        for one in store.open():
            self._running.setdefault(one.node, {})[one.id] = one
        self._unwritten: dict[tuple[str, str], JobRecord] = {}
        self._uses: dict[str, frozenset[tuple[str, int]]] = {}  # by node, as they were looked at
        self._pasts: dict[str, NodeBackfill] = {}
        self._past_news: list[JobRecord] = []
        self._early: Counter[str] = Counter()  # by node, jobs known before a look
        self._named: Counter[str] = Counter()  # by node, in this hour, jobs that no look has seen
        # By node, jobs whose end its past may say: nobody here has seen them since it came back.
        self._past_ends: dict[str, set[str]] = {}
        self._forgot_at = -FORGET_EVERY_S
        self._is_failing = False
        self._table = TeamTable(store.teams())

    @property
    def loop(self) -> Loop:
        return Loop("jobs", self.step, LOOK_EVERY_S)

    # -- records

    def heard(self, record: StreamRecord) -> None:
        """A job has its page from the frame on that brings it: at the next look a short one would
        be gone, and what ran while the hub was away is in no look."""
        message, node = record.message, self._fleet.nodes.get(record.node_id)
        if node is None:
            return
        if isinstance(message, Hello):
            self._joined(record.node_id, node)
        elif not isinstance(message, Frame):
            return
        elif record.is_backfill:
            self._past_told(record, message, node)
        elif (message.tasks is not None and message.tasks.began and _is_told(node)
              and self._early[record.node_id] < MOST_EARLY
              and self._named[record.node_id] < MOST_NAMED):
            self._early[record.node_id] += len(message.tasks.began)
            self._named[record.node_id] += len(message.tasks.began)
            self._look(record.node_id, node, record.received_at)

    def _joined(self, node_id: str, node: Node) -> None:
        former = self._pasts.get(node_id)
        if former is not None:
            self._past_news += former.collect()
        self._uses.pop(node_id, None)
        self._past_ends[node_id] = set()
        self._pasts[node_id] = NodeBackfill(
            node_id, node.hello.host, dict(node.tasks),
            [(use.task_id, use.gpu) for use in node.uses],
            dict(self._running.get(node_id, {})))

    def _past_told(self, record: StreamRecord, frame: Frame, node: Node) -> None:
        past, listing = self._pasts.get(record.node_id), node.listings.get(frame.generation)
        if past is not None:
            past.take(frame.tasks, [] if listing is None else
                      [self._fleet.uuids[slot] for slot in listing.order], float(record.second))

    def step(self, now: float, mono: float) -> None:
        self._early.clear()
        for node_id, node in self._fleet.nodes.items():
            if _is_told(node):
                self._look(node_id, node, now)
        for past in self._pasts.values():
            self._past_news += past.collect()
        try:
            self._take_past()
            if self._unwritten:
                self.store.put(self._unwritten.values())
                self._unwritten.clear()
            if mono - self._forgot_at >= FORGET_EVERY_S:
                self.store.forget(now - self._keep_s, MOST)
                self._named.clear()
                self._forgot_at = mono
            self._is_failing = False
        except CANNOT_STORE as error:
            if not self._is_failing:
                log.warning("jobs_not_kept why=%r", str(error))
            self._is_failing = True
            for key in [*self._unwritten][:-MOST_UNWRITTEN]:
                del self._unwritten[key]
            del self._past_news[:-MOST_UNWRITTEN]

    def _take_past(self) -> None:
        """What nodes have brought of a time without the hub, beside what is known since."""
        if not self._past_news:
            return
        known = {(one.node, one.id): one
                 for one in self.of_ids({one.id for one in self._past_news})}
        for one in self._past_news:
            key, ends = (one.node, one.id), self._past_ends.setdefault(one.node, set())
            had = known.get(key)
            if had is None:
                if self._named[one.node] >= MOST_NAMED:
                    continue
                self._named[one.node] += 1
                ends.add(one.id)
            here = self._running.get(one.node, {})
            whole = one if had is None else joined_past(
                had, one, one.id not in here and one.id in ends)
            if whole == had:
                continue
            if one.id in here:
                here[one.id] = whole
            self._unwritten[key] = known[key] = whole
        self._past_news.clear()

    def of_ids(self, ids: Collection[str]) -> list[JobRecord]:
        """Those that run, as they are known now, not as they were written last."""
        return self._newest(self.store.of_ids(ids), lambda one: one.id in ids)

    def of_launch(self, launch: str) -> list[JobRecord]:
        return self._newest(self.store.of_launches([launch]), lambda one: one.launch == launch)

    def ended(self, since: float, most: int) -> list[JobRecord]:
        return self._newest(self.store.ended(since, most), lambda one: (
            one.ended_at is not None and one.last_seen >= since))

    def running(self) -> list[JobRecord]:
        return [one for jobs in self._running.values() for one in jobs.values()]

    def _newest(self, written: Iterable[JobRecord], is_meant: Callable[[JobRecord], bool]
                ) -> list[JobRecord]:
        found = {(one.node, one.id): one for one in written}
        for one in (*self._unwritten.values(), *self.running()):
            if (key := (one.node, one.id)) in found or is_meant(one):
                found[key] = one
        return [*found.values()]

    def _look(self, node_id: str, node: Node, now: float) -> None:
        uses = frozenset((use.task_id, use.gpu) for use in node.uses)
        if self._uses.get(node_id) == uses:
            return
        is_first = node_id not in self._uses
        self._uses[node_id] = uses
        found = records_of(node_id, node.hello.host, node.tasks.values(), self._gpus_of(node), now)
        had, here = self._running.pop(node_id, {}), {}
        for job_id, one in found.items():
            former = had.pop(job_id, None)
            here[job_id] = whole = one if former is None else grown(former, one)
            if former is None or is_news(former, whole):
                self._unwritten[node_id, job_id] = whole
        for job_id, one in had.items():
            self._unwritten[node_id, job_id] = structs.replace(one, last_seen=now, ended_at=now)
        if here:
            self._running[node_id] = here
        if is_first:
            self._past_ends.setdefault(node_id, set()).update(had)

    def _gpus_of(self, node: Node) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for use in node.uses:
            if node.listing is not None and use.gpu < len(node.listing.order):
                found.setdefault(use.task_id, set()).add(
                    self._fleet.uuids[node.listing.order[use.gpu]])
        return found

    # -- teams

    def set_teams(self, actor: Actor, wanted: Collection[Team]) -> None:
        require(actor, "PUT /api/v1/teams")
        flaw = teams_flaw(wanted)
        if flaw is not None:
            raise InvalidChangeError(flaw)
        had = {team.name: team for team in self.teams}
        changed = sorted({team.name for team in wanted if had.get(team.name) != team}
                         | {*had} - {team.name for team in wanted})
        with self._audit.change("team", actor_fields(actor) | {"action": "replace", "detail": {
                "count": len(wanted), "changed": changed[:100]}}):
            self.store.put_teams(wanted)
        self._table = TeamTable(wanted)

    def owners(self) -> list[str]:
        """Whose tasks were seen."""
        return sorted({*self._groups_of(), *(one.user for one in self.running()
                                             if one.user is not None)})

    @property
    def teams(self) -> tuple[Team, ...]:
        return self._table.teams

    def teams_of(self, users: Collection[str], told: Mapping[str, Collection[str]] = NOTHING_TOLD
                 ) -> dict[str, str]:
        """`told`: Unix groups of owners that are known besides."""
        return self._table.of(users, {**self._groups_of(), **told})

    def team_prices(self) -> dict[str, float]:
        return {team.name: team.price_gpu_hour for team in self.teams
                if team.price_gpu_hour is not None}


def _is_told(node: Node) -> bool:
    """What a node that is away does not say has not ended."""
    return node.connected and node.are_tasks_known and node.state == "live"

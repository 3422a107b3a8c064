"""Keeps the words of jobs while they run, so that they are known when they have ended; and the
table of teams."""

import logging
from collections.abc import Callable, Collection, Mapping

from msgspec import structs

from ..access.policy import Actor, by
from ..access.rights import require
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError
from ..fleet.fleet import Fleet, Node
from .core.records import JobRecord, grown, is_news, records_of
from .core.teams import Team, TeamTable, teams_flaw
from .store import CANNOT_STORE, JobsStore

log = logging.getLogger("gpudeck.jobs")

LOOK_EVERY_S = 5.0
FORGET_EVERY_S = 3_600.0
MOST = 500_000  # their names are up to the nodes

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
        self.running: dict[tuple[str, str], JobRecord] = {
            (one.node, one.id): one for one in store.open()}
        self._uses: dict[str, frozenset[tuple[str, int]]] = {}  # by node, as they were looked at
        self._forgot_at = -FORGET_EVERY_S
        self._is_failing = False
        self._table = TeamTable(store.teams())

    # -- records

    def step(self, now: float, mono: float) -> None:
        news = [one for node_id, node in self._fleet.nodes.items() if _is_told(node)
                for one in self._look(node_id, node, now)]
        try:
            if news:
                self.store.put(news)
            if mono - self._forgot_at >= FORGET_EVERY_S:
                self.store.forget(now - self._keep_s, MOST)
                self._forgot_at = mono
            self._is_failing = False
        except CANNOT_STORE as error:
            if not self._is_failing:
                log.warning("jobs_not_kept why=%r", str(error))
            self._is_failing = True
            self._uses.clear()  # looked at again, and written then
            return
        for one in news:
            if one.ended_at is None:
                self.running[one.node, one.id] = one
            else:
                self.running.pop((one.node, one.id), None)

    def _look(self, node_id: str, node: Node, now: float) -> list[JobRecord]:
        uses = frozenset((use.task_id, use.gpu) for use in node.uses)
        if self._uses.get(node_id) == uses:
            return []
        self._uses[node_id] = uses
        found = records_of(node_id, node.hello.host, node.tasks.values(), self._gpus_of(node), now)
        had = {job_id: one for (at, job_id), one in self.running.items() if at == node_id}
        news = []
        for job_id, one in found.items():
            former = had.pop(job_id, None)
            whole = one if former is None else grown(former, one)
            if former is None or is_news(former, whole):
                news.append(whole)
        return news + [structs.replace(one, last_seen=now, ended_at=now) for one in had.values()]

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
        with self._audit.change("team", by(actor) | {"action": "replace", "detail": {
                "count": len(wanted), "changed": changed[:100]}}):
            self.store.put_teams(wanted)
        self._table = TeamTable(wanted)

    def owners(self) -> list[str]:
        """Whose tasks were seen."""
        return sorted({*self._groups_of(), *(one.user for one in self.running.values()
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

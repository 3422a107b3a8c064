"""REST of jobs and teams."""

import time
from dataclasses import dataclass

from flask import request
from msgspec import Raw

from ..access.policy import Role
from ..access.requests import caller
from ..access.routes import Route, change, see
from ..errors import NotFoundError
from ..fleet.visibility import VisibleFleetCache
from ..web.answers import bad, check_names, one_of, read_limit
from ..web.moments import moment
from ..web.openapi_parts import TIME, needed
from ..web.query_pool import QueryPool
from . import views
from .core.teams import Team, with_team
from .kubernetes_views import KubernetesList
from .queries import JobQueries
from .schedulers import SchedulerQueries
from .service import JobsService
from .slurm_views import SlurmList

WEEK_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class JobsApi:
    service: JobsService
    queries: JobQueries
    visible_fleets: VisibleFleetCache
    questions: QueryPool
    schedulers: SchedulerQueries

    def jobs(self) -> views.JobList:
        check_names(("state", "user", "since", "limit"))
        state = one_of("state", request.args.get("state"), ("running", "ended"))
        since = moment("since")
        items = self.queries.all(
            caller(), state, request.args.get("user"),
            time.time() - WEEK_S if since is None else since)
        return views.JobList(items[: read_limit(request.args.get("limit"))], len(items))

    def job(self, job_id: str) -> Raw:
        check_names(("start", "end"))
        start, end = moment("start"), moment("end")
        if start is not None and end is not None and start >= end:
            raise bad("start must be before end")
        queries = self.queries
        query = queries.question(caller(), job_id, start, end)
        return self.questions.encoded(lambda: queries.page(query))

    def findings(self) -> Raw:
        check_names(("user",))
        user = request.args.get("user")
        if not user:
            raise bad("user is needed")
        queries = self.queries
        running, unchecked = queries.running_questions(caller(), user)
        return self.questions.encoded(lambda: queries.findings(running, unchecked))

    def slurm(self) -> SlurmList:
        return self.schedulers.slurm(self.visible_fleets.seen_by(caller()))

    def kubernetes(self) -> KubernetesList:
        return self.schedulers.kubernetes(self.visible_fleets.seen_by(caller()))

    def teams(self) -> views.TeamList:
        owners = self.service.owners()
        return views.team_list(self.service.teams, self.service.teams_of(owners), owners)

    def set_teams(self, new_teams: views.NewTeams) -> views.TeamList:
        self.service.set_teams(caller(), new_teams.items)
        return self.teams()

    def put_team(self, team: Team) -> views.TeamList:
        self.service.set_teams(caller(), with_team(self.service.teams, team))
        return self.teams()

    def remove_team(self, name: str) -> None:
        remaining = [team for team in self.service.teams if team.name != name]
        if len(remaining) == len(self.service.teams):
            raise NotFoundError("there is no such team")
        self.service.set_teams(caller(), remaining)


ROUTES = (
    Route("GET jobs", JobsApi.jobs, "list_jobs", see(Role.VIEWER),
          "Jobs and launches, running ones first, then by when they were seen last; ended ones of "
          "the last 7 days, or since `since`.",
          query=(("state", {"enum": ["running", "ended"]}), ("user", {"type": "string"}),
                 ("since", TIME), ("limit", {"type": "integer", "minimum": 1}))),
    Route("GET jobs/<path:job_id>", JobsApi.job, "get_job", see(Role.VIEWER),
          "A job, or the launch that it is part of: its ranks side by side over the last two hours "
          "or a span, what is wrong with it, and what it used.",
          answer=views.JobPage, errors=(404, 503), query=(("start", TIME), ("end", TIME))),
    Route("GET findings", JobsApi.findings, "list_findings", see(Role.VIEWER),
          "What is wrong with the running jobs of one owner, as the pages of the jobs say it; of "
          "24 jobs at most.", answer=views.FindingList, errors=(503,),
          query=(needed("user", {"type": "string", "minLength": 1}),)),
    Route("GET slurm", JobsApi.slurm, "get_slurm", see(Role.VIEWER),
          "Slurm's jobs that hold GPUs or wait for some, and its nodes, next to what the "
          "jobs' processes use. Those first that hold GPUs without a process."),
    Route("GET kubernetes", JobsApi.kubernetes, "get_kubernetes", see(Role.VIEWER),
          "Pods of Kubernetes that hold GPUs or wait for some, and its nodes, next to what the "
          "pods' processes use. Those first that hold GPUs without a process."),
    Route("GET teams", JobsApi.teams, "list_teams", see(Role.ADMIN),
          "Teams, and which owners are in each."),
    Route("PUT teams", JobsApi.set_teams, "put_teams", change(Role.ADMIN, is_fresh=False),
          "Replace the whole table.", errors=(409,)),
    Route("POST teams", JobsApi.put_team, "put_team", change(Role.ADMIN, is_fresh=False),
          "Add a team, or replace the team of this name.", errors=(409,)),
    Route("DELETE teams/<path:name>", JobsApi.remove_team, "remove_team",
          change(Role.ADMIN, is_fresh=False), "Remove a team.", errors=(404, 409)),
)

"""The page of a job or launch: what is wrong with it, its ranks side by side, what it is and used.
assets/jobs/job.mjs paints the ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

from dash.development.base_component import Component
from msgspec import Meta

from gpudeck.client.hub import Client, NotThere, typed
from gpudeck.markup import make, region
from gpudeck.words.command_lines import short_command

from ..jobs.views import JobPage, JobRankView
from ..pool.views import LeaseView
from .components import RankMap
from .job_words import event_lines, facts_of, finding_lines, marked_ranks, subtitle
from .my_work_jobs import way_on
from .parts import Page, problem, switch
from .pool_tables import PoolTables, fact_lines
from .rank_map import METRICS, is_reported, map_data, rank_name
from .reading import Parts, Reading, View, Viewer, viewer

EVERY_S = 15.0
NEW_EVERY_S = 3.0  # until there is something to see
USUAL_METRIC = "util_pct"
NOWHERE = ("No such job: it may be older than the stored history, or outside your scope. This page "
           "shows one that has just started within seconds.")
ACTIONS = {"pause": "Pause job", "resume": "Resume job", "restore": "Restore job",
           "end": "End job"}
SWITCH = tuple((key, metric.label) for key, metric in METRICS.items())

Moment = Annotated[str, Meta(max_length=64)]


class JobView(View):
    """Choice of the metric, and of the span of time. `job`: what the page's address ends with."""

    job: Annotated[str, Meta(max_length=512)] = ""
    metric: str = USUAL_METRIC
    start: Moment = ""
    end: Moment = ""

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset(("job",))


@dataclass(frozen=True, slots=True)
class RankGpu:
    """A GPU of a job, as its lease names it."""

    place: str
    model: str = ""


def frame() -> Component:
    return make("div#job.job-page", [
        make("header.lines-head", [
            make("nav.crumbs", make("a", "Tasks", href="/tasks"),
                 aria_label="Breadcrumb"),
            make("div.lines-name", [make("h1#job-title", "…"), make("p#job-subtitle", "")]),
            make("div#job-acts.page-acts", "")]),
        problem("job"),
        region("div#job-floor.job-floor", "Job", [
            make("ul#job-findings.job-findings"),
            make("section.job-ranks", [
                make("header", [make("h2", "Ranks side by side"),
                                switch("job-metric", "Metric", "metric", SWITCH)]),
                RankMap("job-map"),
                make("p#job-scale.job-scale", "", role="status")]),
            make("section#job-lease-section", [make("h2", "Lease"),
                                               make("div#job-leases.job-leases")], hidden=True),
            make("div.job-columns", [
                make("section", [make("h2", "Facts"), make("dl#job-facts.facts")]),
                make("section", [make("h2", "Events"), make("ul#job-events.job-events")])])])],
        hidden=True, data_unsettled="")


def answer(client: Client, view: JobView, now: float) -> Parts:
    if view.metric not in METRICS:
        view.metric = USUAL_METRIC
    span = {name: at for name, at in (("start", view.start), ("end", view.end)) if at}
    try:
        page = typed(JobPage, client.hub.get(f"jobs/{quote(view.job, safe='')}", **span))
    except NotThere:
        return {"@every": NEW_EVERY_S, "job-title": "Unknown job",
                "job-problem": NOWHERE, "job-floor": False, "job-acts": None}
    ids = set() if page.tasks_now is None else {*page.tasks_now.ids}
    leases = [lease for lease in typed(list[LeaseView], client.leases())
              if not ids.isdisjoint(lease.task_ids)] if ids else []
    return parts_of(page, leases, view, viewer(client), now)


def parts_of(page: JobPage, leases: Sequence[LeaseView], view: JobView, person: Viewer, now: float
             ) -> Parts:
    """Return the parts of the page. Pure."""
    job, marked = page.job, marked_ranks(page)
    gpus = {rank.gpu: RankGpu(rank.place) for rank in page.ranks}
    title = short_command(job.command)
    is_new = page.is_running and not page.ranks
    return {
        "@every": NEW_EVERY_S if is_new else EVERY_S,
        "job-title": make("h1#job-title", title, title=job.command),
        "job-subtitle": subtitle(page, view.zone, now),
        "job-problem": None, "job-floor": True, "job-acts": _buttons(page, person),
        "job-findings": finding_lines(page, view.zone),
        "job-metric": [_metric_button(key, view.metric) for key in METRICS
                       if key == view.metric or is_reported(page, key)],
        "job-names": [_name(rank, at in marked) for at, rank in enumerate(page.ranks)],
        "job-canvas": make("canvas#job-canvas", data_ranks=map_data(page, view.zone, now)),
        "job-lease-section": bool(leases),
        "job-leases": PoolTables(person, gpus, now, view.zone).leases(
            leases, "Leases of this job"),
        "job-facts": fact_lines(facts_of(page, view.zone)),
        "job-events": event_lines(page, view.zone)}


def _buttons(page: JobPage, person: Viewer) -> list[Component]:
    tasks = page.tasks_now
    if tasks is None or not tasks.act_on or not person.may_change(page.job.user):
        return []
    return [make(f"button.button{'.danger' if action == 'end' else ''}", ACTIONS[action],
                 data_act=action, data_targets=[*tasks.act_on], data_key=action)
            for action in (way_on(tasks.paused, tasks.suspended), "end")]


def _metric_button(key: str, metric: str) -> Component:
    traits: dict[str, Any] = {"data_view": "metric", "data_value": key, "data_metric": key}
    return make("button", METRICS[key].label, aria_pressed=str(key == metric).lower(),
                data_key=key, **traits)


def _name(rank: JobRankView, is_marked: bool) -> Component:
    looks = f"{'.marked' if is_marked else ''}{'' if rank.is_held else '.gone'}"
    return make(f"li{looks}", make(
        "a", rank_name(rank), title=rank.gpu,
        href=f"/gpu/{quote(rank.host, safe='')}/{quote(rank.place, safe='')}"))


PAGE = Page(
    "job", "Job", "jobs/job.mjs", frame,
    "A row for each rank, a column for each step of time; findings are listed above, with their "
    "evidence. A launch shows its ranks on all nodes.",
    (("←  →", "next or previous metric"),), addresses=r"^/job/.+$", under="/tasks",
    reading=Reading(JobView, answer, EVERY_S, "job", path="job"))

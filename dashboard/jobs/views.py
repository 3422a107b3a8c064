"""Teams and jobs, as the API and the pages show them. Pure."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from ..fleet.host_views import CheckpointsView, CollectivesView, ServingView
from .core.findings import JobFinding, Kind
from .core.job_minutes import JobMinutes, Mask, Matrix
from .core.phases import JobPhase
from .core.records import JobRecord, short_line
from .core.teams import MOST, Team

if TYPE_CHECKING:
    import pandas as pd

MOST_SHOWN = 80  # characters of a command line


class NewTeams(Struct, forbid_unknown_fields=True):
    items: Annotated[tuple[Team, ...], Meta(max_length=MOST)]


class TeamList(Struct):
    items: Annotated[tuple[Team, ...], Meta(max_length=MOST)]
    # Owners whose tasks were seen, by team; those without a team under "".
    members: dict[str, list[str]] = {}


def team_list(teams: tuple[Team, ...], members: Mapping[str, str], owners: Sequence[str]
              ) -> TeamList:
    by_team: dict[str, list[str]] = {}
    for user in sorted(owners):
        by_team.setdefault(members.get(user, ""), []).append(user)
    return TeamList(teams, by_team)


def report_words(record: JobRecord, line: str | None) -> str:
    """Return the name of a job in a report: its command, where, since when."""
    since = record.first_seen if record.started_at is None else record.started_at
    at = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%d %H:%M UTC")
    what = "command unknown" if line is None else short_line(line)
    cut = what if len(what) <= MOST_SHOWN else f"{what[:MOST_SHOWN]} …"
    return f"{cut} on {record.host}, since {at}"


class JobItem(Struct):
    """A job, or a launch: its ranks on all nodes. `id`: of the first of its jobs; the id of each of
    them leads here."""

    id: str
    jobs: list[str]
    user: str | None
    team: str | None
    command: str | None  # as much as may be read
    launch: str | None
    slurm_job: str | None
    container: str | None
    pod: str | None
    namespace: str | None
    unit: str | None
    manager: str | None
    nodes: list[str]
    hosts: list[str]
    gpus: int
    tasks: int
    started_at: float | None
    first_seen: float
    last_seen: float
    ended_at: float | None  # null: it runs, or its end was not seen


class JobTotals(Struct):
    """Totals over all of its life, as far as history has it."""

    gpu_hours: float
    util_pct: float | None
    idle_hours: float | None
    energy_kwh: float | None


class JobRankView(Struct):
    number: int | None
    node: str
    host: str
    gpu: str
    place: str
    task: str
    mem_total_bytes: float | None
    power_limit_w: float | None
    is_held: bool  # at the end of the span


class JobEventView(Struct):
    t: float
    kind: str
    gpu: str | None
    text: str
    numbers: dict[str, float]


class JobTasksNow(Struct):
    """Tasks of the job that use a GPU now. `act_on`: one task of each of its jobs, which stands for
    the rest: an action on these hits all."""

    ids: list[str]
    act_on: list[str]
    paused: int
    suspended: int = 0


class JobPage(Struct):
    """The page of a job. `series`: for each rank, a value for each step of the span; null: it was
    not there, or it is not known."""

    job: JobItem
    is_running: bool
    start: int
    end: int
    step: int
    t: list[int]
    ranks: list[JobRankView]
    series: dict[str, list[list[float | None]]]
    findings: list[JobFinding]
    totals: JobTotals
    events: list[JobEventView]
    serving: list[ServingView] = []  # now
    step_period_s: float | None = None  # null: no period of steps is visible now
    phases: list[JobPhase] = []  # of the span, in order; empty: its steps are longer than minutes
    checkpoints: list[CheckpointsView] = []  # of its tasks that write them, now
    collectives: list[CollectivesView] = []  # of a job that looks stuck, now, by node
    tasks_now: JobTasksNow | None = None  # null: it does not run
    # Cost of generated tokens, by its team's price of a GPU-hour; null: there is no price, or
    # nothing is generated.
    cost_per_million_tokens: float | None = None


def token_cost(price_gpu_hour: float | None, gpus: int, serving: Sequence[ServingView]
               ) -> float | None:
    """Return the cost per million tokens over all servers of the job together: its GPUs are
    theirs."""
    rates = [server.generated_tokens_per_s for server in serving]
    known_rates = [rate for rate in rates if rate is not None]
    if price_gpu_hour is None or len(known_rates) < len(rates) or sum(known_rates) <= 0:
        return None
    return price_gpu_hour * gpus / 3_600 / sum(known_rates) * 1e6


class JobList(Struct):
    items: list[JobItem]
    total: int


class FindingView(Struct):
    """A finding. `jobs`: the ids of its parts, any of which `jobs/ID` accepts."""

    jobs: list[str]
    kind: Kind
    sentence: str
    since: float | None


class FindingList(Struct):
    """Findings of running jobs. `unchecked`: running jobs beyond those that one answer covers."""

    items: list[FindingView]
    unchecked: int


def job_item(records: Sequence[JobRecord], commands: Mapping[str, str | None], team: str | None
             ) -> JobItem:
    first = min(records, key=lambda job: (job.started_at is None, job.started_at or 0.0, job.id))
    starts = [job.started_at for job in records if job.started_at is not None]
    ends = [job.ended_at for job in records if job.ended_at is not None]
    return JobItem(
        min(job.id for job in records), sorted({job.id for job in records}), first.user, team,
        commands.get(first.id), first.launch, first.slurm_job, first.container, first.pod,
        first.namespace, first.unit, first.manager, [job.node for job in records],
        sorted({job.host for job in records}),
        len({(job.node, gpu) for job in records for gpu in job.gpus}),
        sum(job.tasks for job in records), min(starts, default=None),
        min(job.first_seen for job in records), max(job.last_seen for job in records),
        max(ends) if len(ends) == len(records) else None)


def job_page(item: JobItem, records: Sequence[JobRecord], minutes: JobMinutes,
             findings: list[JobFinding], totals: JobTotals, events: "pd.DataFrame | None"
             ) -> JobPage:
    is_held = minutes.is_held
    ranks = [JobRankView(rank.number, rank.node, rank.host, rank.gpu, rank.place, rank.task,
                         rank.mem_total_bytes, rank.power_limit_w,
                         bool(is_held[at, -1]) if minutes.steps else False)
             for at, rank in enumerate(minutes.ranks)]
    end = minutes.t0 + minutes.steps * minutes.step
    return JobPage(
        item, any(job.ended_at is None for job in records), minutes.t0, end, minutes.step,
        [*range(minutes.t0, end, minutes.step)], ranks,
        {name: _rows(values, is_held) for name, values in minutes.numbers.items()
         if name not in ("held_s", "load_pct")}, findings, totals,
        [] if events is None else [JobEventView(
            float(row["t"]), str(row["kind"]), row["gpu"] if isinstance(row["gpu"], str) else None,
            str(row["text"] or ""), json.loads(row["numbers"] or "{}"))
            for row in events.to_dict("records")])


def _rows(values: Matrix, is_held: Mask) -> list[list[float | None]]:
    return [[round(value, 3) if there and math.isfinite(value) else None
             for value, there in zip(row, of, strict=True)]
            for row, of in zip(values.tolist(), is_held.tolist(), strict=True)]

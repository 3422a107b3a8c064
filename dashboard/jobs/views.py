"""Teams and jobs, as the API and the pages show them. Pure."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from ..fleet.host_views import CheckpointsView, ServingView
from .core.findings import JobFinding, Kind
from .core.job_minutes import JobMinutes, Mask, Matrix
from .core.records import JobRecord, short_line
from .core.teams import MOST, Team

if TYPE_CHECKING:
    import pandas as pd

MOST_SHOWN = 80  # characters of a command line


class NewTeams(Struct, forbid_unknown_fields=True):
    items: Annotated[tuple[Team, ...], Meta(max_length=MOST)]


class TeamList(Struct):
    items: Annotated[tuple[Team, ...], Meta(max_length=MOST)]
    # Owners whose tasks were seen, by the team that they are in; of no team under "".
    members: dict[str, list[str]] = {}


def team_list(teams: tuple[Team, ...], members: Mapping[str, str], seen: Sequence[str]
              ) -> TeamList:
    found: dict[str, list[str]] = {}
    for user in sorted(seen):
        found.setdefault(members.get(user, ""), []).append(user)
    return TeamList(teams, found)


def report_words(record: JobRecord, line: str | None) -> str:
    """How a report calls it: what it runs, where, since when."""
    since = record.first_seen if record.started_at is None else record.started_at
    at = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%d %H:%M UTC")
    what = "command unknown" if line is None else short_line(line)
    cut = what if len(what) <= MOST_SHOWN else f"{what[:MOST_SHOWN]} …"
    return f"{cut} on {record.host}, since {at}"


class JobItem(Struct):
    """A job, or a launch: its ranks on all nodes. `id`: of the first of its jobs; each of them
    leads here."""

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
    ended_at: float | None  # null: it runs, or nobody saw it end


class JobTotals(Struct):
    """Over all of its life, as far as history has it."""

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
    """Its tasks that use a GPU now. `act_on`: of each of its jobs one, which stands for the rest:
    who acts on these acts on all."""

    ids: list[str]
    act_on: list[str]
    paused: int


class JobPage(Struct):
    """`series`: of each rank, a value for each step of the span; null: it was not there, or it is
    not known."""

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
    checkpoints: list[CheckpointsView] = []  # of its tasks that write them, now
    tasks_now: JobTasksNow | None = None  # null: it does not run
    # Of generated tokens, by the price that its team has for a GPU-hour; null: it has none, or
    # nothing is generated.
    cost_per_million_tokens: float | None = None


def token_cost(price_gpu_hour: float | None, gpus: int, serving: Sequence[ServingView]
               ) -> float | None:
    """All servers of the job together: its GPUs are theirs."""
    rates = [one.generated_tokens_per_s for one in serving]
    known = [rate for rate in rates if rate is not None]
    if price_gpu_hour is None or len(known) < len(rates) or sum(known) <= 0:
        return None
    return price_gpu_hour * gpus / 3_600 / sum(known) * 1e6


class JobList(Struct):
    items: list[JobItem]
    total: int


class FindingView(Struct):
    """`jobs`: the ids of its parts, any of which `jobs/ID` knows."""

    jobs: list[str]
    kind: Kind
    sentence: str
    since: float | None


class FindingList(Struct):
    """`unchecked`: running jobs beyond those that one answer looks at."""

    items: list[FindingView]
    unchecked: int


def job_item(records: Sequence[JobRecord], commands: Mapping[str, str | None], team: str | None
             ) -> JobItem:
    first = min(records, key=lambda one: (one.started_at is None, one.started_at or 0.0, one.id))
    starts = [one.started_at for one in records if one.started_at is not None]
    ends = [one.ended_at for one in records if one.ended_at is not None]
    return JobItem(
        min(one.id for one in records), sorted({one.id for one in records}), first.user, team,
        commands.get(first.id), first.launch, first.slurm_job, first.container, first.pod,
        first.namespace, first.unit, first.manager, [one.node for one in records],
        sorted({one.host for one in records}),
        len({(one.node, gpu) for one in records for gpu in one.gpus}),
        sum(one.tasks for one in records), min(starts, default=None),
        min(one.first_seen for one in records), max(one.last_seen for one in records),
        max(ends) if len(ends) == len(records) else None)


def job_page(item: JobItem, records: Sequence[JobRecord], minutes: JobMinutes,
             findings: list[JobFinding], totals: JobTotals, events: "pd.DataFrame | None"
             ) -> JobPage:
    held = minutes.held
    ranks = [JobRankView(rank.number, rank.node, rank.host, rank.gpu, rank.place, rank.task,
                         rank.mem_total_bytes, rank.power_limit_w,
                         bool(held[at, -1]) if minutes.steps else False)
             for at, rank in enumerate(minutes.ranks)]
    end = minutes.t0 + minutes.steps * minutes.step
    return JobPage(
        item, any(one.ended_at is None for one in records), minutes.t0, end, minutes.step,
        [*range(minutes.t0, end, minutes.step)], ranks,
        {name: _rows(values, held) for name, values in minutes.numbers.items()
         if name != "held_s"}, findings, totals,
        [] if events is None else [JobEventView(
            float(row["t"]), str(row["kind"]), row["gpu"] if isinstance(row["gpu"], str) else None,
            str(row["text"] or ""), json.loads(row["numbers"] or "{}"))
            for row in events.to_dict("records")])


def _rows(values: Matrix, held: Mask) -> list[list[float | None]]:
    return [[round(value, 3) if there and math.isfinite(value) else None
             for value, there in zip(row, of, strict=True)]
            for row, of in zip(values.tolist(), held.tolist(), strict=True)]

"""Jobs and launches, read from their records, the live picture and history."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gpudeck.contract.message_limits import PID_MAX
from gpudeck.measures.jobs import job_key
from gpudeck.measures.waste import LOADS

from ..access.policy import Actor
from ..errors import NotFoundError
from ..fleet.fleet import Fleet, Node
from ..fleet.host_views import (
    CheckpointsView,
    CollectivesView,
    ServingView,
    checkpoints_of,
    collectives_of,
    serving_of,
)
from ..fleet.visibility import VisibleFleet, VisibleFleetCache
from ..history.columns.usage import USAGE_SUMS
from ..history.reads.protocol import History
from ..history.views import per
from .core.collectives import with_collectives
from .core.findings import JobFinding, findings_of
from .core.job_minutes import OF_GPUS, OF_HOSTS, JobMinutes, JobRank, matrix_of
from .core.phases import SPREAD, PhaseWitnesses, phases_of
from .core.records import JobRecord, job_id_of
from .core.step_period import WINDOW_S, WINDOWS, step_period_s
from .service import JobsService
from .views import (
    FindingList,
    FindingView,
    JobItem,
    JobPage,
    JobTasksNow,
    JobTotals,
    job_item,
    job_page,
    token_cost,
)

if TYPE_CHECKING:
    import pandas as pd

MINUTE_S, HOUR_S = 60, 3_600
LATE_S = 15.0
LOOK_BACK_S = 2 * HOUR_S
MOST_STEPS = 240
MOST_RANKS = 256
MOST_SPAN_S = 90 * 86_400
STEPS = (60, 300, 900, 3_600, 4 * 3_600, 86_400)
WORDS = ("t", "gpu", "node", "task", "job", "seconds", "mem_byte_s", "mem_s", "host_cpu_pct_s",
         "host_cpu_s")
OF_TASKS = (("mem_used_bytes", "mem_byte_s", "mem_s"),
            ("host_cpu_pct", "host_cpu_pct_s", "host_cpu_s"))
EVENTS = 50
MOST_LISTED = 2_000
MOST_CHECKED = 24
STEP_WITNESSES = ("power_w", "util_pct", "mem_util_pct", "pcie_tx_bytes_per_s")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobQuestion:
    """The data that is taken on the hub's thread before history is queried."""

    records: list[JobRecord]
    is_running: bool
    span: tuple[int, int]
    step: int
    nodes: frozenset[str]
    boards: Mapping[tuple[str, str], tuple[str, float | None, float | None]]
    commands: dict[str, str | None]  # by record; None: the reader may not see it
    team: str | None
    price_gpu_hour: float | None
    serving: list[ServingView]
    checkpoints: list[CheckpointsView]
    collectives: list[CollectivesView]
    tasks_now: JobTasksNow | None


@dataclass(frozen=True, slots=True)
class JobQueries:
    service: JobsService
    fleet: Fleet
    visible_fleets: VisibleFleetCache
    history: History

    def records(self, actor: Actor, job_id: str) -> list[JobRecord]:
        """Return the records of a job, and where it is part of a launch all of the launch's, as far
        as they are visible."""
        visible = self.visible_fleets.seen_by(actor)
        mine = [job for job in self.service.of_ids([job_id]) if _is_seen(job, visible)]
        if not mine:
            raise NotFoundError(f"there is no job {job_id[:128]!r} here")
        first = mine[0]
        if first.launch is None:
            return mine
        launch_records = self.service.of_launch(first.launch)
        return sorted((job for job in launch_records if job.user == first.user and _meet(job, first)
                       and _is_seen(job, visible)), key=lambda job: (job.host, job.id))

    def all(self, actor: Actor, state: str | None, user: str | None, since: float
            ) -> list[JobItem]:
        visible = self.visible_fleets.seen_by(actor)
        records = [] if state == "ended" else self.service.running()
        if state != "running":
            records += [job for job in self.service.ended(since, MOST_LISTED)
                        if job.ended_at is not None]
        parts: dict[tuple[str | None, ...], list[JobRecord]] = {}
        for job in records:
            if _is_seen(job, visible) and user in (None, job.user):
                is_over = None if job.ended_at is None else "ended"
                parts.setdefault((is_over, *job_key(job.node, job.id, job.id, job.user,
                                                    job.launch)), []).append(job)
        teams = self.service.teams_of({job.user for job in records if job.user is not None})
        items = [job_item(part, {job.id: visible.reads.line(job.user, job.command)
                                 for job in part}, teams.get(part[0].user or ""))
                 for part in parts.values()]
        items.sort(key=lambda item: (item.ended_at is not None, -item.last_seen, item.id))
        return items

    def question(self, actor: Actor, job_id: str, start: float | None, end: float | None
                 ) -> JobQuestion:
        records, now = self.records(actor, job_id), time.time()
        visible = self.visible_fleets.seen_by(actor)
        is_running = any(job.ended_at is None for job in records)
        began = min(began_at(job) for job in records)
        end_at = now if is_running else max(job.last_seen for job in records) + MINUTE_S
        until = min(end_at if end is None else end, end_at, now - LATE_S)
        since = max(until - LOOK_BACK_S if start is None else start, began - MINUTE_S,
                    until - MOST_SPAN_S)
        since = min(since, until - MINUTE_S)
        step = next((step for step in STEPS if (until - since) / step <= MOST_STEPS), STEPS[-1])
        step = max(step, min(self.history.finest(since), HOUR_S), MINUTE_S)
        # A step that is not over would look as if a rank had left.
        last = int(until // step) * step if is_running else -int(-until // step) * step
        span = min(int(since // step) * step, last - step), last
        team = self.service.teams_of([job.user for job in records if job.user]).get(
            records[0].user or "")
        return JobQuestion(records, is_running, span, step,
                           frozenset(job.node for job in records), self._boards(records),
                           {job.id: visible.reads.line(job.user, job.command)
                            for job in records}, team, self.service.team_prices().get(team or ""),
                           self._of_tasks(records, serving_of) if is_running else [],
                           self._of_tasks(records, checkpoints_of) if is_running else [],
                           self._of_tasks(records, collectives_of) if is_running else [],
                           self._tasks_now(records) if is_running else None)

    def _tasks_now(self, records: Iterable[JobRecord]) -> JobTasksNow:
        ids: list[str] = []
        act_on: list[str] = []
        paused: set[str] = set()
        suspended: set[str] = set()
        for job in records:
            node = self.fleet.nodes.get(job.node)
            uses = [] if node is None else [
                use for use in node.uses if use.task_id in node.tasks
                and job_id_of(node.tasks[use.task_id]) == job.id]
            task_ids = sorted({use.task_id for use in uses})
            ids += task_ids
            # A simulated task has no process to act on.
            act_on += [task_id for task_id in task_ids if node is not None
                       and node.tasks[task_id].pid <= PID_MAX][:1]
            if node is not None:
                suspended |= {*task_ids}.intersection(node.suspended or ())
            paused |= {use.task_id for use in uses if use.state == "paused"} - suspended
        return JobTasksNow(ids, act_on, len(paused), len(suspended))

    def running_questions(self, actor: Actor, user: str) -> tuple[list[JobQuestion], int]:
        """Return the questions about an owner's running jobs, and how many are left out."""
        items = self.all(actor, "running", user, 0.0)
        return ([self.question(actor, item.id, None, None) for item in items[:MOST_CHECKED]],
                len(items[MOST_CHECKED:]))

    def _of_tasks(self, records: Iterable[JobRecord],
                  of: Callable[[Fleet, Node, float], dict[str, T]]) -> list[T]:
        """Return the present reports of its tasks."""
        reports: list[T] = []
        for job in records:
            node = self.fleet.nodes.get(job.node)
            by_task = {} if node is None else of(self.fleet, node, time.monotonic())
            reports += [report for task_id, report in by_task.items() if node is not None
                        and task_id in node.tasks
                        and job_id_of(node.tasks[task_id]) == job.id]
        return reports

    def _boards(self, records: Iterable[JobRecord]
                ) -> dict[tuple[str, str], tuple[str, float | None, float | None]]:
        boards = {}
        for job in records:
            for gpu in job.gpus:
                slot = self.fleet.find(gpu, (job.node,))
                if slot is not None:
                    facts = self.fleet.facts[slot]
                    boards[job.node, gpu] = (facts.place, facts.mem_total_bytes,
                                             facts.power_limit_max_w or facts.power_limit_w)
        return boards

    # -- in a native thread

    def page(self, query: JobQuestion) -> JobPage:
        minutes = self.minutes(query, query.span, query.step)
        findings = self._job_findings(query, minutes)
        gpus = sorted({gpu for job in query.records for gpu in job.gpus})
        events = self.history.events(*query.span, query.nodes, EVENTS, gpus) if gpus else None
        item = job_item(query.records, query.commands, query.team)
        page = job_page(item, query.records, minutes, findings, self._totals(query), events)
        page.serving, page.checkpoints = query.serving, query.checkpoints
        page.collectives, page.tasks_now = query.collectives, query.tasks_now
        page.cost_per_million_tokens = token_cost(query.price_gpu_hour, item.gpus, query.serving)
        page.step_period_s = self._step_period_s(query, minutes.ranks) if query.is_running else None
        page.phases = phases_of(minutes, PhaseWitnesses(
            min(map(began_at, query.records)), _checkpoint_times(query.checkpoints),
            page.step_period_s is not None, bool(query.serving)))
        return page

    def findings(self, queries: Iterable[JobQuestion], unchecked: int) -> FindingList:
        """Return the findings that the pages of these jobs show, by job."""
        return FindingList([
            FindingView(sorted({job.id for job in query.records}), finding.kind, finding.sentence,
                        finding.since)
            for query in queries for finding in self._job_findings(
                query, self.minutes(query, query.span, query.step))], unchecked)

    def _job_findings(self, query: JobQuestion, minutes: JobMinutes) -> list[JobFinding]:
        """Find what is wrong in the last minutes of those shown, whatever the step."""
        fine = minutes
        if query.step != MINUTE_S and self.history.finest(query.span[1] - HOUR_S) <= MINUTE_S:
            fine = self.minutes(query, (query.span[1] - HOUR_S, query.span[1]), MINUTE_S)
        findings = findings_of(fine, query.is_running) if fine.step == MINUTE_S else []
        return with_collectives(findings, query.collectives)

    def _step_period_s(self, query: JobQuestion, ranks: Sequence[JobRank]) -> float | None:
        """Return the step period of its first rank: the others wait for it at each step."""
        end = query.span[1]
        start = end - WINDOWS * WINDOW_S
        if not ranks or self.history.finest(start) > 1:
            return None
        first = ranks[0]
        frame = self.history.series([first.gpu], STEP_WITNESSES, start, end, 1, ("mean",),
                                    frozenset((first.node,)))
        at = frame["t"].to_numpy(np.int64) - start
        inside = (at >= 0) & (at < end - start)
        values = [np.full(end - start, np.nan) for _ in STEP_WITNESSES]
        for column, name in zip(values, STEP_WITNESSES, strict=True):
            column[at[inside]] = frame[f"{name}_mean"].to_numpy(float)[inside]
        return step_period_s(values[0], values[1], values[2:])

    def _totals(self, query: JobQuestion) -> JobTotals:
        start = min(began_at(job) for job in query.records)
        end = max(job.last_seen for job in query.records) + HOUR_S
        end = max(end, time.time()) if query.is_running else end
        sums: dict[str, float] = {}
        for job_id in sorted({job.id for job in query.records})[:MOST_RANKS]:
            frame = self.history.usage("job", 0, start, end, query.nodes, job_id)
            for name in USAGE_SUMS:
                sums[name] = sums.get(name, 0.0) + float(frame[name].sum())
        return JobTotals(
            sums["gpu_s"] / HOUR_S, per(sums["util_pct_s"], sums["util_s"]),
            sums["idle_s"] / HOUR_S if sums["load_s"] else None,
            sums["energy_j"] / 3.6e6 if sums["energy_s"] else None)

    def minutes(self, query: JobQuestion, span: tuple[int, int], step: int) -> JobMinutes:
        gpus = sorted({gpu for job in query.records for gpu in job.gpus})
        steps = (span[1] - span[0]) // step
        frame = self.history.tasks(*span, gpus=gpus, nodes=query.nodes, limit=500_000, words=WORDS)
        frame = frame[frame["job"].isin({job.id for job in query.records})]
        ranks = self._ranks(query, frame)
        row = {(rank.node, rank.gpu, rank.task): at for at, rank in enumerate(ranks)}
        frame = frame.assign(step=(frame["t"] - span[0]) // step)
        sums = frame.groupby(["node", "gpu", "task", "step"], as_index=False, observed=True)[
            ["seconds", "mem_byte_s", "mem_s", "host_cpu_pct_s", "host_cpu_s"]].sum()
        sums = sums[np.array([key in row for key in zip(
            sums["node"], sums["gpu"], sums["task"], strict=True)], bool)]
        at = [row[key] for key in zip(sums["node"], sums["gpu"], sums["task"], strict=True)]
        shape = (len(ranks), steps)
        columns = sums["step"].tolist()
        numbers = {"held_s": np.nan_to_num(matrix_of(at, sums["seconds"].tolist(), columns, shape)),
                   **{name: matrix_of(at, _per(sums, total, count), columns, shape)
                      for name, total, count in OF_TASKS}}
        return JobMinutes(span[0], step, ranks, numbers
                          | self._of_gpus(query, ranks, span, step, steps)
                          | self._of_hosts(query, ranks, span, step, steps))

    def _of_hosts(self, query: JobQuestion, ranks: list[JobRank], span: tuple[int, int], step: int,
                  steps: int) -> dict[str, np.ndarray]:
        matrices = {name: np.full((len(ranks), steps), np.nan) for name in OF_HOSTS}
        rows: dict[str, list[int]] = {}
        for at, rank in enumerate(ranks):
            rows.setdefault(rank.node, []).append(at)
        frame = self.history.hosts(*span, step, query.nodes)
        for node, part in frame.groupby("node", observed=True):
            columns = ((part["t"] - span[0]) // step).to_numpy(np.intp)
            for name in OF_HOSTS:
                for at in rows.get(str(node), ()):
                    matrices[name][at, columns] = part[f"{name}_mean"].to_numpy(float)
        return matrices

    def _ranks(self, query: JobQuestion, frame: "pd.DataFrame") -> list[JobRank]:
        records = {(record.node, record.id): record for record in query.records}
        pairs = frame[["node", "gpu", "task", "job"]].drop_duplicates()
        ranks = []
        for node, gpu, task, job in pairs.itertuples(index=False, name=None):
            record = records.get((node, job))
            if record is not None:
                place, total, limit = query.boards.get((node, gpu), (gpu[-8:], None, None))
                ranks.append(JobRank(node, record.host, gpu, place, task, job,
                                     record.ranks.get(task), total, limit))
        ranks.sort(key=lambda rank: (rank.number is None, rank.number or 0, rank.host,
                                     len(rank.place), rank.place))
        return ranks[:MOST_RANKS]

    def _of_gpus(self, query: JobQuestion, ranks: list[JobRank], span: tuple[int, int], step: int,
                 steps: int) -> dict[str, np.ndarray]:
        shape = (len(ranks), steps)
        matrices = {name: np.full(shape, np.nan) for name in (*OF_GPUS, "load_pct")}
        if not ranks:
            return matrices
        frame = self.history.series(sorted({rank.gpu for rank in ranks}), OF_GPUS, *span, step,
                                    ("mean", "max"), query.nodes)
        rows: dict[str, list[int]] = {}
        for at, rank in enumerate(ranks):
            rows.setdefault(rank.gpu, []).append(at)
        for gpu, part in frame.groupby("gpu", observed=True):
            columns = ((part["t"] - span[0]) // step).to_numpy(np.intp)
            inside = (columns >= 0) & (columns < steps)
            of_gpu = {name: part[f"{name}_{'max' if name == 'util_max_pct' else 'mean'}"].to_numpy(
                float) for name in OF_GPUS} | {"load_pct": _highest_load(part)}
            for name, values in of_gpu.items():
                for at in rows.get(str(gpu), ()):
                    matrices[name][at, columns[inside]] = values[inside]
        return matrices


def _highest_load(part: "pd.DataFrame") -> np.ndarray:
    """Return the highest load in each step, by the first metric of LOADS that is known."""
    load = np.full(len(part), np.nan)
    for name in LOADS:
        load = np.where(np.isnan(load), part[f"{name}_max"].to_numpy(float), load)
    return load


def _per(sums: "pd.DataFrame", total: str, count: str) -> list[float]:
    """Return the quotients; NaN: the number was never reported."""
    counts = sums[count].to_numpy(float)
    quotients = np.where(counts > 0, sums[total].to_numpy(float) / np.maximum(counts, 1.0), np.nan)
    return list(quotients.tolist())


def _checkpoint_times(rhythms: Iterable[CheckpointsView]) -> list[tuple[float, float]]:
    """Return when the last ones were done, each with the seconds by which that may be off."""
    return [(rhythm.last_at - back * rhythm.every_s, SPREAD * rhythm.every_s * (back > 0))
            for rhythm in rhythms for back in range(rhythm.seen)]


def began_at(record: JobRecord) -> float:
    started = record.first_seen if record.started_at is None else record.started_at
    return min(started, record.first_seen)


def _is_seen(record: JobRecord, visible: VisibleFleet) -> bool:
    return visible.sees_node(record.node)


def _meet(one: JobRecord, other: JobRecord) -> bool:
    """Return whether they overlap: the same address is another launch another day."""
    return one.first_seen <= other.last_seen + HOUR_S and other.first_seen <= one.last_seen + HOUR_S

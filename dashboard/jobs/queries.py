"""Jobs and launches out of their records, the live picture and history."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gpudeck.jobs import job_key
from gpudeck.message_limits import PID_MAX

from ..access.policy import Actor
from ..errors import NotFoundError
from ..fleet.fleet import Fleet, Node
from ..fleet.host_views import CheckpointsView, ServingView, checkpoints_of, serving_of
from ..fleet.visibility import VisibleFleet, VisibleFleetCache
from ..history.protocol import History
from ..history.usage import USAGE_SUMS
from ..history.views import per
from .core.findings import JobFinding, findings_of
from .core.job_minutes import OF_GPUS, OF_HOSTS, JobMinutes, JobRank, matrix_of
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
    """All that is taken from the hub's thread before history is asked."""

    records: list[JobRecord]
    is_running: bool
    span: tuple[int, int]
    step: int
    nodes: frozenset[str]
    boards: Mapping[tuple[str, str], tuple[str, float | None, float | None]]
    commands: dict[str, str | None]  # of each record, what may be read of it
    team: str | None
    price_gpu_hour: float | None
    serving: list[ServingView]
    checkpoints: list[CheckpointsView]
    tasks_now: JobTasksNow | None


@dataclass(frozen=True, slots=True)
class JobQueries:
    service: JobsService
    fleet: Fleet
    visible_fleets: VisibleFleetCache
    history: History

    def records(self, actor: Actor, job_id: str) -> list[JobRecord]:
        """The job, and where it is part of a launch all of that, as far as it is seen."""
        visible = self.visible_fleets.seen_by(actor)
        mine = [one for one in self.service.of_ids([job_id]) if _is_seen(one, visible)]
        if not mine:
            raise NotFoundError(f"there is no job {job_id[:128]!r} here")
        first = mine[0]
        if first.launch is None:
            return mine
        others = self.service.of_launch(first.launch)
        return sorted((one for one in others if one.user == first.user and _meet(one, first)
                       and _is_seen(one, visible)), key=lambda one: (one.host, one.id))

    def all(self, actor: Actor, state: str | None, user: str | None, since: float
            ) -> list[JobItem]:
        visible = self.visible_fleets.seen_by(actor)
        records = [] if state == "ended" else self.service.running()
        if state != "running":
            records += [one for one in self.service.ended(since, MOST_LISTED)
                        if one.ended_at is not None]
        parts: dict[tuple[str | None, ...], list[JobRecord]] = {}
        for one in records:
            if _is_seen(one, visible) and user in (None, one.user):
                is_over = None if one.ended_at is None else "ended"
                parts.setdefault((is_over, *job_key(one.node, one.id, one.id, one.user,
                                                    one.launch)), []).append(one)
        teams = self.service.teams_of({one.user for one in records if one.user is not None})
        found = [job_item(each, {one.id: visible.reads.line(one.user, one.command)
                                 for one in each}, teams.get(each[0].user or ""))
                 for each in parts.values()]
        found.sort(key=lambda item: (item.ended_at is not None, -item.last_seen, item.id))
        return found

    def question(self, actor: Actor, job_id: str, start: float | None, end: float | None
                 ) -> JobQuestion:
        records, now = self.records(actor, job_id), time.time()
        visible = self.visible_fleets.seen_by(actor)
        is_running = any(one.ended_at is None for one in records)
        began = min(began_at(one) for one in records)
        ended = now if is_running else max(one.last_seen for one in records) + MINUTE_S
        until = min(ended if end is None else end, ended, now - LATE_S)
        since = max(until - LOOK_BACK_S if start is None else start, began - MINUTE_S,
                    until - MOST_SPAN_S)
        since = min(since, until - MINUTE_S)
        step = next((step for step in STEPS if (until - since) / step <= MOST_STEPS), STEPS[-1])
        step = max(step, min(self.history.finest(since), HOUR_S), MINUTE_S)
        # A step that is not over would look as if a rank had left.
        last = int(until // step) * step if is_running else -int(-until // step) * step
        span = min(int(since // step) * step, last - step), last
        team = self.service.teams_of([one.user for one in records if one.user]).get(
            records[0].user or "")
        return JobQuestion(records, is_running, span, step,
                           frozenset(one.node for one in records), self._boards(records),
                           {one.id: visible.reads.line(one.user, one.command)
                            for one in records}, team, self.service.team_prices().get(team or ""),
                           self._of_tasks(records, serving_of) if is_running else [],
                           self._of_tasks(records, checkpoints_of) if is_running else [],
                           self._tasks_now(records) if is_running else None)

    def _tasks_now(self, records: Iterable[JobRecord]) -> JobTasksNow:
        ids: list[str] = []
        act_on: list[str] = []
        paused: set[str] = set()
        for one in records:
            node = self.fleet.nodes.get(one.node)
            uses = [] if node is None else [
                use for use in node.uses if use.task_id in node.tasks
                and job_id_of(node.tasks[use.task_id]) == one.id]
            found = sorted({use.task_id for use in uses})
            ids += found
            # What a simulator has made up has no process to act on.
            act_on += [each for each in found if node is not None
                       and node.tasks[each].pid <= PID_MAX][:1]
            paused |= {use.task_id for use in uses if use.state == "paused"}
        return JobTasksNow(ids, act_on, len(paused))

    def running_questions(self, actor: Actor, user: str) -> tuple[list[JobQuestion], int]:
        """Of an owner's running jobs, and how many are left out."""
        found = self.all(actor, "running", user, 0.0)
        return ([self.question(actor, item.id, None, None) for item in found[:MOST_CHECKED]],
                len(found[MOST_CHECKED:]))

    def _of_tasks(self, records: Iterable[JobRecord],
                  of: Callable[[Fleet, Node, float], dict[str, T]]) -> list[T]:
        """What its tasks say now."""
        found: list[T] = []
        for one in records:
            node = self.fleet.nodes.get(one.node)
            told = {} if node is None else of(self.fleet, node, time.monotonic())
            found += [each for task_id, each in told.items() if node is not None
                      and task_id in node.tasks
                      and job_id_of(node.tasks[task_id]) == one.id]
        return found

    def _boards(self, records: Iterable[JobRecord]
                ) -> dict[tuple[str, str], tuple[str, float | None, float | None]]:
        found = {}
        for one in records:
            for gpu in one.gpus:
                slot = self.fleet.find(gpu, (one.node,))
                if slot is not None:
                    facts = self.fleet.facts[slot]
                    found[one.node, gpu] = (facts.place, facts.mem_total_bytes,
                                            facts.power_limit_max_w or facts.power_limit_w)
        return found

    # -- in a native thread

    def page(self, asked: JobQuestion) -> JobPage:
        shown = self.minutes(asked, asked.span, asked.step)
        found = self._found(asked, shown)
        gpus = sorted({gpu for one in asked.records for gpu in one.gpus})
        events = self.history.events(*asked.span, asked.nodes, EVENTS, gpus) if gpus else None
        item = job_item(asked.records, asked.commands, asked.team)
        page = job_page(item, asked.records, shown, found, self._totals(asked), events)
        page.serving, page.checkpoints = asked.serving, asked.checkpoints
        page.tasks_now = asked.tasks_now
        page.cost_per_million_tokens = token_cost(asked.price_gpu_hour, item.gpus, asked.serving)
        page.step_period_s = self._step_period_s(asked, shown.ranks) if asked.is_running else None
        return page

    def findings(self, asked: Iterable[JobQuestion], unchecked: int) -> FindingList:
        """Those that the pages of these jobs show, by job."""
        return FindingList([
            FindingView(sorted({one.id for one in each.records}), found.kind, found.sentence,
                        found.since)
            for each in asked for found in self._found(each, self.minutes(each, each.span,
                                                                          each.step))], unchecked)

    def _found(self, asked: JobQuestion, shown: JobMinutes) -> list[JobFinding]:
        """Of the last minutes that are shown, whatever the step."""
        fine = shown
        if asked.step != MINUTE_S and self.history.finest(asked.span[1] - HOUR_S) <= MINUTE_S:
            fine = self.minutes(asked, (asked.span[1] - HOUR_S, asked.span[1]), MINUTE_S)
        return findings_of(fine, asked.is_running) if fine.step == MINUTE_S else []

    def _step_period_s(self, asked: JobQuestion, ranks: Sequence[JobRank]) -> float | None:
        """Of its first rank: the others wait for it at each step."""
        end = asked.span[1]
        start = end - WINDOWS * WINDOW_S
        if not ranks or self.history.finest(start) > 1:
            return None
        first = ranks[0]
        frame = self.history.series([first.gpu], STEP_WITNESSES, start, end, 1, ("mean",),
                                    frozenset((first.node,)))
        at = frame["t"].to_numpy(np.int64) - start
        inside = (at >= 0) & (at < end - start)
        values = [np.full(end - start, np.nan) for _ in STEP_WITNESSES]
        for each, name in zip(values, STEP_WITNESSES, strict=True):
            each[at[inside]] = frame[f"{name}_mean"].to_numpy(float)[inside]
        return step_period_s(values[0], values[1], values[2:])

    def _totals(self, asked: JobQuestion) -> JobTotals:
        start = min(began_at(one) for one in asked.records)
        end = max(one.last_seen for one in asked.records) + HOUR_S
        end = max(end, time.time()) if asked.is_running else end
        sums: dict[str, float] = {}
        for job_id in sorted({one.id for one in asked.records})[:MOST_RANKS]:
            frame = self.history.usage("job", 0, start, end, asked.nodes, job_id)
            for name in USAGE_SUMS:
                sums[name] = sums.get(name, 0.0) + float(frame[name].sum())
        return JobTotals(
            sums["gpu_s"] / HOUR_S, per(sums["util_pct_s"], sums["util_s"]),
            sums["idle_s"] / HOUR_S if sums["load_s"] else None,
            sums["energy_j"] / 3.6e6 if sums["energy_s"] else None)

    def minutes(self, asked: JobQuestion, span: tuple[int, int], step: int) -> JobMinutes:
        gpus = sorted({gpu for one in asked.records for gpu in one.gpus})
        steps = (span[1] - span[0]) // step
        held = self.history.tasks(*span, gpus=gpus, nodes=asked.nodes, limit=500_000, words=WORDS)
        held = held[held["job"].isin({one.id for one in asked.records})]
        ranks = self._ranks(asked, held)
        row = {(rank.node, rank.gpu, rank.task): at for at, rank in enumerate(ranks)}
        held = held.assign(step=(held["t"] - span[0]) // step)
        sums = held.groupby(["node", "gpu", "task", "step"], as_index=False, observed=True)[
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
                          | self._of_gpus(asked, ranks, span, step, steps)
                          | self._of_hosts(asked, ranks, span, step, steps))

    def _of_hosts(self, asked: JobQuestion, ranks: list[JobRank], span: tuple[int, int], step: int,
                  steps: int) -> dict[str, np.ndarray]:
        found = {name: np.full((len(ranks), steps), np.nan) for name in OF_HOSTS}
        rows: dict[str, list[int]] = {}
        for at, rank in enumerate(ranks):
            rows.setdefault(rank.node, []).append(at)
        frame = self.history.hosts(*span, step, asked.nodes)
        for node, part in frame.groupby("node", observed=True):
            columns = ((part["t"] - span[0]) // step).to_numpy(np.intp)
            for name in OF_HOSTS:
                for at in rows.get(str(node), ()):
                    found[name][at, columns] = part[f"{name}_mean"].to_numpy(float)
        return found

    def _ranks(self, asked: JobQuestion, held: "pd.DataFrame") -> list[JobRank]:
        record = {(one.node, one.id): one for one in asked.records}
        pairs = held[["node", "gpu", "task", "job"]].drop_duplicates()
        found = []
        for node, gpu, task, job in pairs.itertuples(index=False, name=None):
            one = record.get((node, job))
            if one is not None:
                place, total, limit = asked.boards.get((node, gpu), (gpu[-8:], None, None))
                found.append(JobRank(node, one.host, gpu, place, task, job, one.ranks.get(task),
                                     total, limit))
        found.sort(key=lambda rank: (rank.number is None, rank.number or 0, rank.host,
                                     len(rank.place), rank.place))
        return found[:MOST_RANKS]

    def _of_gpus(self, asked: JobQuestion, ranks: list[JobRank], span: tuple[int, int], step: int,
                 steps: int) -> dict[str, np.ndarray]:
        shape = (len(ranks), steps)
        found = {name: np.full(shape, np.nan) for name in OF_GPUS}
        if not ranks:
            return found
        frame = self.history.series(sorted({rank.gpu for rank in ranks}), OF_GPUS, *span, step,
                                    ("mean", "max"), asked.nodes)
        rows: dict[str, list[int]] = {}
        for at, rank in enumerate(ranks):
            rows.setdefault(rank.gpu, []).append(at)
        for gpu, part in frame.groupby("gpu", observed=True):
            columns = ((part["t"] - span[0]) // step).to_numpy(np.intp)
            inside = (columns >= 0) & (columns < steps)
            for name in OF_GPUS:
                end = "max" if name == "util_max_pct" else "mean"
                values = part[f"{name}_{end}"].to_numpy(float)
                for at in rows.get(str(gpu), ()):
                    found[name][at, columns[inside]] = values[inside]
        return found


def _per(sums: "pd.DataFrame", total: str, count: str) -> list[float]:
    """NaN: it was never told."""
    known = sums[count].to_numpy(float)
    found = np.where(known > 0, sums[total].to_numpy(float) / np.maximum(known, 1.0), np.nan)
    return list(found.tolist())


def began_at(record: JobRecord) -> float:
    started = record.first_seen if record.started_at is None else record.started_at
    return min(started, record.first_seen)


def _is_seen(record: JobRecord, visible: VisibleFleet) -> bool:
    return visible.sees_node(record.node)


def _meet(one: JobRecord, other: JobRecord) -> bool:
    """The same address is another launch another day."""
    return one.first_seen <= other.last_seen + HOUR_S and other.first_seen <= one.last_seen + HOUR_S

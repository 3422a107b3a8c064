"""Model of one screen, from GPUs and tasks as the REST interface and this machine both shape them.
Pure."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpudeck.measures.metrics import IDLE_AT_MOST_PCT
from gpudeck.measures.waste import UNDER
from gpudeck.words.command_lines import short_command

Item = dict[str, Any]
Mark = Literal["busy", "idle", "waste", "crit", "paused", "lease", "soft"]

SORTS = ("wasted", "memory", "load", "owner", "age")
METRICS = "util_pct,mem_used_bytes,temp_c,power_w"
TROUBLE = {"stale": "no reading", "error": "every driver call fails",
           "lost": "lost: the driver cannot reach it"}


@dataclass(frozen=True, slots=True)
class GpuRow:
    """Row of a GPU. None: not known."""

    uuid: str
    host: str
    place: str
    name: str
    mark: Mark
    util_pct: float | None = None
    mem_used: float | None = None
    mem_total: float | None = None
    temp_c: float | None = None
    power_w: float | None = None
    owners: tuple[str, ...] = ()
    words: str = ""  # what is wrong with it, or who has leased it


@dataclass(frozen=True, slots=True)
class JobRow:
    """Row of a job: tasks of one node that belong together. `key` is what a selection holds on
    to."""

    key: str
    host: str
    owner: str
    command: str
    tasks: tuple[Item, ...]
    places: tuple[str, ...]
    mark: Mark
    state: str
    load_pct: float | None
    mem_bytes: float | None
    started_at: float | None

    @property
    def task_id(self) -> str:
        """Return the id of one of its tasks: a preview of any of them covers the whole job."""
        return str(self.tasks[0]["id"])


@dataclass(frozen=True, slots=True)
class QueueRow:
    place: int
    owner: str
    asks: str
    why: str


@dataclass(frozen=True, slots=True)
class TopModel:
    """Content of one picture. `trouble`: why there is none, or an old one. `at` None: there was
    none yet."""

    title: str
    is_fleet: bool
    gpus: tuple[GpuRow, ...] = ()
    jobs: tuple[JobRow, ...] = ()
    queue: tuple[QueueRow, ...] = ()
    models: str = ""
    host_words: str = ""
    notes: tuple[str, ...] = ()
    trouble: str = ""
    at: float | None = None


def gpu_rows(gpus: Iterable[Item], tasks: Sequence[Item], leases: Mapping[str, str]
             ) -> tuple[GpuRow, ...]:
    """Return the rows of GPUs. `leases`: UUID to owner of the lease. A board that is split by MIG
    is shown by its parts."""
    on: dict[str, list[tuple[Item, Item]]] = {}
    for task in tasks:
        for use in task["gpus"]:
            on.setdefault(use["uuid"], []).append((task, use))
    listed = list(gpus)
    split = {gpu["facts"].get("parent_uuid") for gpu in listed}
    return tuple(_gpu(gpu, on.get(gpu["uuid"], []), leases.get(gpu["uuid"], ""))
                 for gpu in listed if gpu["uuid"] not in split)


def _gpu(gpu: Item, on: Sequence[tuple[Item, Item]], leased: str) -> GpuRow:
    owners = tuple(dict.fromkeys(task["user"] or "unknown" for task, _ in on))
    values = gpu["values"] if gpu["state"] == "ok" else {}
    util = values.get("util_pct")
    mark, words = _mark(gpu, util, on, leased)
    return GpuRow(
        gpu["uuid"], _host(gpu), str(gpu.get("place", gpu["index"])),
        gpu["name"], mark, util, values.get("mem_used_bytes"),
        gpu["facts"].get("mem_total_bytes"), values.get("temp_c"), values.get("power_w"), owners,
        words)


def _host(gpu: Item) -> str:
    """Return the host's name, with its site if any: on a hub that views other sites two nodes may
    have one name."""
    host, site = str(gpu.get("host") or gpu["node"]), gpu.get("site")
    return f"{site}/{host}" if site else host


def _mark(gpu: Item, util: float | None, on: Sequence[tuple[Item, Item]], leased: str
          ) -> tuple[Mark, str]:
    lease = f"leased by {leased}" if leased else ""
    if gpu["state"] != "ok":
        return ("soft" if gpu["state"] == "stale" else "crit",
                TROUBLE.get(gpu["state"], str(gpu["state"])))
    if (idle_s := gpu.get("wasted_s")) is not None:  # the hub's word, or a watch as long
        return "waste", f"wasted, {UNDER} for {_span(idle_s)}"
    why = gpu.get("why_not_free")
    words = lease or ("" if on or why is None else why["why"])
    if util is not None and util > IDLE_AT_MOST_PCT:
        return "busy", words
    if on and all(task["state"] == "paused" for task, _ in on):
        return "paused", "paused"
    if util is None:
        return "soft", lease
    return ("lease", lease) if leased else ("idle", words)


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.0f} h"


def job_key(task: Item) -> str:
    return f"{task['node']} {task.get('job_id') or task['id']}"


def job_rows(tasks: Sequence[Item], gpus: Sequence[GpuRow]) -> tuple[JobRow, ...]:
    jobs: dict[str, list[Item]] = {}
    for task in tasks:
        jobs.setdefault(job_key(task), []).append(task)
    # A UUID alone: MIG instances and boards have different ones, and so have two nodes.
    rows = {gpu.uuid: gpu for gpu in gpus}
    return tuple(_job(key, members, rows) for key, members in jobs.items())


def _job(key: str, members: list[Item], rows: Mapping[str, GpuRow]) -> JobRow:
    members.sort(key=lambda task: (task["started_at"] or 0.0, task["pid"]))
    uuids = dict.fromkeys(use["uuid"] for task in members for use in task["gpus"])
    job_gpus = [row for uuid in uuids if (row := rows.get(uuid)) is not None]
    loads = [row.util_pct for row in job_gpus if row.util_pct is not None]
    amounts = [task["mem_used_bytes"] for task in members if task["mem_used_bytes"] is not None]
    load = sum(loads) / len(loads) if loads and len(loads) == len(uuids) else None
    mark, state = _job_state(members, load, {row.mark for row in job_gpus})
    first = members[0]
    starts = [task["started_at"] for task in members if task["started_at"] is not None]
    return JobRow(
        key, str(first.get("host") or first["node"]), first["user"] or "unknown",
        short_command(first["command"]), tuple(members), tuple(row.place for row in job_gpus),
        mark, state, load, sum(amounts) if amounts else None, min(starts, default=None))


def _job_state(members: Sequence[Item], load: float | None, marks: Collection[Mark]
               ) -> tuple[Mark, str]:
    states = {task["state"] for task in members}
    if "paused" in states:
        return "paused", "paused" if len(states) == 1 else "partly paused"
    if "uninterruptible" in states:
        return "crit", "in driver"
    if load is None:
        return "soft", "-"
    if marks == {"waste"}:
        return "waste", "wasted"
    return ("busy" if "busy" in marks else "idle"), f"{load:.0f} %"


def sort_jobs(jobs: Iterable[JobRow], sort: str) -> list[JobRow]:
    """Sort jobs; unknown values come last."""
    def key(job: JobRow) -> tuple[Any, ...]:
        mem = -(job.mem_bytes or 0.0)
        match sort:
            case "memory":
                return (mem, job.key)
            case "load":
                return (job.load_pct is None, -(job.load_pct or 0.0), job.key)
            case "owner":
                return (job.owner, mem, job.key)
            case "age":
                return (job.started_at is None, job.started_at or 0.0, job.key)
        return (job.mark != "waste", job.mark != "paused", mem, job.key)

    return sorted(jobs, key=key)


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key for a natural sort: n2 before n10."""
    return [(int(part), "") if part.isdecimal() else (0, part)
            for part in re.split(r"([0-9]{1,15})", name)]


def news(model: TopModel) -> list[tuple[str, str]]:
    """Return what needs a person, and nothing else."""
    wasted = [gpu for gpu in model.gpus if gpu.mark == "waste"]
    lost_count = sum(gpu.mark == "crit" for gpu in model.gpus)
    stale = sum(gpu.mark == "soft" and gpu.words == TROUBLE["stale"] for gpu in model.gpus)
    wasted_gib = sum(gpu.mem_used or 0.0 for gpu in wasted) / 2**30
    parts = [(f"{len(wasted)} wasted, {wasted_gib:.0f} GiB", "waste")] if wasted else []
    parts += [(f"{lost_count} lost", "crit")] if lost_count else []
    parts += [(f"{stale} without a reading", "soft")] if stale else []
    return parts

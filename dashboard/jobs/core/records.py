"""Record of a job for when it has ended: history knows its numbers, this its words. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, structs

from gpudeck.contract.wire import Task

MOST_RANKS = 1_024  # a node may say any number of them
KEPT = ("launch", "slurm_job", "container", "container_name", "pod", "namespace", "unit",
        "manager", "notebook")


class JobRecord(Struct, frozen=True, omit_defaults=True):
    """A job on one node; a launch has one job on each of the nodes of its ranks."""

    id: str
    node: str
    host: str
    user: str | None
    command: str | None  # of its oldest task
    started_at: float | None  # of its oldest task
    first_seen: float
    tasks: int
    gpus: tuple[str, ...]  # all that it ever used
    last_seen: float
    ended_at: float | None = None  # seen to end, by the hub's clock; None: it runs, or not known
    launch: str | None = None
    slurm_job: str | None = None
    container: str | None = None
    container_name: str | None = None
    pod: str | None = None
    namespace: str | None = None
    unit: str | None = None
    manager: str | None = None
    notebook: str | None = None
    groups: tuple[str, ...] = ()
    ranks: dict[str, int] = {}  # of its tasks, as far as they report it


def job_id_of(task: Task) -> str:
    return task.job_id or task.id


def records_of(node: str, host: str, tasks: Iterable[Task], gpus_of: Mapping[str, Iterable[str]],
               now: float) -> dict[str, JobRecord]:
    """Return the jobs of a node at this moment. `gpus_of`: for each task, the GPUs that it uses."""
    members: dict[str, list[Task]] = {}
    for task in tasks:
        members.setdefault(job_id_of(task), []).append(task)
    return {job_id: _record(job_id, node, host, inside, gpus_of, now)
            for job_id, inside in members.items()}


def _record(job_id: str, node: str, host: str, inside: list[Task],
            gpus_of: Mapping[str, Iterable[str]], now: float) -> JobRecord:
    oldest = min(inside, key=lambda task: (task.started_at is None, task.started_at or 0.0))
    words: dict[str, Any] = {name: next(
        (value for task in (oldest, *inside) if (value := getattr(task, name)) is not None), None)
        for name in KEPT}
    return JobRecord(
        job_id, node, host, oldest.user, oldest.command, oldest.started_at, now, len(inside),
        tuple(sorted({gpu for task in inside for gpu in gpus_of.get(task.id, ())})), now,
        groups=oldest.groups,
        ranks={task.id: task.rank for task in inside if task.rank is not None}, **words)


def grown(had: JobRecord, record: JobRecord) -> JobRecord:
    """Update a job that is still there: keep what it was, and all GPUs and ranks that it ever
    had."""
    return structs.replace(
        record, first_seen=had.first_seen, tasks=max(had.tasks, record.tasks),
        gpus=tuple(sorted({*had.gpus, *record.gpus})),
        ranks=dict([*had.ranks.items(), *record.ranks.items()][-MOST_RANKS:]),
        **{name: getattr(had, name) for name in ("command", "started_at", *KEPT)
           if getattr(had, name) is not None})


_INTERPRETER = re.compile(
    r"(?:python[\d.]*|pypy[\d.]*|node|ruby|perl|Rscript|julia|(?:ba|da|z)?sh)")
_WITH_VALUE = ("-W", "-X")


def short_line(command: str) -> str:
    """Return a command from its script on, as pages show it: `/opt/py/bin/python3 -u
    /home/a/train.py --lr 3` is `train.py --lr 3`."""
    program, *rest = command.split(" ")
    at = 0
    while at < len(rest) and rest[at].startswith("-"):
        if rest[at] == "-c":
            at = len(rest)
        at += 2 if at < len(rest) and rest[at] in _WITH_VALUE else 1
    if _INTERPRETER.fullmatch(_base(program)) and at < len(rest):
        return " ".join((_base(rest[at]), *rest[at + 1 :]))
    return " ".join((_base(program), *rest))


def _base(word: str) -> str:
    return word.rpartition("/")[2] or word


def is_news(had: JobRecord, record: JobRecord) -> bool:
    """Return whether it must be written again; that it was seen once more is no reason."""
    return structs.replace(record, last_seen=had.last_seen) != had

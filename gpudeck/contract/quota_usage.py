"""Usage of Quotas, and the jobs that would go first. Pure.

Each use of a GPU counts for one Quota per limit: the most specific one. So a Quota for alice on a
node takes what she has there out of the one for everyone, and nothing is counted twice.
"""

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct

from gpudeck.contract.quota import (
    LIMITS,
    Counted,
    Limit,
    Quota,
    amount_words,
    scope_words,
    subject_words,
)
from gpudeck.language.times import span_words

if TYPE_CHECKING:  # wire carries Quotas
    from gpudeck.contract.wire import Task

DEFAULT_PRIORITY = 2
COUNTS: tuple[Counted, ...] = ("each", "together")
JobKey = tuple[str, str]  # node and job
NO_HOURS: Mapping[tuple[str, str], Mapping[str, float]] = {}


@dataclass(frozen=True, slots=True)
class TaskHolding:
    """A Task with what it holds, and where."""

    task: "Task"
    node_id: str
    host: str
    group: str | None  # the node group; None: not known here
    uses: tuple[tuple[str, float | None], ...]  # GPU, memory
    since: Mapping[str, float] = field(default_factory=dict)  # by GPU, as the hub has seen it

    @property
    def job(self) -> JobKey:
        return self.node_id, self.task.job_id or self.task.id


@dataclass(frozen=True, slots=True)
class QuotaChoice:
    """The Quota that counts for a limit, and why not another."""

    quota: Quota
    beside: tuple[Quota, ...]  # that match too

    @property
    def why(self) -> str:
        if not self.beside:
            return f"{self.quota.id} is the only one that applies"
        return (f"{self.quota.id} ({self.quota.subject} on {self.quota.scope}) is more specific "
                f"than {', '.join(quota.id for quota in self.beside)}")


class QuotaOffender(Struct, frozen=True):
    """A job that would go, so that its holder is within the Quota again."""

    node: str
    host: str
    job_id: str
    task_ids: tuple[str, ...]
    user: str | None
    priority: int
    started_at: float | None


@dataclass(frozen=True, slots=True)
class QuotaBalance:
    """Usage that one holder has of one limit. `used`: as far as it is known: where `is_whole` is
    False there may be more. `is_contested`: the excess rests on what one node reports, and nothing
    elsewhere goes for that."""

    quota: Quota
    limit: Limit
    holder: str
    used: float
    most: float
    is_whole: bool
    tasks: int
    users: tuple[str, ...]
    offenders: tuple[QuotaOffender, ...] = ()
    is_contested: bool = False

    @property
    def is_over(self) -> bool:
        return self.used > self.most

    @property
    def sentence(self) -> str:
        at_least = "" if self.is_whole else "at least "
        if self.limit == "max_age_s":
            usage = f"the oldest task of {self.holder} runs for {span_words(self.used)}"
            return f"{usage}; {self.quota.id} gives it {span_words(self.most)}"
        usage = amount_words(self.limit, self.used, self.quota.per)
        most = amount_words(self.limit, self.most, self.quota.per)
        if self.limit == "gpu_hours":
            usage = usage.replace(" per ", " in the last ")
        verb = "used" if self.limit == "gpu_hours" else "hold" if (
            self.quota.count == "together") else "holds"
        contested = ("; only one node reports the excess, so a person must choose which task to "
                     "end" if self.is_contested else "")
        return (f"{self.holder} {verb} {at_least}{usage} {scope_words(self.quota)}; "
                f"{self.quota.id} gives {most}{contested}")


@dataclass(frozen=True, slots=True)
class ApplicableQuotas:
    """Quotas that may count for a Task, the most specific first; and of these, those with each
    limit."""

    quotas: tuple[Quota, ...]
    by_limit: Mapping[tuple[Limit, Counted], tuple[Quota, ...]]


class QuotaIndex:
    """Quotas with an index for quick search."""

    def __init__(self, quotas: Iterable[Quota]) -> None:
        self.all = tuple(sorted(quotas, key=lambda quota: quota.id))
        self.of = {quota.id: quota for quota in self.all}
        self._by_subject: dict[str, list[Quota]] = {}
        for quota in self.all:
            self._by_subject.setdefault(quota.subject, []).append(quota)
        self._about: dict[tuple[str, ...], ApplicableQuotas] = {}

    def about(self, task: "Task") -> ApplicableQuotas:
        """Return the quotas that may count. Tasks of the same subjects share one object."""
        subjects = tuple(subjects_of(task))
        if subjects not in self._about:
            self._about[subjects] = self._find(subjects)
        return self._about[subjects]

    def _find(self, subjects: tuple[str, ...]) -> ApplicableQuotas:
        matches = tuple(sorted((quota for subject in subjects
                                for quota in self._by_subject.get(subject, ())),
                               key=lambda quota: (*(-part for part in quota.rank), quota.id)))
        return ApplicableQuotas(matches, {(limit, count): tuple(sorted(
            (quota for quota in matches if quota.count == count and quota.limit(limit) is not None),
            key=lambda quota: (
                *(-part for part in quota.rank), quota.limit(limit) or 0.0, quota.id)))
                       for limit, count in dict.fromkeys(
                           (limit, quota.count) for quota in matches for limit in quota.limits)})

    def choice(self, holding: TaskHolding, uuid: str | None, limit: Limit, count: Counted
               ) -> QuotaChoice | None:
        matches = [quota for quota in self.about(holding.task).by_limit.get((limit, count), ())
                   if is_in_scope(quota, holding, uuid)]
        return QuotaChoice(matches[0], tuple(matches[1:])) if matches else None

    def open_to(self, user: str, groups: Iterable[str]) -> Iterator[tuple[Quota, Limit]]:
        """Yield what counts for a user who holds nothing yet: of each limit the most specific
        quotas, down to the first that covers every place."""
        subjects = (f"user:{user}", *(f"group:{group}" for group in sorted(groups)), "*")
        for (limit, count), quotas in self._find(subjects).by_limit.items():
            places = set[str]()
            for quota in quotas:
                is_theirs = count == "each" or quota.subject_kind == "user"
                if is_theirs and "fleet" not in places and quota.scope not in places:
                    yield quota, limit
                places.add(quota.scope)


def priority_of(about: ApplicableQuotas, holding: TaskHolding, uuid: str | None) -> int:
    """Return the priority of the most specific Quota at all, also of one without a limit."""
    quota = _first(about.quotas, holding, uuid)
    return DEFAULT_PRIORITY if quota is None else quota.priority


def subjects_of(task: "Task") -> list[str]:
    """Return a Task's subjects in the order of SUBJECTS; facts that are not known give none."""
    subjects = []
    if task.container_name is not None:
        subjects.append(f"container:{task.container_name}")
    if task.container is not None:
        subjects += [f"container:{task.container}", f"container:{task.container[:12]}"]
    if task.slurm_job is not None:
        subjects.append(f"slurm:{task.slurm_job}")
    if task.namespace is not None:
        subjects += [f"k8s:{task.namespace}/{task.pod}"] if task.pod is not None else []
        subjects.append(f"k8s:{task.namespace}")
    if task.user is not None:
        subjects.append(f"user:{task.user}")
    return [*dict.fromkeys((*subjects, *(f"group:{group}" for group in sorted(task.groups)))), "*"]


def is_in_scope(quota: Quota, holding: TaskHolding, uuid: str | None) -> bool:
    """Return whether it is within the quota's scope. `uuid` None: with any of its GPUs."""
    match quota.scope_kind:
        case "fleet":
            return True
        case "group":
            return quota.scope_name == holding.group
        case "node":
            return quota.scope_name in (holding.host, holding.node_id)
        case _:
            gpus = [gpu for gpu, _ in holding.uses] if uuid is None else [uuid]
            return quota.scope_name in gpus


def holder_of(quota: Quota, task: "Task") -> str | None:
    """Return the holder for whom it is counted; None: nobody, since the owner is not known."""
    if quota.subject_kind in ("container", "slurm", "k8s") or quota.count == "together":
        return subject_words(quota)
    return task.user


@dataclass(slots=True)
class _JobHoldings:
    key: JobKey
    host: str
    tasks: dict[str, TaskHolding] = field(default_factory=dict)
    uses: list[tuple[str, str, float | None]] = field(default_factory=list)  # node, GPU, memory
    priority: int = 4


@dataclass(slots=True)
class _HolderUsage:
    """Holdings that count for one holder of one limit."""

    quota: Quota
    limit: Limit
    holder: str
    jobs: dict[JobKey, _JobHoldings] = field(default_factory=dict)


_Usages = dict[tuple[str, Limit, str], _HolderUsage]  # by Quota, limit and holder


def balances(quotas: QuotaIndex, holdings: Iterable[TaskHolding], now: float,
             hours: Mapping[tuple[str, str], float | None],
             spared: Container[str], unsure: Container[str] = (),
             hours_by_node: Mapping[tuple[str, str], Mapping[str, float]] = NO_HOURS
             ) -> list[QuotaBalance]:
    """Return the balance of each holder and limit. `hours`: by Quota and user, or Quota and holder;
    without them no hours are counted. Hours of the Quotas `unsure` are at least so many, and hours
    that no node is known to report end nothing. `spared`: Tasks that are never chosen to go."""
    buckets: _Usages = {}
    owners: dict[JobKey, set[str | None]] = {}
    for holding in holdings:
        owners.setdefault(holding.job, set()).add(holding.task.user)
        _count(quotas, holding, buckets)
    results = []
    for bucket in buckets.values():
        balance = _balance(bucket, now, hours, spared, owners, unsure,
                           hours_by_node.get((bucket.quota.id, bucket.holder), {}))
        if balance is not None:
            results.append(balance)
    return sorted(results, key=lambda balance: (balance.quota.id, balance.limit, balance.holder))


def _count(quotas: QuotaIndex, holding: TaskHolding, buckets: _Usages) -> None:
    about = quotas.about(holding.task)
    for (limit, _), candidates in about.by_limit.items():
        if limit != "max_age_s":
            for use in holding.uses:
                _put(buckets, about, _first(candidates, holding, use[0]), limit, holding, (use,))
        else:
            _put(buckets, about, _first(candidates, holding, None), limit, holding, holding.uses)


def _first(candidates: Iterable[Quota], holding: TaskHolding, uuid: str | None) -> Quota | None:
    return next((quota for quota in candidates if is_in_scope(quota, holding, uuid)), None)


def _put(buckets: _Usages, about: ApplicableQuotas, quota: Quota | None, limit: Limit,
         holding: TaskHolding, uses: Iterable[tuple[str, float | None]]) -> None:
    holder = None if quota is None else holder_of(quota, holding.task)
    if quota is None or holder is None:
        return
    bucket = buckets.get((quota.id, limit, holder))
    if bucket is None:
        bucket = buckets[quota.id, limit, holder] = _HolderUsage(quota, limit, holder)
    job = bucket.jobs.get(holding.job)
    if job is None:
        job = bucket.jobs[holding.job] = _JobHoldings(holding.job, holding.host)
    job.tasks[holding.task.id] = holding
    for uuid, mem in uses:
        job.uses.append((holding.node_id, uuid, mem))
        # The most important of its tasks speaks for a job.
        job.priority = min(job.priority, priority_of(about, holding, uuid))


def _balance(bucket: _HolderUsage, now: float, hours: Mapping[tuple[str, str], float | None],
             spared: Container[str], owners: Mapping[JobKey, set[str | None]],
             unsure: Container[str], hours_by_node: Mapping[str, float]) -> QuotaBalance | None:
    most = bucket.quota.limit(bucket.limit)
    assert most is not None
    tasks = [holding.task for job in bucket.jobs.values() for holding in job.tasks.values()]
    users = tuple(sorted({task.user for task in tasks if task.user is not None}))
    if bucket.limit == "gpu_hours":
        hour = hours.get((bucket.quota.id, bucket.holder))
        if hour is None:
            return None
        usage, is_whole = hour, bucket.quota.id not in unsure
    elif bucket.limit == "max_age_s":
        ages = [now - task.started_at for task in tasks if task.started_at is not None]
        usage, is_whole = max(ages, default=0.0), len(ages) == len(tasks)
    else:
        usage, is_whole = _sum(bucket)
    may_go = [job for job in bucket.jobs.values()
              if owners[job.key] == {next(iter(owners[job.key]))} and None not in owners[job.key]
              and not any(task_id in spared for task_id in job.tasks)]
    if usage <= most:
        return QuotaBalance(bucket.quota, bucket.limit, bucket.holder, usage, most, is_whole,
                            len(tasks), users)
    jobs = sorted(may_go, key=_order)
    choices = [_going(bucket, among, usage, most, now) for among in (
        _confirmed(bucket, jobs, usage, most, hours_by_node), _late(bucket, jobs, most))]
    go = max(choices, key=len)  # the first of equals: it goes by importance
    return QuotaBalance(bucket.quota, bucket.limit, bucket.holder, usage, most, is_whole,
                        len(tasks), users, tuple(_offender(job) for job in go),
                        bool(jobs) and not go)


def _confirmed(bucket: _HolderUsage, jobs: list[_JobHoldings], usage: float, most: float,
               hours_by_node: Mapping[str, float]) -> list[_JobHoldings]:
    """Return those of the jobs that would go also without the report of any single other node: one
    node, whose key may be stolen, ends nothing on another."""
    if bucket.limit == "max_age_s":  # of each by itself
        return jobs
    is_of_hours = bucket.limit == "gpu_hours"
    reports = dict(hours_by_node) if is_of_hours else _sums_by_node(bucket)
    users, confirmed = _users_of_gpus(bucket), []
    for job in jobs:
        elsewhere = max((sum_ for node_id, sum_ in reports.items() if node_id != job.key[0]),
                        default=0.0)
        if not reports or usage - elsewhere <= most:
            continue
        confirmed.append(job)
        if not is_of_hours:
            freed = -_change(users, job, -1, bucket.limit)
            reports[job.key[0]] -= freed
            usage -= freed
    return confirmed


def _late(bucket: _HolderUsage, jobs: list[_JobHoldings], most: float) -> list[_JobHoldings]:
    """Return those of the jobs on GPUs that were taken when the holder had all that the Quota gives
    already, as the hub saw it; the newest first."""
    if bucket.limit != "gpus":
        return []
    since: dict[tuple[str, str], float] = {}
    for job in bucket.jobs.values():
        for holding in job.tasks.values():
            for uuid, _ in holding.uses:
                key = holding.node_id, uuid
                since[key] = min(holding.since.get(uuid, math.inf), since.get(key, math.inf))
    gpus = {(node_id, uuid) for job in bucket.jobs.values() for node_id, uuid, _ in job.uses}
    beyond = sorted(gpus, key=lambda gpu: (since[gpu], gpu))[int(most):]
    newest = {gpu: place for place, gpu in enumerate(beyond)}
    places = {job.key: max(newest.get((node_id, uuid), -1) for node_id, uuid, _ in job.uses)
              for job in jobs}
    return sorted((job for job in jobs if places[job.key] >= 0),
                  key=lambda job: -places[job.key])


def _sums_by_node(bucket: _HolderUsage) -> dict[str, float]:
    gpus: dict[str, set[str]] = {}
    sums: dict[str, float] = {}
    for job in bucket.jobs.values():
        for node_id, uuid, mem in job.uses:
            gpus.setdefault(node_id, set()).add(uuid)
            sums[node_id] = sums.get(node_id, 0.0) + (mem or 0.0)
    return {node_id: float(len(uuids)) for node_id, uuids in gpus.items()} if (
        bucket.limit == "gpus") else sums


def _sum(bucket: _HolderUsage) -> tuple[float, bool]:
    uses = [use for job in bucket.jobs.values() for use in job.uses]
    if bucket.limit == "gpus":
        return float(len({(node_id, uuid) for node_id, uuid, _ in uses})), True
    sizes = [mem for _, _, mem in uses if mem is not None]
    return sum(sizes), len(sizes) == len(uses)


def _order(job: _JobHoldings) -> tuple[int, float, JobKey]:
    """Return the sort key of a job: the least important goes first, and of these the youngest; one
    whose age is not known goes last."""
    starts = [holding.task.started_at for holding in job.tasks.values()]
    known_starts = [start for start in starts if start is not None]
    return -job.priority, -min(known_starts) if len(known_starts) == len(starts) else 1e18, job.key


def _going(bucket: _HolderUsage, jobs: list[_JobHoldings], usage: float, most: float,
           now: float) -> list[_JobHoldings]:
    """Choose no more jobs than needed: without any single one of them it would still be over."""
    match bucket.limit:
        case "gpu_hours":
            return jobs  # what is used up comes back with time alone
        case "max_age_s":
            return [job for job in jobs if _age_s(job, now) > most]
        case _:
            return _fewest(bucket, jobs, usage, most)


def _age_s(job: _JobHoldings, now: float) -> float:
    """Return the age of the oldest task; one whose start is not known counts as new."""
    return max((now - holding.task.started_at for holding in job.tasks.values()
                if holding.task.started_at is not None), default=0.0)


def _users_of_gpus(bucket: _HolderUsage) -> Counter[tuple[str, str]]:
    return Counter((node_id, uuid) for job in bucket.jobs.values() for node_id, uuid, _ in job.uses)


def _change(users: Counter[tuple[str, str]], job: _JobHoldings, sign: int, limit: Limit) -> float:
    """Return the change of the sum when the job goes (-1) or comes back."""
    total = 0.0
    for node_id, uuid, mem in job.uses:
        gpu = node_id, uuid
        was_held = users[gpu] > 0
        users[gpu] += sign
        total += int(users[gpu] > 0) - int(was_held) if limit == "gpus" else sign * (mem or 0.0)
    return total


def _fewest(bucket: _HolderUsage, jobs: list[_JobHoldings], usage: float,
            most: float) -> list[_JobHoldings]:
    users, limit = _users_of_gpus(bucket), bucket.limit
    going: list[_JobHoldings] = []
    for job in jobs:
        if usage <= most:
            break
        usage += _change(users, job, -1, limit)
        going.append(job)
    for job in reversed(list(going)):  # one that need not go stays, the most important first
        back = _change(users, job, +1, limit)
        if back == 0 or usage + back <= most:
            usage += back
            going.remove(job)
        else:
            _change(users, job, -1, limit)
    return going


def _offender(job: _JobHoldings) -> QuotaOffender:
    tasks = [holding.task for holding in job.tasks.values()]
    starts = [task.started_at for task in tasks if task.started_at is not None]
    return QuotaOffender(job.key[0], job.host, job.key[1], tuple(sorted(job.tasks)), tasks[0].user,
                         job.priority, min(starts) if len(starts) == len(tasks) else None)


def explained(quotas: QuotaIndex, holding: TaskHolding) -> Iterator[tuple[Limit, QuotaChoice]]:
    """Yield, for each limit, the Quotas that count for this Task."""
    for limit in LIMITS:
        for count in COUNTS:
            ids = set()
            for uuid, _ in holding.uses:
                choice = quotas.choice(holding, uuid, limit, count)
                if choice is not None and choice.quota.id not in ids:
                    ids.add(choice.quota.id)
                    yield limit, choice

"""Answers of NCCL's RAS service, and what two of them say about a job that looks stuck. Pure.

Ranks that launch collectives at their own pace differ at any moment. Only ranks that have not
launched one for a while, while others of their communicator have launched more, are behind.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gpudeck.contract.collectives import MOST_NAMED, CollectiveRank, CollectiveSample
from gpudeck.contract.gpu_facts import GpuFacts

from ..readings import GpuReading
from ..tasks.seen import GpuTask

PORT = 28_028  # unless NCCL_RAS_ADDR has another one
STILL_S = 30.0
# Worth asking about: busy, at the power of a board that does little. The hub's rules say more.
BUSY_PCT, POWER_SHARE = 95.0, 0.5
OTHER_ANSWER = "what answers there is not NCCL's RAS service, or a version that is not known here"
OTHER_JOB = "another job of this node answers there: RAS has one port for all of them"
NOBODYS = "this agent may not see which process listens there"

# The counts of all kinds together stay below what the hub takes as a Number.
Count = Annotated[int, Meta(ge=0, le=2**46)]
Id = Annotated[int, Meta(ge=-1, le=2**31 - 1)]  # -1: RAS does not know it
Host = Annotated[str, Meta(pattern=r"\A[\w.:%-]{1,64}\Z")]
Hash = Annotated[str, Meta(pattern=r"\A[0-9a-fx:]{1,48}\Z")]
# NCCL 2.28 leaves out the comma before the status of a rank that does not answer.
NO_COMMA = re.compile(rb'("nvml_dev": -?[0-9]{1,10})(\s{1,64}"status")')
MOST_RANKS, MOST_COMMUNICATORS, MOST_KINDS = 65_536, 4_096, 64


class RasUnreadableError(Exception):
    """RAS that cannot be read, with the reason as a sentence."""


class RasRank(Struct):
    rank: Count
    host: Host
    pid: Id
    nvml_dev: Id
    collective_counts: Annotated[dict[str, Count], Meta(max_length=MOST_KINDS)]

    @property
    def launched(self) -> int:
        return sum(self.collective_counts.values())


class MissingStatus(Struct):
    unresponsive: bool
    considered_dead: bool


class MissingRank(Struct):
    rank: Count
    host: Host
    pid: Id
    nvml_dev: Id
    status: MissingStatus


class Communicator(Struct):
    hash: Hash
    secondary_hash: Hash
    size: Count
    ranks: Annotated[list[RasRank], Meta(max_length=MOST_RANKS)]
    missing_ranks: Annotated[list[MissingRank], Meta(max_length=MOST_RANKS)]

    @property
    def silent(self) -> list[MissingRank]:
        """Return the ranks that do not answer. A rank that answers, but is no member yet or any
        more, is missing too, and says nothing."""
        return [rank for rank in self.missing_ranks
                if rank.status.unresponsive or rank.status.considered_dead]

    @property
    def is_uneven(self) -> bool:
        """True where its ranks have not launched the same collectives."""
        return len({tuple(sorted(rank.collective_counts.items())) for rank in self.ranks}) > 1


class RasAnswer(Struct):
    communicators: Annotated[list[Communicator], Meta(max_length=MOST_COMMUNICATORS)]


def parse(answer: bytes) -> list[Communicator]:
    try:
        return msgspec.json.decode(NO_COMMA.sub(rb"\1,\2", answer), type=RasAnswer).communicators
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RasUnreadableError(OTHER_ANSWER) from error


def port_of(address: str) -> int | None:
    """Return the port of NCCL_RAS_ADDR; None: it names none."""
    port = address.rpartition(":")[2]
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    return int(port) if is_number and 0 < int(port) < 65_536 else None


@dataclass(slots=True)
class StandstillTracker:
    """Tracker of communicators whose ranks launch nothing, by their name: the counts, and since
    when they have been so."""

    _since: dict[str, tuple[object, float]] = field(default_factory=dict)

    def update(self, communicators: Iterable[Communicator], at: float) -> dict[str, float]:
        """Return for how long each has stood still. Counts only grow: equal ones at two moments
        were equal between them as well."""
        since: dict[str, tuple[object, float]] = {}
        for one in communicators:
            counts = (one.size, sorted((rank.rank, sorted(rank.collective_counts.items()))
                                       for rank in one.ranks),
                      sorted(rank.rank for rank in one.silent))
            had = self._since.get(name_of(one))
            since[name_of(one)] = had if had is not None and had[0] == counts else (counts, at)
        self._since = since
        return {name: at - began for name, (_, began) in since.items()}


def name_of(communicator: Communicator) -> str:
    return f"{communicator.hash} {communicator.secondary_hash}"


def pids_of(communicators: Iterable[Communicator]) -> set[int]:
    """Return the pids of all ranks, each as its own PID namespace has it."""
    return {pid for one in communicators for pid in (
        *(rank.pid for rank in one.ranks), *(rank.pid for rank in one.missing_ranks))}


def standstill(task_id: str, communicators: Sequence[Communicator], still_s: Mapping[str, float]
               ) -> CollectiveSample | None:
    """Return the largest communicator that has stood still for STILL_S while its ranks differ, or
    some do not answer; None: there is none. One that nobody uses any more stands still too."""
    stuck = [one for one in communicators if still_s[name_of(one)] >= STILL_S
             and (one.is_uneven or one.silent)]
    if not stuck:
        return None
    one = max(stuck, key=lambda one: (one.size, still_s[name_of(one)]))
    launched = [rank.launched for rank in one.ranks]
    least, most = min(launched, default=0), max(launched, default=0)
    behind = [rank for rank in one.ranks if rank.launched == least] if least < most else []
    silent = one.silent
    return CollectiveSample(
        task_id, communicator=one.hash, size=one.size, still_s=still_s[name_of(one)],
        ahead=len(one.ranks) - len(behind), least=least, most=most,
        behind=_first_ranks(behind), behind_count=len(behind), missing=_first_ranks(silent),
        missing_count=len(silent), is_mixed=least == most and one.is_uneven)


def _first_ranks(ranks: Sequence[RasRank | MissingRank]) -> tuple[CollectiveRank, ...]:
    first = sorted(ranks, key=lambda rank: rank.rank)[:MOST_NAMED]
    return tuple(CollectiveRank(rank.rank, rank.host, _number_or_none(rank.pid),
                                _number_or_none(rank.nvml_dev)) for rank in first)


def _number_or_none(number: int) -> int | None:
    return None if number < 0 else number


# -- jobs worth asking about


@dataclass(frozen=True, slots=True)
class SuspectJob:
    """A job of which a GPU looks stuck. `tasks`: id and pid of each of its tasks."""

    id: str
    tasks: tuple[tuple[str, int], ...]


def looks_stuck(gpu: GpuReading, facts: GpuFacts) -> bool:
    util, power = gpu.value("util_pct"), gpu.value("power_w")
    limit = facts.power_limit_max_w or facts.power_limit_w  # the present one may be a cap
    return (gpu.state == "ok" and util is not None and power is not None and limit is not None
            and util >= BUSY_PCT and power < POWER_SHARE * limit)


def suspect_jobs(gpus: Iterable[GpuReading], facts: Iterable[GpuFacts],
                 gpu_tasks: Iterable[GpuTask]) -> tuple[SuspectJob, ...]:
    """Return the jobs that have a GPU which looks stuck, with all of their tasks on this node: the
    rank that the others wait for rests."""
    facts_of = {fact.uuid: fact for fact in facts}
    stuck = {gpu.uuid for gpu in gpus
             if gpu.uuid in facts_of and looks_stuck(gpu, facts_of[gpu.uuid])}
    tasks: dict[str, dict[str, int]] = {}
    suspects = dict[str, None]()
    for entry in gpu_tasks:
        job_id = entry.task.job_id or entry.task.id
        tasks.setdefault(job_id, {})[entry.task.id] = entry.task.pid
        if entry.gpu_uuid in stuck and entry.task.kind == "compute":
            suspects[job_id] = None
    return tuple(SuspectJob(job_id, tuple(tasks[job_id].items())) for job_id in suspects)
